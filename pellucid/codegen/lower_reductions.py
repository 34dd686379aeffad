"""Turn each REDUCE into a loop around an accumulator.

VECTOR form -> VECTOR form without REDUCE.

    before    REDUCE(x[i, k], k, ADD)
    after     start = AFTER(acc, i)            the accumulator, inside of the loops around
              init  = STORE(start[0], 0.0)
              a     = AFTER(acc, init, k)      the accumulator, inside of the loop over k
              step  = STORE(a[0], LOAD(a[0]) + x[i, k])
              LOAD(AFTER(acc, END(step, k))[0])

A reduction of pairs has two accumulators, for the value and for its key (ir/pairs.py): both are
exchanged where the new key beats the old one. Where the values grow from turn to turn, as places
do, of equal keys the first one found has the smallest value, and no values are compared; and what
does not depend on the loop is added behind it, so that all copies and lanes keep the same number:

    before    REDUCE(PAIR(SPLAT(k * 8) + (0, …, 7), x[…]), k, ARGMAX)
    after     take = x[…] beats LOAD(b[0])
              STORE(b[0], WHERE(take, x[…], LOAD(b[0])))
              STORE(a[0], WHERE(take, SPLAT(k * 8), LOAD(a[0])))
              LOAD(AFTER(a, …)[0]) + (0, …, 7)

All reductions of equal sizes in the same loops, that do not need one another, share one loop: the
copies that upcasting and unrolling made are its independent accumulators. Where a target has
MULADD, `acc + a * b` in float32 and float64 is rounded once: semantics.md, "Floats", allows this in
reductions alone.
"""

from __future__ import annotations

import functools

from pellucid.codegen.combine_lanes import combine_lanes_together
from pellucid.codegen.simplify_ranges import linear_strides
from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import AddrSpace, DefineArg
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.pairs import beats, identity_of_key, is_of_pairs, key_of, value_of
from pellucid.ir.transform import fresh_ranges, substitute_free, transform
from pellucid.ir.uop import UOp, kept

GroupKey = tuple[int, tuple[UOp, ...], tuple[UOp, ...]]


def lower_reductions(sink: UOp, target: Target) -> UOp:
    """Replace every REDUCE by the value of an accumulator after a loop."""
    sink = _separate_loops(_share_loops(sink))
    fused = "MULADD" in target.native_ops
    number = sum(node.op is Ops.DEFINE for node in sink.toposort())
    while groups := _innermost_groups(sink):
        results: dict[UOp, UOp] = {}
        for (_, ranges, _), members in groups.items():
            loop = _Loop(_with_keys(members), ranges, number, fused)
            results |= loop.results()
            number += len(loop.members)
        sink = sink.substitute(results)
    return combine_lanes_together(_without_pairs(sink))


def _with_keys(members: list[UOp]) -> list[UOp]:
    """*members*, and the reductions of the keys of those that reduce pairs."""
    keys = (key_of(node) for node in members if is_of_pairs(node))
    return list(dict.fromkeys((*members, *keys)))


def _without_pairs(sink: UOp) -> UOp:
    """A PAIR that nothing reduces is its value."""
    if not any(node.op is Ops.PAIR for node in sink.toposort()):
        return sink
    return transform(sink, value_of)


def _innermost_groups(sink: UOp) -> dict[GroupKey, list[UOp]]:
    """The REDUCEs that stand on no other REDUCE, those that can share a loop together."""
    groups: dict[GroupKey, list[UOp]] = {}
    for node, level in _levels(sink).items():
        if level == 1:
            groups.setdefault((level, node.src[1:], node.ranges), []).append(node)
    return groups


@kept
def _levels(sink: UOp) -> dict[UOp, int]:
    """For each REDUCE, one more than the largest number of REDUCEs on a way down from it."""
    nodes = sink.toposort()
    found: dict[UOp, int] = {node: 1 for node in nodes if node.op is Ops.REDUCE}
    if len(found) < 2:
        return found
    below: dict[UOp, int] = {}  # nodes without a REDUCE at or below them are left out
    for node in nodes:
        level = 0
        for source in node.src:
            if source in below and below[source] > level:
                level = below[source]
        if node.op is Ops.REDUCE:
            level += 1
            found[node] = level
        if level:
            below[node] = level
    return found


def _share_loops(sink: UOp) -> UOp:
    """Let independent reductions of equal sizes in the same loops close the same ranges."""
    levels = _levels(sink)
    for level in range(max(levels.values(), default=0) if len(levels) > 1 else 0, 0, -1):
        found: dict[tuple[object, ...], tuple[UOp, ...]] = {}
        exchanged: dict[UOp, UOp] = {}
        for node, own in levels.items():
            if own == level:
                key = (node.ranges, tuple([r.src[0] for r in node.src[1:]]))
                first = found.setdefault(key, node.src[1:])
                pairs = zip(node.src[1:], first, strict=True)
                exchanged |= {a: b for a, b in pairs if a is not b}
        if exchanged:
            sink = sink.substitute(exchanged)
            levels = _levels(sink)
    return sink


def _separate_loops(sink: UOp) -> UOp:
    """Give REDUCEs that cannot share a loop ranges of their own."""
    levels = _levels(sink)
    owner: dict[UOp, GroupKey] = {}
    keys = {node: (level, node.src[1:], node.ranges) for node, level in levels.items()}
    if all(owner.setdefault(axis, key) == key for key in keys.values() for axis in key[1]):
        return sink
    owner.clear()
    fresh = fresh_ranges(sink)
    clones: dict[tuple[UOp, GroupKey], UOp] = {}
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        new = node.with_sources(tuple([done[s] for s in node.src]))
        if node.op is Ops.REDUCE:
            key = keys[node]
            renamed: dict[UOp, UOp] = {}
            for axis in node.src[1:]:
                if owner.setdefault(axis, key) != key:
                    clone = clones.get((axis, key))
                    if clone is None:
                        clone = clones[axis, key] = fresh(axis)
                        fresh = fresh_ranges(sink, *clones.values())
                    renamed[axis] = clone
            if renamed:
                value = substitute_free(new.src[0], renamed)
                new = new.with_sources((value, *(renamed.get(r, r) for r in new.src[1:])))
        done[node] = new
    return done[sink]


