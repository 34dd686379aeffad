"""Sums and products: neutral elements, literals together, equal terms collected.

    x * 1 + 0      ->  x
    (x + 3) + 4    ->  x + 7
    i * 2 + i      ->  i * 3              (integers; floats round differently)

Floats keep every bit: `x + 0.0` is not `x` for x = -0.0, and `x * 0.0` is not 0.0 for a NaN, an infinity or a
negative number.
"""

from __future__ import annotations

from pellucid.ir.law import Equation, Float, Index, Known, Wrap, law


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
def add_literal_last(x: Index | Wrap, y: Index | Wrap, a: Known) -> Equation:
    """A literal leaves the inside of a sum."""
    return (x + a) + y, (x + y) + a


@law
def mul_literal_last(x: Index | Wrap, y: Index | Wrap, a: Known) -> Equation:
    """A literal leaves the inside of a product."""
    return (x * a) * y, (x * y) * a


@law
def distribute_literal(x: Index, y: Index, a: Known) -> Equation:
    """A literal factor goes to every term of a sum."""
    return (x + y) * a, x * a + y * a


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


LAWS = (
    add_zero,
    add_minus_zero,
    mul_one,
    mul_one_float,
    div_one_float,
    mul_zero,
    add_literals,
    mul_literals,
    distribute_literal,
    collect_same,
    collect_one,
    collect_two,
    add_literal_last,
    mul_literal_last,
)
