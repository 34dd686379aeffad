"""Tapes and the native pool: all steps, all parts, in order, from many threads, through forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from array import array

import pytest

from pellucid.runtime import Device
from pellucid.runtime import native as native_module
from pellucid.runtime.native import Native, native
from pellucid.runtime.native_code import source_for
from pellucid.runtime.program import CPUProgram
from pellucid.runtime.tape import QUICK, Step, Tape, copy_function
from tests.together import in_threads

# out[thread] = out[thread] * 3 + vars[0] + scratch[0], where scratch[0] = thread was just written
STEP_IR = """
define void @step(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) nounwind {
  %out = load ptr, ptr %buffers
  %at = getelementptr i64, ptr %out, i64 %thread
  %old = load i64, ptr %at
  %add = load i64, ptr %vars
  store i64 %thread, ptr %scratch
  %own = load i64, ptr %scratch
  %tripled = mul i64 %old, 3
  %sum = add i64 %tripled, %add
  %all = add i64 %sum, %own
  store i64 %all, ptr %at
  ret void
}
"""
LONG_IR = """
define void @long(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) nounwind {
entry:
  %out = load ptr, ptr %buffers
  %at = getelementptr i64, ptr %out, i64 %thread
  %n = load i64, ptr %vars
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  store volatile i64 %i, ptr %at
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def load(source: str, name: str) -> CPUProgram:
    program = Device["CPU"].load(Device["CPU"].compile(source, name), name)
    assert isinstance(program, CPUProgram)
    return program


@pytest.fixture(params=["native", "ctypes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to play a tape."""
    if request.param == "native" and native() is None:
        pytest.skip("no native functions on this system")
    if request.param == "ctypes":
        monkeypatch.setattr(native_module, "_found", [None])
    return str(request.param)


@pytest.fixture
def functions() -> Native:
    """The native functions."""
    found = native()
    if found is None:
        pytest.skip("no native functions on this system")
    return found


def expected(start: int, thread: int, added: list[int]) -> int:
    for value in added:
        start = start * 3 + value + thread
    return start


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7, 40])
def test_all_steps_run_in_order_with_all_parts(way: str, num_threads: int) -> None:
    step = load(STEP_IR, "step")
    out = array("q", range(num_threads))
    at = out.buffer_info()[0]
    added = [1, 5, -2, 9]
    tape = Tape(
        [Step(step.function_address, (at,), (n,), num_threads, 8) for n in added], keep_alive=step
    )
    assert tape.scratch_bytes == 64 * num_threads
    tape.take_scratch()
    tape.run()
    assert out.tolist() == [expected(t, t, added) for t in range(num_threads)]


def test_addresses_and_variables_are_exchanged(way: str) -> None:
    step = load(STEP_IR, "step")
    first, second = array("q", [1]), array("q", [2])
    tape = Tape([Step(step.function_address, (first.buffer_info()[0],), (7,), 1, 8)], step)
    tape.take_scratch()
    tape.run()
    tape.words[tape.places[0]] = second.buffer_info()[0]
    tape.words[tape.vars_place(0)] = 8
    tape.run()
    assert (first[0], second[0]) == (10, 14)


def test_addresses_are_given_as_arguments(way: str) -> None:
    step = load(STEP_IR, "step")
    first, second, third = array("q", [1]), array("q", [2]), array("q", [3])

    def place(numbers: array[int]) -> int:
        return numbers.buffer_info()[0]

    tape = Tape([Step(step.function_address, (place(first),), (7,), 1, 8)] * 3, step)
    tape.take_scratch()
    twin = tape.twin()
    play = twin.player_on([[twin.places[0], twin.places[2]], [twin.places[1]]])
    assert play(place(second), place(third)) is True
    assert (first[0], second[0], third[0]) == (1, expected(2, 0, [7, 7]), expected(3, 0, [7]))
    tape.run()
    assert first[0] == expected(1, 0, [7, 7, 7]), "the tape has its own addresses"
    for wrong in ((), (1,), (1, 2, 3)):
        with pytest.raises((TypeError, ValueError)):
            play(*wrong)


def test_a_quick_tape_does_not_run_beside_a_long_one(functions: Native) -> None:
    long = load(LONG_IR, "long")
    out, mine = array("q", [0]), array("q", [0])
    step = Step(long.function_address, (out.buffer_info()[0],), (200_000_000,), work=QUICK + 1)
    quick = Tape([Step(long.function_address, (0,), (5,))], long)
    play, runner = quick.player_on([[quick.places[0]]]), threading.Thread(target=Tape([step]).run)
    assert quick.is_quick
    assert play(mine.buffer_info()[0]) is True
    assert mine[0] == 4
    mine[0] = 0
    runner.start()
    while out[0] == 0:
        time.sleep(0.0001)
    assert play(mine.buffer_info()[0]) is False
    assert mine[0] == 0, "nothing was done"
    runner.join()
    assert play(mine.buffer_info()[0]) is True


def test_a_copy_is_a_step(way: str) -> None:
    source, target = array("q", [3, 4, 5]), array("q", [0, 0, 0])
    addresses = (target.buffer_info()[0], source.buffer_info()[0])
    Tape([Step(copy_function(), addresses, (16,))]).run()
    assert target.tolist() == [3, 4, 0]


def test_a_tape_without_steps(way: str) -> None:
    assert Tape([]).run() is None


def test_only_long_tapes_let_go_of_the_lock() -> None:
    def flag(*steps: Step) -> int:
        return Tape(steps).words[1]

    assert flag(Step(0, (), work=QUICK)) == 0
    assert flag(Step(0, (), work=QUICK), Step(0, (), work=1)) == 1
    assert flag(Step(0, (), num_threads=2)) == 1


def test_other_threads_run_meanwhile(functions: Native) -> None:
    long = load(LONG_IR, "long")
    out = array("q", [0])
    step = Step(long.function_address, (out.buffer_info()[0],), (200_000_000,), work=QUICK + 1)
    tape, ticks = Tape([step]), 0
    runner = threading.Thread(target=tape.run)
    runner.start()
    while runner.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 3


def test_many_threads_play_at_once(functions: Native) -> None:
    step = load(STEP_IR, "step")
    outs = [array("q", [0] * 5) for _ in range(4)]
    errors: list[BaseException] = []

    def play(out: array[int]) -> None:
        try:
            steps = [Step(step.function_address, (out.buffer_info()[0],), (1,), 5, 8)] * 3
            tape = Tape(steps, step)
            tape.take_scratch()
            for _ in range(300):
                out[:] = array("q", [0] * 5)
                tape.run()
                assert out.tolist() == [expected(0, t, [1, 1, 1]) for t in range(5)]
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    in_threads(play, [(out,) for out in outs])
    assert not errors


def test_kernels_of_different_widths_in_turn(functions: Native) -> None:
    step = load(STEP_IR, "step")
    out = array("q", [0] * 30)
    tapes = []
    for num_threads in (2, 30, 3, 9, 5):  # a late thread may not take a part of the next, wider one
        steps = [Step(step.function_address, (out.buffer_info()[0],), (1,), num_threads, 8)]
        tapes.append((num_threads, Tape(steps, step)))
        tapes[-1][1].take_scratch()
    for _ in range(4000):
        for num_threads, tape in tapes:
            out[:] = array("q", [0] * 30)
            tape.run()
            assert out.tolist() == [t + 1 for t in range(num_threads)] + [0] * (30 - num_threads)


def test_workers_sleep_stop_and_start_again(functions: Native) -> None:
    step = load(STEP_IR, "step")
    out = array("q", [0] * 3)
    tape = Tape([Step(step.function_address, (out.buffer_info()[0],), (1,), 3, 8)], step)
    tape.take_scratch()
    for pause in (0.0, 0.005, 0.02):  # longer than any spinning
        time.sleep(pause)
        out[:] = array("q", [0] * 3)
        tape.run()
        assert out.tolist() == [1, 2, 3]
    assert functions.num_workers >= 2
    assert functions.stop_workers()
    assert functions.num_workers == 0
    tape.run()
    assert functions.num_workers == 2


def test_one_thread_starts_no_worker(functions: Native) -> None:
    functions.stop_workers()
    step = load(STEP_IR, "step")
    out = array("q", [0])
    tape = Tape([Step(step.function_address, (out.buffer_info()[0],), (1,), 1, 8)], step)
    tape.take_scratch()
    tape.run()
    assert functions.num_workers == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_a_pool_of_its_own(functions: Native) -> None:
    script = f"""
import os, sys
from array import array
from pellucid.runtime import Device
from pellucid.runtime.native import native
from pellucid.runtime.tape import Step, Tape
source = {STEP_IR!r}
program = Device["CPU"].load(Device["CPU"].compile(source, "step"), "step")
out = array("q", [0] * 4)
tape = Tape([Step(program.function_address, (out.buffer_info()[0],), (1,), 4, 8)])
tape.take_scratch()
for _ in range(50): tape.run()
pid = os.fork()
if pid == 0:
    assert native().num_workers == 0
    out[:] = array("q", [0] * 4)
    tape.run()
    os._exit(0 if out.tolist() == [1, 2, 3, 4] and native().num_workers == 3 else 1)
assert os.waitpid(pid, 0)[1] == 0
tape.run()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupts_reach_the_main_thread(functions: Native) -> None:
    long = load(LONG_IR, "long")
    out = array("q", [0, 0])
    step = Step(long.function_address, (out.buffer_info()[0],), (300_000_000,), 2)
    tape = Tape([step])
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the interrupt comes in the middle
        timer.start()
        for _ in range(200):
            tape.run()
    assert out.tolist() == [299_999_999] * 2, "a kernel is never cut off"


def test_spinning_is_calibrated(functions: Native) -> None:
    functions.set_spin(1.0)
    functions.set_spin(25.0)


@pytest.mark.parametrize("arch", ["x86-64", "aarch64"])
def test_the_text_compiles_for_each_processor(arch: str) -> None:
    import llvmlite.binding as llvm

    source = source_for(arch)
    assert source is not None
    assert "$" not in source
    with llvm.create_context() as context, llvm.parse_assembly(source, context) as module:
        module.verify()
