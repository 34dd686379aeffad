"""The hand-written choice of hints: which rows are asked for ahead, and which outputs are streamed.

    softmax of 4096 rows of 1024   ->   prefetch(0, 1)   several loops work at a row of x
    exp of 4 million               ->   prefetch(0, 1, (64,))    a loop does much for each line
    y = x * 3 of 16 million        ->   stream(0, 0)     y is larger than the caches

A parameter that is too large for the second cache is asked for ahead where several loops work at
one row of it, if rows are short enough to wait in that cache, and where one loop does much for each
line. An output is written past the
caches where it, or all that the kernel touches, does not fit the last of them anyway, and where
the innermost loop writes it from one end of a line to the other: a line that is left half written
costs more than it saves.

Source: the design's cpu.md, sections 4 and 7 (non-temporal stores gain from 32 MB on).
"""

from __future__ import annotations

import math

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, end_of, reductions, size_of, stride_of
from pellucid.opt.cost import Costs
from pellucid.opt.hints import accesses_of, bytes_touched, is_read
from pellucid.opt.plan import Plan

STREAMED_BYTES = 1 << 25
"""Outputs of this size are written past the caches, however large those are."""
BUSY_CYCLES = 12.0
"""From so many cycles for each line on, a loop asks for lines ahead of reading them."""
AHEAD_BYTES = 2048
"""How far ahead: some dozens of lines, so that memory may be a few hundred cycles away."""
_LOOPS = (AxisKind.LOOP, AxisKind.THREAD)


def advise(plan: Plan) -> None:
    """Add hints to a plan whose loops are chosen."""
    stored = {n.src[0].src[0] for n in plan.sink.toposort() if n.op is Ops.STORE}
    params = [n for n in plan.sink.toposort() if n.op is Ops.PARAM]
    for param in sorted(params, key=lambda p: p.arg.slot):
        if param in stored:
            _advise_output(plan, param)
        else:
            _advise_input(plan, param.arg.slot)


# ---- inputs ------------------------------------------------------------------------------------


def _advise_input(plan: Plan, slot: int) -> None:
    """Ask for the next row where several loops work at one, or for what a busy loop reads soon."""
    if bytes_touched(plan.sink, slot) <= plan.target.l2_bytes:
        return
    row = _row_axis(plan.sink, slot)
    if row is None:
        _advise_busy_loop(plan, slot)
        return
    row_bytes = _step_bytes(plan.sink, slot, row)
    if 2 * plan.target.line_bytes <= row_bytes <= plan.target.l2_bytes // 8:
        reason = "the next row arrives while the loops over this one work"
        plan.do("prefetch", row.arg.id, slot, reason)


def _row_axis(sink: UOp, slot: int) -> UOp | None:
    """The loop over rows of a parameter, where several loops stand in it and one reads along."""
    outer = {r for node in reductions(sink) for r in node.ranges if r.arg.kind in _LOOPS}
    accesses = accesses_of(sink, slot)
    rows = [r for r in axes_of(sink) if r in outer and all(r in a.ranges for a in accesses)]
    if not rows:
        return None
    loops = {tuple(r for r in a.ranges if r not in outer) for a in accesses}
    return rows[-1] if len(loops) > 1 and () not in loops else None


def _step_bytes(sink: UOp, slot: int, axis: UOp) -> int:
    """By how much one turn of an axis moves along a parameter; 0 where that is not even."""
    accesses = accesses_of(sink, slot)
    strides = {stride_of(a.src[1], axis) for a in accesses}
    return (strides.pop() or 0) * accesses[0].dtype.itemsize if len(strides) == 1 else 0


def _advise_busy_loop(plan: Plan, slot: int) -> None:
    """Ask for what comes soon where a loop has much to do for each line that it reads.

    So much stands in the queue of the processor then that the reads behind it come too late. A
    loop that does little is better left alone: asking would keep it from reading.
    """
    axis = next((r for r in reversed(axes_of(plan.sink)) if _moves(plan.sink, slot, r)), None)
    if axis is None or _cycles_for_a_line(plan) < BUSY_CYCLES:
        return
    step_bytes = _step_bytes(plan.sink, slot, axis)
    if plan.target.line_bytes <= 2 * step_bytes <= 8 * plan.target.line_bytes:
        turns = AHEAD_BYTES // step_bytes
        plan.do("prefetch", axis.arg.id, slot, "much is done for each line", (turns,))


def _moves(sink: UOp, slot: int, axis: UOp) -> bool:
    """True for a loop that is left, along which a parameter is read."""
    return axis.arg.kind in _LOOPS and any(axis in a.ranges for a in accesses_of(sink, slot))


def _cycles_for_a_line(plan: Plan) -> float:
    """About how long a kernel works for each line that it reads."""
    sink = plan.sink
    lanes = {r: size_of(r) or 1 for r in axes_of(sink) if r.arg.kind is AxisKind.LANES}
    slots = {n.arg.slot for n in sink.toposort() if n.op is Ops.PARAM}
    read = sum(bytes_touched(sink, slot) for slot in slots if is_read(sink, slot))
    return Costs(sink, plan.target).cycles(lanes) * plan.target.line_bytes / max(1, read)


# ---- outputs -----------------------------------------------------------------------------------


def _advise_output(plan: Plan, param: UOp) -> None:
    """Write past the caches what does not fit them."""
    sink, target, slot = plan.sink, plan.target, param.arg.slot
    stores = [n for n in sink.toposort() if n.op is Ops.STORE and n.src[0].src[0] is param]
    if not target.has_lanes or is_read(sink, slot):
        return
    written = bytes_touched(sink, slot)
    slots = {n.arg.slot for n in sink.toposort() if n.op is Ops.PARAM}
    touched = sum(bytes_touched(sink, other) for other in slots)
    is_too_large = written >= STREAMED_BYTES or touched >= target.l3_bytes > 0
    if is_too_large and written > target.l2_bytes and all(_writes_on(sink, s) for s in stores):
        first = axes_of(sink)[0].arg.id
        plan.do("stream", first, slot, "it is too large for the caches")


def _writes_on(sink: UOp, store: UOp) -> bool:
    """True when each turn of the innermost loop writes right behind the one before."""
    place = store.src[0].src[1]
    inside = [r for r in place.ranges if r.arg.kind not in _LOOPS]
    if not any(r.arg.kind is AxisKind.LANES and stride_of(place, r) == 1 for r in inside):
        return False
    ends = [end for r in place.ranges if (end := end_of(sink, r)) is not None]
    loops = [r for r in ends[0].src[1:] if r.arg.kind in _LOOPS] if ends else []
    written = math.prod(size_of(r) or 1 for r in inside)
    return not loops or stride_of(place, loops[-1]) == written
