"""Actions that give an output axis to the launch of a grid: work-groups, and the items of each.

LOOP form -> LOOP form. They are for targets that launch a kernel as a grid; elsewhere they are
refused, and `thread` is what there is.

    group(axis)      each turn of the axis is a work-group of its own
    local(axis)      each turn of the axis is an item of a work-group
    local(axis, n)   n turns side by side are: the axis is split, and the inner part is taken

Before and after `local(0, 64)` and `group(0)` of 1024 elements, and what `assign_grid` makes of it:

    END(STORE(y[i], …), i over 1024)
    END(STORE(y[g * 64 + l], …), g GLOBAL over 16, l LOCAL over 64)
    STORE(y[SPECIAL group0 * 64 + SPECIAL local0], …)

Source: The OpenCL Specification 3.0, section 3.2 (execution model).
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import (
    buffer_uses,
    known_size,
    refuse,
    require_free_order,
    require_loop,
    require_output_at_top,
)
from pellucid.opt.axes import axes_of, end_of, size_of

MAX_DIMENSIONS = 3
"""How many dimensions a grid has."""
MAX_ITEMS = 256
"""How many items a work-group has at most: what all targets can do."""


def require_grid(sink: UOp, action: Action, axis: UOp, target: Target, kind: AxisKind) -> None:
    """The target launches grids, and one more dimension of a *kind* fits this kernel."""
    require_free_order(sink, action)
    require_loop(action, axis)
    if not target.has_groups:
        raise refuse(action, "the target has no work-groups")
    require_output_at_top(sink, action, axis)
    end = end_of(sink, axis)
    assert end is not None, "an output axis is closed by an END"
    others = [r for r in end.src[1:] if r.arg.kind is kind]
    if len(others) == MAX_DIMENSIONS:
        raise refuse(action, f"{MAX_DIMENSIONS} axes of its nest are {kind.value} already")
    if any(r.arg.kind is AxisKind.THREAD for r in axes_of(sink)):
        raise refuse(action, "another axis is shared out among threads")
    if kind is AxisKind.LOCAL and next(buffer_uses(sink), None) is not None:
        raise refuse(action, "the items of a group would share a buffer that each of them fills")


def require_few_items(sink: UOp, action: Action, axis: UOp) -> None:
    """The work-group, with the items along *axis*, is not too large."""
    size = action.amount or known_size(action, axis)
    end = end_of(sink, axis)
    for other in end.src[1:] if end is not None else ():
        if other.arg.kind is AxisKind.LOCAL and other.op is Ops.RANGE:
            size *= size_of(other) or 1
    if size > MAX_ITEMS:
        raise refuse(action, f"{size} items of a group are more than {MAX_ITEMS}")
