"""About how long a plan takes: what a search asks before it compiles a candidate.

    END(STORE(y[i, j], REDUCE(a[i, k] * b[k, j], k)), i, j LANES)

    turns of k      64 * 64    two loads and a multiply-add are 1.5 cycles, but its sum can be added
                               to after 4: these are what a turn takes
    turns of i      64         a store of y
    memory          lines of b that do not stay in the first cache come again in each turn of i

A node runs in the loops around the innermost one that it depends on: copies that differ in other
axes share it. So a tile of 6 rows loads a vector once for six products. Each loop takes what its
nodes take, or the latency of its sums where these have too few accumulators; sums that do not fit
the registers are written and read again, and so are the terms of a sum that is copies alone. Then
each cache is asked how many lines come from the next one, where the innermost loops touch more than
it holds; the slowest of all these is the time. Lines that lie a power of two apart share few places
of a cache, and fill it sooner; those a page apart come slower, since nothing fetches them ahead and
each needs an entry of the TLB.

It knows no instruction and no prefetching: it ranks plans of one kernel, and does not predict.
`benchmarks/cost_model.py` compares it with measurements.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model
for multicore architectures", 2009; K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008, section 3 (what stays in which cache).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import size_of, stride_of
from pellucid.opt.cost import is_work, own_ranges, price

ADD_CYCLES = 4.0
"""After how many cycles a sum can be added to again."""
TURN_CYCLES = 1.0
"""What a turn of a loop costs besides what it does."""
SPILL_CYCLES = 1.5
"""What a sum costs in each turn that has no register."""
PAGE_BYTES = 4096
FAR = 3.0
"""How many times as long a line takes to come where the one before lies on another page."""
WAYS = 12
"""About how many lines that share a place a cache holds."""
GATHER_CYCLES = 1.2
"""What each lane costs of an access that is not contiguous along the lanes."""
CYCLES_PER_US = 3300.0
L2_BYTES, L3_BYTES, MEMORY_BYTES = 32.0, 10.0, 4.5
"""How many bytes come in a cycle from the second cache, the third, and memory."""

_COPIES = (AxisKind.UPCAST, AxisKind.UNROLL)
_UNITS = (AxisKind.ROW, AxisKind.COLUMN, AxisKind.DEPTH)
Loops = tuple[UOp, ...]


def estimated_us(sink: UOp, target: Target) -> float:
    """About how long a kernel takes, with actions applied."""
    return _Estimate(sink, target).cycles() / CYCLES_PER_US


class _Estimate:
    """One kernel: the loops around each RANGE, and what each innermost loop does."""

    def __init__(self, sink: UOp, target: Target) -> None:
        self.sink, self.target = sink, target
        self.nodes = sink.toposort()
        self.around: dict[UOp, Loops] = {}
        self.threads = 1
        for node in reversed(self.nodes):  # users first: what stands around comes before
            if node.op is Ops.END or node.op is Ops.REDUCE:
                self._enter(node)
        self.accesses = [n for n in self.nodes if n.op is Ops.INDEX]
        self.stored = {n.src[0] for n in self.nodes if n.op is Ops.STORE}
        self.walks = {access: _Walk(access, target.line_bytes) for access in self.accesses}

    def _enter(self, node: UOp) -> None:
        outside = self.chain(node.ranges)
        for place, axis in enumerate(node.src[1:], 1):
            self.around.setdefault(axis, (*outside, *node.src[1 : place + 1]))
            if axis.arg.kind is AxisKind.THREAD:
                self.threads = max(self.threads, size_of(axis) or 1)

    def chain(self, ranges: Iterable[UOp]) -> Loops:
        """The loops around the innermost of some RANGEs, with it, outermost first."""
        return max((self.around.get(r, (r,)) for r in ranges), key=len, default=())

    # ---- cycles -----------------------------------------------------------------------------

    def cycles(self) -> float:
        """The slowest of the core, each cache and memory; threads share it."""
        busy = self._core()
        slow = max((self._from(level) for level in self._levels()), default=0.0)
        shared = min(self.threads, self.target.cores)
        return (max(busy, slow) + 0.1 * min(busy, slow)) / shared

    def _core(self) -> float:
        """What the instructions take."""
        turns: dict[Loops, float] = {}
        sums: dict[Loops, float] = {}
        for node in self.nodes:
            cost = self._cost(node)
            if cost:
                loops = _loops(self.chain(own_ranges(node)))
                turns[loops] = turns.get(loops, 0.0) + cost * self._copies(node)
            if node.op is Ops.REDUCE:
                inside = [r for r in node.src[1:] if _is_loop(r)]
                if inside:
                    loops = _loops(self.chain(inside))
                    sums[loops] = sums.get(loops, 0.0) + self._copies(node)
                elif cost:  # all its terms are there at once
                    turns[loops] += SPILL_CYCLES * self._without_register(self._copies(node))
        for loops, count in sums.items():
            spilt = self._without_register(count + self._held(loops))
            turns[loops] = max(turns.get(loops, 0.0), ADD_CYCLES) + SPILL_CYCLES * spilt
        return sum(_turns(loops) * (cost + TURN_CYCLES) for loops, cost in turns.items())

    def _without_register(self, count: float) -> float:
        """How many vectors have no register, of those that a turn needs."""
        return max(0.0, count - self.target.num_vector_registers)

    def _held(self, loops: Loops) -> float:
        """How many vectors that a turn reads wait for several uses: those of the smaller factor."""
        inside = [a for a in self.accesses if _loops(self.chain(own_ranges(a))) == loops]
        return min(map(self._copies, inside), default=0.0)

    def _copies(self, node: UOp) -> float:
        """How many vector operations a node is in one turn of its loops."""
        copies, lanes = 1.0, 1
        for r in own_ranges(node):
            if r.arg.kind in _COPIES:
                copies *= size_of(r) or 1
            elif r.arg.kind is AxisKind.LANES:
                lanes *= size_of(r) or 1
        return copies * max(1.0, lanes * _bytes(node) / max(self.target.vector_bytes, 8))

    def _cost(self, node: UOp) -> float:
        """What one vector operation of a node takes, if it takes anything."""
        if node.op is Ops.INDEX:
            return self._access_cost(node)
        if not is_work(node):
            return 0.0
        if node.op is Ops.REDUCE:
            return 0.5 / self._products(node)
        return price(node) / 2

    def _products(self, node: UOp) -> float:
        """How many products a matrix unit adds at once, in place of one."""
        return math.prod(size_of(r) or 1 for r in own_ranges(node) if r.arg.kind in _UNITS)

    def _access_cost(self, access: UOp) -> float:
        lanes = [r for r in own_ranges(access) if r.arg.kind is AxisKind.LANES]
        cost = 1.0 if access in self.stored else 0.5
        for axis in lanes:
            if stride_of(access.src[1], axis) not in (0, 1):
                width = min(size_of(axis) or 1, self.target.vector_bytes // 4)
                return GATHER_CYCLES * width
        return cost

    # ---- caches -----------------------------------------------------------------------------

    def _levels(self) -> list[tuple[int, float]]:
        """What a cache holds, and how many bytes in a cycle come from behind it."""
        target = self.target
        sizes = [(target.l1d_bytes, L2_BYTES), (target.l2_bytes, L3_BYTES)]
        return [*sizes, (max(target.l3_bytes, target.l2_bytes), MEMORY_BYTES)]

    def _from(self, level: tuple[int, float]) -> float:
        """Cycles for the lines that come from behind a cache."""
        size, rate = level
        total = 0.0
        for loops, accesses in self.nests:
            inside = len(loops)
            while inside and self._needed(accesses, loops[inside - 1 :], size) <= size:
                inside -= 1
            if inside:  # one loop touches more: lines come anew in each turn of those around it
                touched = self._touched(accesses, loops[inside - 1 :])
                total += _turns(loops[: inside - 1]) * touched
        return total / rate

    @functools.cached_property
    def nests(self) -> list[tuple[Loops, list[UOp]]]:
        """Each innermost nest of loops, and what it accesses."""
        return list(self._nests().items())

    def _nests(self) -> dict[Loops, list[UOp]]:
        """The accesses in each innermost loop, with those in the loops around it."""
        chains = {a: _loops(self.chain(own_ranges(a))) for a in self.accesses}
        found = set(chains.values())
        nests = [c for c in found if not any(o[: len(c)] == c and o != c for o in found)]
        return {c: [a for a, chain in chains.items() if chain == c[: len(chain)]] for c in nests}

    def _touched(self, accesses: Sequence[UOp], loops: Loops) -> float:
        """Bytes of the lines that accesses touch while *loops* run once through; far ones more."""
        walks = (self.walks[access] for access in accesses)
        return sum(walk.touched(loops) * (FAR if walk.is_far(loops) else 1.0) for walk in walks)

    def _needed(self, accesses: Sequence[UOp], loops: Loops, size: int) -> float:
        """Bytes of a cache of this size that these lines need, with places that stay empty."""
        return sum(
            self.walks[access].touched(loops) * self.walks[access].crowding(loops, size)
            for access in accesses
        )


class _Walk:
    """How one access moves through memory: along which RANGEs, and how far these go."""

    def __init__(self, access: UOp, line_bytes: int) -> None:
        place = access.src[1]
        self.sizes = {r: size_of(r) or 1 for r in place.ranges}
        strides = {r: stride_of(place, r) for r in self.sizes}
        self.along = {r for r in self.sizes if strides[r] == 1}
        self.copies = [r for r in self.sizes if not _is_loop(r)]
        self.itemsize = access.dtype.scalar.itemsize
        self.strides = {r: abs(s or 0) * self.itemsize for r, s in strides.items()}
        self.line = max(line_bytes, self.itemsize)
        self.most = max(_storage_bytes(access), float(self.line))

    def touched(self, loops: Loops) -> float:
        """Bytes of the lines that *loops* go through; copies and lanes belong to every turn."""
        inside = [*self.copies, *(r for r in loops if r in self.sizes)]
        count = math.prod(self.sizes[r] for r in inside)
        width = self.itemsize if not self.along.isdisjoint(inside) else self.line
        return min(float(count * width), self.most)

    def is_far(self, loops: Loops) -> bool:
        """True where the innermost of the loops that move it moves it to another page."""
        moving = [r for r in loops if r in self.sizes]
        return bool(moving) and self.strides[moving[-1]] >= PAGE_BYTES

    def crowding(self, loops: Loops, size: int) -> float:
        """Of how many lines one is used, in a cache of this size, since others share its place.

        Lines that share a place lie a period of the cache apart; *near* is what each turn of the
        loop that goes furthest covers by itself.
        """
        inside = [*self.copies, *(r for r in loops if r in self.sizes)]
        if not inside:
            return 1.0
        furthest = max(inside, key=lambda r: self.strides[r])
        stride, near = self.strides[furthest], float(self.line)
        if stride < 2 * self.line or self.sizes[furthest] <= WAYS:
            return 1.0
        for r in inside:
            if r is not furthest:
                near = max(near, float(self.strides[r] * self.sizes[r]))
        period = 1 << max(size // WAYS, 1).bit_length() - 1
        return max(1.0, math.gcd(stride, period) / near)


def _bytes(node: UOp) -> int:
    """Bytes of one lane."""
    return max(1, node.dtype.scalar.itemsize)


def _storage_bytes(access: UOp) -> float:
    storage = access.src[0]
    while storage.op is Ops.AFTER:
        storage = storage.src[0]
    return float(storage.arg.size * access.dtype.scalar.itemsize)


def _is_loop(axis: UOp) -> bool:
    return axis.arg.kind not in (*_COPIES, *_UNITS, AxisKind.LANES)


def _loops(chain: Loops) -> Loops:
    """The loops of a chain: without copies and lanes."""
    return tuple(r for r in chain if _is_loop(r))


def _turns(loops: Loops) -> float:
    return float(math.prod(size_of(r) or 1 for r in loops if _is_loop(r)))
