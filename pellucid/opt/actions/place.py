"""Compute a value at a chosen level of the loops, apart from where it is used.

LOOP form -> LOOP form: the action `compute`. Inside of one turn of the axis, a reduction is
computed in loops of its own, for all turns of the loops further inside, and waits in local memory.
Before and after `compute(0, 0)` of y[i, j] = max(sum over k of a[i, k] * b[k, j], 0):

    END(STORE(y[i, j], MAX(REDUCE(a[i, k] * b[k, j], k), 0)), i, j)

    fill = END(STORE(t[j'], REDUCE(a[i, k] * b[k, j'], k)), j')             t: LOCAL, in each i
    END(STORE(y[i, j], MAX(AFTER(t, fill)[j], 0)), i, j)

The loops of the fill and those of the use may then take different actions. With the axis split
before, a block is computed at a time. Values do not change: each is computed once, as before.

Source: J. Ragan-Kelley et al., "Halide: A Language and Compiler for Optimizing Parallelism,
Locality, and Recomputation in Image Processing Pipelines", 2013 (compute_at).
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.transform import fresh_ranges, next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.actions.buffers import new_buffer, new_loops, position
from pellucid.opt.actions.legal import (
    KIND_NAMES,
    next_define_id,
    refuse,
    require_free_order,
    require_loop,
)
from pellucid.opt.axes import end_of, size_of

_LOOPS = (AxisKind.LOOP, AxisKind.THREAD)


def compute(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Compute a reduction in each turn of *axis*, into memory; the amount says which one."""
    require_free_order(sink, action)
    require_loop(action, axis)
    end = end_of(sink, axis)
    if end is None:
        raise refuse(action, "it is reduced")
    place = end.src.index(axis)
    outside = {*end.ranges, *end.src[1 : place + 1]}
    inside = end.src[place + 1 :]
    values = values_inside(end, outside)
    if action.amount >= len(values):
        raise refuse(action, f"{len(values)} reductions depend on the loops inside of it")
    value = values[action.amount]
    own = [r for r in inside if r in value.ranges]
    _require_plain_loops(action, outside, own)
    loops = new_loops(own, next_range_id(sink))
    buffer = new_buffer(action, value.dtype, own, next_define_id(sink))
    fresh = fresh_ranges(UOp.sink(sink, *loops))
    again = substitute_free(value, dict(zip(own, loops, strict=True)), fresh)
    filled = buffer.after(buffer.index(position(loops)).store(again).end(*loops))
    return sink.substitute({value: filled.index(position(own))})


def values_inside(end: UOp, outside: set[UOp]) -> list[UOp]:
    """The reductions of a nest that its inner loops compute, each in order of appearance."""
    around = {*end.ranges, *end.src[1:]}
    body = end.src[0].toposort(lambda n: n.op is not Ops.AFTER)
    found = [n for n in body if n.op is Ops.REDUCE and around.issuperset(n.ranges)]
    return [n for n in found if not outside.issuperset(n.ranges)]


def _require_plain_loops(action: Action, outside: set[UOp], own: list[UOp]) -> None:
    """Lanes and copies outside would share the buffer; those inside would be undone."""
    for other in outside:
        if other.arg.kind not in _LOOPS:
            kind = KIND_NAMES[other.arg.kind]
            raise refuse(action, f"the buffer would be filled inside of an axis that is {kind}")
    for other in own:
        if other.arg.kind is not AxisKind.LOOP:
            raise refuse(action, f"a loop inside of it is {KIND_NAMES[other.arg.kind]} already")
        if size_of(other) is None:
            raise refuse(action, "a loop inside of it has a variable size")
