"""Find the few C functions that compiled kernels may call: libm, libc, and the compiler's helpers.

    "fmaf" -> 0x7f2c1a04b3e0     "no_such_function" -> None

Kernels are pure, but compilers still turn `fmaf(x, y, z)` into a call on machines without the
instruction, a block copy into `memcpy`, and 128-bit arithmetic into `__multi3`. Those live in
shared libraries that are in the process already, or on the system; each is opened once, by ctypes.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache


@cache
def external_address(name: str) -> int | None:
    """Return the address of the C function *name*, or None when no library has it.

    >>> external_address("fmaf") is not None, external_address("pellucid_has_no_such_function")
    (True, None)
    """
    for library in _libraries():
        try:
            function = library[name]
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value
    return None


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    names: tuple[str | None, ...] = ("libm.so.6", "libc.so.6", "libgcc_s.so.1")
    if sys.platform != "linux":
        from ctypes.util import find_library  # here, not above: it imports subprocess

        names = (find_library("m"), find_library("c"))
    opened = []
    for name in (*names, None):  # None is the process itself, Python's own symbols included
        try:
            opened.append(ctypes.CDLL(name))
        except OSError:
            continue
    return tuple(opened)
