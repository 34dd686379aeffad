"""Write a scatter of one element into each row as a comparison.

TENSOR form -> TENSOR form.

    before    SCATTER(zeros (n, c), value (n,), IOTA n, place (n,))       y[i, place[i]] = value[i]
    after     WHERE(place[i] == j, value[i], 0)                           over (i, j)

A scatter is a kernel of its own, whose iterations run in order, after one that fills its base. A
comparison is computed where it is wanted: the gradient of cross-entropy is then one kernel with
that of softmax. All indices but one must be counters along axes of their own, so that no two
elements meet; the base must be a literal, as else more memory would be written than before. A place
out of range equals no counter, and is dropped, as by the scatter.
"""

from __future__ import annotations

from pellucid.core.dtype import dtypes
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.schedule.views import source_index

_MAX_AXES = 8


def as_comparison(scatter: UOp) -> UOp | None:
    """What *scatter* is without a SCATTER, if there is such a form."""
    base, value, *indices = scatter.src
    if not _is_literal(base) or len(indices) > _MAX_AXES:
        return None
    axes = [_counted_axis(index) for index in indices]
    free = [position for position, axis in enumerate(axes) if axis is None]
    places = indices[0].known_shape
    if len(free) != 1 or not _covers(axes, places, base.known_shape):
        return None
    (at,) = free
    shape = base.known_shape
    order = [axis for axis in axes if axis is not None]
    rest = shape[len(indices) :]
    lead = tuple(1 if n == at else size for n, size in enumerate(shape[: len(indices)]))
    place = _arranged(indices[at], order, places, ()).reshape(lead + (1,) * len(rest))
    here = UOp(Ops.IOTA, dtypes.int64, (), shape[at])
    counter = here.reshape(tuple(shape[at] if n == at else 1 for n in range(len(shape))))
    there = place if place.dtype is dtypes.int64 else place.cast(dtypes.int64)
    hit = UOp.make(Ops.CMPEQ, there.expand(shape), counter.expand(shape))
    new = _arranged(value, order, places, rest).reshape(lead + rest).expand(shape)
    if scatter.arg is not None:
        new = UOp.make(scatter.arg, base, new)
    return UOp.make(Ops.WHERE, hit, new, base)


def _is_literal(base: UOp) -> bool:
    while base.op in (Ops.EXPAND, Ops.RESHAPE):
        base = base.src[0]
    return base.op is Ops.CONST


def _counted_axis(index: UOp) -> int | None:
    """The axis along which an index counts 0, 1, 2 … whatever the other axes are; else None."""
    shape = index.known_shape
    ranges = tuple(UOp.range(max(size, 1), axis) for axis, size in enumerate(shape))
    at: tuple[UOp, ...] = ranges
    while index.op in (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE):
        at, index = source_index(index, at)[0], index.src[0]
    if index.op is not Ops.IOTA or at[0] not in ranges:
        return None
    axis = ranges.index(at[0])
    return axis if shape[axis] == index.known_shape[0] else None


def _covers(axes: list[int | None], places: Shape, shape: Shape) -> bool:
    """True when the counters run along different axes, over all rows, and nothing else does."""
    counted = [axis for axis in axes if axis is not None]
    if len(set(counted)) != len(counted):
        return False
    if any(size != 1 for axis, size in enumerate(places) if axis not in counted):
        return False
    return all(axis is None or places[axis] == shape[n] for n, axis in enumerate(axes))


def _arranged(node: UOp, order: list[int], places: Shape, rest: Shape) -> UOp:
    """*node* over the counted axes, in the order of the base, and what is behind them."""
    kept = sorted(order)
    node = node.reshape(tuple(places[axis] for axis in kept) + rest)
    moved = tuple(kept.index(axis) for axis in order)
    behind = tuple(range(len(kept), len(kept) + len(rest)))
    return node if moved == tuple(range(len(kept))) else node.permute((*moved, *behind))
