"""Graphs as text, both ways: one node a line, sources first, and back to the very same nodes.

    the graph i * 4 + 1    ->    %0 = CONST index 3
                                 %1 = RANGE index %0 RangeArg(0, AxisKind.LOOP)
                                 %2 = CONST index 4
                                 %3 = MUL index %1 %2
                                 %4 = CONST index 1
                                 %5 = ADD index %3 %4

A line is `%number = OP type sources arg`. The type void and the arg None are left out. An arg
is a Python literal (`nan` and `inf` are literals too) or a record of ir/arg.py as a call; it is
read from its syntax tree with a list of allowed names, never evaluated. The last line is the
root; `#` starts a comment. As equal nodes are the same object, `from_text(to_text(root)) is
root`.

`to_text(root, names=True)` is shorter and for people only; `changes` tells what a rewrite did.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import math
import re
from collections import defaultdict
from typing import Any, Final, NoReturn

from pellucid.core.dtype import DType, dtypes, parse_dtype
from pellucid.core.errors import ParseError
from pellucid.ir import arg as arg_records
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

_RECORDS: Final[dict[str, type]] = {
    name: value
    for name, value in vars(arg_records).items()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
}
_ENUMS: Final[dict[str, type[enum.Enum]]] = {
    "AddrSpace": arg_records.AddrSpace,
    "AxisKind": arg_records.AxisKind,
}
_OPS: Final[dict[str, Op]] = {op.name: op for op in Ops.all()}
_LINE: Final = re.compile(r"\s*%(?P<number>\d+)\s*=\s*(?P<op>\w+)(?P<rest>.*)", re.DOTALL)
_SOURCE: Final = re.compile(r"\s*%(\d+)(?=\s|$)")
_WORD: Final = re.compile(r"\s*(\w+)(?=\s|$)")


# ---- printing ----------------------------------------------------------------------------------


def to_text(root: UOp, names: bool = False) -> str:
    """Print a graph, one node a line; with *names*, leaves stand where they are used.

    >>> i = UOp.range(3, 0)
    >>> print(to_text(i * 4))
    %0 = CONST index 3
    %1 = RANGE index %0 RangeArg(0, AxisKind.LOOP)
    %2 = CONST index 4
    %3 = MUL index %1 %2
    >>> print(to_text(i * 4, names=True))
    i0 = RANGE 3
    %0 = MUL index i0 4
    """
    if names:
        return _named_text(root)
    numbers: dict[UOp, str] = {}
    lines = []
    for node in root.toposort():
        numbers[node] = f"%{len(numbers)}"
        parts = [node.op.name, *_type_text(node), *(numbers[s] for s in node.src)]
        if node.arg is not None:
            parts.append(literal_text(node.arg))
        lines.append(f"{numbers[node]} = {' '.join(parts)}")
    return "\n".join(lines)


def _type_text(node: UOp) -> list[str]:
    return [] if node.dtype is dtypes.void else [str(node.dtype)]


def literal_text(value: Any) -> str:
    """Print an arg as an expression that `from_text` reads, without default fields of records.

    >>> literal_text((1, -0.0, math.inf))
    '(1, -0.0, inf)'
    >>> literal_text(arg_records.KernelInfo("add", ordered=True))
    "KernelInfo(name='add', ordered=True)"
    """
    if isinstance(value, tuple):
        inner = ", ".join(map(literal_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (enum.Enum, Op, DType)):
        return repr(value)
    if type(value).__name__ in _RECORDS:
        return f"{type(value).__name__}({', '.join(_field_texts(value))})"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    raise TypeError(f"graph text has no spelling for {type(value).__name__}: {value!r}")


def _field_texts(record: Any) -> list[str]:
    texts = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.default is dataclasses.MISSING:
            texts.append(literal_text(value))
        elif value != field.default:
            texts.append(f"{field.name}={literal_text(value)}")
    return texts


def _named_text(root: UOp) -> str:
    names: dict[UOp, str] = {}
    lines = []
    count = 0
    for node in root.toposort():
        name = _leaf_name(node)
        if name is not None:
            names[node] = name
            if node.op is not Ops.RANGE:
                continue
            kind = node.arg.kind
            why = [] if kind is arg_records.AxisKind.LOOP else [kind.value]
            lines.append(" ".join([f"{name} = RANGE", names[node.src[0]], *why]))
            continue
        names[node] = f"%{count}"
        count += 1
        parts = [node.op.name, *_type_text(node), *(names[s] for s in node.src)]
        if node.arg is not None:
            parts.append(literal_text(node.arg))
        lines.append(f"{names[node]} = {' '.join(parts)}")
    return "\n".join(lines)


def _leaf_name(node: UOp) -> str | None:
    """How people call a leaf: a literal by its value, a range i0, a parameter p0."""
    if node.op is Ops.CONST:
        suffix = "" if node.dtype in _PLAIN else f":{node.dtype}"
        return literal_text(node.arg) + suffix
    if node.op is Ops.RANGE:
        return f"i{node.arg.id}"
    if node.op is Ops.PARAM:
        return f"p{node.arg.slot}:{node.dtype}"
    if node.op is Ops.VARIABLE:
        return str(node.arg.name)
    return None


_PLAIN: Final = (dtypes.index, dtypes.bool)


def expression(node: UOp, depth: int = 3) -> str:
    """One node as an expression, down to *depth*: for messages.

    >>> expression(UOp.range(3, 0) * 4 + 1)
    'ADD(MUL(i0, 4), 1)'
    """
    name = _leaf_name(node)
    if name is not None:
        return name
    if depth == 0:
        return "…"
    inner = [expression(s, depth - 1) for s in node.src]
    if node.arg is not None:
        inner.append(literal_text(node.arg))
    return f"{node.op.name}({', '.join(inner)})"


# ---- what a rewrite did ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Changes:
    """Nodes that are gone and nodes that are new, without those that only got other sources."""

    removed: tuple[UOp, ...]
    added: tuple[UOp, ...]

    def __str__(self) -> str:
        gone = [f"- {expression(n)}" for n in self.removed]
        return "\n".join([*gone, *(f"+ {expression(n)}" for n in self.added)])


def changes(before: UOp, after: UOp) -> Changes:
    """Tell what a rewrite from *before* to *after* did.

    >>> i = UOp.range(3, 0)
    >>> print(changes((i + 0) * 4, i * 4))
    - 0
    - ADD(i0, 0)
    """
    old, new = before.toposort(), after.toposort()
    kept = set(old) & set(new)
    carried = _paired(before, after, kept)
    removed = [n for n in old if n not in kept and n not in carried]
    added = [n for n in new if n not in kept and n not in carried]
    carried |= _carried(removed, added, kept)
    return Changes(
        tuple(n for n in removed if n not in carried), tuple(n for n in added if n not in carried)
    )


def _paired(before: UOp, after: UOp, kept: set[UOp]) -> set[UOp]:
    """Nodes at the same place in both graphs, from the roots down, that differ below only."""
    pairs: set[UOp] = set()
    stack = [(before, after)]
    while stack:
        old, new = stack.pop()
        if old in kept or new in kept or old in pairs or new in pairs:
            continue
        different = [(a, b) for a, b in zip(old.src, new.src, strict=False) if a is not b]
        if _label(old) == _label(new) and any(a not in kept or b not in kept for a, b in different):
            pairs |= {old, new}
            stack.extend(reversed(different))
    return pairs


def _carried(removed: list[UOp], added: list[UOp], kept: set[UOp]) -> set[UOp]:
    """Elsewhere: a removed and an added node with the same op and arg, over other sources."""
    waiting: defaultdict[tuple[Any, ...], list[UOp]] = defaultdict(list)
    for node in sorted(added, key=lambda n: not kept.issuperset(n.src)):
        waiting[_label(node)].append(node)
    carried = set()
    for node in sorted(removed, key=lambda n: kept.issuperset(n.src)):
        partners = waiting[_label(node)]
        if partners and not (kept.issuperset(node.src) and kept.issuperset(partners[-1].src)):
            carried |= {node, partners.pop()}
    return carried


def _label(node: UOp) -> tuple[Any, ...]:
    arg = None if node.arg is None else literal_text(node.arg)
    return (node.op, node.dtype, len(node.src), arg)


# ---- reading -----------------------------------------------------------------------------------


def from_text(text: str) -> UOp:
    """Read a graph that `to_text` has printed; the last line is the root.

    Errors: ParseError, with line and column.

    >>> from_text("%0 = CONST float32 -0.0")
    <CONST float32, -0.0, 0 sources>
    """
    reader = _Reader(text)
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            reader.read_line(number, line)
    if reader.last is None:
        reader.fail(1, 0, "there is no node", "at least one line such as `%0 = CONST index 4`")
    return reader.last


def literal_from_text(text: str) -> Any:
    """Read an arg that `literal_text` has printed.

    Errors: ParseError, with the column.

    >>> literal_from_text("(1, -0.0, inf)")
    (1, -0.0, inf)
    """
    return _Reader(text).read_arg(1, text, 0)


class _Reader:
    """The nodes read so far, by number."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.nodes: dict[str, UOp] = {}
        self.last: UOp | None = None

    def fail(self, number: int, column: int, problem: str, expected: object = None) -> NoReturn:
        line = self.lines[number - 1].rstrip()
        rows = [("line", line), ("", " " * column + "^")] if line else []
        place = f"line {number}, column {column + 1}"
        raise ParseError(f"{place}: {problem}", rows=rows, expected=expected)

    def read_line(self, number: int, line: str) -> None:
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            column = len(line) - len(line.lstrip())
            self.fail(number, column, "this is not a node", "%number = OP type sources arg")
        name, op = match["number"], _OPS.get(match["op"])
        if op is None:
            self.fail(number, match.start("op"), f"no operation is named {match['op']}")
        if name in self.nodes:
            self.fail(number, match.start("number") - 1, f"%{name} has been defined before")
        dtype, column = self.read_type(line, match.end("op"))
        sources: list[UOp] = []
        while found := _SOURCE.match(line, column):
            if found[1] not in self.nodes:
                self.fail(number, found.start(1) - 1, f"%{found[1]} has not been defined yet")
            sources.append(self.nodes[found[1]])
            column = found.end()
        self.last = UOp(op, dtype, tuple(sources), self.read_arg(number, line, column))
        self.nodes[name] = self.last

    def read_type(self, line: str, column: int) -> tuple[DType, int]:
        word = _WORD.match(line, column)
        if word is not None:
            try:
                return parse_dtype(word[1]), word.end()
            except (KeyError, ValueError):
                pass  # it is the beginning of the arg
        return dtypes.void, column

    def read_arg(self, number: int, line: str, column: int) -> Any:
        rest = line[column:].strip()
        if not rest or rest.startswith("#"):
            return None
        start = line.index(rest, column)
        try:
            tree = ast.parse(rest, mode="eval").body
        except (SyntaxError, ValueError):
            self.fail(number, start, "the arg is not an expression")
        return self.literal(tree, number, start)

    def literal(self, tree: ast.expr, number: int, start: int) -> Any:
        """The value of a literal, by its syntax tree."""
        if isinstance(tree, ast.Constant) and not isinstance(tree.value, complex):
            if tree.value is not ...:
                return tree.value
        if isinstance(tree, ast.Name) and tree.id in _FLOAT_NAMES:
            return _FLOAT_NAMES[tree.id]
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            value = self.literal(tree.operand, number, start)
            if type(value) in (int, float):
                return -value
        if isinstance(tree, ast.Tuple):
            return tuple(self.literal(part, number, start) for part in tree.elts)
        if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
            return self.named(tree.value.id, tree.attr, tree, number, start)
        if isinstance(tree, ast.Call):
            return self.call(tree, number, start)
        return self.fail(number, start + tree.col_offset, f"{ast.unparse(tree)} cannot be an arg")

    def named(self, family: str, name: str, tree: ast.expr, number: int, start: int) -> Any:
        """A member of an enum, an op or a type."""
        found: Any = None
        if family in _ENUMS:
            found = _ENUMS[family].__members__.get(name)
        elif family == "Ops":
            found = _OPS.get(name)
        elif family == "dtypes":
            found = vars(dtypes).get(name)
        if found is None:
            self.fail(number, start + tree.col_offset, f"nothing is named {family}.{name}")
        return found

    def call(self, tree: ast.Call, number: int, start: int) -> Any:
        """A record, or `dtypes.name.vec(lanes)`."""
        given = [self.literal(part, number, start) for part in tree.args]
        function = tree.func
        if isinstance(function, ast.Attribute) and function.attr == "vec":
            dtype = self.literal(function.value, number, start)
            if isinstance(dtype, DType) and len(given) == 1 and isinstance(given[0], int):
                return dtype.vec(given[0])
        if isinstance(function, ast.Name) and function.id in _RECORDS:
            named = {k.arg: self.literal(k.value, number, start) for k in tree.keywords if k.arg}
            try:
                return _RECORDS[function.id](*given, **named)
            except TypeError as error:
                what = str(error).partition("__init__() ")[2] or str(error)
                self.fail(number, start + tree.col_offset, f"{function.id} {what}")
        what = ast.unparse(function)
        return self.fail(number, start + tree.col_offset, f"{what} is not a record")


_FLOAT_NAMES: Final = {"nan": math.nan, "inf": math.inf}
