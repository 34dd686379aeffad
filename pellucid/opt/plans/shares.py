"""Share out one loop of a nest among threads: the one that keeps all cores busy longest.

    loops over 3 and over 64, 2 cores   ->   thread(the one over 64); 3 would leave a core idle

The loop becomes the outermost of its nest.
"""

from __future__ import annotations

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.overlap import overlaps
from pellucid.opt.axes import axes_of, end_of, size_of
from pellucid.opt.plans.plan import Plan

THREADING_US = 100.0
"""Kernels that take longer than this are worth waking threads."""
BALANCED = 0.9
"""A loop that keeps cores busy for so much of their time is as good as any."""


def thread_best(plan: Plan, numbers: list[int], reason: str) -> None:
    """Share out the one of some loops that keeps all cores busy longest."""
    present = {a.arg.id: a for a in axes_of(plan.sink)}
    loops = [present[n] for n in numbers if n in present]
    loops = [r for r in loops if r.arg.kind is AxisKind.LOOP and (size_of(r) or 1) > 1]
    loops = [r for r in loops if not overlaps(plan.sink, r)]
    if not loops:
        return
    axis = max(loops, key=lambda r: (round(balance(r, plan.target.cores), 1), -loops.index(r)))
    end = end_of(plan.sink, axis)
    if end is None or not is_outermost(plan.sink, end):
        return
    first = end.src[1]
    if first is not axis:
        place = axes_of(plan.sink).index(first)
        plan.do("swap", axis.arg.id, place, "the axis for threads stands outermost")
    plan.do("thread", axis.arg.id, 0, reason)


def is_outermost(sink: UOp, end: UOp) -> bool:
    """True for a nest that no other nest stands around."""
    parts = list(sink.src)
    while parts:
        part = parts.pop()
        if part is end:
            return True
        parts += part.src if part.op is Ops.GROUP else ()
    return False


def balance(axis: UOp, cores: int) -> float:
    """The part of the cores' time that is used when they share an axis."""
    size = size_of(axis) or 1
    return size / (-(-size // cores) * cores)
