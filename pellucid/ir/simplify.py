"""The standard rule set: everything that is true of values, in one name.

    simplify(i * 1 + (3 + 4))  ->  i + 7

Safe in every form below TENSOR: no value changes, of floats not one bit.
"""

from __future__ import annotations

from pellucid.ir.law import RuleSet
from pellucid.ir.laws import (
    arithmetic,
    bitwise,
    cast,
    compare,
    divmod,
    extremes,
    folding,
    select,
)
from pellucid.ir.rewrite import rewrite
from pellucid.ir.uop import UOp

FAMILIES = (folding, arithmetic, bitwise, compare, select, extremes, divmod, cast)
SIMPLIFY = RuleSet(
    "simplify",
    [member for family in FAMILIES for member in (*getattr(family, "LAWS", ()), *family.RULES)],
    any_order=True,
    remember=True,
)


def simplify(root: UOp) -> UOp:
    """Apply the standard rules below *root* until none applies.

    >>> i = UOp.range(4, 0)
    >>> simplify((i * 1 + 0) // 4).arg
    0
    """
    return rewrite(root, SIMPLIFY)
