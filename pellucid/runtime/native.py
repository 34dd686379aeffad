"""The native functions of `native_code.py`, compiled once, kept on disk, loaded when first needed.

    native()            -> Native, or None where there is none: other systems, no llvmlite
    native().play(address of a tape)          run it
    native().player(address of a tape)        a function of Python that does, in 40 ns
    native().player_on(address of a plan)     the same, with addresses for the tape as arguments

Without them all works the same, by ctypes and Python's threads (`threads.py`), only slower.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from pellucid.core.errors import PellucidError
from pellucid.core.target import machine_target
from pellucid.runtime import native_code, toolchain_llvm
from pellucid.runtime.diskcache import content_key, current_cache
from pellucid.runtime.loader import Loaded, load_object

SPIN_MICROSECONDS: Final = 100.0
"""How long a thread that waits stays awake, while it gives way to others on its core: as long as
Python takes to begin the next step of a training. Waking a thread takes 5 to 50 us."""

CODEGEN_LEVEL: Final = 0
"""LLVM takes a quarter of the time at this level; a launch takes a few nanoseconds more."""

_METH_NOARGS: Final = 0x4
_METH_FASTCALL: Final = 0x80


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Native:
    """The functions of the native module."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))  # a thread may outlive every module
        address = loaded.address
        self.copy_bytes = address("copy_bytes")
        self.play: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("play"))
        self._stop = ctypes.CFUNCTYPE(ctypes.c_int)(address("pool_stop"))
        self._forget = ctypes.PYFUNCTYPE(None)(address("pool_forget"))
        self._size = ctypes.PYFUNCTYPE(ctypes.c_int)(address("pool_size"))
        self._set_spins = ctypes.PYFUNCTYPE(None, ctypes.c_int)(address("pool_set_spins"))
        self._pause_for = ctypes.PYFUNCTYPE(None, ctypes.c_int)(address("pause_for"))
        self._method = _MethodDefinition(b"play", address("call"), _METH_NOARGS, None)
        self._method_on = _MethodDefinition(b"play_on", address("call_on"), _METH_FASTCALL, None)
        make: Any = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object
        )
        self._make: Any = make(("PyCFunction_NewEx", ctypes.pythonapi))
        self.set_spin(SPIN_MICROSECONDS)

    def player(self, tape_address: int, keep_alive: object) -> Callable[[], None]:
        """Return a function of Python that plays the tape at an address, and what it holds."""
        method = ctypes.addressof(self._method)
        made: Callable[[], None] = self._make(method, tape_address, keep_alive)
        return made

    def player_on(self, plan_address: int, keep_alive: object) -> Callable[..., bool]:
        """Return a function of addresses that follows a plan (native_code.py); False: not now."""
        method = ctypes.addressof(self._method_on)
        made: Callable[..., bool] = self._make(method, plan_address, keep_alive)
        return made

    @property
    def num_workers(self) -> int:
        """How many threads the pool has now, besides its callers."""
        return int(self._size())

    def stop_workers(self) -> bool:
        """End the threads of the pool, unless it is at work; a later kernel starts new ones."""
        return bool(self._stop())

    def forget_workers(self) -> None:
        """Start anew in a forked child, which has no thread but its own."""
        self._forget()

    def set_spin(self, microseconds: float) -> None:
        """Say how long waiting threads stay awake, by how long a pause of this processor takes."""
        count = 256
        shortest = min(self._seconds_of(count) for _ in range(3))
        self._set_spins(max(int(microseconds * 1e-6 * count / max(shortest, 1e-7)), 1))

    def _seconds_of(self, pauses: int) -> float:
        start = time.perf_counter()
        self._pause_for(pauses)
        return time.perf_counter() - start


_lock = threading.Lock()
_found: list[Native | None] = []


def native() -> Native | None:
    """Return the native functions, or None where they cannot be had."""
    if not _found:
        with _lock:
            if not _found:
                _found.append(_load())
    return _found[0]


def _load() -> Native | None:
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return None
    target = machine_target()
    source = native_code.source_for(target.arch)
    if source is None:
        return None
    features = toolchain_llvm.feature_string(target)
    version = toolchain_llvm.llvm_version()
    key = content_key("native", version, target.arch, target.cpu_name, features, source)
    kept = current_cache()
    binary = kept.get(key)
    try:
        if binary is None:
            binary = toolchain_llvm.compile_llvm(source, "native", target, CODEGEN_LEVEL)
            kept.put(key, binary)
        made = Native(load_object(binary))
    except PellucidError:  # no llvmlite, or a system that refuses: everything works without
        return None
    atexit.register(made.stop_workers)
    os.register_at_fork(after_in_child=made.forget_workers)
    return made


def _restart_after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_restart_after_fork)
