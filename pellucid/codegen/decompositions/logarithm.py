"""LOG and LOG2.

    x = 2**e * m,   sqrt(1/2) <= m < sqrt(2),   log(x) = e ln 2 + log(m)

e comes out of the bits: subtracting those of sqrt(1/2) makes the exponent field e, with the
borrow right for both halves of the interval. With f = m - 1, in float32

    log(1 + f) = f - f**2 / 2 + f**3 P(f)

and in float64, s = f / (2 + f):

    log(1 + f) = f - (f**2 / 2 - s (f**2 / 2 + R(s**2)))

The parts are added from the smallest to the largest. Denormals are scaled up first.

Source: J.-M. Muller, "Elementary Functions", 3rd edition, 2016, section 11.4; the form for
float64 is P. T. P. Tang's, "Table-driven implementation of the logarithm function", 1990, section
3; polynomials are ours (coefficients.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pellucid.codegen.decompositions import coefficients
from pellucid.codegen.decompositions.building import (
    from_bits,
    horner,
    literal,
    multiply_add,
    shift_left,
    shift_right,
    subtract,
    to_bits,
)
from pellucid.core.dtype import DType, bits_of
from pellucid.core.target import Target
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


class Parts(NamedTuple):
    """x = 2**exponent * (1 + fraction)."""

    exponent: UOp
    fraction: UOp


def take_apart(x: UOp) -> Parts:
    """Exponent and mantissa of a positive finite float, denormals included."""
    dtype = x.dtype.scalar
    bits_up = dtype.mantissa_bits + 2
    is_tiny = x < literal(x, 2.0**dtype.smallest_exponent)
    scaled = is_tiny.where(x * literal(x, 2.0**bits_up), x)
    bits = to_bits(scaled)
    lowest = bits_of(dtype, math.sqrt(0.5))
    exponent = shift_right(subtract(bits, literal(bits, lowest)), dtype.mantissa_bits)
    mantissa = from_bits(subtract(bits, shift_left(exponent, dtype.mantissa_bits)), x)
    correction = is_tiny.where(literal(x, -float(bits_up)), literal(x, 0.0))
    return Parts(exponent.cast(dtype) + correction, subtract(mantissa, 1.0))


def with_special_values(x: UOp, result: UOp) -> UOp:
    """Logarithms of 0, of infinity, of NaN and of negative numbers."""
    result = (x < literal(x, math.inf)).where(result, x)  # infinity and NaN are their own
    at_zero = x.eq(literal(x, 0.0)).where(literal(x, -math.inf), literal(x, math.nan))
    return (literal(x, 0.0) < x).where(result, at_zero)


def _is_wide(dtype: DType) -> bool:
    return dtype.bits == 64


@rule(Ops.LOG)
def natural_logarithm(node: UOp, ctx: Target) -> UOp:
    """Natural logarithm."""
    x = node.src[0]
    e, f = take_apart(x)
    ln2 = coefficients.LN2_64 if _is_wide(x.dtype) else coefficients.LN2_32
    half_square = literal(f, 0.5) * f * f
    if _is_wide(x.dtype):
        small = _wide_tail(ctx, f, half_square)
    else:
        small = horner(ctx, f, coefficients.LOG_32) * (f * f * f)
    small = subtract(multiply_add(ctx, e, ln2[1], small), half_square)
    return with_special_values(x, multiply_add(ctx, e, ln2[0], f + small))


def _wide_tail(target: Target, f: UOp, half_square: UOp) -> UOp:
    """s (f**2 / 2 + R): what is missing after f - f**2 / 2."""
    s = f / (f + literal(f, 2.0))
    square = s * s
    series = horner(target, square, coefficients.ATANH_64) * square
    return s * (half_square + series)


@rule(Ops.LOG2)
def binary_logarithm(node: UOp, ctx: Target) -> UOp:
    """Logarithm to base 2; exact for powers of 2."""
    x = node.src[0]
    e, f = take_apart(x)
    if _is_wide(x.dtype):
        half_square = literal(f, 0.5) * f * f
        small = subtract(_wide_tail(ctx, f, half_square), half_square)
        high, low = coefficients.LOG2_E_64
        # f + small is the natural logarithm; its two parts are multiplied apart
        rest = multiply_add(ctx, small, high, f * literal(f, low))
        result = e + multiply_add(ctx, f, high, rest)
    else:
        high, low = coefficients.LOG2_E_32
        rest = horner(ctx, f, coefficients.LOG2_32) * (f * f)
        rest = multiply_add(ctx, f, low, rest)
        result = e + multiply_add(ctx, f, high, rest)
    return with_special_values(x, result)


RULES = [natural_logarithm, binary_logarithm]
