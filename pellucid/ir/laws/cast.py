"""Casts: those that change nothing, and chains of which nobody can see the middle.

    int32 -> int64 -> int32          ->  no cast
    int8 -> int32 -> float32         ->  int8 -> float32
    float32 -> int8 -> float32       stays: values are lost in the middle
    int64 -> int32 -> int8           ->  int64 -> int8    (both wrap to the same bits)
    CAST(i) * 2 + 1 < 7              ->  i < 3           i an index, nothing can wrap

What a cast does to values that do not fit is said in core/dtype.py, `to_scalar`.
"""

from __future__ import annotations

from pellucid.core.dtype import DType, Kind, can_hold, dtypes
from pellucid.ir.bounds import bounds, full_range
from pellucid.ir.law import rule
from pellucid.ir.op import COMPARISONS, Ops
from pellucid.ir.pattern import P, X, Y
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


_CLOSED = (Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAX, Ops.MIN, *COMPARISONS)


@rule(P(_CLOSED, P(Ops.CAST), Y))
def cast_index_last(node: UOp) -> UOp | None:
    """Integers made of indices are computed as indices where nothing wraps, and cast at the end."""
    return _computed_as_index(node)


@rule(P(_CLOSED, P(Ops.CONST), P(Ops.CAST)))
def cast_index_last_after_literal(node: UOp) -> UOp | None:
    """The same, where a literal comes first."""
    return _computed_as_index(node)


def _computed_as_index(node: UOp) -> UOp | None:
    sources = [_as_index(s) for s in node.src]
    if sources[0] is None or sources[1] is None:
        return None
    found = UOp.make(node.op, sources[0], sources[1])
    if node.dtype.kind is Kind.BOOL:
        return found
    low, high = bounds(found)
    room = full_range(node.dtype)
    return found.cast(node.dtype.scalar) if room.min <= low and high <= room.max else None


def _as_index(node: UOp) -> UOp | None:
    """The index that *node* is a cast of without loss, or the same literal as an index."""
    if node.dtype.kind not in _INTEGERS:
        return None
    if node.op is Ops.CONST:
        return UOp.const(dtypes.index.vec(node.dtype.lanes), node.arg)
    if node.op is not Ops.CAST or node.src[0].dtype.kind is not Kind.INDEX:
        return None
    return node.src[0] if _survives(node.src[0], node.dtype) else None


RULES = (
    drop_same_cast,
    drop_same_bitcast,
    merge_bitcasts,
    merge_casts,
    cast_chosen_literals,
    compare_cast_truth,
    cast_index_last,
    cast_index_last_after_literal,
)
