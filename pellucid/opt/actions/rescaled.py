"""Bring the sums of an online softmax to a new maximum, and to their meaning at the end.

What blocks.py adds around the passes of each part of the rows, for the values of online.py:

    before the first pass    old[i] = m[i]
    before the second        r[i] = m[i], or 0 where that is -inf           read instead of m
                             f[i] = exp(old[i] - r[i])
                             l[i] = l[i] * f[i];  y[i, d] = y[i, d] * f[i]
    after the last part      l[i] = l[i] * exp(m[i] - m[i]);  y[i, d] = y[i, d] / l[i]
                             l[i] = l[i] / c
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.buffers import position
from pellucid.opt.actions.online import Online
from pellucid.opt.actions.values import RowValue

if TYPE_CHECKING:
    from pellucid.opt.actions.blocks import Blocks


class Stream:
    """The running maximum of some rows, and what depends on it."""

    def __init__(self, blocks: Blocks, online: Online) -> None:
        self.blocks, self.online = blocks, online
        self.stage = online.stage
        largest = online.largest
        self.old, self.reference, self.factor = (
            replace(largest, buffer=blocks.buffer_like(largest.node, (self._row(),)), done=None)
            for _ in range(3)
        )
        blocks.reference = self.reference

    def _row(self) -> UOp:
        return self.blocks.loop_like(self.blocks.axis)

    def begin(self) -> list[UOp]:
        """Note the maximum of all parts so far; it changes only after that."""
        row, largest = self._row(), self.online.largest
        done = self._store(self.old, self._now(largest, (row,)), row)
        self.old.done = largest.done = done.end(row)
        return [largest.done]

    def scale_again(self) -> list[UOp]:
        """Bring sums to the maximum that is known now."""
        row = self._row()
        largest = self._now(self.online.largest, (row,))
        safe = largest.eq(-math.inf).where(largest.const_like(0), largest)
        factor = self.online.away(self._now(self.old, (row,)), safe)
        stores = (self._store(self.reference, safe, row), self._store(self.factor, factor, row))
        done = UOp.make(Ops.GROUP, *stores).end(row)
        self.reference.done = self.factor.done = done
        return [done, *(self._multiply(value, self.factor) for value in self.online.sums)]

    def finish(self) -> None:
        """What all sums are after the last part."""
        online = self.online
        row = self._row()
        largest = self._now(online.largest, (row,))
        done = self._store(self.factor, online.away(largest, largest), row).end(row)
        self.factor.done = done
        self._multiply(online.total, self.factor)
        for value in online.sums:
            if value in online.shared:
                self._change(value, Ops.FDIV, online.total)
            elif value is not online.total:
                self._multiply(value, self.factor)
        for value in online.sums:
            if value not in online.shared and online.scale != 1:
                self._change(value, Ops.MUL, None)
        self.blocks.reference = None

    # ---- effects ---------------------------------------------------------------------------------

    def _multiply(self, value: RowValue, other: RowValue) -> UOp:
        return self._change(value, Ops.MUL, other)

    def _change(self, value: RowValue, op: Op, other: RowValue | None) -> UOp:
        """Join a sum with a statistic, or with what undoes the scale."""
        blocks = self.blocks
        row, loops = self._row(), tuple(blocks.loop_like(r) for r in value.inner)
        shared = self.online.shared if value is self.online.total else []
        now = self._now(value, (row, *loops), *(v.done for v in shared if v.done is not None))
        by = now.const_like(1 / self.online.scale) if other is None else self._now(other, (row,))
        value.done = now.store(now.alu(op, by)).end(row, *loops)
        return value.done

    def _now(self, value: RowValue, loops: tuple[UOp, ...], *done: UOp) -> UOp:
        """An element of a statistic or sum, in this turn."""
        blocks = self.blocks
        return blocks.filled(value).after(*blocks.turns, *done).index(position(loops))

    def _store(self, value: RowValue, element: UOp, row: UOp) -> UOp:
        assert value.buffer is not None, "rows lie in a buffer"
        place = value.buffer.after(*self.blocks.outer, *self.blocks.turns).index(row)
        return place.store(element)
