"""What a kernel costs: how often each node runs, and how much lanes along an axis would save.

    Costs(sink, target).gain(axis)       scalar operations that lanes along the axis would save
    Costs(sink, target).time_us(lanes)   about how long one core takes

An access that is contiguous along the lanes costs one vector for all of them; any other one costs
a scalar access for each lane, and a little more to put lanes together or to take them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind
from pellucid.ir.bounds import bounds
from pellucid.ir.op import TRANSCENDENTAL, Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import buffer_uses
from pellucid.opt.axes import axes_of, reduces_over, reductions, size_of, stride_of

GATHER_COST = 1.5
"""Price of a scalar load that fills one lane, in scalar accesses."""
FAR_GATHER_COST = 1.75
"""The same where each lane reads another cache line."""
SCATTER_COST = 1.75
"""Price of a scalar store that empties one lane."""
FAR_SCATTER_COST = 2.25
"""The same where each lane writes another cache line."""
BOOL_COST = 1.0
"""What is added for a bool, which is a byte in memory and a bit in a mask."""
COMPUTED_COST = 3.0
"""Price of an access whose place is computed for each lane."""
CYCLES_PER_US = 3300.0
BYTES_PER_US = 14000.0


class Costs:
    """How often everything in a kernel runs, and what it costs with some axes as lanes."""

    def __init__(self, sink: UOp, target: Target) -> None:
        self.sink, self.target = sink, target
        self.axes = axes_of(sink)
        self.reduced = {r for node in reductions(sink) for r in node.src[1:]}
        nodes = sink.toposort()
        self.accesses = [n for n in nodes if n.op is Ops.INDEX]
        self.work = [n for n in nodes if is_work(n)]
        self.widths: dict[UOp, int] = {}  # bytes of the widest type along each axis
        for node in [*self.work, *self.accesses]:
            for axis in own_ranges(node):
                self.widths[axis] = max(self.widths.get(axis, 1), _width(node))
        self.around_buffers = {r for n in buffer_uses(sink) for r in n.ranges}
        self.stored = {n.src[0] for n in nodes if n.op is Ops.STORE}
        self.counts: dict[tuple[UOp, ...], int] = {}
        self.bodies = {r: n.src[0].ranges for n in reductions(sink) for r in n.src[1:]}

    def runs(self, node: UOp) -> int:
        """How often a node is computed: in a reduction, as often as its innermost loop runs."""
        ranges = self.loops_of(node)
        if ranges not in self.counts:
            self.counts[ranges] = math.prod(bounds(r).max + 1 for r in ranges)
        return self.counts[ranges]

    def loops_of(self, node: UOp) -> tuple[UOp, ...]:
        """The RANGEs that a node is computed in: in a reduction, all of its innermost loop."""
        ranges = own_ranges(node)
        inside = [self.bodies[r] for r in ranges if r in self.bodies]
        return max(inside, key=len) if inside else ranges

    def lanes_of(self, axis: UOp) -> int:
        """How many lanes an axis would have."""
        size = size_of(axis) or 1
        return min(self.most_lanes(axis), 1 << (size.bit_length() - 1))

    def most_lanes(self, axis: UOp) -> int:
        """How many lanes of the widest type along an axis a vector holds."""
        return self.target.max_lanes(self.widths.get(axis, 4))

    def speedup(self, axis: UOp) -> float:
        """Elements per step along an axis, counting the scalar rest."""
        size, lanes = size_of(axis) or 1, self.lanes_of(axis)
        return size / (size // lanes + size % lanes)

    def gain(self, axis: UOp) -> float:
        """By how much the kernel gets cheaper with an axis as lanes."""
        saved = 1 - 1 / self.speedup(axis)
        total = sum(self.runs(n) * price(n) * saved for n in self.work if axis in own_ranges(n))
        for access in self.accesses:
            if axis not in self.loops_of(access):
                continue
            total += self.runs(access) * self._saved_by_access(access, axis, saved)
        if axis in self.reduced:
            horizontal = 2 * math.log2(max(2, self.lanes_of(axis)))
            over = reduces_over(self.sink, axis)
            total -= sum(self.runs(n) / (size_of(axis) or 1) * horizontal for n in over)
        return total

    def _saved_by_access(self, access: UOp, axis: UOp, saved: float) -> float:
        """What lanes along an axis save of one run of an access; negative where they cost."""
        stride = stride_of(access.src[1], axis)
        if stride in (0, 1):
            return saved
        if stride is None:
            return 1 - COMPUTED_COST
        extra = BOOL_COST if access.dtype.is_bool else 0.0
        line = self.target.line_bytes
        is_near = abs(stride) * access.dtype.itemsize < line
        if access in self.stored:
            return 1 - extra - (SCATTER_COST if is_near else FAR_SCATTER_COST)
        return 1 - extra - (GATHER_COST if is_near else FAR_GATHER_COST)

    def time_us(self, lanes: dict[UOp, int]) -> float:
        """About how long the kernel takes on one core."""
        params = {a.src[0] for a in self.accesses if a.src[0].op is Ops.PARAM}
        memory = sum(p.dtype.itemsize * p.arg.size for p in params)
        return max(self.cycles(lanes) / CYCLES_PER_US, float(memory) / BYTES_PER_US)

    def cycles(self, lanes: dict[UOp, int]) -> float:
        """About how many cycles one core works, memory being at hand."""
        cycles = 0.0
        sums = [n for n in self.work if n.op is Ops.REDUCE and n.arg.op is Ops.ADD]
        fused = {n.src[0] for n in sums if n.src[0].op is Ops.MUL}
        for node in (*self.work, *self.accesses):
            if node in fused:
                continue
            ranges = own_ranges(node)
            width = max((lanes[r] for r in ranges if r in lanes), default=1)
            cycles += self.runs(node) * self._cycles(node) / width
        return cycles

    def cycles_of_turn(self, sums: Sequence[UOp]) -> float:
        """About how many cycles a turn takes of the innermost loop that *sums* close together."""
        axis = sums[0].src[-1]
        below = {n for total in sums for n in total.src[0].toposort() if axis in n.ranges}
        busy = [n for n in (*self.work, *self.accesses) if n in below]
        return sum(map(self._cycles, (*sums, *busy)))

    def _cycles(self, node: UOp) -> float:
        """What one run of a node takes; a tile loads a value once for several uses."""
        if node.op is not Ops.INDEX:
            return price(node) / 2
        return 0.125 if any(r in self.reduced for r in node.ranges) else 0.5


def own_ranges(node: UOp) -> tuple[UOp, ...]:
    return node.src[0].ranges if node.op is Ops.REDUCE else node.ranges


def is_work(node: UOp) -> bool:
    if node.op is Ops.REDUCE:
        return True
    if not node.op.is_elementwise or node.dtype.is_index or node.op is Ops.BITCAST:
        return False
    return not all(s.dtype.is_index for s in node.src)


def _width(node: UOp) -> int:
    """Bytes of one lane; small floats are computed in 32 bits."""
    dtype = node.dtype.scalar
    return max(4, dtype.itemsize) if dtype.is_float else dtype.itemsize


def price(node: UOp) -> float:
    """What an elementwise op costs, in additions."""
    if node.dtype.is_bool:  # of floats, a flag is set and moved, twice where one may be no number
        return 1.0 if node.src and node.src[0].dtype.is_float else 0.25
    return 15.0 if node.op in TRANSCENDENTAL else 4.0 if node.op in _SLOW else 1.0


_SLOW = (Ops.FDIV, Ops.SQRT, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)


def body_size(nodes: Iterable[UOp]) -> int:
    """About how many instructions the values below some reductions take, copies counted."""
    return _size({below for node in nodes for below in node.src[0].toposort()})


def read_size(nodes: Iterable[UOp]) -> int:
    """The same of what depends on memory alone: places and their comparisons may be literals."""
    found: dict[UOp, None] = {}
    for node in nodes:
        for below in node.src[0].toposort():
            if below.op is Ops.INDEX or any(s in found for s in below.src):
                found[below] = None
    return _size(found)


def _size(nodes: Iterable[UOp]) -> int:
    return max(1, sum(copies_of(n) * (_SPELLED if n.op in TRANSCENDENTAL else 1) for n in nodes))


def copies_of(node: UOp) -> int:
    """How many copies of a node its UPCAST and UNROLL ranges make."""
    return math.prod(size_of(r) or 1 for r in node.ranges if r.arg.kind in _COPIED)


_COPIED = (AxisKind.UPCAST, AxisKind.UNROLL)


_SPELLED = 25
"""How many exact ops a function such as exp is spelled with, about."""
