"""Run the parts of a kernel on several cores.

    run_in_parallel(kernel, ..., num_threads=4)      part 0 here, parts 1, 2, 3 on waiting threads

Threads are Python's: they are made once, sleep on a lock each, and hold no Python lock while a
kernel runs (ctypes lets go of it), so the parts really run at the same time. Waking one costs about
7 us, which is why the compiler threads only kernels with enough work.

A pool serves one kernel at a time. A second caller (another thread of the user's) does not wait for
it: the parts of a kernel do not depend on each other, so it runs its own, one after the other.

After a fork the child has no threads but its own: it starts a new pool when it first needs one.
"""

from __future__ import annotations

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
        errors: list[BaseException] = []
        for first, worker in enumerate(workers, 1):
            worker.start(part, range(first, num_parts, stride))
        try:
            for index in range(0, num_parts, stride):
                part(index)
        except BaseException as error:  # noqa: BLE001 - raised again below, when all are done
            errors.append(error)
        for worker in workers:
            errors += worker.wait()
        if errors:
            raise errors[0]

    def _at_most(self, num_workers: int) -> list[_Worker]:
        while len(self._workers) < num_workers:
            try:
                self._workers.append(_Worker())
            except RuntimeError:  # the system has no thread left for us: work with fewer
                break
        return self._workers[:num_workers]


class _Worker:
    """One thread; it wakes when its lock is released, works, and releases the caller's."""

    def __init__(self) -> None:
        self._wake = threading.Lock()
        self._done = threading.Lock()
        self._wake.acquire()
        self._done.acquire()
        self._part: Callable[[int], object] = int
        self._indices = range(0)
        self._error: BaseException | None = None
        threading.Thread(target=self._work, name="pellucid-worker", daemon=True).start()

    def start(self, part: Callable[[int], object], indices: range) -> None:
        self._part, self._indices, self._error = part, indices, None
        self._wake.release()

    def wait(self) -> list[BaseException]:
        """Wait until the parts are done, also through Ctrl-C: they still use the buffers."""
        errors: list[BaseException] = []
        while True:
            try:
                self._done.acquire()
                break
            except KeyboardInterrupt as interrupt:
                errors.append(interrupt)
        self._part = int
        return errors + ([self._error] if self._error is not None else [])

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            try:
                for index in self._indices:
                    self._part(index)
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                self._error = error
            self._done.release()


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
