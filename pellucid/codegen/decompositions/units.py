"""A matrix unit that the target lacks, with plain ops.

    MMA(left, right, addend)    row by row:  addend + left[i, 0] * right[0, :] + left[i, 1] * …

    of pmaddwd_256, 1 x 8 x 2:
        t = addend + SPLAT(int32(LANE(left, 0))) * int32(LANE(right, (0, 2, …, 14)))
        t + SPLAT(int32(LANE(left, 1))) * int32(LANE(right, (1, 3, …, 15)))

Floats are added by MULADD where the target has it, as the interpreter does; without, the product
of two bfloat16 is exact but for underflow, so the sum is the same.
"""

from __future__ import annotations

from pellucid.codegen.decompositions.building import has_fused
from pellucid.core.target import Target, may_use
from pellucid.core.units import MATRIX_UNITS, MatrixUnit
from pellucid.ir.arg import AddrSpace
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


@rule(Ops.MMA)
def one_product_at_a_time(node: UOp, ctx: Target) -> UOp | None:
    """A product of matrices, where the target has no such unit or this process may not use it."""
    unit = MATRIX_UNITS[node.arg]
    if unit.name in ctx.matrix_units and may_use(unit):
        return None
    left, right, addend = node.src
    columns = [_column_values(unit, right, k) for k in range(unit.depth)]
    sums = []
    for i in range(unit.rows):
        first = i * unit.columns
        total = _part(addend, first, unit.columns)
        for k, values in enumerate(columns):
            factor = _part(left, unit.left_lane(i, k), 1).cast(unit.sum).splat(unit.columns)
            total = _sum(ctx, factor, values, total)
        sums.append(total)
    return sums[0] if len(sums) == 1 else UOp(Ops.STACK, node.dtype, tuple(sums))


def _column_values(unit: MatrixUnit, right: UOp, k: int) -> UOp:
    """right[k, :] in the type of the sum."""
    size = unit.columns * unit.group
    rows = _part(right, k // unit.group * size, size)
    return rows.lane(tuple(range(k % unit.group, size, unit.group))).cast(unit.sum)


def _part(vector: UOp, first: int, count: int) -> UOp:
    """Some lanes that follow each other; those of a plain load are loaded by themselves."""
    if vector.dtype.lanes == count:
        return vector
    if vector.op is Ops.LOAD and len(vector.src) == 1 and not _is_register(vector):
        storage, place = vector.src[0].src
        at = (storage, place + place.const_like(first))
        return UOp(Ops.INDEX, vector.dtype.scalar.vec(count), at).load()
    return vector.lane(first if count == 1 else tuple(range(first, first + count)))


def _is_register(load: UOp) -> bool:
    """True for the value of an accumulator."""
    storage = load.src[0]
    while storage.op in (Ops.INDEX, Ops.AFTER):
        storage = storage.src[0]
    return storage.op is Ops.DEFINE and storage.arg.space is AddrSpace.REG


def _sum(target: Target, factor: UOp, values: UOp, total: UOp) -> UOp:
    if total.dtype.is_float and has_fused(target):
        return UOp.make(Ops.MULADD, factor, values, total)
    return total + factor * values


RULES = (one_product_at_a_time,)
