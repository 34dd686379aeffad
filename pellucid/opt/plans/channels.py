"""The loop structure of convolutions whose lanes run along the channels that are computed.

    y[n, o, h, w] = sum over c, i, j of x[n, c, h + i, w + j] * k[o, c, i, j]      64 x 56 x 56

    copy k side by side: t[o // 24, c, i, j, o % 24]             16 registers of 8 lanes
    for each n, and 7 rows of h:
        for each 24 of o:
            for 8 of c at a time:
                for each h and 4 of w:
                    sums[h, w, 24 of o] += for c: for i: for j:
                        4 x 3 vectors of sums += 4 numbers of x * 3 vectors of k
            y[n, 24 of o, h, w] = sums[h, w, 24 of o]

The picture is read number by number, so it may be of any width, and windows may be any steps apart.
The weights are turned around once, for all pixels that use them. A block of the sum is done for
many pixels, whose sums wait in memory: what it reads of k stays in the first cache, and no
accumulator adds many terms. Where k does not stay in the second cache, the channels of a tile are
the outermost loop, and turned around one tile after the other.

How many copies a tile has, registers.py knows. windows.py has the other structure, in which lanes
run along pixels; it needs no copy of k, and stores whole vectors. Both estimate their cycles.

Sources: E. Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD
Architectures", 2018, section II (lanes along channels, register tiles of pixels); K. Goto, R. van
de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (blocks of a sum).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.axes import all_ends, reductions, size_of, stride_of
from pellucid.opt.cost import CYCLES_PER_US
from pellucid.opt.plans.plan import Pieces, Plan
from pellucid.opt.plans.registers import Registers, parts_of
from pellucid.opt.plans.runs import longest_run, nest
from pellucid.opt.plans.shares import BALANCED, balance, thread_best
from pellucid.opt.plans.sums import (
    Sum,
    count,
    lanes_along,
    loops_around,
    nests_of,
    pays_threads,
    put,
    work_after,
)

LEAST_WORK = 1 << 18
"""With fewer products, turning the weights around, and compiling that, is not worth it."""
MOST_ROWS = 8
"""How many pixels of a line a tile has at most."""
MOST_COPIES = 4
"""How many lines, and how many vectors of channels, a tile has at most."""
MOST_AFTER = 12
"""With more operations after the sum, copies of them are too much code."""
LANE_CYCLES = 1.25
"""What moving one number between memory and one lane of a vector takes."""
TURN_CYCLES = 7.0
"""What turning around one weight takes: numbers from several rows of k are put into lanes."""
REST_COST = 0.08
"""What vectors that are left over add: all nests are compiled a second time for them."""
SUMS_PART = 8
"""The part of the second cache that sums of a block may take is one in so many."""
_TILE = "each value loaded is used by several accumulators"
_COPY = "weights come side by side, once for all pixels"


@dataclass(frozen=True)
class Tile:
    """Copies: pixels of a line, lines, and vectors of channels."""

    pixels: int
    lines: int
    vectors: int


@dataclass(frozen=True)
class Channels:
    """A kernel with one sum whose lanes may run along channels.

    weight: the factor that has the channels.  channel: the axis of them.  pixels: axes that the
    other factor has alone, the last closest in the output.  others: all other outputs.
    """

    kernel: Plan
    sum: Sum
    weight: UOp
    channel: UOp
    pixels: tuple[UOp, ...]
    others: tuple[UOp, ...]
    lanes: int

    @staticmethod
    def of(plan: Plan) -> Channels | None:
        """Read a kernel, or give None."""
        found = Sum.of(plan.sink, least_axes=1)
        if found is None or not set(found.outputs) <= set(found.node.ranges):
            return None
        if plan.target.has_groups or found.work < LEAST_WORK:
            return None
        for weight, picture in (found.reads, found.reads[::-1]):
            if weight is not None and picture is not None and _is_plain(weight, picture):
                made = Channels._read(plan, found, weight, picture)
                if made is not None:
                    return made
        return None

    @staticmethod
    def _read(plan: Plan, found: Sum, weight: UOp, picture: UOp) -> Channels | None:
        own = [r for r in found.outputs if r not in picture.ranges]
        pixels = [r for r in found.outputs if r not in weight.ranges]
        if len(own) != 1 or not pixels or picture.dtype is not found.node.dtype:
            return None
        (channel,) = own
        lanes = plan.target.max_lanes(max(4, found.node.dtype.itemsize))
        strides = [stride_of(place, channel) for place in (*found.places, weight.src[1])]
        is_wide = lanes > 1 and (size_of(channel) or 1) % lanes == 0
        if not is_wide or any(stride in (0, 1, None) for stride in strides):
            return None
        pixels.sort(key=lambda r: -abs(stride_of(found.places[0], r) or 0))
        if len(found.node.src) == 2 and _is_matrix(picture, pixels, found.node.src[1]):
            return None
        others = tuple(r for r in found.outputs if r is not channel and r not in pixels)
        return Channels(plan, found, weight, channel, tuple(pixels), others, lanes)

    # ---- sizes ----

    @property
    def _line(self) -> int:
        return size_of(self.pixels[-1]) or 1

    @property
    def _lines(self) -> int:
        return 1 if len(self.pixels) < 2 else size_of(self.pixels[-2]) or 1

    @property
    def _vectors(self) -> int:
        return (size_of(self.channel) or 1) // self.lanes

    @property
    def _item_bytes(self) -> int:
        return self.sum.node.dtype.itemsize

    @property
    def _weights(self) -> int:
        """How many numbers are turned around."""
        return self._vectors * self.lanes * self.sum.length

    @cached_property
    def is_heavy(self) -> bool:
        """True where the weights do not stay in the second cache beside the rest."""
        return self._weights * self._item_bytes > self.kernel.target.l2_bytes // 2

    @cached_property
    def is_apart(self) -> bool:
        """True where each tile of channels is done for all pixels before the next.

        Its weights stay in cache then, where all do not; and threads that share tiles turn their
        own around, where there are no pictures to share.
        """
        tiles, rest = divmod(self._vectors, self.tile.vectors)
        cores = self.kernel.target.cores
        are_shared = self.is_shared and not rest and _is_balanced(tiles, cores)
        return self.is_heavy or (are_shared and not self._has_balanced(cores))

    @cached_property
    def is_shared(self) -> bool:
        """True where the work is worth waking threads."""
        return pays_threads(self.kernel.target, self._busy_us)

    @property
    def _busy_us(self) -> float:
        return self.sum.work / self.lanes / CYCLES_PER_US

    @cached_property
    def tile(self) -> Tile:
        """The cheapest tile that registers hold."""
        return min(self._tiles(), key=lambda t: (self._turn_cycles(t), t.lines, -t.vectors))

    def _tiles(self) -> Iterator[Tile]:
        registers = self._registers
        rows, copies = range(1, MOST_ROWS + 1), range(1, MOST_COPIES + 1)
        for pixels, lines, vectors in itertools.product(rows, copies, copies):
            fits = pixels <= self._line and vectors <= self._vectors and self._lines % lines == 0
            fits = fits and (lines == 1 or self._line % pixels == 0)
            if self.is_heavy and self._vectors % vectors:
                continue  # channels are the outermost loop, which threads share
            if fits and registers.has_room(pixels * lines, vectors):
                yield Tile(pixels, lines, vectors)

    @property
    def _registers(self) -> Registers:
        """What is copied lies in whole vectors: none of them reaches into a second line."""
        found = Registers.of(self.kernel.target)
        return Registers(found.count, 1.0)

    def _turn_cycles(self, tile: Tile) -> float:
        """How long a turn of the sum takes for a picture and all channels."""
        line = parts_of(self._line, tile.pixels)
        rows = [(n * (self._lines // tile.lines), size * tile.lines) for n, size in line]
        cycles = self._registers.cycles(rows, parts_of(self._vectors, tile.vectors))
        return cycles * (1 + REST_COST if self._vectors % tile.vectors else 1)

    @property
    def cycles(self) -> float:
        """How long the kernel takes on one core, about."""
        outputs = count(self.sum.outputs)
        around = outputs // (self._line * self._lines * self._vectors * self.lanes)
        lone = outputs * LANE_CYCLES * self._lone_accesses
        copies = self.kernel.target.cores if self.is_shared and not self.is_apart else 1
        turned = count(self.others) * self._weights * TURN_CYCLES * copies
        return around * self.sum.length * self._turn_cycles(self.tile) + lone + turned

    @property
    def _lone_accesses(self) -> int:
        """How many accesses outside of the sum go lane by lane."""
        sink, node = self.kernel.sink, self.sum.node
        inside = set(node.src[0].toposort())
        found = [n for n in sink.toposort() if n.op is Ops.INDEX and n not in inside]
        return sum(stride_of(n.src[1], self.channel) not in (0, 1) for n in found)

    @property
    def _follows(self) -> float:
        """How many operations follow the sum, for each result."""
        return work_after(self.kernel.sink, self.sum.node)

    # ---- the plan ----

    def plan(self) -> None:
        """Blocks of lines, tiles of channels, the copy of the weights, then each nest."""
        plan, channel = self.kernel, self.channel.arg.id
        others = [r.arg.id for r in self.others]
        outer, inner = self._split_lines()
        is_tiled = self.is_apart or not outer
        above = [channel, *outer] if is_tiled else [*outer, channel]
        put(plan, [*others, *above, *inner], "what is read again stays in cache")
        parts, width = Pieces(None, channel, None), self.tile.vectors * self.lanes
        if width < plan.size(channel):
            parts = plan.do("split", channel, width, _TILE)
        nests = [self._ordered(loops, parts, len(inner)) for loops in nests_of(plan.sink)]
        levels = [next(n for n in loops if n not in others) for loops in nests]
        for level in levels if is_tiled and outer else outer[:1]:
            self._pack(level)
        for loops in nests:
            self._plan_nest(loops[-len(inner) - 1 :], is_packed=bool(outer))
        if self.is_shared:
            shared = [*others, *(levels[:1] if is_tiled else outer)]
            thread_best(plan, shared, f"it takes about {self._busy_us:.0f} us on one core")

    def _split_lines(self) -> tuple[list[int], list[int]]:
        """The loops over pixels around channels, and inside of them: a line or several."""
        plan, (*outer, line) = self.kernel, [r.arg.id for r in self.pixels]
        if not outer:
            return [], [line]
        above, amount = outer.pop(), self._lines_together()
        if amount == 1:
            return [*outer, above], [line]
        if amount == plan.size(above):
            return outer, [above, line]
        pieces = plan.do("split", above, amount, "the sums of a block of lines stay in cache")
        assert pieces.outer is not None, "there are several blocks"
        return [*outer, pieces.outer], [pieces.inner, line]

    def _lines_together(self) -> int:
        """Of how many lines the sums wait in cache: a divisor; threads get equally many blocks."""
        target, width = self.kernel.target, self.tile.vectors * self.lanes
        most = target.l2_bytes // SUMS_PART // (self._line * width * self._item_bytes)
        lines, copies = self._lines, self.tile.lines
        near = [n for n in range(copies, lines + 1, copies) if lines % n == 0]
        fits = [n for n in near if n <= most] or near[:1]
        cores = target.cores
        if self.is_shared and not self.is_apart and not self._has_balanced(cores):
            fits = [n for n in fits if _is_balanced(lines // n, cores)] or fits
        return max(fits)

    def _has_balanced(self, cores: int) -> bool:
        """True where threads can share loops around the lines."""
        return any(balance(r, cores) >= BALANCED for r in (*self.others, *self.pixels[:-2]))

    def _ordered(self, loops: Sequence[int], parts: Pieces, count: int) -> list[int]:
        """Put the channels of a tile inside of the loops over pixels; the loops in this order."""
        part = next(n for n in loops if n in (parts.inner, parts.rest))
        inner = list(loops[-count:])
        ordered = [*(n for n in loops if n != part and n not in inner), *inner, part]
        put(self.kernel, ordered, "a tile of weights is read again for each pixel")
        return ordered

    # ---- copies of weights ----

    def _pack(self, level: int) -> None:
        """Copy what the loops inside of a level read of the weights, a vector at a time."""
        plan, first = self.kernel, next_range_id(self.kernel.sink)
        plan.do("pack", level, self.weight.src[0].arg.slot, _COPY)
        loops = [[r.arg.id for r in end.src[1:]] for end in all_ends(plan.sink)]
        for found in loops:
            if found[0] >= first:
                plan.do("lanes", found[-1], self.lanes, "values that lie apart come side by side")

    # ---- nests ----

    def _plan_nest(self, loops: Sequence[int], *, is_packed: bool) -> None:
        """Blocks of the sum outside of pixels, then copies and lanes of each nest.

        Where all pixels stand inside of a block, its weights are used once they are turned around.
        """
        plan = self.kernel
        sums = self._sums(loops[-1])
        most, inside = longest_run(self.sum.length), math.prod(plan.size(n) for n in sums[1:])
        size = plan.size(sums[0])
        block = max((n for n in range(1, size) if size % n == 0 and n * inside <= most), default=0)
        if size * inside <= most or 3 * block * inside < most:
            if not is_packed:
                self._pack(loops[0])
            nest(plan, sums, most)
            self._plan_apart(loops)
            return
        turn, cleared, summed = self._hoist(sums[0], block, loops)
        if not is_packed:
            self._pack(turn)
        nest(plan, self._sums(summed[-1]), most)
        lanes_along(plan, cleared[-1], self.lanes, _TILE)
        self._plan_tile(summed)
        self._plan_store(loops)

    def _plan_apart(self, loops: Sequence[int]) -> None:
        """Let the sums of a block wait in cache, so that results are stored along memory."""
        plan, around = self.kernel, loops_around(self.kernel, loops[0])
        place = around.index(loops[0])
        if not place:
            self._plan_tile(loops)
            return
        first = next_range_id(plan.sink)
        plan.do("compute", around[place - 1], 0, "sums wait in cache to be stored along memory")
        self._plan_tile(range(first, first + len(loops)))
        self._plan_store(loops)

    def _sums(self, part: int) -> list[int]:
        """What the innermost reduction of a nest closes."""
        plan = self.kernel
        axis = plan.axis(part)
        node = next(n for n in reductions(plan.sink) if axis in n.ranges)
        return [r.arg.id for r in node.src[1:]]

    def _hoist(
        self, outer: int, block: int, loops: Sequence[int]
    ) -> tuple[int, list[int], list[int]]:
        """Do a block of the sum for all pixels; the loop of blocks, those that clear and add."""
        plan, reason = self.kernel, "the weights of a block of the sum stay in the first cache"
        if block > 1:
            pieces = plan.do("split", outer, block, reason)
            assert pieces.outer is not None, "there are several blocks"
            outer = pieces.outer
        first = next_range_id(plan.sink)
        plan.do("hoist", outer, loops_around(plan, loops[0]).index(loops[0]), reason)
        numbers = list(range(first, first + 2 * len(loops)))
        return outer, numbers[: len(loops)], numbers[len(loops) :]

    def _plan_tile(self, loops: Sequence[int]) -> None:
        """Copies of lines and pixels around vectors of channels: these stay loaded."""
        plan, (*above, line, channel) = self.kernel, loops
        lanes_along(plan, channel, self.lanes, _TILE)
        if self.tile.pixels > 1:
            pieces = plan.do("upcast", line, self.tile.pixels, _TILE)
            if pieces.rest is not None:
                plan.do("upcast", pieces.rest, 0, "the rest of the pixels")
        if self.tile.lines > 1:
            plan.do("upcast", above[-1], self.tile.lines, _TILE)

    def _plan_store(self, loops: Sequence[int]) -> None:
        """Lanes along pixels, so that stores are whole, or along channels where lines are short.

        As many channels as lanes are a square, which is turned around in registers.
        """
        plan, (*_, line, channel) = self.kernel, loops
        widths = (self.lanes, self.lanes // 2, self.lanes // 4)
        width = next((n for n in widths if plan.size(line) % n == 0), 0)
        if width < 4:
            outside = [n for n in loops_around(plan, line) if n not in loops]
            reason = "what belongs to channels is computed once for all pixels"
            put(plan, [*outside, channel, *loops[:-1]], reason)
            plan.do("lanes", channel, self.lanes, reason)
            return
        around = [n for n in loops_around(plan, line) if n not in (line, channel)]
        put(plan, [*around, channel, line], "results are stored along memory")
        plan.do("lanes", line, width, "results are stored along memory")
        if plan.size(channel) % width == 0 and self._follows <= MOST_AFTER:
            plan.do("upcast", channel, width, "a square of numbers is turned around")


def _is_matrix(picture: UOp, pixels: Sequence[UOp], summed: UOp) -> bool:
    """True where a product of matrices reads whole rows of its factor, not every second pixel."""
    strides = [stride_of(picture.src[1], axis) for axis in (pixels[-1], summed)]
    return len(pixels) == 1 or 1 in strides


def _is_plain(*reads: UOp) -> bool:
    """True for reads of different parameters without a gate."""
    slots = {read.src[0].arg.slot for read in reads}
    return len(slots) == len(reads) and all(len(read.src) == 2 for read in reads)


def _is_balanced(size: int, cores: int) -> bool:
    return size >= BALANCED * -(-size // cores) * cores
