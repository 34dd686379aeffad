"""The loop structure of products of matrices: register tiles, packed panels, blocks of a long sum.

    c[i, j] = sum over k of a[i, k] * b[k, j]                      1024 x 1024 x 1024

With 32 registers of 16 lanes, and with 16 registers of 8 lanes (tile_sizes.py says why):

    for each panel of 64 columns (these are shared out among threads):
        copy b[:, panel] to local memory, rows side by side        if b does not stay in cache
        for 6 rows of a:
            for runs of k: for k in a run:  24 vectors of sums += 6 numbers of a * 4 vectors of b
            store 6 x 64 sums, and ask for the memory of the next ones

    for each group of 4 panels of 16 columns:
        copy b[:, group] to local memory, one panel after the other
        for 6 rows of a: for each panel of the group:
            for runs of k: for k in a run:  12 vectors of sums += 6 numbers of a * 2 vectors of b
            store 6 x 16 sums

Where a lies the other way, a[k, i], the 6 rows of a tile are copied first, side by side: each is a
part of a line, and the lines would not stay in the first cache from panel to panel.

A long k is cut in blocks outside of the rows, so that the panel stays in cache; the sums wait in
local memory from block to block.

They wait too where much follows them, a step of an optimiser or an error function: a copy of that
for each vector of a tile is far more code than the sum itself.

    for 4 rows of a:
        16 vectors of local memory = for runs of k: …
        for each of the rows:  4 vectors of local memory -> 4 vectors of what follows

Such kernels have half as many lines or fewer, and take as long or less: 512 x 128 x 784 with a step
of Adam 0.94 to 1.01 of the time of copies, 128 x 768 x 3072 with GELU 0.93.

A plan here is a list of actions as any other. What fits no shape below is left to heuristic.py; a
row times a matrix is planned in streams.py.

Sources: those of tile_sizes.py.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

from pellucid.core.errors import ActionError
from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.opt.axes import all_ends, axes_of, end_of, reductions, stores_of, stride_of
from pellucid.opt.cost import CYCLES_PER_US
from pellucid.opt.plans.copies import upcast
from pellucid.opt.plans.plan import Pieces, Plan
from pellucid.opt.plans.products import Product
from pellucid.opt.plans.rests import columns_apart, plan_apart, take_apart
from pellucid.opt.plans.runs import longest_run, nest
from pellucid.opt.plans.shares import THREADING_US, thread_best
from pellucid.opt.plans.streams import Stream
from pellucid.opt.plans.sums import work_after
from pellucid.opt.plans.tile_sizes import choose_sizes, rest_rows, tile_rows


def plan_tiles(plan: Plan) -> bool:
    """Plan a product of matrices, or of a row and a matrix; False when the kernel is neither."""
    product = Product.of(plan)
    if product is None:
        return False
    if product.is_stream(plan):
        Stream(plan, product).plan()
        return True
    if product.is_tile(plan):
        _Tiles(plan, product).plan()
        return True
    return False


@dataclass(frozen=True)
class _Nest:
    """The loops of one nest by id; None for a loop that is not there.

    level: around what is packed together.  more: other loops over rows.  panel: inside of rows.
    """

    level: int | None
    row: int
    more: tuple[int, ...]
    panel: int | None
    column: int
    sums: tuple[int, ...]

    @property
    def inner(self) -> list[int]:
        """The loops inside of *level*, outermost first."""
        return [n for n in (self.row, *self.more, self.panel, self.column) if n is not None]

    def renamed(self, level: int, first: int, sums: tuple[int, ...]) -> _Nest:
        """The same loops, numbered from *first*."""
        new = dict(zip(self.inner, range(first, first + len(self.inner)), strict=True))
        panel = None if self.panel is None else new[self.panel]
        more = tuple(new[n] for n in self.more)
        return _Nest(level, new[self.row], more, panel, new[self.column], sums)


class _Tiles:
    """The plan of a product of two matrices, or of many."""

    def __init__(self, plan: Plan, product: Product) -> None:
        self.kernel, self.product = plan, product
        target = plan.target
        lanes = target.max_lanes(max(4, product.node.dtype.itemsize))
        self.busy_us = product.work / lanes / CYCLES_PER_US
        is_long = self.busy_us >= THREADING_US
        self.threads = target.cores if target.has_threads and is_long else 1
        self.apart = columns_apart(product, target, lanes) if self.threads == 1 else 0
        self.sizes = choose_sizes(product, target, 1 if product.others else self.threads)
        self.most_run = longest_run(product.count)
        self.shares_rows = False
        self.follows = work_after(plan.sink, product.node)

    def plan(self) -> None:
        """Panels of columns, then tiles in each, then runs of the sum."""
        self._order()
        column, apart = self.product.column.arg.id, None
        if self.apart:
            column, apart = take_apart(self.kernel, self.product, self.apart)
        elif self.kernel.size(column) % self.sizes.lanes:
            reason = "masks are cheaper than a scalar rest"
            self.kernel.do("pad", column, self.sizes.lanes, reason)
        first, *others = self._nests(column)
        self.shares_rows = self.threads > 1 and first.level is None
        rows = self._plan_sums(first)
        for found in others:
            self._plan_sums(found)
        if apart is not None:
            plan_apart(self.kernel, self.product, apart, self.sizes.lanes)
        if self.threads > 1:
            loops = [r.arg.id for r in self.product.others]
            loops += [n for n in (rows if first.level is None else first.level,) if n is not None]
            thread_best(self.kernel, loops, f"it takes about {self.busy_us:.0f} us on one core")

    # ---- order, and panels ----

    def _order(self) -> None:
        """Columns, then rows, inside of all other loops."""
        product = self.product
        wanted = (*product.others, product.column, *product.more, product.row)
        reason = "rows of a panel follow each other, so that it stays in cache"
        self._arrange([r.arg.id for r in wanted if r is not None], reason)

    def _arrange(self, wanted: list[int], reason: str) -> None:
        """Bring the loops of one nest in an order."""
        for place, number in enumerate(wanted):
            now = self._nest_of(number)[place]
            if now != number:
                self._swap(now, number, reason)

    def _nest_of(self, number: int) -> list[int]:
        """The loops of the nest that a loop stands in."""
        end = end_of(self.kernel.sink, self.kernel.axis(number))
        assert end is not None, "a loop of a product is an output axis"
        return [r.arg.id for r in end.src[1:]]

    def _swap(self, number: int, other: int, reason: str) -> None:
        axes = axes_of(self.kernel.sink)
        self.kernel.do("swap", number, axes.index(self.kernel.axis(other)), reason)

    def _nests(self, column: int) -> list[_Nest]:
        """Split the columns in groups, and these in panels; a nest for each kind of panel."""
        width, panels = self.sizes.width, self.sizes.panels
        groups = self._parts(column, width * panels, "columns that stay in cache together")
        if panels == 1:
            return [self._nest(level, None, part) for level, part in groups]
        return [
            self._nest(level, panel, part)
            for level, group in groups
            for panel, part in self._parts(group, width, "a panel has all vectors of a tile")
        ]

    def _parts(self, number: int, amount: int, reason: str) -> list[tuple[int | None, int]]:
        """Split a loop: the outer and the inner loop, and what is left alone."""
        pieces = Pieces(None, number, None)
        if self.kernel.size(number) > amount:
            pieces = self.kernel.do("split", number, amount, reason)
        parts = [(pieces.outer, pieces.inner), (None, pieces.rest)]
        return [(outer, part) for outer, part in parts if part is not None]

    def _nest(self, level: int | None, panel: int | None, column: int) -> _Nest:
        plan, loops = self.kernel, self._nest_of(column)
        *more, row = loops[loops.index(column) + 1 :]
        axis = plan.axis(column)
        node = next(n for n in reductions(plan.sink) if axis in n.ranges)
        sums = tuple(r.arg.id for r in node.src[1:])
        found = _Nest(level, row, tuple(more), panel, column, sums)
        outside = [n for n in loops if n not in found.inner]
        self._arrange([*outside, *found.inner], "lanes stand inside of rows")
        return found

    # ---- the sum ----

    def _plan_sums(self, found: _Nest) -> int | None:
        """Cut a long sum in blocks outside of the rows; the loop over rows, if it is not inside."""
        plan, depth = self.kernel, self.sizes.depth
        if depth >= self.product.count or len(found.sums) > 1:
            return self._plan_nest(found)
        reason = f"blocks of {depth} keep the panel in cache"
        pieces = plan.do("split", found.sums[0], depth, reason)
        assert pieces.outer is not None, "a sum that is cut has several blocks"
        first, inner = next_range_id(plan.sink), found.inner
        plan.do("hoist", pieces.outer, self._nest_of(found.row).index(found.row), reason)
        cleared = found.renamed(pieces.outer, first, ())
        self._plan_nest(found.renamed(pieces.outer, first + len(inner), (pieces.inner,)))
        self._vectors(cleared.column)
        if pieces.rest is not None and plan.size(pieces.rest) > 1:
            self._plan_nest(replace(found, sums=(pieces.rest,)))
        else:
            self._vectors(found.column)
        return None

    def _plan_nest(self, found: _Nest) -> int | None:
        """Copies, runs, rows and vectors of the loops around one sum; the loop over rows."""
        plan, sizes = self.kernel, self.sizes
        if sizes.is_packed:
            self._pack(found.row if found.level is None else found.level, found.column)
        nest(plan, list(found.sums), self.most_run)
        vectors = plan.size(found.column) // sizes.lanes
        first = next_range_id(plan.sink)
        rows = self._plan_rows(found, vectors)
        # vectors after rows, so that the vectors of a row follow each other; those of the rest too
        for column in [found.column, *(loops[-1] for loops in self._loops() if loops[-1] >= first)]:
            self._vectors(column)
        if rows is not None and rows != found.row:
            if found.panel is None:
                self._ask_for_results(rows)
            if self._pays_left(found):
                self._pack_left(rows)
        return rows

    def _vectors(self, number: int) -> None:
        """Lanes along columns, and a copy for each vector."""
        pieces = self.kernel.do("lanes", number, self.sizes.lanes, _CONTIGUOUS)
        if pieces.outer is not None:
            self.kernel.do("upcast", pieces.outer, 0, _TILE)

    # ---- rows ----

    def _plan_rows(self, found: _Nest, vectors: int) -> int | None:
        """Copies of the rows of a tile; the loop over tiles or blocks, if there are several."""
        block = self._waiting_rows(found, vectors)
        if not block:
            return self._upcast_rows(found.row, vectors, may_overlap=not self.shares_rows)
        outer, row = self._let_sums_wait(found, block)
        self._upcast_rows(row, vectors, may_overlap=True)
        return outer

    def _upcast_rows(self, row: int, vectors: int, *, may_overlap: bool) -> int | None:
        plan, registers = self.kernel, self.kernel.target.num_vector_registers
        size = plan.size(row)
        amount = tile_rows(size, vectors, registers, may_overlap=may_overlap)
        if amount < 2:
            return row
        pieces = upcast(plan, row, amount, _TILE, may_overlap=may_overlap)
        if pieces.rest is not None:
            together = rest_rows(size % amount, size, vectors, registers)
            if together > 1:
                plan.do("upcast", pieces.rest, together, "the rest of the rows")
        return pieces.outer

    # ---- sums that wait ----

    def _waiting_rows(self, found: _Nest, vectors: int) -> int:
        """Of how many rows the sums wait for what follows; 0 where copies of that are few."""
        target, size = self.kernel.target, self.kernel.size(found.row)
        tile = tile_rows(size, vectors, target.num_vector_registers)
        if self.follows * tile * vectors <= MOST_AFTER or found.more or self._pays_left(found):
            return 0
        row_bytes = vectors * self.sizes.lanes * self.product.node.dtype.itemsize
        most = min(size // 2, max(tile, target.l1d_bytes // WAITING_PART // row_bytes))
        near = (n for n in range(max(2, 2 * tile // 3), most + 1) if size % n == 0)
        return min(near, key=lambda n: (n > tile, abs(n - tile)), default=0)

    def _let_sums_wait(self, found: _Nest, block: int) -> tuple[int, int]:
        """Sum a block of rows into memory; the loops over blocks, and over the rows of a sum.

        What follows is then a loop over rows, all of them. Small blocks let what is stored reach
        memory while the next one is summed.
        """
        plan = self.kernel
        pieces = plan.do("split", found.row, block, "sums of a block of rows wait in cache")
        assert pieces.outer is not None, "there are several blocks"
        level = pieces.outer
        if found.panel is not None:
            self._swap(pieces.inner, found.panel, "a block is one panel wide")
            level = found.panel
        row = next_range_id(plan.sink)
        plan.do("compute", level, 0, "copies of what follows the sums would be much code")
        return pieces.outer, row

    def _ask_for_results(self, rows: int) -> None:
        """Bring what the next tile writes near, while this one is summed.

        The lines of a tile lie far apart, and a core that has to fetch many before it can write
        waits for them: 512 x 512 x 512 took 1 to 5 % longer. A small result is near already, and
        what narrow panels write lies side by side.
        """
        plan, result = self.kernel, next(iter(stores_of(self.kernel.sink))).src[0]
        if result.src[0].op is not Ops.PARAM:
            return  # the sums wait in memory of the kernel's own
        param = result.src[0]
        if param.arg.size * param.dtype.itemsize > plan.target.l2_bytes // 4:
            with contextlib.suppress(ActionError):  # the rest of the rows lies elsewhere
                plan.do("prefetch", rows, param.arg.slot, "a tile is written at once")

    # ---- copies ----

    def _pack(self, level: int, columns: int) -> None:
        """Copy panels; along their columns where they are contiguous, else along the sum."""
        plan, slot = self.kernel, self.product.wide.src[0].arg.slot
        first = next_range_id(plan.sink)
        reason = "a panel read by all rows lies side by side in cache"
        only = (axes_of(plan.sink).index(plan.axis(columns)),) if self.product.is_of_itself else ()
        plan.do("pack", level, slot, reason, only)
        *panels, along, column = next(loops for loops in self._loops() if loops[0] >= first)
        if self.product.is_contiguous:
            if panels and len(self.product.sums) == 1:
                self._swap(panels[-1], along, "the copy reads along memory")
            self._vectors(column)
            return
        # several rows of the parameter side by side, each walked along memory
        lanes, reason = max(2, self.sizes.lanes // 2), "values that lie apart come side by side"
        pieces = plan.do("lanes", column, lanes, reason)
        if pieces.outer is not None:
            self._swap(along, pieces.outer, "the copy reads along memory")

    def _pays_left(self, found: _Nest) -> bool:
        """True where the lines of *left* do not stay in the first cache from panel to panel.

        Along rows, a line holds those of two or three tiles, of one turn of the sum. Ways of the
        first cache are as long as a page on all processors of today.
        """
        plan, left = self.kernel, self.product.left
        if found.panel is None or plan.size(found.panel) < LEAST_PANELS or left is None:
            return False
        stride = abs(stride_of(left.src[1], self.product.sums[-1]) or 0) * left.dtype.itemsize
        if stride < plan.target.line_bytes:
            return False
        lines = plan.target.l1d_bytes // math.gcd(stride, PAGE_BYTES)
        return min(self.sizes.depth, self.product.count) > min(
            lines, plan.target.l1d_bytes // plan.target.line_bytes
        )

    def _pack_left(self, rows: int) -> None:
        """Copy the rows of a tile, those of one turn of the sum side by side."""
        plan, left = self.kernel, self.product.left
        assert left is not None, "only plans with a left matrix come here"
        first = next_range_id(plan.sink)
        reason = "lines of which a tile uses a part do not stay in the first cache"
        plan.do("pack", rows, left.src[0].arg.slot, reason)
        *_, row = next(loops for loops in self._loops() if loops[0] >= first)
        plan.do("upcast", row, 0, "they are neighbours in memory")

    def _loops(self) -> list[list[int]]:
        """The loops of each nest."""
        return [[r.arg.id for r in end.src[1:]] for end in all_ends(self.kernel.sink)]


MOST_AFTER = 96
"""With more operations after the sums of a tile, all copies counted, these wait in memory."""
WAITING_PART = 3
"""Sums that wait take one part in so many of the first cache."""
LEAST_PANELS = 4
"""Rows of a tile are copied where so many panels use them."""
PAGE_BYTES = 4096
_TILE = "each value loaded is used by several accumulators"
_CONTIGUOUS = "accesses are contiguous along it"
