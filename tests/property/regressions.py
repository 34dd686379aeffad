"""Random programs that failed once: they are tried first, on every path, in every run.

Add the program that a failing test prints, with a word on what was wrong.
"""

from __future__ import annotations

from tests.property.programs import Program

PROGRAMS: list[Program] = [
    # an index of 64 bits that only an address uses had no name in LLVM IR
    [("data", "int8", (), 0), ("data", "int8", (7, 2), 0), ("take", 1, 0)],
]

STORAGE_PROGRAMS: list[list[tuple[object, ...]]] = []
