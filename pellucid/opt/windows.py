"""The loop structure of sums over windows: convolutions, forward and backward.

    y[n, o, h, w] = sum over c, i, j of x[n, c, h + i, w + j] * k[o, c, i, j]       w over 28

    for each n, h, and 4 of o:
        for runs of c: for c in a run: for i: for j:
            4 x 2 vectors of sums += 4 numbers of k * 2 vectors of x      the last is masked
        store 4 x 2 vectors

Where all of k does not stay in cache, the 4 of o are the outer loop, and n and h the inner ones.

This is a product of matrices whose sum has several axes: lanes run along the axis that is
contiguous in the output and in one operand; copies are made of vectors along it, and of the axis
along which that operand is used again. Nothing is packed: rows of windows overlap, so a cache line
that was read is read again soon.

Source of the direct form: E. Georganas et al., "Anatomy of High-Performance Deep Learning
Convolutions on SIMD Architectures", 2018, section II (register tiles over pixels and channels).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, reductions, size_of, stores_of, stride_of
from pellucid.opt.cost import CYCLES_PER_US
from pellucid.opt.plan import Pieces, Plan
from pellucid.opt.runs import longest_run, run_length
from pellucid.opt.tiles import LEAST_WORK, THREADING_US, thread_best

MOST_VECTORS = 4
"""How many vectors along the lanes a tile has at most."""
LEAST_FILLED = 0.4
"""Lanes that are used, of all; where fewer are, another axis serves better."""
_TILE = "each value loaded is used by several accumulators"


def plan_windows(plan: Plan) -> bool:
    """Plan a sum of products over several axes; False when the kernel is none."""
    windows = _Windows.of(plan)
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
    lanes: int

    @staticmethod
    def of(plan: Plan) -> _Windows | None:
        """Read a kernel, or give None."""
        sink = plan.sink
        effect = sink.src[0] if len(sink.src) == 1 else None
        nodes = list(reductions(sink))
        if effect is None or effect.op is not Ops.END or len(nodes) != 1:
            return None
        node, outputs = nodes[0], effect.src[1:]
        is_sum = node.arg.op is Ops.ADD and node.dtype.is_float and node.src[0].op is Ops.MUL
        if not is_sum or len(node.src) < 3 or effect.src[0].op not in (Ops.STORE, Ops.GROUP):
            return None
        if any(size_of(r) is None for r in (*outputs, *node.src[1:])):
            return None
        if any(n.op is Ops.DEFINE for n in sink.toposort()):
            return None
        return _Windows._read(plan, node, outputs)

    @staticmethod
    def _read(plan: Plan, node: UOp, outputs: tuple[UOp, ...]) -> _Windows | None:
        places = [s.src[0].src[1] for s in stores_of(plan.sink)]
        reads = [_read_below(side) for side in node.src[0].src]
        most = plan.target.max_lanes(max(4, node.dtype.itemsize))
        for column in outputs:
            if column not in node.ranges or any(stride_of(p, column) != 1 for p in places):
                continue
            wide = [r for r in reads if r is not None and stride_of(r.src[1], column) == 1]
            if None in reads or len(wide) != 1:
                continue
            if any(column in r.ranges for r in reads if r is not None and r is not wide[0]):
                continue
            rows = [r for r in outputs if r in node.ranges and r not in wide[0].ranges]
            if not rows:
                continue
            row = max(rows, key=lambda r: size_of(r) or 1)
            others = tuple(r for r in outputs if r is not row and r is not column)
            lanes = min(most, 1 << ((size_of(column) or 1) - 1).bit_length())
            found = _Windows(plan, node, column, row, others, lanes)
            return found if found.is_worth_it() else None
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
        """True where all that the rows read does not stay in cache from one row of windows on."""
        num_bytes = self.node.dtype.itemsize * (size_of(self.row) or 1)
        num_bytes *= math.prod(size_of(r) or 1 for r in self.node.src[1:])
        return num_bytes > self.kernel.target.l2_bytes // 2

    @property
    def work(self) -> int:
        """How many products are added."""
        ranges = (self.column, self.row, *self.others, *self.node.src[1:])
        return math.prod(size_of(r) or 1 for r in ranges)

    def plan(self) -> None:
        """Rows and columns innermost; runs of the sum; copies of rows, then vectors."""
        plan, column, row = self.kernel, self.column.arg.id, self.row.arg.id
        self._order()
        if plan.size(column) % self.lanes:
            plan.do("pad", column, self.lanes, "masks are cheaper than a scalar rest")
        self._runs()
        vectors = plan.size(column) // self.lanes
        width = vectors if vectors <= MOST_VECTORS else _even(vectors)
        row_loop = self._upcast_rows(row, width)
        self._upcast_vectors(column, width)
        busy_us = self.work / self.lanes / CYCLES_PER_US
        target = plan.target
        if target.has_threads and target.cores > 1 and busy_us >= THREADING_US:
            rows = [] if row_loop is None else [row_loop]
            others = [r.arg.id for r in self.others]
            loops = [*rows, *others] if self.is_heavy else [*others, *rows]
            thread_best(plan, loops, f"it takes about {busy_us:.0f} us on one core")

    def _order(self) -> None:
        """Columns inside of all other loops; rows too, unless what they read overflows a cache."""
        plan = self.kernel
        first, last = ((self.row,), ()) if self.is_heavy else ((), (self.row,))
        wanted = [r.arg.id for r in (*first, *self.others, *last, self.column)]
        for place, number in enumerate(wanted):
            axes = axes_of(plan.sink)
            if axes[place].arg.id != number:
                other = axes.index(plan.axis(number))
                plan.do(
                    "swap", axes[place].arg.id, other, "windows of one row share what they read"
                )

    def _runs(self) -> None:
        """Nest the sum, so that no accumulator adds many terms."""
        plan = self.kernel
        loops = [r.arg.id for r in self.node.src[1:]]
        most = longest_run(math.prod(plan.size(n) for n in loops))
        reason = f"no accumulator adds more than about {most} products"
        while len(loops) > 1 and math.prod(plan.size(n) for n in loops) > most:
            inside = math.prod(plan.size(n) for n in loops[1:])
            length = run_length(plan.size(loops[0]), most // inside) if 2 * inside <= most else 1
            outer: int | None = loops[0]
            if length > 1:
                outer = plan.do("cascade", loops[0], length, reason).outer
            else:
                plan.do("cascade", loops[0], 0, reason)
            self._shorten(outer, most, reason)
            if length > 1:
                return
            loops = loops[1:]
        if len(loops) == 1:
            self._shorten(loops[0], most, reason)

    def _shorten(self, number: int | None, most: int, reason: str) -> None:
        plan = self.kernel
        while number is not None and (size := plan.size(number)) > most:
            number = plan.do("cascade", number, run_length(size, most), reason).outer

    def _upcast_rows(self, row: int, vectors: int) -> int | None:
        """Copies of rows, as many as registers allow; the loop that is left."""
        plan = self.kernel
        registers = plan.target.num_vector_registers
        most = max(1, min(8, registers // 2 // vectors, 4 if vectors > 1 else 8))
        size = plan.size(row)
        amount = (
            size if size <= most else next((n for n in (most, most - 1) if size % n == 0), most)
        )
        if amount < 2:
            return row
        pieces = plan.do("upcast", row, amount, _TILE)
        if pieces.rest is not None:
            plan.do("upcast", pieces.rest, 0, "the rest of the rows")
        return pieces.outer

    def _upcast_vectors(self, column: int, width: int) -> None:
        plan = self.kernel
        pieces = Pieces(None, column, None)
        if width * self.lanes < plan.size(column):
            pieces = plan.do("split", column, width * self.lanes, _TILE)
        for part in (pieces.inner, pieces.rest):
            if part is not None:
                found = plan.do("lanes", part, self.lanes, "accesses are contiguous along it")
                if found.outer is not None:
                    plan.do("upcast", found.outer, 0, _TILE)


def _read_below(side: UOp) -> UOp | None:
    """The one INDEX of a parameter that a side of a product is, below casts and padding."""
    while side.op is Ops.CAST or (side.op is Ops.WHERE and side.src[2].is_const):
        side = side.src[0 if side.op is Ops.CAST else 1]
    return side if side.op is Ops.INDEX and side.src[0].op is Ops.PARAM else None


def _even(vectors: int) -> int:
    """How many vectors a tile has where one is too few for all: a divisor, else even parts.

    >>> [_even(n) for n in (7, 8, 9, 14)]
    [4, 4, 3, 4]
    """
    for amount in range(MOST_VECTORS, 2, -1):
        if vectors % amount == 0:
            return amount
    return -(-vectors // -(-vectors // MOST_VECTORS))
