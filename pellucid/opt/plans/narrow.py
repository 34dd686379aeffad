"""The loop structure of products of matrices of narrow numbers: bfloat16, int8 and their like.

    c[i, j] = sum over k of int32(a[i, k]) * int32(b[k, j])      512 x 512 x 512, pmaddwd_256

    for each group of 256 columns (these are shared out among threads):
        copy b[:, group] in the type and the order of the unit
        for 4 rows of a:
            copy them in the type of the unit
            for each panel of 16 columns: for k by 2:
                4 x 2 vectors of sums += 4 pairs of a * 2 vectors of pairs of b

What is read is narrower than what is added, so both matrices are converted, while they are copied:
b once for all rows of a group, a few rows of a once for all columns of a group. A group of narrow
panels is therefore large, a part of the third cache: with as many columns as half the second holds,
1024 x 1024 x 1024 of bfloat16 took 1.3 times as long on AVX2, and 512 x 4096 x 512 twice. Wide
panels and tiles ask for more than that cache gives, and stay in the second. The innermost part
is a matrix unit where the target has one that takes the numbers (core/units.py), else products of
vectors of the wide type. Sizes that do not fit are padded, which the copies resolve.

Two matrices of int8 are no factors for the units of 8 bits, which take uint8 at the left. Where
many rows use a column, the left one becomes uint8 (opt/actions/offset.py): what that adds is a sum
of each column, made once for a group. Products of 16 bits instead take twice as long on AVX-512.

Sources: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008; the
design's cpu.md, sections 2 and 3.
"""

from __future__ import annotations

from pellucid.core.options import current_options
from pellucid.core.records import dataclass
from pellucid.core.target import Target, may_use
from pellucid.core.units import MATRIX_UNITS, MatrixUnit
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.actions.offset import OTHERS
from pellucid.opt.actions.place import values_inside
from pellucid.opt.actions.units import operands
from pellucid.opt.axes import axes_of, end_of, reductions, size_of, stores_of, stride_of
from pellucid.opt.cost import CYCLES_PER_US
from pellucid.opt.plans.plan import Plan
from pellucid.opt.plans.products import MAX_SUM
from pellucid.opt.plans.runs import longest_run, nest
from pellucid.opt.plans.shares import THREADING_US, thread_best
from pellucid.opt.plans.tile_sizes import far_bytes

LEAST_WORK = 4096
"""Smaller products are not worth a plan of their own."""
LEAST_ROWS = 4
"""With fewer rows, copies of a matrix are used too seldom."""
LEAST_USES = 24
"""With fewer rows, what an offset adds to a column costs more than it saves; so for columns."""
CONVERTING = 1.0
"""Rows are converted in about the time that so many panels of columns take (0.4 to 1.2)."""
_SUMS = 4
"""How many vectors of sums of columns are added to in turn."""
_TILE = "each value loaded is used by several accumulators"
_COPY = "numbers are converted while they are copied, once for many uses"


def plan_narrow(plan: Plan) -> bool:
    """Plan a product of matrices of narrow numbers; False when the kernel is none."""
    product = _Narrow.of(plan)
    if product is None:
        return False
    _Plan(plan, product).plan()
    return True


