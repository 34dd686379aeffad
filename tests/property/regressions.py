"""Random programs that failed once: they are tried first, on every path, in every run.

Add the program that a failing test prints, with a word on what was wrong.
"""

from __future__ import annotations

from tests.property.programs import Program

PROGRAMS: list[Program] = [
    # a bitcast of a single number came back with an axis
    [("data", "bool", (), 0), ("cast", 0, "int8"), ("bitcast", 1, "uint8")],
    # an index cast to int32, of which 32 bits were enough, became a cast to its own type
    [("arange", "int32", 31), ("data", "int8", (1,), 0)],
    # an index of 64 bits that only an address uses had no name in LLVM IR
    [("data", "int8", (), 0), ("data", "int8", (7, 2), 0), ("take", 1, 0)],
]

STORAGE_PROGRAMS: list[list[tuple[object, ...]]] = [
    # the ellipsis of an index was looked for with ==, which compares tensors element by element
    [("new", (4,), 0), ("put", 0, (0,), (100,))],
]
