"""Make a TENSOR graph independent of the storage it runs on: the first stage of a schedule.

Form before: TENSOR, over BUFFERs. Form after: TENSOR, over PARAMs numbered in order of appearance.

    ADD(RESHAPE(BUFFER 71), LEAF(RESHAPE(BUFFER 93)))  ->  ADD(RESHAPE(PARAM 0), RESHAPE(PARAM 1))

Two graphs that differ in their buffers only become the same graph, so the content key of the
result finds a schedule that was made before (see api.py). What says nothing about values is dropped
on the way (LEAF, DETACH, a WRITE or SCATTER of nothing), a scatter of one element into each row is
a comparison (onehot.py), and sums and products of small floats are
done in float32 (semantics.md, "Floats": reductions accumulate in float32 and round once).

A long reduction to few values becomes two, whatever the machine, so that threads can share the
first one and the result is the same on all:

    REDUCE(x (4096, 4096), all)  ->  REDUCE(STAGE(REDUCE(x (64, 64, 4096), last two)), all)

A long sum of exponentials below their maximum is made of the same parts (exponentials.py).

Of a reduction that is used through a SHRINK alone, only the part that is left is computed, wherever
it is stored: so no gradient of a padded picture is computed for the padding.

    SHRINK(REDUCE(x (18, 18, 9), last), 1 to 17)  ->  REDUCE(SHRINK(x, 1 to 17), last)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from pellucid.core.dtype import DType, dtypes
from pellucid.core.records import dataclass
from pellucid.ir import origin
from pellucid.ir.arg import AddrSpace, CheckArg, ParamArg, ReduceArg, StageArg
from pellucid.ir.op import PAIR_OPS, Op, Ops
from pellucid.ir.pairs import joined, key_of, paired, value_of
from pellucid.ir.uop import UOp
from pellucid.ir.walk import count_users
from pellucid.schedule.exponentials import in_parts
from pellucid.schedule.onehot import as_comparison

SMALL_FLOATS = frozenset((dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2))


SHARED_OPS = frozenset((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, *PAIR_OPS))
"""Reductions that are done in two stages when they are long."""
LONG = 1 << 18
"""How many elements make a reduction long."""
FEW = 8
"""To how many values a long reduction is done in two stages: more can be shared out themselves."""
PARTS = 64
"""How many partial results a long reduction has for each value."""
PART = 1 << 14
"""A part of so many elements stays in cache between its maximum and what is made of that."""
_PARTIAL = StageArg(AddrSpace.GLOBAL, "partial results of a long reduction, for threads to share")


@dataclass(frozen=True)
class Normal:
    """A graph over PARAMs: slot k stands for buffers[k]; checks are in the order of the graph."""

    sink: UOp
    buffers: tuple[UOp, ...]
    checks: tuple[CheckArg, ...]

    def slots(self, given: Iterable[UOp]) -> frozenset[int]:
        """The slots of those of the *given* BUFFERs that occur in the graph."""
        number = {buffer: slot for slot, buffer in enumerate(self.buffers)}
        return frozenset(number[b] for b in given if b in number)


def normalise(outputs: Sequence[UOp]) -> Normal:
    """Exchange storage for parameters and drop what says nothing about values.

    >>> from pellucid.ir.uop import new_buffer
    >>> a, b = new_buffer(4, dtypes.float32, "CPU"), new_buffer(4, dtypes.float32, "CPU")
    >>> normalise([a + b]).sink is normalise([b + a]).sink
    True
    """
    root = UOp.sink(*outputs)
    order = root.toposort()
    num_users = count_users(root)
    in_memory = _values_in_memory(order)
    buffers: list[UOp] = []
    done: dict[UOp, UOp] = {}
    for node in order:
        if node.op is Ops.BUFFER:
            done[node] = UOp(Ops.PARAM, node.dtype, (), ParamArg(len(buffers), node.arg.size))
            buffers.append(node)
            continue
        fresh = node.with_sources(tuple(done[s] for s in node.src))
        rule = None if node.op is Ops.MUL and node in in_memory else _RULES.get(node.op)
        if rule is not None:
            fresh = rule(fresh, all(_is_used_once(s, num_users) for s in node.src))
        done[node] = fresh
        if not any(fresh is done[s] for s in node.src):  # else it keeps the lines that it has
            hand_lines_on(node, fresh)
    sink = done[order[-1]]
    checks = tuple(n.arg for n in sink.toposort() if n.op is Ops.CHECK)
    return Normal(sink, tuple(buffers), checks)


def _values_in_memory(order: Sequence[UOp]) -> set[UOp]:
    """What gets memory of its own: what is asked for, and what is written to.

    x * 1 is as good as x for all who read it, but not for these: a write would change x too.
    """
    places = [*order[-1].src, *(n.src[0] for n in order if n.op in (Ops.WRITE, Ops.SCATTER))]
    found: set[UOp] = set()
    for place in places:
        while place.op.is_movement and place not in found:
            found.add(place)
            place = place.src[0]
        found.add(place)
    return found


def _is_used_once(node: UOp, num_users: Mapping[UOp, int]) -> bool:
    """True for a node with one user, and where it is a CAST, for what it converts."""
    while node.op is Ops.CAST and num_users[node] == 1:
        (node,) = node.src
    return num_users[node] == 1


def hand_lines_on(before: UOp, after: UOp) -> None:
    """While someone is tracing, let *after* know the user's lines that *before* came from."""
    if origin.recording and before is not after:
        origin.record(after, *origin.of(before))


