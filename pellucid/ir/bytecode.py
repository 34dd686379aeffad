"""Generated matchers between processes: kept beside the package, as Python keeps its bytecode.

    simplify, ADD   ->   ir/__pycache__/simplify.cpython-311-ADD.matcher

Writing the source of a matcher and compiling it takes Python some milliseconds, reading it back
some microseconds. A file holds a stamp, the code, and where the names in the code are found: the
objects themselves are those of this process. The stamp stands for the rules of the set and for all
that is written about them: the files that they come from and those that generate matchers, by size
and time, and the version of the bytecode. What does not carry the right stamp counts as absent.

Where nothing may be written (`sys.dont_write_bytecode`, or a folder that belongs to somebody else),
matchers are generated in each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import sys
from collections.abc import Sequence
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pellucid.ir.matcher import Place
    from pellucid.ir.rule import Rule

_PACKAGE: Final = "pellucid."
_GENERATORS: Final = ("law", "rule", "matcher", "pattern", "equation", "op", "bytecode")
"""Modules of this folder whose text decides what a matcher looks like."""


class Code(NamedTuple):
    """A matcher as it is kept: its code, and for each name in it where the object is found."""

    code: CodeType
    names: dict[str, Place]


def stamp_of(rules: Sequence[Rule], any_order: bool) -> bytes | None:
    """What the matchers of a set depend on; None for rules from outside of the package."""
    modules = dict.fromkeys(rule.module for rule in rules)
    if not all(module.startswith(_PACKAGE) for module in modules):
        return None
    files = [*modules, *(f"pellucid.ir.{name}" for name in _GENERATORS)]
    try:
        facts = tuple([fact for module in files for fact in _facts_of(module)])
    except OSError:  # the package has no files: it is inside of an archive
        return None
    names = [f"{rule.module}.{rule.name}" for rule in rules]
    text = repr((importlib.util.MAGIC_NUMBER, any_order, names, facts))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@cache
def _facts_of(module: str) -> tuple[int, int]:
    file = sys.modules[module].__file__
    if file is None:
        raise FileNotFoundError(module)
    found = os.stat(file)
    return found.st_size, found.st_mtime_ns


@cache
def _beside(name: str) -> str:
    """Where the matchers of a set are kept, up to the name of an op."""
    own = importlib.util.cache_from_source(os.path.join(os.path.dirname(__file__), f"{name}.py"))
    return f"{os.path.splitext(own)[0]}-"


def read(name: str, op: str, stamp: bytes) -> Code | None:
    """The matcher of a set for an op, if it is kept under *stamp*."""
    try:
        with open(f"{_beside(name)}{op}.matcher", "rb") as file:
            content = file.read()
        return Code(*marshal.loads(content[len(stamp) :])) if content.startswith(stamp) else None
    except (OSError, NotImplementedError, EOFError, ValueError, TypeError):
        return None


def write(name: str, op: str, stamp: bytes, made: Code) -> None:
    """Keep a matcher for later processes, where that is possible."""
    if sys.dont_write_bytecode:
        return
    with contextlib.suppress(OSError, NotImplementedError):
        path = f"{_beside(name)}{op}.matcher"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(stamp + marshal.dumps(tuple(made)))
        os.replace(temporary, path)  # at once, so that nobody reads a part
