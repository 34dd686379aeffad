"""The loop structure of a row times a matrix, or of a few rows, where the matrix is read once.

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

A few rows are multiplied while the matrix comes from memory, each number of b for all of them.
Tiles would read it in panels of 64 columns, a short piece of each row: 8 x 1024 times 1024 x 4096
takes twice as long that way (Ice Lake, one core). What stays in a cache is faster in panels.
"""

from __future__ import annotations

from pellucid.ir.transform import next_range_id
from pellucid.opt.axes import axes_of, end_of, reductions
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
        self.rows = stream_rows(plan.target, product.count, product.uses)
        self.lanes = plan.target.max_lanes(max(4, product.node.dtype.itemsize))

    def plan(self) -> None:
        """Stretches of columns; for each, rows a few at a time."""
        plan, product = self.kernel, self.product
        column, uses = product.column.arg.id, product.uses
        if product.row is not None:
            self._order([r.arg.id for r in (*product.others, product.column, product.row)])
        busy_us = product.work // uses * product.wide.dtype.itemsize / BYTES_PER_US
        shared = plan.target.has_threads and plan.target.cores > 1 and busy_us >= THREADING_US
        size = plan.size(column)
        if size % self.lanes:
            plan.do("pad", column, self.lanes, "masks are cheaper than a scalar rest")
            size = plan.size(column)
        width = self._width(size, plan.target.cores if shared else 1)
        pieces = Pieces(None, column, None)
        if width < size:
            reason = "the sums of a stretch of columns stay in the first cache"
            pieces = plan.do("split", column, width, reason)
        for part in (pieces.inner, pieces.rest):
            if part is not None:
                if product.row is not None:
                    *outer, row = self._loops_around(part)
                    self._order([*outer[:-1], row, part])
                node = next(n for n in reductions(plan.sink) if plan.axis(part) in n.ranges)
                self._blocks(part, node.src[1].arg.id)
        if shared:
            loops = [r.arg.id for r in product.others]
            loops += [pieces.outer] if pieces.outer is not None else []
            thread_best(plan, loops, f"it takes about {busy_us:.0f} us on one core")

    def _width(self, size: int, threads: int) -> int:
        """The columns of a stretch, so that the sums of all rows stay in the first cache."""
        product, target = self.product, self.kernel.target
        most = target.l1d_bytes // 2 // product.wide.dtype.itemsize // product.uses
        most = max(self.lanes, min(most, size // threads) // self.lanes * self.lanes)
        return most if product.row is None else even_width(size, most, self.lanes, threads)

    def _blocks(self, column: int, inner: int) -> None:
        """A few rows side by side; then blocks of a sum, each outside of the columns."""
        plan = self.kernel
        reason = "rows side by side are several streams, each through a part of the matrix"
        length = part_of_rows(plan.size(inner), self.rows)
        rows = plan.do("split", inner, length, reason)
        for part in (rows.outer, rows.rest):
            if part is not None:
                plan.do("unroll", part, 0, reason)
        nests = [self._nest_of(column)]  # of loops over rows, where there are several, and columns
        levels, rests = self._levels(rows.inner)
        for level in levels:
            nests += self._hoist(level, nests[-1])
        for level in rests:
            nests += self._hoist(level, nests[0])
        for *row, number in nests:
            for each in row:
                plan.do("upcast", each, 0, "what is read of the matrix is used by all rows")
            pieces = plan.do("lanes", number, self.lanes, "accesses are contiguous along it")
            turns = 0 if pieces.outer is None else plan.size(pieces.outer)
            is_short = self.rows * self.product.uses < MANY_ROWS
            if pieces.outer is not None and turns % 2 == 0 and is_short:
                plan.do("upcast", pieces.outer, 2, "two vectors a turn")

    def _nest_of(self, column: int) -> list[int]:
        """The loop over rows that all read the same, and the one over columns inside of it."""
        loops = self._loops_around(column)
        return loops[loops.index(column) - (self.product.row is not None) :]

    def _loops_around(self, number: int) -> list[int]:
        """The loops of the nest that a loop stands in."""
        end = end_of(self.kernel.sink, self.kernel.axis(number))
        assert end is not None, "every output axis has an END"
        return [r.arg.id for r in end.src[1:]]

    def _order(self, wanted: list[int]) -> None:
        """Bring loops in an order, from the outermost on."""
        for place, number in enumerate(wanted):
            now = self._loops_around(number)[place]
            if now != number:
                there = axes_of(self.kernel.sink).index(self.kernel.axis(number))
                self.kernel.do("swap", now, there, "rows stand outside of a stretch of columns")

    def _hoist(self, level: int, nest: list[int]) -> list[list[int]]:
        plan = self.kernel
        end = end_of(plan.sink, plan.axis(nest[0]))
        assert end is not None, "every output axis has an END"
        first = next_range_id(plan.sink)
        reason = "columns are read along memory; their sums wait in cache"
        plan.do("hoist", level, end.src[1:].index(plan.axis(nest[0])), reason)
        middle = first + len(nest)
        return [list(range(first, middle)), list(range(middle, middle + len(nest)))]

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


def even_width(size: int, most: int, lanes: int, threads: int) -> int:
    """The widest stretch of columns, of most at most, that leaves no rest and is evenly shared.

    >>> [even_width(n, 768, 16, 2) for n in (4096, 3072, 50272)]
    [512, 768, 768]
    """
    near = range(most, most // 2, -lanes)
    even = (n for n in near if size % n == 0 and size // n % threads == 0)
    return next(even, most)


def part_of_rows(count: int, streams: int) -> int:
    """How many rows belong to a stream, so that there are so many of them, and few rows are left.

    >>> [part_of_rows(n, 8) for n in (4096, 4099, 23, 16)]
    [512, 512, 3, 2]
    """
    part = count // streams
    return part if count // part == streams else part + 1
