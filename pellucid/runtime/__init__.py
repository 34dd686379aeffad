"""Devices, memory, compilers and calls: where a compiled kernel meets the machine.

    buffer.py        memory with a type            allocator.py  blocks, reuse, limits
    device.py        `Device[name]`                registry.py   names of devices, who shares memory
    toolchain_llvm   LLVM IR -> object             toolchain_c   C -> object
    elf.py           object -> checked facts       loader.py     object -> code in memory
    symbols.py       functions of libm and libc    program.py    calling a kernel
    tape.py          many calls as one             native.py     the functions that play a tape
    native_code.py   their text, and a pool        threads.py    the same by Python's threads
    diskcache.py     objects between runs          disassembly.py object -> text for people

Nothing here knows a graph: what comes in is text, bytes, sizes and addresses.
"""

from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device
from pellucid.runtime.program import Call, Program
from pellucid.runtime.registry import DEVICE_NAMES, canonical_device, share_memory

__all__ = [
    "DEVICE_NAMES",
    "Buffer",
    "Call",
    "Device",
    "Program",
    "canonical_device",
    "share_memory",
]
