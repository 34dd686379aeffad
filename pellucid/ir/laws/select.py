"""WHERE: what is selected when there is nothing to choose.

    WHERE(c, x, x)          ->  x
    WHERE(c ^ True, x, y)   ->  WHERE(c, y, x)

The values are only moved around, so these laws hold for every type.
"""

from __future__ import annotations

from pellucid.ir.equation import Bool, Equation, Value
from pellucid.ir.law import law
from pellucid.ir.pattern import Pattern


def true() -> Pattern:
    """The literal True."""
    return Pattern(literal=True, value=True)


def false() -> Pattern:
    """The literal False."""
    return Pattern(literal=True, value=False)


@law
def same_branches(c: Bool, x: Value) -> Equation:
    """Nothing to choose."""
    return c.where(x, x), x


@law
def choose_true(x: Value, y: Value) -> Equation:
    """A true condition takes the first branch."""
    return true().where(x, y), x


@law
def choose_false(x: Value, y: Value) -> Equation:
    """A false condition takes the second branch."""
    return false().where(x, y), y


@law
def swap_branches(c: Bool, x: Value, y: Value) -> Equation:
    """The opposite condition takes the other branch."""
    return (c ^ True).where(x, y), c.where(y, x)


@law
def select_truth(c: Bool) -> Equation:
    """A condition that selects True or False is that value."""
    return c.where(True, False), c


@law
def same_condition_true(
    c: Bool,
    x: Value,
    y: Value,
    z: Value,
) -> Equation:
    """Inside the first branch the condition is true."""
    return c.where(c.where(x, y), z), c.where(x, z)


@law
def same_condition_false(
    c: Bool,
    x: Value,
    y: Value,
    z: Value,
) -> Equation:
    """Inside the second branch the condition is false."""
    return c.where(x, c.where(y, z)), c.where(x, z)


@law
def select_opposite(c: Bool) -> Equation:
    """A condition that selects False or True is the opposite."""
    return c.where(False, True), c ^ True


@law
def select_or_false(c: Bool, x: Bool) -> Equation:
    """What counts only where the condition holds is an and."""
    return c.where(x, False), c & x


@law
def select_or_true(c: Bool, x: Bool) -> Equation:
    """What counts only where the condition does not hold is an or."""
    return c.where(True, x), c | x


@law
def both_conditions(c: Bool, d: Bool, x: Value, y: Value) -> Equation:
    """Two selections with one alternative are one."""
    return c.where(d.where(x, y), y), (c & d).where(x, y)


@law
def either_condition(c: Bool, d: Bool, x: Value, y: Value) -> Equation:
    """Two selections of one value are one."""
    return c.where(x, d.where(x, y)), (c | d).where(x, y)


LAWS = (
    same_branches,
    choose_true,
    choose_false,
    swap_branches,
    select_truth,
    select_opposite,
    select_or_false,
    select_or_true,
    both_conditions,
    either_condition,
    same_condition_true,
    same_condition_false,
)
