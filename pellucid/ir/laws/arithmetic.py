"""Sums and products: neutral elements, literals together, equal terms collected.

    x * 1 + 0      ->  x
    (x + 3) + 4    ->  x + 7
    i * 2 + i      ->  i * 3              (integers; floats round differently)

Floats keep every bit: `x + 0.0` is not `x` for x = -0.0, and `x * 0.0` is not 0.0 for a NaN, an
infinity or a negative number.
"""

from __future__ import annotations

import math

from pellucid.core.dtype import Kind, round_to
from pellucid.ir.equation import Equation, Float, Index, Known, Wrap
from pellucid.ir.law import law, rule
from pellucid.ir.laws.terms import (
    MANY_TERMS,
    Terms,
    count_terms,
    is_before,
    ordered_bases,
    sum_of,
    terms_of,
)
from pellucid.ir.op import Op, Ops
from pellucid.ir.pattern import K, P, X, Y
from pellucid.ir.uop import UOp

INTEGERS = (Kind.INDEX, Kind.INT, Kind.UINT)
COMMUTATIVE = tuple(op for op in Ops.all() if op.is_elementwise and op.commutative)


@law
def add_zero(x: Index | Wrap) -> Equation:
    """Adding zero changes nothing."""
    return x + 0, x


@law
def add_minus_zero(x: Float) -> Equation:
    """Adding minus zero changes nothing, not even a zero."""
    return x + -0.0, x


@law
def mul_one(x: Index | Wrap) -> Equation:
    """Multiplying by one changes nothing."""
    return x * 1, x


@law
def mul_one_float(x: Float) -> Equation:
    """Multiplying by one changes nothing."""
    return x * 1.0, x


@law
def div_one_float(x: Float) -> Equation:
    """Dividing by one changes nothing."""
    return x / 1.0, x


@law
def negate_twice(x: Float) -> Equation:
    """Changing the sign twice changes nothing."""
    return (x * -1.0) * -1.0, x


@law
def negate_literal(x: Float, a: Known) -> Equation:
    """A changed sign goes to the literal factor: the sign of a product is exact."""
    return (x * -1.0) * a, x * (a * -1.0)


@law
def mul_zero(x: Index | Wrap) -> Equation:
    """An integer times zero is zero."""
    return x * 0, 0


