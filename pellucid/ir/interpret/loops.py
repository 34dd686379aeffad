"""Kernels in LOOP and VECTOR form, over all iterations at once.

Each range is an axis of numpy arrays, and the lanes are the last axis. A node has size 1 along
the axes of ranges that it does not depend on, so broadcasting does what loops would.

    i: axis 0, j: axis 1    a[i] has shape (4, 1, 1), b[j] (1, 3, 1), a[i] + b[j] (4, 3, 1)

All reads happen before all writes, which is only the same when no iteration reads what another
one writes: `can_run_at_once` refuses kernels that read an output. Two iterations that write one
element are an error, but for parts of a loop that overlap (overlaps.py). Where an array would be
large, the outputs' ranges are cut in blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from pellucid.core.errors import InterpretError
from pellucid.ir.interpret.arithmetic import reduce_pairs, reduce_values
from pellucid.ir.interpret.machine import Machine, read_early
from pellucid.ir.interpret.memory import Memory, Visitor
from pellucid.ir.interpret.overlaps import Parts, code_of, starts_of, threads_of
from pellucid.ir.interpret.structure import storage_of, values_used
from pellucid.ir.interpret.values import Array
from pellucid.ir.op import PAIR_OPS, Ops
from pellucid.ir.uop import UOp

_MOST_ELEMENTS: Final = 1 << 22
_MOST_AXES: Final = 60
_NOT_HERE: Final = (
    Ops.AFTER,
    Ops.DEFINE,
    Ops.SPECIAL,
    Ops.BARRIER,
    Ops.IF,
    Ops.LINEAR,
    Ops.IDIV,
    Ops.IMOD,
)


def can_run_at_once(root: UOp, nodes: list[UOp]) -> bool:
    """True when the iterations of a kernel may be computed together.

    >>> can_run_at_once(UOp.sink(), [])
    True
    """
    if root.op is not Ops.SINK or getattr(root.arg, "ordered", False):
        return False
    if any(n.op in _NOT_HERE for n in nodes):
        return False
    if any(
        n.op is Ops.END and (e := n.src[0]).op is not Ops.STORE and e.op is not Ops.GROUP
        for n in nodes
    ):
        return False
    if any(n.op is Ops.GROUP and any(e.op is not Ops.STORE for e in n.src) for n in nodes):
        return False  # loops beside each other inside of a loop
    if sum(n.op is Ops.RANGE for n in nodes) >= _MOST_AXES:
        return False
    written = {storage_of(n) for n in nodes if n.op is Ops.STORE}
    read = {storage_of(s) for n in nodes for s in (*values_used(n), n) if _is_read(n, s)}
    return written.isdisjoint(read)


def _is_read(node: UOp, source: UOp) -> bool:
    return source.op is Ops.LOAD if source is node else source.op is Ops.INDEX


def run_at_once(root: UOp, params: Mapping[UOp, Memory], variables: Mapping[str, int]) -> None:
    """Run a kernel that `can_run_at_once`."""
    taken = {n: np.zeros(m.raw.size, np.bool_) for n, m in params.items()}
    for effect in root.src:
        body = effect.src[0] if effect.op is Ops.END else effect
        outputs = effect.src[1:] if effect.op is Ops.END else ()
        inner = [n for n in effect.toposort() if n.op is Ops.RANGE and n not in outputs]
        _Nest(body, outputs, inner, params, variables, taken).run_blocks()


class _Nest(Machine):
    """One END: a machine whose values have an axis for each range."""

    def __init__(
        self,
        body: UOp,
        outputs: tuple[UOp, ...],
        inner: list[UOp],
        params: Mapping[UOp, Memory],
        variables: Mapping[str, int],
        taken: Mapping[UOp, Array],
    ) -> None:
        self.order = body.toposort()
        super().__init__(params, variables, {}, Visitor(0, 0, 0), read_early(self.order))
        self.outputs = outputs
        self.taken = taken
        self.axes = {r: axis for axis, r in enumerate((*outputs, *inner))}
        self.sizes = {r: self.size_of(r) for r in self.axes}
        self.block: dict[UOp, Array] = {}
        self.parts: dict[UOp, Parts] = {}

    def size_of(self, node: UOp) -> int:
        for below in node.src[0].toposort():
            self.step(below)
        return int(self.values[node.src[0]].reshape(-1)[0])

    def run_blocks(self) -> None:
        """Compute every node, once for each block."""
        for block in self.blocks():
            self.block = block
            self.values.clear()
            self.early.clear()
            for node in self.order:
                self.step(node)

    def blocks(self) -> Iterator[dict[UOp, Array]]:
        """The values of the outputs' ranges, in blocks small enough for memory."""
        most = 1
        for node in self.order:
            count = math.prod(self.sizes[r] for r in node.ranges) * node.dtype.lanes
            if node.op is Ops.REDUCE:
                count *= math.prod(self.sizes[r] for r in node.src[1:])
            most = max(most, count)
        cuts = []
        for node in self.outputs:
            size = self.sizes[node]
            step = size
            if most > _MOST_ELEMENTS and size > 1:
                step = max(1, size * _MOST_ELEMENTS // most)
                most = most * step // size
            starts = range(0, size, max(step, 1))
            cuts.append([np.arange(at, min(at + step, size)) for at in starts])
        for parts in itertools.product(*cuts):
            yield dict(zip(self.outputs, parts, strict=True))

    # ---- nodes that look different with axes ---------------------------------------------------

    def shaped(self, node: UOp, values: Array) -> Array:
        """Lay *values* along the axis of a range."""
        shape = [1] * (len(self.axes) + 1)
        shape[self.axes[node]] = values.size
        return values.reshape(shape)

    def step(self, node: UOp) -> None:
        if node.op is Ops.RANGE:
            values = self.block[node] if node in self.block else np.arange(self.sizes[node])
            self.values[node] = self.shaped(node, values)
        elif node.op is Ops.CONST or node.op is Ops.VARIABLE:
            super().step(node)
            self.values[node] = self.values[node].reshape((1,) * len(self.axes) + (-1,))
        elif node.op is Ops.REDUCE and len(node.src) > 1:
            self.values[node] = self.reduce_axes(node)
        else:
            super().step(node)

    def reduce_axes(self, node: UOp) -> Array:
        axes = tuple(self.axes[r] for r in node.src[1:])
        if node.arg.op in PAIR_OPS:
            value, key = (self.over_ranges(node, v) for v in self.pair(node.src[0]))
            both = (value, key)
            return reduce_pairs(node.arg.op, node.dtype, both, axes, keepdims=True)
        full = self.over_ranges(node, self.value(node.src[0]))
        return reduce_values(node.arg.op, node.dtype, full, axes, keepdims=True)

    def over_ranges(self, node: UOp, values: Array) -> Array:
        """What a REDUCE combines, with all the elements that it takes in."""
        shape = list(values.shape)
        for r in node.src[1:]:
            shape[self.axes[r]] = self.sizes[r]
        shape[-1] = node.dtype.lanes
        return np.broadcast_to(values, shape)

    def splat(self, node: UOp) -> Array:
        value = self.value(node.src[0])
        return np.broadcast_to(value, (*value.shape[:-1], node.dtype.lanes))

    def stack(self, node: UOp) -> Array:
        values = [self.value(s) for s in node.src]
        outer = np.broadcast_shapes(*(v.shape[:-1] for v in values))
        parts = zip(values, node.src, strict=True)
        full = [np.broadcast_to(v, (*outer, s.dtype.lanes)) for v, s in parts]
        return np.concatenate(full, axis=-1)

    def lane(self, node: UOp) -> Array:
        value = self.value(node.src[0])
        full = np.broadcast_to(value, (*value.shape[:-1], node.src[0].dtype.lanes))
        return np.asarray(full[..., [node.arg] if isinstance(node.arg, int) else list(node.arg)])

    def store(self, node: UOp) -> None:
        address = self.values[node.src[0]]
        gate = self.value(node.src[2]) if len(node.src) > 2 else None
        value, mask = self.value(node.src[1]), address.masked(gate)
        outer = [1] * len(self.axes)
        for r in self.outputs:
            outer[self.axes[r]] = self.block[r].size
        lanes = node.src[1].dtype.lanes
        index = np.broadcast_to(address.index, (*outer, max(lanes, address.index.shape[-1])))
        if mask is not None:
            mask = np.broadcast_to(mask, index.shape)
        starts = starts_of(node)
        if not starts:
            self.refuse_second_write(node, index, mask)
            address.memory.write(node, index, value, mask, self.visitor)
            return
        parts = self.parts_of(node)
        codes = code_of(starts, self.value), code_of(threads_of(node), self.value)
        keep = True if mask is None else mask
        at, wanted, part, thread, keep = np.broadcast_arrays(index, value, *codes, keep)
        at = address.memory.positions(node, at[keep], None)
        self.refuse(node, parts.problem(at, part[keep], thread[keep]))
        before = address.memory.raw.copy()
        address.memory.write(node, index, value, mask, self.visitor)
        self.refuse(node, parts.value_problem(at, wanted[keep], before))
        self.taken[storage_of(node)][at] = True

    def parts_of(self, node: UOp) -> Parts:
        """What the nest has written to the memory that a STORE writes to."""
        storage = storage_of(node)
        if storage not in self.parts:
            self.parts[storage] = Parts(self.shared[storage], self.taken[storage])
        return self.parts[storage]

    def refuse_second_write(self, node: UOp, index: Array, mask: Any) -> None:
        """Two iterations that write one element are a race."""
        taken = self.taken[storage_of(node)]
        memory = self.shared[storage_of(node)]
        chosen = memory.positions(node, index, mask)
        chosen = chosen.reshape(-1) if mask is None else chosen[mask]
        before = int(taken.sum())
        fresh = not taken[chosen].any()
        taken[chosen] = True
        if not fresh or int(taken.sum()) - before != chosen.size:
            counts = np.bincount(chosen, minlength=taken.size)
            element = int(np.argmax(counts)) if (counts > 1).any() else int(chosen[0])
            raise self.race(node, element, "is written by two iterations")

    def refuse(self, node: UOp, found: tuple[int, str] | None) -> None:
        """Raise what is wrong with a write, if anything is."""
        if found is not None:
            raise self.race(node, *found)

    def race(self, node: UOp, element: int, problem: str) -> InterpretError:
        """The error of two iterations that both write an element."""
        name = self.shared[storage_of(node)].name
        what = f"element {element} of {name} {problem}"
        return InterpretError(InterpretError.RACE, what, node=node, at=None)
