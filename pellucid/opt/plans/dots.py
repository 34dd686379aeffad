"""The loop structure of sums along memory: the gradients of the weights of convolutions.

    g[o, c, i, j] = sum over n, h, w of d[n, o, h, w] * x[n, c, h + i, w + j]      w over 32

    for each n, or a few:                                        16 registers of 8 lanes
        for each 4 of o, c, and i:
            for h: for w by 8:
                4 x 3 vectors of sums += 4 vectors of d * 3 vectors of x, one for each j
            g[4 of o, c, i, 3 of j] += the sums of their lanes

Both operands are contiguous along an axis that is summed (*step*), which is longer than what is
contiguous in the output. So that axis is lanes, and each accumulator a vector whose lanes are added
up at the end. Rows are an axis of one operand alone, columns one of the other, its most contiguous.
The outermost axis of the sum goes around everything, a few turns at a time, so that what they read
stays in cache while all rows and columns use it; g waits in memory of the kernel's own.

Threads take parts of the rows. How large a tile is, registers.py knows.

Source: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, section
4 (a sum in blocks, outside of rows and columns), for sums of dot products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.actions.buffers import MAX_BUFFER_BYTES
from pellucid.opt.axes import reduces_over, size_of, stride_of
from pellucid.opt.cost import CYCLES_PER_US
from pellucid.opt.plans.plan import Pieces, Plan
from pellucid.opt.plans.products import LEAST_WORK
from pellucid.opt.plans.registers import Registers, Shape, best_shape
from pellucid.opt.plans.runs import longest_run, nest
from pellucid.opt.plans.sums import Sum, count, pays_threads, put

MOST_ROWS = 8
"""How many rows, or columns, a tile has at most."""
LEAST_FILLED = 0.6
"""Lanes that are used, of all; where fewer are, another axis serves better."""
MOST_PARTS = 4
"""Into how many parts for each core the rows are cut at most."""
_TILE = "each vector loaded is used by several accumulators"


def plan_dots(plan: Plan) -> bool:
    """Plan a sum of products over several axes, the last contiguous; False when there is none."""
    dots = _Dots.of(plan)
    if dots is None:
        return False
    dots.plan()
    return True


@dataclass(frozen=True)
class _Dots:
    """A kernel with one such sum: its axes, and how many lanes there are.

    row: an axis of the one operand.  column: an axis of the other.  others: all other outputs.
    sums: what is summed over, the last is the step.
    """

    kernel: Plan
    row: UOp
    column: UOp
    others: tuple[UOp, ...]
    sums: tuple[UOp, ...]
    lanes: int

    @staticmethod
    def of(plan: Plan) -> _Dots | None:
        """Read a kernel, or give None."""
        found = Sum.of(plan.sink)
        if found is None or not set(found.outputs) <= set(found.node.ranges):
            return None
        dots = _Dots._read(plan, found)
        return dots if dots is not None and dots.is_worth_it() else None

    @staticmethod
    def _read(plan: Plan, found: Sum) -> _Dots | None:
        node, outputs, reads = found.node, found.outputs, found.reads
        step = node.src[-1]
        if any(r is None or stride_of(r.src[1], step) != 1 for r in reads):
            return None
        lines = [r for r in outputs if any(stride_of(place, r) == 1 for place in found.places)]
        if any((size_of(r) or 1) >= (size_of(step) or 1) for r in lines):
            return None  # lanes along the output need no sum of lanes
        left, right = sorted(
            (r for r in reads if r is not None),
            key=lambda r: min((_stride(r, a) for a in outputs), default=math.inf),
            reverse=True,
        )
        rows = [r for r in outputs if r in left.ranges and r not in right.ranges]
        columns = [r for r in outputs if r in right.ranges and r not in left.ranges]
        if not rows or not columns:
            return None
        row = max(rows, key=lambda r: size_of(r) or 1)
        column = min(columns, key=lambda r: _stride(right, r))
        others = tuple(r for r in outputs if r is not row and r is not column)
        lanes = plan.target.max_lanes(max(4, node.dtype.itemsize))
        return _Dots(plan, row, column, others, node.src[1:], lanes)

    def is_worth_it(self) -> bool:
        """True where vectors are filled well enough, and values are used again."""
        step = size_of(self.sums[-1]) or 1
        padded = -(-step // self.lanes) * self.lanes
        can_mask = self.kernel.target.has_masked_memory or padded == step
        is_filled = self.lanes > 1 and can_mask and step / padded >= LEAST_FILLED
        return is_filled and self.work >= LEAST_WORK and (size_of(self.row) or 1) >= 2

    @property
    def work(self) -> int:
        """How many products are added."""
        return count((self.row, self.column, *self.others, *self.sums))

    def plan(self) -> None:
        """Parts for threads; blocks of the sum around all loops; lanes, and a tile inside."""
        plan, row, column = self.kernel, self.row.arg.id, self.column.arg.id
        part = self._part(row)
        if part is not None:
            row = part[1]
        first = [] if part is None else [part[0]]
        wanted = [*first, row, *(r.arg.id for r in self.others), column]
        put(plan, wanted, "a tile has the columns that lie closest")
        most = longest_run(math.prod(size_of(r) or 1 for r in self.sums))
        steps = self._steps(self.sums[-1].arg.id)
        tiles: dict[tuple[int, int], bool] = {}
        for step in steps:
            block = self._block(self._loops(step), most, is_alone=len(steps) == 1)
            found = (row, column)
            if block is not None:
                found = self._hoist(self._loops(step)[0], block, len(first))
            tiles[found] = tiles.get(found, False) or self._is_masked(step)
            self._plan_sum(step, most)
        for tile, is_masked in tiles.items():
            self._upcast(*tile, is_masked)
        if part is not None:
            plan.do("thread", part[0], 0, "parts of the rows are far apart, and need no other")

    def _part(self, row: int) -> tuple[int, int] | None:
        """Cut the rows into even parts for threads: the loop over parts, and that of a part."""
        plan, target = self.kernel, self.kernel.target
        busy_us = self.work / self.lanes / CYCLES_PER_US
        size = plan.size(row)
        counts = [n for n in range(2, MOST_PARTS * target.cores + 1) if size % n == 0 and n < size]
        if not pays_threads(target, busy_us) or not counts:
            return None
        best = max(counts, key=lambda n: (n / (-(-n // target.cores) * target.cores), -n))
        reason = f"it takes about {busy_us:.0f} us on one core"
        pieces = plan.do("split", row, size // best, reason)
        assert pieces.outer is not None, "there are several parts"
        return pieces.outer, pieces.inner

    def _loops(self, step: int) -> list[int]:
        """What is summed in one reduction, the step last."""
        plan = self.kernel
        (node,) = reduces_over(plan.sink, plan.axis(step))
        return [*(r.arg.id for r in node.src[1:] if r.arg.id != step), step]

    def _block(self, sums: Sequence[int], most: int, is_alone: bool) -> int | None:
        """How many turns of the outermost axis of a sum are done for all rows at a time.

        Two sums beside each other would have too many accumulators: each gets a nest of its own.
        """
        plan = self.kernel
        size, inside = plan.size(sums[0]), math.prod(plan.size(n) for n in sums[1:])
        fits = max(1, most * self.lanes // inside)
        blocks = [n for n in range(1, size) if size % n == 0 and size // n <= most]
        num_bytes = 4 * math.prod(size_of(r) or 1 for r in (self.row, self.column, *self.others))
        if (is_alone and size <= fits) or num_bytes > MAX_BUFFER_BYTES // 2:
            return None
        return max((n for n in blocks if n <= fits), default=min(blocks, default=None))

    def _hoist(self, outer: int, block: int, kept: int) -> tuple[int, int]:
        """Do a block of the sum for all rows; the loops over rows and columns then."""
        plan = self.kernel
        reason = "what a block of the sum reads stays in cache while all rows use it"
        if block > 1:
            pieces = plan.do("split", outer, block, reason)
            assert pieces.outer is not None, "there are several blocks"
            outer = pieces.outer
        count = 2 + len(self.others)
        first = next_range_id(plan.sink) + count  # after those of the loops that clear the sums
        plan.do("hoist", outer, kept, reason)
        return first, first + count - 1

    def _steps(self, step: int) -> list[int]:
        """Split off what does not fill vectors: smaller ones, or one with a mask, come after."""
        plan = self.kernel
        size = plan.size(step)
        whole = size // self.lanes * self.lanes
        if size - whole == 1:
            plan.do("pad", step, self.lanes, "masks are cheaper than a scalar")
        if size - whole in (0, 1):
            return [step]
        pieces = Pieces(None, step, step)
        if whole > 0:
            pieces = plan.do("split", step, whole, "whole vectors need no mask")
        if pieces.rest is not None and (length := plan.size(pieces.rest)) & (length - 1):
            plan.do("pad", pieces.rest, 1 << length.bit_length(), "masks are cheaper than scalars")
        return list(dict.fromkeys(n for n in (pieces.inner, pieces.rest) if n is not None))

    def _is_masked(self, step: int) -> bool:
        """True where a part of the step is beyond its edge."""
        axis = self.kernel.axis(step)
        reads = (n for n in self.kernel.sink.toposort() if n.op is Ops.INDEX and len(n.src) > 2)
        return any(axis in read.src[2].ranges for read in reads)

    def _plan_sum(self, step: int, most: int) -> None:
        """Lanes along the step, and runs of all that is summed."""
        plan = self.kernel
        *loops, _ = self._loops(step)
        lanes = min(self.lanes, plan.size(step))
        found = plan.do("lanes", step, lanes, "both operands are contiguous along it")
        nest(plan, [*loops, *([] if found.outer is None else [found.outer])], most)

    def _upcast(self, row: int, column: int, is_masked: bool) -> None:
        """Copies of columns, then of rows: the vectors of columns stay loaded."""
        plan, shape = self.kernel, self._shape(row, column, is_masked)
        if shape.vectors > 1:
            columns = plan.do("upcast", column, shape.vectors, _TILE)
            if columns.rest is not None:
                plan.do("upcast", columns.rest, 0, "the rest of the columns")
        if shape.rows > 1:
            rows = plan.do("upcast", row, shape.rows, _TILE)
            if rows.rest is not None:
                plan.do("upcast", rows.rest, 0, "the rest of the rows")

    def _shape(self, row: int, column: int, is_masked: bool) -> Shape:
        plan = self.kernel
        registers = Registers.of(plan.target, for_masks=int(is_masked))
        amounts = range(1, MOST_ROWS + 1)
        sizes = (plan.size(row), plan.size(column), 1)
        return best_shape(registers, amounts, amounts, (1,), sizes, registers.vector_load)


def _stride(read: UOp, axis: UOp) -> float:
    """By how much a read moves along an axis; infinite where it does not, or not evenly."""
    return abs(stride_of(read.src[1], axis) or math.inf)
