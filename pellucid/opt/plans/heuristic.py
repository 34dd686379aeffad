"""The hand-written choice of actions for a kernel.

    matmul 64 x 64 x 64, 16 lanes   ->   4 rows x 4 vectors of accumulators
    sum of 100 000 numbers          ->   4 accumulators of 16 lanes, nested in runs of 16
    y = x * 2 + z over 1000         ->   62 vectors of 16, then 8 scalars

Steps, each recorded as a decision with its reason:

1. *Lanes.* For every axis, what the kernel would cost if that axis were lanes: an access that is
   contiguous along it costs one vector, any other one scalar per lane. The best axes are taken, as
   long as no value would have two.
2. *Reductions.* Enough independent accumulators to hide the latency of an addition; then nesting,
   so that the rounding error of a float sum stays below the bound of semantics.md: with levels of m
   terms it is at most (sum of m) / 2 epsilons.
3. *Tile.* Where an operand is used by several output rows, rows and vectors become copies: about
   half as many accumulators as there are registers, so that a value loaded is used several times.
4. *Threads*, for kernels that take longer than starting threads.

Sources: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008
(register tiles); the design's cpu.md, sections 2 and 7 (measured tiles), 5 (cost of threads).
"""

from __future__ import annotations

import math
from dataclasses import field

from pellucid.core.errors import ActionError
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.hints import bytes_of
from pellucid.opt.actions.nests import has_nests, with_each
from pellucid.opt.actions.rows import dearest, shared_values
from pellucid.opt.axes import (
    axes_of,
    end_of,
    keeps_rows,
    reduces_over,
    reductions,
    size_of,
    stride_of,
)
from pellucid.opt.cost import Costs, body_size, read_size
from pellucid.opt.plans.advise import advise
from pellucid.opt.plans.dots import plan_dots
from pellucid.opt.plans.literals import divided_axes, halved_axes, is_compared
from pellucid.opt.plans.narrow import plan_narrow
from pellucid.opt.plans.passes import plan_blocks
from pellucid.opt.plans.plan import Pieces, Plan
from pellucid.opt.plans.runs import longest_run, nest
from pellucid.opt.plans.tiles import plan_tiles
from pellucid.opt.plans.windows import plan_windows

MAX_RUN = 16
"""The most terms that one accumulator adds before its sum is added to the next level's; sums of
products have longer runs (`runs.longest_run`)."""
MAX_BODY_NODES = 500
"""About how large copies may make a kernel."""
DEAR_IN_ROW = 8.0
"""From this cost on a value is better kept in cache than computed twice."""
ADD_CYCLES = 4.0
"""After how many cycles the sum of an addition can be added to: 4 on all processors of today."""
SHORT_US = 10.0
"""Kernels that take less are compiled for longer than copies of a large body will ever save."""
STREAMS = {16: 4, 32: 8}
"""How many rows are read side by side where nothing of them is used twice, by the registers: each
has its own sums. (Instead of 4, 8 take 8 % less, and 16 not less: only longer to compile.)"""
MAX_FIRST = 8
"""How many axes are tried as the first that becomes lanes."""
THREADING_US = 100.0
"""Kernels that take longer than this are worth waking threads."""


def choose(sink: UOp, target: Target) -> Plan:
    """Choose actions for a kernel, and apply them."""
    plan = Plan(sink, target)
    if sink.arg.ordered:
        return plan
    if has_nests(sink):
        if not _has_blocks(plan):
            advise(plan)
        return plan
    if plan_dots(plan) or plan_windows(plan) or plan_narrow(plan) or plan_tiles(plan):
        return plan
    _plan_rows(plan)
    costs = Costs(plan.sink, target)
    lanes = _choose_lanes(costs)
    busy_us = costs.time_us(lanes)
    tile = _choose_tile(costs, lanes)
    for ranges in _reduced_nests(costs.sink):
        _plan_reduction(plan, costs, ranges, lanes, tile)
    _plan_outputs(plan, costs, lanes, tile)
    if target.has_threads and target.cores > 1 and busy_us >= THREADING_US:
        _plan_threads(plan, busy_us)
    advise(plan)
    return plan


# ---- nests ------------------------------------------------------------------------------------


def _has_blocks(plan: Plan) -> bool:
    """Plan a kernel with local memory; tell whether its rows are made in blocks."""
    whole = plan.sink
    try:
        plan_blocks(plan)
    except ActionError:  # an output reads rows as they are: they are made one by one
        plan.sink = whole
        plan.actions.clear()
    _plan_each(plan)
    return any(action.kind == "block" for action in plan.actions)


