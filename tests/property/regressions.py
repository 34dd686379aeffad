"""Random programs that failed once: they are tried first, on every path, in every run.

Add the program that a failing test prints, with a word on what was wrong.
"""

from __future__ import annotations

from tests.property.programs import Program

PROGRAMS: list[Program] = []

STORAGE_PROGRAMS: list[list[tuple[object, ...]]] = []
