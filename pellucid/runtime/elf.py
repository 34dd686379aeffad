"""Read a relocatable ELF64 object without trusting a single byte of it.

    bytes of a `.o` file  ->  ObjectFile: sections, symbols, relocations, every number checked

Compilers hand us objects, and the disk cache hands us old ones, so a damaged file is a normal
input: each offset, size, index and name is compared with what really is there before it is used,
and `DamagedObjectError` says which one is wrong. What is not needed to run code (debug sections,
unwind tables) is skipped.

    64-byte header | section contents ... | section headers: name, type, flags, offset, size, link

Source: System V Application Binary Interface, chapters 4 and 5 (ELF), 64-bit format as in
"ELF-64 Object File Format", version 1.5; AMD64 supplement, section 4.4 (relocations).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MACHINE_X86_64: Final = 62
MACHINE_AARCH64: Final = 183

SECTION_NULL: Final = 0  # a header of no section
SECTION_NOBITS: Final = 8  # occupies memory, not the file (.bss)
FLAG_WRITE: Final = 1
FLAG_ALLOC: Final = 2
FLAG_EXECUTE: Final = 4

SYMBOL_FUNCTION: Final = 2
INDEX_UNDEFINED: Final = 0
INDEX_ABSOLUTE: Final = 0xFFF1

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_TYPE_RELOCATABLE = 1
_SECTION_SYMBOLS = 2
_SECTION_STRINGS = 3
_SECTION_RELA = 4
_SECTION_REL = 9
_FLAG_THREAD_LOCAL = 0x400
_FLAG_COMPRESSED = 0x800
_FIRST_RESERVED_INDEX = 0xFF00
_MAX_ALIGNMENT = 4096
_MAX_MEMORY_BYTES = 1 << 28


class DamagedObjectError(Exception):
    """The bytes are not an object file that this loader can trust; the text says why."""


class Section(NamedTuple):
    """One section that takes part in the running program, or that describes one."""

    number: int
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int

    @property
    def is_loaded(self) -> bool:
        """True for sections that occupy memory; unwind tables are left out, nobody reads them."""
        is_wanted = self.kind != SECTION_NULL and self.flags & FLAG_ALLOC
        return bool(is_wanted) and not self.name.startswith((".eh_frame", ".note"))


class Symbol(NamedTuple):
    """A name for a place: section index and offset, or an address to be found elsewhere."""

    name: str
    kind: int
    is_local: bool
    is_weak: bool
    section_index: int
    value: int

    @property
    def is_undefined(self) -> bool:
        """True when the address has to come from outside of the object."""
        return self.section_index == INDEX_UNDEFINED


class Relocation(NamedTuple):
    """At *offset* of section *section_index*: put in the address of *symbol*, as *kind* asks."""

    section_index: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


class ObjectFile(NamedTuple):
    """A checked object file."""

    binary: bytes
    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]

    def contents(self, section: Section) -> bytes:
        """Return the bytes of *section* (zeros when it takes no room in the file)."""
        if section.kind == SECTION_NOBITS:
            return bytes(section.size)
        return self.binary[section.offset : section.offset + section.size]


def read_object(binary: bytes) -> ObjectFile:
    """Parse and check *binary*; raise DamagedObjectError when anything does not add up.

    >>> read_object(b"not an object")
    Traceback (most recent call last):
    ...
    pellucid.runtime.elf.DamagedObjectError: the file has 13 bytes, an ELF header needs 64
    """
    machine, table_offset, num_sections, names_index = _read_header(binary)
    sections = _read_sections(binary, table_offset, num_sections, names_index)
    symbol_tables = [s for s in sections if s.kind == _SECTION_SYMBOLS]
    if len(symbol_tables) != 1:
        raise DamagedObjectError(f"expected one symbol table, found {len(symbol_tables)}")
    symbols = _read_symbols(binary, sections, symbol_tables[0])
    relocations = _read_relocations(binary, sections, symbol_tables[0], symbols)
    return ObjectFile(binary, machine, sections, symbols, relocations)


def _read_header(binary: bytes) -> tuple[int, int, int, int]:
    if len(binary) < _HEADER.size:
        raise DamagedObjectError(
            f"the file has {len(binary)} bytes, an ELF header needs {_HEADER.size}"
        )
    ident, kind, machine, *_, table_offset, _, _, _, _, entry, count, names = _HEADER.unpack_from(
        binary
    )
    if ident[:4] != b"\x7fELF":
        raise DamagedObjectError(f"it starts with {ident[:4]!r}, an ELF file with b'\\x7fELF'")
    if ident[4] != 2 or ident[5] != 1:
        raise DamagedObjectError("only 64-bit little-endian objects can be loaded")
    if kind != _TYPE_RELOCATABLE:
        raise DamagedObjectError(
            f"the ELF type is {kind}, a relocatable object has {_TYPE_RELOCATABLE}"
        )
    if entry != _SECTION.size:
        raise DamagedObjectError(f"section headers of {entry} bytes, expected {_SECTION.size}")
    if not 0 < count < _FIRST_RESERVED_INDEX or names >= count:
        raise DamagedObjectError(f"{count} sections with names in section {names}")
    _check_range("the section table", table_offset, count * entry, len(binary))
    return machine, table_offset, count, names


def _read_sections(
    binary: bytes, table_offset: int, count: int, names_index: int
) -> tuple[Section, ...]:
    rows = [_SECTION.unpack_from(binary, table_offset + i * _SECTION.size) for i in range(count)]
    names = _string_table(binary, "section names", rows[names_index][4], rows[names_index][5])
    sections = []
    memory_bytes = 0
    for index, row in enumerate(rows):
        name, kind, flags, _, offset, size, link, info, alignment, _ = row
        section = Section(
            index, _string(names, name), kind, flags, offset, size, link, info, max(alignment, 1)
        )
        _check_section(section, len(binary))
        memory_bytes += size if section.is_loaded else 0
        sections.append(section)
    if memory_bytes > _MAX_MEMORY_BYTES:
        raise DamagedObjectError(f"the sections ask for {memory_bytes} bytes of memory")
    return tuple(sections)


def _check_section(section: Section, file_bytes: int) -> None:
    label = f"section {section.number} ({section.name})"
    if section.kind not in (SECTION_NOBITS, SECTION_NULL):
        _check_range(label, section.offset, section.size, file_bytes)
    if section.alignment & (section.alignment - 1):
        raise DamagedObjectError(f"{label} has alignment {section.alignment}, not a power of two")
    if not section.is_loaded:
        return
    if section.alignment > _MAX_ALIGNMENT:
        raise DamagedObjectError(f"{label} asks for alignment {section.alignment}")
    if section.flags & (_FLAG_THREAD_LOCAL | _FLAG_COMPRESSED):
        raise DamagedObjectError(f"{label} is thread-local or compressed, which kernels never are")
    if section.flags & FLAG_WRITE and section.flags & FLAG_EXECUTE:
        raise DamagedObjectError(f"{label} asks to be writable and executable at once")


def _read_symbols(
    binary: bytes, sections: tuple[Section, ...], table: Section
) -> tuple[Symbol, ...]:
    if table.size % _SYMBOL.size or table.link >= len(sections):
        raise DamagedObjectError(
            f"symbol table of {table.size} bytes, names in section {table.link}"
        )
    strings = sections[table.link]
    if strings.kind != _SECTION_STRINGS:
        raise DamagedObjectError(f"symbol names in section {table.link}, which holds no strings")
    names = _string_table(binary, "symbol names", strings.offset, strings.size)
    end = table.offset + table.size
    symbols = []
    for offset in range(table.offset, end, _SYMBOL.size):
        name, info, _, section_index, value, size = _SYMBOL.unpack_from(binary, offset)
        label = _string(names, name)
        binding, kind = info >> 4, info & 15
        if 0 < section_index < _FIRST_RESERVED_INDEX:
            if section_index >= len(sections):
                raise DamagedObjectError(
                    f"symbol {label!r} in section {section_index}, which is none"
                )
            _check_range(f"symbol {label!r}", value, size, sections[section_index].size)
        symbols.append(Symbol(label, kind, binding == 0, binding == 2, section_index, value))
    return tuple(symbols)


def _read_relocations(
    binary: bytes,
    sections: tuple[Section, ...],
    symbol_table: Section,
    symbols: tuple[Symbol, ...],
) -> tuple[Relocation, ...]:
    relocations = []
    for table in sections:
        if table.kind not in (_SECTION_RELA, _SECTION_REL):
            continue
        if not 0 < table.info < len(sections):
            raise DamagedObjectError(f"{table.name} relocates section {table.info}, which is none")
        target = sections[table.info]
        if not target.is_loaded:
            continue
        if table.kind == _SECTION_REL or table.size % _RELOCATION.size:
            raise DamagedObjectError(f"{table.name} does not hold 24-byte relocations with addends")
        if target.kind == SECTION_NOBITS or table.link != symbol_table.number:
            raise DamagedObjectError(
                f"{table.name} relocates {target.name} by section {table.link}"
            )
        for offset in range(table.offset, table.offset + table.size, _RELOCATION.size):
            place, info, addend = _RELOCATION.unpack_from(binary, offset)
            if info >> 32 >= len(symbols):
                raise DamagedObjectError(
                    f"{table.name} names symbol {info >> 32} of {len(symbols)}"
                )
            _check_range(f"a relocation of {target.name}", place, 4, target.size)
            kind = info & 0xFFFFFFFF
            relocations.append(Relocation(target.number, place, kind, symbols[info >> 32], addend))
    return tuple(relocations)


def _string_table(binary: bytes, what: str, offset: int, size: int) -> bytes:
    _check_range(what, offset, size, len(binary))
    return binary[offset : offset + size]


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset >= len(table) or end < 0:
        raise DamagedObjectError(
            f"a name starts at {offset} and does not end within {len(table)} bytes"
        )
    return table[offset:end].decode("utf-8", "replace")


def _check_range(what: str, offset: int, size: int, limit: int) -> None:
    if offset > limit or size > limit - offset:
        raise DamagedObjectError(f"{what} covers bytes {offset} to {offset + size} of {limit}")
