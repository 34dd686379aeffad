"""Spell every op that the target lacks with ops that it has.

SCALAR form -> SCALAR form of native ops.

    before    x[i // 8]          MAX(a, 0.0)            a + b * -1      EXP(a)
    after     x[i >> 3]          a <= 0.0 ? 0.0 : a     a - b           a polynomial, times 2**n

The spellings stand in `decompositions`, one family a file. Integer ones use bounds, so that a
quotient of non-negative numbers is a plain division. Functions of small floats are computed in
float32 and rounded once. What is vectorised stays vectorised: every op here is elementwise.
"""

from __future__ import annotations

from pellucid.codegen.decompositions import (
    error_function,
    exponential,
    floats,
    integers,
    logarithm,
    power,
    threefry,
    trigonometry,
    units,
)
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.law import RuleSet, rule
from pellucid.ir.op import TRANSCENDENTAL
from pellucid.ir.rewrite import rewrite
from pellucid.ir.uop import UOp


@rule(*TRANSCENDENTAL)
def in_single_precision(node: UOp) -> UOp | None:
    """Functions of small floats: computed in float32, rounded once."""
    if not node.dtype.is_float or node.dtype.bits >= 32:
        return None
    wide = UOp.make(node.op, *(source.cast(dtypes.float32) for source in node.src))
    return wide.cast(node.dtype.scalar)


FAMILIES = (
    *(units, integers, floats, threefry, exponential),
    *(logarithm, trigonometry, error_function, power),
)
DECOMPOSITIONS = RuleSet(
    "decompose_ops",
    [in_single_precision, *(member for family in FAMILIES for member in family.RULES)],
)


def decompose_ops(sink: UOp, target: Target) -> UOp:
    """Rewrite until only native ops are left.

    >>> i = UOp.range(UOp.const(dtypes.int32, 24), 0)
    >>> decompose_ops(i // 8, Target(arch="generic")).op
    Ops.ISHR
    """
    return rewrite(sink, DECOMPOSITIONS, target)
