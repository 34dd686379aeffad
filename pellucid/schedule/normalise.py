"""Make a TENSOR graph independent of the storage it runs on: the first stage of a schedule.

Form before: TENSOR, over BUFFERs. Form after: TENSOR, over PARAMs numbered in order of appearance.

    ADD(RESHAPE(BUFFER 71), LEAF(RESHAPE(BUFFER 93)))  ->  ADD(RESHAPE(PARAM 0), RESHAPE(PARAM 1))

Two graphs that differ in their buffers only become the same graph, so the content key of the
result finds a schedule that was made before (see api.py). What says nothing about values is dropped
on the way (LEAF, DETACH, a WRITE or SCATTER of nothing), a scatter of one element into each row is
a comparison (onehot.py), and sums and products of small floats are
done in float32 (semantics.md, "Floats": reductions accumulate in float32 and round once).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pellucid.core.dtype import DType, dtypes
from pellucid.ir import origin
from pellucid.ir.arg import CheckArg, ParamArg, ReduceArg
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.ir.walk import count_users
from pellucid.schedule.onehot import as_comparison

SMALL_FLOATS = frozenset((dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2))


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
    buffers: list[UOp] = []
    done: dict[UOp, UOp] = {}
    for node in order:
        if node.op is Ops.BUFFER:
            done[node] = UOp(Ops.PARAM, node.dtype, (), ParamArg(len(buffers), node.arg.size))
            buffers.append(node)
            continue
        fresh = node.with_sources(tuple(done[s] for s in node.src))
        rule = _RULES.get(node.op)
        if rule is not None:
            fresh = rule(fresh, all(num_users[s] == 1 for s in node.src))
        done[node] = fresh
        if not any(fresh is done[s] for s in node.src):  # else it keeps the lines that it has
            hand_lines_on(node, fresh)
    sink = done[order[-1]]
    checks = tuple(n.arg for n in sink.toposort() if n.op is Ops.CHECK)
    return Normal(sink, tuple(buffers), checks)


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
    return UOp.make(Ops.REDUCE, source, arg=ReduceArg(op, axes))


def _accumulator(op: Op, dtype: DType) -> DType:
    sums = op is Ops.ADD or op is Ops.MUL
    return dtypes.float32 if sums and dtype in SMALL_FLOATS else dtype


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
    Ops.WRITE: _write,
    Ops.SCATTER: _scatter,
}