@dataclass(frozen=True)
class _Narrow:
    """c[others, row, column] = sum over k of left[others, row, k] * right[others, k, column]."""

    node: UOp
    left: UOp
    right: UOp
    row: UOp
    column: UOp
    others: tuple[UOp, ...]
    inner: UOp

    @staticmethod
    def of(plan: Plan) -> _Narrow | None:
        """Read a kernel, or give None."""
        sink = plan.sink
        effect = sink.src[0] if len(sink.src) == 1 else None
        nodes = list(reductions(sink))
        if effect is None or effect.op is not Ops.END or len(nodes) != 1:
            return None
        (node,), outputs = nodes, effect.src[1:]
        ranges = (*outputs, *node.src[1:])
        if effect.src[0].op not in (Ops.STORE, Ops.GROUP) or len(node.src) != 2:
            return None
        if any(n.op is Ops.DEFINE for n in sink.toposort()) or node.arg.op is not Ops.ADD:
            return None
        if any((size_of(r) or 0) < 2 for r in ranges) or not set(outputs) <= set(node.ranges):
            return None
        places = [s.src[0].src[1] for s in stores_of(sink)]
        columns = [r for r in outputs if all(stride_of(p, r) == 1 for p in places)]
        sides = operands(node, columns[-1]) if columns else None
        return _Narrow._read(node, columns[-1], outputs, *sides) if sides else None

    @staticmethod
    def _read(
        node: UOp, column: UOp, outputs: tuple[UOp, ...], left: UOp, right: UOp
    ) -> _Narrow | None:
        inner = node.src[1]
        plain = all(len(s.src) == 2 and s.src[0].op is Ops.PARAM for s in (left, right))
        narrow = all(s.dtype.bits < node.dtype.bits for s in (left, right))
        rows = [r for r in outputs if r in left.ranges and r not in right.ranges]
        if not plain or not narrow or not rows:
            return None
        if not {inner} <= set(left.ranges) & set(right.ranges) or left.src[0] is right.src[0]:
            return None  # a copy of a parameter is for all that reads it
        if (size_of(inner) or 0) > MAX_SUM:
            return None
        row = max(rows, key=lambda r: size_of(r) or 1)
        others = tuple(r for r in outputs if r is not row and r is not column)
        product = _Narrow(node, left, right, row, column, others, inner)
        is_large = product.size(row) >= LEAST_ROWS and product.work >= LEAST_WORK
        return product if is_large else None

    def size(self, axis: UOp) -> int:
        """The size of an axis."""
        return size_of(axis) or 1

    @property
    def work(self) -> int:
        """How many products are added."""
        work = 1
        for axis in (self.row, self.column, self.inner, *self.others):
            work *= self.size(axis)
        return work

    def unit(self, target: Target) -> tuple[MatrixUnit | None, tuple[UOp, ...]]:
        """The best matrix unit of the target, and the sides that it needs offset.

        Of two that add as many products, the one that needs no offset is better; tiles are asked
        for last.
        """
        relaxed = current_options().relaxed_float
        found = []
        for unit in MATRIX_UNITS.values():
            fits = unit.sum is self.node.dtype and unit.name in target.matrix_units
            allowed = relaxed or not unit.flushes_denormals
            sizes = ((self.row, unit.rows), (self.column, unit.columns), (self.inner, unit.depth))
            filled = all(2 * self.size(axis) >= size for axis, size in sizes)
            sides = self._offsets(unit)
            if fits and allowed and filled and sides is not None:
                found.append((unit, sides))
        found.sort(key=lambda pair: (-pair[0].products, len(pair[1])))
        return next((pair for pair in found if may_use(pair[0])), (None, ()))

    def _offsets(self, unit: MatrixUnit) -> tuple[UOp, ...] | None:
        """The sides that have to move into the other type of 8 bits; None where that is no help."""
        found = []
        wanted = ((self.left, unit.left, self.row), (self.right, unit.right, self.column))
        for side, dtype, uses in wanted:
            if unit.takes_as(dtype, side.dtype):
                continue
            if OTHERS.get(side.dtype) is not dtype or self.size(uses) < LEAST_USES:
                return None
            found.append(side)
        return tuple(found)


