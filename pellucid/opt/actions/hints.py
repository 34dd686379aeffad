"""Actions that advise how memory is touched. They leave the loops as they are.

LOOP form -> LOOP form: the advice stands in `KernelInfo.hints`, by the slot of a parameter, and
`follow_hints` does it when all loops are known.

    prefetch(axis, slot)   while one turn of the axis is worked at, ask for what the next one
                           touches of the parameter; a third part says how many turns ahead.
                           Where an index in memory says what that is, the index is read ahead
    stream(0, slot)        write the parameter past the caches, which then need not be filled from
                           memory first, and keep what else is in them

Before and after `prefetch(0, 1)` of sums of the rows of x, slot 1, which are 1024 long:

    SINK(…, arg=KernelInfo())
    SINK(…, arg=KernelInfo(hints=(Hint('prefetch', 1, ahead=1024),)))

Processors ask for memory ahead on their own as long as reads go on evenly; they stop where a loop
comes to its end, and at the end of a page. So this is of use where several loops work at one row,
and the row is read in only one of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from pellucid.core.target import Target
from pellucid.ir.arg import Action, Hint
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, kept
from pellucid.opt.actions.legal import refuse
from pellucid.opt.axes import stride_of


def prefetch(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Ask for what later turns of *axis* touch of a parameter; the amount is its slot."""
    slot = action.amount
    turns = action.extra[0] if action.extra else 1
    if type(turns) is not int or turns < 1:
        raise refuse(action, f"{turns!r} turns are no distance")
    accesses = accesses_of(sink, slot)
    if not accesses:
        raise refuse(action, f"parameter {slot} is not touched by the kernel")
    if all(is_sought(access, axis) for access in accesses):
        return with_hint(sink, action, Hint("seek", slot, turns))
    strides = {step_of(access.src[1], axis) for access in accesses}
    if None in strides or len(strides) > 1:
        raise refuse(action, f"its turns do not move evenly along parameter {slot}")
    ahead = (strides.pop() or 0) * turns
    if ahead == 0:
        raise refuse(action, f"each of its turns touches the same of parameter {slot}")
    return with_hint(sink, action, Hint("prefetch", slot, ahead))


def step_of(place: UOp, axis: UOp) -> int | None:
    """By how much *place* grows when *axis* does by one, as `stride_of`; the last of parts that
    overlap lies where it would without.

    >>> i, j = UOp.range(3, 0), UOp.range(4, 1)
    >>> step_of(((i * 4).minimum(6) + j) * 5, i), step_of(j % 3, j)
    (20, None)
    """
    nodes = place.toposort()
    clamped = {n: n.src[0] for n in nodes if n.op is Ops.MIN and n.src[1].is_const}
    return stride_of(place.substitute(clamped) if clamped else place, axis)


def is_sought(access: UOp, axis: UOp) -> bool:
    """True where a parameter is read at a place that memory holds, another one in each turn."""
    inside = access.src[1].toposort()
    is_known = any(n.op in (Ops.AFTER, Ops.REDUCE) for n in inside)
    return not is_known and any(n.op is Ops.INDEX and axis in n.ranges for n in inside)


def stream(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Write a parameter past the caches; the amount is its slot."""
    slot = action.amount
    stores = {n.src[0] for n in sink.toposort() if n.op is Ops.STORE}
    if not target.has_lanes:
        raise refuse(action, "the target has no vectors")
    if not stores.intersection(accesses_of(sink, slot)):
        raise refuse(action, f"parameter {slot} is not written by the kernel")
    if is_read(sink, slot):
        raise refuse(action, f"parameter {slot} is read by the kernel too")
    return with_hint(sink, action, Hint("stream", slot))


@kept
def all_accesses(sink: UOp) -> Mapping[int, list[UOp]]:
    """The INDEXes at which a kernel touches its parameters, by slot."""
    found: dict[int, list[UOp]] = {}
    for node in sink.toposort():
        if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
            found.setdefault(node.src[0].arg.slot, []).append(node)
    return found


def accesses_of(sink: UOp, slot: int) -> list[UOp]:
    """The INDEXes at which a kernel touches the parameter at *slot*."""
    return all_accesses(sink).get(slot, [])


def bytes_of(accesses: Iterable[UOp]) -> int:
    """About how many bytes of one parameter its accesses touch, each place counted once."""
    most = 0
    for access in accesses:
        count = math.prod(bounds(r).max + 1 for r in access.src[1].ranges)
        most = max(most, min(count, access.src[0].arg.size) * access.src[0].dtype.itemsize)
    return most


def is_read(sink: UOp, slot: int) -> bool:
    """True where a kernel uses the value of an element of the parameter at *slot*."""
    return slot in _slots_read(sink)


@kept
def _slots_read(sink: UOp) -> set[int]:
    """The slots of all parameters of which the value of an element is used."""
    return {
        source.src[0].arg.slot
        for node in sink.toposort()
        for source in (node.src[1:] if node.op is Ops.STORE else node.src)
        if source.op is Ops.INDEX and source.src[0].op is Ops.PARAM
    }


def with_hint(sink: UOp, action: Action, hint: Hint) -> UOp:
    """The kernel with one hint more; there is one of each kind for a parameter."""
    hints: tuple[Hint, ...] = sink.arg.hints
    if any((h.kind, h.slot) == (hint.kind, hint.slot) for h in hints):
        raise refuse(action, f"parameter {hint.slot} has this hint already")
    return sink.replace(arg=dataclasses.replace(sink.arg, hints=(*hints, hint)))
