"""Join the lanes of an access that are neighbours in memory, and take apart those that are not.

VECTOR form -> VECTOR form without vector indices. With four lanes, before and after:

    LOAD(x[SPLAT(i * 4) + (0, 1, 2, 3)])     LOAD(x[i * 4])                 one wide access
    LOAD(x[SPLAT(i) + (0, 0, 0, 0)])         SPLAT(LOAD(x[i]))              one scalar
    LOAD(x[SPLAT(i) + (3, 2, 1, 0)])         LANE(LOAD(x[i]), (3, 2, 1, 0)) wide, reversed
    LOAD(x[SPLAT(i) + (0, 1, 8, 9)])         STACK(LOAD(x[i]), LOAD(x[i + 8]))    two lanes each
    LOAD(x[SPLAT(i) + (0, 8, 1, 9)])         the same, and LANE(…, (0, 2, 1, 3))  rows interleaved
    LOAD(x[p])     p a vector of data        STACK(LOAD(x[LANE(p, 0)]), LOAD(x[LANE(p, 1)]), …)

and likewise for STORE, with a GROUP of STOREs. Loads that read a square together are turned around
in registers first (transpose.py). Validity stays the third source of INDEX: one bool
where all lanes agree, else a vector. A vector index is read as a scalar base plus a literal offset
for each lane (`lane_offsets`).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from pellucid.codegen.transpose import transposed_loads
from pellucid.core.target import Target
from pellucid.ir.bounds import alignment
from pellucid.ir.laws.terms import moved_by
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import transform
from pellucid.ir.uop import UOp


def coalesce_memory(sink: UOp, target: Target) -> UOp:
    """Replace accesses with vector indices by wide and by scalar ones."""
    accesses = (Ops.LOAD, Ops.STORE)
    nodes = sink.toposort()
    if not any(n.op in accesses and n.src[0].src[1].dtype.lanes > 1 for n in nodes):
        return sink
    joiner = _Joiner(target.has_masked_memory)
    turned = {} if target.has_groups else transposed_loads(nodes, joiner.place_of)
    sink = sink.substitute(turned) if turned else sink
    return simplify(transform(sink, joiner.visit, accesses))


class Lanes(NamedTuple):
    """A vector of integers as a scalar plus a literal for each lane."""

    base: UOp
    offsets: tuple[int, ...]

    @property
    def is_uniform(self) -> bool:
        """True when all lanes are the base."""
        return not any(self.offsets)

    def at(self, lane: int) -> UOp:
        """The scalar at one lane."""
        return moved_by(self.base, self.offsets[lane])


class _Joiner:
    """Takes accesses apart; remembers what it learned about vector indices."""

    def __init__(self, can_mask: bool) -> None:
        self.can_mask = can_mask
        self.known: dict[UOp, Lanes | None] = {}
        self.lanes: dict[tuple[UOp, int], UOp] = {}

    def visit(self, node: UOp) -> UOp:
        """*node*, or what an access with a vector index becomes."""
        if node.op is Ops.LOAD and node.src[0].src[1].dtype.lanes > 1:
            return self.load(node.src[0])
        if node.op is Ops.STORE and node.src[0].src[1].dtype.lanes > 1:
            return self.store(node.src[0], node.src[1])
        return node

    def load(self, index: UOp) -> UOp:
        """The value of LOAD(index) without a vector index."""
        place = self._lanes_of(index.src[1])
        valid = self._valid(index)
        count = index.dtype.lanes
        if place is not None and place.is_uniform and (valid is None or valid.dtype.lanes == 1):
            return self._scalar(index, place.base, valid).load().splat(count)
        parts = []
        runs = self._runs(place, valid, count)
        interleaved = self._interleaved(index, place, valid) if 2 * len(runs) > count else None
        if interleaved is not None:
            return interleaved
        for first, size, step in runs:
            if size == 1:
                parts.append(self._one(index, place, valid, first).load())
                continue
            low = first if step > 0 else first + size - 1
            part = self._part(index, place, valid, first, size, low).load()
            parts.append(part if step > 0 else part.lane(tuple(range(size - 1, -1, -1))))
        return parts[0] if len(parts) == 1 else UOp(Ops.STACK, index.dtype, tuple(parts))

    def _interleaved(self, index: UOp, place: Lanes | None, valid: UOp | None) -> UOp | None:
        """A load of interleaved rows: each row at once, then its lanes in their places."""
        count = index.dtype.lanes
        mixed = valid is not None and valid.dtype.lanes > 1
        if place is None or (mixed and not self.can_mask):
            return None
        order = tuple(sorted(range(count), key=place.offsets.__getitem__))
        offsets = tuple(place.offsets[lane] for lane in order)
        rows_count = 1 + sum(b != a + 1 for a, b in itertools.pairwise(offsets))
        if 4 * rows_count > count or order == tuple(range(count)):
            return None
        at = place.base.splat(count) + UOp.const(place.base.dtype.vec(count), offsets)
        validity = (_in_order(s, order) for s in index.src[2:])
        rows = self.load(index.with_sources((index.src[0], at, *validity)))
        return rows.lane(tuple(order.index(lane) for lane in range(count)))

    def store(self, index: UOp, value: UOp) -> UOp:
        """The effect of STORE(index, value) without a vector index."""
        place = self._lanes_of(index.src[1])
        valid = self._valid(index)
        count = index.dtype.lanes
        if place is not None and place.is_uniform and (valid is None or valid.dtype.lanes == 1):
            return self._scalar(index, place.base, valid).store(self._lane(value, count - 1))
        parts = []
        for first, size, step in self._runs(place, valid, count):
            if size == 1:
                place_one = self._one(index, place, valid, first)
                parts.append(place_one.store(self._lane(value, first)))
                continue
            low = first if step > 0 else first + size - 1
            chosen = tuple(range(first, first + size))[::step]
            part = value if chosen == tuple(range(count)) else value.lane(chosen)
            parts.append(self._part(index, place, valid, first, size, low).store(part))
        return parts[0] if len(parts) == 1 else UOp.make(Ops.GROUP, *parts)

    # ---- pieces of an access

    def _runs(
        self, place: Lanes | None, valid: UOp | None, count: int
    ) -> list[tuple[int, int, int]]:
        """Lanes that can go together: (first, how many, +1 or -1), sizes powers of two."""
        mixed = valid is not None and valid.dtype.lanes > 1
        if place is None or (mixed and not self.can_mask):
            return [(lane, 1, 1) for lane in range(count)]
        offsets = place.offsets
        if offsets == tuple(range(offsets[0], offsets[0] - count, -1)) and not mixed:
            return [(0, count, -1)]
        runs = []
        first = 0
        while first < count:
            size = 1
            while first + size < count and offsets[first + size] == offsets[first] + size:
                size += 1
            size = 1 << (size.bit_length() - 1)
            runs.append((first, size, 1))
            first += size
        return runs

    def _scalar(self, index: UOp, position: UOp, valid: UOp | None) -> UOp:
        return index.src[0].index(position, valid)

    def _one(self, index: UOp, place: Lanes | None, valid: UOp | None, lane: int) -> UOp:
        position = place.at(lane) if place is not None else self._lane(index.src[1], lane)
        return self._scalar(index, position, self._lane(valid, lane) if valid else None)

    def _part(
        self, index: UOp, place: Lanes | None, valid: UOp | None, first: int, size: int, low: int
    ) -> UOp:
        """A wide INDEX for some neighbouring lanes."""
        if place is None:
            raise TypeError("lanes without a common base are no neighbours")
        sources = [index.src[0], place.at(low)]
        if valid is not None:
            whole = valid.dtype.lanes in (1, size)
            sources.append(valid if whole else valid.lane(tuple(range(first, first + size))))
        return UOp(Ops.INDEX, index.dtype.scalar.vec(size), tuple(sources))

    def _valid(self, index: UOp) -> UOp | None:
        """The validity: a scalar where all lanes agree."""
        if len(index.src) < 3:
            return None
        found = self._lanes_of(index.src[2])
        return index.src[2] if found is None or not found.is_uniform else found.base

    # ---- reading a vector of integers

    def _lane(self, node: UOp, lane: int) -> UOp:
        """One lane as a scalar: computed from scalars where that costs nothing."""
        if node.dtype.lanes == 1:
            return node
        found = self.lanes.get((node, lane))
        if found is None:
            found = self.lanes[node, lane] = self._compute_lane(node, lane)
        return found

    def _compute_lane(self, node: UOp, lane: int) -> UOp:
        if node.op is Ops.SPLAT:
            return node.src[0]
        if node.op is Ops.CONST:
            value = node.arg[lane] if isinstance(node.arg, tuple) else node.arg
            return UOp.const(node.dtype.scalar, value)
        known = self._lanes_of(node) if node.dtype.is_index else None
        if known is not None:
            return known.at(lane)
        if node.op.is_elementwise and (node.dtype.is_index or node.dtype.is_bool):
            sources = tuple(self._lane(s, lane) for s in node.src)
            return UOp(node.op, node.dtype.scalar, sources, node.arg)
        return node.lane(lane)

    def place_of(self, index: UOp) -> Lanes | None:
        """A vector index as base and offsets, where it is one."""
        return self._lanes_of(index) if index.dtype.lanes > 1 else None

    def _lanes_of(self, node: UOp) -> Lanes | None:
        if node not in self.known:
            for below in node.toposort(lambda n: n not in self.known and n.dtype.lanes > 1):
                if below.dtype.lanes > 1 and below not in self.known:
                    self.known[below] = lane_offsets(below, [self._source(s) for s in below.src])
        return self.known.get(node)

    def _source(self, node: UOp) -> Lanes | None:
        return self.known.get(node) if node.dtype.lanes > 1 else None


def _in_order(node: UOp, order: tuple[int, ...]) -> UOp:
    """A vector with its lanes in another order, where that costs nothing if possible."""
    if node.dtype.lanes == 1 or node.op is Ops.SPLAT:
        return node
    if node.is_const:
        values = node.arg if isinstance(node.arg, tuple) else (node.arg,) * len(order)
        return UOp.const(node.dtype, tuple(values[lane] for lane in order))
    if node.op.is_elementwise:
        return node.with_sources(tuple(_in_order(s, order) for s in node.src))
    return node.lane(order)


def lane_offsets(node: UOp, given: list[Lanes | None]) -> Lanes | None:
    """Read a vector as base plus offsets, from what its sources are; None when that cannot be.

    >>> from pellucid.core.dtype import dtypes
    >>> lanes = UOp.const(dtypes.index.vec(4), (0, 1, 2, 3))
    >>> lane_offsets(lanes, []).offsets
    (0, 1, 2, 3)
    """
    count = node.dtype.lanes
    none = (0,) * count
    if node.op is Ops.SPLAT:
        return Lanes(node.src[0], none)
    if node.op is Ops.CONST:
        if not isinstance(node.arg, tuple):
            return Lanes(UOp.const(node.dtype.scalar, node.arg), none)
        if node.dtype.is_float or node.dtype.is_bool:
            return None
        return Lanes(UOp.const(node.dtype.scalar, 0), tuple(int(v) for v in node.arg))
    if not node.op.is_elementwise or not all(given):
        return None
    sources = [lanes for lanes in given if lanes is not None]
    if all(lanes.is_uniform for lanes in sources):
        bases = tuple(lanes.base for lanes in sources)
        return Lanes(UOp(node.op, node.dtype.scalar, bases, node.arg), none)
    if not node.dtype.is_index:
        return None
    return _moving_offsets(node, sources)


def _moving_offsets(node: UOp, sources: list[Lanes]) -> Lanes | None:
    """Sums, multiples, and divisions that split base and offset cleanly."""
    left, right = sources[0], sources[-1]
    if node.op is Ops.ADD:
        offsets = tuple(a + b for a, b in zip(left.offsets, right.offsets, strict=True))
        if right.base.is_const:
            return Lanes(moved_by(left.base, right.base.arg), offsets)
        return Lanes(left.base + right.base, offsets)
    if not (right.is_uniform and right.base.is_const) or len(sources) != 2:
        return None
    amount = int(right.base.arg)
    if node.op is Ops.MUL:
        return Lanes(left.base * amount, tuple(o * amount for o in left.offsets))
    if amount > 0 and alignment(left.base) % amount == 0:
        if node.op is Ops.FLOORDIV:
            return Lanes(left.base // amount, tuple(o // amount for o in left.offsets))
        if node.op is Ops.FLOORMOD:
            return Lanes(left.base.const_like(0), tuple(o % amount for o in left.offsets))
    return None
