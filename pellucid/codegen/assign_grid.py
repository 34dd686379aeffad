"""Give a range that was chosen as the thread index to the launch.

VECTOR form -> VECTOR form without THREAD ranges.

    before    END(STORE(y[i], …), i THREAD over 10)                        2 threads
    after     END(STORE(y[t * 5 + j], …), j over 5)                        t = SPECIAL("thread")

    before    … over 10                                                    4 threads
    after     END(STORE(y[t * 3 + j], …), j over MIN(3, 10 + t * -3))

Each thread gets one block of the range; the last blocks may be shorter, or empty. An effect that
has no THREAD range, beside one that has, belongs to thread 0: it stands in a loop that runs once
there and never elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind, RangeArg, SpecialArg
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp


def assign_grid(sink: UOp, target: Target) -> UOp:
    """Replace THREAD ranges by blocks that begin where the thread index says."""
    axes = [n for n in sink.toposort() if n.op is Ops.RANGE and n.arg.kind is AxisKind.THREAD]
    if not axes:
        return sink
    count = max(_threads_for(axis, target.cores) for axis in axes)
    launch = _Launch(count, next_range_id(sink))
    return sink.with_sources(tuple(launch.share(effect) for effect in sink.src))


def _threads_for(axis: UOp, cores: int) -> int:
    size = bounds(axis).max + 1
    block = -(-size // max(1, cores))
    return -(-size // block)


@dataclass
class _Launch:
    """The launch of a kernel: how many threads, and the next free number of a RANGE."""

    count: int
    number: int

    @property
    def thread(self) -> UOp:
        size = UOp.const(dtypes.index, self.count)
        return UOp.make(Ops.SPECIAL, size, arg=SpecialArg("thread"))

    def fresh(self, size: UOp) -> UOp:
        """A new loop."""
        self.number += 1
        return UOp.range(size, self.number - 1)

    def share(self, effect: UOp) -> UOp:
        """*effect*, as one thread does it."""
        if effect.op is Ops.GROUP:
            return UOp.make(Ops.GROUP, *(self.share(part) for part in effect.src))
        ranges = effect.src[1:] if effect.op is Ops.END else ()
        axis = next((r for r in ranges if r.arg.kind is AxisKind.THREAD), None)
        if axis is not None:
            return self._share_axis(effect, axis)
        if self.count == 1:
            return effect
        once = self.fresh((self.thread < 1).where(UOp.const(dtypes.index, 1), 0))
        return effect.src[0].end(once, *ranges) if ranges else effect.end(once)

    def _share_axis(self, end: UOp, axis: UOp) -> UOp:
        size = bounds(axis).max + 1
        block = -(-size // self.count)
        start = self.thread * block if self.count > 1 else axis.const_like(0)
        if block * self.count == size and axis.src[0].is_const:
            if block == 1:
                others = tuple(r for r in end.src[1:] if r is not axis)
                return end.src[0].substitute({axis: self.thread}).end(*others)
            part, place = self._part(axis, axis.const_like(block), start)
        else:
            part, place = self._part(axis, (axis.src[0] - start).minimum(block), start)
            if (self.count - 1) * block > size - 1 or not axis.src[0].is_const:
                # a thread without a block must not compute addresses outside of the storage
                place = place.minimum(axis.src[0] - 1)
        ranges = tuple(part if r is axis else r for r in end.src[1:])
        return end.src[0].substitute({axis: place}).end(*ranges)

    def _part(self, axis: UOp, size: UOp, start: UOp) -> tuple[UOp, UOp]:
        part = self.fresh(size)
        part = part.replace(arg=RangeArg(part.arg.id, AxisKind.LOOP))
        return part, start + part
