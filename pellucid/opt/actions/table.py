"""Actions: the steps that change the loop structure of a kernel, each with its check.

LOOP form -> LOOP form. An action never changes a value, but for the order in which a sum adds.

    split(axis, f)     i over n  ->  o over n // f, i over f; a second, specialised body for n % f
    lanes(axis)        the axis becomes the lanes of vectors
    upcast(axis)       an output axis becomes copies of the body
    unroll(axis)       a reduced axis becomes copies, each with an accumulator of its own
    thread(axis)       an output axis is shared out among threads
    group(axis)        each turn of an output axis is a work-group, on targets that have them
    local(axis)        each turn of an output axis is an item of a work-group (grid.py)
    swap(axis, other)  two axes of one nest change places
    stage(axis)        the dearest value that a reduction over the axis and other loops over the
                       same row compute is computed once, and kept in local memory (rows.py)
    each(0, lists)     in a kernel that fills local memory, each nest of loops takes a list of
                       actions of its own (nests.py)
    block(axis, n)     the rows of local memory that turns of an axis fill are made together, for
                       all of the axis, n elements of each at a time (blocks.py); with a length of
                       parts as a third thing, a softmax of them is made part by part (online.py),
                       with 0 there no row is kept from one pass to the next (remade.py)
    cascade(axis, f)   a long reduction is nested: REDUCE(REDUCE(x, f at a time), the rest), so that
                       every accumulator sums few terms and the rounding error stays small; without
                       an amount, the axis itself is the outer level and the others the inner one
    pad(axis, f)       an output axis grows to a multiple of f, masked at its end (edges.py)
    overlap(axis, f)   i over n  ->  o over parts, i over f; the last part starts earlier, in place
                       of a rest: some elements are stored twice (overlap.py)
    pack(axis, slot)   what the loops inside of the axis read of a parameter is copied first
    hoist(axis, n)     a reduced axis moves outside of all output loops but the first n
    compute(axis, n)   the nth reduction inside of the axis is computed there, in loops of its own,
                       and waits in memory (place.py)
    offset(axis, s)    the factor that reads parameter s of 8 bits, in a sum of products over the
                       axis, moves into the other type of 8 bits (offset.py)
    unit(axis, column) the innermost part of a sum of products is given to a matrix unit (units.py)
    prefetch(axis, s)  what the next turn of the axis touches of parameter s is asked for ahead
    stream(0, slot)    a parameter is written past the caches

lanes, upcast, unroll and local take an amount too: they split first, and take the inner part.
Splitting 10 by 4, before and after:

    END(STORE(y[i], x[i]), i over 10)
    GROUP(END(STORE(y[o * 4 + j], x[o * 4 + j]), o over 2, j over 4),
          END(STORE(y[r + 8], x[r + 8]), r over 2))

pack and hoist use memory of the kernel's own; they stand in buffers.py. prefetch and stream leave
the loops as they are; they stand in hints.py.

An action that is refused raises ActionError with the axis and the reason. Axes are named by their
place in `describe_axes`, which the actions before may have changed.

Source of cascade: blocked summation, N. J. Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, section 4.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind, RangeArg
from pellucid.ir.op import Ops
from pellucid.ir.pairs import is_of_pairs, joined, key_of, paired, value_of
from pellucid.ir.transform import Fresh, fresh_ranges, next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.actions.blocks import block
from pellucid.opt.actions.buffers import hoist, pack
from pellucid.opt.actions.edges import pad
from pellucid.opt.actions.grid import require_few_items, require_grid
from pellucid.opt.actions.hints import prefetch, stream
from pellucid.opt.actions.legal import (
    filled_along,
    known_size,
    next_define_id,
    refuse,
    require_free_order,
    require_loop,
    require_no_buffer_inside,
    require_output_at_top,
)
from pellucid.opt.actions.nests import each
from pellucid.opt.actions.offset import offset
from pellucid.opt.actions.overlap import overlap, require_no_overlap
from pellucid.opt.actions.place import compute
from pellucid.opt.actions.rows import stage
from pellucid.opt.actions.units import UNIT_KINDS, unit
from pellucid.opt.axes import axes_of, end_of, reduces_over, reductions

MAX_COPIES = 64
"""The most copies that upcasting or unrolling one axis may make."""


def apply_action(sink: UOp, action: Action, target: Target) -> UOp:
    """Apply one action to a kernel.

    Errors: ActionError when it does not exist or is not legal here.
    """
    step = _STEPS.get(action.kind)
    if step is None:
        known = ", ".join(sorted(_STEPS))
        raise refuse(action, f"there is no such action; actions are {known}")
    axes = axes_of(sink)
    if not 0 <= action.axis < len(axes):
        raise refuse(action, f"the kernel has {len(axes)} axes, which count from 0")
    if action.amount < 0:
        raise refuse(action, f"its amount {action.amount} is negative")
    if action.extra and action.kind not in _WITH_EXTRA:
        raise refuse(action, "it takes an axis and an amount, and no third thing")
    return step(sink, action, axes[action.axis], target)


Step = Callable[[UOp, Action, UOp, Target], UOp]


# ---- split -------------------------------------------------------------------------------------


def _split(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """o over n // f, i over f, and a second body for the rest."""
    require_free_order(sink, action)
    require_loop(action, axis)
    size, amount = known_size(action, axis), action.amount
    if amount < 2:
        raise refuse(action, "the amount is less than 2")
    if amount >= size:
        raise refuse(action, f"the amount {amount} is not below its size {size}")
    parts = _Parts(sink, axis, size, amount)
    end = end_of(sink, axis)
    if end is not None:
        return sink.substitute({end: parts.split_end(end)})
    return sink.substitute({r: parts.split_reduce(r) for r in reduces_over(sink, axis)})


