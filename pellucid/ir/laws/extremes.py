"""MAX and MIN.

    max(x, x)              ->  x
    max(max(x, 3), 5)      ->  max(x, 5)
    max(i, 0)  for i >= 0  ->  i

Floats take part where neither NaN nor the sign of a zero could tell: the types of a law say so.
"""

from __future__ import annotations

from pellucid.ir.equation import Equation, Float, Index, Known, Wrap
from pellucid.ir.law import law


@law
def max_itself(x: Index | Wrap | Float) -> Equation:
    """The larger of two equal values is either."""
    return x.maximum(x), x


@law
def min_itself(x: Index | Wrap | Float) -> Equation:
    """The smaller of two equal values is either."""
    return x.minimum(x), x


@law
def max_literals(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """The larger literal decides."""
    return x.maximum(a).maximum(b), x.maximum(a.maximum(b))


@law
def min_literals(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """The smaller literal decides."""
    return x.minimum(a).minimum(b), x.minimum(a.minimum(b))


@law
def max_repeated(x: Index | Wrap | Float, y: Index | Wrap | Float) -> Equation:
    """The same value a second time changes nothing."""
    return x.maximum(y).maximum(y), x.maximum(y)


@law
def min_repeated(x: Index | Wrap | Float, y: Index | Wrap | Float) -> Equation:
    """The same value a second time changes nothing."""
    return x.minimum(y).minimum(y), x.minimum(y)


@law
def max_absorbs(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """The smaller of x and something is not above x."""
    return x.maximum(x.minimum(y)), x


@law
def min_absorbs(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """The larger of x and something is not below x."""
    return x.minimum(x.maximum(y)), x


@law
def max_decided(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """What is at least the other is the larger one."""
    return x.maximum(y), x, y <= x


@law
def min_decided(x: Index | Wrap, y: Index | Wrap) -> Equation:
    """What is at most the other is the smaller one."""
    return x.minimum(y), x, x <= y


@law
def max_of_min(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """A floor above the ceiling decides alone."""
    return x.minimum(a).maximum(b), b, a <= b


@law
def min_of_max(x: Index | Wrap, a: Known, b: Known) -> Equation:
    """A ceiling below the floor decides alone."""
    return x.maximum(a).minimum(b), b, b <= a


LAWS = (
    max_itself,
    min_itself,
    max_literals,
    min_literals,
    max_repeated,
    min_repeated,
    max_absorbs,
    min_absorbs,
    max_decided,
    min_decided,
    max_of_min,
    min_of_max,
)
