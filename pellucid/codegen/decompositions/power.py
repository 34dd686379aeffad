"""POW: x to the y, as 2**(y log2 |x|).

The product has to be known to the last bits of its fraction although it may be as large as 1074.
float32 is computed in float64, which is enough. float64 carries logarithm and product as sums of
two floats (double-double): the error of a product is a float, found by a fused multiply-add.

    log(m) = 2 s + 2/3 s**3 + s**5 Q(s**2)      s = (m - 1) / (m + 1)

The special cases are those of IEEE 754-2019, 9.2.1: pow(x, 0) and pow(1, y) are 1 also for NaN, a
negative x has a power only for integral y, whose parity gives the sign.

Source: T. J. Dekker, "A floating-point technique for extending the available precision", 1971;
J.-M. Muller and others, "Handbook of Floating-Point Arithmetic", 2nd edition, 2018, chapters 4
and 14; polynomials are ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pellucid.codegen.decompositions import coefficients
from pellucid.codegen.decompositions.building import (
    absolute,
    at_least,
    at_most,
    from_bits,
    has_fused,
    horner,
    literal,
    multiply_add,
    shift_left,
    sign_bit,
    subtract,
    to_bits,
    with_sign,
)
from pellucid.codegen.decompositions.exponential import scale
from pellucid.codegen.decompositions.logarithm import take_apart
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


class Pair(NamedTuple):
    """A number as the sum of two floats; the second is an error of rounding of the first."""

    high: UOp
    low: UOp


@rule(Ops.POW)
def power(node: UOp, ctx: Target) -> UOp:
    """x to the y."""
    x, y = node.src
    if y.is_const:
        simple = _simple_power(x, float(y.arg))
        if simple is not None:
            return simple
    size = absolute(x)
    if x.dtype.bits == 32:
        magnitude = _magnitude_of_single(ctx, size, y)
    else:
        magnitude = _magnitude_of_double(ctx, size, y)
    return _with_special_cases(x, y, size, magnitude)


def _simple_power(x: UOp, exponent: float) -> UOp | None:
    """Powers that are a few products, a quotient or a root, special cases included."""
    if exponent == 0:
        return literal(x, 1.0)
    if exponent == 1:
        return x
    if exponent in (2.0, 3.0, 4.0):
        square = x * x
        return {2.0: square, 3.0: square * x, 4.0: square * square}[exponent]
    if exponent == -1:
        return literal(x, 1.0) / x
    if exponent == 0.5:  # the root of -0.0 is 0.0 here, that of -inf is inf
        root = UOp.make(Ops.SQRT, x + literal(x, 0.0))
        return x.eq(literal(x, -math.inf)).where(literal(x, math.inf), root)
    return None


def _with_special_cases(x: UOp, y: UOp, size: UOp, magnitude: UOp) -> UOp:
    zero, one, infinity = literal(x, 0.0), literal(x, 1.0), literal(x, math.inf)
    is_integral = UOp.make(Ops.TRUNC, y).eq(y)
    half = y * literal(y, 0.5)
    is_odd = is_integral & UOp.make(Ops.TRUNC, half).ne(half)
    sign = sign_bit(x)
    result = with_sign(magnitude, is_odd.where(sign, literal(sign, 0)))
    has_none = (x < zero) & (size < infinity) & is_integral.logical_not()
    result = has_none.where(literal(x, math.nan), result)
    at_one = size.eq(one) & absolute(y).eq(infinity)
    return (at_one | x.eq(one) | y.eq(zero)).where(one, result)


# ---- float32, in float64 -------------------------------------------------------------------------


def _magnitude_of_single(target: Target, size: UOp, y: UOp) -> UOp:
    wide, exponent = size.cast(dtypes.float64), y.cast(dtypes.float64)
    e, f = take_apart(wide)
    logarithm = multiply_add(target, horner(target, f, coefficients.POW_LOG2_64), f, e)
    logarithm = _at_ends(wide, logarithm)
    # the end of the range is far enough beyond that of float32
    product = at_most(at_least(exponent * logarithm, -400.0), 400.0)
    rounder = 1.5 * 2.0**52 + 1023
    rounded = product + literal(product, rounder)
    r = subtract(product, subtract(rounded, rounder))
    value = horner(target, r, coefficients.POW_EXP2_64)
    factor = from_bits(shift_left(to_bits(rounded), 52), value)
    return (value * factor).cast(dtypes.float32)


def _at_ends(size: UOp, logarithm: UOp) -> UOp:
    """The logarithm of 0 and of infinity, and of NaN."""
    logarithm = (size < literal(size, math.inf)).where(logarithm, size)
    return size.eq(literal(size, 0.0)).where(literal(size, -math.inf), logarithm)


# ---- float64, in pairs ---------------------------------------------------------------------------


def _magnitude_of_double(target: Target, size: UOp, y: UOp) -> UOp:
    y = at_most(at_least(y, -(2.0**80)), 2.0**80)  # the result is the same, and nothing overflows
    logarithm = _logarithm(target, size)
    high = y * _at_ends(size, logarithm.high)
    low = _product_error(target, y, logarithm.high, y * logarithm.high)
    low = multiply_add(target, y, logarithm.low, low)
    high_enough = absolute(high) < literal(high, 2000.0)
    low = high_enough.where(low, literal(low, 0.0))
    high = at_most(at_least(high, -1100.0), 1100.0)
    rounder = 1.5 * 2.0**52 + 2046
    rounded = high + literal(high, rounder)
    r = subtract(high, subtract(rounded, rounder)) + low
    value = multiply_add(target, horner(target, r, coefficients.EXP2_64), r, 1.0)
    return scale(value, rounded)


def _logarithm(target: Target, size: UOp) -> Pair:
    """log2 of a positive finite number, with about 64 bits."""
    e, f = take_apart(size)
    s = _quotient(target, f)
    square = _product(target, s, s)
    tail = horner(target, square.high, coefficients.POW_ATANH_64) * square.high
    series = _sum(Pair(*(literal(f, part) for part in coefficients.TWO_THIRDS_64)), tail)
    cubic = _product(target, _product(target, s, square), series)
    two = literal(f, 2.0)
    natural = _sum(Pair(s.high * two, s.low * two), cubic.high, cubic.low)
    log2_e = Pair(*(literal(f, part) for part in coefficients.LOG2_E_64))
    return _sum(Pair(e, literal(e, 0.0)), *_product(target, natural, log2_e))


def _quotient(target: Target, f: UOp) -> Pair:
    """f / (2 + f)."""
    two = literal(f, 2.0)
    divisor = f + two
    divisor_low = subtract(f, subtract(divisor, two))
    high = f / divisor
    product = high * divisor
    rest = subtract(subtract(f, product), _product_error(target, high, divisor, product))
    rest = subtract(rest, high * divisor_low)
    return Pair(high, rest / divisor)


def _sum(a: Pair, high: UOp, low: UOp | None = None) -> Pair:
    """a + high + low, where a.high is 0 or the larger one."""
    total = a.high + high
    error = subtract(a.high, total) + high + a.low
    return _renormalised(total, error if low is None else error + low)


def _renormalised(high: UOp, low: UOp) -> Pair:
    total = high + low
    return Pair(total, subtract(high, total) + low)


def _product(target: Target, a: Pair, b: Pair) -> Pair:
    high = a.high * b.high
    low = _product_error(target, a.high, b.high, high)
    low = multiply_add(target, a.high, b.low, low)
    return Pair(high, multiply_add(target, a.low, b.high, low))


def _product_error(target: Target, a: UOp, b: UOp, product: UOp) -> UOp:
    """a * b - product, exactly."""
    if has_fused(target):
        return UOp.make(Ops.MULADD, a, b, UOp.make(Ops.NEG, product))
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = subtract(a_high * b_high, product)
    return error + a_high * b_low + a_low * b_high + a_low * b_low


def _halves(x: UOp) -> tuple[UOp, UOp]:
    """x as a sum of two floats of 26 bits each (Veltkamp's splitting)."""
    scaled = x * literal(x, 2.0**27 + 1)
    high = subtract(scaled, subtract(scaled, x))
    return high, subtract(x, high)


RULES = [power]