class _Loop:
    """One loop with an accumulator for each of *members*, over *ranges*."""

    def __init__(
        self, members: list[UOp], ranges: tuple[UOp, ...], number: int, fused: bool
    ) -> None:
        self.members, self.ranges, self.fused = members, ranges, fused
        self.zero = UOp.const(dtypes.index, 0)
        self.places = {n: _Places.of(n, ranges) for n in members if is_of_pairs(n)}
        self.accumulators: dict[UOp, UOp] = {}
        self.current: dict[UOp, UOp] = {}
        for position, node in enumerate(members):
            arg = DefineArg(AddrSpace.REG, number + position, 1)
            accumulator = UOp(Ops.DEFINE, node.dtype, (), arg)
            start = self.element(accumulator.after(*node.ranges)).store(self.start(node))
            self.accumulators[node] = accumulator
            self.current[node] = self.element(accumulator.after(start, *ranges))

    def element(self, storage: UOp) -> UOp:
        """The one element of an accumulator, all lanes of it."""
        return UOp(Ops.INDEX, storage.dtype, (storage, self.zero))

    def results(self) -> dict[UOp, UOp]:
        """The value of each member after the loop."""
        steps = [self.current[node].store(self.step(node)) for node in self.members]
        body = steps[0] if len(steps) == 1 else UOp.make(Ops.GROUP, *steps)
        end = body.end(*self.ranges)
        found = {n: self.element(a.after(end)).load() for n, a in self.accumulators.items()}
        still = {n: p.still for n, p in self.places.items() if p is not None and p.still}
        return found | {node: found[node] + rest for node, rest in still.items()}

    def start(self, node: UOp) -> UOp:
        """What an accumulator holds before the loop."""
        op: Op = node.arg.op
        if is_of_pairs(node):
            if key_of(node) is node:
                return UOp.const(node.dtype, identity_of_key(op, node.dtype))
            places = self.places[node]
            if places is not None:
                return places.first
        return UOp.const(node.dtype, op.identity_for(node.dtype))

    def step(self, node: UOp) -> UOp:
        """What an accumulator holds after one more turn."""
        now = self.current[node].load()
        return self.paired_step(node, now) if is_of_pairs(node) else self.plain_step(node, now)

    def plain_step(self, node: UOp, now: UOp) -> UOp:
        op, value = node.arg.op, node.src[0]
        if value.op is Ops.MMA:  # a matrix unit adds to what is there
            return value.with_sources((*value.src[:2], now))
        is_product = op is Ops.ADD and value.op is Ops.MUL
        if self.fused and is_product and value.dtype.scalar in (dtypes.float32, dtypes.float64):
            return UOp.make(Ops.MULADD, *value.src, now)
        return now.alu(op, value)

    def paired_step(self, node: UOp, now: UOp) -> UOp:
        op, (value, key) = node.arg.op, node.src[0].src
        best = self.current[key_of(node)].load()
        taken = beats(op, key, best)
        if key_of(node) is node:
            return taken.where(key, now)
        places = self.places[node]
        if places is not None:
            return taken.where(places.moving, now)
        is_kept = beats(op, best, key)
        return taken.where(value, is_kept.where(now, now.minimum(value)))


@dataclass(frozen=True)
class _Places:
    """The values of pairs that grow from turn to turn.

    moving: the part that depends on the loop; first: that part in the first turn; still: the rest.
    """

    moving: UOp
    first: UOp
    still: UOp | None

    @staticmethod
    def of(node: UOp, ranges: tuple[UOp, ...]) -> _Places | None:
        """The values that *node* reduces, if they grow from each turn of *ranges* to the next."""
        value = node.src[0].src[0]
        index = value.src[0] if value.op is Ops.CAST else value
        if not index.dtype.is_index:
            return None
        terms = _terms(index)
        moving = [t for t in terms if any(r in ranges for r in t.ranges)]
        still = [t for t in terms if t not in moving]
        if not moving or not _grows(moving, ranges):
            return None
        whole = _sum_of(moving).cast(value.dtype.scalar)
        first = substitute_free(whole, {r: r.const_like(0) for r in ranges})
        return _Places(whole, first, _sum_of(still).cast(value.dtype.scalar) if still else None)


def _terms(index: UOp) -> list[UOp]:
    """What is added up to an index."""
    return [t for s in index.src for t in _terms(s)] if index.op is Ops.ADD else [index]


def _sum_of(terms: list[UOp]) -> UOp:
    """All *terms* added up."""
    return functools.reduce(lambda total, term: total + term, terms)


def _grows(terms: list[UOp], ranges: tuple[UOp, ...]) -> bool:
    """True when the sum of *terms* is larger in each turn of the loops than in the one before."""
    total: dict[UOp, int] = {}
    for term in terms:
        strides = linear_strides(term.src[0] if term.op is Ops.SPLAT else term)
        for axis, stride in strides.items():
            if stride is None:
                return False
            total[axis] = total.get(axis, 0) + stride
    reach = 0  # by how much the loops inside of one make the sum grow
    for axis in reversed(ranges):
        if total.get(axis, 0) <= reach:
            return False
        reach += total[axis] * bounds(axis).max
    return True
