"""What deciding about fusion needs to know of each node, computed once, sources first.

Form: TENSOR, unchanged.

    device           where a value lives (None: a literal, which lives anywhere)
    cost             what computing one element again would cost: operations and loads
    carries_reduce   a reduction is computed per element, so this value must not be computed twice
    carries_large    the same, for reductions that take longer than a few elements
    rows             for what carries a reduction: what the longest one below combines
    has_storage      some element of memory is read

Costs are counted as if everything below were computed in place, up to what is stored anyway; they
only have to tell what is as cheap as a load from what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pellucid.core.errors import DeviceError
from pellucid.core.target import Target
from pellucid.ir.op import TRANSCENDENTAL, Ops
from pellucid.ir.uop import UOp
from pellucid.ir.walk import count_users
from pellucid.schedule.factors import narrow_factors
from pellucid.schedule.views import reshape_groups

ALWAYS_STORED = frozenset((Ops.CONTIGUOUS, Ops.STAGE, Ops.WRITE, Ops.SCATTER))
"""Ops whose value is memory of its own by definition."""

STORAGE = frozenset((Ops.PARAM, Ops.WRITE, Ops.SCATTER))
"""Ops whose value is memory before anything is decided."""

TRANSCENDENTAL_OPS = 12.0
"""An exp or a sin in units of an addition, roughly, once it is spelled as a polynomial."""

SMALL_REDUCE = 8
"""A reduction of so few elements may be computed inside another one (2x2 pooling)."""

DEAR_TWICE = 24.0
"""From this cost on (a load counts 8) a large value is better stored than computed twice."""

MOST_READ = 8
"""A value that reads more elements of memory is dear, however often it reads each of them."""

_DEAR = frozenset(TRANSCENDENTAL)
_CAP = 1e6


class Cost(NamedTuple):
    """Work for one element: arithmetic, and loads from memory."""

    ops: float = 0.0
    loads: float = 0.0


_ONE_LOAD = Cost(0.0, 1.0)
_FREE = Cost()


class Row(NamedTuple):
    """What one value that carries a reduction is combined from.

    elems, bytes: how many elements, and about how much memory they take. contracts: elements of
    memory take part in several rows, as in a matrix product; such a reduction wants tiles.
    """

    elems: int
    bytes: float
    contracts: bool

    def joined(self, other: Row) -> Row:
        """The larger of each."""
        elems, size = max(self.elems, other.elems), max(self.bytes, other.bytes)
        return Row(elems, size, self.contracts or other.contracts)


def place(device: str) -> str:
    """Where memory is: the part of a device's name before the colon.

    >>> place("CPU:LLVM")
    'CPU'
    """
    return device.partition(":")[0]


class Facts:
    """The tables, by node; *target* tells of cores and caches."""

    def __init__(self, order: Sequence[UOp], slot_devices: Sequence[str], target: Target) -> None:
        self.target = target
        self.rows: dict[UOp, Row] = {}
        self._distinct: dict[UOp, int] = {}  # elements of memory below, each counted once
        self._varies: dict[UOp, frozenset[int]] = {}
        self.device: dict[UOp, str | None] = {}
        self.cost: dict[UOp, Cost] = {}
        self.carries_reduce: set[UOp] = set()
        self.carries_large: set[UOp] = set()
        self.has_storage: set[UOp] = set()
        self._reads: dict[UOp, frozenset[UOp] | None] = {}
        self.num_users = count_users(order[-1])
        self.narrow_factors = narrow_factors(order)
        self.scaled_factors: frozenset[UOp] = frozenset()  # see scores.py
        for node in order:
            if node.op is Ops.SINK:
                continue
            self.device[node] = self._device_of(node, slot_devices)
            self.cost[node] = self._cost_of(node)
            self._distinct[node] = self._distinct_below(node)
            self._varies[node] = self._varying_axes(node)
            self._note_reductions(node)
            if node.op is Ops.PARAM or not self.has_storage.isdisjoint(node.src):
                self.has_storage.add(node)

    def distinct(self, node: UOp) -> int:
        """How many elements of memory *node* is made from, each counted once."""
        return self._distinct[node]

    def varies_along(self, node: UOp, axis: int) -> bool:
        """True where elements next to each other along *axis* are made from other memory."""
        return axis in self._varies[node]

    def is_copy(self, node: UOp) -> bool:
        """True for a COPY between devices (one to the same device, or of a literal, is none)."""
        if node.op is not Ops.COPY:
            return False
        source = self.device[node.src[0]]
        return source is not None and place(source) != place(node.arg)

    def is_stored_anyway(self, node: UOp) -> bool:
        """True where the op itself says that its value is in memory."""
        return node.op in ALWAYS_STORED or self.is_copy(node)

    def _device_of(self, node: UOp, slot_devices: Sequence[str]) -> str | None:
        if node.op is Ops.PARAM:
            return slot_devices[int(node.arg.slot)]
        if node.op is Ops.COPY:
            return str(node.arg)
        devices = dict.fromkeys([self.device[s] for s in node.src])
        found = [device for device in devices if device is not None]
        first = found[0] if found else None
        if len(found) > 1 and len({place(d) for d in found}) > 1:
            second = next(d for d in found if place(d) != place(str(first)))
            raise DeviceError(
                f"{node.op.name.lower()} takes values on {first} and on {second}",
                expected="all sources on one device",
                help="copy one of them with .to(device)",
            )
        return first

    def _note_reductions(self, node: UOp) -> None:
        if node.op is Ops.REDUCE:
            self.carries_reduce.add(node)
            if reduced_elems(node) > SMALL_REDUCE:
                self.carries_large.add(node)
            self.rows[node] = self._row_of(node)
        if node.op is Ops.EXPAND or self.is_stored_anyway(node):
            return
        for source in node.src:
            if source not in self.carries_reduce or self._is_likely_stored(source):
                continue
            self.carries_reduce.add(node)
            if source in self.carries_large:
                self.carries_large.add(node)
            self.rows[node] = self.rows.get(node, self.rows[source]).joined(self.rows[source])

    def _is_likely_stored(self, source: UOp) -> bool:
        """True for a matrix product, or what follows it, that several want: scores of a softmax."""
        return self.rows[source].contracts and self.num_users[source] > 1

    def _row_of(self, node: UOp) -> Row:
        source, elems = node.src[0], reduced_elems(node)
        size = elems * max(1.0, self.cost[source].loads) * source.dtype.itemsize
        repeats = source.num_elems > 1.5 * self._distinct[source]
        return Row(elems, size, repeats and not self._varies[source].isdisjoint(node.arg.axes))

    def _varying_axes(self, node: UOp) -> frozenset[int]:
        """The axes along which memory is read elsewhere: not those that EXPAND or IOTA made."""
        if node.op is Ops.CONST or node.op is Ops.IOTA:
            return frozenset()
        if node.op.is_elementwise or node.op in (Ops.PAIR, Ops.PAD, Ops.SHRINK, Ops.FLIP):
            return frozenset().union(*[self._varies[s] for s in node.src[:3]])
        axes = range(len(node.known_shape))
        if not node.op.is_movement or node.num_elems == 0:
            return frozenset(axes)
        inner = self._varies[node.src[0]]
        if node.op is Ops.PERMUTE:
            return frozenset(axis for axis in axes if node.arg[axis] in inner)
        shape, source = node.known_shape, node.src[0].known_shape
        if node.op is Ops.EXPAND:
            added = len(shape) - len(source)
            kept = (a for a in axes if a >= added and source[a - added] == shape[a])
            return frozenset(axis for axis in kept if axis - added in inner)
        groups = reshape_groups(source, shape)
        return frozenset(axis for ins, outs in groups if inner.intersection(ins) for axis in outs)

    def _distinct_below(self, node: UOp) -> int:
        """How many elements of memory a value is made from, at most; a stored one is memory."""
        if node.op is Ops.CONST or node.op is Ops.IOTA:
            return 0
        if not (node.op.is_elementwise or node.op.is_movement or node.op is Ops.PAIR):
            return node.num_elems
        size = node.num_elems
        return min(size, max([self._distinct[s] for s in node.src], default=size))

    def _cost_for_user(self, node: UOp) -> Cost:
        """What a user pays for *node*: a load, where it is dear enough to be stored for several."""
        cost = self.cost[node]
        dear = cost.ops + 8 * cost.loads > DEAR_TWICE
        return _ONE_LOAD if dear and self.num_users[node] > 1 else cost

    def _cost_of(self, node: UOp) -> Cost:
        if node.op in (Ops.CONST, Ops.IOTA, Ops.VARIABLE):
            return _FREE
        if node.op is Ops.PARAM or node.op is Ops.REDUCE or self.is_stored_anyway(node):
            return _ONE_LOAD
        ops = loads = 0.0
        for source in dict.fromkeys(node.src):
            cost = self._cost_for_user(source)
            ops += cost.ops
            loads += cost.loads
        if node.op is Ops.EXPAND:
            turns = _turns_inside(node)
            ops /= turns  # what loops inside do not change is computed outside of them
            again = 8 if node.num_elems >= 8 * node.src[0].num_elems else 1
            loads /= max(turns, again)  # what is read again and again is in cache
        elif node.op is Ops.GATHER:
            ops, loads = ops + 4, loads + 1
        elif node.op in _DEAR:
            ops += TRANSCENDENTAL_OPS
        elif node.op.is_elementwise:
            ops += 1
        if node.op.is_elementwise and (read := self._elements_read(node)) is not None:
            loads = min(loads, len(read))  # what several operands load is loaded once
        return Cost(min(ops, _CAP), min(loads, _CAP))

    def _elements_read(self, node: UOp) -> frozenset[UOp] | None:
        """What stands for the elements that one of *node* is computed from; None for many."""
        known = self._reads
        if node not in known:
            if not node.op.is_elementwise:
                known[node] = frozenset((node,)) if node in self.has_storage else frozenset()
            else:
                parts = [self._elements_read(s) for s in node.src]  # one level: sources come first
                found = [part for part in parts if part is not None]
                whole = frozenset().union(*found) if len(found) == len(parts) else None
                known[node] = whole if whole is not None and len(whole) <= MOST_READ else None
        return known[node]


def _turns_inside(node: UOp) -> int:
    """How many elements in a row an EXPAND makes of each element."""
    shape, turns = node.src[0].known_shape, 1
    added = len(node.known_shape) - len(shape)
    for axis in reversed(range(len(node.known_shape))):
        if axis >= added and shape[axis - added] != 1:
            break
        turns *= max(1, node.known_shape[axis])
    return turns


def reduced_elems(node: UOp) -> int:
    """How many elements of its source one element of a REDUCE combines."""
    count = 1
    for axis in node.arg.axes:
        count *= node.src[0].known_shape[axis]
    return count
