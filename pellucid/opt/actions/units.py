"""The action that gives the innermost part of a product of matrices to a matrix unit.

LOOP form -> LOOP form: the action `unit`. Of c = a @ b, 8 x 16 x 32 of int16, with pmaddwd_256,
before and after `Action("unit", 2, 1, ("pmaddwd_256",))`, whose axis is k and whose amount is j:

    END(STORE(c[i * 32 + j], REDUCE(a[i * 16 + k] * b[k * 32 + j], k)), i, j)
    END(STORE(…, REDUCE(…, ko over 8, k DEPTH over 2, unit)), i, jo over 4, j COLUMN over 8)

A unit with several rows takes the axis of the rows as a third thing: ("tdpbssd", 0).

The meaning stays that of the loops; the pass expand_ranges makes an MMA of the marked ranges. A
target that lacks the instruction spells the MMA with plain ops, so the action is legal everywhere
and can be tested everywhere; only who chooses it asks what the target has.

What is needed: a sum of products of two reads, one that moves along the columns and one that does
not; types that the unit takes without loss and a sum of its type; sizes that are multiples of the
unit's (`pad` makes them so). Units that take denormal numbers as zero need `relaxed_float`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from pellucid.core.dtype import DType
from pellucid.core.options import current_options
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS, MatrixUnit, keeps_values
from pellucid.ir.arg import Action, AxisKind, RangeArg
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import (
    known_size,
    refuse,
    require_free_order,
    require_loop,
    require_no_buffer_inside,
)
from pellucid.opt.axes import axes_of, end_of, reduces_over

Apply = Callable[[UOp, Action, Target], UOp]

UNIT_KINDS = (AxisKind.ROW, AxisKind.COLUMN, AxisKind.DEPTH)
"""What the ranges inside of a unit are."""


def unit(sink: UOp, action: Action, axis: UOp, target: Target, apply: Apply) -> UOp:
    """Let a matrix unit do the innermost part of a sum of products over *axis*."""
    require_free_order(sink, action)
    found = _unit_of(action, target)
    wanted = [(axis, found.depth, AxisKind.DEPTH), *_output_axes(sink, action, found)]
    for place, _, _ in wanted:
        require_loop(action, place)
        require_no_buffer_inside(sink, action, place)
    _require_product(sink, action, found, [place for place, _, _ in wanted])
    for place, size, kind in wanted:
        sink = _marked(sink, action, place, size, kind, apply, target)
    depth = next(a for a in axes_of(sink) if a.arg.kind is AxisKind.DEPTH)
    nodes = [n for n in reduces_over(sink, depth) if not n.arg.unit]
    return sink.substitute({n: n.replace(arg=replace(n.arg, unit=found.name)) for n in nodes})


def _unit_of(action: Action, target: Target) -> MatrixUnit:
    found = MATRIX_UNITS.get(action.extra[0]) if action.extra else None
    if found is None:
        raise refuse(action, f"it names none of the matrix units {', '.join(MATRIX_UNITS)}")
    if not target.has_lanes:
        raise refuse(action, "the target has no vectors")
    if found.flushes_denormals and not current_options().relaxed_float:
        reason = f"{found.name} takes denormal numbers as zero, which relaxed_float would allow"
        raise refuse(action, reason)
    return found


def _output_axes(sink: UOp, action: Action, unit: MatrixUnit) -> list[tuple[UOp, int, AxisKind]]:
    """The output axes that the unit takes, with their sizes in it."""
    axes = axes_of(sink)
    places = [action.amount, *action.extra[1:]]
    if len(places) != (1 if unit.rows == 1 else 2):
        needed = "columns" if unit.rows == 1 else "columns and of rows"
        raise refuse(action, f"{unit.name} needs an axis of {needed}")
    if any(not 0 <= place < len(axes) for place in places):
        raise refuse(action, f"the kernel has {len(axes)} axes")
    sizes = ((unit.columns, AxisKind.COLUMN), (unit.rows, AxisKind.ROW))
    return [(axes[p], *size) for p, size in zip(places, sizes, strict=False)]


def _require_product(sink: UOp, action: Action, unit: MatrixUnit, axes: list[UOp]) -> None:
    """One sum of products of two reads that the unit takes, in one nest of the output axes."""
    depth, *outputs = axes
    nodes = reduces_over(sink, depth)
    if len(nodes) != 1:
        raise refuse(action, "it is no axis of one reduction")
    ends = [end_of(sink, axis) for axis in outputs]
    if ends[0] is None or any(end is not ends[0] for end in ends):
        raise refuse(action, "columns and rows are no output axes of one nest")
    (node,) = nodes
    if node.arg.op is not Ops.ADD or node.dtype is not unit.sum:
        raise refuse(action, f"{unit.name} gives a sum of {unit.sum}")
    sides = _factors(node, outputs[0])
    if sides is None:
        raise refuse(action, "what is summed is no product of two reads, one along the columns")
    left, right = sides
    if not unit.takes(left.dtype, right.dtype):
        raise refuse(action, f"{unit.name} does not take {left.dtype} and {right.dtype}")
    if depth not in left.ranges or depth not in right.ranges:
        raise refuse(action, "it does not move along both matrices")
    if any(row in right.ranges or row not in left.ranges for row in outputs[1:]):
        raise refuse(action, "the rows are not those of the left matrix")
    for other in node.ranges:
        if other.arg.kind is AxisKind.LANES and set(outputs) & set(node.ranges):
            raise refuse(action, "values that depend on the columns have lanes already")


def operands(node: UOp, column: UOp) -> tuple[UOp, UOp] | None:
    """The reads below the casts of a product: the one that *column* does not move, and the other.

    None where that is not what is summed.
    """
    sides = _factors(node, column)
    return sides if sides is not None and all(s.op is Ops.INDEX for s in sides) else None


def _factors(node: UOp, column: UOp) -> tuple[UOp, UOp] | None:
    """The same, where a read may be changed by literals before it is converted."""
    if node.op is not Ops.REDUCE or node.src[0].op is not Ops.MUL:
        return None
    sides = [found[0] for side in node.src[0].src if (found := factor_below(side))]
    moved = [s for s in sides if column in s.ranges]
    fixed = [s for s in sides if column not in s.ranges]
    return (fixed[0], moved[0]) if len(moved) == len(fixed) == 1 else None


def read_below(side: UOp) -> UOp | None:
    """The INDEX below casts that lose nothing."""
    found = factor_below(side)
    return found[0] if found is not None and found[0].op is Ops.INDEX else None


def factor_below(side: UOp) -> tuple[UOp, UOp] | None:
    """What is below casts that lose nothing, and the INDEX that it is made of, with literals.

    None where there is more than one INDEX, or anything else.
    """
    while side.op is Ops.CAST and keeps_values(side.src[0].dtype, side.dtype):
        side = side.src[0]
    read = side
    while read.op is not Ops.INDEX:
        if not _is_of_one(read):
            return None
        read = next(s for s in read.src if not s.is_const)
    return side, read


def _is_of_one(node: UOp) -> bool:
    """True for an elementwise op of one value and literals."""
    return node.op.is_elementwise and [s.is_const for s in node.src].count(False) == 1


def _marked(
    sink: UOp,
    action: Action,
    axis: UOp,
    size: int,
    kind: AxisKind,
    apply: Apply,
    target: Target,
) -> UOp:
    """The kernel with the inner part of an axis, of the unit's size, of another kind."""
    if size == 1:
        return sink
    whole = known_size(action, axis)
    if whole % size:
        raise refuse(action, f"a size of {whole} is no multiple of {size}; pad it first")
    if whole > size:
        number = next_range_id(sink)
        sink = apply(sink, Action("split", axes_of(sink).index(axis), size), target)
        axis = next(a for a in axes_of(sink) if a.arg.id == number + 1)
    return sink.substitute({axis: axis.replace(arg=RangeArg(axis.arg.id, kind))})


