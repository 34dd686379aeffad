"""Comparisons in one form: positive terms on their side, no common factors, the literal right.

    i * 4 + 1 < j * 4 + 9      ->   i < j + 2
    0 <= i - 3                 ->   2 < i

Index comparisons are all `<`, `==` or `!=`. What bounds decide is left to `decide_by_bounds`.
"""

from __future__ import annotations

import math

from pellucid.core.dtype import Kind
from pellucid.ir.equation import Bool, Equation, Index, Known, Wrap
from pellucid.ir.law import law, rule
from pellucid.ir.laws.terms import (
    MANY_TERMS,
    Terms,
    bounds_of_terms,
    count_terms,
    is_before,
    ordered_bases,
    sum_of,
    terms_of,
)
from pellucid.ir.op import Ops
from pellucid.ir.pattern import P, X, Y
from pellucid.ir.uop import UOp


@law
def less_than_itself(x: Index | Wrap | Bool) -> Equation:
    """Nothing is less than itself."""
    return x < x, False


@law
def equal_to_itself(x: Index | Wrap | Bool) -> Equation:
    """Everything but a NaN equals itself."""
    return x.eq(x), True


@law
def unequal_to_itself(x: Index | Wrap | Bool) -> Equation:
    """Nothing but a NaN differs from itself."""
    return x.ne(x), False


@law
def not_above_itself(x: Index | Wrap | Bool) -> Equation:
    """Everything but a NaN is at most itself."""
    return x <= x, True


@law
def strict_index(x: Index, y: Index) -> Equation:
    """For integers that do not wrap, at most is less than one more."""
    return x <= y, x < y + 1


@law
def not_less(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """What is not less is at least."""
    return (x < y) ^ True, y <= x


@law
def not_at_most(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """What is not at most is above."""
    return (x <= y) ^ True, y < x


@law
def not_equal(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """What is not equal differs."""
    return x.eq(y) ^ True, x.ne(y)


@law
def not_different(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """What does not differ is equal."""
    return x.ne(y) ^ True, x.eq(y)


@law
def equals_true(c: Bool) -> Equation:
    """A truth value equal to True is itself."""
    return c.eq(True), c


@law
def equals_false(c: Bool) -> Equation:
    """A truth value equal to False is its opposite."""
    return c.eq(False), c ^ True


@law
def differs_from_false(c: Bool) -> Equation:
    """A truth value different from False is itself."""
    return c.ne(False), c


@law
def differs_from_true(c: Bool) -> Equation:
    """A truth value different from True is its opposite."""
    return c.ne(True), c ^ True


@law
def wrap_equal_sum(x: Wrap, a: Known, b: Known) -> Equation:
    """A literal term moves across an equality, wrapping or not."""
    return (x + a).eq(b), x.eq(b + a * -1)


def _difference(x: UOp, y: UOp) -> Terms:
    terms = terms_of(x)
    for base, c in terms_of(y).items():
        terms[base] = terms.get(base, 0) - c
    return {b: c for b, c in terms.items() if c}


def _sides(terms: Terms) -> tuple[Terms, Terms]:
    """Positive terms, and the others with their sign changed; no literal."""
    left: Terms = {b: c for b, c in terms.items() if b is not None and c > 0}
    right: Terms = {b: -c for b, c in terms.items() if b is not None and c < 0}
    return left, right


@rule(P(Ops.CMPLT, X, Y))
def order_comparison(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """x < y for index sums, in normal form."""
    if x.dtype.kind is not Kind.INDEX or _is_large(x, y):
        return None
    terms = _difference(x, y)  # terms < 0
    literal = -terms.pop(None, 0)  # terms < literal
    if not terms:
        return node.const_like(literal > 0)
    terms, literal = _without_small_terms(terms, literal)
    factor = math.gcd(*terms.values())
    terms = {b: c // factor for b, c in terms.items()}
    literal = -(-literal // factor)
    left, right = _sides(terms)
    if not left:  # literal' < right
        new = UOp.make(Ops.CMPLT, x.const_like(-literal), sum_of(right, x))
    else:
        if literal:
            right[None] = literal
        new = UOp.make(Ops.CMPLT, sum_of(left, x), sum_of(right, x))
    return None if new is node else new


def _is_large(x: UOp, y: UOp) -> bool:
    return count_terms(x, MANY_TERMS) + count_terms(y, MANY_TERMS) >= MANY_TERMS


def _without_small_terms(terms: Terms, literal: int) -> tuple[Terms, int]:
    """g*y + r < c is y < ceil((c - r) / g), where every r gives the same number."""
    for g in sorted({abs(c) for c in terms.values() if abs(c) > 1}, reverse=True):
        multiples = {b: c for b, c in terms.items() if c % g == 0}
        if len(multiples) == len(terms):
            continue
        low, high = bounds_of_terms({b: c for b, c in terms.items() if c % g})
        first, last = -((low - literal) // g), -((high - literal) // g)
        if first == last:
            return multiples, first * g
    return terms, literal


@rule(Ops.CMPEQ, Ops.CMPNE)
def order_equality(node: UOp) -> UOp | None:
    """x == y and x != y for index sums, in normal form."""
    x, y = node.src
    if x.dtype.kind is not Kind.INDEX or _is_large(x, y):
        return None
    terms = _difference(x, y)
    literal = -terms.pop(None, 0)
    if not terms:
        return node.const_like((literal == 0) == (node.op is Ops.CMPEQ))
    factor = math.gcd(*terms.values())
    if literal % factor:
        return node.const_like(node.op is Ops.CMPNE)
    first = ordered_bases(terms)[0]
    if terms[first] < 0:
        factor = -factor
    left, right = _sides({b: c // factor for b, c in terms.items()})
    literal //= factor
    if literal:
        right[None] = literal
    sides = sum_of(left, x), sum_of(right, x)
    if not is_before(*sides):
        sides = sides[1], sides[0]
    new = UOp.make(node.op, *sides)
    return None if new is node else new


LAWS = (
    less_than_itself,
    equal_to_itself,
    unequal_to_itself,
    not_above_itself,
    strict_index,
    not_less,
    not_at_most,
    not_equal,
    not_different,
    equals_true,
    equals_false,
    differs_from_false,
    differs_from_true,
    wrap_equal_sum,
)
RULES = (order_comparison, order_equality)
