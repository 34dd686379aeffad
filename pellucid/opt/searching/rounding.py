"""How many roundings a term of a sum passes through: what a search may not make worse.

    REDUCE(REDUCE(x, 16 terms), 64 terms)   ->  15 + 63
    four accumulators and a tree            ->  the loop of each, and 2 for the tree

semantics.md allows a sum of n terms an error of 2 * log2(n) epsilons of the sum of their sizes;
each rounding costs at most half an epsilon. Source: N. J. Higham, "Accuracy and Stability of
Numerical Algorithms", 2002, section 4.2.
"""

from __future__ import annotations

import math

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import size_of


def longest_sum(sink: UOp) -> float:
    """The most additions of floats that one term goes through in a kernel in LOOP form."""
    found: dict[UOp, float] = {}
    for node in sink.toposort():
        before = max((found[s] for s in node.src), default=0.0)
        found[node] = before + _own_additions(node)
    return found[sink]


def _own_additions(node: UOp) -> float:
    if node.op is Ops.REDUCE and node.arg.op is Ops.ADD and node.dtype.is_float:
        copies = [r for r in node.src[1:] if r.arg.kind in (AxisKind.LANES, AxisKind.UNROLL)]
        loops = [r for r in node.src[1:] if r not in copies]
        tree = sum(math.log2(max(1, size_of(r) or 1)) for r in copies)
        return math.prod(size_of(r) or 1 for r in loops) - 1 + tree
    if node.op is Ops.ADD and node.dtype.is_float:
        return 1
    if node.op is Ops.END and _adds_to_itself(node.src[0]):
        place = node.src[0].src[0].src[1]
        return math.prod(size_of(r) or 1 for r in node.src[1:] if r not in place.ranges) - 1
    return 0


def _adds_to_itself(effect: UOp) -> bool:
    """True for a STORE that adds to the element that it overwrites."""
    return (
        effect.op is Ops.STORE
        and effect.src[1].op is Ops.ADD
        and effect.src[0] in effect.src[1].src
    )


def allowed_sum(plain: UOp, chosen: float) -> float:
    """How long sums may be: as the heuristic's, or as semantics.md allows for so many terms."""
    num_terms = longest_sum(plain) + 1
    return max(chosen, 4 * math.log2(max(2.0, num_terms)))


def adds_floats(sink: UOp) -> bool:
    """True when the order of evaluation may show: a kernel adds or multiplies many floats."""
    return any(
        n.op is Ops.REDUCE and n.dtype.is_float and n.arg.op in (Ops.ADD, Ops.MUL)
        for n in sink.toposort()
    )