# ---- operands in the order of a unit -----------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """A read, the *value* of it that a unit takes, and *side*, the factor once it is converted."""

    unit: MatrixUnit
    read: UOp
    value: UOp
    side: UOp

    @property
    def dtype(self) -> DType:
        """The type that the unit takes."""
        return self.unit.left if self.column is None else self.unit.right

    @property
    def column(self) -> UOp | None:
        """The columns that the read moves along; None for the left operand."""
        return self._range(AxisKind.COLUMN)

    def _range(self, kind: AxisKind) -> UOp | None:
        return next((r for r in self.read.ranges if r.arg.kind is kind), None)

    @property
    def loops(self) -> tuple[int, ...]:
        """The sizes of the loops that fill one operand, lane after lane."""
        unit = self.unit
        if self.column is None:
            sizes = (unit.rows, unit.depth)
        else:
            sizes = (unit.depth // unit.group, unit.columns * unit.group)
        return sizes if sizes[0] > 1 else sizes[1:]

    def places(self, loops: Sequence[UOp]) -> dict[UOp, UOp]:
        """What the ranges of the unit are in these loops."""
        depth, column, row = map(self._range, (AxisKind.DEPTH, AxisKind.COLUMN, AxisKind.ROW))
        assert depth is not None, "an operand of a unit moves along its depth"
        group = self.unit.group
        if column is not None:
            within = loops[-1] % group
            places = loops[0] * group + within if len(loops) > 1 else within
            return {depth: places, column: loops[-1] // group}
        return {depth: loops[-1]} if row is None else {row: loops[0], depth: loops[1]}

    def lane(self) -> UOp:
        """In which lane the element stands that the read reads."""
        depth, column, row = map(self._range, (AxisKind.DEPTH, AxisKind.COLUMN, AxisKind.ROW))
        assert depth is not None, "an operand of a unit moves along its depth"
        group = self.unit.group
        if column is not None:
            return (depth // group * self.unit.columns + column) * group + depth % group
        return depth if row is None else row * self.unit.depth + depth

    def order(self, ranges: Iterable[UOp], reduced: Container[UOp]) -> list[UOp]:
        """The other loops of a copy: those outside of the sum, the sum, copies of its body."""
        others = [r for r in ranges if r.arg.kind not in UNIT_KINDS]
        kinds = (AxisKind.UPCAST, AxisKind.UNROLL)
        return sorted(others, key=lambda r: 2 if r.arg.kind in kinds else r in reduced)


def operand_of(read: UOp, users: Mapping[UOp, Sequence[UOp]]) -> Operand | None:
    """*read* as an operand of a unit; None where it is none, or is used for something else too."""
    side = side_of(read, users)
    products, found = users[side], factor_below(side)
    if len(products) != 1 or products[0].op is not Ops.MUL or len(users[products[0]]) != 1:
        return None
    node = users[products[0]][0]
    is_marked = node.op is Ops.REDUCE and node.arg.unit and node.src[0] is products[0]
    if not is_marked or found is None:
        return None
    return Operand(MATRIX_UNITS[node.arg.unit], read, found[0], side)


def side_of(read: UOp, users: Mapping[UOp, Sequence[UOp]]) -> UOp:
    """The last of what is made of a read alone, by casts and with literals, for one use."""
    while len(users[read]) == 1 and _is_of_one(users[read][0]):
        read = users[read][0]
    return read
