"""Decide what is computed with whom: is this value stored, and if so, why?

Form: TENSOR; the answer is a sentence, which the kernel keeps (CallInfo.reason), or None: computed
by those who want it.

    relu(x @ w + b)        one kernel: each sum is used once, where it was made
    x - x.sum()            two: the sum would be computed again for every element
    exp(x) wanted twice    computed twice, if that is as cheap as a load; stored, if it is not

Hard rules (architecture.md, section 9): a reduction is never computed again inside a wider range
than its own; a value that is as cheap to compute as to load is not stored; limits of a kernel hold.
Between the rules a cost decides, in units of one vector operation on one element:

    computed where wanted:   uses * (ops + LOAD * loads)
    stored:                  elems * (ops + LOAD * loads + STORE) + uses * LOAD + LAUNCH
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft
from pellucid.schedule.facts import SMALL_REDUCE, Facts, reduced_elems
from pellucid.schedule.views import Use

MAX_NODES = 400
"""Compute nodes of one kernel: more cost more compile time than the saved loads are worth."""

MAX_BUFFERS = 60
"""Buffers that one kernel reads."""

LOAD, STORE, LAUNCH = 8.0, 8.0, 20_000.0
MAX_SHARED_OPS = 32
"""A value of more operations is not copied into several kernels, however few elements it has."""

SMALL_WASTE = 1.75
"""A reduction of few elements may run for padding too, if that is not much more than without."""

REDUCED_AGAIN = "the reduction is used over a wider range than its own"


@dataclass(frozen=True)
class Wanted:
    """Who wants a value, at which indices, how many elements in all (with repetitions)."""

    by: Mapping[Draft, Mapping[Use, int]]

    @property
    def num_evaluations(self) -> int:
        """Elements that would be computed if every kernel computed its own."""
        return sum(sum(uses.values()) for uses in self.by.values())

    @property
    def num_executions(self) -> float:
        """The same, but what depends on outer loops only is computed outside of the others."""
        return sum(
            min(count, executions(kernel, use))
            for kernel, uses in self.by.items()
            for use, count in uses.items()
        )

    @property
    def num_uses(self) -> int:
        """Distinct places, over all kernels."""
        return sum(len(uses) for uses in self.by.values())


def executions(kernel: Draft, use: Use) -> float:
    """How often *kernel* computes a value at *use*: once in the innermost loop that it depends on.

    For a value that depends on the range of a reduction, no bound is known here.
    """
    index, valid = use
    needed = {r for part in (*index, valid) if part is not None for r in part.ranges}
    if any(r.arg.kind is AxisKind.REDUCE for r in needed):
        return math.inf
    sizes = [int(r.src[0].arg) for r in kernel.ranges]
    while sizes and kernel.ranges[len(sizes) - 1] not in needed:
        sizes.pop()
    return float(math.prod(sizes))


def why_stored(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    """The reason to store *node* in memory, or None: those who want it compute it.

    Nodes that the op or the user says are stored do not come here.
    """
    if facts.is_stored_anyway(node):
        return node.arg.reason if node.op is Ops.STAGE else _ALWAYS[node.op]
    if node.op is Ops.REDUCE:
        return _why_reduce_stored(node, wanted, facts) or _why_over_limit(node, wanted, facts)
    moves = node.op.is_movement and node.op is not Ops.PAD
    if moves or not node.src or node.op is Ops.CHECK or node.op is Ops.COPY:
        return None
    return (
        _why_reduction_below_stored(node, wanted, facts)
        or _why_over_limit(node, wanted, facts)
        or _why_cheaper_stored(node, wanted, facts)
    )


_ALWAYS = {
    Ops.CONTIGUOUS: "contiguous asked for",
    Ops.WRITE: "a write",
    Ops.SCATTER: "a scatter",
    Ops.COPY: "a copy to another device",
}


def _why_reduce_stored(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    if len(wanted.by) > 1:
        return "several kernels use the reduction"
    kernel, uses = next(iter(wanted.by.items()))
    (_, valid), *others = uses
    small = reduced_elems(node) <= SMALL_REDUCE
    waste = SMALL_WASTE if small and valid is not None else 1.0
    if others or wanted.num_evaluations > node.num_elems * waste:
        return REDUCED_AGAIN
    if kernel.ordered:
        return "a reduction does not belong into a scatter"
    if wanted.num_evaluations > kernel.num_iterations and not small:
        return "another reduction follows"
    if kernel.loops and not small and not _has_loops_of(kernel, node):
        return "the kernel has another reduction, over other ranges"
    return None


def _has_loops_of(kernel: Draft, node: UOp) -> bool:
    shape = node.src[0].known_shape
    sizes = tuple(shape[axis] for axis in node.arg.axes if shape[axis] != 1)
    return kernel.loops <= {sizes}


def _why_reduction_below_stored(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    """What follows a reduction is stored with it, where the reduction itself would have to be."""
    if node not in facts.carries_reduce or node.op is Ops.PAD:
        return None
    if wanted.num_evaluations > node.num_elems and not _is_small_waste(node, wanted, facts):
        return REDUCED_AGAIN
    if any(k.ordered for k in wanted.by):
        return "a reduction does not belong into a scatter"
    follows = any(sum(uses.values()) > k.num_iterations for k, uses in wanted.by.items())
    if follows and node in facts.carries_large:
        return "another reduction follows"
    return None


def _is_small_waste(node: UOp, wanted: Wanted, facts: Facts) -> bool:
    if node in facts.carries_large or len(wanted.by) > 1 or wanted.num_uses > 1:
        return False
    ((_, valid),) = next(iter(wanted.by.values()))
    return valid is not None and wanted.num_evaluations <= node.num_elems * SMALL_WASTE


def _why_over_limit(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    for kernel, uses in wanted.by.items():
        if kernel.num_nodes + len(uses) > MAX_NODES:
            return f"over the limit of {MAX_NODES} operations in a kernel"
        if node not in facts.has_storage:
            continue
        fresh = {s for s in node.src if s in facts.has_storage} - kernel.frontier
        if len(kernel.frontier) - 1 + len(fresh) + len(kernel.reads) > MAX_BUFFERS:
            return f"over the limit of {MAX_BUFFERS} buffers in a kernel"
    return None


def _why_cheaper_stored(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    elems, cost = node.num_elems, facts.cost[node]
    if cost.ops == 0 or wanted.num_evaluations <= elems:
        return None
    uses = wanted.num_executions
    if uses <= elems:
        return None
    if len(wanted.by) > 1 and cost.ops > MAX_SHARED_OPS:
        return "several kernels use it, and it takes many operations"
    again = cost.ops + LOAD * cost.loads
    if uses * again <= elems * (again + STORE) + uses * LOAD + LAUNCH:
        return None
    times = uses / elems
    return f"wanted {times:.3g} times for each element, and dearer than a load"
