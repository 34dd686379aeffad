"""What a product of matrices is: which axes of a kernel are rows, columns, and sums.

    c[b, i, j] = sum over k of x[b, i, k] * y[b, k, j]

    column   j        the axis that is contiguous where the result is stored; lanes run along it
    wide     y[...]   the factor that moves along the columns
    row      i        an axis along which *wide* is used again
    others   b        axes that both factors have
    sums     k

A sum of rows or of columns counts too: it has no other factor.
"""

from __future__ import annotations

import math

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import lone_reduction, size_of, stores_of, stride_of
from pellucid.opt.plans.plan import Plan

LEAST_WORK = 4096
"""Smaller products are not worth a plan of their own."""
STREAMED_ROWS = 16
"""A matrix of fewer rows is not read as several streams."""
MAX_SUM = 1 << 16
"""Longer sums would need a third level of memory for their blocks."""

MOST_PRODUCTS = 64
"""How many products of vectors stand in one turn."""
FEW_ROWS = 12
"""So few rows are multiplied in less time than a matrix takes to come from memory,"""
FAR_BYTES = 8 << 20
"""from where one comes that is larger: a core has about as much of a last cache for itself."""


@dataclass(frozen=True)
class Product:
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
    def of(plan: Plan) -> Product | None:
        """Read a kernel, or give None."""
        found = lone_reduction(plan.sink)
        if found is None:
            return None
        node, outputs = found
        if not set(outputs) <= set(node.ranges):
            return None  # a reduction of rows, which stands outside of the other loops
        return Product._read(plan, node, outputs)

    @staticmethod
    def _read(plan: Plan, node: UOp, outputs: tuple[UOp, ...]) -> Product | None:
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
        return Product(node, wide, column, row, node.src[1:], more, others)

    @property
    def item_bytes(self) -> int:
        """The size of an element of *wide*, or of the type that it is added in."""
        return max(self.wide.dtype.itemsize, self.node.dtype.itemsize)

    @property
    def is_converted(self) -> bool:
        """True where *wide* is added in another type."""
        return self.wide.dtype is not self.node.dtype

    @property
    def is_contiguous(self) -> bool:
        """True where the lanes of *wide* are neighbours in memory."""
        return stride_of(self.wide.src[1], self.column) == 1

    @property
    def left(self) -> UOp | None:
        """The other factor, where it is one read."""
        sides = [s for s in self.node.src[0].src if self.column not in s.ranges]
        is_product = self.node.src[0].op is Ops.MUL and len(sides) == 1
        return sides[0] if is_product and _plain_read(sides[0]) is sides[0] else None

    @property
    def is_of_itself(self) -> bool:
        """True where both factors read one parameter."""
        reads = [n for n in self.node.src[0].toposort() if n.op is Ops.INDEX]
        return sum(read.src[0] is self.wide.src[0] for read in reads) > 1

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
        """True where a large matrix is read once, row by row, for one row or a few."""
        columns, inner = self.size(self.column), self.count
        step = stride_of(self.wide.src[1], self.sums[0]) or 0
        size_bytes = columns * inner * self.wide.dtype.itemsize
        alone = self.row is None or self._has_few_rows(size_bytes)
        long = len(self.sums) == 1 and columns >= 256 and inner >= STREAMED_ROWS and step >= columns
        return alone and long and self.is_contiguous and size_bytes > plan.target.l2_bytes // 2

    def _has_few_rows(self, size_bytes: int) -> bool:
        """True where all rows are multiplied while the matrix comes from memory, once."""
        is_few = self.uses <= FEW_ROWS and not self.more and self.left is not None
        return is_few and size_bytes > FAR_BYTES and self.node.arg.op is Ops.ADD


def stream_rows(target: Target, count: int, uses: int = 1) -> int:
    """How many of so many rows are read side by side, when each is used so often.

    Each has a factor, and they leave half the registers free; those of several rows are read again
    for each vector, and their products are all copied.

    >>> avx2 = Target(arch="x86-64", features=frozenset(["avx2", "fma"]))
    >>> stream_rows(avx2, 4096), stream_rows(avx2.with_changes({"arch": "aarch64"}), 20)
    (8, 10)
    >>> [stream_rows(avx2, 4096, uses) for uses in (2, 8, 12)]
    [8, 8, 5]
    """
    return min(min(target.num_vector_registers, count) // 2, max(2, MOST_PRODUCTS // uses))


def _plain_read(side: UOp) -> UOp | None:
    """The one INDEX that a side of a product is, below casts."""
    while side.op is Ops.CAST:
        side = side.src[0]
    is_plain = side.op is Ops.INDEX and len(side.src) == 2 and side.src[0].op is Ops.PARAM
    return side if is_plain else None