@law
def add_literals(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """Two literals in a sum are one."""
    return (x + a) + b, x + (a + b)


@law
def mul_literals(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """Two literals in a product are one."""
    return (x * a) * b, x * (a * b)


@law
def collect_same(x: Index | Wrap) -> Equation:
    """Twice the same term is one term times two."""
    return x + x, x * 2


@law
def collect_one(x: Index | Wrap, a: Known) -> Equation:
    """A term and a multiple of it are one term."""
    return x * a + x, x * (a + 1)


@law
def collect_two(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """Two multiples of one term are one term."""
    return x * a + x * b, x * (a + b)


@law
def distribute_known_sum(x: Wrap, a: Known, b: Known) -> Equation:
    """A literal factor goes to a literal term."""
    return (x + a) * b, x * b + a * b


@rule(P(Ops.FDIV, X, K, kinds=(Kind.FLOAT,)))
def divide_by_power_of_two(x: UOp, k: UOp) -> UOp | None:
    """x / 4 is x * 0.25: where the reciprocal is exact, both round the same number once."""
    divisor = k.arg
    if not math.isfinite(divisor) or abs(math.frexp(divisor)[0]) != 0.5:
        return None
    reciprocal = math.ldexp(math.copysign(1.0, divisor), 1 - math.frexp(divisor)[1])
    exact = round_to(k.dtype.scalar, reciprocal) == reciprocal
    normal = math.frexp(reciprocal)[1] > k.dtype.smallest_exponent
    return x * k.const_like(reciprocal) if exact and normal else None


@rule(*COMMUTATIVE)
def order_sources(node: UOp) -> UOp | None:
    """Sources of a commutative op stand in one order: literals last, loops first."""
    if node.op is Ops.ADD and node.dtype.kind is Kind.INDEX:
        return None  # index sums: sort_terms
    x, y = node.src
    return None if is_before(x, y) else UOp(node.op, node.dtype, (y, x), node.arg)


@rule(P(Ops.ADD, P(Ops.ADD, X, K), Y, kinds=INTEGERS))
def add_literal_last(node: UOp, x: UOp, k: UOp, y: UOp) -> UOp | None:
    """A literal leaves the inside of a sum."""
    return None if y.op is Ops.CONST or x.op is Ops.CONST else _regrouped(node, x, y, k)


@rule(P(Ops.MUL, P(Ops.MUL, X, K), Y, kinds=INTEGERS))
def mul_literal_last(node: UOp, x: UOp, k: UOp, y: UOp) -> UOp | None:
    """A literal leaves the inside of a product."""
    return None if y.op is Ops.CONST or x.op is Ops.CONST else _regrouped(node, x, y, k)


def _regrouped(node: UOp, x: UOp, y: UOp, last: UOp) -> UOp:
    op: Op = node.op
    return UOp(op, node.dtype, (UOp(op, node.dtype, (x, y)), last))


@rule(P(Ops.ADD, kinds=(Kind.INDEX,)))
def sort_terms(node: UOp) -> UOp | None:
    """A sum of index terms stands in normal order, equal terms collected, quotients rejoined."""
    x, y = node.src
    if y.op is Ops.CONST:
        if x.op is not Ops.ADD and x.op is not Ops.SPLAT:
            return None
        inner = x.src[0] if x.op is Ops.SPLAT and not y.is_const else x
        if inner.dtype.lanes == 1 and (inner.op is not Ops.ADD or inner.src[1].op is not Ops.CONST):
            return None  # a sum in normal order, and a literal last
    if count_terms(node, MANY_TERMS) >= MANY_TERMS:
        return None
    terms = terms_of(node)
    if any(base is not None and base.op is Ops.FLOORMOD for base in terms):
        terms = _rejoined(terms)
    new = sum_of(terms, node)
    return None if new is node else new


def _rejoined(terms: Terms) -> Terms:
    """x % a + (x // a) * a = x, and x % a + ((x // a) % b) * a = x % (a * b)."""
    for base in ordered_bases(terms):
        if base.op is not Ops.FLOORMOD or base not in terms:
            continue
        coefficient = terms[base]
        x, a = base.src
        if not a.is_const or a.arg <= 0:
            continue
        quotient = UOp(Ops.FLOORDIV, base.dtype, (x, a))
        joined = _partner(terms, base, quotient, coefficient * a.arg)
        if joined is not None:
            partner, whole = joined
            rest = {b: c for b, c in terms.items() if b is not base and b is not partner}
            for b, c in terms_of(whole).items():
                rest[b] = rest.get(b, 0) + c * coefficient
            return _rejoined({b: c for b, c in rest.items() if c})
    return terms


def _partner(
    terms: Terms, remainder: UOp, quotient: UOp, coefficient: int
) -> tuple[UOp, UOp] | None:
    """The term that completes *remainder*, and what both are together."""
    x, a = remainder.src
    for base, c in terms.items():
        if base is None or c != coefficient:
            continue
        if base is quotient or _is_quotient(base, quotient):
            return base, x
        if base.op is Ops.FLOORMOD and base.src[1].is_const and base.src[1].arg > 0:
            if base.src[0] is quotient or _is_quotient(base.src[0], quotient):
                size = x.const_like(a.arg * base.src[1].arg)
                return base, UOp(Ops.FLOORMOD, x.dtype, (x, size))
    return None


def _is_quotient(base: UOp, quotient: UOp) -> bool:
    """True when *base* is (x // b) // c or x // (b * c) written as one: the same as *quotient*."""
    x, a = quotient.src
    if x.op is Ops.FLOORDIV and base.op is Ops.FLOORDIV and x.src[1].is_const:
        inner, b = x.src
        return base.src[0] is inner and base.src[1].is_const and base.src[1].arg == a.arg * b.arg
    return False


@rule(P(Ops.MUL, P(Ops.ADD), K, kinds=(Kind.INDEX,)))
def distribute_over_sum(node: UOp, k: UOp) -> UOp | None:
    """A literal factor goes to every term of an index sum."""
    total = node.src[0] if node.src[1] is k else node.src[1]
    if count_terms(total, MANY_TERMS) >= MANY_TERMS:
        return None
    return sum_of({b: c * k.arg for b, c in terms_of(total).items()}, node)


LAWS = (
    add_zero,
    add_minus_zero,
    mul_one,
    mul_one_float,
    div_one_float,
    negate_twice,
    negate_literal,
    mul_zero,
    add_literals,
    mul_literals,
    distribute_known_sum,
    collect_same,
    collect_one,
    collect_two,
)
RULES = (
    divide_by_power_of_two,
    distribute_over_sum,
    sort_terms,
    add_literal_last,
    mul_literal_last,
    order_sources,
)