def _value_of_source(node: UOp, only_user: bool) -> UOp:
    return node.src[0]


def _reduce(node: UOp, only_user: bool) -> UOp:
    source = node.src[0]
    op, axes = node.arg.op, tuple(sorted(node.arg.axes))
    if not axes:
        return source
    wide = _accumulator(op, node.dtype)
    if wide is not node.dtype:
        return UOp.make(Ops.REDUCE, source.cast(wide), arg=ReduceArg(op, axes)).cast(node.dtype)
    if source.op is Ops.REDUCE and source.arg.op is op and only_user:
        inner = source.arg.axes
        kept = [axis for axis in range(len(source.src[0].known_shape)) if axis not in inner]
        axes = tuple(sorted((*inner, *(kept[axis] for axis in axes))))
        source = source.src[0]
    return _in_two_stages(source, op, axes) or _reduced(source, op, axes)


def _shrink(node: UOp, only_user: bool) -> UOp:
    """SHRINK(REDUCE(x)) -> REDUCE(SHRINK(x)), where nothing else wants the whole reduction."""
    source = node.src[0]
    if not only_user:
        return node
    if source.op is Ops.CAST:
        inner = _shrink(source.src[0].shrink(node.arg), only_user)
        return node if inner.op is Ops.SHRINK else inner.cast(node.dtype)
    if source.op is not Ops.REDUCE or source.src[0].op is Ops.PAIR:
        return node
    box = iter(node.arg)
    whole = source.src[0]
    axes = source.arg.axes
    kept = ((0, n) if axis in axes else next(box) for axis, n in enumerate(whole.known_shape))
    return source.with_sources((whole.shrink(tuple(kept)),))


def _reduced(source: UOp, op: Op, axes: tuple[int, ...]) -> UOp:
    return UOp.make(Ops.REDUCE, source, arg=ReduceArg(op, axes))


