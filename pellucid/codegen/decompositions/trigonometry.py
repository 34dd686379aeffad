"""SIN and COS, over the whole range of floats.

    |x| = pi/2 (q + f)       q an integer, |f| <= 1/2

The last two bits of q tell which of sine and cosine of the small angle r = pi/2 f it is, and with
which sign; COS is SIN with q + 1.

    sin(r) = r + r**3 P(r**2)        cos(r) = 1 - r**2 / 2 + r**4 Q(r**2)

Taking out the multiples of pi/2 is what costs.

float32 does it in float64. |x| / (2 pi) is a number of turns, of which whole ones do not matter:
of 1/(2 pi), only those bits count that leave no whole turns, and which these are depends on how
large x is. For |x| >= 2**(s + 23) all bits of x stand for multiples of 2**s, so whole numbers may
be dropped from 2**s / (2 pi). Four such windows cover the range: x becomes an integer below
2**50, the factor is below 1/2, and two pieces of 53 bits leave an error below 2**-55.

float64 subtracts multiples of pi/2 in three pieces of 53 bits (Cody and Waite) where |x| < 2**28,
and beyond multiplies, in integers, by the 192 bits of 2/pi that matter (Payne and Hanek). Both
are computed and one is selected: there are no branches among lanes.

Source: J.-M. Muller, "Elementary Functions", 3rd edition, 2016, sections 11.2 and 11.4; M. H.
Payne, R. N. Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pellucid.codegen.decompositions import coefficients
from pellucid.codegen.decompositions.building import (
    absolute,
    has_fused,
    horner,
    literal,
    multiply_add,
    shift_left,
    shift_right,
    sign_bit,
    sign_mask,
    subtract,
    to_bits,
    with_sign,
)
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_ROUNDER = 1.5 * 2.0**52  # adding it leaves integers, in the low bits of the sum
_NEAR = 2.0**28  # float64 below this: Cody and Waite
_NEAR_UNFUSED = 2.0**20  # where products must be exact: by pieces of 33 bits


class Reduced(NamedTuple):
    """|x| less the nearest multiple of pi/2, and an integer that ends as that multiple does."""

    angle: UOp
    quadrant: UOp


@rule(Ops.SIN)
def sine(node: UOp, ctx: Target) -> UOp:
    """Sine of radians; sin(-0.0) is -0.0."""
    x = node.src[0]
    angle, quadrant = _reduce(ctx, absolute(x))
    return _at_quadrant(ctx, angle, quadrant, sign_bit(x))


@rule(Ops.COS)
def cosine(node: UOp, ctx: Target) -> UOp:
    """Cosine of radians."""
    angle, quadrant = _reduce(ctx, absolute(node.src[0]))
    return _at_quadrant(ctx, angle, quadrant + literal(quadrant, 1), literal(quadrant, 0))


def _at_quadrant(target: Target, r: UOp, quadrant: UOp, sign: UOp) -> UOp:
    """The sine of r + pi/2 * quadrant, its sign flipped where *sign* has the sign bit."""
    wide = r.dtype.bits == 64
    square = r * r
    sines = coefficients.SIN_64 if wide else coefficients.SIN_32
    sine = multiply_add(target, horner(target, square, sines) * square, r, r)
    cosines = coefficients.COS_64 if wide else coefficients.COS_32
    tail = multiply_add(target, horner(target, square, cosines), square, -0.5)
    cosine = multiply_add(target, tail, square, 1.0)
    is_cosine = (quadrant & literal(quadrant, 1)).ne(literal(quadrant, 0))
    flipped = shift_left(quadrant, quadrant.dtype.bits - 2) & literal(sign, sign_mask(r.dtype))
    return with_sign(is_cosine.where(cosine, sine), flipped ^ sign)


def _reduce(target: Target, x: UOp) -> Reduced:
    if x.dtype.bits == 32:
        return _reduce_by_windows(target, x)
    near, far = _reduce_by_pieces(target, x), _reduce_by_integers(x)
    is_near = x < literal(x, _NEAR if has_fused(target) else _NEAR_UNFUSED)
    angle, quadrant = (is_near.where(a, b) for a, b in zip(near, far, strict=True))
    return Reduced((x < literal(x, math.inf)).where(angle, literal(x, math.nan)), quadrant)


# ---- float32 -------------------------------------------------------------------------------------


def _reduce_by_windows(target: Target, x: UOp) -> Reduced:
    """Multiply by the window of 1/(2 pi) that the size of x asks for, in float64."""
    scale = literal(x, 1.0)
    double = dtypes.float64.vec(x.dtype.lanes)
    first, second = (UOp.const(double, piece) for piece in coefficients.TURNS[0][1])
    for shift, pieces in coefficients.TURNS[1:]:
        is_beyond = literal(x, 2.0 ** (shift + 23)) <= x
        scale = is_beyond.where(literal(x, 2.0**-shift), scale)
        first = is_beyond.where(UOp.const(double, pieces[0]), first)
        second = is_beyond.where(UOp.const(double, pieces[1]), second)
    y = (x * scale).cast(dtypes.float64)
    whole = subtract(multiply_add(target, y, first, _ROUNDER), _ROUNDER)
    turns = multiply_add(target, y, second, _product_less(target, y, first, whole))
    rounded = multiply_add(target, turns, 4.0, _ROUNDER)
    fraction = multiply_add(target, turns, 4.0, UOp.make(Ops.NEG, subtract(rounded, _ROUNDER)))
    angle = (fraction * literal(fraction, math.pi / 2)).cast(dtypes.float32)
    return Reduced(angle, to_bits(rounded).cast(dtypes.int32))


def _product_less(target: Target, y: UOp, factor: UOp, whole: UOp) -> UOp:
    """y * factor - whole, exactly; y has 24 bits."""
    if has_fused(target):
        return UOp.make(Ops.MULADD, y, factor, UOp.make(Ops.NEG, whole))
    bits = to_bits(factor)
    high = (bits & literal(bits, -(1 << 24))).bitcast(factor.dtype)  # 29 bits
    return subtract(y * high, whole) + y * subtract(factor, high)


# ---- float64 -------------------------------------------------------------------------------------


def _reduce_by_pieces(target: Target, x: UOp) -> Reduced:
    """Subtract a multiple of pi/2 piece by piece; each product is exact."""
    fused = has_fused(target)
    pieces = coefficients.HALF_PI_64 if fused else coefficients.HALF_PI_SHORT_64
    rounded = multiply_add(target, x, 2 / math.pi, _ROUNDER)
    count = subtract(rounded, _ROUNDER)
    angle = x
    for piece in pieces:
        angle = multiply_add(target, count, -piece, angle)
    return Reduced(angle, to_bits(rounded))


def _reduce_by_integers(x: UOp) -> Reduced:
    """Multiply the mantissa by 192 bits of 2/pi: whole turns drop out by wrapping."""
    bits = to_bits(x).bitcast(dtypes.uint64)
    mantissa = (bits & literal(bits, (1 << 52) - 1)) | literal(bits, 1 << 52)
    # x = mantissa * 2**exponent; the window starts at bit exponent - 2, behind a word of zeros
    offset = subtract(shift_right(bits, 52), 1075 - 62) & literal(bits, 2047)
    words = _window(offset)
    high_1, low_1 = _wide_product(mantissa, words[1])
    high_2, _ = _wide_product(mantissa, words[2])
    low = low_1 + high_2
    carry = (low < low_1).cast(dtypes.uint64)
    high = mantissa * words[0] + high_1 + carry  # quarter turns times 2**62
    fraction = (shift_left(high, 2) | shift_right(low, 62)).bitcast(dtypes.int64)
    rounds_up = (fraction < literal(fraction, 0)).cast(dtypes.int64)
    quadrant = shift_right(high, 62).bitcast(dtypes.int64) + rounds_up
    part = shift_left(low, 2).cast(dtypes.float64) * literal(x, 2.0**-128)
    rest = fraction.cast(dtypes.float64) * literal(x, 2.0**-64) + part
    return Reduced(rest * literal(x, math.pi / 2), quadrant)


def _window(offset: UOp) -> list[UOp]:
    """192 bits of 2/pi from a bit on: whole words are moved first, then bits."""
    words = [literal(offset, word) for word in (0, *coefficients.TWO_OVER_PI_WORDS)]
    for bit in (4, 3, 2, 1, 0):
        is_set = (offset & literal(offset, 64 << bit)).ne(literal(offset, 0))
        needed = 4 + (1 << bit) - 1
        step = 1 << bit
        reach = min(needed, len(words))
        words = [
            is_set.where(words[k + step], words[k]) if k + step < len(words) else words[k]
            for k in range(reach)
        ]
    count = offset & literal(offset, 63)
    back = subtract(literal(offset, 63), count)
    return [
        UOp.make(Ops.ISHL, words[k], count) | UOp.make(Ops.ISHR, shift_right(words[k + 1], 1), back)
        for k in range(3)
    ]


def _wide_product(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """High and low half of a product of two uint64, from products of 32 bits."""
    mask = literal(a, 0xFFFFFFFF)
    a_high, a_low = shift_right(a, 32), a & mask
    b_high, b_low = shift_right(b, 32), b & mask
    low_high, high_low = a_low * b_high, a_high * b_low
    middle = shift_right(a_low * b_low, 32) + (low_high & mask) + (high_low & mask)
    high = a_high * b_high + shift_right(low_high, 32) + shift_right(high_low, 32)
    return high + shift_right(middle, 32), a * b


RULES = [sine, cosine]
