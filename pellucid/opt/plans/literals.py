"""Axes whose copies turn arithmetic on them into literals.

    y[i] = where(j < 1, min(a, b), max(a, b))     j over 2: copies are min(a, b) and max(a, b)
    x[(i * 3 + j) // 4]                           j over 3: copies divide nothing where 3 i is known
    sum over k of where(k <= j, x[k], 0)          k over 16: copies compare literals with lanes

LOOP form, unchanged: these are the questions that the hand-written choice of actions asks.
"""

from __future__ import annotations

from collections.abc import Container

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import size_of
from pellucid.opt.cost import copies_of
from pellucid.opt.plans.plan import Plan

_COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)


def is_compared(plan: Plan, number: int) -> bool:
    """True when values depend on how an axis compares with another one, as in a running sum."""
    axis = plan.axis(number)
    return any(
        n.op in _COMPARISONS and len(n.ranges) > 1 and axis in n.ranges and _is_place(n.src[0])
        for n in plan.sink.toposort()
    )


def _is_place(node: UOp) -> bool:
    """True for integers that are computed from RANGEs alone."""
    return node.dtype.is_int and not any(n.op is Ops.INDEX for n in node.toposort())


def divided_axes(sink: UOp, kept: Container[UOp], most_nodes: int) -> list[UOp]:
    """Short axes that index arithmetic divides, in kernels small enough to copy; not the *kept*."""
    nodes = sink.toposort()
    divisions = [n for n in nodes if n.op in (Ops.FLOORDIV, Ops.FLOORMOD) and n.dtype.is_index]
    divided = {r: None for n in divisions for r in n.ranges}
    copies = max(copies_of(n) for n in nodes)
    most = most_nodes // max(1, len(nodes) // 2 * copies)
    return [r for r in divided if r not in kept and 2 <= (size_of(r) or 0) <= most]


def halved_axes(sink: UOp, kept: Container[UOp], most_nodes: int) -> list[UOp]:
    """Axes of size 2 that tell what is made of two elements, as the smaller and the larger one."""
    nodes = sink.toposort()
    if len(nodes) > most_nodes // 2:
        return []
    told = {n.ranges[0]: None for n in nodes if n.op in _COMPARISONS and len(n.ranges) == 1}
    return [axis for axis in told if axis not in kept and size_of(axis) == 2]
