"""Quotients and remainders, the heart of index arithmetic. Both round to minus infinity.

    (i * 12 + j * 4 + k) // 4 % 3   for 0 <= j < 3, 0 <= k < 4      ->   j

Everything here holds for negative values. The divisor is a positive literal in all rules; a
negative one is first made positive. Source of the identities: R. L. Graham, D. E. Knuth,
O. Patashnik, "Concrete Mathematics", 2nd edition, 1994, sections 3.1 and 3.4.
"""

from __future__ import annotations

import math

from pellucid.core.dtype import Kind
from pellucid.ir.bounds import Interval, alignment
from pellucid.ir.equation import Equation, Index, Known, Wrap
from pellucid.ir.law import decline, law, rule
from pellucid.ir.laws.terms import (
    MANY_TERMS,
    Terms,
    bounds_of_terms,
    count_terms,
    sum_of,
    terms_of,
)
from pellucid.ir.op import Ops
from pellucid.ir.pattern import K, P, X
from pellucid.ir.uop import UOp


@law
def divide_by_one(x: Index | Wrap) -> Equation:
    """Dividing by one changes nothing."""
    return x // 1, x


@law
def modulo_one(x: Index | Wrap) -> Equation:
    """Nothing is left of a division by one."""
    return x % 1, 0


@law
def divide_by_zero(x: Index | Wrap) -> Equation:
    """A quotient by zero is zero."""
    return x // 0, 0


@law
def modulo_zero(x: Index | Wrap) -> Equation:
    """A remainder by zero is zero."""
    return x % 0, 0


