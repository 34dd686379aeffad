"""EXP, EXP2 and TANH.

    exp(x) = 2**n * e**r        n = round(x / ln 2),  r = x - n ln 2,  |r| <= ln(2) / 2

Rounding to an integer adds a number so large that only integers are left: the low bits of that
sum are n, in two's complement, and subtracting gives n as a float. The large number is chosen so
that these bits are n plus twice the exponent's bias, of which one half and the other half become
the exponents of two factors: each is a normal number, and their product with the polynomial
overflows, underflows and rounds to denormals as it should, once. The first factor times 1 + p is
p * factor + factor, fused where that can be: a power of 2 changes no rounding.

    tanh(x) = x + x**3 P(x**2)               |x| < 3/4
            = 1 - 2 / (exp(2 |x|) + 1)       beyond, with the sign of x

Source: J.-M. Muller, "Elementary Functions", 3rd edition, 2016, sections 11.2 (Cody and Waite's
reduction) and 10.4; the polynomials are ours (coefficients.py).
"""

from __future__ import annotations

import math

from pellucid.codegen.decompositions import coefficients
from pellucid.codegen.decompositions.building import (
    absolute,
    at_least,
    at_most,
    from_bits,
    horner,
    literal,
    multiply_add,
    shift_left,
    shift_right,
    sign_bit,
    subtract,
    to_bits,
    with_sign,
)
from pellucid.core.dtype import DType
from pellucid.core.target import Target
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_TANH_SPLIT = 0.75


def _is_wide(dtype: DType) -> bool:
    return dtype.bits == 64


def _limits(dtype: DType) -> tuple[float, float]:
    """Powers of 2 from which on all results are 0, and infinite."""
    lowest = dtype.smallest_exponent - dtype.mantissa_bits
    return float(lowest - 2), float(2 - dtype.smallest_exponent + 1)


def _rounder(dtype: DType) -> float:
    """1.5 * 2**(mantissa bits), plus twice the bias of exponents."""
    bias = 1 - dtype.smallest_exponent
    return 1.5 * 2.0**dtype.mantissa_bits + 2 * bias


def scale(value: UOp, power: UOp) -> UOp:
    """value * 2**n, where the bits of *power* end in n plus twice the bias of exponents."""
    first, second = _factors(value, power)
    return value * first * second


def _factors(value: UOp, power: UOp) -> tuple[UOp, UOp]:
    """Two normal powers of 2 whose product is 2**n."""
    mantissa_bits = value.dtype.mantissa_bits
    bits = to_bits(power)
    half = shift_right(bits, 1)
    first = from_bits(shift_left(half, mantissa_bits), value)
    second = from_bits(shift_left(subtract(bits, half), mantissa_bits), value)
    return first, second


@rule(Ops.EXP)
def exponential(node: UOp, ctx: Target) -> UOp:
    """e to the x."""
    x = node.src[0]
    dtype = x.dtype
    low, high = _limits(dtype)
    wide = _is_wide(dtype)
    log2_e = (coefficients.LOG2_E_64 if wide else coefficients.LOG2_E_32)[0]
    ln2 = coefficients.LN2_64 if wide else coefficients.LN2_32
    polynomial = coefficients.EXP_64 if wide else coefficients.EXP_32
    x = at_most(at_least(x, low * math.log(2)), high * math.log(2))
    power = multiply_add(ctx, x, log2_e, _rounder(dtype))
    n = subtract(power, _rounder(dtype))
    r = multiply_add(ctx, n, -ln2[0], x)
    r = multiply_add(ctx, n, -ln2[1], r)
    tail = horner(ctx, r, polynomial) * (r * r)
    rest = tail + r  # what exp(r) is beyond 1
    first, second = _factors(rest, power)
    return multiply_add(ctx, rest, first, first) * second


@rule(Ops.EXP2)
def power_of_two(node: UOp, ctx: Target) -> UOp:
    """2 to the x: the same, and r = x - n is exact."""
    x = node.src[0]
    dtype = x.dtype
    low, high = _limits(dtype)
    polynomial = coefficients.EXP2_64 if _is_wide(dtype) else coefficients.EXP2_32
    x = at_most(at_least(x, low), high)
    power = x + literal(x, _rounder(dtype))
    r = subtract(x, subtract(power, _rounder(dtype)))
    return scale(multiply_add(ctx, horner(ctx, r, polynomial), r, 1.0), power)


@rule(Ops.TANH)
def hyperbolic_tangent(node: UOp, ctx: Target) -> UOp:
    """Hyperbolic tangent."""
    x = node.src[0]
    polynomial = coefficients.TANH_64 if _is_wide(x.dtype) else coefficients.TANH_32
    size = absolute(x)
    square = size * size
    near = multiply_add(ctx, horner(ctx, square, polynomial) * square, size, size)
    one = literal(x, 1.0)
    far = subtract(one, literal(x, 2.0) / (UOp.make(Ops.EXP, size + size) + one))
    magnitude = (size < literal(x, _TANH_SPLIT)).where(near, far)
    return with_sign(magnitude, sign_bit(x))


RULES = [exponential, power_of_two, hyperbolic_tangent]
