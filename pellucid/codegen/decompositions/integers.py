"""Integer ops whose meaning is total, spelled with those of processors, which is not.

    x // 8      x >> 3                       x % 8       x & 7
    x // 10     x / 10 for x >= 0; else ~(~x / 10) for x < 0, without a branch
    x // y      x / (y or 1), corrected where the signs differ and something is left; 0 for y = 0
    x << n      n < width ? x << n : 0

What bounds prove is left out. Quotients by a literal stay quotients: code generation multiplies by
a reciprocal.

Source: H. S. Warren, "Hacker's Delight", 2nd edition, 2012, sections 2-1 and 10-1.
"""

from __future__ import annotations

from pellucid.codegen.decompositions.building import literal, shift_right, subtract
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.bounds import bounds
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


@rule(Ops.FLOORDIV)
def floor_quotient(node: UOp) -> UOp:
    """Quotient to minus infinity by a truncating one."""
    x, y = node.src
    if y.is_const:
        return _floor_quotient_by_literal(x, int(y.arg))
    quotient, remainder = _truncated(x, y)
    if _same_sign(x, y):
        return quotient
    uneven = remainder.ne(literal(x, 0)) & _signs_differ(remainder, y)
    return subtract(quotient, uneven.cast(x.dtype))


@rule(Ops.FLOORMOD)
def floor_remainder(node: UOp) -> UOp:
    """Remainder with the sign of the divisor."""
    x, y = node.src
    if y.is_const:
        return _floor_remainder_by_literal(x, int(y.arg))
    _, remainder = _truncated(x, y)
    if _same_sign(x, y):
        return remainder
    uneven = remainder.ne(literal(x, 0)) & _signs_differ(remainder, y)
    return remainder + uneven.where(y, literal(x, 0))


@rule(Ops.TRUNCDIV)
def truncated_quotient(node: UOp) -> UOp:
    """Quotient towards zero."""
    x, y = node.src
    if y.is_const and bounds(x).min >= 0:
        return _floor_quotient_by_literal(x, int(y.arg))
    return _truncated(x, y)[0]


@rule(Ops.TRUNCMOD)
def truncated_remainder(node: UOp) -> UOp:
    """Remainder with the sign of the dividend."""
    x, y = node.src
    if y.is_const and bounds(x).min >= 0 and int(y.arg) > 0:
        return _floor_remainder_by_literal(x, int(y.arg))
    return _truncated(x, y)[1]


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _floor_quotient_by_literal(x: UOp, divisor: int) -> UOp:
    if divisor == 0:
        return literal(x, 0)
    if divisor == -1:
        return UOp.make(Ops.NEG, x)
    if _is_power_of_two(divisor):
        return shift_right(x, divisor.bit_length() - 1) if divisor > 1 else x
    y = literal(x, divisor)
    if bounds(x).min >= 0 and divisor > 0:
        return UOp.make(Ops.IDIV, x, y)
    if divisor > 0:  # for x < 0: ~(~x / y), where ~ is an exclusive or with the sign
        sign = shift_right(x, x.dtype.bits - 1)
        return UOp.make(Ops.IDIV, x ^ sign, y) ^ sign
    quotient, remainder = _truncated(x, y)
    return subtract(quotient, (literal(x, 0) < remainder).cast(x.dtype))


def _floor_remainder_by_literal(x: UOp, divisor: int) -> UOp:
    if divisor in (0, 1, -1):
        return literal(x, 0)
    if _is_power_of_two(divisor):
        return x & literal(x, divisor - 1)
    y = literal(x, divisor)
    if bounds(x).min >= 0 and divisor > 0:
        return UOp.make(Ops.IMOD, x, y)
    return subtract(x, _floor_quotient_by_literal(x, divisor) * y)


def _same_sign(x: UOp, y: UOp) -> bool:
    return bounds(x).min >= 0 and bounds(y).min >= 0


def _signs_differ(remainder: UOp, y: UOp) -> UOp:
    return (remainder ^ y) < literal(y, 0)


