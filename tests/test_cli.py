"""The command line: what each command prints, and the status that it ends with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pellucid
from pellucid import Tensor, pipeline
from pellucid.cli import main
from pellucid.core.options import Options, current_options
from pellucid.ir.op import Ops
from pellucid.runtime.device import Device

Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *arguments: str) -> str:
    """What a command that succeeds prints."""
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_pipeline_is_the_list_of_stages(capsys: Captured) -> None:
    text = printed(capsys, "pipeline")
    places = [text.index(stage.name) for stage in pipeline.KERNEL_PIPELINE]
    assert places == sorted(places)
    assert "after collapse_reductions:" in text


def test_laws_say_what_they_hold_for_and_how_that_is_known(capsys: Captured) -> None:
    text = printed(capsys, "laws")
    assert "add_minus_zero" in text
    assert "x + -0.0 = x" in text
    assert "proved" in text
    one = printed(capsys, "laws", "arithmetic")
    assert "add_minus_zero" in one
    assert len(one) < len(text)


def test_laws_do_not_load_the_prover() -> None:
    script = (
        "import sys; from pellucid.cli import main; main(['laws']);"
        "sys.exit('z3' in sys.modules or 'llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ops_devices_and_options_are_whole(capsys: Captured) -> None:
    text = printed(capsys, "ops")
    assert all(op.name in text for op in Ops.all())
    text = printed(capsys, "devices")
    assert all(name in text for name in Device)
    assert "ready: llvm" in text
    text = printed(capsys, "options")
    assert all(f"PELLUCID_{name.upper()}" in text for name in Options.__slots__)
    assert "PELLUCID_TARGET" in text


def test_a_device_without_its_compiler_is_not_ready(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    text = " ".join(printed(capsys, "devices").split())
    assert "CPU:C c the C renderer needs a C compiler, and there is none" in text
    assert "ready: llvm" in text


def test_tables_are_written_in_whatever_letters_there_are() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pellucid", "pipeline"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"plan_memory" in ran.stdout
    assert ran.stdout.isascii()


def test_cache_is_counted_and_emptied(capsys: Captured) -> None:
    (Tensor([1.0, 2.0]).realize() * 3.71828).realize()
    folder = current_options().cache_dir
    text = printed(capsys, "cache")
    assert text.startswith(folder)
    assert " 0 files" not in text
    assert text.rstrip().endswith((" B", "KB"))
    assert "emptied" in printed(capsys, "cache", "--clear")
    assert " 0 files" in printed(capsys, "cache")


def test_cache_without_a_folder(capsys: Captured) -> None:
    with pellucid.Context(cache_dir=""):
        assert "there is no cache on disk" in printed(capsys, "cache", "--clear")


def test_explain_and_bisect_run_a_program(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import sys\n"
        "from pellucid import Tensor\n"
        "print((Tensor([1.0, 2.0]) * 2).tolist(), sys.argv[1:])\n"
    )
    text = printed(capsys, "explain", str(path), "first", "second")
    assert "[2.0, 4.0] ['first', 'second']" in text
    assert "kernel 1" in text
    text = printed(capsys, "explain", str(path), "--kernel", "1", "--", "--steps", "3")
    assert "[2.0, 4.0] ['--steps', '3']" in text
    text = printed(capsys, "bisect", str(path), "--seed", "5", "--device", "CPU:C")
    assert "seed 5" in text
    assert "same" in text


@pytest.mark.parametrize("command", ["explain", "bisect"])
def test_a_missing_file_is_status_2(command: str, capsys: Captured) -> None:
    assert main([command, "nowhere.py"]) == 2
    assert capsys.readouterr().err == "pellucid: there is no file 'nowhere.py'\n"


def test_an_unknown_kernel_or_family_is_status_2(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "program.py"
    path.write_text("from pellucid import Tensor\n(Tensor([1.0]) * 2).realize()\n")
    assert main(["explain", str(path), "--kernel", "7"]) == 2
    assert "there is no kernel 7" in capsys.readouterr().err
    assert main(["laws", "of_nature"]) == 2
    assert "no family 'of_nature'; there are arithmetic" in capsys.readouterr().err


def test_an_unknown_device_is_a_clear_error(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "program.py"
    path.write_text("from pellucid import Tensor\n(Tensor([1.0]) * 2).realize()\n")
    assert main(["explain", str(path), "--device", "TOASTER"]) == 1
    assert "there is no device 'TOASTER'" in capsys.readouterr().err


def test_the_users_error_is_shown_with_his_own_traceback(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from pellucid import Tensor\nx = Tensor([[1.0, 2.0]])\ny = x @ Tensor([[1.0, 2.0]])\n"
    )
    assert main(["explain", str(path)]) == 1
    text = capsys.readouterr().err
    assert "ShapeError" in text
    assert f"{path}" in text
    assert "line 3" in text
    assert "tools/running.py" not in text


def test_a_wrong_command_is_status_2_and_no_command_shows_help() -> None:
    for arguments in (["frobnicate"], [], ["ops", "--", "--steps"]):
        with pytest.raises(SystemExit) as leaving:
            main(arguments)
        assert leaving.value.code == 2


def test_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"pellucid {pellucid.__version__}\n"


def test_the_installed_command_survives_a_closed_pipe() -> None:
    command = Path(sys.executable).with_name("pellucid")
    if not command.exists():
        pytest.skip("the package is not installed")
    shell = f"'{command}' ops | head -n 1"
    done = subprocess.run(
        ["/bin/sh", "-c", shell], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.startswith("operations")
    assert "Traceback" not in done.stderr


def test_without_a_command_the_commands_are_listed(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2
    assert "each kernel of a program" in capsys.readouterr().err


def test_the_package_itself_can_be_run() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pellucid", "nonsense"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("usage: pellucid")
