"""The standard rule sets: everything that is true of values, in one name.

    simplify(i * 1 + (3 + 4))  ->  i + 7
    simplify((i * 12 + j * 4 + k) // 4 % 3)  ->  j           for 0 <= j < 3, 0 <= k < 4

Safe in every form below TENSOR: no value changes, of floats not one bit, unless `relaxed_float` is
given. `simplify_movement` is for TENSOR form. What the rules are is in laws/, one file a family.
"""

from __future__ import annotations

from pellucid.ir.law import Law, RuleSet
from pellucid.ir.laws import (
    arithmetic,
    bitwise,
    cast,
    compare,
    extremes,
    folding,
    lanes,
    movement,
    narrow,
    reduce,
    relaxed_float,
    select,
)
from pellucid.ir.laws import divmod as quotients
from pellucid.ir.rewrite import rewrite
from pellucid.ir.rule import Rule
from pellucid.ir.uop import UOp

SIMPLIFY = RuleSet(
    "simplify",
    [
        *folding.RULES,
        *arithmetic.LAWS,
        *arithmetic.RULES,
        *bitwise.LAWS,
        *bitwise.RULES,
        *compare.LAWS,
        *compare.RULES,
        *select.LAWS,
        *extremes.LAWS,
        *quotients.LAWS,
        *quotients.RULES,
        *cast.RULES,
        *lanes.RULES,
        *narrow.RULES,
        *reduce.RULES,
    ],
    any_order=True,
    remember=True,
)
RELAXED = RuleSet(
    "simplify_relaxed", [SIMPLIFY, *relaxed_float.LAWS], any_order=True, remember=True
)


def simplify(root: UOp, *, relaxed_float: bool = False) -> UOp:
    """Apply the standard rules below *root* until none applies.

    >>> i = UOp.range(4, 0)
    >>> simplify((i * 1 + 0) // 4).arg
    0
    """
    return rewrite(root, RELAXED if relaxed_float else SIMPLIFY)


def simplify_movement(root: UOp) -> UOp:
    """Merge movement ops of a TENSOR graph and drop those that move nothing."""
    return rewrite(root, movement.MOVEMENT)


def all_rules() -> list[Rule]:
    """Every law and rule of the standard sets, by family."""
    return [*RELAXED, *movement.MOVEMENT]


def all_laws() -> list[Law]:
    """Every equation of the standard sets, by family."""
    return [one for one in all_rules() if isinstance(one, Law)]


def laws_table() -> str:
    """The laws as a markdown table, for the docs and for `pellucid laws`."""
    rows = ["| law | family | equation | holds for | level |", "|---|---|---|---|---|"]
    for one in all_laws():
        equation = one.equation.replace("|", "\\|")
        rows.append(f"| {one.name} | {one.family} | `{equation}` | {one.holds_for} | {one.level} |")
    return "\n".join(rows) + "\n"