def _truncated(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    """Quotient towards zero and remainder; 0 and 0 by zero; the smallest / -1 wraps."""
    zero, one = literal(x, 0), literal(x, 1)
    divisor, left = bounds(y), bounds(x)
    may_be_zero = divisor.min <= 0 <= divisor.max
    lowest = int(x.dtype.min)
    may_overflow = not x.dtype.is_unsigned and -1 in divisor and lowest in left
    safe = y
    if may_overflow:
        minus_one = y.eq(literal(y, -1))
        safe = minus_one.where(one, safe)
    if may_be_zero:
        is_zero = y.eq(zero)
        safe = is_zero.where(one, safe)
    quotient, remainder = UOp.make(Ops.IDIV, x, safe), UOp.make(Ops.IMOD, x, safe)
    if may_overflow:  # the remainder by 1 is 0, as by -1
        quotient = minus_one.where(UOp.make(Ops.NEG, quotient), quotient)
    if may_be_zero:  # the remainder by 1 is 0
        quotient = is_zero.where(zero, quotient)
    return quotient, remainder


@rule(Ops.SHL)
def total_shift_left(node: UOp) -> UOp:
    """Counts of the width or more give 0."""
    x, count = node.src
    if _is_within(count, x):
        return UOp.make(Ops.ISHL, x, count)
    inside = _inside(count)
    safe = count & literal(count, count.dtype.bits - 1)
    return inside.where(UOp.make(Ops.ISHL, x, safe), literal(x, 0))


@rule(Ops.SHR)
def total_shift_right(node: UOp) -> UOp:
    """Counts of the width or more give 0, or all sign."""
    x, count = node.src
    if _is_within(count, x):
        return UOp.make(Ops.ISHR, x, count)
    inside = _inside(count)
    if x.dtype.is_unsigned:
        safe = count & literal(count, count.dtype.bits - 1)
        return inside.where(UOp.make(Ops.ISHR, x, safe), literal(x, 0))
    return UOp.make(Ops.ISHR, x, inside.where(count, literal(count, x.dtype.bits - 1)))


def _is_within(count: UOp, x: UOp) -> bool:
    return bounds(count).min >= 0 and bounds(count).max < x.dtype.bits


def _inside(count: UOp) -> UOp:
    """0 <= count < width, as one unsigned comparison."""
    dtype = count.dtype
    if not dtype.is_unsigned:
        unsigned = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
        count = count.bitcast(unsigned[dtype.bits].vec(dtype.lanes))
    return count < literal(count, dtype.bits)


@rule(Ops.ADD, Ops.MAX)
def either(node: UOp) -> UOp | None:
    """The sum of bools, cast to bool, and their maximum: or."""
    return UOp.make(Ops.OR, *node.src) if node.dtype.is_bool else None


@rule(Ops.MUL, Ops.MIN)
def both(node: UOp) -> UOp | None:
    """The product of bools and their minimum: and."""
    return UOp.make(Ops.AND, *node.src) if node.dtype.is_bool else None


@rule(Ops.MUL)
def negated(node: UOp, ctx: Target) -> UOp | None:
    """x * -1 only flips a sign."""
    for x, factor in (node.src, node.src[::-1]):
        if factor.is_const and not x.dtype.is_bool and not x.dtype.is_unsigned and factor.arg == -1:
            return UOp.make(Ops.NEG, x)
    return None


@rule(Ops.ADD)
def difference(node: UOp, ctx: Target) -> UOp | None:
    """x + -y is x - y, bit for bit."""
    left, right = node.src
    if right.op is Ops.NEG:
        return UOp.make(Ops.SUB, left, right.src[0])
    if left.op is Ops.NEG:
        return UOp.make(Ops.SUB, right, left.src[0])
    return None


RULES = [
    floor_quotient,
    floor_remainder,
    truncated_quotient,
    truncated_remainder,
    total_shift_left,
    total_shift_right,
    either,
    both,
    negated,
    difference,
]
