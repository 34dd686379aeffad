"""The loop structure of sums over windows: convolutions, forward and backward.

    y[n, o, h, w] = sum over c, i, j of x[n, c, h + i, w + j] * k[o, c, i, j]       w over 28

    for each n, 2 of h, and vector of w:                         16 registers of 8 lanes
        for each 6 of o:
            for runs of c: for c in a run: for i: for j:
                6 x 2 vectors of sums += 6 numbers of k * 2 vectors of x      the last is masked
            store 6 x 2 vectors

This is a product of matrices whose sum has several axes: lanes run along the axis that is
contiguous in the output and in one operand; copies are made of vectors along it (*column*), of a
further axis of that operand (*again*), and of the axis along which the operand is used again
(*row*). How many of each is a question of registers (registers.py). Nothing is packed: rows of
windows overlap, so a cache line that was read is read again soon.

Rows are the innermost loop: the windows that they share stay in the first cache, and k streams by.
Columns are, where the windows of a whole row of the picture stay there. Where k is so large that it
would come from memory each time, a few rows are the outermost loop.

Source of the direct form: E. Georganas et al., "Anatomy of High-Performance Deep Learning
Convolutions on SIMD Architectures", 2018, section II (register tiles over pixels and channels).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pellucid.core.records import dataclass
from pellucid.ir.uop import UOp
from pellucid.opt.actions.hints import all_accesses, bytes_of, is_read
from pellucid.opt.axes import size_of, stride_of
from pellucid.opt.cost import CYCLES_PER_US
from pellucid.opt.plans.channels import Channels
from pellucid.opt.plans.copies import upcast
from pellucid.opt.plans.plan import Pieces, Plan
from pellucid.opt.plans.products import LEAST_WORK
from pellucid.opt.plans.registers import Registers, Shape, best_shape, shape_cycles
from pellucid.opt.plans.runs import longest_run, nest
from pellucid.opt.plans.shares import BALANCED, balance, thread_best
from pellucid.opt.plans.sums import (
    Sum,
    count,
    lanes_along,
    loops_around,
    nests_of,
    pays_threads,
    put,
    read_below,
)

MOST_VECTORS = 4
"""How many vectors along the lanes, and how many copies of them, a tile has at most."""
MOST_ROWS = 8
"""How many rows a tile has at most."""
LEAST_FILLED = 0.4
"""Lanes that are used, of all; where fewer are, another axis serves better."""
SLOWER = 1.2
"""How much longer it takes than registers say: k comes from as many places as a tile has rows, and
vectors of x reach into second lines. (Measured beside channels.py: 1.15 to 1.25.)"""
SLOWER_FROM_FAR = 1.75
"""The same where k does not stay in the second cache and streams by for each tile of columns."""
LATE_CYCLES = 100.0
"""What a line of memory costs that is needed when the sums of a tile are known: a tile reads lines
that lie far from each other, and asking for them ahead did not help. (Measured: 140, or nothing
where all stays in the second cache.)"""
_TILE = "each value loaded is used by several accumulators"
_SHARED = "rows share the windows that they read"


def plan_windows(plan: Plan) -> bool:
    """Plan a sum of products over several axes; False when the kernel is none.

    Lanes run along pixels or along channels, whichever takes fewer cycles.
    """
    windows, channels = _Windows.of(plan), Channels.of(plan)
    if channels is not None and (windows is None or channels.cycles < windows.cycles):
        channels.plan()
        return True
    if windows is None:
        return False
    windows.plan()
    return True


@dataclass(frozen=True)
class _Windows:
    """A kernel with one such sum: its axes, and how many lanes there are."""

    kernel: Plan
    node: UOp
    column: UOp
    row: UOp
    others: tuple[UOp, ...]
    again: UOp | None
    lanes: int

    @staticmethod
    def of(plan: Plan) -> _Windows | None:
        """Read a kernel, or give None."""
        found = Sum.of(plan.sink)
        return None if found is None else _Windows._read(plan, found)

    @staticmethod
    def _read(plan: Plan, found: Sum) -> _Windows | None:
        node, outputs, reads = found.node, found.outputs, found.reads
        most = plan.target.max_lanes(max(4, node.dtype.itemsize))
        for column in outputs:
            if column not in node.ranges or any(stride_of(p, column) != 1 for p in found.places):
                continue
            wide = [r for r in reads if r is not None and stride_of(r.src[1], column) == 1]
            if None in reads or len(wide) != 1:
                continue
            narrow = [r.ranges for r in reads if r is not None and r is not wide[0]]
            if any(column in ranges for ranges in narrow):
                continue
            rows = [r for r in outputs if r in node.ranges and r not in wide[0].ranges]
            if not rows:
                continue
            row = max(rows, key=lambda r: size_of(r) or 1)
            others = tuple(r for r in outputs if r is not row and r is not column)
            lanes = min(most, 1 << ((size_of(column) or 1) - 1).bit_length())
            again = [r for r in others if r in wide[0].ranges and not any(r in n for n in narrow)]
            last = again[-1] if again else None
            made = _Windows(plan, node, column, row, others, last, lanes)
            return made if made.is_worth_it() else None
        return None

    def is_worth_it(self) -> bool:
        """True where vectors are filled well enough, and values are used again."""
        columns, rows = size_of(self.column) or 1, size_of(self.row) or 1
        padded = -(-columns // self.lanes) * self.lanes
        can_mask = self.kernel.target.has_masked_memory or padded == columns
        used = columns / padded
        is_wide = self.lanes > 1 and 2 * self.lanes >= self.kernel.target.max_lanes(4)
        return is_wide and can_mask and used >= LEAST_FILLED and rows >= 2 and self.is_large

    @property
    def is_large(self) -> bool:
        """True where choosing a tile pays."""
        return self.work >= LEAST_WORK

    @property
    def is_heavy(self) -> bool:
        """True where all that the rows read is too much to stream by for each tile of columns."""
        target, rows = self.kernel.target, size_of(self.row) or 1
        if all(rows % n for n in range(2, MOST_ROWS + 1)):
            return False
        num_bytes = self.node.dtype.itemsize * rows
        num_bytes *= math.prod(size_of(r) or 1 for r in self.node.src[1:])
        is_narrow = (size_of(self.column) or 1) <= self.lanes
        most = target.l2_bytes // 2 if is_narrow else target.l3_bytes // 4
        return num_bytes > most

    @property
    def work(self) -> int:
        """How many products are added."""
        return count((self.column, self.row, *self.others, *self.node.src[1:]))

    def plan(self) -> None:
        """Rows innermost; runs of the sum; copies of vectors, then of rows."""
        plan, column = self.kernel, self.column.arg.id
        if plan.size(column) % self.lanes:
            plan.do("pad", column, self.lanes, "masks are cheaper than a scalar rest")
        shape = self._shape()
        outermost = self._order(shape)
        sums = self.node.src[1:]
        nest(plan, [r.arg.id for r in sums], longest_run(count(sums)))
        again = None if self.again is None else self.again.arg.id
        if self._keeps_columns(shape):
            for part in self._parts(column, shape):
                lanes_along(plan, part, self.lanes, _TILE)
            self._upcast_rows(self.row.arg.id, shape)
        else:
            again = self._plan_nests(again, shape)
        self._thread(outermost, again)

    def _shape(self) -> Shape:
        """The tile that the registers hold."""
        sizes = self._sizes
        rows = [n for n in range(1, MOST_ROWS + 1) if not self.is_heavy or sizes[0] % n == 0]
        copies = range(1, MOST_VECTORS + 1)
        is_even = sizes[1] == 1 or not self.is_padded
        return best_shape(self._registers, rows, copies, copies if is_even else (1,), sizes)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """How many rows, vectors of columns, and further copies of these there are."""
        vectors = -(-(size_of(self.column) or 1) // self.lanes)
        again = 1 if self.again is None else size_of(self.again) or 1
        return size_of(self.row) or 1, vectors, again

    @property
    def _registers(self) -> Registers:
        return Registers.of(self.kernel.target, for_masks=1)

    @property
    def cycles(self) -> float:
        """How long the kernel takes on one core, about."""
        turns = count(self.node.src[1:]) * count([r for r in self.others if r is not self.again])
        turn = shape_cycles(self._registers, self._shape(), self._sizes)
        summed = turns * turn * (SLOWER if self.is_heavy or self._stays else SLOWER_FROM_FAR)
        return summed + LATE_CYCLES * self._late_lines

    @property
    def _late_lines(self) -> float:
        """How many lines from beyond the second cache join the sums when these are known."""
        target, inside = self.kernel.target, set(self.node.src[0].toposort())
        sink = self.kernel.sink
        late = (
            bytes_of(found)
            for slot, found in all_accesses(sink).items()
            if inside.isdisjoint(found) and is_read(sink, slot)
        )
        return sum(size for size in late if size > target.l2_bytes) / target.line_bytes

    @property
    def _stays(self) -> bool:
        """True where all that the rows read stays in the second cache."""
        rows = (self.row, *self.node.src[1:])
        return self.node.dtype.itemsize * count(rows) <= self.kernel.target.l2_bytes // 2

    @property
    def is_padded(self) -> bool:
        """True where the last vector has a mask."""
        return bool((size_of(self.column) or 1) % self.lanes)

    def _keeps_columns(self, shape: Shape) -> bool:
        """True where all windows of one row of the picture stay in the first cache."""
        wide = next(
            r for r in map(read_below, self.node.src[0].src) if r and self.column in r.ranges
        )
        rows = (size_of(r) or 1 for r in self.node.src[1:] if stride_of(wide.src[1], r) != 1)
        num_bytes = self.node.dtype.itemsize * math.prod(rows) * (size_of(self.column) or 1)
        fits = num_bytes <= self.kernel.target.l1d_bytes * 3 // 4
        return fits and shape.again == 1 and not self.is_heavy

    def _order(self, shape: Shape) -> list[int]:
        """Columns inside of other loops, and rows inside of columns where these do not stay in
        cache; or a few rows outside of all."""
        plan, row = self.kernel, self.row.arg.id
        others = [r.arg.id for r in self.others if r is not self.again]
        again = [] if self.again is None else [self.again.arg.id]
        column = self.column.arg.id
        if not self.is_heavy:
            last = (row, column) if self._keeps_columns(shape) else (column, row)
            put(plan, (*others, *again, *last), _SHARED)
            return others
        put(plan, (row, *others, *again, column), "what few rows read stays in cache")
        pieces = Pieces(None, row, None)
        if 1 < shape.rows < plan.size(row):
            pieces = plan.do("split", row, shape.rows, _TILE)
        outer = [] if pieces.outer is None else [pieces.outer]
        inner = [pieces.inner] if shape.rows > 1 else []
        put(plan, (*outer, *others, *again, column, *inner), _SHARED)
        return [*outer, *others]

    def _plan_nests(self, again: int | None, shape: Shape) -> int | None:
        """Tiles of nests whose innermost loop is that of rows; the loop *again* that is left."""
        parts: tuple[int | None, ...] = (None,)
        if again is not None and 1 < shape.again < self.kernel.size(again):
            pieces = self.kernel.do("split", again, shape.again, _TILE)
            again, parts = pieces.outer, (pieces.inner, pieces.rest)
        elif shape.again > 1:
            again, parts = None, (again,)
        for numbers in nests_of(self.kernel.sink):
            copied = next((n for n in numbers if n in parts), None)
            for part in self._parts(numbers[-2], shape):
                self._plan_tile(part, copied, shape)
        return again

    def _parts(self, column: int, shape: Shape) -> list[int]:
        """Cut columns to the width of a tile; what is masked, or left over, is another part."""
        plan, width = self.kernel, shape.vectors * self.lanes
        size = plan.size(column)
        if size <= width:
            return [column]
        whole = (size_of(self.column) or 1) // width * width
        pieces = Pieces(None, column, None)
        if whole < size:
            pieces = plan.do("split", column, whole, "only the last vectors need a mask")
        inner = pieces.inner
        if width < whole:
            inner = plan.do("split", inner, width, _TILE).inner
        return [inner] if pieces.rest is None else [inner, pieces.rest]

    def _plan_tile(self, column: int, again: int | None, shape: Shape) -> None:
        """Vectors of a column, and copies, stand inside of copies of rows: they stay loaded."""
        numbers = loops_around(self.kernel, column)
        row = numbers[-1]
        last = [row, column] if again is None else [row, again, column]
        put(self.kernel, [n for n in numbers if n not in last] + last, _SHARED)
        lanes_along(self.kernel, column, self.lanes, _TILE)
        if again is not None:
            self.kernel.do("upcast", again, 0, _TILE)
        self._upcast_rows(row, shape)

    def _upcast_rows(self, row: int, shape: Shape) -> None:
        """Copies of the rows of a tile, and of the rest."""
        plan = self.kernel
        if shape.rows > 1:
            amount = min(shape.rows, plan.size(row))
            rows = upcast(plan, row, amount, _TILE, may_overlap=not self._shares_rows())
            if rows.rest is not None:
                plan.do("upcast", rows.rest, 0, "the rest of the rows")

    @property
    def is_shared(self) -> bool:
        """True where the work is worth waking threads."""
        return pays_threads(self.kernel.target, self._busy_us)

    @property
    def _busy_us(self) -> float:
        return self.work / self.lanes / CYCLES_PER_US

    def _shares_rows(self) -> bool:
        """True where threads may need the rows: no other loop keeps all cores busy."""
        cores = self.kernel.target.cores
        return self.is_shared and all(balance(r, cores) < BALANCED for r in self.others)

    def _thread(self, outermost: Sequence[int], again: int | None) -> None:
        """Share out the loops that need the same k, or those that need other parts of it."""
        plan = self.kernel
        if self.is_shared:
            inner = [n for nest in nests_of(plan.sink)[:1] for n in nest]
            loops = [*outermost, *([] if again is None else [again]), *inner]
            thread_best(plan, loops, f"it takes about {self._busy_us:.0f} us on one core")
