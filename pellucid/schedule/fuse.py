"""Decide what is computed with whom: is this value stored, and if so, why?

Form: TENSOR; the answer is a sentence, which the kernel keeps (CallInfo.reason), or None: computed
by those who want it.

    relu(x @ w + b)        one kernel: each sum is used once, where it was made
    softmax(x) of rows     one: a maximum and a sum for each row, before its elements
    x - x.sum()            two, where x is large: each of them can be shared out among cores
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
from dataclasses import field

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft
from pellucid.schedule.factors import reads_plainly
from pellucid.schedule.facts import SMALL_REDUCE, Facts, reduced_elems
from pellucid.schedule.nests import Around, executions, loops_around, ranges_of
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
FOLLOWED = "another reduction follows"

ROWS_PER_CORE = 4
"""So many rows for each core at least, where reductions of rows keep loops inside of them."""

MAX_STREAMS = 32
"""In so many places at a time processors read ahead. (A softmax over 21 channels of pictures took 9
% less in one kernel, a layer norm 25 %; over 64 channels 30 to 40 % more.)"""

MAX_LOOPS_OF_ROW = 4
"""So many loops over a row may want a value before it is stored for all of them."""

SMALL_WORK = 65_536
"""Elements that one core combines before another one would be of use."""


@dataclass(frozen=True)
class Wanted:
    """Who wants a value, at which indices, how many elements in all (with repetitions)."""

    by: Mapping[Draft, Mapping[Use, int]]
    around: Around = field(default_factory=dict)

    @property
    def num_evaluations(self) -> int:
        """Elements that would be computed if every kernel computed its own."""
        return sum(sum(uses.values()) for uses in self.by.values())

    @property
    def num_executions(self) -> int:
        """The same, but what depends on outer loops only is computed outside of the others."""
        return sum(
            min(count, executions(kernel, use, self.around))
            for kernel, uses in self.by.items()
            for use, count in uses.items()
        )

    @property
    def num_uses(self) -> int:
        """Distinct places, over all kernels."""
        return sum(len(uses) for uses in self.by.values())


def why_stored(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    """The reason to store *node* in memory, or None: those who want it compute it.

    Nodes that the op or the user says are stored do not come here.
    """
    if facts.is_stored_anyway(node):
        return node.arg.reason if node.op is Ops.STAGE else _ALWAYS[node.op]
    if node.op is Ops.REDUCE:
        return _why_reduce_stored(node, wanted, facts) or _why_over_limit(node, wanted, facts)
    moves = node.op.is_movement and node.op is not Ops.PAD
    if moves or not node.src or node.op in (Ops.PAIR, Ops.CHECK, Ops.COPY):
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
    ((kernel, uses),) = wanted.by.items()
    valid = next(iter(uses))[1]
    is_small = reduced_elems(node) <= SMALL_REDUCE
    waste = SMALL_WASTE if is_small and valid is not None else 1.0
    apart = _why_apart(node, wanted, facts, is_small, waste)
    if apart is not None or wanted.num_evaluations > kernel.num_iterations:
        return apart
    if kernel.loops and not is_small and not _has_loops_of(kernel, node):
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
    if len(wanted.by) > 1:
        return REDUCED_AGAIN if wanted.num_evaluations > node.num_elems else None
    is_small = node not in facts.carries_large
    waste = SMALL_WASTE if _is_small_waste(node, wanted, facts) else 1.0
    return _why_apart(node, wanted, facts, is_small, waste)


def _why_apart(node: UOp, wanted: Wanted, facts: Facts, is_small: bool, waste: float) -> str | None:
    """The reason not to reduce in the only kernel that wants *node* or what follows it."""
    (kernel,) = wanted.by
    if kernel.ordered:
        return "a reduction does not belong into a scatter"
    if wanted.num_executions > node.num_elems * waste and not _can_lead(
        node, kernel, wanted, facts
    ):
        return REDUCED_AGAIN
    again = wanted.num_evaluations > node.num_elems * waste
    follows = wanted.num_evaluations > kernel.num_iterations
    if is_small or not (again or follows):
        return None
    return _why_not_in_rows(node, kernel, wanted, facts)


def _can_lead(node: UOp, kernel: Draft, wanted: Wanted, facts: Facts) -> bool:
    """Let the ranges that *node* depends on stand outermost, if it is computed once then.

    The kernel walks memory in another order: only where lines are still used whole, where they
    stay in cache until all of each has been used, or where it reads few of them side by side.
    """
    if wanted.num_uses > 1:
        return False
    ((kernel, uses),) = wanted.by.items()
    (use,) = uses
    needed = frozenset(ranges_of(use))
    if not needed < set(kernel.ranges):
        return False
    if math.prod(int(r.src[0].arg) for r in needed) > node.num_elems:
        return False
    whole_lines = kernel.ranges[-1] not in needed
    is_far = kernel.num_iterations * node.dtype.itemsize > facts.target.l2_bytes
    if not whole_lines and is_far and facts.rows[node].elems > MAX_STREAMS:
        return False
    return kernel.lead(needed)


def _why_not_in_rows(node: UOp, kernel: Draft, wanted: Wanted, facts: Facts) -> str | None:
    """The reason not to reduce once for each row of a kernel that then uses the row again."""
    row = facts.rows[node]
    (use, *_) = wanted.by[kernel]
    inside = loops_around(kernel, use, wanted.around)
    outer = math.prod(int(r.src[0].arg) for r in kernel.ranges if r in inside)
    if row.contracts or kernel.contracts:
        return REDUCED_AGAIN if outer == wanted.num_executions else FOLLOWED
    work = kernel.num_iterations + wanted.num_executions * row.elems
    if outer < ROWS_PER_CORE * facts.target.cores and work > SMALL_WORK:
        return "too few rows to share out among the cores"
    if row.bytes > facts.target.l2_bytes:
        return "a row does not stay in cache"
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


def _is_kept_in_row(node: UOp, wanted: Wanted, facts: Facts) -> bool:
    """True for a value of a row that a reduction and other loops over the row use.

    The kernel keeps it in local memory if it is dear (the action `stage`).
    """
    if len(wanted.by) > 1 or wanted.num_uses > MAX_LOOPS_OF_ROW:
        return False
    ((kernel, uses),) = wanted.by.items()
    if kernel.contracts or kernel.ordered:
        return False
    loops = [loops_around(kernel, use, wanted.around) for use in uses]
    if not any(loop.difference(kernel.ranges) for loop in loops):
        return False
    outer = frozenset.intersection(*map(frozenset, loops))
    rows = math.prod(int(r.src[0].arg) for r in outer)
    row_bytes = node.num_elems / rows * node.dtype.itemsize
    again = any(executions(kernel, use, wanted.around) > node.num_elems for use in uses)
    return outer in kernel.leading and not again and row_bytes <= facts.target.l2_bytes / 2


def _is_converted_by_product(node: UOp, wanted: Wanted, facts: Facts) -> bool:
    """True for a factor of a matrix product, which converts it while copying it."""
    if node not in facts.narrow_factors or len(wanted.by) > 1:
        return False
    ((kernel, uses),) = wanted.by.items()
    return kernel.contracts and all(map(reads_plainly, uses))


def _why_cheaper_stored(node: UOp, wanted: Wanted, facts: Facts) -> str | None:
    if _is_converted_by_product(node, wanted, facts) or node in facts.scaled_factors:
        return None
    elems, cost = node.num_elems, facts.cost[node]
    if cost.ops == 0 or wanted.num_evaluations <= elems:
        return None
    uses = wanted.num_executions
    if uses <= elems or _is_kept_in_row(node, wanted, facts):
        return None
    if len(wanted.by) > 1 and cost.ops > MAX_SHARED_OPS:
        return "several kernels use it, and it takes many operations"
    again = cost.ops + LOAD * cost.loads
    if uses * again <= elems * (again + STORE) + uses * LOAD + LAUNCH:
        return None
    times = uses / elems
    return f"wanted {times:.3g} times for each element, and dearer than a load"