def _plan_each(plan: Plan) -> None:
    """Plan each nest of a kernel with local memory as a kernel; share out the outermost loop."""
    alone = plan.target.with_changes({"has_threads": False, "cores": 1})
    lists: list[tuple[Action, ...]] = []

    def planner(number: int, kernel: UOp) -> UOp:
        chosen = choose(kernel, alone)
        lists.append(tuple(chosen.actions))
        return chosen.sink

    plan.sink = with_each(plan.sink, planner)
    plan.actions.append(Action("each", 0, 0, tuple(lists)))
    if plan.target.has_threads and plan.target.cores > 1:
        _plan_threads(plan, Costs(plan.sink, plan.target).time_us({}))


# ---- rows -------------------------------------------------------------------------------------


def _plan_rows(plan: Plan) -> None:
    """Keep dear values of a row in local memory, where several loops over it need them."""
    whole, across = plan.sink, None
    for ranges in _reduced_nests(plan.sink):
        if ranges[0] not in axes_of(plan.sink):
            continue
        shared = dearest(shared_values(plan.sink, ranges[0]))
        if shared is None or shared.cost < DEAR_IN_ROW:
            continue
        if across is None:
            across = _choose_lanes(Costs(whole, plan.target))
        if shared.outer.intersection(across):
            continue  # lanes across rows, as in a softmax of columns, would share one row
        if 64 <= shared.num_bytes <= plan.target.l2_bytes // 2:
            reason = f"{len(shared.copies)} loops over a row compute it, and it costs a lot"
            plan.do("stage", ranges[0].arg.id, 0, reason)


# ---- 1. lanes ---------------------------------------------------------------------------------


def _choose_lanes(costs: Costs) -> dict[UOp, int]:
    """The axes that become lanes, with how many."""
    gains = {
        axis: costs.gain(axis)
        for axis in costs.axes
        if costs.target.has_lanes
        and costs.lanes_of(axis) >= min(4, costs.most_lanes(axis)) > 1
        and axis not in costs.around_buffers
    }
    ranked = sorted((a for a in gains if gains[a] > 0), key=lambda a: -gains[a])
    together = {n.ranges for n in costs.sink.toposort() if len(n.ranges) > 1}
    clashes = {
        axis: {other for ranges in together if axis in ranges for other in ranges}
        for axis in ranked
    }
    # the best axis alone may be worse than several that it excludes: one for each loop of a row
    choices = [_with_others(first, ranked, clashes) for first in ranked[:MAX_FIRST]]
    best = max(choices, key=lambda axes: sum(gains[a] for a in axes), default=[])
    return {axis: costs.lanes_of(axis) for axis in best}


def _with_others(first: UOp, ranked: list[UOp], clashes: dict[UOp, set[UOp]]) -> list[UOp]:
    """*first*, and the best of the others that no value has together with one that is taken."""
    taken = [first]
    for axis in ranked:
        if axis not in taken and not any(other in clashes[axis] for other in taken):
            taken.append(axis)
    return taken


# ---- 2. reductions ----------------------------------------------------------------------------


def _reduced_nests(sink: UOp) -> list[tuple[UOp, ...]]:
    """The lists of ranges that reductions close, each once."""
    return list(dict.fromkeys(node.src[1:] for node in reductions(sink)))


