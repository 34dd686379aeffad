"""The loop structure of products of matrices: register tiles, packed panels, blocks of a long sum.

    c[i, j] = sum over k of a[i, k] * b[k, j]                      1024 x 1024 x 1024, 16 lanes

    for each panel of 64 columns (these are shared out among threads):
        copy b[:, panel] to local memory, rows side by side        if b does not stay in cache
        for 4 rows of a:
            for runs of k: for k in a run:  16 vectors of sums += 4 numbers of a * 4 vectors of b
            store 4 x 64 sums

A long k is cut in blocks outside of the rows, so that the panel stays in cache; the sums wait in
local memory from block to block. One row alone uses nothing twice: then b is read as it lies in
memory, a few rows of b at a time, and the sums of a stretch of columns stay in cache.

A plan here is a list of actions as any other. What fits no shape below is left to heuristic.py.

Sources: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008; the
design's cpu.md, sections 2 and 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, end_of, reductions, size_of, stores_of, stride_of
from pellucid.opt.cost import BYTES_PER_US, CYCLES_PER_US
from pellucid.opt.plan import Pieces, Plan
from pellucid.opt.runs import longest_run, nest, run_length

LEAST_WORK = 4096
"""Smaller products are not worth a plan of their own."""
THREADING_US = 100.0
"""Kernels that take longer than this are worth waking threads."""
STREAM_ROWS = 8
"""How many rows of a matrix are read side by side, when nothing of it is used twice."""
MAX_SUM = 1 << 16
"""Longer sums would need a third level of memory for their blocks."""
MAX_DEPTH = 2048
"""The most rows of a panel that are copied at a time."""


def plan_tiles(plan: Plan) -> bool:
    """Plan a product of matrices, or of a row and a matrix; False when the kernel is neither."""
    product = _Product.of(plan)
    if product is None:
        return False
    if product.is_tile(plan):
        _Tiles(plan, product).plan()
        return True
    if product.is_stream(plan):
        _Stream(plan, product).plan()
        return True
    return False


# ---- what the kernel is ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """One nest of output loops around one sum over one axis.

    wide: the read whose lanes run along *column*, the output axis that is contiguous when stored.
    row: the output axis along which *wide* is used again, the longest; None where there is none.
    sums: what is summed over.  more: other axes as *row*.  others: axes that both matrices have.
    """

    node: UOp
    wide: UOp
    column: UOp
    row: UOp | None
    sums: tuple[UOp, ...]
    more: tuple[UOp, ...]
    others: tuple[UOp, ...]

    @staticmethod
    def of(plan: Plan) -> _Product | None:
        """Read a kernel, or give None."""
        sink = plan.sink
        effect = sink.src[0] if len(sink.src) == 1 else None
        nodes = list(reductions(sink))
        if effect is None or effect.op is not Ops.END or len(nodes) != 1:
            return None
        node, outputs = nodes[0], effect.src[1:]
        if any(n.op is Ops.DEFINE for n in sink.toposort()):
            return None
        if any(size_of(r) is None for r in (*outputs, *node.src[1:])):
            return None
        if not set(outputs) <= set(node.ranges):
            return None  # a reduction of rows, which stands outside of the other loops
        if effect.src[0].op not in (Ops.STORE, Ops.GROUP):
            return None
        return _Product._read(plan, node, outputs)

    @staticmethod
    def _read(plan: Plan, node: UOp, outputs: tuple[UOp, ...]) -> _Product | None:
        places = [s.src[0].src[1] for s in stores_of(plan.sink)]
        columns = [r for r in outputs if all(stride_of(p, r) == 1 for p in places)]
        column = columns[-1] if columns else None
        if column is None or column not in node.ranges or not node.dtype.is_float:
            return None
        sides = node.src[0].src if node.src[0].op is Ops.MUL else (node.src[0],)
        wide_sides = [s for s in sides if column in s.ranges]
        reads = [_plain_read(s) for s in wide_sides]
        wide = reads[0] if len(reads) == 1 else None
        if wide is None or not set(node.src[1:]) <= set(wide.ranges):
            return None
        rows = [r for r in outputs if r in node.ranges and r not in wide.ranges]
        row = max(rows, key=lambda r: size_of(r) or 1, default=None)
        more = tuple(r for r in rows if r is not row)
        others = tuple(r for r in outputs if r not in (column, *rows))
        return _Product(node, wide, column, row, node.src[1:], more, others)

    @property
    def is_contiguous(self) -> bool:
        """True where the lanes of *wide* are neighbours in memory."""
        return stride_of(self.wide.src[1], self.column) == 1

    def size(self, axis: UOp | None) -> int:
        """The size of an axis; 1 for none."""
        return 1 if axis is None else size_of(axis) or 1

    @property
    def count(self) -> int:
        """How many products make one sum."""
        return math.prod(self.size(r) for r in self.sums)

    @property
    def uses(self) -> int:
        """How often each element of *wide* is used."""
        return math.prod(self.size(r) for r in (self.row, *self.more))

    @property
    def work(self) -> int:
        """How many products are added."""
        ranges = (self.column, self.row, *self.sums, *self.more, *self.others)
        return math.prod(self.size(r) for r in ranges)

    def is_tile(self, plan: Plan) -> bool:
        """True where several rows use the same columns."""
        target = plan.target
        if self.row is None or self.work < LEAST_WORK or self.node.arg.op is not Ops.ADD:
            return False
        columns, lanes = self.size(self.column), target.max_lanes(max(4, self.node.dtype.itemsize))
        masked = columns % lanes == 0 or target.has_masked_memory
        fits = columns >= lanes or (masked and 2 * columns > lanes)
        fits = fits and self.count <= MAX_SUM
        return (
            lanes > 1 and masked and fits and (self.is_contiguous or self._pays_transposing(plan))
        )

    def _pays_transposing(self, plan: Plan) -> bool:
        """True where a copy of *wide*, turned around, is worth it: rows enough use it."""
        size_bytes = self.size(self.column) * self.count * self.wide.dtype.itemsize
        least = 16 if size_bytes > plan.target.l3_bytes // 4 else 96
        return self.uses >= least

    def is_stream(self, plan: Plan) -> bool:
        """True where a large matrix is read once, row by row."""
        columns, inner = self.size(self.column), self.count
        step = stride_of(self.wide.src[1], self.sums[0]) or 0
        size_bytes = columns * inner * self.wide.dtype.itemsize
        alone = self.row is None and len(self.sums) == 1
        long = alone and columns >= 256 and inner >= 2 * STREAM_ROWS and step >= columns
        return long and self.is_contiguous and size_bytes > plan.target.l2_bytes // 2


def _plain_read(side: UOp) -> UOp | None:
    """The one INDEX that a side of a product is, below casts."""
    while side.op is Ops.CAST:
        side = side.src[0]
    is_plain = side.op is Ops.INDEX and len(side.src) == 2 and side.src[0].op is Ops.PARAM
    return side if is_plain else None


# ---- matrices ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Segment:
    """One nest of the plan: a panel's loop (None: there is one panel), rows, columns, the sum."""

    panel: int | None
    row: int
    column: int
    sums: tuple[int, ...]