class _Parts:
    """The RANGEs that one RANGE is split into, and what it is in the main body and in the rest."""

    def __init__(self, sink: UOp, axis: UOp, size: int, amount: int) -> None:
        number = next_range_id(sink)
        kind = axis.arg.kind
        self.axis = axis
        self.outer = UOp.range(size // amount, number, kind)
        self.inner = UOp.range(amount, number + 1, kind)
        self.is_single = size // amount == 1
        rest = size % amount
        self.rest = UOp.range(rest, number + 2, kind) if rest > 1 else None
        self.next_define = next_define_id(sink)
        self.has_rest = rest > 0
        start = UOp.const(dtypes.index, size - rest)
        self.in_main = self.inner if self.is_single else self.outer * amount + self.inner
        self.in_rest = start if self.rest is None else self.rest + start
        self.main_ranges = (self.inner,) if self.is_single else (self.outer, self.inner)
        self.rest_ranges = () if self.rest is None else (self.rest,)
        self.fresh: Fresh = fresh_ranges(sink, self.outer, self.inner, *self.rest_ranges)

    def main(self, body: UOp) -> UOp:
        """*body* over the multiples."""
        return substitute_free(body, {self.axis: self.in_main})

    def remainder(self, body: UOp, others: tuple[UOp, ...]) -> tuple[UOp, tuple[UOp, ...]]:
        """*body* over what is left, with copies of the *other* ranges; the copies."""
        copies = {r: self.fresh(r) for r in others}
        rest = substitute_free(body, {self.axis: self.in_rest, **copies}, self.fresh)
        return rest.substitute(self._other_buffers(body)), tuple(copies.values())

    def _other_buffers(self, body: UOp) -> dict[UOp, UOp]:
        """Buffers for the rest, in place of those that *body* fills in each turn of the axis."""
        other: dict[UOp, UOp] = {}
        for buffer in filled_along(body, self.axis):
            arg = dataclasses.replace(buffer.arg, id=self.next_define)
            other[buffer] = buffer.replace(arg=arg)
            self.next_define += 1
        return other

    def split_end(self, end: UOp) -> UOp:
        """END(body, before, axis, behind) -> END(GROUP(main, rest), before)."""
        body, ranges = end.src[0], end.src[1:]
        place = ranges.index(self.axis)
        before, behind = ranges[:place], ranges[place + 1 :]
        main = self.main(body)
        if not self.has_rest:
            return main.end(*before, *self.main_ranges, *behind)
        rest, copies = self.remainder(body, behind)
        parts = (main.end(*self.main_ranges, *behind), rest.end(*self.rest_ranges, *copies))
        return UOp.make(Ops.GROUP, *parts).end(*before)

    def split_reduce(self, node: UOp) -> UOp:
        """REDUCE(x, axis) -> op(REDUCE(main), REDUCE(rest))."""
        body, ranges = node.src[0], node.src[1:]
        place = ranges.index(self.axis)
        before, behind = ranges[:place], ranges[place + 1 :]
        main = node.with_sources((self.main(body), *before, *self.main_ranges, *behind))
        if not self.has_rest:
            return main
        rest, copies = self.remainder(body, before + behind)
        closed = (*copies[:place], *self.rest_ranges, *copies[place:])
        return joined(node.arg.op, main, node.with_sources((rest, *closed)) if closed else rest)


# ---- kinds -------------------------------------------------------------------------------------


def _with_kind(sink: UOp, axis: UOp, kind: AxisKind) -> UOp:
    return sink.substitute({axis: axis.replace(arg=RangeArg(axis.arg.id, kind))})


def _inner_part(sink: UOp, action: Action, axis: UOp, target: Target) -> tuple[UOp, UOp]:
    """Split when the action has an amount; the kernel, and the RANGE that is meant."""
    size = known_size(action, axis)
    if action.amount in (0, size):
        return sink, axis
    number = next_range_id(sink)
    sink = _split(sink, action, axis, target)
    return sink, next(a for a in axes_of(sink) if a.arg.id == number + 1)


def _lanes(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """The axis becomes lanes."""
    require_free_order(sink, action)
    require_loop(action, axis)
    size = action.amount or known_size(action, axis)
    if not target.has_lanes:
        raise refuse(action, "the target has no vectors")
    if size < 2 or size & (size - 1):
        raise refuse(action, f"{size} lanes are not a power of two")
    if size > target.vector_bytes:
        raise refuse(action, f"{size} lanes are more than the {target.vector_bytes} of a vector")
    require_no_buffer_inside(sink, action, axis)
    sink, inner = _inner_part(sink, action, axis, target)
    for node in sink.toposort():
        if inner in node.ranges:
            for other in node.ranges:
                if other.arg.kind in (AxisKind.LANES, *UNIT_KINDS):
                    raise refuse(action, "values that depend on it have lanes already")
    return _with_kind(sink, inner, AxisKind.LANES)


def _upcast(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """An output axis becomes copies."""
    require_free_order(sink, action)
    require_loop(action, axis)
    if end_of(sink, axis) is None:
        raise refuse(action, "it is reduced; unroll it")
    require_no_buffer_inside(sink, action, axis)
    return _copies(sink, action, axis, target, AxisKind.UPCAST)


def _unroll(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """A reduced axis becomes copies."""
    require_loop(action, axis)
    if end_of(sink, axis) is not None:
        raise refuse(action, "it is an output axis; upcast it")
    require_free_order(sink, action)
    return _copies(sink, action, axis, target, AxisKind.UNROLL)


def _copies(sink: UOp, action: Action, axis: UOp, target: Target, kind: AxisKind) -> UOp:
    size = action.amount or known_size(action, axis)
    if size > MAX_COPIES:
        raise refuse(action, f"{size} copies are more than {MAX_COPIES}")
    sink, inner = _inner_part(sink, action, axis, target)
    return _with_kind(sink, inner, kind)


def _thread(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """An output axis is shared out among threads."""
    require_free_order(sink, action)
    require_loop(action, axis)
    if not target.has_threads:
        raise refuse(action, "the target has no threads")
    end = require_output_at_top(sink, action, axis)
    if end.src[1] is not axis:
        raise refuse(action, "it is not the outermost of its nest; swap it there")
    if any(r.arg.kind is AxisKind.THREAD for r in end.src[1:]):
        raise refuse(action, "another axis of its nest is shared out among threads already")
    if len(sink.src) > 1:
        raise refuse(action, "the kernel has several effects that stand in order")
    require_no_overlap(sink, action, axis)
    return _with_kind(sink, axis, AxisKind.THREAD)


def _group(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Each turn of an output axis is a work-group."""
    require_grid(sink, action, axis, target, AxisKind.GLOBAL)
    require_no_overlap(sink, action, axis)
    return _with_kind(sink, axis, AxisKind.GLOBAL)


def _local(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Each turn of an output axis is an item of a work-group."""
    require_grid(sink, action, axis, target, AxisKind.LOCAL)
    require_few_items(sink, action, axis)
    require_no_overlap(sink, action, axis)
    sink, inner = _inner_part(sink, action, axis, target)
    return _with_kind(sink, inner, AxisKind.LOCAL)


# ---- order -------------------------------------------------------------------------------------


def _swap(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Two axes of one nest change places; the amount of the action is the other axis."""
    require_free_order(sink, action)
    axes = axes_of(sink)
    if not 0 <= action.amount < len(axes):
        raise refuse(action, f"the kernel has no axis {action.amount}")
    other = axes[action.amount]
    if other is axis:
        raise refuse(action, "it is the other axis too")
    nests = [n for n in (end_of(sink, axis), *reduces_over(sink, axis)) if n is not None]
    if not all(other in nest.src[1:] for nest in nests):
        raise refuse(action, f"axis {action.amount} belongs to another nest")
    exchange = {axis: other, other: axis}
    changed = {
        nest: nest.with_sources((nest.src[0], *(exchange.get(r, r) for r in nest.src[1:])))
        for nest in nests
    }
    return sink.substitute(changed)


def _cascade(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """REDUCE(x, axis) -> REDUCE(REDUCE(x, inner), outer)."""
    if end_of(sink, axis) is not None:
        raise refuse(action, "it is an output axis")
    if action.amount == 0:
        return _take_outside(sink, action, axis)
    number = next_range_id(sink)
    sink = _split(sink, action, axis, target)
    outer = next((a for a in axes_of(sink) if a.arg.id == number), None)
    if outer is None:
        return sink  # one block and a rest: split is all there is to do
    return sink.substitute({node: _nested(node, outer) for node in reduces_over(sink, outer)})


def _take_outside(sink: UOp, action: Action, axis: UOp) -> UOp:
    """REDUCE(x, axis, others) -> REDUCE(REDUCE(x, others), axis)."""
    require_free_order(sink, action)
    require_loop(action, axis)
    nodes = reduces_over(sink, axis)
    if any(value_of(_nested(node, axis).src[0]).src[1:] == () for node in nodes):
        raise refuse(action, "no other loop of the reduction is left inside")
    return sink.substitute({node: _nested(node, axis) for node in nodes})


def _nested(node: UOp, outer: UOp) -> UOp:
    copies = (AxisKind.LANES, AxisKind.UNROLL)
    outside = [r for r in node.src[1:] if r is outer or r.arg.kind in copies]
    inside = [r for r in node.src[1:] if r not in outside]
    inner = node.with_sources((node.src[0], *inside))
    inner = paired(inner, key_of(inner)) if is_of_pairs(node) else inner
    return node.with_sources((inner, *outside))


def _each(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    return each(sink, action, axis, target, apply_action)


def _unit(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    return unit(sink, action, axis, target, apply_action)


_STEPS: dict[str, Step] = {
    "block": block,
    "each": _each,
    "split": _split,
    "lanes": _lanes,
    "upcast": _upcast,
    "unroll": _unroll,
    "thread": _thread,
    "group": _group,
    "local": _local,
    "compute": compute,
    "swap": _swap,
    "cascade": _cascade,
    "pad": pad,
    "unit": _unit,
    "pack": pack,
    "hoist": hoist,
    "offset": offset,
    "overlap": overlap,
    "stage": stage,
    "prefetch": prefetch,
    "stream": stream,
}


ACTIONS = tuple(sorted(_STEPS))
"""The kinds of actions there are."""
_WITH_EXTRA = ("block", "each", "pack", "prefetch", "unit")


def has_reduction(sink: UOp) -> bool:
    """True when a kernel reduces."""
    return next(reductions(sink), None) is not None
