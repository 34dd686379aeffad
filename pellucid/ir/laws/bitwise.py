"""And, or, exclusive or and shifts, on integers and on truth values.

    c & True        ->  c
    (x & 12) & 5    ->  x & 4
    x & 255         ->  x            for 0 <= x < 256

Source: Boolean algebra, lane by lane and bit by bit; and intervals, for masks that cover
everything.
"""

from __future__ import annotations

from pellucid.core.dtype import Kind
from pellucid.ir.bounds import bounds
from pellucid.ir.equation import Bool, Equation, Known, Wrap
from pellucid.ir.law import law, rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import K, P, X
from pellucid.ir.uop import UOp


@law
def and_itself(x: Wrap | Bool) -> Equation:
    """And with itself changes nothing."""
    return x & x, x


@law
def or_itself(x: Wrap | Bool) -> Equation:
    """Or with itself changes nothing."""
    return x | x, x


@law
def xor_itself_truth(x: Bool) -> Equation:
    """No truth value differs from itself."""
    return x ^ x, False


@law
def xor_itself(x: Wrap) -> Equation:
    """No bit differs from itself."""
    return x ^ x, 0


@law
def and_zero(x: Wrap) -> Equation:
    """And with no bits is zero."""
    return x & 0, 0


@law
def or_zero(x: Wrap) -> Equation:
    """Or with no bits changes nothing."""
    return x | 0, x


@law
def xor_zero(x: Wrap) -> Equation:
    """Exclusive or with no bits changes nothing."""
    return x ^ 0, x


@law
def and_true(c: Bool) -> Equation:
    """And with True changes nothing."""
    return c & True, c


@law
def and_false(c: Bool) -> Equation:
    """And with False is False."""
    return c & False, False


@law
def or_true(c: Bool) -> Equation:
    """Or with True is True."""
    return c | True, True


@law
def or_false(c: Bool) -> Equation:
    """Or with False changes nothing."""
    return c | False, c


@law
def xor_false(c: Bool) -> Equation:
    """Exclusive or with False changes nothing."""
    return c ^ False, c


@law
def not_twice(c: Bool) -> Equation:
    """The opposite of the opposite is the same."""
    return (c ^ True) ^ True, c


@law
def and_opposite(c: Bool) -> Equation:
    """Nothing is true together with its opposite."""
    return c & (c ^ True), False


@law
def or_opposite(c: Bool) -> Equation:
    """Something or its opposite is true."""
    return c | (c ^ True), True


@law
def and_literals(x: Wrap, a: Known, b: Known) -> Equation:
    """Two masks are one."""
    return (x & a) & b, x & (a & b)


@law
def or_literals(x: Wrap, a: Known, b: Known) -> Equation:
    """Two sets of bits to set are one."""
    return (x | a) | b, x | (a | b)


@law
def xor_literals(x: Wrap, a: Known, b: Known) -> Equation:
    """Two sets of bits to flip are one."""
    return (x ^ a) ^ b, x ^ (a ^ b)


@law
def and_repeated(x: Wrap | Bool, y: Wrap | Bool) -> Equation:
    """And with the same again changes nothing."""
    return (x & y) & y, x & y


@law
def or_repeated(x: Wrap | Bool, y: Wrap | Bool) -> Equation:
    """Or with the same again changes nothing."""
    return (x | y) | y, x | y


@law
def and_absorbs(x: Wrap | Bool, y: Wrap | Bool) -> Equation:
    """x is in every or with x."""
    return x & (x | y), x


@law
def or_absorbs(x: Wrap | Bool, y: Wrap | Bool) -> Equation:
    """An and with x adds nothing to x."""
    return x | (x & y), x


@law
def add_truth_is_or(x: Bool, y: Bool) -> Equation:
    """The sum of two truth values is their or."""
    return x + y, x | y


@law
def mul_truth_is_and(x: Bool, y: Bool) -> Equation:
    """The product of two truth values is their and."""
    return x * y, x & y


@rule(P(Ops.AND, X, K, kinds=(Kind.INT, Kind.UINT, Kind.INDEX)))
def and_wide_mask(x: UOp, k: UOp) -> UOp | None:
    """A mask of ones that covers all values changes nothing."""
    mask = k.arg
    if mask == -1:
        return x
    low, high = bounds(x)
    covers = mask >= 0 and mask & (mask + 1) == 0 and low >= 0 and high <= mask
    full = x.dtype.kind is Kind.UINT and mask == x.dtype.max
    return x if covers or full else None


@rule(P((Ops.SHL, Ops.SHR), X, K))
def shift_by_literal(node: UOp, x: UOp, k: UOp) -> UOp | None:
    """x << 0 is x, and what is shifted out to the last bit is 0."""
    if k.arg == 0:
        return x
    gone = not 0 <= k.arg < node.dtype.bits
    if gone and (node.op is Ops.SHL or node.dtype.kind is Kind.UINT):
        return node.const_like(0)
    return None


LAWS = (
    and_itself,
    or_itself,
    xor_itself,
    xor_itself_truth,
    and_zero,
    or_zero,
    xor_zero,
    and_true,
    and_false,
    or_true,
    or_false,
    xor_false,
    not_twice,
    and_opposite,
    or_opposite,
    and_literals,
    or_literals,
    xor_literals,
    and_repeated,
    or_repeated,
    and_absorbs,
    or_absorbs,
    add_truth_is_or,
    mul_truth_is_and,
)
RULES = (and_wide_mask, shift_by_literal)
