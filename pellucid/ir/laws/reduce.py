"""Reductions over ranges (LOOP form) whose value does not change along a range.

    REDUCE(x, i, MAX)          ->  x               x does not depend on i
    REDUCE(x, i, ADD)          ->  x * 12          integers only: floats would round differently
    REDUCE(x * y, i, ADD)      ->  REDUCE(x, i) * y     integers, y does not depend on i

An empty range would give the identity of the op: a maximum is kept only where the range is not
empty.
"""

from __future__ import annotations

from pellucid.core.dtype import Kind
from pellucid.ir.bounds import bounds
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import P, X, Y
from pellucid.ir.uop import UOp

_INTEGERS = (Kind.INT, Kind.UINT, Kind.INDEX)


@rule(P(Ops.REDUCE, X, ...))
def reduce_unchanging(node: UOp, x: UOp) -> UOp | None:
    """A value that a range does not change is kept by a maximum and counted by a sum."""
    if len(node.src) == 1 or node.arg.axes:
        return None
    op, ranges = node.arg.op, x.ranges
    idle = [r for r in node.src[1:] if r not in ranges]
    if not idle:
        return None
    if op.idempotent:
        idle = [r for r in idle if bounds(r.src[0]).min > 0]
        value = x
    elif op is Ops.ADD and x.dtype.kind in _INTEGERS:
        value = x
        for r in idle:
            value = value * _count(r, x)
    else:
        return None
    if not idle:
        return None
    rest = tuple(r for r in node.src[1:] if r not in idle)
    return node.with_sources((value, *rest)) if rest else value


def _count(one_range: UOp, like: UOp) -> UOp:
    size = one_range.src[0]
    if size.is_const:
        return like.const_like(max(size.arg, 0))
    return size.maximum(0).cast(like.dtype.scalar).splat(like.dtype.lanes)


@rule(P(Ops.REDUCE, P(Ops.MUL, X, Y), ...))
def factor_out(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """A factor that the ranges do not change leaves an integer sum."""
    if node.arg.op is not Ops.ADD or node.dtype.kind not in _INTEGERS or len(node.src) == 1:
        return None
    ranges = node.src[1:]
    if any(r in y.ranges for r in ranges) or not any(r in x.ranges for r in ranges):
        return None
    return node.with_sources((x, *ranges)) * y


RULES = (reduce_unchanging, factor_out)
