"""Casts: those that change nothing, and chains of which nobody can see the middle.

int32 -> int64 -> int32          ->  no cast
int8 -> int32 -> float32         ->  int8 -> float32
float32 -> int8 -> float32       stays: values are lost in the middle
int64 -> int32 -> int8           ->  int64 -> int8    (both wrap to the same bits)
"""

from __future__ import annotations

from pellucid.core.dtype import DType, Kind, can_hold
from pellucid.ir.bounds import bounds, full_range
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import P, X
from pellucid.ir.uop import UOp

_INTEGERS = (Kind.INT, Kind.UINT)
_WHOLE = (Kind.INT, Kind.UINT, Kind.INDEX, Kind.BOOL)


@rule(P(Ops.CAST, X))
def drop_same_cast(node: UOp, x: UOp) -> UOp | None:
    """A cast to the type it has changes nothing."""
    return x if node.dtype is x.dtype else None


@rule(P(Ops.BITCAST, X))
def drop_same_bitcast(node: UOp, x: UOp) -> UOp | None:
    """Bits read as the type they have change nothing."""
    return x if node.dtype is x.dtype else None


@rule(P(Ops.BITCAST, P(Ops.BITCAST, X)))
def merge_bitcasts(node: UOp, x: UOp) -> UOp | None:
    """Bits read twice are bits read once."""
    return UOp(Ops.BITCAST, node.dtype, (x,))


@rule(P(Ops.CAST, P(Ops.CAST, X, name="inner"), name="outer"))
def merge_casts(outer: UOp, inner: UOp, x: UOp) -> UOp | None:
    """Two casts are one, when every value survives the first, or both only drop high bits."""
    if not (_survives(x, inner.dtype) or _drops_bits(x.dtype, inner.dtype, outer.dtype)):
        return None
    return UOp(Ops.CAST, outer.dtype, (x,)) if outer.dtype is not x.dtype else x


def _survives(x: UOp, middle: DType) -> bool:
    """True when *middle* holds every value of *x*."""
    if can_hold(middle, x.dtype):
        return True
    if x.dtype.kind not in _WHOLE or middle.kind not in _WHOLE or middle.kind is Kind.BOOL:
        return False
    if middle.kind is Kind.INDEX:
        return True
    low, high = bounds(x)
    room = full_range(middle)
    return room.min <= low and high <= room.max


def _drops_bits(first: DType, middle: DType, last: DType) -> bool:
    """True when the last type is made of low bits that the middle one has kept."""
    whole = (*_INTEGERS, Kind.INDEX)
    if first.kind not in whole or middle.kind not in whole or last.kind not in _INTEGERS:
        return False
    return middle.kind is Kind.INDEX or last.bits <= middle.bits


@rule(P(Ops.CAST, P(Ops.WHERE, P(name="condition"), P(Ops.CONST), P(Ops.CONST), name="choice")))
def cast_chosen_literals(node: UOp, condition: UOp, choice: UOp) -> UOp | None:
    """A cast of one of two literals is one of two cast literals."""
    first, second = (s.cast(node.dtype.scalar) for s in choice.src[1:])
    return condition.where(first, second)


@rule(
    P(
        (Ops.CMPNE, Ops.CMPEQ),
        P(Ops.CAST, P(name="c", kinds=(Kind.BOOL,)), name="wide"),
        P(Ops.CONST, name="k"),
    )
)
def compare_cast_truth(node: UOp, c: UOp, wide: UOp, k: UOp) -> UOp | None:
    """A truth value as a number, compared with 0 or 1, is that truth value or its opposite."""
    if not k.is_const or wide.dtype.kind is Kind.COMPLEX or k.arg not in (0, 1):
        return None
    same = (k.arg == 1) == (node.op is Ops.CMPEQ)
    return c if same else c.logical_not()


RULES = (
    drop_same_cast,
    drop_same_bitcast,
    merge_bitcasts,
    merge_casts,
    cast_chosen_literals,
    compare_cast_truth,
)
