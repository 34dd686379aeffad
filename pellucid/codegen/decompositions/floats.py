"""MAX and MIN of floats, casts of floats to integers, quotients by powers of 2.

    max(x, 0.0)   x <= 0.0 ? 0.0 : x            NaN fails every comparison, so it is kept
    max(x, y)     a = (y < x ? x : y), b = (x < y ? y : x); sign bit of a & b, others of a | b
    min(x, y)     a = (x < y ? x : y), b = (y < x ? y : x); a | b, as bits
    int(x)        convert what is clamped to the range; NaN gives 0
    x / 8.0       x * 0.125

Of x and y that differ, both selections give the larger one; of equal ones they give y and x,
which have the same bits unless they are zeros of both signs: the sign is that of the positive one
for max, of the negative one for min. Where one of them is NaN, a and b are x and y, and the bits of
a NaN with more bits set are those of a NaN. On x86 each selection is one instruction, whose rule
for NaN and zeros is the same, and three inputs join in one more.
"""

from __future__ import annotations

import math

from pellucid.codegen.decompositions.building import literal
from pellucid.core.dtype import DType, dtypes, round_to
from pellucid.core.target import Target
from pellucid.ir.law import rule
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


@rule(Ops.MAX, Ops.MIN)
def extreme(node: UOp) -> UOp | None:
    """MAX and MIN of floats: NaN wins, 0.0 is above -0.0."""
    if not node.dtype.is_float:
        return None
    x, y = node.src
    if x.is_const:
        x, y = y, x
    if y.is_const:
        return _extreme_with_literal(node.op, x, y)
    unsigned = _UNSIGNED[x.dtype.bits].vec(x.dtype.lanes)
    if node.op is Ops.MAX:
        first, second = (y < x).where(x, y), (x < y).where(y, x)
    else:
        first, second = (x < y).where(x, y), (y < x).where(y, x)
    a, b = first.bitcast(unsigned), second.bitcast(unsigned)
    joined = UOp.make(Ops.OR, a, b)
    if node.op is Ops.MAX:
        all_but_sign = literal(a, (1 << (x.dtype.bits - 1)) - 1)
        both = UOp.make(Ops.AND, a, b)
        joined = UOp.make(Ops.OR, both, UOp.make(Ops.AND, joined, all_but_sign))
    return joined.bitcast(x.dtype)


def _extreme_with_literal(op: Op, x: UOp, y: UOp) -> UOp:
    value = float(y.arg)
    if value != value:
        return y
    is_positive_zero = value == 0 and math.copysign(1.0, value) > 0
    is_negative_zero = value == 0 and not is_positive_zero
    if op is Ops.MAX:  # a negative zero has to become the literal, if that is a positive one
        taken = x <= y if is_positive_zero else x < y
    else:
        taken = y <= x if is_negative_zero else y < x
    return taken.where(y, x)


@rule(Ops.CAST)
def saturating_cast(node: UOp, ctx: Target) -> UOp | None:
    """Floats to integers: towards zero, saturating, NaN as 0."""
    x, to = node.src[0], node.dtype.scalar
    if not x.dtype.is_float or not to.is_int:
        return None
    if x.dtype.bits < 32:
        return x.cast(dtypes.float32).cast(to)
    low, high = int(to.min), int(to.max)
    top = _largest_below(x.dtype.scalar, high)
    clamped = (literal(x, low) < x).where(x, literal(x, low))  # NaN becomes the lowest
    clamped = (clamped < literal(x, top)).where(clamped, literal(x, top))
    result = UOp(Ops.FTOI, node.dtype, (clamped,))
    if top < high:  # values between the largest float that fits and the next one, 2**bits
        result = (literal(x, float(high + 1)) <= x).where(literal(result, high), result)
    return result if low == 0 else x.eq(x).where(result, literal(result, 0))


@rule(Ops.FDIV)
def scaled(node: UOp) -> UOp | None:
    """x / 2**n is x times a power of 2, where that is normal: both round the same value."""
    x, y = node.src
    if not y.is_const or not math.isfinite(y.arg) or y.arg == 0:
        return None
    mantissa, exponent = math.frexp(y.arg)
    if abs(mantissa) != 0.5 or abs(exponent) > -x.dtype.smallest_exponent:
        return None
    return x * literal(y, 1.0 / float(y.arg))


def _largest_below(dtype: DType, value: int) -> float:
    """The largest float that is not above an integer of the form 2**n - 1."""
    nearest = round_to(dtype, float(value))
    bits = value.bit_length()
    return (
        nearest
        if nearest <= value
        else float((1 << bits) - (1 << (bits - dtype.mantissa_bits - 1)))
    )


RULES = [extreme, saturating_cast, scaled]
