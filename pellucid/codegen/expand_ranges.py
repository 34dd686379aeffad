"""Turn ranges that were chosen as lanes into vectors, and those chosen as copies into copies.

LOOP form -> VECTOR form.

    before    END(STORE(y[o * 4 + l], x[o * 4 + l] * c), o, l LANES 4)
    after     END(STORE(y[SPLAT(o * 4) + (0, 1, 2, 3)], x[…] * SPLAT(c)), o)

    before    REDUCE(x[o * 8 + u * 4 + l], o, u UNROLL 2, l LANES 4)
    after     s = REDUCE(x[o * 8 + (0, 1, 2, 3)], o) + REDUCE(x[o * 8 + 4 + (0, 1, 2, 3)], o)
              t = LANE(s, (0, 1)) + LANE(s, (2, 3));  LANE(t, 0) + LANE(t, 1)

    before    END(STORE(y[o * 2 + u], …), o, u UPCAST 2)
    after     END(GROUP(STORE(y[o * 2], …), STORE(y[o * 2 + 1], …)), o)

What does not depend on the lanes stays scalar, and is splat where it meets a vector. The tree that
combines copies and lanes has a fixed shape, so one schedule gives one result. Products that nothing
but copies add up are added where they are made, a few to one sum, where the target has MULADD:

    before    REDUCE(x[u] * y[u], u UNROLL 2)
    after     MULADD(x[1], y[1], MULADD(x[0], y[0], 0.0))
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pellucid.codegen.expand_units import expand_units
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Op, Ops
from pellucid.ir.pairs import joined, lanes_of, paired
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import substitute_each, transform
from pellucid.ir.uop import UOp

MAX_CHAIN = 8
"""How many products are added one after the other. (A row times a matrix, 16 rows at a time, takes
6 % less than with a tree.)"""


def expand_ranges(sink: UOp, target: Target) -> UOp:
    """Remove LANES, UPCAST and UNROLL ranges, and those of matrix units."""
    sink = expand_units(sink)
    kinds = {node.arg.kind for node in sink.toposort() if node.op is Ops.RANGE}
    if AxisKind.LANES in kinds:
        sink = transform(sink, _vectorised)
    if AxisKind.UNROLL in kinds:
        fused = Ops.MULADD.name in target.native_ops
        sink = transform(sink, lambda node: _unrolled(node, fused=fused), (Ops.REDUCE,))
    if AxisKind.UPCAST in kinds:
        sink = transform(sink, _upcast_fill, (Ops.AFTER,))
        sink = sink.with_sources(tuple(_upcast(effect, ()) for effect in sink.src))
    return simplify(sink)


# ---- lanes -------------------------------------------------------------------------------------


def _vectorised(node: UOp) -> UOp:
    """*node*, whose sources may have become vectors, as a vector."""
    op = node.op
    if op is Ops.RANGE:
        if node.arg.kind is not AxisKind.LANES:
            return node
        lanes = node.src[0].arg
        return UOp.const(node.dtype.vec(lanes), tuple(range(lanes)))
    if op is Ops.REDUCE:
        return _reduced_lanes(node)
    if op is Ops.END:
        ranges = tuple(r for r in node.src[1:] if r.op is Ops.RANGE)
        return node.src[0].end(*ranges)
    lanes = max((s.dtype.lanes for s in node.src), default=1)
    if lanes == 1 or op in (Ops.SINK, Ops.GROUP, Ops.AFTER, Ops.MMA):
        return node
    if op is Ops.STORE:
        place, value = node.src
        if place.dtype.lanes == 1:
            return node.with_sources((place, value.lane(lanes - 1)))  # the last iteration wins
        return node.with_sources((place, _wide(value, lanes)))
    if op is Ops.INDEX:
        storage, *others = node.src
        sources = (storage, *(_wide(s, lanes) for s in others))
    else:
        sources = tuple(_wide(s, lanes) for s in node.src)
    return UOp(op, node.dtype.vec(lanes), sources, node.arg)


def _wide(node: UOp, lanes: int) -> UOp:
    if node.op is Ops.PAIR:
        return paired(*(_wide(part, lanes) for part in node.src))
    return node if node.dtype.lanes == lanes else node.splat(lanes)


def _reduced_lanes(node: UOp) -> UOp:
    """A REDUCE of vectors; when it closed the lanes, what they add up to."""
    value, *closed = node.src
    ranges = tuple(r for r in closed if r.op is Ops.RANGE)
    vectors = [r for r in closed if r.op is not Ops.RANGE]
    op = node.arg.op
    if vectors:
        value = _wide(value, vectors[0].dtype.lanes)
    if ranges:
        value = UOp(Ops.REDUCE, value.dtype, (value, *ranges), node.arg)
    if not vectors:
        return value
    total = combine_lanes(op, value)
    return total if ranges else _from_zero(op, total)


def combine_lanes(op: Op, value: UOp) -> UOp:
    """One scalar from all lanes, halves at a time."""
    while (half := value.dtype.lanes // 2) > 0:
        low = lanes_of(value, tuple(range(half)) if half > 1 else 0)
        high = lanes_of(value, tuple(range(half, 2 * half)) if half > 1 else 1)
        value = joined(op, low, high)
    return value


def _from_zero(op: Op, value: UOp) -> UOp:
    """A sum of floats starts from 0.0, so it is never -0.0."""
    return value + 0.0 if op is Ops.ADD and value.dtype.is_float else value


# ---- copies ------------------------------------------------------------------------------------


def _assignments(ranges: Sequence[UOp]) -> list[dict[UOp, UOp]]:
    """Every choice of values for *ranges*, the last one running fastest."""
    values = [[r.const_like(v) for v in range(r.src[0].arg)] for r in ranges]
    return [dict(zip(ranges, chosen, strict=True)) for chosen in itertools.product(*values)]


def _unrolled(node: UOp, *, fused: bool) -> UOp:
    """A REDUCE over an unrolled range is a tree over independent REDUCEs."""
    if node.op is not Ops.REDUCE:
        return node
    value, *closed = node.src
    copied = [r for r in closed if r.arg.kind is AxisKind.UNROLL]
    if not copied:
        return node
    ranges = [r for r in closed if r.arg.kind is not AxisKind.UNROLL]
    values = substitute_each(value, _assignments(copied))
    if ranges:
        values = [node.with_sources((v, *ranges)) for v in values]
    elif fused and _are_products(node, values):
        starts = range(0, len(values), MAX_CHAIN)
        return combine(Ops.ADD, [_sum_of_products(values[at : at + MAX_CHAIN]) for at in starts])
    total = combine(node.arg.op, values)
    return total if ranges else _from_zero(node.arg.op, total)


def _are_products(node: UOp, values: list[UOp]) -> bool:
    """True where a reduction adds products that may be rounded together with their sum."""
    is_wide = node.dtype.scalar in (dtypes.float32, dtypes.float64)
    return node.arg.op is Ops.ADD and is_wide and all(value.op is Ops.MUL for value in values)


def _sum_of_products(products: list[UOp]) -> UOp:
    """The sum of a few products, each rounded together with the sum before it; never -0.0."""
    total = products[0].const_like(0.0)
    for product in products:
        total = UOp.make(Ops.MULADD, *product.src, total)
    return total


def combine(op: Op, values: list[UOp]) -> UOp:
    """A balanced tree over *values*, neighbours first."""
    while len(values) > 1:
        pairs = [joined(op, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def _upcast_fill(node: UOp) -> UOp:
    """Copy the STOREs that fill a buffer, which stands AFTER them."""
    if node.op is not Ops.AFTER:
        return node
    effects = (Ops.END, Ops.GROUP)
    before = (_upcast(s, ()) if s.op in effects else s for s in node.src[1:])
    return node.with_sources((node.src[0], *before))


def _upcast(effect: UOp, copied: tuple[UOp, ...]) -> UOp:
    """Copy each STORE for all values of the upcast ranges around it."""
    if effect.op is Ops.END:
        chosen = [r for r in effect.src[1:] if r.arg.kind is AxisKind.UPCAST]
        ranges = [r for r in effect.src[1:] if r.arg.kind is not AxisKind.UPCAST]
        return _upcast(effect.src[0], (*copied, *chosen)).end(*ranges)
    if effect.op is Ops.GROUP:
        parts = [_upcast(part, copied) for part in effect.src]
    elif copied:
        # the innermost axis runs fastest: rows of a tile, then vectors of a row
        parts = substitute_each(effect, _assignments(copied))
    else:
        return effect
    flat = [p for part in parts for p in (part.src if part.op is Ops.GROUP else (part,))]
    return flat[0] if len(flat) == 1 else UOp.make(Ops.GROUP, *flat)
