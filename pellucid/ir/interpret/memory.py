"""Memory as the interpreter sees it: bounds are checked, and who touched what is remembered.

A `Memory` is one parameter or one DEFINE. Reading an element that nobody wrote is an error
where that is tracked; so is a race: two work-items touch one element, at least one writes, and
no barrier lies between them.

    item 0: store A[3]    item 1: load A[3]              race
    item 0: store A[3]    BARRIER    item 1: load A[3]    fine, in one work-group
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.dtype import DType
from pellucid.core.errors import ExecutionError, InterpretError
from pellucid.core.records import dataclass
from pellucid.ir.interpret.values import Array, from_storage, storage_dtype, to_storage
from pellucid.ir.uop import UOp


class Visitor(NamedTuple):
    """Who touches memory: the work-group, how many barriers it has passed, and the item in it."""

    group: int
    phase: int
    item: int

    def conflicts_with(self, other: Visitor) -> bool:
        """True when no barrier orders the two."""
        if self.group != other.group:
            return True
        return self.phase == other.phase and self.item != other.item

    def __str__(self) -> str:
        return f"item {self.item} of group {self.group}"


@dataclass
class Memory:
    """Elements of one type.

    ready: which elements have been written; None when all have.
    writers, readers: who touched each element; None when one item runs alone.
    """

    name: str
    dtype: DType
    raw: Array
    ready: Array | None = None
    writers: dict[int, Visitor] | None = None
    readers: dict[int, set[Visitor]] = field(default_factory=dict)

    @staticmethod
    def over(name: str, dtype: DType, array: Array, size: int) -> Memory:
        """Memory that is a caller's array: bit patterns where numpy lacks the type."""
        wanted = storage_dtype(dtype.scalar)
        if array.dtype != wanted and array.dtype.itemsize == wanted.itemsize and array.ndim:
            array = array.view(wanted)
        if array.dtype != wanted:
            raise ExecutionError(
                f"{name} holds {dtype}", expected=f"an array of {wanted}", came=str(array.dtype)
            )
        flat = array.reshape(-1)
        if flat.size and not np.shares_memory(flat, array):
            raise ExecutionError(
                f"{name} needs an array without gaps", came=f"strides {array.strides}"
            )
        if flat.size < size:
            raise ExecutionError(
                f"{name} is too small", expected=f"{size} elements", came=str(flat.size)
            )
        return Memory(name, dtype, flat[:size])

    @staticmethod
    def new(name: str, dtype: DType, size: int) -> Memory:
        """Memory that nobody has written yet."""
        count = size * dtype.lanes
        raw = np.zeros(count, storage_dtype(dtype.scalar))
        return Memory(name, dtype, raw, np.zeros(count, np.bool_))

    def track_races(self) -> None:
        """Remember from now on who touches what."""
        self.writers = {}

    def forget_contents(self) -> None:
        """Treat every element as never written."""
        self.ready = np.zeros(self.raw.size, np.bool_)

    # ---- access --------------------------------------------------------------------------------

    def positions(self, node: UOp, index: Array, mask: Array | None) -> Array:
        """Check that *index* is inside, where *mask* is true, and make the rest harmless."""
        if index.size == 1 and 0 <= index.flat[0] < self.raw.size:
            return index if index.dtype == np.int64 else index.astype(np.int64)
        if not self.raw.size:
            if index.size and (mask is None or mask.any()):
                raise self._out_of_bounds(node, index)
            return np.zeros(index.shape, np.int64)
        inside = (index >= 0) & (index < self.raw.size)
        if inside.all():
            return index if index.dtype == np.int64 else index.astype(np.int64)
        outside = ~inside if mask is None else ~inside & mask
        if outside.any():
            raise self._out_of_bounds(node, np.broadcast_to(index, outside.shape)[outside])
        return np.where(inside, index, 0).astype(np.int64)

    def _out_of_bounds(self, node: UOp, bad: Array) -> InterpretError:
        kind = InterpretError.OUT_OF_BOUNDS
        problem = f"index {bad.flat[0]} of {self.name}, which has {self.raw.size} elements"
        return InterpretError(kind, problem, node=node, at=None)

    def read(self, node: UOp, index: Array, mask: Array | None, visitor: Visitor) -> Array:
        """The values at *index*; where *mask* is false, anything, without access."""
        index = self.positions(node, index, mask)
        if self.ready is not None:
            self._check_ready(node, index, mask)
        if self.writers is not None:
            self._check_read(node, _chosen(index, mask), visitor)
        if not self.raw.size:
            return np.zeros(index.shape, from_storage(self.dtype.scalar, self.raw).dtype)
        return from_storage(self.dtype.scalar, self.raw[index])

    def write(
        self, node: UOp, index: Array, values: Array, mask: Array | None, visitor: Visitor
    ) -> None:
        """Put *values* at *index* where *mask* is true; the last lane wins."""
        index = self.positions(node, index, mask)
        if mask is not None or index.shape != values.shape:
            index, values, mask = np.broadcast_arrays(index, values, True if mask is None else mask)
            index, values = index[mask], values[mask]
        if self.writers is not None:
            self._check_write(node, index.flat, visitor)
        self.raw[index] = to_storage(self.dtype.scalar, values)
        if self.ready is not None:
            self.ready[index] = True

    def _check_ready(self, node: UOp, index: Array, mask: Array | None) -> None:
        assert self.ready is not None, "only called when tracked"
        if not self.ready.size:
            return
        missing = ~self.ready[index] if mask is None else ~self.ready[index] & mask
        if missing.any():
            position = np.broadcast_to(index, missing.shape)[missing].flat[0]
            kind = InterpretError.UNINITIALISED
            raise InterpretError(kind, f"element {position} of {self.name}", node=node, at=None)

    # ---- races ---------------------------------------------------------------------------------

    def _check_read(self, node: UOp, index: Any, visitor: Visitor) -> None:
        assert self.writers is not None, "only called when tracked"
        for i in map(int, index):
            writer = self.writers.get(i)
            if writer is not None and visitor.conflicts_with(writer):
                raise self._race(node, i, f"{visitor} reads what {writer} writes")
            self.readers.setdefault(i, set()).add(visitor)

    def _check_write(self, node: UOp, index: Any, visitor: Visitor) -> None:
        assert self.writers is not None, "only called when tracked"
        for i in map(int, index):
            writer = self.writers.get(i)
            if writer is not None and visitor.conflicts_with(writer):
                raise self._race(node, i, f"{visitor} writes what {writer} writes")
            for reader in self.readers.get(i, ()):
                if visitor.conflicts_with(reader):
                    raise self._race(node, i, f"{visitor} writes what {reader} reads")
            self.writers[i] = visitor

    def _race(self, node: UOp, element: int, what: str) -> InterpretError:
        problem = f"element {element} of {self.name}: {what}"
        return InterpretError(InterpretError.RACE, problem, node=node, at=None)


