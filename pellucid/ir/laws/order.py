"""The order in which laws make graphs smaller, so that rewriting ends.

Each op is read as a function on whole numbers that grows with each source (a polynomial
interpretation); a law is allowed when the number of its left side is greater than that of its right
side, whatever the variables (3 or more) are. As the functions grow with their sources, a step
anywhere makes the number of the whole graph, read as a tree, smaller; so there is no endless chain
of steps.

    x * a + x   ->  x * (a + 1)          2x + x + 2  >  2x

Source: D. Lankford, "On proving term rewriting systems are Noetherian", 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pellucid.ir.equation import is_known
from pellucid.ir.op import Op, Ops
from pellucid.ir.pattern import Pattern

LITERAL = 2
SMALLEST_VARIABLE = 3


def _sum(extra: int) -> Callable[..., int]:
    return lambda *given: sum(given) + extra


WEIGHTS: dict[Op, Callable[..., int]] = {
    Ops.ADD: _sum(2),
    Ops.MUL: lambda a, b: a * b,
    Ops.FDIV: _sum(3),
    Ops.FLOORDIV: lambda a, b: 3 * a + b + 1,
    Ops.FLOORMOD: lambda a, b: a + b + 1,
    Ops.TRUNCDIV: lambda a, b: 3 * a + b + 2,
    Ops.TRUNCMOD: lambda a, b: a + b + 2,
    Ops.MAX: _sum(1),
    Ops.MIN: _sum(1),
    Ops.AND: _sum(1),
    Ops.OR: _sum(1),
    Ops.XOR: _sum(20),
    Ops.SHL: _sum(4),
    Ops.SHR: _sum(4),
    Ops.CMPLT: _sum(1),
    Ops.CMPLE: _sum(10),
    Ops.CMPEQ: _sum(40),
    Ops.CMPNE: _sum(40),
    Ops.WHERE: _sum(30),
}


def weight(side: Pattern, weights: Mapping[str, int], literals: Mapping[str, int]) -> int:
    """The number of one side of a law: *weights* of its variables, values of its literals.

    >>> from pellucid.ir.pattern import X
    >>> weight(X * 1, {"x": 10}, {}), weight(X, {"x": 10}, {})
    (20, 10)
    """
    if is_known(side):
        return LITERAL
    if side.src is None:
        return weights[str(side.name)]
    assert side.op is not None, "sides of laws are made of single ops"
    given = [weight(s, weights, literals) for s in side.src]
    divisor = side.src[-1]
    if side.op in (Ops.FLOORDIV, Ops.FLOORMOD) and literals.get(str(divisor.name), 1) < 0:
        return 10 * WEIGHTS[side.op](*given) + 100  # a negative divisor counts for more
    return WEIGHTS[side.op](*given)
