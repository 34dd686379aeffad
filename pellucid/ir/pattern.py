"""Patterns: what a rewrite looks for, and the Python source that looks for it.

A `Pattern` is a small tree that mirrors nodes: operators on patterns build patterns as operators on
nodes build nodes. `X`, `Y`, `Z` stand for any node, `K`, `L` for a literal, `P(op, …)` for a node
of that op. The same name twice means the same node. Sources of commutative ops match both ways.

    X * K + Y               ADD over a MUL by a literal, and anything
    P(Ops.CAST, X, name="outer")        a CAST, captured as `outer`, its source as `x`
    P(Ops.REDUCE, X, ...)   a REDUCE, whatever ranges follow

Patterns are not interpreted: matcher.py turns them into Python source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from types import EllipsisType
from typing import Any, TypeAlias

from pellucid.core.dtype import DType, Kind, Scalar
from pellucid.ir.op import Op, Ops

Operand: TypeAlias = "Pattern | bool | int | float"
DTypeTest: TypeAlias = "DType | tuple[DType, ...] | Callable[[DType], bool] | None"


class Pattern:
    """What a node has to look like. All parts are optional; what is left out is not looked at.

    ops: the op is one of these.  src: the sources look like these.  more: further ones may follow.
    name: the node is captured under this name.  literal: the node is a CONST with one value.
    value: … and this is the value.  kinds: the dtype is of one of these kinds.
    dtype, arg: a value to be equal to, or a function to ask.
    """

    __slots__ = ("arg", "dtype", "kinds", "literal", "more", "name", "ops", "src", "value")

    def __init__(
        self,
        ops: tuple[Op, ...] | None = None,
        src: tuple[Pattern, ...] | None = None,
        *,
        more: bool = False,
        name: str | None = None,
        literal: bool = False,
        value: Scalar | None = None,
        kinds: frozenset[Kind] | None = None,
        dtype: DTypeTest = None,
        arg: Any = None,
    ) -> None:
        self.ops = ops
        self.src = src
        self.more = more
        self.name = name
        self.literal = literal
        self.value = value
        self.kinds = kinds
        self.dtype = dtype
        self.arg = arg

    def copy(self) -> Pattern:
        """An equal pattern that may be changed."""
        made = Pattern(self.ops, self.src, more=self.more, name=self.name, literal=self.literal)
        made.value, made.kinds, made.dtype, made.arg = self.value, self.kinds, self.dtype, self.arg
        return made

    def with_sources(self, src: tuple[Pattern, ...]) -> Pattern:
        """The same pattern over other sources."""
        made = self.copy()
        made.src = src
        return made

    @property
    def op(self) -> Op | None:
        """The op, where there is exactly one."""
        return self.ops[0] if self.ops is not None and len(self.ops) == 1 else None

    def names(self) -> list[str]:
        """All captured names, each once, in order of appearance."""
        return list(dict.fromkeys(p.name for p in self.walk() if p.name is not None))

    def walk(self) -> Iterator[Pattern]:
        """This pattern and all below, sources after."""
        yield self
        for source in self.src or ():
            yield from source.walk()

    def __repr__(self) -> str:
        return text_of(self)

    # ---- building ------------------------------------------------------------------------------

    def _with(self, op: Op, *others: Operand) -> Pattern:
        return Pattern((op,), (self, *map(as_pattern, others)))

    def __add__(self, other: Operand) -> Pattern:
        return self._with(Ops.ADD, other)

    def __radd__(self, other: Operand) -> Pattern:
        return as_pattern(other)._with(Ops.ADD, self)

    def __mul__(self, other: Operand) -> Pattern:
        return self._with(Ops.MUL, other)

    def __rmul__(self, other: Operand) -> Pattern:
        return as_pattern(other)._with(Ops.MUL, self)

    def __neg__(self) -> Pattern:
        return self._with(Ops.MUL, -1)

    def __sub__(self, other: Operand) -> Pattern:
        return self._with(Ops.ADD, -as_pattern(other))

    def __rsub__(self, other: Operand) -> Pattern:
        return as_pattern(other)._with(Ops.ADD, -self)

    def __truediv__(self, other: Operand) -> Pattern:
        return self._with(Ops.FDIV, other)

    def __floordiv__(self, other: Operand) -> Pattern:
        return self._with(Ops.FLOORDIV, other)

    def __mod__(self, other: Operand) -> Pattern:
        return self._with(Ops.FLOORMOD, other)

    def __and__(self, other: Operand) -> Pattern:
        return self._with(Ops.AND, other)

    def __or__(self, other: Operand) -> Pattern:
        return self._with(Ops.OR, other)

    def __xor__(self, other: Operand) -> Pattern:
        return self._with(Ops.XOR, other)

    def __lshift__(self, other: Operand) -> Pattern:
        return self._with(Ops.SHL, other)

    def __rshift__(self, other: Operand) -> Pattern:
        return self._with(Ops.SHR, other)

    def __lt__(self, other: Operand) -> Pattern:
        return self._with(Ops.CMPLT, other)

    def __le__(self, other: Operand) -> Pattern:
        return self._with(Ops.CMPLE, other)

    def __gt__(self, other: Operand) -> Pattern:
        return as_pattern(other)._with(Ops.CMPLT, self)

    def __ge__(self, other: Operand) -> Pattern:
        return as_pattern(other)._with(Ops.CMPLE, self)

    def lt(self, other: Operand) -> Pattern:
        """Less."""
        return self < other

    def le(self, other: Operand) -> Pattern:
        """Less or equal."""
        return self <= other

    def eq(self, other: Operand) -> Pattern:
        """Elementwise equality (`==` stays identity)."""
        return self._with(Ops.CMPEQ, other)

    def ne(self, other: Operand) -> Pattern:
        """Elementwise inequality."""
        return self._with(Ops.CMPNE, other)

    def logical_not(self) -> Pattern:
        """The opposite of a bool."""
        return self._with(Ops.XOR, True)

    def maximum(self, other: Operand) -> Pattern:
        """MAX."""
        return self._with(Ops.MAX, other)

    def minimum(self, other: Operand) -> Pattern:
        """MIN."""
        return self._with(Ops.MIN, other)

    def where(self, if_true: Operand, if_false: Operand) -> Pattern:
        """Select by this condition."""
        return self._with(Ops.WHERE, if_true, if_false)

    def cast(self, dtype: DType | None = None, name: str | None = None) -> Pattern:
        """A CAST of this, to *dtype* if given."""
        return Pattern((Ops.CAST,), (self,), dtype=dtype, name=name)


def as_pattern(value: Operand) -> Pattern:
    """A pattern stays itself; a number is the literal of that value (and of that Python type)."""
    return value if isinstance(value, Pattern) else Pattern(literal=True, value=value)


def P(
    op: Op | tuple[Op, ...] | None = None,
    *sources: Operand | EllipsisType,
    name: str | None = None,
    dtype: DTypeTest = None,
    arg: Any = None,
    kinds: Iterable[Kind] | None = None,
) -> Pattern:
    """A node of *op* (or of one of several); without sources, whatever its sources are.

    `...` as last source allows any number of further ones. *dtype* and *arg* are values to be equal
    to, or functions to ask; *kinds* are the kinds of dtype that are allowed.

    >>> P(Ops.CAST, P(Ops.CAST, X), name="outer")
    outer:CAST(CAST(x))
    """
    ops = (op,) if isinstance(op, Op) else op
    more = bool(sources) and sources[-1] is ...
    given = tuple(as_pattern(s) for s in sources if not isinstance(s, EllipsisType))
    src = given if sources else None
    wanted = None if kinds is None else frozenset(kinds)
    return Pattern(ops, src, more=more, name=name, kinds=wanted, dtype=dtype, arg=arg)


X = Pattern(name="x")
Y = Pattern(name="y")
Z = Pattern(name="z")
K = Pattern(name="k", literal=True)
L = Pattern(name="l", literal=True)


# ---- text ----------------------------------------------------------------------------------------

_SYMBOLS: dict[Op, str] = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.FLOORDIV: "//",
    Ops.FLOORMOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPLE: "<=",
    Ops.CMPEQ: "==",
    Ops.CMPNE: "!=",
}


def text_of(pattern: Pattern, inside: bool = False) -> str:
    """The pattern as an equation would write it.

    >>> text_of((X // K) // L)
    '(x // k) // l'
    """
    if pattern.value is not None:
        return repr(pattern.value)
    if pattern.ops is None and pattern.src is None:
        return pattern.name or "_"
    op = pattern.op
    symbol = _SYMBOLS.get(op) if op is not None else None
    if symbol is not None and pattern.src is not None and len(pattern.src) == 2:
        left, right = (text_of(s, inside=True) for s in pattern.src)
        text = f"{left} {symbol} {right}"
        return f"({text})" if inside else text
    ops = "|".join(o.name for o in pattern.ops) if pattern.ops is not None else "_"
    capture = f"{pattern.name}:" if pattern.name is not None else ""
    if pattern.src is None:
        return capture + ops
    sources = [text_of(s) for s in pattern.src] + (["…"] if pattern.more else [])
    return f"{capture}{ops}({', '.join(sources)})"


# ---- both ways -----------------------------------------------------------------------------------


def orders(pattern: Pattern) -> list[Pattern]:
    """The pattern with the sources of commutative ops in every order that makes a difference."""
    if not pattern.src:
        return [pattern]
    chosen = [list(c) for c in itertools.product(*map(orders, pattern.src))]
    ops = pattern.ops or ()
    if len(pattern.src) == 2 and ops and all(op.commutative for op in ops) and not pattern.more:
        chosen += [c[::-1] for c in chosen]
    found = {_shape_of(p): p for p in (pattern.with_sources(tuple(c)) for c in chosen[::-1])}
    return list(found.values())[::-1]


def _shape_of(pattern: Pattern) -> tuple[Any, ...]:
    """Equal for patterns that test and capture the same."""
    value = (type(pattern.value), pattern.value)  # 1 is not True, nor 1.0
    tests = (pattern.ops, pattern.literal, value, pattern.kinds, pattern.dtype, id(pattern.arg))
    below = None if pattern.src is None else tuple(map(_shape_of, pattern.src))
    return (*tests, pattern.name, pattern.more, below)
