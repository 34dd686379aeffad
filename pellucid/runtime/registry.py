"""The devices that exist, by name, and whose memory each of them uses.

    "cpu" -> "CPU"     "cpu:llvm" -> "CPU:LLVM"     "gpu" -> DeviceError, which lists what there is

The part of a name before the colon is where memory is and code runs; the part after it chooses the
renderer. CPU, CPU:LLVM and CPU:C are one place, so their buffers can be used together.
"""

from __future__ import annotations

import difflib
from functools import cache
from typing import Final

from pellucid.core.errors import DeviceError
from pellucid.runtime.allocator import Allocator, HostAllocator, NullAllocator

DEVICE_NAMES: Final = ("CPU", "CPU:LLVM", "CPU:C", "NULL")
"""Every name that `Device[...]` takes, in the order in which messages list them."""

_ALLOCATORS: Final[dict[str, Allocator]] = {
    "CPU": HostAllocator("CPU"),
    "NULL": NullAllocator(),
}


@cache
def canonical_device(name: str) -> str:
    """Return the one spelling of a device's name.

    Errors: DeviceError for a name that no device has.

    >>> canonical_device("cpu:llvm")
    'CPU:LLVM'
    """
    canonical = name.strip().upper()
    if canonical not in DEVICE_NAMES:
        close = difflib.get_close_matches(canonical, DEVICE_NAMES, n=1)
        raise DeviceError(
            f"there is no device {name!r}",
            expected="one of " + ", ".join(DEVICE_NAMES),
            help=f"did you mean {close[0]}?" if close else "use CPU, which is always there",
        )
    return canonical


def share_memory(first: str, second: str) -> bool:
    """Tell whether kernels of one device can use buffers of the other.

    >>> share_memory("CPU", "CPU:C"), share_memory("CPU", "NULL")
    (True, False)
    """
    return _place(first) == _place(second)


@cache
def allocator_of(name: str) -> Allocator:
    """Return the allocator of a device; devices that share memory share it."""
    return _ALLOCATORS[_place(name)]


def _place(name: str) -> str:
    return canonical_device(name).partition(":")[0]