class _Plan:
    """The plan of one product."""

    def __init__(self, plan: Plan, product: _Narrow) -> None:
        self.kernel, self.product = plan, product
        self.unit, self.offsets = product.unit(plan.target)
        target, total = plan.target, product.node.dtype
        self.lanes = self.unit.columns if self.unit else target.max_lanes(total.itemsize)
        if self.unit is not None and self.unit.is_tile:
            self.vectors = self.rows = 2  # of 8 tiles, 4 are sums
        else:
            registers = target.num_vector_registers
            self.vectors = 4 if registers >= 32 else 2
            self.rows = registers * 3 // 4 // self.vectors
        count = -(-product.size(product.column) // self.lanes)
        self.vectors = min(self.vectors, count)
        read = (self.unit.left if self.unit else total).itemsize
        self.column_bytes = product.size(product.inner) * read

    def plan(self) -> None:
        """Columns in groups and panels, rows in tiles, both copied; then the sum."""
        plan, product = self.kernel, self.product
        row, column, inner = product.row.arg.id, product.column.arg.id, product.inner.arg.id
        self._order([*(r.arg.id for r in product.others), column, row])
        added = self._offset(inner)
        together = self._group(plan.size(column))
        self._pad(column, together)
        tile_rows = self.unit.rows if self.unit else 1
        copies = min(self.rows, -(-plan.size(row) // tile_rows))
        self._pad(row, copies * tile_rows)
        group, column = self._split(column, together, "a group stays in cache")
        plan.do("swap", column, self._place(row), "rows of a group follow each other")
        tile, row = self._split(row, copies * tile_rows, _TILE)
        panel, column = self._split(column, self.vectors * self.lanes, _TILE)
        if panel is not None:
            plan.do("swap", row, self._place(panel), "copies of the body stand inside of all loops")
        above = [r.arg.id for r in product.others] + ([group] if group is not None else [])
        self._add_up(added, [*above, *([tile] if tile is not None else [])])
        levels = [*above, *(n for n in (tile, panel) if n is not None)]
        at_right = above[-1] if above else levels[0] if levels else None
        at_left = tile if tile is not None else at_right
        if self.unit is None:
            self._products(row, column, inner, at_left, at_right)
        else:
            self._unit(row, column, inner, at_left, at_right)
        busy_us = product.work / (self.unit.products if self.unit else self.lanes) / CYCLES_PER_US
        if plan.target.has_threads and plan.target.cores > 1 and busy_us >= THREADING_US:
            thread_best(plan, above or levels[:1], f"it takes about {busy_us:.0f} us on one core")

    def _products(
        self, row: int, column: int, inner: int, at_left: int | None, at_right: int | None
    ) -> None:
        """The innermost part, by products of vectors."""
        plan = self.kernel
        self._copies(row)
        pieces = plan.do("lanes", column, self.lanes, "accesses are contiguous along it")
        if pieces.outer is not None:
            plan.do("upcast", pieces.outer, 0, _TILE)
        self._pack(at_right, self.product.right)
        self._pack(at_left, self.product.left, (self.product.node.dtype.name,))
        nest(plan, [inner], longest_run(plan.size(inner)))

    def _unit(
        self, row: int, column: int, inner: int, at_left: int | None, at_right: int | None
    ) -> None:
        """The innermost part, by a matrix unit."""
        plan, unit = self.kernel, self.unit
        assert unit is not None, "only plans with a unit come here"
        reason = f"{unit.name} adds {unit.products} products at once"
        if unit.rows == 1:
            self._copies(row)
            self._pack(at_left, self.product.left, (unit.left.name,))
        size = plan.size(inner)
        turns, depth = self._split(inner, unit.depth, reason)
        vector, column = self._split(column, unit.columns, _TILE)
        if unit.rows > 1:
            outer, row = self._split(row, unit.rows, _TILE)
        rows = (self._place(row),) if unit.rows > 1 else ()
        plan.do("unit", depth, self._place(column), reason, (unit.name, *rows))
        if vector is not None:
            plan.do("upcast", vector, 0, _TILE)
        if unit.rows > 1 and outer is not None:
            plan.do("upcast", outer, 0, _TILE)
        self._pack(at_right, self.product.right)
        if unit.rows > 1:
            self._pack(at_left, self.product.left)
        if turns is not None and unit.sum.is_float:
            terms = longest_run(size) // (1 if unit.is_tile else unit.depth)
            nest(plan, [turns], max(2, terms))

    def _offset(self, inner: int) -> list[int]:
        """Offset what the unit needs so; the axes of the sums that this adds."""
        plan, unit = self.kernel, self.unit
        self._pad(inner, unit.depth if unit is not None else 1)
        added = []
        for side in self.offsets:
            assert unit is not None, "products without a unit need no offset"
            added.append(next_range_id(plan.sink))
            reason = f"{unit.name} takes {unit.left} and {unit.right}"
            plan.do("offset", inner, side.src[0].arg.slot, reason)
        return added

    def _add_up(self, added: list[int], levels: list[int]) -> None:
        """Sums of columns or rows alone are made once, as far outside as they may stand."""
        for number in added:
            for level in levels:
                sum_of = self._number_of_value(number, level)
                if sum_of is not None:
                    self._sum_alone(number, level, sum_of)
                    break

    def _number_of_value(self, number: int, level: int) -> int | None:
        """Which of the reductions inside of a loop closes an axis, counted as `compute` does."""
        plan = self.kernel
        axis, summed = plan.axis(level), plan.axis(number)
        end = end_of(plan.sink, axis)
        assert end is not None, "levels are loops of the output"
        inside = values_inside(end, {*end.ranges, *end.src[1 : end.src.index(axis) + 1]})
        return next((n for n, value in enumerate(inside) if summed in value.src[1:]), None)

    def _sum_alone(self, number: int, level: int, value: int) -> None:
        """Compute a sum of one side in loops of its own; what is contiguous becomes lanes."""
        plan = self.kernel
        known = {r.arg.id for r in axes_of(plan.sink)}
        plan.do("compute", level, value, "it is the same for all that use it")
        made = {r for r in axes_of(plan.sink) if r.arg.id not in known}
        (node,) = (n for n in reductions(plan.sink) if not made.isdisjoint(n.src[1:]))
        (read,) = (n for n in node.src[0].toposort() if n.op is Ops.INDEX)
        near = [r for r in made if stride_of(read.src[1], r) == 1]
        lanes = plan.target.max_lanes(node.dtype.itemsize)
        if not near or (size_of(near[0]) or 1) < lanes:
            return
        pieces = plan.do("lanes", near[0].arg.id, lanes, "accesses are contiguous along it")
        if near[0] not in node.src[1:] and pieces.outer is not None:
            amount = min(_SUMS, plan.size(pieces.outer))
            plan.do("upcast", pieces.outer, amount, "sums that do not wait for each other")

    def _place(self, number: int) -> int:
        return axes_of(self.kernel.sink).index(self.kernel.axis(number))

    def _order(self, wanted: list[int]) -> None:
        """Put the output axes in an order."""
        for place, number in enumerate(wanted):
            now = axes_of(self.kernel.sink)[place].arg.id
            if now != number:
                reason = "a group of columns stands outside of the rows that use it"
                self.kernel.do("swap", now, self._place(number), reason)

    def _pad(self, number: int, amount: int) -> None:
        if self.kernel.size(number) % amount and amount > 1:
            reason = "copies fill up what is missing, so that no rest is left"
            self.kernel.do("pad", number, amount, reason)

    def _split(self, number: int, amount: int, reason: str) -> tuple[int | None, int]:
        """Split an axis by a divisor; the outer part, where there is one, and the inner one."""
        if self.kernel.size(number) <= amount:
            return None, number
        if amount == 1:
            return number, number
        pieces = self.kernel.do("split", number, amount, reason)
        return pieces.outer, pieces.inner

    def _group(self, columns: int) -> int:
        """How many columns of the right matrix are copied at a time; `pad` fills up the last group.

        Rows are converted once for each group, and groups are shared out among threads.
        """
        target, width = self.kernel.target, self.vectors * self.lanes
        panels = -(-columns // width)
        is_wide = target.num_vector_registers >= 32 or (self.unit is not None and self.unit.is_tile)
        cache_bytes = target.l2_bytes // 2 if is_wide else far_bytes(target)
        most = max(1, min(panels, cache_bytes // (self.column_bytes * width)))
        cores = target.cores if target.has_threads else 1

        def time(together: int) -> float:
            turns = -(-panels // (together * cores))
            return turns * (together + CONVERTING)

        return width * min(range(most, 0, -1), key=time)

    def _copies(self, row: int) -> None:
        """Rows of a tile become copies of the body."""
        if end_of(self.kernel.sink, self.kernel.axis(row)) is not None:
            self.kernel.do("upcast", row, 0, _TILE)

    def _pack(self, level: int | None, read: UOp, extra: tuple[str, ...] = ()) -> None:
        """Copy what a side of the product reads, in vectors along the innermost loop.

        Where no loop is left outside of the body, each number is used about once, and not copied.
        """
        if level is None:
            return
        plan = self.kernel
        known = next_range_id(plan.sink)
        plan.do("pack", level, read.src[0].arg.slot, _COPY, extra)
        innermost = next_range_id(plan.sink) - 1
        self._along_memory(list(range(known, innermost)))
        itemsize = min(2, self.unit.left.itemsize) if self.unit is not None else 2
        lanes = min(plan.size(innermost), plan.target.max_lanes(itemsize))
        lanes = 1 << (lanes.bit_length() - 1)
        if lanes > 1:
            plan.do("lanes", innermost, lanes, "the copy writes along memory")

    def _along_memory(self, loops: list[int]) -> None:
        """The loop of a copy that goes furthest in what it reads goes around the others.

        Lines that follow each other are asked for ahead by the processor; those of a column of
        panels of a matrix, which lie a row apart, come one by one, in thrice the time.
        """
        plan = self.kernel
        if len(loops) < 2:
            return
        end = end_of(plan.sink, plan.axis(loops[0]))
        assert end is not None, "a copy is made in loops"
        (read,) = (n for n in end.src[0].src[1].toposort() if n.op is Ops.INDEX)
        strides = [abs(stride_of(read.src[1], plan.axis(n)) or 0) for n in loops]
        furthest = loops[strides.index(max(strides))]
        if furthest != loops[0]:
            plan.do("swap", loops[0], self._place(furthest), "it reads along memory")