def _plan_reduction(
    plan: Plan,
    costs: Costs,
    ranges: tuple[UOp, ...],
    lanes: dict[UOp, int],
    tile: _Tile,
) -> None:
    """Accumulators and nesting for the reductions over *ranges*."""
    nodes = [n for n in reductions(costs.sink) if n.src[1:] == ranges]
    present = {a.arg.id for a in axes_of(plan.sink)}
    loops = [r.arg.id for r in ranges if r.arg.id in present]
    accumulators = len(nodes) * max(tile.copies_for(n) for n in nodes)
    wide = next((r for r in ranges if r in lanes), None)
    now = reduces_over(plan.sink, plan.axis(loops[-1])) or nodes
    wanted = max(1, min(4 // accumulators, MAX_BODY_NODES // body_size(now)))
    if wanted > 1 and costs.time_us(lanes) < SHORT_US:
        wanted = min(wanted, copies_that_hide(ADD_CYCLES, costs.cycles_of_turn(nodes)))
    if wide is not None:
        outer = _lanes_of_reduction(plan, wide.arg.id, lanes[wide], wanted)
        loops = [n for n in (outer if r == wide.arg.id else r for r in loops) if n is not None]
    else:
        loops = _unroll_reduction(plan, costs, nodes, loops, accumulators, wanted)
    is_rounded = any(n.arg.op is Ops.ADD and n.dtype.is_float for n in nodes)
    if is_rounded:
        is_product = all(n.src[0].op is Ops.MUL for n in nodes)
        terms = math.prod(bounds(r).max + 1 for r in ranges)
        nest(plan, loops, longest_run(terms) if is_product else MAX_RUN)


def copies_that_hide(latency: float, cycles: float) -> int:
    """How many accumulators let turns of *cycles* follow each other at once: a power of two.

    A turn that takes longer than an addition needs no second one: in a short kernel, copies would
    only be more code. (In a long one they won 3 to 15 %: chains of several turns are mixed.)

    >>> [copies_that_hide(4, cycles) for cycles in (0.6, 1.1, 1.5, 2, 5)]
    [8, 4, 4, 2, 1]
    """
    return 1 << max(0, math.ceil(math.log2(latency / cycles)))


def _lanes_of_reduction(plan: Plan, number: int, lanes: int, wanted: int) -> int | None:
    """Lanes along a reduced axis, *wanted* vectors at a time; the loop that is left."""
    reason = "the summed axis is contiguous in memory"
    size = plan.size(number)
    copies = min(wanted, size // lanes)
    if copies > 1:
        block = copies * lanes
        pieces = Pieces(None, number, None)
        if block < size:
            pieces = plan.do("split", number, block, f"{copies} accumulators hide latency")
        inner = plan.do("lanes", pieces.inner, lanes, reason)
        if inner.outer is not None:
            plan.do("unroll", inner.outer, 0, f"{copies} accumulators hide latency")
        outer, rest = pieces.outer, pieces.rest
    else:
        pieces = plan.do("lanes", number, lanes, reason)
        outer, rest = pieces.outer, pieces.rest
    if rest is not None and plan.size(rest) >= lanes:
        plan.do("lanes", rest, lanes, "the rest still fills vectors")
    return outer


def _unroll_reduction(
    plan: Plan, costs: Costs, nodes: list[UOp], loops: list[int], accumulators: int, wanted: int
) -> list[int]:
    """Unroll a short innermost loop whole, a long one a little; the loops that are left."""
    innermost = loops[-1]
    size = plan.size(innermost)
    now = reduces_over(plan.sink, plan.axis(innermost)) or nodes
    body = accumulators * body_size(now) // len(now)
    fits = accumulators * size <= costs.target.num_vector_registers * 3 // 4
    if 2 <= size <= 4 and fits and body * size <= MAX_BODY_NODES:
        plan.do("unroll", innermost, 0, "it is short")
        return loops[:-1]
    left = accumulators * read_size(now) // len(now)
    if 2 <= size <= MAX_RUN and left * size <= MAX_BODY_NODES and is_compared(plan, innermost):
        plan.do("unroll", innermost, 0, "copies turn its comparisons into literals")
        return loops[:-1]
    if wanted > 1 and size >= 2 * wanted and body * wanted <= MAX_BODY_NODES:
        pieces = plan.do("unroll", innermost, wanted, f"{wanted} accumulators hide latency")
        return [*loops[:-1], *([pieces.outer] if pieces.outer is not None else [])]
    return loops


# ---- 3. tiles ---------------------------------------------------------------------------------


@dataclass
class _Tile:
    """How many copies each output axis gets: vectors along the lanes, rows along others."""

    copies: dict[UOp, int] = field(default_factory=dict)
    reason: str = ""

    def copies_for(self, node: UOp) -> int:
        """How many copies of a node the tile makes."""
        return math.prod(n for axis, n in self.copies.items() if axis in node.ranges)


def _choose_tile(costs: Costs, lanes: dict[UOp, int]) -> _Tile:
    """Copies of output axes, so that values loaded in a reduction are used several times."""
    tile = _Tile()
    sums = [n for n in reductions(costs.sink) if n.ranges]
    if not sums:
        return tile
    outputs = [a for a in costs.axes if a not in costs.reduced | costs.around_buffers]
    inside = [a for a in costs.accesses if any(r in costs.reduced for r in a.ranges)]
    registers = costs.target.num_vector_registers
    budget = max(1, registers // 2 // len(sums))
    body = max(8, body_size(sums) // 2)
    budget = min(budget, max(1, MAX_BODY_NODES // body))
    wide = next((a for a in outputs if a in lanes and any(a in n.ranges for n in sums)), None)
    if wide is not None:
        strided = any(stride_of(a.src[1], wide) not in (0, 1) for a in inside)
        most = 1 if strided else 4 if registers >= 32 else 2
        tile.copies[wide] = max(1, min(most, budget, (size_of(wide) or 1) // lanes[wide]))
        budget = min(budget // tile.copies[wide], 8)
    elif any(a in lanes for n in sums for a in n.src[1:]):
        budget = min(budget, 16)
    else:
        budget = min(budget, 4)
    rows = {axis: _reuse(axis, inside, lanes) for axis in outputs if axis not in lanes}
    for axis in sorted(rows, key=lambda a: -rows[a]):
        if budget >= 2 and rows[axis] and any(axis in n.ranges for n in sums):
            most = min(budget, 4) if wide is None else budget
            tile.copies[axis] = balanced(size_of(axis) or 1, most)
            budget //= tile.copies[axis]
    tile.reason = "each value loaded is used by several accumulators"
    if not any(n > 1 for n in tile.copies.values()):
        _read_rows_together(costs, tile, lanes, budget)
    return tile


def _read_rows_together(costs: Costs, tile: _Tile, lanes: dict[UOp, int], most: int) -> None:
    """Where long rows are summed and do nothing else, sum a few at once.

    Memory is asked for ahead along each of them, which is more than along one; all cores have some.
    """
    sums = list(reductions(costs.sink))
    loops = {node.src[1:] for node in sums}
    below = [n for node in sums for n in node.src[0].toposort() if n.op is Ops.REDUCE]
    if below or len(loops) < len(sums) or any(node.src[-1] not in lanes for node in sums):
        return
    outputs = [a for a in costs.axes if a not in costs.reduced]
    is_of_rows = outputs and all(set(outputs) == set(node.ranges) for node in sums)
    row = outputs[-1] if is_of_rows else None
    size = 1 if row is None else size_of(row) or 1
    streams = STREAMS[32 if costs.target.num_vector_registers >= 32 else 16]
    most = min(most, max(STREAMS[16], min(streams, size // (2 * costs.target.cores))))
    is_far = bytes_of(a for a in costs.accesses if a.src[0].op is Ops.PARAM) > costs.target.l2_bytes
    if is_far and row is not None and size >= most >= 2:
        tile.copies[row] = balanced(size, most)
        tile.reason = "rows side by side are several streams from memory"


def _reuse(axis: UOp, accesses: list[UOp], lanes: dict[UOp, int]) -> int:
    """How many vectors that are read in a reduction serve all copies along an axis."""
    is_vector = [any(r in lanes for r in a.ranges) for a in accesses]
    candidates = [
        a for a, wide in zip(accesses, is_vector, strict=True) if wide or not any(is_vector)
    ]
    return sum(axis not in access.ranges for access in candidates)


def balanced(size: int, most: int) -> int:
    """Blocks of at most *most* that differ little: a divisor if one is close, else even blocks.

    >>> [balanced(n, 6) for n in (7, 12, 13, 64, 4)]
    [4, 6, 5, 4, 4]
    """
    if size <= most:
        return size
    for amount in range(most, most // 2, -1):
        if size % amount == 0:
            return amount
    blocks = -(-size // most)
    return most if blocks > 4 else -(-size // blocks)


# ---- outputs ----------------------------------------------------------------------------------


def _plan_outputs(plan: Plan, costs: Costs, lanes: dict[UOp, int], tile: _Tile) -> None:
    """Copies first, lanes last: a split copies what is inside of it with the kinds that it has."""
    _order_panels(plan, lanes, tile)
    _order_strided(plan, costs, lanes)
    outputs = [a for a in axes_of(plan.sink) if end_of(plan.sink, a) is not None]
    for axis in reversed(outputs):
        copies = tile.copies.get(axis, 1)
        if axis not in lanes and copies > 1:
            pieces = plan.do("upcast", axis.arg.id, copies, tile.reason)
            if pieces.rest is not None:
                plan.do("upcast", pieces.rest, 0, "the rest of the tile")
    kept = costs.reduced | costs.around_buffers
    for axis in divided_axes(plan.sink, kept, MAX_BODY_NODES):
        if axis in outputs and axis not in lanes and tile.copies.get(axis, 1) == 1:
            plan.do("upcast", axis.arg.id, 0, "copies turn its divisions into literals")
            break
    for axis in halved_axes(plan.sink, kept, MAX_BODY_NODES):
        if axis in outputs and axis not in lanes and tile.copies.get(axis, 1) == 1:
            plan.do("upcast", axis.arg.id, 0, "both halves are made of the same elements")
    if not lanes:
        _unroll_short_loops(plan, costs)
    for axis in reversed(outputs):
        if axis in lanes:
            _lanes_of_output(plan, axis, lanes[axis], tile)


def _unroll_short_loops(plan: Plan, costs: Costs) -> None:
    """Where no axis is lanes, the short innermost loops cost more than what they do."""
    budget = min(8, MAX_BODY_NODES // max(1, len(costs.sink.toposort())))
    outputs = [a for a in axes_of(plan.sink) if end_of(plan.sink, a) is not None]
    for axis in reversed(outputs):
        size = size_of(axis)
        if axis in costs.around_buffers or axis.arg.kind is not AxisKind.LOOP:
            return
        if size is None or not 2 <= size <= budget:
            return
        plan.do("upcast", axis.arg.id, 0, "the innermost loop is short")
        budget //= size


def _order_panels(plan: Plan, lanes: dict[UOp, int], tile: _Tile) -> None:
    """Put the rows of a tile inside of its vectors: the panel that all rows read stays in cache."""
    rows = [a for a, copies in tile.copies.items() if a not in lanes and copies > 1]
    wide = next((a for a in tile.copies if a in lanes), None)
    if wide is None or not rows:
        return
    end = end_of(plan.sink, wide)
    ranges = end.src[1:] if end is not None else ()
    if rows[0] not in ranges or not keeps_rows(plan.sink, rows[0], wide):
        return
    if ranges.index(rows[0]) < ranges.index(wide):
        other = axes_of(plan.sink).index(wide)
        plan.do("swap", rows[0].arg.id, other, "the panel that all rows read stays in cache")


def _order_strided(plan: Plan, costs: Costs, lanes: dict[UOp, int]) -> None:
    """Where lanes read with a stride, walk along memory next: lines read serve again at once."""
    for access in costs.accesses:
        for wide in lanes:
            end = end_of(plan.sink, wide)
            if end is None or stride_of(access.src[1], wide) in (0, 1):
                continue
            before = end.src[1 : end.src.index(wide)]
            along = [r for r in before if stride_of(access.src[1], r) == 1]
            along = [r for r in along if keeps_rows(plan.sink, r, wide)]
            if along:
                other = axes_of(plan.sink).index(wide)
                reason = "lanes read with a stride, so the contiguous axis runs inside"
                plan.do("swap", along[0].arg.id, other, reason)


def _lanes_of_output(plan: Plan, axis: UOp, lanes: int, tile: _Tile) -> None:
    reason = "accesses are contiguous along it"
    copies = tile.copies.get(axis, 1)
    size, number = size_of(axis) or 1, axis.arg.id
    if copies > 1:
        pieces = Pieces(None, number, None)
        if copies * lanes < size:
            pieces = plan.do("split", number, copies * lanes, tile.reason)
        inner = plan.do("lanes", pieces.inner, lanes, reason)
        if inner.outer is not None:
            plan.do("upcast", inner.outer, 0, tile.reason)
        rest = pieces.rest if pieces.rest is not None else inner.rest
        if rest is not None and plan.size(rest) >= lanes:
            rest = plan.do("lanes", rest, lanes, "the rest still fills vectors").rest
    else:
        rest = plan.do("lanes", number, lanes, reason).rest
    if axis in tile.copies and rest is not None and plan.size(rest) >= 4:
        part = 1 << (plan.size(rest).bit_length() - 1)
        plan.do("lanes", rest, part, "the rest fills a smaller vector")


# ---- 4. threads -------------------------------------------------------------------------------


def _plan_threads(plan: Plan, busy_us: float) -> None:
    """Share out the outermost loop of every large nest."""
    if len(plan.sink.src) > 1:
        return
    reason = f"it takes about {busy_us:.0f} us on one core"
    effects = plan.sink.src[0]
    ends = [e for e in (effects.src if effects.op is Ops.GROUP else (effects,)) if e.op is Ops.END]
    if not ends:
        return
    largest = max(ends, key=_iterations)
    loops = [r for r in largest.src[1:] if r.arg.kind is AxisKind.LOOP]
    first = largest.src[1]
    loops = [r for r in loops if (size_of(r) or 1) >= 2 and keeps_rows(plan.sink, r, first)]
    if not loops:
        return
    axis = max(loops, key=lambda r: (round(_balance(r, plan.target.cores), 1), -loops.index(r)))
    if first is not axis:
        other = axes_of(plan.sink).index(first)
        plan.do("swap", axis.arg.id, other, "the axis for threads stands outermost")
    plan.do("thread", axis.arg.id, 0, reason)


def _balance(axis: UOp, cores: int) -> float:
    """The part of the cores' time that is used when they share an axis."""
    size = size_of(axis) or 1
    return size / (-(-size // cores) * cores)


def _iterations(end: UOp) -> int:
    return math.prod(size_of(r) or 1 for r in end.src[1:])
