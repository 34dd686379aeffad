"""SIN and COS, over the whole range of floats.

    |x| = pi (h + f)        h an integer, |f| <= 1/2          sin(x) = +-sin(pi f), by the parity of h and the sign of x
    |x| = pi (h + 1/2 + f)                                    cos(x) = -+sin(pi f)

and sin(r) = r + r**3 P(r**2) for |r| <= pi/2. Taking out the multiples of pi is what costs:

float32 does it in float64, by |x| / pi. Of 1/pi only those bits matter that leave less than 2 turns, and which these are depends on
how large x is: for |x| >= 2**(s + 23) all bits of x stand for multiples of 2**s, so that multiples of 2 in 2**s / pi may be dropped. Four such
windows of 1/pi cover the range: x becomes an integer below 2**50, the factor is below 1, and two pieces of 53 bits leave an error below 2**-55.

float64 subtracts multiples of pi in three pieces of 53 bits (Cody and Waite) where |x| < 2**28, and beyond multiplies, in integers, by the
192 bits of 2/pi that matter (Payne and Hanek). Both are computed and one is selected: there are no branches among lanes.

Source: J.-M. Muller, "Elementary Functions", 3rd edition, 2016, sections 11.2 and 11.4; M. H. Payne, R. N. Hanek, "Radian reduction
for trigonometric functions", SIGNUM Newsletter 18, 1983.
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
_LOW_PIECE = 2.0**28  # float64 below this: Cody and Waite


class Reduced(NamedTuple):
    """|x| less the nearest multiple of pi (for COS: an odd multiple of pi/2), and an integer with that multiple's parity."""

    angle: UOp
    turns: UOp


@rule(Ops.SIN)
def sine(node: UOp, ctx: Target) -> UOp:
    """Sine of radians; sin(-0.0) is -0.0."""
    x = node.src[0]
    reduced = _reduce(ctx, absolute(x), is_cosine=False)
    sign = sign_bit(x) ^ _top_bit(reduced.turns)
    return with_sign(_sine_of_small(ctx, reduced.angle), sign)


@rule(Ops.COS)
def cosine(node: UOp, ctx: Target) -> UOp:
    """Cosine of radians."""
    reduced = _reduce(ctx, absolute(node.src[0]), is_cosine=True)
    sign = _top_bit(reduced.turns + literal(reduced.turns, 1))
    return with_sign(_sine_of_small(ctx, reduced.angle), sign)


def _top_bit(turns: UOp) -> UOp:
    return shift_left(turns, turns.dtype.bits - 1)


def _sine_of_small(target: Target, r: UOp) -> UOp:
    polynomial = coefficients.SIN_64 if r.dtype.bits == 64 else coefficients.SIN_32
    square = r * r
    return multiply_add(target, horner(target, square, polynomial) * square, r, r)


def _reduce(target: Target, x: UOp, is_cosine: bool) -> Reduced:
    if x.dtype.bits == 32:
        return _reduce_by_windows(target, x, is_cosine)
    far = _reduce_by_integers(x, is_cosine)
    if has_fused(target):
        near = _reduce_by_pieces(target, x, is_cosine)
        is_near = x < literal(x, _LOW_PIECE)
        far = Reduced(*(is_near.where(a, b) for a, b in zip(near, far, strict=True)))
    angle = (x < literal(x, math.inf)).where(far.angle, literal(x, math.nan))
    return Reduced(angle, far.turns)


# ---- float32 -------------------------------------------------------------------------------------


def _reduce_by_windows(target: Target, x: UOp, is_cosine: bool) -> Reduced:
    """Multiply by the window of 1/pi that the size of x asks for, in float64."""
    scale = literal(x, 1.0)
    wide_x = x.cast(dtypes.float64)
    first, second, _ = (literal(wide_x, piece) for piece in coefficients.TURNS[0][1])
    for shift, pieces in coefficients.TURNS[1:]:
        is_beyond = literal(x, 2.0 ** (shift + 23)) <= x
        scale = is_beyond.where(literal(x, 2.0**-shift), scale)
        first = is_beyond.where(literal(wide_x, pieces[0]), first)
        second = is_beyond.where(literal(wide_x, pieces[1]), second)
    y = (x * scale).cast(dtypes.float64)
    half = 0.5 if is_cosine else 0.0
    if is_cosine:
        rounded = multiply_add(target, y, first, -half) + literal(y, _ROUNDER)
    else:
        rounded = multiply_add(target, y, first, _ROUNDER)
    whole = subtract(rounded, _ROUNDER)
    if is_cosine:
        whole = whole + literal(y, half)
    rest = _product_less(target, y, first, whole)
    rest = multiply_add(target, y, second, rest)
    angle = (rest * literal(rest, math.pi)).cast(dtypes.float32)
    return Reduced(angle, to_bits(rounded).cast(dtypes.int32))


def _product_less(target: Target, y: UOp, factor: UOp, whole: UOp) -> UOp:
    """y * factor - whole, exactly; y has 24 bits."""
    if has_fused(target):
        return UOp.make(Ops.MULADD, y, factor, UOp.make(Ops.NEG, whole))
    bits = to_bits(factor)
    high = (bits & literal(bits, -(1 << 24))).bitcast(factor.dtype)  # 29 bits
    return subtract(y * high, whole) + y * subtract(factor, high)


# ---- float64 -------------------------------------------------------------------------------------


def _reduce_by_pieces(target: Target, x: UOp, is_cosine: bool) -> Reduced:
    """Subtract a multiple of pi in three pieces."""
    scaled = x * literal(x, 1 / math.pi)
    if is_cosine:
        scaled = subtract(scaled, 0.5)
    rounded = scaled + literal(x, _ROUNDER)
    count = subtract(rounded, _ROUNDER)
    if is_cosine:
        count = count + literal(x, 0.5)
    angle = x
    for piece in coefficients.PI_64:
        angle = multiply_add(target, count, -piece, angle)
    return Reduced(angle, to_bits(rounded))


def _reduce_by_integers(x: UOp, is_cosine: bool) -> Reduced:
    """Multiply the mantissa by 192 bits of 2/pi: what is above 4 quarter turns drops out by wrapping."""
    bits = to_bits(x).bitcast(dtypes.uint64)
    mantissa = (bits & literal(bits, (1 << 52) - 1)) | literal(bits, 1 << 52)
    # x = mantissa * 2**exponent; the window starts at bit exponent - 2, behind a word of zeros
    offset = subtract(shift_right(bits, 52), 1075 - 62) & literal(bits, 2047)
    words = _window(offset)
    high_1, low_1 = _wide_product(mantissa, words[1])
    high_2, _ = _wide_product(mantissa, words[2])
    low = low_1 + high_2
    carry = (low < low_1).cast(dtypes.uint64)
    high = mantissa * words[0] + high_1 + carry  # in units of 2**-63 half turns
    if is_cosine:
        high = subtract(high, 1 << 62)
    fraction = (shift_left(high, 1) | shift_right(low, 63)).bitcast(dtypes.int64)
    turns = shift_right(high, 63).bitcast(dtypes.int64)
    turns = turns + (fraction < literal(fraction, 0)).cast(dtypes.int64)
    part = shift_left(low, 1).cast(dtypes.float64) * literal(x, 2.0**-128)
    rest = fraction.cast(dtypes.float64) * literal(x, 2.0**-64) + part
    return Reduced(rest * literal(x, math.pi), turns)


def _window(offset: UOp) -> list[UOp]:
    """192 bits of 2/pi from a bit on: words are moved by the bits of offset // 64, then within words."""
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
