"""What the machine does wrong: a cache in ruins, a missing compiler, refused code, Ctrl-C.

Each program runs in a process of its own, as a user would run it. It may lose time, never a value.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid import Context, Tensor
from pellucid.core.errors import CompileError
from pellucid.render import CRenderer, LLVMRenderer

PROGRAM = """
from pellucid import Tensor
x = Tensor([1.0, 2.0, 3.0]).realize()
print((x * 3 + 1).tolist(), x.sum().item())
"""
ANSWER = "[4.0, 7.0, 10.0] 6.0\n"


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process; it must end by itself, not by a signal."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode >= 0, f"ended by signal {-done.returncode}"
    return done


# ---- the cache on disk ----------------------------------------------------------------------


def garbage(file: Path) -> None:
    file.write_bytes(bytes(range(256)) * 20)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def one_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


def loop_of_links(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


@pytest.mark.parametrize("damage", [garbage, emptied, cut, one_bit, folder_instead, loop_of_links])
@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
def test_damaged_files_in_the_cache_are_ignored(
    damage: Callable[[Path], None], device: str, tmp_path: Path
) -> None:
    where = {"PELLUCID_CACHE_DIR": str(tmp_path), "PELLUCID_DEVICE": device}
    assert run(PROGRAM, **where).stdout == ANSWER
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files, "the first run has filled the cache"
    for file in files:
        damage(file)
    again = run(PROGRAM, **where)
    assert (again.stdout, again.stderr) == (ANSWER, "")


def test_a_cache_folder_that_cannot_be_used_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/pellucid")):
        done = run(PROGRAM, PELLUCID_CACHE_DIR=str(folder))
        assert (done.stdout, done.stderr) == (ANSWER, "")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_cache_without_permissions_costs_time_only(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    done = run(PROGRAM, PELLUCID_CACHE_DIR=str(tmp_path))
    tmp_path.chmod(0o700)
    assert (done.stdout, done.stderr) == (ANSWER, "")


def test_the_cache_command_counts_a_folder_in_ruins(tmp_path: Path) -> None:
    assert run(PROGRAM, PELLUCID_CACHE_DIR=str(tmp_path)).stdout == ANSWER
    for file in [path for path in tmp_path.rglob("*") if path.is_file()]:
        loop_of_links(file)
    done = run(
        "from pellucid.cli import main; raise SystemExit(main(['cache', '--clear']))",
        PELLUCID_CACHE_DIR=str(tmp_path),
    )
    assert "Traceback" not in done.stderr


# ---- a missing tool -------------------------------------------------------------------------

AFTER_A_MISSING_TOOL = """
import sys
from pellucid import Context, Tensor
from pellucid.core.errors import ToolchainError
{prepare}
x = Tensor([1.0, 2.0, 3.0])
y = x.to("{broken}") * 3 + 1
try:
    y.tolist()
except ToolchainError as error:
    print(error)
z = x.to("{works}") * 3 + 1
print(z.tolist(), y.to("{works}").shape)
"""


def test_without_a_c_compiler_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = AFTER_A_MISSING_TOOL.format(prepare="", broken="CPU:C", works="CPU:LLVM")
    done = run(program, PATH=str(tmp_path), CC="", PELLUCID_CACHE_DIR="")
    assert done.stderr == ""
    first, looked, *_ = done.stdout.splitlines()
    assert first == "the C renderer needs a C compiler, and there is none"
    assert looked.split() == ["looked", "for", "cc,", "gcc,", "clang"]
    assert "or use PELLUCID_DEVICE=CPU:LLVM" in done.stdout
    assert done.stdout.splitlines()[-1] == "[4.0, 7.0, 10.0] (3,)"


def test_without_llvmlite_the_error_says_what_to_install() -> None:
    program = AFTER_A_MISSING_TOOL.format(
        prepare="sys.modules['llvmlite'] = None", broken="CPU:LLVM", works="CPU:C"
    )
    done = run(program, PELLUCID_CACHE_DIR="")
    assert done.stderr == ""
    assert done.stdout.startswith("the LLVM renderer needs llvmlite, which cannot be imported\n")
    assert "pip install llvmlite, or use the C compiler: PELLUCID_DEVICE=CPU:C" in done.stdout
    assert done.stdout.splitlines()[-1] == "[4.0, 7.0, 10.0] (3,)"


# ---- a kernel that does not compile ---------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "renderer", "problem", "excerpt"),
    [
        ("CPU:LLVM", LLVMRenderer, "expected top-level entity", "1: this is no program"),
        ("CPU:C", CRenderer, "", "1: this is no program"),
    ],
)
def test_a_kernel_that_does_not_compile_names_stage_kernel_and_line(
    device: str, renderer: type, problem: str, excerpt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Context(device=device, trace=True, cache_dir=""):
        x = Tensor([1.0, 2.0, 3.0]).realize()
        y = x * 17.5 + 0.25
        with monkeypatch.context() as patch:
            patch.setattr(renderer, "render", lambda *_: "this is no program")
            with pytest.raises(CompileError) as caught:
                y.realize()
        text = str(caught.value)
        assert text.startswith("compile failed for kernel map_3: " + problem)
        assert excerpt in text
        assert "run `pellucid bisect` on your program" in text
        assert "y = x * 17.5 + 0.25" in text.splitlines()[-1]
        assert x.tolist() == [1.0, 2.0, 3.0]
        assert y.tolist() == [17.75, 35.25, 52.75]


# ---- Ctrl-C ---------------------------------------------------------------------------------

SLOW_COMPILER = """#!/bin/sh
if [ -e {marker} ]; then exec {compiler} "$@"; fi
touch {marker}
echo compiling >&2
sleep 50
"""

INTERRUPTED = """
import sys
from pellucid import Tensor
x = Tensor([1.0, 2.0, 3.0]).realize()
y = x * 3 + 1
x += 10
try:
    print("compiling", flush=True)
    y.realize()
except KeyboardInterrupt:
    print("interrupted")
print(x.tolist(), y.tolist())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_while_the_compiler_runs_loses_nothing(tmp_path: Path) -> None:
    marker, compiler = tmp_path / "marker", shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    slow = tmp_path / "slow-cc"
    slow.write_text(SLOW_COMPILER.format(marker=marker, compiler=compiler))
    slow.chmod(0o755)
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env=os.environ | {"CC": str(slow), "PELLUCID_DEVICE": "CPU:C", "PELLUCID_CACHE_DIR": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(marker.exists)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out == "compiling\ninterrupted\n[11.0, 12.0, 13.0] [4.0, 7.0, 10.0]\n", err


def wait_until(condition: Callable[[], bool]) -> None:
    import time

    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


ANY_MOMENT = """
import signal, sys
from pellucid import Context, Tensor

def stop(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, stop)
state = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
expected, stopped = [1.0, 2.0, 3.0, 4.0], 0
for step in range(60):
    old = state * 2
    state += step + 0.5
    state[1:3] = state[0:2]
    total = (state.softmax(0) * step).sum()
    expected_old = [2 * v for v in expected]
    moved = [v + step + 0.5 for v in expected]
    expected = [moved[0], moved[0], moved[1], moved[3]]
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 * (1 + step % 30))
        state.realize(total)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        stopped += 1
    assert state.tolist() == expected, (step, state.tolist(), expected)
    assert old.tolist() == expected_old, step
    assert abs(total.item() - step) < 1e-4 * (step + 1), (step, total.item())
print("stopped" if stopped > 5 else f"stopped only {stopped} times")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_at_any_moment_loses_nothing() -> None:
    done = run(ANY_MOMENT, PELLUCID_CACHE_DIR="")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "stopped\n"
