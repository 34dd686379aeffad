"""An axis whose size does not suit vectors becomes longer, and what is too much is not touched.

LOOP form -> LOOP form: the action `pad`. Of 10 elements by 4, before and after:

    END(STORE(y[i], x[i] * 2), i over 10)
    END(STORE(y[i] if i < 10, (x[i] if i < 10) * 2), i over 12)

    REDUCE(x[i] * y[i], i over 10)
    REDUCE((x[i] if i < 10) * (y[i] if i < 10), i over 12)

A read beyond the edge gives 0 without access, a STORE beyond it does nothing: the target does both
by masks. Where bounds prove that i < 10, as in all vectors but the last, no mask is left.
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.transform import rebuild
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import (
    known_size,
    refuse,
    require_free_order,
    require_loop,
    require_no_buffer_inside,
)
from pellucid.opt.axes import end_of, reduces_over, stores_of


def pad(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Make an output axis, or one that products are summed along, a multiple of the amount long."""
    require_free_order(sink, action)
    require_loop(action, axis)
    size, amount = known_size(action, axis), action.amount
    end = end_of(sink, axis)
    if amount < 2:
        raise refuse(action, "the amount is less than 2")
    if size % amount == 0:
        raise refuse(action, f"its size {size} is a multiple of {amount} already")
    require_no_buffer_inside(sink, action, axis)
    if end is None:
        nodes = reduces_over(sink, axis)
        for node in nodes:
            _require_products(action, node, axis)
    else:
        nodes = [end]
        _require_harmless(action, end, axis)
    longer = axis.with_sources((axis.src[0].const_like(-(-size // amount) * amount),))
    valid = longer < size

    def padded(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        if node is axis:
            return longer
        if node.op is Ops.INDEX and axis in node.ranges:
            inside = sources[2] & valid if len(sources) > 2 else valid
            return node.with_sources((*sources[:2], inside))
        return node.with_sources(sources)

    return sink.substitute({node: rebuild(node, padded) for node in nodes})


def _require_products(action: Action, node: UOp, axis: UOp) -> None:
    """What is summed beyond the edge is 0, since both factors are read there; of integers, one."""
    is_sum = node.arg.op is Ops.ADD and node.src[0].op is Ops.MUL
    found = [is_sum and _is_read_along(side, axis) for side in node.src[0].src]
    if not (all(found) if node.dtype.is_float else any(found)):
        raise refuse(action, "it is reduced, and not to a sum of products of what is read along it")


def _is_read_along(side: UOp, axis: UOp) -> bool:
    while side.op is Ops.CAST:
        side = side.src[0]
    return side.op is Ops.INDEX and axis in side.ranges


def _require_harmless(action: Action, end: UOp, axis: UOp) -> None:
    """Nothing that is computed beyond the edge may do anything."""
    if any(axis not in store.src[0].ranges for store in stores_of(end.src[0])):
        raise refuse(action, "an output does not move along it")
    for node in end.src[0].toposort():
        divides = node.op in _DIVISIONS and not node.src[1].is_const
        if divides and axis in node.ranges and not node.dtype.is_float:
            raise refuse(action, "a division by what is read beyond the edge would fail")


_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
