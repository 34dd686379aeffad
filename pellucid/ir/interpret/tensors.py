"""Whole tensors: the value of a graph in TENSOR form, one numpy array a node.

    evaluate(REDUCE(ADD(a, b), sum over axis 0), {a: [1, 2], b: [3, 4]})  ->  10

Nodes are computed sources first, in a loop, each once; an array is dropped after its last use.
A movement op is the numpy view of that name; SCATTER and WRITE copy their base first, as values
never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ExecutionError, IndexOutOfRangeError, InterpretError
from pellucid.ir.interpret.arithmetic import apply, reduce_pairs, reduce_values
from pellucid.ir.interpret.values import Array, cast_values, from_storage, literal, quiet
from pellucid.ir.op import PAIR_OPS, Op, Ops
from pellucid.ir.uop import UOp

Buffers = Mapping[UOp, Array]
_IDENTITIES: Final = (Ops.CONTIGUOUS, Ops.COPY, Ops.LEAF, Ops.DETACH, Ops.STAGE)


def evaluate(node: UOp, buffers: Buffers | None = None, *, precise: bool = False) -> Array:
    """The value of a node in TENSOR form, with its shape.

    *buffers* gives storage for each BUFFER and PARAM below. The result has numpy's own type where
    numpy has one; bfloat16 and 8-bit floats come as float32. With *precise*, all floats are
    float64 and nothing is rounded to a narrower type.

    >>> evaluate(UOp.const(dtypes.int8, 100).expand((2,)) * 2).tolist()
    [-56, -56]
    """
    return evaluate_all([node], buffers, precise=precise)[0]


def evaluate_all(
    nodes: Sequence[UOp], buffers: Buffers | None = None, *, precise: bool = False
) -> list[Array]:
    """The values of several nodes, with what they share computed once."""
    with quiet():
        values = _Evaluation(buffers or {}, precise).run(nodes)
    return [_as_numpy(n.dtype, v, precise) for n, v in zip(nodes, values, strict=True)]


def _as_numpy(dtype: DType, values: Array, precise: bool) -> Array:
    if dtype is dtypes.float16 and not precise:
        values = values.astype(np.float16)
    return np.array(values)


class _Evaluation:
    """One run: where storage is, and the values that are still needed."""

    def __init__(self, buffers: Buffers, precise: bool) -> None:
        self.buffers = buffers
        self.precise = precise
        self.values: dict[UOp, Array] = {}

    def run(self, nodes: Sequence[UOp]) -> list[Array]:
        root = UOp.sink(*nodes)
        order = root.toposort()[:-1]
        uses = Counter(s for node in (*order, root) for s in node.src)
        for node in order:
            self.values[node] = self.compute(node)
            for source in node.src:
                uses[source] -= 1
                if not uses[source]:
                    del self.values[source]
        return [self.values[n] for n in nodes]

    def compute(self, node: UOp) -> Array:
        sources = [self.values[s] for s in node.src]
        if node.op.is_elementwise:
            given = [s.dtype for s in node.src]
            return apply(node.op, node.dtype, given, sources, self.precise)
        if node.op in _IDENTITIES:
            return sources[0]
        handler = _HANDLERS.get(node.op)
        if handler is None:
            raise InterpretError("form", f"{node.op.name} has no value in TENSOR form", node=node)
        return handler(self, node, sources)

    # ---- leaves --------------------------------------------------------------------------------

    def buffer(self, node: UOp, sources: list[Array]) -> Array:
        raw = self.buffers.get(node)
        if raw is None:
            raise ExecutionError(f"no storage was given for {node!r}")
        values = from_storage(node.dtype, np.asarray(raw).reshape(-1))
        return self.widened(node.dtype, values)

    def widened(self, dtype: DType, values: Array) -> Array:
        return values.astype(np.float64) if self.precise and dtype.is_float else values

    def const(self, node: UOp, sources: list[Array]) -> Array:
        return self.widened(node.dtype, literal(node.dtype, node.arg)[0].reshape(()))

    def iota(self, node: UOp, sources: list[Array]) -> Array:
        counted = cast_values(node.dtype, dtypes.int64, np.arange(node.arg))
        return self.widened(node.dtype, counted)

    # ---- movement ------------------------------------------------------------------------------

    def moved(self, node: UOp, sources: list[Array]) -> Array:
        return move(node, sources[0])

    def pad(self, node: UOp, sources: list[Array]) -> Array:
        value, fill = sources
        result = np.full(node.known_shape, fill, value.dtype)
        inner = tuple(
            slice(low, low + n) for (low, _), n in zip(node.arg, value.shape, strict=True)
        )
        result[inner] = value
        return result

    # ---- whole tensors -------------------------------------------------------------------------

    def pair(self, node: UOp, sources: list[Array]) -> Any:
        return tuple(sources)  # for a REDUCE: nothing else takes a PAIR

    def reduce(self, node: UOp, sources: list[Any]) -> Array:
        if node.arg.op in PAIR_OPS:
            return reduce_pairs(node.arg.op, node.dtype, sources[0], tuple(node.arg.axes))
        return reduce_values(node.arg.op, node.dtype, sources[0], tuple(node.arg.axes))

    def gather(self, node: UOp, sources: list[Array]) -> Array:
        value, *indices = sources
        inside, clipped = _inside(value.shape, indices)
        rows = value[clipped] if all(value.shape[: len(indices)]) else None
        if rows is None:
            return np.zeros(node.known_shape, value.dtype)
        inside = inside.reshape(inside.shape + (1,) * (rows.ndim - inside.ndim))
        return np.where(inside, rows, np.zeros((), value.dtype))

    def scatter(self, node: UOp, sources: list[Array]) -> Array:
        base, value, *indices = sources
        inside, clipped = _inside(base.shape, indices)
        result = base.copy()
        for position in np.ndindex(inside.shape):
            if not inside[position]:
                continue
            row = tuple(index[position] for index in clipped)
            result[row] = self.combined(node, result[row], value[position])
        return result

    def combined(self, node: UOp, old: Array, new: Array) -> Array:
        if node.arg is None:
            return new
        both = [np.asarray(old), np.asarray(new)]
        return apply(node.arg, node.dtype, [node.dtype] * 2, both, self.precise)

    def write(self, node: UOp, sources: list[Array]) -> Array:
        base, _, value = sources
        result = base.copy().reshape(-1)
        result[window_positions(node.src[0], node.src[1]).reshape(-1)] = value.reshape(-1)
        return result.reshape(base.shape)

    def check(self, node: UOp, sources: list[Array]) -> Array:
        value, flag = sources
        if int(flag) >= 0:
            arg = node.arg
            raise IndexOutOfRangeError(
                f"{arg.op_name}: an index is outside of axis {arg.axis}, which has size {arg.size}",
                rows=[("position", int(flag))],
                at=arg.line or None,
            )
        return value


def move(node: UOp, value: Array) -> Array:
    """The elements of *value* where the movement op *node* puts them (PAD aside)."""
    op: Op = node.op
    if op is Ops.RESHAPE:
        return value.reshape(node.arg)
    if op is Ops.PERMUTE:
        return value.transpose(node.arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(value, node.arg)
    if op is Ops.SHRINK:
        return value[tuple(slice(start, end) for start, end in node.arg)]
    return np.flip(value, node.arg)


def window_positions(base: UOp, window: UOp) -> Array:
    """For each element of *window*, a movement chain over *base*, its position in *base* (flat)."""
    chain = []
    while window is not base:
        chain.append(window)
        window = window.src[0]
    positions = np.arange(base.num_elems).reshape(base.known_shape)
    for node in reversed(chain):
        positions = move(node, positions)
    return positions


def _inside(shape: tuple[int, ...], indices: list[Array]) -> tuple[Array, tuple[Array, ...]]:
    """Which rows exist, and the indices with those that do not exist made harmless."""
    inside = np.ones(indices[0].shape, np.bool_)
    for size, index in zip(shape, indices, strict=False):
        inside &= (index >= 0) & (index < size)
    return inside, tuple(np.where(inside, index, 0).astype(np.int64) for index in indices)


_HANDLERS: Final[dict[Op, Callable[[_Evaluation, UOp, list[Array]], Array]]] = {
    Ops.BUFFER: _Evaluation.buffer,
    Ops.PARAM: _Evaluation.buffer,
    Ops.CONST: _Evaluation.const,
    Ops.IOTA: _Evaluation.iota,
    Ops.RESHAPE: _Evaluation.moved,
    Ops.PERMUTE: _Evaluation.moved,
    Ops.EXPAND: _Evaluation.moved,
    Ops.SHRINK: _Evaluation.moved,
    Ops.FLIP: _Evaluation.moved,
    Ops.PAD: _Evaluation.pad,
    Ops.PAIR: _Evaluation.pair,
    Ops.REDUCE: _Evaluation.reduce,
    Ops.GATHER: _Evaluation.gather,
    Ops.SCATTER: _Evaluation.scatter,
    Ops.WRITE: _Evaluation.write,
    Ops.CHECK: _Evaluation.check,
}
