"""A program that a tool runs sees what it would see by `python FILE.py`, and fails as it would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pellucid.tools.running import UsageError, run_file


def write(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(text)
    return str(path)


def test_a_program_is_main_with_its_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path,
        "import sys\n"
        "from neighbour import name\n"
        "print(__name__, sys.argv[1:], __file__ == sys.argv[0], name)\n",
    )
    (tmp_path / "neighbour.py").write_text("name = 'next door'\n")
    before = list(sys.argv), list(sys.path)
    assert run_file(path, ["--steps", "3"]) == 0
    assert capsys.readouterr().out == "__main__ ['--steps', '3'] True next door\n"
    assert (sys.argv, sys.path) == before


@pytest.mark.parametrize(
    ("text", "status"),
    [("raise SystemExit", 0), ("import sys\nsys.exit(7)", 7), ("raise SystemExit('no')", 1)],
)
def test_the_status_is_the_programs(tmp_path: Path, text: str, status: int) -> None:
    assert run_file(write(tmp_path, text)) == status


def test_a_traceback_starts_in_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "def f():\n    return 1 / 0\n\nf()\n")
    assert run_file(path) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{path}", line 4, in <module>'
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "running.py" not in "\n".join(lines)


def test_a_syntax_error_is_shown_without_a_traceback_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_file(write(tmp_path, "x = = 1\n")) == 1
    text = capsys.readouterr().err
    assert "SyntaxError" in text
    assert "running.py" not in text


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        run_file(str(tmp_path / "missing.py"))
    with pytest.raises(UsageError, match="is a folder"):
        run_file(str(tmp_path))
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        run_file(str(tmp_path / "bytes.py"))
