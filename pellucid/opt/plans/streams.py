"""The loop structure of a row times a matrix, which is read once.

    y[j] = sum over k of x[k] * b[k, j]                                          4096 x 4096

    for each stretch of columns (these are shared out among threads):
        for k over an eighth of the rows: for j in the stretch:
            y[j] += 8 numbers of x * 8 vectors of b, from rows k, k + 512, k + 1024, ...

With 32 registers there are 16 of them, of which an Ice Lake reads 15.7 GB/s, and 14.7 of 8.

Nothing of b is used twice, so b is read as it lies in memory, a few rows of it side by side. Each
belongs to a part of b of its own, so that a stream goes on where it was when the next row comes;
of neighbours, each would begin anew in every turn, which takes 3 to 7 % longer. One stream alone
takes 1.6 times as long, and asking for what comes made it worse at every distance. The sums of a
stretch of columns stay in the first cache. See also the design's cpu.md, section 2.
"""

from __future__ import annotations

from pellucid.ir.transform import next_range_id
from pellucid.opt.axes import end_of, reductions
from pellucid.opt.cost import BYTES_PER_US
from pellucid.opt.plans.plan import Pieces, Plan
from pellucid.opt.plans.products import Product, stream_rows
from pellucid.opt.plans.runs import longest_run, run_length
from pellucid.opt.plans.shares import THREADING_US, thread_best

MANY_ROWS = 16
"""From so many rows on, one vector of each a turn is work enough."""


class Stream:
    """The plan of a row times a matrix, or of the sums of its columns."""

    def __init__(self, plan: Plan, product: Product) -> None:
        self.kernel, self.product = plan, product
        self.rows = stream_rows(plan.target, product.count)
        self.lanes = plan.target.max_lanes(max(4, product.node.dtype.itemsize))

    def plan(self) -> None:
        """Stretches of columns; for each, rows a few at a time."""
        plan, product = self.kernel, self.product
        column = product.column.arg.id
        busy_us = product.work * product.wide.dtype.itemsize / BYTES_PER_US
        shared = plan.target.has_threads and plan.target.cores > 1 and busy_us >= THREADING_US
        size = plan.size(column)
        if size % self.lanes:
            plan.do("pad", column, self.lanes, "masks are cheaper than a scalar rest")
            size = plan.size(column)
        width = plan.target.l1d_bytes // 2 // product.wide.dtype.itemsize
        if shared:
            width = min(width, size // plan.target.cores)
        width = max(self.lanes, width // self.lanes * self.lanes)
        pieces = Pieces(None, column, None)
        if width < size:
            reason = "the sums of a stretch of columns stay in the first cache"
            pieces = plan.do("split", column, width, reason)
        for part in (pieces.inner, pieces.rest):
            if part is not None:
                node = next(n for n in reductions(plan.sink) if plan.axis(part) in n.ranges)
                self._blocks(part, node.src[1].arg.id)
        if shared:
            loops = [r.arg.id for r in product.others]
            loops += [pieces.outer] if pieces.outer is not None else []
            thread_best(plan, loops, f"it takes about {busy_us:.0f} us on one core")

    def _blocks(self, column: int, inner: int) -> None:
        """A few rows side by side; then blocks of a sum, each outside of the columns."""
        plan = self.kernel
        reason = "rows side by side are several streams, each through a part of the matrix"
        length = part_of_rows(plan.size(inner), self.rows)
        rows = plan.do("split", inner, length, reason)
        for part in (rows.outer, rows.rest):
            if part is not None:
                plan.do("unroll", part, 0, reason)
        columns = [column]
        levels, rests = self._levels(rows.inner)
        for level in levels:
            columns += self._hoist(level, columns[-1])
        for level in rests:
            columns += self._hoist(level, column)
        for number in columns:
            pieces = plan.do("lanes", number, self.lanes, "accesses are contiguous along it")
            turns = 0 if pieces.outer is None else plan.size(pieces.outer)
            if pieces.outer is not None and turns % 2 == 0 and self.rows < MANY_ROWS:
                plan.do("upcast", pieces.outer, 2, "two vectors a turn")

    def _hoist(self, level: int, column: int) -> tuple[int, int]:
        plan = self.kernel
        axis = plan.axis(column)
        end = end_of(plan.sink, axis)
        assert end is not None, "every output axis has an END"
        first = next_range_id(plan.sink)
        reason = "columns are read along memory; their sums wait in cache"
        plan.do("hoist", level, end.src[1:].index(axis), reason)
        return first, first + 1

    def _levels(self, number: int | None) -> tuple[list[int], list[int]]:
        """Split a loop until each level is short: the levels, outermost first, and what is left."""
        plan = self.kernel
        most = longest_run(self.product.count)
        reason = f"no sum grows by more than about {most} terms"
        levels: list[int] = []
        rests: list[int] = []
        while number is not None and plan.size(number) > most:
            pieces = plan.do("split", number, run_length(plan.size(number), most), reason)
            levels, number = [pieces.inner, *levels], pieces.outer
            rests += [pieces.rest] if pieces.rest is not None else []
        outer = [number] if number is not None else []
        return [*outer, *levels], [n for n in rests if plan.size(n) > 1]


def part_of_rows(count: int, streams: int) -> int:
    """How many rows belong to a stream, so that there are so many of them, and few rows are left.

    >>> [part_of_rows(n, 8) for n in (4096, 4099, 23, 16)]
    [512, 512, 3, 2]
    """
    part = count // streams
    return part if count // part == streams else part + 1