def _chosen(index: Array, mask: Array | None) -> Any:
    if mask is None:
        return index.flat
    shape = np.broadcast_shapes(index.shape, mask.shape)
    return np.broadcast_to(index, shape)[np.broadcast_to(mask, shape)].flat


@dataclass
class Address:
    """What INDEX gives: a memory, the element of each lane, and which lanes may be touched."""

    node: UOp
    memory: Memory
    index: Array
    valid: Array | None = None

    def masked(self, gate: Array | None) -> Array | None:
        """The lanes that may be touched under one more condition."""
        if self.valid is None or gate is None:
            return self.valid if gate is None else gate
        return np.asarray(self.valid & gate)

    def read(
        self, visitor: Visitor, gate: Array | None = None, fallback: Array | None = None
    ) -> Array:
        """The values, with *fallback* (or 0) for the lanes that may not be touched."""
        mask = self.masked(gate)
        values = self.memory.read(self.node, self.index, mask, visitor)
        if mask is None:
            return values
        other = np.zeros((), values.dtype) if fallback is None else fallback
        return np.where(mask, values, other)


def make_address(node: UOp, memory: Memory, index: Array, valid: Array | None) -> Address:
    """The address that the INDEX *node* means: a scalar index gives lanes side by side."""
    lanes = node.dtype.lanes
    if memory.dtype.lanes > 1:  # a DEFINE whose elements are vectors
        index = index * memory.dtype.lanes
    if lanes > 1 and node.src[1].dtype.lanes == 1:
        index = index + np.arange(lanes)
    return Address(node, memory, index, valid)
