"""Laws of real numbers that floats break: only where `relaxed_float=True` asks for them.

    x - x           ->  0         false for infinities and NaN
    (x + 0.1) + 0.2 ->  x + 0.3   rounds differently

They are proved over the reals, which is all they promise.
"""

from __future__ import annotations

from pellucid.ir.equation import Equation, Known, Real
from pellucid.ir.law import law


@law
def relaxed_add_zero(x: Real) -> Equation:
    """Adding zero changes nothing (but minus zero)."""
    return x + 0.0, x


@law
def relaxed_mul_zero(x: Real) -> Equation:
    """A real number times zero is zero."""
    return x * 0.0, 0.0


@law
def relaxed_cancel(x: Real) -> Equation:
    """A real number minus itself is zero."""
    return x + x * -1.0, 0.0


@law
def relaxed_add_literals(x: Real, a: Known, b: Known) -> Equation:
    """Two literals in a sum are one."""
    return (x + a) + b, x + (a + b)


@law
def relaxed_mul_literals(x: Real, a: Known, b: Known) -> Equation:
    """Two literals in a product are one."""
    return (x * a) * b, x * (a * b)


@law
def relaxed_collect_two(x: Real, a: Known, b: Known) -> Equation:
    """Two multiples of one term are one term."""
    return x * a + x * b, x * (a + b)


@law
def relaxed_collect_one(x: Real, a: Known) -> Equation:
    """A term and a multiple of it are one term."""
    return x * a + x, x * (a + 1.0)


LAWS = (
    relaxed_add_zero,
    relaxed_mul_zero,
    relaxed_cancel,
    relaxed_add_literals,
    relaxed_mul_literals,
    relaxed_collect_two,
    relaxed_collect_one,
)
