"""Small pieces that the decompositions share.

They build native ops directly: a fused multiply-add where the target has one, differences, shifts
by literals, floats taken apart as integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.core.dtype import DType, Scalar, dtypes
from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def literal(like: UOp, value: Scalar) -> UOp:
    """A CONST of the type of *like*."""
    return UOp.const(like.dtype, value)


def subtract(left: UOp, right: UOp | Scalar) -> UOp:
    """left - right, as one op."""
    return UOp.make(Ops.SUB, left, right if isinstance(right, UOp) else literal(left, right))


def multiply_add(target: Target, a: UOp, b: UOp | Scalar, c: UOp | Scalar) -> UOp:
    """a * b + c, rounded once where the target can."""
    b = b if isinstance(b, UOp) else literal(a, b)
    c = c if isinstance(c, UOp) else literal(a, c)
    return UOp.make(Ops.MULADD, a, b, c) if has_fused(target) else a * b + c


def has_fused(target: Target) -> bool:
    """True when MULADD is native."""
    return Ops.MULADD.name in target.native_ops


def horner(target: Target, x: UOp, coefficients: Sequence[float]) -> UOp:
    """The value of a polynomial, coefficients from power 0 up."""
    total = literal(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = multiply_add(target, total, x, coefficient)
    return total


def integer_like(dtype: DType) -> DType:
    """The signed integer as wide as a float.

    >>> integer_like(dtypes.float64.vec(2))
    dtypes.int64.vec(2)
    """
    return (dtypes.int64 if dtype.bits == 64 else dtypes.int32).vec(dtype.lanes)


def to_bits(x: UOp) -> UOp:
    """The bits of a float, as a signed integer."""
    return x.bitcast(integer_like(x.dtype))


def from_bits(bits: UOp, like: UOp) -> UOp:
    """The float with these bits."""
    return bits.bitcast(like.dtype)


def shift_left(x: UOp, count: int) -> UOp:
    """x << count, for a count within the width."""
    return UOp.make(Ops.ISHL, x, literal(x, count))


def shift_right(x: UOp, count: int) -> UOp:
    """x >> count, for a count within the width."""
    return UOp.make(Ops.ISHR, x, literal(x, count))


def sign_mask(dtype: DType) -> int:
    """The integer of a float's width with the sign bit alone."""
    return -(1 << (dtype.bits - 1))


def absolute(x: UOp) -> UOp:
    """|x|, also of NaN and -0.0."""
    bits = to_bits(x)
    return from_bits(bits & literal(bits, ~sign_mask(x.dtype)), x)


def sign_bit(x: UOp) -> UOp:
    """The bits of x with all but the sign bit cleared."""
    bits = to_bits(x)
    return bits & literal(bits, sign_mask(x.dtype))


def with_sign(magnitude: UOp, sign: UOp) -> UOp:
    """The float *magnitude*, its sign flipped where *sign* (as from `sign_bit`) has it set."""
    return from_bits(to_bits(magnitude) ^ sign, magnitude)


def at_most(x: UOp, limit: float) -> UOp:
    """The smaller of x and a literal that is no zero; NaN stays."""
    bound = literal(x, limit)
    return (bound < x).where(bound, x)


def at_least(x: UOp, limit: float) -> UOp:
    """The larger of x and a literal that is no zero; NaN stays."""
    bound = literal(x, limit)
    return (x < bound).where(bound, x)
