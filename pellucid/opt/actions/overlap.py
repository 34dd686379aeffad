"""An axis is cut in parts of one size, the last of which starts earlier: no smaller part is left.

LOOP form -> LOOP form: the action `overlap`. Of 10 elements by 4, before and after:

    END(STORE(y[i], x[i]), i over 10)
    END(STORE(y[min(o * 4, 6) + j], x[min(o * 4, 6) + j]), o over 3, j over 4)

The parts are 0 to 3, 4 to 7 and 6 to 9: two elements are computed and stored twice, with the same
value. Where `split` leaves a second body for the rest, there is one here, so that half as much has
to be compiled. `pays_overlap` says where little enough is done twice.

Storing twice is harmless where nothing that the nest stores is read in it, and one thread does
both: neither thread nor work-group may be made of the loop over parts, or of one inside of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import (
    buffer_of,
    known_size,
    refuse,
    require_free_order,
    require_loop,
    require_no_buffer_inside,
)
from pellucid.opt.axes import end_of, stores_of, stride_of

MOST_TWICE = 16
"""Of so many elements of an axis, one may be computed twice: less code is worth that."""


def overlap(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """o over parts of the amount, i over the amount, at min(o * amount, size - amount) + i."""
    require_free_order(sink, action)
    require_loop(action, axis)
    size, amount = known_size(action, axis), action.amount
    end = end_of(sink, axis)
    if end is None:
        raise refuse(action, "it is reduced, and would add some elements twice")
    if not 2 <= amount < size:
        raise refuse(action, f"the amount {amount} is not between 1 and its size {size}")
    if size % amount == 0:
        raise refuse(action, f"its size {size} is a multiple of {amount}; split it")
    require_no_buffer_inside(sink, action, axis)
    require_stored_alone(action, end)
    number, kind = next_range_id(sink), axis.arg.kind
    outer = UOp.range(-(-size // amount), number, kind)
    inner = UOp.range(amount, number + 1, kind)
    place = (outer * amount).minimum(size - amount) + inner
    body = substitute_free(end.src[0], {axis: place})
    at = end.src.index(axis)
    return sink.substitute({end: body.end(*end.src[1:at], outer, inner, *end.src[at + 1 :])})


def require_stored_alone(action: Action, end: UOp) -> None:
    """Nothing that the nest stores is read in it: the second time would see the first."""
    stored = {buffer_of(store.src[0].src[0]) for store in stores_of(end)}
    for node in end.toposort():
        read = node.src[1:] if node.op is Ops.STORE else node.src
        if any(s.op is Ops.INDEX and buffer_of(s.src[0]) in stored for s in read):
            raise refuse(action, "the nest reads what it stores")


def require_no_overlap(sink: UOp, action: Action, axis: UOp) -> None:
    """Different turns of the axis store different elements: several threads may run them."""
    if overlaps(sink, axis):
        raise refuse(action, "parts of it overlap, and two threads would store one element")


def overlaps(sink: UOp, axis: UOp) -> bool:
    """True for an output axis whose turns may store the same elements.

    That is the loop over parts that overlap, and the loops inside of a part: element 6 of
    y[min(o * 4, 6) + j] is that of j = 2 in one part and of j = 0 in the next.
    """
    end = end_of(sink, axis)
    places = [store.src[0].src[1] for store in stores_of(end)] if end is not None else []
    return any(_stores_in_common(place, axis) for place in places)


def _stores_in_common(place: UOp, axis: UOp) -> bool:
    """True when turns of *axis* may agree in *place*, which has parts that overlap."""
    if not any(node.op is Ops.MIN and node.ranges for node in place.toposort()):
        return False
    own = abs(stride_of(place, axis) or 0)
    others = [
        (base, f) for base, f in _parts_of(place, 1) if base is not axis and not base.is_const
    ]
    if any(axis in base.ranges for base, _ in others):
        return True
    below = sum(f * _reach(base) for base, f in others if f < own)
    above = math.gcd(*(f for _, f in others if f >= own))
    return own <= below or 0 < above <= own * _reach(axis) + below


def _parts_of(place: UOp, factor: int) -> Iterator[tuple[UOp, int]]:
    """The terms of a sum, with how many times each is in it, without the sign."""
    if place.op is Ops.ADD:
        for part in place.src:
            yield from _parts_of(part, factor)
    elif place.op is Ops.MUL and place.src[1].is_const:
        yield from _parts_of(place.src[0], factor * abs(int(place.src[1].arg)))
    else:
        yield place, factor


def _reach(base: UOp) -> int:
    found = bounds(base)
    return found.max - found.min


def pays_overlap(size: int, amount: int) -> bool:
    """True where a rest would be left, and little is done twice without it.

    >>> [pays_overlap(size, 6) for size in (1024, 64, 20, 12)]
    [True, True, False, False]
    """
    return amount > 1 and size % amount > 0 and -size % amount * MOST_TWICE <= size
