"""Turn the ranges inside of matrix units into lanes, and the sums that units do into MMAs.

LOOP form -> LOOP form with vectors, the first step of expand_ranges. With pmaddwd_256:

    before    k DEPTH 2, j COLUMN 8
              END(STORE(c[… + j], REDUCE(a[… + k] * b[(… + k) * 32 + j], ko, k)), …, j)
    after     x = a[… + s]                                        s LANES 2
              y = b[(… + r % 2) * 32 + r // 2]                    r LANES 16
              END(STORE(c[… + t], REDUCE(MMA(x, y, 0), ko)), …, t LANES 8)

Each operand of an MMA has lanes of its own, in the order of the unit (core/units.py); what follows
the sum has the lanes of the sum, row by row. Reads become the types of the unit's operands.
"""

from __future__ import annotations

from dataclasses import replace

from pellucid.core.dtype import DType
from pellucid.core.units import MATRIX_UNITS, MatrixUnit, keeps_values
from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id, rebuild, substitute_free
from pellucid.ir.uop import UOp


def expand_units(sink: UOp) -> UOp:
    """Make MMAs of the sums that are marked with a unit; a kernel without is left alone."""
    if not any(n.op is Ops.REDUCE and n.arg.unit for n in sink.toposort()):
        return sink
    return rebuild(sink, _Expansion(sink).visit)


class _Expansion:
    """One run: lanes in place of the ranges of units."""

    def __init__(self, sink: UOp) -> None:
        self.number = next_range_id(sink)
        self.lanes: dict[UOp, UOp] = {}  # COLUMN, or ROW -> the lanes of the sum
        self.places: dict[UOp, UOp] = {}  # ROW and COLUMN -> which of them, for each lane
        for end in (n for n in sink.toposort() if n.op is Ops.END):
            self.find_lanes(end)

    def new_lanes(self, size: int) -> UOp:
        """A range that becomes lanes."""
        self.number += 1
        return UOp.range(size, self.number - 1, AxisKind.LANES)

    def find_lanes(self, end: UOp) -> None:
        """Lanes for the rows and columns that an END closes."""
        columns = [r for r in end.src[1:] if r.arg.kind is AxisKind.COLUMN]
        if not columns:
            return
        (column,) = columns
        rows = [r for r in end.src[1:] if r.arg.kind is AxisKind.ROW]
        size = int(column.src[0].arg)
        lanes = self.new_lanes(size * (int(rows[0].src[0].arg) if rows else 1))
        self.lanes[column] = lanes
        self.places[column] = lanes % size if rows else lanes
        if rows:
            self.places[rows[0]] = lanes // size

    def visit(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """The new node."""
        if node in self.places:
            return self.places[node]
        if node.op is Ops.END:
            kept = [r for r in node.src[1:] if r not in self.places or r in self.lanes]
            return sources[0].end(*(self.lanes.get(r, r) for r in kept))
        if node.op is Ops.REDUCE and node.arg.unit:
            depth = [r for r in node.src[1:] if r.arg.kind is AxisKind.DEPTH]
            plain = replace(node.arg, unit="")
            if not depth:  # an outer level of a nested sum
                return UOp(Ops.REDUCE, sources[0].dtype, sources, plain)
            product = self.product(MATRIX_UNITS[node.arg.unit], node.src[0], depth[0])
            others = tuple(r for r in node.src[1:] if r is not depth[0])
            return UOp(Ops.REDUCE, product.dtype, (product, *others), plain) if others else product
        return node.with_sources(sources)

    def product(self, unit: MatrixUnit, value: UOp, depth: UOp) -> UOp:
        """The MMA for one sum over the depth."""
        sides = {s: side for side in value.src for s in side.ranges if s in self.places}
        (column,) = (r for r in sides if r.arg.kind is AxisKind.COLUMN)
        rows = [r for r in sides if r.arg.kind is AxisKind.ROW]
        right = sides[column]
        left = next(side for side in value.src if side is not right)
        s = self.new_lanes(unit.rows * unit.depth)
        at_left = {depth: s % unit.depth if rows else s}
        at_left |= dict.fromkeys(rows, s // unit.depth)
        r = self.new_lanes(unit.depth * unit.columns)
        group, columns = unit.group, unit.columns
        at_right = {
            depth: r // (group * columns) * group + r % group,
            column: r // group % columns,
        }
        x = substitute_free(_read(left, unit.left), at_left)
        y = substitute_free(_read(right, unit.right), at_right)
        total = unit.sum.vec(unit.rows * unit.columns)
        return UOp(
            Ops.MMA, total, (x, y, UOp.const(total, 0.0 if unit.sum.is_float else 0)), unit.name
        )


def _read(side: UOp, dtype: DType) -> UOp:
    """An operand in the type of the unit: what loses nothing on the way to the sum is left out."""
    while side.op is Ops.CAST and keeps_values(side.src[0].dtype, side.dtype):
        side = side.src[0]
    return side if side.dtype is dtype else side.cast(dtype)
