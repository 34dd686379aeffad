"""Sums of products, the normal form of index arithmetic.

An index expression is read as a list of (coefficient, base) pairs, where no base is a literal, a
sum, or a product with a literal, and base None stands for 1. Two equal sums are the
same list, whatever their order was.

    j + 12 * i + 4 + j     ->   [(12, i), (2, j), (4, None)]     ->   i * 12 + j * 2 + 4
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from pellucid.core.dtype import DType
from pellucid.ir.bounds import Interval, bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

Terms: TypeAlias = "dict[UOp | None, int]"

_RANK = {op: number for number, op in enumerate(Ops.all())}
MANY_TERMS = 64


def _place(node: UOp) -> tuple[int, int]:
    """Where a term stands in a sum, roughly: by op, loops by number, literals last."""
    op = node.op
    if op is Ops.CONST:
        return (1 << 20, 0)
    if op is Ops.RANGE and node.src[0].is_const:
        return (0, node.arg.id)
    return (_RANK[op] + 1, 0)


def _order_key(node: UOp) -> tuple[int, int, bytes]:
    """Where a term stands in a sum: by place, then by content."""
    op = node.op
    if op is Ops.RANGE and node.src[0].is_const:
        return (*_place(node), f"{node.src[0].arg} {node.arg.kind}".encode())
    return (*_place(node), node.content)


def is_before(left: UOp, right: UOp) -> bool:
    """True when *left* has to stand left of *right* in a commutative op: as cheap as may be.

    Decided by op (loops first, literals last), else by the number of a leaf, else by the first
    sources that differ, in the same way. Content decides what differs deep below only: it has to be
    computed for all that is below.
    """
    a, b = left, right
    for _ in range(NEAR):
        if a is b:
            return True
        if a.op is not b.op:
            return _rank(a.op) < _rank(b.op)
        number_of = _NUMBERS.get(a.op)
        if number_of is not None and number_of(a) != number_of(b):
            return bool(number_of(a) < number_of(b))
        pairs = ((x, y) for x, y in zip(a.src, b.src, strict=False) if x is not y)
        a, b = next(pairs, (a, a))
        if a is b:
            break
    return left.content <= right.content


NEAR = 12
"""How many levels of sources are looked at before content decides."""

_NUMBERS: dict[Op, Callable[[UOp], int]] = {
    Ops.RANGE: lambda node: node.arg.id,
    Ops.PARAM: lambda node: node.arg.slot,
    Ops.DEFINE: lambda node: node.arg.id,
    Ops.CONST: lambda node: node.arg if type(node.arg) is int else 0,
    Ops.LANE: lambda node: node.arg if type(node.arg) is int else 0,
}


def _rank(op: Op) -> int:
    if op is Ops.RANGE:
        return -1
    return 1 << 20 if op is Ops.CONST else _RANK[op]


def terms_of(node: UOp) -> Terms:
    """The terms of a sum, equal bases collected. In a vector, a SPLAT is taken apart too.

    >>> i = UOp.range(4, 0)
    >>> terms_of(i * 3 + i + 2) == {i: 4, None: 2}
    True
    """
    terms: Terms = {}
    stack = [node]
    while stack:
        part = stack.pop()
        if part.op is Ops.ADD:
            stack += part.src
            continue
        if part.op is Ops.SPLAT:
            for base, c in terms_of(part.src[0]).items():
                base = base.splat(part.dtype.lanes) if base is not None else None
                terms[base] = terms.get(base, 0) + c
            continue
        coefficient, base = term_of(part)
        if base is not None and (only := _only_value(base)) is not None:
            coefficient, base = coefficient * only, None
        terms[base] = terms.get(base, 0) + coefficient
    return {base: c for base, c in terms.items() if c}


def _only_value(base: UOp) -> int | None:
    low, high = bounds(base)
    return low if low == high else None


def count_terms(node: UOp, limit: int) -> int:
    """How many terms a sum has, counted up to about *limit*."""
    count, stack = 0, [node]
    while stack and count < limit:
        part = stack.pop()
        if part.op is Ops.ADD or part.op is Ops.SPLAT:
            stack += part.src
        else:
            count += 1
    return count


def term_of(part: UOp) -> tuple[int, UOp | None]:
    """A product as (literal, rest)."""
    if part.op is Ops.CONST and not isinstance(part.arg, tuple):
        return part.arg, None
    if part.op is Ops.MUL:
        left, right = part.src
        if right.op is Ops.CONST and not isinstance(right.arg, tuple):
            return right.arg, left
        if left.op is Ops.CONST and not isinstance(left.arg, tuple):
            return left.arg, right
    return 1, part


def sum_of(terms: Terms, like: UOp) -> UOp:
    """The sum that *terms* stand for, in normal order, of the type of *like*.

    In a vector, what is equal in all lanes is summed as a scalar first.
    """
    return _vector_sum(terms, like.dtype) if like.dtype.lanes > 1 else _sum(terms, like.dtype)


def _sum(terms: Terms, dtype: DType) -> UOp:
    total: UOp | None = None
    for base in ordered_bases(terms):
        part = scaled(base, terms[base])
        total = part if total is None else UOp(Ops.ADD, dtype, (total, part))
    return _with_literal(total, terms.get(None, 0), dtype)


def moved_by(node: UOp, distance: int) -> UOp:
    """node + distance, in normal order where the index *node* is.

    >>> i = UOp.range(4, 0)
    >>> moved_by(i + 3, 5) is i + 8, moved_by(i + 3, -3) is i
    (True, True)
    """
    if node.op is Ops.ADD and node.src[1].is_const:
        node, last = node.src
        distance += last.arg
    elif node.is_const:
        return UOp.const(node.dtype, node.arg + distance)
    return node + distance if distance else node


def _with_literal(total: UOp | None, literal: int | tuple[int, ...], dtype: DType) -> UOp:
    if total is None:
        return UOp.const(dtype, literal)
    if literal:
        total = UOp(Ops.ADD, dtype, (total, UOp.const(dtype, literal)))
    return total


def _vector_sum(terms: Terms, dtype: DType) -> UOp:
    lanes = dtype.lanes
    equal: Terms = {}
    others: Terms = {}
    literals: list[int] | None = None
    for base, c in terms.items():
        if base is None or not c:
            continue
        if base.op is Ops.SPLAT:
            equal[base.src[0]] = c
        elif base.op is Ops.CONST:
            literals = literals or [0] * lanes
            literals = [v + c * w for v, w in zip(literals, base.arg, strict=True)]
        else:
            others[base] = c
    rest = [scaled(base, others[base]) for base in ordered_bases(others)]
    literal = terms.get(None, 0)
    if literals is None and equal:
        equal[None] = literal
    parts = [_sum(equal, dtype.scalar).splat(lanes)] if equal else []
    total: UOp | None = None
    for part in [*parts, *rest]:
        total = part if total is None else UOp(Ops.ADD, dtype, (total, part))
    if literals is not None:
        return _with_literal(total, tuple([v + literal for v in literals]), dtype)
    return _with_literal(total, 0 if equal else literal, dtype)


def ordered_bases(terms: Terms) -> list[UOp]:
    """The bases of *terms* in normal order, without the literal."""
    bases = [b for b, c in terms.items() if b is not None and c]
    if len(bases) < 2:
        return bases
    by_place = {_place(b): b for b in bases}
    if len(by_place) == len(bases):  # nearly always: no content has to be computed
        return [by_place[place] for place in sorted(by_place)]
    return sorted(bases, key=_order_key)


def scaled(base: UOp, coefficient: int) -> UOp:
    """base * coefficient."""
    if coefficient == 1:
        return base
    return UOp(Ops.MUL, base.dtype, (base, UOp.const(base.dtype, coefficient)))


def bounds_of_terms(terms: Terms) -> Interval:
    """The interval of the sum."""
    low = high = terms.get(None, 0)
    for base, c in terms.items():
        if base is not None:
            b = bounds(base)
            low += min(b.min * c, b.max * c)
            high += max(b.min * c, b.max * c)
    return Interval(low, high)


def subset(terms: Terms, bases: Iterable[UOp | None]) -> Terms:
    """Some of the terms."""
    return {b: terms[b] for b in bases}