def _in_two_stages(source: UOp, op: Op, axes: tuple[int, ...]) -> UOp | None:
    """A long reduction to few values, as partial results and their reduction; None for others."""
    shape = source.known_shape
    count = math.prod(shape[axis] for axis in axes)
    axis = next((axis for axis in axes if shape[axis] >= PARTS), None)
    is_long = count >= LONG and source.num_elems <= FEW * count
    if not is_long or axis is None or op not in SHARED_OPS:
        return None
    shares = _exponentials(source, axis) if op is Ops.ADD and axes == (axis,) else None
    if shares is not None:
        return _reduced(shares, op, axes)
    num_parts = _num_parts(shape[axis]) if op is Ops.MAX else PARTS
    main = shape[axis] // num_parts * num_parts
    whole = _along(source, axis, 0, main) if main < shape[axis] else source
    split = _each(
        whole,
        lambda x: x.reshape((*shape[:axis], num_parts, main // num_parts, *shape[axis + 1 :])),
    )
    inner = tuple(a if a < axis else a + 1 for a in axes if a != axis)
    parts = _reduced(split, op, tuple(sorted((*inner, axis + 1))))
    place = sum(a not in axes for a in range(axis))
    kept = _stored(parts)
    if op in PAIR_OPS:
        kept = paired(kept, _stored(key_of(parts)))
    total = _reduced(kept, op, (place,))
    if main == shape[axis]:
        return total
    rest = _reduced(_along(source, axis, main, shape[axis]), op, axes)
    return value_of(joined(op, total, rest))


def _exponentials(source: UOp, axis: int) -> UOp | None:
    """The shares of parts in a long sum of exponentials below their maximum; None for others."""
    num_parts = _num_parts(source.known_shape[axis])
    if source.known_shape[axis] % num_parts:
        return None
    return in_parts(source, axis, num_parts, lambda x, op: _stored(_reduced(x, op, (axis + 1,))))


def _num_parts(size: int) -> int:
    """In how many parts a maximum is taken: short ones, if they can be equally long.

    >>> [_num_parts(n) for n in (1 << 20, 1 << 24, 3 << 20, 1_000_000)]
    [64, 1024, 128, 64]
    """
    count = PARTS
    while size % (2 * count) == 0 and size // (2 * count) >= PART:
        count *= 2
    return count


def _stored(parts: UOp) -> UOp:
    return UOp(Ops.STAGE, parts.dtype, (parts,), _PARTIAL)


def _each(source: UOp, move: Callable[[UOp], UOp]) -> UOp:
    """Move a tensor, or value and key of a pair."""
    return paired(*map(move, source.src)) if source.op is Ops.PAIR else move(source)


def _along(source: UOp, axis: int, start: int, stop: int) -> UOp:
    """The part of a tensor from *start* to *stop* along one axis."""
    whole = ((0, n) for n in source.known_shape)
    box = tuple((start, stop) if i == axis else r for i, r in enumerate(whole))
    return _each(source, lambda x: x.shrink(box))


def _accumulator(op: Op, dtype: DType) -> DType:
    sums = op is Ops.ADD or op is Ops.MUL
    return dtypes.float32 if sums and dtype in SMALL_FLOATS else dtype


def _multiply(node: UOp, only_user: bool) -> UOp:
    """x * 1 -> x (laws/arithmetic.py): what a sum's gradient begins with.

    Not for a value that gets memory of its own, as x may be what is written to next.
    """
    left, right = node.src
    return right if _is_one(left) else left if _is_one(right) else node


def _is_one(node: UOp) -> bool:
    while node.op is Ops.EXPAND or node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.CONST and node.arg == 1


def _write(node: UOp, only_user: bool) -> UOp:
    return node.src[0] if node.src[1].num_elems == 0 else node


def _scatter(node: UOp, only_user: bool) -> UOp:
    if node.src[1].num_elems == 0:
        return node.src[0]
    return as_comparison(node) or node


_RULES: dict[Op, Callable[[UOp, bool], UOp]] = {
    Ops.LEAF: _value_of_source,
    Ops.DETACH: _value_of_source,
    Ops.REDUCE: _reduce,
    Ops.SHRINK: _shrink,
    Ops.MUL: _multiply,
    Ops.WRITE: _write,
    Ops.SCATTER: _scatter,
}