class _Tiles:
    """The plan of a product of two matrices, or of many."""

    def __init__(self, plan: Plan, product: _Product) -> None:
        self.kernel, self.product = plan, product
        target = plan.target
        self.lanes = target.max_lanes(max(4, product.node.dtype.itemsize))
        self.vectors = self._vectors_of_panel(product.size(product.column))
        self.accumulators = target.num_vector_registers // 2
        self.rows = product.uses
        self.slot: int = product.wide.src[0].arg.slot
        item_bytes = max(product.wide.dtype.itemsize, product.node.dtype.itemsize)
        inner, columns = product.count, product.size(product.column)
        self.cache = target.l2_bytes // 2
        is_large = columns * inner * item_bytes > self.cache and self.rows >= 16
        is_converted = product.wide.dtype is not product.node.dtype and self.rows >= 16
        self.is_packed = is_large or is_converted or not product.is_contiguous
        self.most_run = longest_run(inner)
        self.depth = self._depth(inner, item_bytes)

    def _vectors_of_panel(self, columns: int) -> int:
        """How many vectors of columns a panel has: 4, or 3 where that leaves no rest."""
        count = -(-columns // self.lanes)
        if self.kernel.target.num_vector_registers < 32:
            return 2
        return 3 if count % 4 and count % 3 == 0 else 4

    def _depth(self, inner: int, item_bytes: int) -> int:
        """How much of the sum is done for all rows before the next block of it."""
        width = self.vectors * self.lanes * item_bytes
        if not self.is_packed or inner * width <= self.cache:
            return inner
        most = max(self.most_run, min(MAX_DEPTH, self.cache // width))
        return next((n for n in range(most, most // 2, -1) if inner % n == 0), most)

    def plan(self) -> None:
        """Panels of columns, then tiles in each, then runs of the sum."""
        self._order()
        column = self._column().arg.id
        size = self.kernel.size(column)
        if size % self.lanes:
            self.kernel.do("pad", column, self.lanes, "masks are cheaper than a scalar rest")
            size = self.kernel.size(column)
        segments = self._panels(column, size)
        for segment in segments:
            self._plan_segment(segment)
        busy_us = self.product.work / self.lanes / CYCLES_PER_US
        target = self.kernel.target
        if target.has_threads and target.cores > 1 and busy_us >= THREADING_US:
            self._thread(segments[0], f"it takes about {busy_us:.0f} us on one core")

    def _column(self) -> UOp:
        return self.kernel.axis(self.product.column.arg.id)

    def _order(self) -> None:
        """Columns, then rows, inside of all other loops."""
        product = self.product
        last: list[UOp | None] = [product.column, product.row]
        last[1:1] = product.more
        wanted = [r.arg.id for r in (*product.others, *last) if r is not None]
        for place, number in enumerate(wanted):
            now = axes_of(self.kernel.sink)[place].arg.id
            if now != number:
                reason = "rows of a panel follow each other, so that it stays in cache"
                self._swap(now, number, reason)

    def _swap(self, number: int, other: int, reason: str) -> None:
        axes = axes_of(self.kernel.sink)
        self.kernel.do("swap", number, axes.index(self.kernel.axis(other)), reason)

    def _panels(self, column: int, size: int) -> list[_Segment]:
        """Split the columns in panels; the nest of the panels, and that of the rest."""
        width = self.vectors * self.lanes
        pieces = Pieces(None, column, None)
        if size > width:
            pieces = self.kernel.do("split", column, width, "a panel has all vectors of a tile")
        parts = [(pieces.outer, pieces.inner), (None, pieces.rest)]
        return [self._segment(panel, part) for panel, part in parts if part is not None]

    def _segment(self, panel: int | None, column: int) -> _Segment:
        plan = self.kernel
        axis = plan.axis(column)
        end = end_of(plan.sink, axis)
        node = next(n for n in reductions(plan.sink) if axis in n.ranges)
        assert end is not None
        row = end.src[-1].arg.id
        self._swap(column, row, "lanes stand inside of rows")
        return _Segment(panel, row, column, tuple(r.arg.id for r in node.src[1:]))

    def _plan_segment(self, segment: _Segment) -> None:
        plan = self.kernel
        rows, columns, sums = [segment.row], [segment.column], [list(segment.sums)]
        level = segment.row if segment.panel is None else segment.panel
        if self.depth < self.product.count and len(segment.sums) == 1:
            reason = f"blocks of {self.depth} keep the panel in cache"
            pieces = plan.do("split", segment.sums[0], self.depth, reason)
            assert pieces.outer is not None
            row, cleared, column = self._hoist(pieces.outer, segment, reason)
            rows, columns = [row], [segment.column, cleared, column]
            self._pack(pieces.outer)
            sums = [[n] for n in (pieces.inner, pieces.rest) if n is not None]
            if pieces.rest is not None and plan.size(pieces.rest) > 1:
                rows.append(segment.row)
                self._pack(level)
        elif self.is_packed:
            self._pack(level)
        vectors = plan.size(segment.column) // self.lanes
        for number in columns:
            self._vectors(number)
        for loops in sums:
            nest(plan, loops, self.most_run)
        for number in rows:
            self._upcast_rows(number, vectors)

    def _hoist(self, outer: int, segment: _Segment, reason: str) -> tuple[int, int, int]:
        """Do a block of the sum for all rows; the new loops: rows, columns cleared and added to."""
        plan = self.kernel
        row = plan.axis(segment.row)
        end = end_of(plan.sink, row)
        assert end is not None
        kept = end.src[1:].index(row)
        count = len(end.src) - 1 - kept
        first = next_range_id(plan.sink)
        plan.do("hoist", outer, kept, reason)
        return first + count, first + count - 1, first + 2 * count - 1

    def _pack(self, level: int) -> None:
        """Copy the panel; along its columns where they are contiguous, else along the sum."""
        plan = self.kernel
        plan.do("pack", level, self.slot, "a panel read by all rows lies side by side in cache")
        column = next_range_id(plan.sink) - 1
        if self.product.is_contiguous:
            self._vectors(column)
        else:  # several rows of the parameter side by side, each walked along memory
            lanes = self.lanes // 2
            pieces = plan.do("lanes", column, lanes, "values that lie apart come side by side")
            if pieces.outer is not None:
                self._swap(column - 1, pieces.outer, "the copy reads along memory")

    def _vectors(self, number: int) -> None:
        """Lanes along columns, and a copy for each vector."""
        pieces = self.kernel.do("lanes", number, self.lanes, "accesses are contiguous along it")
        if pieces.outer is not None:
            self.kernel.do("upcast", pieces.outer, 0, _TILE)

    def _upcast_rows(self, row: int, vectors: int) -> None:
        plan = self.kernel
        size = plan.size(row)
        amount = tile_rows(size, max(1, self.accumulators // vectors))
        if amount < 2:
            return
        pieces = plan.do("upcast", row, amount, _TILE)
        if pieces.rest is not None:
            plan.do("upcast", pieces.rest, 0, "the rest of the rows")

    def _thread(self, segment: _Segment, reason: str) -> None:
        """Share out matrices, or panels, or rows."""
        plan = self.kernel
        loops = [r.arg.id for r in self.product.others]
        if segment.panel is not None:
            loops.append(segment.panel)
        if not self.is_packed or segment.panel is None:
            loops.append(segment.row)
        thread_best(plan, loops, reason)


_TILE = "each value loaded is used by several accumulators"


def thread_best(plan: Plan, numbers: list[int], reason: str) -> None:
    """Share out the one of some loops that keeps all cores busy longest."""
    present = {a.arg.id: a for a in axes_of(plan.sink)}
    loops = [present[n] for n in numbers if n in present]
    loops = [r for r in loops if r.arg.kind is AxisKind.LOOP and (size_of(r) or 1) > 1]
    if not loops:
        return
    axis = max(loops, key=lambda r: (round(_balance(r, plan.target.cores), 1), -loops.index(r)))
    end = end_of(plan.sink, axis)
    if end is None or not is_outermost(plan.sink, end):
        return
    first = end.src[1]
    if first is not axis:
        place = axes_of(plan.sink).index(first)
        plan.do("swap", axis.arg.id, place, "the axis for threads stands outermost")
    plan.do("thread", axis.arg.id, 0, reason)


def is_outermost(sink: UOp, end: UOp) -> bool:
    """True for a nest that no other nest stands around."""
    parts = list(sink.src)
    while parts:
        part = parts.pop()
        if part is end:
            return True
        parts += part.src if part.op is Ops.GROUP else ()
    return False


def _balance(axis: UOp, cores: int) -> float:
    """The part of the cores' time that is used when they share an axis."""
    size = size_of(axis) or 1
    return size / (-(-size // cores) * cores)


def tile_rows(size: int, most: int) -> int:
    """How many rows a tile has: as many as fit, a few more or less where that leaves no rest.

    >>> [tile_rows(n, 4) for n in (3, 64, 65, 66, 127)]
    [3, 4, 5, 6, 4]
    """
    if size <= most:
        return size
    near = (most, most + 1, most + most // 2, most - 1)
    return next((n for n in near if n > 1 and size % n == 0), most)


# ---- one row -----------------------------------------------------------------------------------


class _Stream:
    """The plan of a row times a matrix, or of the sums of its columns."""

    def __init__(self, plan: Plan, product: _Product) -> None:
        self.kernel, self.product = plan, product
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
        reason = "rows side by side are several streams"
        rows = plan.do("split", inner, STREAM_ROWS, reason)
        for part in (rows.inner, rows.rest):
            if part is not None:
                plan.do("unroll", part, 0, reason)
        columns = [column]
        levels, rests = self._levels(rows.outer)
        for level in levels:
            columns += self._hoist(level, columns[-1])
        for level in rests:
            columns += self._hoist(level, column)
        for number in columns:
            pieces = plan.do("lanes", number, self.lanes, "accesses are contiguous along it")
            if pieces.outer is not None and plan.size(pieces.outer) % 2 == 0:
                plan.do("upcast", pieces.outer, 2, "two vectors a turn")

    def _hoist(self, level: int, column: int) -> tuple[int, int]:
        plan = self.kernel
        axis = plan.axis(column)
        end = end_of(plan.sink, axis)
        assert end is not None
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
