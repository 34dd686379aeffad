"""Actions are saved, read and taken again; explain says what a search tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid import Context, Tensor
from pellucid.cli import main
from pellucid.engine import beam
from pellucid.opt.saved import actions_from_text
from pellucid.opt.searching.search import Limits
from pellucid.tools.saving import actions_of

OTHERS = "kernel 00ff\nkernel 00fe\n"
PROGRAM = """\
from pellucid import Tensor
print(((Tensor([[1.0, 2.0], [3.0, 4.0]]) * 3 + 1).sum(1)).tolist())
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_every_kernel_is_saved_and_taken_again(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plans.txt"
    assert main(["explain", program, "--save-actions", str(file)]) == 0
    plans = actions_from_text(file.read_text())
    assert len(plans) == 1
    changed = "".join(f"kernel {key}\n" for key in plans)  # plain loops
    with Context(actions=changed):
        main(["explain", program])
    printed = capsys.readouterr().out
    assert printed.count("[11.0, 23.0]") == 2
    assert "optimised by  none" in printed
    assert all(key in printed for key in plans)


def test_hints_are_asked_for_in_a_list_and_say_which_parameter_they_mean(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plans.txt"
    main(["explain", program, "--save-actions", str(file)])
    (key,) = actions_from_text(file.read_text())
    hints = "Action('stream', 0, 0)\nAction('prefetch', 0, 1, (8,))\n"
    with Context(actions=f"kernel {key}\n{hints}"):
        assert main(["explain", program]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "stream parameter 0, axis 0, prefetch parameter 1, axis 0" in printed
    assert "PREFETCH" in printed


def test_a_place_that_cannot_be_written(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", program, "--save-actions", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_actions_of_a_tensor_are_those_that_run() -> None:
    x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 8)
    text = actions_of(x * 2)
    with Context(actions=text):
        assert actions_of(x * 2) == text


def test_lists_that_no_kernel_took_are_told_at_the_end_of_the_block() -> None:
    x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 9)
    (key,) = actions_from_text(actions_of(x * 5))
    message = rf"kernel 00ff, 00fe were not used: .*without a list: {key}\); .*--save-actions"
    with pytest.warns(UserWarning, match=message) as caught, Context(actions=OTHERS):
        (x * 5).realize()
    assert [w.filename for w in caught] == [__file__]
    with Context(actions=f"{OTHERS}kernel {key}\n"):
        (x * 5).realize()  # a part of a program takes a part of its lists


def test_a_block_that_ends_by_an_error_tells_that_alone() -> None:
    x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 9)

    @Context(actions="kernel 00fd\n")
    def fail() -> None:
        (x * 6).realize()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_lists_that_no_kernel_took_are_told_at_the_end_of_the_process(
    program: str, tmp_path: Path
) -> None:
    file = tmp_path / "plans.txt"
    main(["explain", program, "--save-actions", str(file)])
    with file.open("a") as plans:
        plans.write(OTHERS)
    environ = os.environ | {"PELLUCID_ACTIONS": str(file)}
    ran = subprocess.run([sys.executable, program], env=environ, capture_output=True, text=True)
    assert ran.stdout == "[11.0, 23.0]\n"
    assert ran.stderr.count("UserWarning") == 1
    assert "saved actions for kernel 00ff, 00fe were not used: no kernels have" in ran.stderr


def test_explain_reports_the_search(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "for_width", staticmethod(lambda width: Limits(9.0, 6, 2, 4)))
    beam.forget_searches()
    assert main(["explain", program, "--beam", "1"]) == 0
    printed = capsys.readouterr().out
    for word in ("the search", "measured", "plain loops", "heuristic", "after each step", "took"):
        assert word in printed
    beam.forget_searches()
    assert main(["explain", program, "--beam", "1"]) == 0
    assert "in an earlier process" in capsys.readouterr().out
