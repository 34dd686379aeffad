"""Run the parts of a kernel on several cores.

    run_in_parallel(kernel, ..., num_threads=4)      part 0 here, parts 1, 2, 3 on waiting threads

Threads are Python's: they are made once, sleep on a lock each, and hold no Python lock while a
kernel runs (ctypes lets go of it), so the parts really run at the same time. Waking one costs about
7 us, which is why the compiler threads only kernels with enough work.

The caller also runs the parts whose thread has not woken up when its own part is done, so a kernel
never waits for a core that is busy with something else.

A pool serves one kernel at a time. A second caller (another thread of the user's) does not wait for
it: the parts of a kernel do not depend on each other, so it runs its own, one after the other.

After a fork the child has no threads but its own: it starts a new pool when it first needs one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_MAX_WORKERS = 256


class PythonThreadPool:
    """Threads that wait for parts of a kernel.

    >>> pool = PythonThreadPool()
    >>> done = []
    >>> pool.run(done.append, 3)
    >>> sorted(done)
    [0, 1, 2]
    """

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._workers: list[_Worker] = []

    def run(self, part: Callable[[int], object], num_parts: int) -> None:
        """Run part(0) to part(num_parts - 1), at the same time where possible; wait for all.

        Errors: the error of the first part that failed, after all have ended.
        """
        if not self._busy.acquire(blocking=False):
            for index in range(num_parts):
                part(index)
            return
        try:
            self._run_on_workers(part, num_parts)
        finally:
            self._busy.release()

    def _run_on_workers(self, part: Callable[[int], object], num_parts: int) -> None:
        workers = self._at_most(min(num_parts - 1, _MAX_WORKERS))
        stride = len(workers) + 1
        jobs = [_Job(part, range(first, num_parts, stride)) for first in range(stride)]
        errors: list[BaseException] = []
        try:
            for worker, job in zip(workers, jobs[1:], strict=True):
                worker.start(job)
            for job in jobs:  # our own, then those whose worker has not woken up yet
                job.run_if_unclaimed()
        except BaseException as error:  # noqa: BLE001 - raised again below, when all are done
            errors.append(error)
        for job in jobs:
            errors += job.wait()
        if errors:
            raise errors[0]

    def _at_most(self, num_workers: int) -> list[_Worker]:
        while len(self._workers) < num_workers:
            try:
                self._workers.append(_Worker())
            except RuntimeError:  # the system has no thread left for us: work with fewer
                break
        return self._workers[:num_workers]


class _Job:
    """Some parts of a kernel; whoever claims it first runs it."""

    def __init__(self, part: Callable[[int], object], indices: range) -> None:
        self._part = part
        self._indices = indices
        self._owner: dict[str, int] = {}
        self._done = threading.Lock()
        self._done.acquire()
        self._is_done = False
        self._error: BaseException | None = None

    def _claim(self) -> bool:
        """Tell whether the job is this thread's; the first that asks gets it."""
        me = threading.get_ident()
        return self._owner.setdefault("thread", me) == me  # one operation, no lock needed

    def run_if_unclaimed(self) -> None:
        """Run the parts, unless somebody else does. An error is kept for `wait`."""
        if not self._claim():
            return
        try:
            for index in self._indices:
                self._part(index)
        except BaseException as error:  # noqa: BLE001 - handed to the caller of `wait`
            self._error = error
        self._is_done = True
        self._done.release()

    def wait(self) -> list[BaseException]:
        """Wait until the parts are done, also through Ctrl-C: they still use the buffers.

        There is nothing to wait for when the job is the caller's own (it has run, or was cut off by
        Ctrl-C), or when nobody has begun it, which happens after an error only. Returns errors.
        """
        errors: list[BaseException] = []
        while not (self._claim() or self._is_done):
            try:
                self._done.acquire()
            except KeyboardInterrupt as interrupt:
                errors.append(interrupt)
        return errors if self._error is None else [*errors, self._error]


class _Worker:
    """One thread, which sleeps on a lock; releasing the lock wakes it."""

    def __init__(self) -> None:
        self._wake = threading.Lock()
        self._wake.acquire()
        self._job: _Job | None = None
        threading.Thread(target=self._work, name="pellucid-worker", daemon=True).start()

    def start(self, job: _Job) -> None:
        self._job = job
        with contextlib.suppress(RuntimeError):  # it is about to wake up anyway
            self._wake.release()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            job, self._job = self._job, None
            if job is not None:
                job.run_if_unclaimed()
            del job  # hold nothing of the kernel while asleep


_pool = PythonThreadPool()


def _restart_after_fork() -> None:
    global _pool
    _pool = PythonThreadPool()


os.register_at_fork(after_in_child=_restart_after_fork)


def run_in_parallel(
    function_address: int,
    buffers_address: int,
    vars_address: int,
    num_threads: int,
    scratch_address: int,
    scratch_stride_bytes: int,
) -> None:
    """Run all parts of the kernel at *function_address*, each with scratch of its own."""
    kernel: Any = _Kernel(function_address)

    def part(thread: int) -> None:
        scratch = scratch_address + thread * scratch_stride_bytes if scratch_address else None
        kernel(buffers_address, vars_address, thread, scratch)

    _pool.run(part, num_threads)
