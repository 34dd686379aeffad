"""Several kernels as one text, so that one run of the compiler makes them all.

    define void @add() #0 {…}    define void @mul() #0 {…}         define void @add() #0 {…}
    declare @llvm.fma.f32        declare @llvm.fma.f32        ->   define void @mul() #0 {…}
    attributes #0 = {…}          attributes #0 = {…}               declare …  attributes #0 = {…}

Functions of one name exclude each other; what stands around them (declarations, types, helpers) is
written once where it is equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

_ATTRIBUTES = re.compile(r"attributes #(\d+) = (.*)")
_ATTRIBUTE_USE = re.compile(r"#(\d+)")


def join_llvm(texts: Sequence[str]) -> str:
    """One LLVM module of several; attribute groups are numbered anew.

    >>> print(join_llvm([f"define void @{n}() #0 {{\\n}}\\nattributes #0 = {{ nounwind }}\\n"
    ...                  for n in "ab"]), end="")
    define void @a() #0 {
    }
    define void @b() #0 {
    }
    attributes #0 = { nounwind }
    """
    functions: list[str] = []
    others: dict[str, None] = {}
    groups: dict[str, int] = {}
    for text in texts:
        function, end, rest = text.partition("\n}\n")
        head, line_end, body = function.partition("\n")
        numbers: dict[str, int] = {}
        for line in rest.splitlines():
            found = _ATTRIBUTES.fullmatch(line)
            if found:
                numbers[found[1]] = groups.setdefault(found[2], len(groups))
            else:
                others[line] = None
        head = _ATTRIBUTE_USE.sub(partial(_renumbered, numbers), head)
        functions.append(f"{head}{line_end}{body}{end}")
    attributes = [f"attributes #{number} = {group}" for group, number in groups.items()]
    return "".join(functions) + "\n".join([*others, *attributes]) + "\n"


def _renumbered(numbers: dict[str, int], found: re.Match[str]) -> str:
    return f"#{numbers[found[1]]}"


def join_c(texts: Sequence[str], names: Sequence[str]) -> str:
    """One C file of several: each the parts before its function that are new, and the function.

    Parts are separated by empty lines; one of single declarations is taken line by line.
    """
    seen: set[str] = set()
    parts: list[str] = []

    def new(pieces: Sequence[str]) -> list[str]:
        fresh = [piece for piece in pieces if piece and piece not in seen]
        seen.update(fresh)
        return fresh

    for text, name in zip(texts, names, strict=True):
        start = text.index(f"void {name}(")
        for part in text[:start].split("\n\n"):
            if part.startswith(("typedef", "#include")):
                parts.append("\n".join(new(part.splitlines())))
            else:
                parts += new([part])
        parts.append(text[start:].rstrip("\n"))
    return "\n\n".join(part for part in parts if part) + "\n"
