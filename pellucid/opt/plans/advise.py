"""The hand-written choice of hints: which rows are asked for ahead, and which outputs are streamed.

    softmax of 4096 rows of 1024   ->   prefetch(0, 1)   several loops work at a row of x
    softmax of 65536 rows of 64    ->   prefetch(0, 1, (16,))
    exp of 4 million               ->   prefetch(0, 1, (64,))    a loop does much for each line
    y = x * 3 of 16 million        ->   stream(0, 0)     y is larger than the caches

A parameter that is too large for the second cache is asked for ahead where several loops work at
one row of it, if rows are short enough to wait in that cache, and where one loop does much for each
line. An output is written past the caches where it does not fit the last of them, or takes much of
it in a kernel that does not fit, and where the innermost loop writes it from one end of a line to
the other: a line that is left half written costs more than it saves.

Of a last cache larger than 32 MB, no more than that is counted on: it belongs to many cores, and
some of them to others. (A guest with 2 cores that is told of 48 MB gets about 10 of them: a copy of
16 MB, plain and past the caches, runs at 12 and 18 GB/s there, and is read at 12 after either.)

Source: the design's cpu.md, sections 4 and 7 (non-temporal stores gain from 32 MB on).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.hints import all_accesses, bytes_of, is_read, is_sought
from pellucid.opt.axes import axes_of, end_of, reductions, size_of, stride_of
from pellucid.opt.cost import Costs
from pellucid.opt.plans.plan import Plan

STREAMED_BYTES = 1 << 25
"""What is counted on of the last cache: larger outputs are written past it, however large it is."""
BUSY_CYCLES = 12.0
"""From so many cycles for each line on, a loop asks for lines ahead of reading them."""
ROWS_BYTES = 4096
"""How far ahead of short rows later ones are asked for: the next one would come too late. (Rows of
256 bytes, 16 ahead instead of one: a softmax takes 3.8 ms for 4.6.)"""
AHEAD_BYTES = 2048
"""How far ahead: some dozens of lines, so that memory may be a few hundred cycles away."""
_LOOPS = (AxisKind.LOOP, AxisKind.THREAD)


def advise(plan: Plan) -> None:
    """Add hints to a plan whose loops are chosen."""
    _Advice(plan).give()


class _Advice:
    """What is known of a kernel's parameters: where each is touched, and how much of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.sink, self.target = plan, plan.sink, plan.target
        self.accesses = dict(sorted(all_accesses(plan.sink).items()))
        self.bytes = {slot: bytes_of(found) for slot, found in self.accesses.items()}

    def give(self) -> None:
        """Go through the parameters that are too large for the second cache, by slot."""
        known = {hint.slot for hint in self.sink.arg.hints}
        large = [
            slot
            for slot, count in self.bytes.items()
            if count > self.target.l2_bytes and slot not in known
        ]
        if not large:
            return
        stores = [n for n in self.sink.toposort() if n.op is Ops.STORE]
        for slot in large:
            own = [s for s in stores if s.src[0] in self.accesses[slot]]
            if own:
                self._output(slot, own)
            else:
                self._input(slot)

    # ---- inputs

    def _input(self, slot: int) -> None:
        """Ask for the next rows where several loops work at one, or where a loop is busy."""
        row = self._row_axis(slot)
        if row is None:
            if not self._sought_rows(slot):
                self._busy_loop(slot)
            return
        row_bytes = self._step_bytes(slot, row)
        if 2 * self.target.line_bytes <= row_bytes <= self.target.l2_bytes // 8:
            reason = "the next rows arrive while the loops over this one work"
            turns = max(1, ROWS_BYTES // row_bytes)
            self.plan.do("prefetch", row.arg.id, slot, reason, (turns,) if turns > 1 else ())

    def _sought_rows(self, slot: int) -> bool:
        """Ask for later rows, where memory says which rows a loop reads; False where it does not.

        Processors cannot tell where the next row is, and begin anew with each.
        """
        accesses = self.accesses[slot]
        loops = [r for r in axes_of(self.sink) if r.arg.kind in _LOOPS]
        axis = next((r for r in reversed(loops) if all(is_sought(a, r) for a in accesses)), None)
        if axis is None:
            return False
        inside = (r for r in accesses[0].ranges if stride_of(accesses[0].src[1], r) is not None)
        size = math.prod(size_of(r) or 1 for r in inside) * accesses[0].dtype.itemsize
        if 4 * self.target.line_bytes <= size <= self.target.l2_bytes // 8:
            turns = max(1, AHEAD_BYTES // size)
            reason = "an index in memory says which row is next"
            self.plan.do("prefetch", axis.arg.id, slot, reason, (turns,))
        return True

    def _row_axis(self, slot: int) -> UOp | None:
        """The loop over rows of a parameter, where several loops stand in it that read it."""
        outer = {r for n in reductions(self.sink) for r in n.ranges if r.arg.kind in _LOOPS}
        accesses = self.accesses[slot]
        rows = [
            r for r in axes_of(self.sink) if r in outer and all(r in a.ranges for a in accesses)
        ]
        loops = {tuple(r for r in a.ranges if r not in outer) for a in accesses}
        return rows[-1] if rows and len(loops) > 1 and () not in loops else None

    def _step_bytes(self, slot: int, axis: UOp) -> int:
        """By how much one turn of an axis moves along a parameter; 0 where that is not even."""
        accesses = self.accesses[slot]
        strides = {stride_of(a.src[1], axis) for a in accesses}
        return (strides.pop() or 0) * accesses[0].dtype.itemsize if len(strides) == 1 else 0

    def _busy_loop(self, slot: int) -> None:
        """Ask for what comes soon where a loop has much to do for each line that it reads.

        So much stands in the queue of the processor then that the reads behind it come too late. A
        loop that does little is better left alone: asking would keep it from reading.
        """
        inner = (r for r in reversed(axes_of(self.sink)) if r.arg.kind in _LOOPS)
        axis = next((r for r in inner if any(r in a.ranges for a in self.accesses[slot])), None)
        step_bytes = 0 if axis is None else self._step_bytes(slot, axis)
        near = self.target.line_bytes <= 2 * step_bytes <= 8 * self.target.line_bytes
        if axis is not None and near and self.cycles_for_a_line >= BUSY_CYCLES:
            turns = AHEAD_BYTES // step_bytes
            self.plan.do("prefetch", axis.arg.id, slot, "much is done for each line", (turns,))

    @functools.cached_property
    def cycles_for_a_line(self) -> float:
        """About how long the kernel works for each line that it reads."""
        axes = axes_of(self.sink)
        lanes = {r: size_of(r) or 1 for r in axes if r.arg.kind is AxisKind.LANES}
        read = sum(self.bytes[slot] for slot in self.bytes if is_read(self.sink, slot))
        return Costs(self.sink, self.target).cycles(lanes) * self.target.line_bytes / max(1, read)

    # ---- outputs

    def _output(self, slot: int, stores: Sequence[UOp]) -> None:
        """Write past the caches what does not fit them."""
        written = self.bytes[slot]
        cache_bytes = min(self.target.l3_bytes, STREAMED_BYTES)
        is_crowded = sum(self.bytes.values()) >= cache_bytes > 0 and 4 * written >= cache_bytes
        is_too_large = written >= STREAMED_BYTES or is_crowded
        if not self.target.has_lanes or not is_too_large or is_read(self.sink, slot):
            return
        if all(_writes_on(self.sink, store) for store in stores):
            first = axes_of(self.sink)[0].arg.id
            self.plan.do("stream", first, slot, "it is too large for the caches")


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