@law
def divide_twice(x: Index, a: Known, b: Known) -> Equation:
    """Two floor divisions are one, when the second divisor is positive."""
    return (x // a) // b, x // (a * b), b > 0


@law
def modulo_twice(x: Index, a: Known, b: Known) -> Equation:
    """Of two remainders the second stays, when it divides the first."""
    return (x % a) % b, x % b, (b > 0) & (a > 0) & (a % b).eq(0)


@law
def divide_remainder(x: Index, a: Known, b: Known) -> Equation:
    """A quotient of a remainder is a remainder of a quotient."""
    return (x % a) // b, (x // b) % (a // b), (b > 0) & (a > 0) & (a % b).eq(0)


@law
def divide_by_negative(x: Index, a: Known) -> Equation:
    """A negative divisor changes the sign of the dividend instead."""
    return x // a, (x * -1) // (a * -1), a < 0


@law
def modulo_negative(x: Index, a: Known) -> Equation:
    """A negative divisor changes the sign of both the dividend and the remainder."""
    return x % a, ((x * -1) % (a * -1)) * -1, a < 0


@law
def small_remainder(x: Index | Wrap, a: Index | Wrap) -> Equation:
    """What is smaller than the divisor is its own remainder."""
    return x % a, x, (x >= 0) & (x < a)


@law
def small_quotient(x: Index | Wrap, a: Index | Wrap) -> Equation:
    """What is smaller than the divisor has no quotient."""
    return x // a, 0, (x >= 0) & (x < a)


@rule(P(Ops.FLOORDIV, X, K, kinds=(Kind.INDEX,)))
def divide_terms(node: UOp, x: UOp, k: UOp) -> UOp | None:
    """(m*k + r) // k = m + r // k: whole multiples leave, and what cannot matter goes."""
    if k.arg <= 1:
        return None
    if count_terms(x, MANY_TERMS) >= MANY_TERMS:
        return decline("too many terms", x)
    terms = terms_of(x)
    whole = {b: c // k.arg for b, c in terms.items() if c % k.arg == 0}
    rest = {b: c for b, c in terms.items() if c % k.arg}
    carry, literal = divmod(rest.pop(None, 0), k.arg)
    if carry:
        whole[None] = whole.get(None, 0) + carry
    if literal:
        rest[None] = literal
    if found := _quotient_of_rest(rest, k.arg):
        inner, divisor = found
        quotient = _divided(inner, divisor, node)
    elif whole:
        quotient = _divided(rest, k.arg, node)
    else:
        return None
    for base, c in terms_of(quotient).items():
        whole[base] = whole.get(base, 0) + c
    return sum_of(whole, node)


def _divided(terms: Terms, divisor: int, like: UOp) -> UOp:
    total = sum_of(terms, like)
    if divisor == 1:
        return total
    return UOp(Ops.FLOORDIV, like.dtype, (total, like.const_like(divisor)))


def _quotient_of_rest(rest: Terms, divisor: int) -> tuple[Terms, int] | None:
    """Smaller terms and a smaller divisor with the same quotient.

    (g*y + r) // (g*d) = (y + r // g) // d, when r // g is one number.
    """
    if not rest:
        return None
    size = _constant_quotient(bounds_of_terms(rest), divisor)
    if size is not None:
        return {None: size} if size else {}, 1
    for g in _common_divisors(rest, divisor):
        multiples: Terms = {b: c // g for b, c in rest.items() if b is not None and c % g == 0}
        small = {b: c for b, c in rest.items() if b is None or c % g}
        carry = _constant_quotient(bounds_of_terms(small), g)
        if carry is not None and multiples:
            if carry:
                multiples[None] = carry
            return multiples, divisor // g
    return None


def _constant_quotient(interval: Interval, divisor: int) -> int | None:
    low, high = interval.min // divisor, interval.max // divisor
    return low if low == high else None


def _common_divisors(terms: Terms, divisor: int) -> list[int]:
    """Numbers above 1 that divide *divisor* and some coefficients, the largest first."""
    found = {math.gcd(c, divisor) for b, c in terms.items() if b is not None}
    found |= {math.gcd(g, h) for g in found for h in found}
    return sorted((g for g in found if g > 1), reverse=True)


@rule(P(Ops.FLOORMOD, X, K, kinds=(Kind.INDEX,)))
def modulo_terms(node: UOp, x: UOp, k: UOp) -> UOp | None:
    """(m*k + r) % k = r % k: whole multiples go, and what is small stays as it is."""
    size = k.arg
    if size <= 1:
        return None
    if alignment(x) % size == 0:
        return node.const_like(0)
    if count_terms(x, MANY_TERMS) >= MANY_TERMS:
        return decline("too many terms", x)
    terms = terms_of(x)
    rest: Terms = {b: c for b, c in terms.items() if b is not None and c % size}
    if literal := terms.get(None, 0) % size:
        rest[None] = literal
    carry = _constant_quotient(bounds_of_terms(rest), size)
    if carry is not None:
        rest[None] = rest.get(None, 0) - carry * size
        return sum_of(rest, node)
    small = {base: c % size for base, c in rest.items()}  # (8*x + y) % 7 = (x + y) % 7
    if _constant_quotient(bounds_of_terms(small), size) == 0:
        return sum_of(small, node)
    for g in _common_divisors(rest, size):
        if found := _remainder_by_parts(rest, size, g, node):
            return found
    if rest == terms:
        return _nested_remainders(terms, size, node)
    return _modulo(rest, size, node)


def _remainder_by_parts(rest: Terms, size: int, g: int, like: UOp) -> UOp | None:
    """(g*y + r) % (g*d) = g * (y % d) + r, when 0 <= r < g."""
    multiples: Terms = {b: c // g for b, c in rest.items() if b is not None and c % g == 0}
    small = {b: c for b, c in rest.items() if b is None or c % g}
    carry = _constant_quotient(bounds_of_terms(small), g)
    if carry is None or not multiples or g == size:
        return None
    if carry:
        multiples[None] = carry
        small[None] = small.get(None, 0) - carry * g
    part = _modulo(multiples, size // g, like)
    total: Terms = {part: g}
    for base, c in small.items():
        total[base] = total.get(base, 0) + c
    return sum_of(total, like)


def _modulo(terms: Terms, size: int, like: UOp) -> UOp:
    total = sum_of(terms, like)
    return UOp(Ops.FLOORMOD, like.dtype, (total, like.const_like(size)))


def _nested_remainders(terms: Terms, size: int, like: UOp) -> UOp | None:
    """(x % a + y) % b = (x + y) % b, when b divides the coefficient times a."""
    found: Terms = {}
    changed = False
    for base, c in terms.items():
        inner: Terms = {base: 1}
        if base is not None and base.op is Ops.FLOORMOD and base.src[1].is_const:
            if base.src[1].arg > 0 and c * base.src[1].arg % size == 0:
                inner, changed = terms_of(base.src[0]), True
        for b, d in inner.items():
            found[b] = found.get(b, 0) + c * d
    return _modulo(found, size, like) if changed else None


LAWS = (
    divide_by_one,
    modulo_one,
    divide_by_zero,
    modulo_zero,
    divide_twice,
    modulo_twice,
    divide_remainder,
    divide_by_negative,
    modulo_negative,
    small_remainder,
    small_quotient,
)
RULES = (divide_terms, modulo_terms)
