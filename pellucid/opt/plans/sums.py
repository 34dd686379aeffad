"""Read a kernel that is one sum of products over several axes, and put its loops in order.

    END(STORE(y[…], REDUCE(x[…] * k[…], c, i, j)), n, o, h, w)   ->   Sum(node, outputs, reads)

Convolutions and their gradients are such kernels. Which axis becomes lanes is what windows.py,
channels.py and dots.py differ in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import all_ends, axes_of, end_of, lone_reduction, size_of, stores_of
from pellucid.opt.cost import price
from pellucid.opt.plans.plan import Plan
from pellucid.opt.plans.shares import THREADING_US


@dataclass(frozen=True)
class Sum:
    """node: the REDUCE.  outputs: the loops around it.  reads: what each factor reads, if one."""

    node: UOp
    outputs: tuple[UOp, ...]
    reads: tuple[UOp | None, ...]
    places: tuple[UOp, ...]
    """Where the results are stored."""

    @staticmethod
    def of(sink: UOp, least_axes: int = 2) -> Sum | None:
        """Read a kernel, or give None; also where it sums over fewer axes."""
        found = lone_reduction(sink)
        if found is None:
            return None
        node, outputs = found
        is_sum = node.arg.op is Ops.ADD and node.dtype.is_float and node.src[0].op is Ops.MUL
        if not is_sum or len(node.src) <= least_axes:
            return None
        reads = tuple(read_below(side) for side in node.src[0].src)
        places = tuple(s.src[0].src[1] for s in stores_of(sink))
        return Sum(node, outputs, reads, places)

    @property
    def work(self) -> int:
        """How many products are added."""
        return count(self.outputs) * self.length

    @property
    def length(self) -> int:
        """How many products make one sum."""
        return count(self.node.src[1:])


def work_after(sink: UOp, node: UOp) -> float:
    """How many operations follow the sum *node*, for each result."""
    nodes = set(sink.toposort()).difference(node.src[0].toposort())
    return sum(price(n) for n in nodes if _follows(n))


def _follows(node: UOp) -> bool:
    """True for work on results; what is the same for all of them is done once."""
    return node.op.is_elementwise and not node.dtype.is_index and bool(node.ranges)


def count(axes: Sequence[UOp]) -> int:
    """How many turns loops inside of each other take together.

    >>> count([UOp.range(4, 0), UOp.range(3, 1)]), count([])
    (12, 1)
    """
    return math.prod(size_of(axis) or 1 for axis in axes)


def read_below(side: UOp) -> UOp | None:
    """The one INDEX of a parameter that a side of a product is, below casts and padding."""
    while side.op is Ops.CAST or (side.op is Ops.WHERE and side.src[2].is_const):
        side = side.src[0 if side.op is Ops.CAST else 1]
    return side if side.op is Ops.INDEX and side.src[0].op is Ops.PARAM else None


def pays_threads(target: Target, busy_us: float) -> bool:
    """True where so much work is worth waking threads."""
    return target.has_threads and target.cores > 1 and busy_us >= THREADING_US


def loops_around(plan: Plan, number: int) -> list[int]:
    """The loops that are closed together with one of them."""
    end = end_of(plan.sink, plan.axis(number))
    assert end is not None, "it is an output axis"
    return [r.arg.id for r in end.src[1:]]


def put(plan: Plan, wanted: Sequence[int], reason: str) -> None:
    """Put the first loops of one nest in order."""
    for place, number in enumerate(wanted):
        now = loops_around(plan, number)[place]
        if now != number:
            plan.do("swap", now, axes_of(plan.sink).index(plan.axis(number)), reason)


def lanes_along(plan: Plan, number: int, lanes: int, reason: str) -> None:
    """Lanes along a loop of whole vectors, and a copy for each vector."""
    found = plan.do("lanes", number, lanes, "accesses are contiguous along it")
    if found.outer is not None:
        plan.do("upcast", found.outer, 0, reason)


def nests_of(sink: UOp) -> list[tuple[int, ...]]:
    """The loops around each group of STOREs that no other loop divides."""
    ends = [e for e in all_ends(sink) if e.src[0].op in (Ops.STORE, Ops.GROUP)]
    return [
        tuple(r.arg.id for r in e.src[1:])
        for e in ends
        if e.src[0].op is Ops.STORE or all(s.op is Ops.STORE for s in e.src[0].src)
    ]
