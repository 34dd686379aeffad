"""The pool: every part runs once, errors come back, forks and exits do no harm."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from pellucid.runtime.threads import PythonThreadPool


@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 300])
def test_every_part_runs_once(num_parts: int) -> None:
    pool = PythonThreadPool()
    for _ in range(5):
        done: list[int] = []
        pool.run(done.append, num_parts)
        assert sorted(done) == list(range(num_parts))


def test_parts_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=10)
    PythonThreadPool().run(lambda index: barrier.wait(), 3)  # would time out one after the other


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_comes_back_after_all_have_ended(failing: int) -> None:
    pool = PythonThreadPool()
    ended: Counter[int] = Counter()

    def part(index: int) -> None:
        if index == failing:
            raise ValueError(f"part {index}")
        time.sleep(0.02)
        ended[index] += 1

    for turn in range(1, 4):
        with pytest.raises(ValueError, match=f"part {failing}"):
            pool.run(part, 3)
        assert sum(ended.values()) == 2 * turn
    done: list[int] = []
    pool.run(done.append, 3)
    assert sorted(done) == [0, 1, 2]


def test_a_part_may_use_the_pool() -> None:
    pool = PythonThreadPool()
    done: list[int] = []
    pool.run(lambda index: pool.run(done.append, 3), 2)
    assert sorted(done) == [0, 0, 1, 1, 2, 2]


def test_no_thread_left_in_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    PythonThreadPool().run(done.append, 4)
    assert done == [0, 1, 2, 3]


FORK = """
import os, sys
from pellucid.core.dtype import dtypes
from pellucid.runtime import Buffer, Device
device = Device[sys.argv[1]]
program = device.load(device.compile(sys.argv[2], "parts"), "parts")
out = Buffer("CPU", 3, dtypes.int64)
def check():
    out.as_numpy()[:] = 0
    for _ in range(100):
        program([out], [0], 3, 64)
    assert out.as_numpy().tolist() == [0, 800, 1600], out.as_numpy()
    fresh = Buffer("CPU", 5000, dtypes.int64)
    fresh.as_numpy()[:] = 1
check()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        check()
        grandchild = os.fork()
        if grandchild == 0:
            check()
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    children.append(child)
    check()
assert [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children] == [0, 0, 0]
check()
"""


def test_threads_after_a_fork_and_a_quiet_exit(cpu: str, parts_source: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, cpu, parts_source],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPT = """
import signal, sys, threading, time
from pellucid.runtime.threads import PythonThreadPool
pool, done, begun = PythonThreadPool(), [], threading.Event()
main = threading.main_thread().ident
def part(index):
    if index == 0:
        begun.wait(10)  # so that part 1 runs on a worker
    else:
        begun.set()
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.3)
        done.append(index)
try:
    pool.run(part, 2)
except KeyboardInterrupt:
    assert done == [1], "the interrupt came back before the part had ended"
    pool.run(done.append, 2)
    assert sorted(done) == [0, 1, 1]
    sys.exit(7)
"""


def test_ctrl_c_waits_for_the_parts() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPT], timeout=20, check=False)
    assert done.returncode == 7
