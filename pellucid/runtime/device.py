"""Devices: what compiles a kernel's text, loads the result, and owns memory.

    Device["CPU"].compile(source, name) -> BINARY        through the disk cache
    Device["CPU"].load(binary, name)    -> Program       ready to be called with buffers

    CPU:LLVM   LLVM IR, by llvmlite          CPU   the default of these, now CPU:LLVM
    CPU:C      C, by the installed compiler  NULL  compiles like CPU, runs nothing, has no memory

Compilation is looked up by content: the source, the toolchain with its version, and the features of
the processor. A hit on disk needs neither llvmlite nor a C compiler.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Final

from pellucid.core import observe
from pellucid.core.errors import CompileError, DeviceError
from pellucid.core.target import Target, host_target, machine_target
from pellucid.runtime import toolchain_llvm
from pellucid.runtime.allocator import Allocator
from pellucid.runtime.diskcache import content_key, current_cache
from pellucid.runtime.loader import load_object
from pellucid.runtime.program import CPUProgram, NullProgram, Program
from pellucid.runtime.registry import DEVICE_NAMES, allocator_of, canonical_device

_BINARY_REVISION: Final = 1
"""Counts changes of the toolchains' flags, which make older objects in the disk cache unwanted."""

_RENDERERS: Final = {"CPU": "llvm", "CPU:LLVM": "llvm", "CPU:C": "c", "NULL": "llvm"}


class _CPUDevice:
    """A device of the registry. Get one by `Device[name]`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.renderer_name = _RENDERERS[name]

    @property
    def allocator(self) -> Allocator:
        """The memory of this device."""
        return allocator_of(self.name)

    @property
    def target(self) -> Target:
        """The machine that kernels are compiled for."""
        return host_target()

    @property
    def compiler_key(self) -> str:
        """What the meaning of a BINARY depends on besides its source: compiler and features."""
        if self.renderer_name == "llvm":
            features = toolchain_llvm.feature_string(self.target)
            cpu = f"{self.target.arch} {self.target.cpu_name}"
            return f"llvm {toolchain_llvm.llvm_version()} {cpu} {features}"
        from pellucid.runtime import toolchain_c  # here, not above: few programs need it

        return f"c {toolchain_c.compiler_key(self.target)}"

    def need_compiler(self) -> None:
        """Return if the compiler is there. Errors: ToolchainError saying how to get it."""
        if self.renderer_name == "llvm":
            if toolchain_llvm.llvm_version() == "missing":
                toolchain_llvm.import_llvm()
            return
        from pellucid.runtime import toolchain_c

        toolchain_c.compiler_command()

    def compile(self, source: str, name: str) -> bytes:
        """Compile the text of one or more kernels to an object, or find it in the disk cache.

        name: what to call it in errors: the kernel's name.
        Errors: ToolchainError when the compiler is missing; CompileError when it refuses.
        """
        cached = current_cache()
        key = content_key("object", _BINARY_REVISION, self.compiler_key, source)
        start = time.perf_counter()
        found = cached.get(key)
        binary = self._compile(source, name) if found is None else found
        if found is None:
            cached.put(key, binary)
        if observe.watching:
            seconds = time.perf_counter() - start
            observe.compiled(name, seconds, len(binary), found is not None)
        return binary

    def _compile(self, source: str, name: str) -> bytes:
        if not source.strip():
            raise CompileError("there is no source", stage="compile", kernel=name)
        if self.renderer_name == "llvm":
            return toolchain_llvm.compile_llvm(source, name, self.target)
        from pellucid.runtime import toolchain_c

        return toolchain_c.compile_c(source, name, self.target)

    def load(self, binary: bytes, name: str) -> Program:
        """Return the kernel *name* of a compiled object, ready to be called.

        Errors: ExecutionError for a damaged object; DeviceError for one made for another machine.
        """
        if self.name == "NULL":
            return NullProgram(name)
        _check_runs_here(self.target, machine_target())
        return CPUProgram(name, load_object(binary))

    def disassemble(self, binary: bytes) -> str:
        """Return the instructions of a compiled object as text, where objdump is installed."""
        from pellucid.runtime.disassembly import disassemble

        return disassemble(binary)

    def synchronize(self) -> None:
        """Wait until all work is done; on the CPU it always is."""

    def __repr__(self) -> str:
        return f"Device[{self.name!r}]"


class _Devices:
    """The registry: `Device["CPU"]` is the device of that name.

    >>> Device["cpu"].name, Device["CPU"] is Device["CPU"], Device["CPU:C"].renderer_name
    ('CPU', True, 'c')
    """

    def __getitem__(self, name: str) -> _CPUDevice:
        return _device(canonical_device(name))

    def __iter__(self) -> Iterator[str]:
        return iter(DEVICE_NAMES)

    def canonical(self, name: str) -> str:
        """Return the one spelling of a device's name."""
        return canonical_device(name)


@cache
def _check_runs_here(target: Target, machine: Target) -> None:
    """Refuse code that would end the process: instructions that this processor does not have."""
    missing = sorted(target.features - machine.features)
    if target.arch == machine.arch and not missing:
        return
    lacks = ", ".join(missing) if target.arch == machine.arch else target.arch
    raise DeviceError(
        "kernels are compiled for another machine and cannot run here",
        rows=[("missing", lacks)],
        help="unset PELLUCID_TARGET, or choose PELLUCID_DEVICE=NULL to compile only",
    )


@cache
def _device(name: str) -> _CPUDevice:
    return _CPUDevice(name)


Device: Final = _Devices()
