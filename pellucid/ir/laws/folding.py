"""Folding: an op of literals is a literal, and a value that its bounds leave no choice is one.

    CONST 3 + CONST 4         ->  CONST 7         wrapped or rounded to the node's type
    i // 4   for i in 0..3    ->  CONST 0

Only ops that are exact fold, so a folded program and a computed one give the same bits.
"""

from __future__ import annotations

from pellucid.core.dtype import DType, Kind, Scalar, bits_of, to_scalar, value_of_bits
from pellucid.ir.bounds import bounds
from pellucid.ir.law import rule
from pellucid.ir.op import Op, Ops, shift_left, shift_right
from pellucid.ir.pattern import P
from pellucid.ir.uop import UOp

FOLDABLE = tuple(
    op
    for op in Ops.all()
    if op.is_elementwise and op.exact and (op.python is not None or op in (Ops.SHL, Ops.SHR))
)
_of_one_source = tuple(op for op in FOLDABLE if len(op.sources) == 1)
_of_two_sources = tuple(op for op in FOLDABLE if len(op.sources) == 2)
_DECIDABLE = tuple(
    op for op in Ops.all() if op.is_elementwise and op is not Ops.BITCAST and op.exact
)


def fold_value(op: Op, dtype: DType, source: DType, values: tuple[Scalar, ...]) -> Scalar:
    """One lane of an exact op on Python values; *source* is the scalar type of the first source."""
    if op is Ops.SHL or op is Ops.SHR:
        shift = shift_left if op is Ops.SHL else shift_right
        return to_scalar(dtype, shift(int(values[0]), int(values[1]), dtype.bits))
    assert op.python is not None, "only ops with a meaning on numbers fold"
    return to_scalar(dtype, op.python(*values))


def fold(node: UOp) -> UOp | None:
    """The literal that an exact op of literals is; None when there is none."""
    dtype = node.dtype.scalar
    first = node.src[0].dtype.scalar
    if dtype.kind is Kind.COMPLEX or first.kind is Kind.COMPLEX:
        return None
    if all(s.is_const for s in node.src):
        value = fold_value(node.op, dtype, first, tuple(s.arg for s in node.src))
        return UOp(Ops.CONST, node.dtype, (), value)
    lanes = node.dtype.lanes
    columns = [s.arg if isinstance(s.arg, tuple) else (s.arg,) * lanes for s in node.src]
    return UOp.const(
        node.dtype,
        tuple(fold_value(node.op, dtype, first, row) for row in zip(*columns, strict=True)),
    )


@rule(P(_of_one_source, P(Ops.CONST)))
def fold_one_literal(node: UOp) -> UOp | None:
    """An exact op of a literal is a literal."""
    return fold(node)


@rule(P(_of_two_sources, P(Ops.CONST), P(Ops.CONST)))
def fold_two_literals(node: UOp) -> UOp | None:
    """An exact op of two literals is a literal."""
    return fold(node)


@rule(P(Ops.WHERE, P(Ops.CONST), P(Ops.CONST), P(Ops.CONST)))
def fold_selection(node: UOp) -> UOp | None:
    """A selection among literals is a literal."""
    return fold(node)


@rule(Ops.BITCAST)
def fold_bitcast(node: UOp) -> UOp | None:
    """The bits of a literal, read as another type, are a literal."""
    source = node.src[0]
    if not source.is_const or node.dtype.kind is Kind.COMPLEX or source.dtype.kind is Kind.COMPLEX:
        return None
    bits = bits_of(source.dtype.scalar, source.arg)
    return UOp(Ops.CONST, node.dtype, (), value_of_bits(node.dtype.scalar, bits))


@rule(P(_DECIDABLE, kinds=(Kind.INT, Kind.UINT, Kind.INDEX, Kind.BOOL)))
def decide_by_bounds(node: UOp) -> UOp | None:
    """A value whose bounds are one number is that number."""
    low, high = bounds(node)
    if low != high:
        return None
    return UOp.const(node.dtype, low)


@rule(Ops.LANE)
def fold_lane(node: UOp) -> UOp | None:
    """Lanes of a literal are a literal."""
    source = node.src[0]
    if source.op is not Ops.CONST:
        return None
    if source.is_const:
        return UOp(Ops.CONST, node.dtype, (), source.arg)
    if isinstance(node.arg, tuple):
        return UOp.const(node.dtype, tuple(source.arg[lane] for lane in node.arg))
    return UOp.const(node.dtype, source.arg[node.arg])


@rule(Ops.SPLAT)
def fold_splat(node: UOp) -> UOp | None:
    """A literal in all lanes is a literal."""
    source = node.src[0]
    return UOp(Ops.CONST, node.dtype, (), source.arg) if source.is_const else None


RULES = (
    fold_one_literal,
    fold_two_literals,
    fold_selection,
    fold_bitcast,
    decide_by_bounds,
    fold_lane,
    fold_splat,
)
