"""Put a compiled object into memory and make it callable, without any compiler installed.

    BINARY (relocatable x86-64 ELF)  ->  LoadedObject: {function name: address}

One anonymous mapping holds everything, so that each part reaches the others with 32-bit offsets:

    | code, then stubs: jmp [address]  | constants, then table of addresses | variables |
      read + execute                     read                                 read + write

Pages are filled while they are writable and then protected, so that no page is ever writable and
executable (W^X). Functions of libm and libc are further than 32 bits away: a call goes through a
stub, an address through the table (the GOT of the psABI).

On other processors and systems the object goes through llvmlite's linker (`_load_by_llvm`), which
knows their formats; only x86-64 Linux, where a cache hit should cost microseconds and not the
import of llvmlite, has the loader of its own.

Source: System V Application Binary Interface, AMD64 supplement, section 4.4 (relocation types).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, Protocol

from pellucid.core.errors import ExecutionError
from pellucid.runtime.elf import (
    FLAG_EXECUTE,
    FLAG_WRITE,
    INDEX_ABSOLUTE,
    MACHINE_X86_64,
    SECTION_NOBITS,
    SYMBOL_FUNCTION,
    DamagedObjectError,
    ObjectFile,
    Relocation,
    Section,
    Symbol,
    read_object,
)
from pellucid.runtime.symbols import external_address

# relocation types of the AMD64 psABI, table 4.9
_ABSOLUTE_64: Final = 1
_PC_32: Final = 2
_CALL_32: Final = 4  # PLT32
_TABLE_32: Final = (9, 41, 42)  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_ABSOLUTE_32: Final = (10, 11)  # 32, 32S: never fit where mmap puts us, see `_relocate`
_PC_64: Final = 24

_STUB = struct.Struct("<6sQ2x")  # jmp [rip+0], then the address that it reads
_JUMP = b"\xff\x25\x00\x00\x00\x00"
_TRAP: Final = b"\xcc"  # int3, fills the gaps between pieces of code


class Loaded(Protocol):
    """Code in memory; it stays there for as long as anyone holds this value."""

    def address(self, name: str) -> int:
        """Return the address of the function *name*."""


class LoadedObject:
    """An object in memory; it stays there for as long as anyone holds this value."""

    def __init__(self, functions: dict[str, int], keep_alive: object) -> None:
        self.functions = functions
        self._keep_alive = keep_alive

    def address(self, name: str) -> int:
        """Return the address of the function *name*."""
        if name not in self.functions:
            raise ExecutionError(
                f"the compiled object has no function {name!r}",
                rows=[("it has", ", ".join(sorted(self.functions)) or "none")],
            )
        return self.functions[name]


_loaded: weakref.WeakValueDictionary[bytes, Loaded] = weakref.WeakValueDictionary()


def load_object(binary: bytes) -> Loaded:
    """Map *binary* into memory; the same bytes are mapped once.

    Errors: ExecutionError when the object is damaged, foreign, or calls an unknown function.

    >>> load_object(b"x" * 100)
    Traceback (most recent call last):
    ...
    pellucid.core.errors.ExecutionError: a compiled kernel cannot be loaded
        reason  it starts with b'xxxx', an ELF file with b'\\x7fELF'
        help:   clear the compile cache (PELLUCID_CACHE_DIR) and run again
        at      ...
    """
    loaded = _loaded.get(binary)
    if loaded is None:
        try:
            loaded = _load_natively(binary) if _has_own_loader() else _load_by_llvm(binary)
        except DamagedObjectError as error:
            raise ExecutionError(
                "a compiled kernel cannot be loaded",
                rows=[("reason", error)],
                help="clear the compile cache (PELLUCID_CACHE_DIR) and run again",
            ) from None
        _loaded[binary] = loaded
    return loaded


@cache
def _has_own_loader() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _load_natively(binary: bytes) -> LoadedObject:
    return _Image(read_object(binary)).load()


class _Image:
    """The layout of one object: where each section, stub and table entry goes."""

    def __init__(self, parsed: ObjectFile) -> None:
        if parsed.machine != MACHINE_X86_64:
            raise DamagedObjectError(
                f"it is for ELF machine {parsed.machine}, this is {MACHINE_X86_64}"
            )
        self.object = parsed
        self.section_offset: dict[int, int] = {}
        self.stub_offset: dict[str, int] = {}
        self.table_offset: dict[Symbol, int] = {}
        loaded = [s for s in parsed.sections if s.is_loaded and s.size]
        self.code = [s for s in loaded if s.flags & FLAG_EXECUTE]
        self.constants = [s for s in loaded if not s.flags & (FLAG_EXECUTE | FLAG_WRITE)]
        self.variables = [s for s in loaded if s.flags & FLAG_WRITE]
        end = self._place(self.code, 0)
        self.code_end = _to_page(self._place_stubs(end))
        end = self._place(self.constants, self.code_end)
        self.constants_end = _to_page(self._place_table(end))
        self.size = max(_to_page(self._place(self.variables, self.constants_end)), mmap.PAGESIZE)

    def _place(self, sections: Iterable[Section], offset: int) -> int:
        for section in sections:
            offset = _align(offset, section.alignment)
            self.section_offset[section.number] = offset
            offset += section.size
        return offset

    def _place_stubs(self, offset: int) -> int:
        offset = _align(offset, _STUB.size)
        for relocation in self.object.relocations:
            symbol = relocation.symbol
            if relocation.kind == _CALL_32 and symbol.is_undefined:
                if symbol.name not in self.stub_offset:
                    self.stub_offset[symbol.name] = offset
                    offset += _STUB.size
        return offset

    def _place_table(self, offset: int) -> int:
        offset = _align(offset, 8)
        for relocation in self.object.relocations:
            if relocation.kind in _TABLE_32 and relocation.symbol not in self.table_offset:
                self.table_offset[relocation.symbol] = offset
                offset += 8
        return offset

    def load(self) -> LoadedObject:
        """Fill a fresh mapping, relocate, protect, and list the functions."""
        memory = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        anchor = ctypes.c_char.from_buffer(memory)  # keeps the mapping, and tells its address
        base = ctypes.addressof(anchor)
        memory[: self.code_end] = _TRAP * self.code_end
        for section in (*self.code, *self.constants, *self.variables):
            if section.kind != SECTION_NOBITS:
                start = self.section_offset[section.number]
                memory[start : start + section.size] = self.object.contents(section)
        for name, offset in self.stub_offset.items():
            _STUB.pack_into(memory, offset, _JUMP, _find_external(name))
        for symbol, offset in self.table_offset.items():
            struct.pack_into("<Q", memory, offset, self._address(symbol, base))
        for relocation in self.object.relocations:
            self._relocate(memory, base, relocation)
        _protect(base, self.code_end, mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(base + self.code_end, self.constants_end - self.code_end, mmap.PROT_READ)
        return LoadedObject(dict(self._functions(base)), anchor)

    def _functions(self, base: int) -> Iterable[tuple[str, int]]:
        code = {section.number for section in self.code}
        for symbol in self.object.symbols:
            if symbol.kind == SYMBOL_FUNCTION and not symbol.is_local:
                if symbol.section_index in code:
                    yield symbol.name, self._address(symbol, base)

    def _address(self, symbol: Symbol, base: int) -> int:
        if symbol.is_undefined:
            return 0 if symbol.is_weak else _find_external(symbol.name)
        if symbol.section_index == INDEX_ABSOLUTE:
            return symbol.value
        if symbol.section_index not in self.section_offset:
            if symbol.section_index < len(self.object.sections):
                if self.object.sections[symbol.section_index].is_loaded:  # an empty section
                    return base
            raise DamagedObjectError(f"symbol {symbol.name!r} lies outside of what is loaded")
        return base + self.section_offset[symbol.section_index] + symbol.value

    def _relocate(self, memory: mmap.mmap, base: int, relocation: Relocation) -> None:
        """Write one address: S + A, or relative to the place P that it is written to."""
        offset = self.section_offset[relocation.section_index] + relocation.offset
        place, symbol, kind = base + offset, relocation.symbol, relocation.kind
        if kind in (_ABSOLUTE_64, _PC_64):
            section = self.object.sections[relocation.section_index]
            if relocation.offset + 8 > section.size:
                raise DamagedObjectError(f"a relocation reaches over the end of {section.name}")
            value = self._address(symbol, base) + relocation.addend
            value -= place if kind == _PC_64 else 0
            struct.pack_into("<Q", memory, offset, value % (1 << 64))
            return
        if kind in _TABLE_32:
            value = base + self.table_offset[symbol] + relocation.addend - place
        elif kind == _CALL_32 and symbol.is_undefined:
            value = base + self.stub_offset[symbol.name] + relocation.addend - place
        elif kind in (_PC_32, _CALL_32):
            value = self._address(symbol, base) + relocation.addend - place
        elif kind in _ABSOLUTE_32:
            value = self._address(symbol, base) + relocation.addend
        else:
            raise DamagedObjectError(
                f"relocation type {kind} of symbol {symbol.name!r} is not known"
            )
        if not -(1 << 31) <= value < 1 << 31:
            raise DamagedObjectError(
                f"the address of {symbol.name!r} is out of reach of a 32-bit relocation "
                f"(type {kind}); compile position-independent code"
            )
        struct.pack_into("<i", memory, offset, value)


def _find_external(name: str) -> int:
    address = external_address(name)
    if address is None:
        raise ExecutionError(
            f"a compiled kernel calls {name!r}, which no library of this system has",
            rows=[("searched", "libm, libc, libgcc_s, this process")],
            help="the renderer should spell this operation with others",
        )
    return address


def _align(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) & -alignment


def _to_page(offset: int) -> int:
    return _align(offset, mmap.PAGESIZE)


def _protect(address: int, size: int, protection: int) -> None:
    if size and _mprotect()(address, size, protection) != 0:
        raise ExecutionError(
            "the system refuses to make compiled code executable",
            rows=[("reason", f"mprotect: {os.strerror(ctypes.get_errno())}")],
            help="a security policy (SELinux, seccomp) may forbid it for this process",
        )


@cache
def _mprotect() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    function.restype = ctypes.c_int
    return function


def _load_by_llvm(binary: bytes) -> Loaded:
    """Link *binary* with LLVM's own in-process linker: every processor and system it knows."""
    from pellucid.runtime.toolchain_llvm import LinkedObject

    return LinkedObject(binary)
