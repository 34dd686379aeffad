"""Keep in local memory what a kernel needs of one row only.

Form before: a plan (ranges.py). After: the same without the drafts whose values only one other
draft reads, row by row; that draft makes them itself, a row in each turn of its outer loops.

    t over (i, b)     the sums of blocks of 16 elements of row i          stored, and read again
    s over (i, j)     reads t at (i, b) for all b before j // 16, and x at (i, …)
        ->  s alone: in each turn of i, the sums of row i in local memory, and then the row of s

A row is read from memory once then, however many steps it takes: running sums, networks that sort,
a filter in several passes. What is kept needs no store, and no load from further away than the
cache. This is done where all places that read a value share the outermost loops with the one that
makes it, where there are enough rows for all cores, where the rows of all steps stay in cache, and
where memory is saved at all: small tensors stay in cache by themselves. Matrix products are left
out: they make many rows at a time (inside.py does that where it pays).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Inside, Plan
from pellucid.schedule.fuse import MAX_NODES, ROWS_PER_CORE
from pellucid.schedule.views import Use

MOST_STEPS = 64
"""Values that one kernel keeps: each is a nest of loops to compile."""

LEAST_ROW = 16
"""Shorter rows would leave lanes empty: loops over rows side by side fill them."""


def keep_rows(plan: Plan, kept: Iterable[UOp]) -> None:
    """Move drafts into the one that reads them, where a row of each is all that it needs."""
    _Keeping(plan, set(kept)).run()


@dataclass(eq=False)
class _Home:
    """A draft that makes rows for itself."""

    draft: Draft
    depth: int  # so many of its loops stand around the rows
    steps: dict[Draft, _Bound] = field(default_factory=dict)

    def outer(self, depth: int) -> tuple[UOp, ...]:
        return self.draft.ranges[:depth]


_Bound = dict[UOp, UOp]
"""For RANGEs of a draft those of the home that are the same wherever it is read."""


class _Keeping:
    def __init__(self, plan: Plan, kept: set[UOp]) -> None:
        self.plan, self.kept, self.target = plan, kept, plan.facts.target
        self.home: dict[Draft, _Home] = {}
        self.readers: dict[UOp, list[Draft]] = {}
        for draft in plan.drafts:
            for version in (*draft.reads, *filter(None, (draft.base,))):
                self.readers.setdefault(version, []).append(draft)

    def run(self) -> None:
        for draft in self.plan.drafts:  # consumers first
            if self._is_plain(draft) and not _has_rows(draft) and draft.root not in self.kept:
                self._place(draft)
        homes = [home for home in dict.fromkeys(self.home.values()) if self._saves_memory(home)]
        for home in homes:
            self._settle(home)
        away = {draft for home in homes for draft in home.steps}
        self.plan.drafts = [draft for draft in self.plan.drafts if draft not in away]

    @staticmethod
    def _is_plain(draft: Draft) -> bool:
        """True where rows of a draft can be made in any order, each by itself."""
        is_other = draft.ordered or draft.is_copy or draft.base is not None or draft.inside
        return not is_other and not draft.multiplies and draft.value is draft.root

    # ---- may it? ---------------------------------------------------------------------------------

    def _place(self, draft: Draft) -> None:
        """Give a draft to the only one that reads it, if a row of it is all that is needed."""
        readers = self.readers.get(draft.root, [])
        heads = {self.home[r].draft if r in self.home else r for r in readers}
        if len(heads) != 1:
            return
        (head,) = heads
        home = self.home.get(head) or _Home(head, len(head.ranges) - 1)
        if not self._is_plain(head) or head.device != draft.device:
            return
        bound = self._bound(draft, readers, home)
        depth = min(home.depth, self._depth(draft, bound, head))
        if depth > 0 and len(home.steps) < MOST_STEPS and self._fits(draft, home, depth):
            home.depth, home.steps[draft] = depth, bound
            self.home[draft] = self.home[head] = home

    def _bound(self, draft: Draft, readers: Iterable[Draft], home: _Home) -> _Bound:
        """The RANGEs of a draft that all who read it set to the same loop of the home."""
        found: _Bound = {}
        places = draft.value_use[0]
        uses = [(use, home.steps.get(r, {})) for r in readers for use in r.reads[draft.root]]
        if any(_depends_on_values(use) for use, _ in uses):
            return {}
        for axis, own in enumerate(places):
            if own.op is not Ops.RANGE:
                continue
            read = {bound.get(index[axis], index[axis]) for (index, _), bound in uses}
            loop = read.pop()
            if not read and loop in home.draft.ranges and loop.src == own.src:
                found[own] = loop
        return found

    @staticmethod
    def _depth(draft: Draft, bound: _Bound, head: Draft) -> int:
        """How many of the outermost loops of both are the same.

        Where a draft has them in another order, it walks memory in another order than the home.
        """
        pairs = itertools.takewhile(
            lambda pair: bound.get(pair[0]) is pair[1],
            zip(draft.ranges, head.ranges, strict=False),
        )
        return sum(1 for _ in pairs)

    def _fits(self, draft: Draft, home: _Home, depth: int) -> bool:
        """True when there are rows enough, and all that is kept of a row stays in cache."""
        rows = math.prod(int(r.src[0].arg) for r in home.outer(depth))
        steps = (draft, *reversed(home.steps))
        places = set(share_rows(steps, home.draft.reads).values())
        row_bytes = sum(d.num_iterations * d.root.dtype.itemsize for d in places) / rows
        is_long = home.draft.num_iterations >= LEAST_ROW * rows
        enough = rows >= ROWS_PER_CORE * self.target.cores
        small = home.draft.num_nodes + sum(d.num_nodes for d in steps) <= MAX_NODES
        return is_long and enough and small and row_bytes <= self.target.l2_bytes / 2

    def _saves_memory(self, home: _Home) -> bool:
        """True when what is kept, and what is read again, would not stay in cache by itself."""
        readers = Counter(v for d in (home.draft, *home.steps) for v in d.reads)
        again = [version for version, count in readers.items() if count > 1]
        once = {*again, *(draft.root for draft in home.steps)}
        rows = math.prod(int(r.src[0].arg) for r in home.outer(home.depth))
        again_bytes = sum(map(_num_bytes, again))
        is_far = (
            again_bytes > self.target.l3_bytes and again_bytes / rows < self.target.l2_bytes / 2
        )
        is_near = again_bytes / rows <= self.target.l1d_bytes
        return (is_near or is_far) and sum(map(_num_bytes, once)) > self.target.l2_bytes

    # ---- what comes of it ------------------------------------------------------------------------

    def _settle(self, home: _Home) -> None:
        """Write down in the home what it makes, in an order in which it can be made."""
        head = home.draft
        outer = set(home.outer(home.depth))
        places: dict[Draft, _Bound] = {head: {}}
        places |= {draft: _only(bound, outer) for draft, bound in home.steps.items()}
        reads: dict[UOp, dict[Use, int]] = {}
        inside: dict[UOp, Inside] = {}
        steps = tuple(reversed(home.steps))
        memory = share_rows(steps, head.reads)
        for draft in steps:
            loops = tuple(places[draft].get(r) for r in draft.ranges)
            inside[draft.root] = Inside(draft, loops, memory[draft])
        for draft in (head, *home.steps):
            for version, uses in draft.reads.items():
                if version not in inside:
                    known = reads.setdefault(version, {})
                    for use, count in uses.items():
                        moved = _moved(use, places[draft])
                        known[moved] = max(count, known.get(moved, 0))
        head.inside, head.outer = inside, home.outer(home.depth)
        head.row_reads = {v: uses for v, uses in head.reads.items() if v in inside}
        head.reads = reads


def _only(bound: _Bound, loops: set[UOp]) -> _Bound:
    return {axis: loop for axis, loop in bound.items() if loop in loops}


def _moved(use: Use, bound: _Bound) -> Use:
    """A use, with RANGEs of the draft that reads exchanged for those of the home."""
    index, valid = use
    moved = tuple(position.substitute(bound) for position in index)
    return moved, None if valid is None else valid.substitute(bound)


def _depends_on_values(use: Use) -> bool:
    """True where a position is not known before another value is: a placeholder stands in it."""
    index, valid = use
    parts = (*index, *filter(None, (valid,)))
    return any(n.op is Ops.VARIABLE for part in parts for n in part.toposort())


def share_rows(steps: Sequence[Draft], kept: Container[UOp]) -> dict[Draft, Draft]:
    """For each step, those that others need first, the step in whose memory its row can lie.

    That is memory of the same kind whose row nobody reads any more: it is not *kept*, and all who
    read it have been made, because this step needs them.

        a -> b -> c -> d        c lies where a does, and d where b does
    """
    number = {draft.root: draft for draft in steps}
    readers: dict[Draft, set[Draft]] = {draft: set() for draft in steps}
    needs: dict[Draft, set[Draft]] = {}
    for draft in steps:
        read = {number[v] for v in draft.reads if v in number}
        needs[draft] = read.union(*(needs[r] for r in read))
        for each in read:
            readers[each].add(draft)
    place: dict[Draft, Draft] = {}
    last: dict[Draft, Draft] = {}
    for draft in steps:
        place[draft] = next(
            (
                first
                for first, held in last.items()
                if held.root not in kept and _can_follow(draft, held, readers, needs)
            ),
            draft,
        )
        last[place[draft]] = draft
    return place


def _can_follow(
    draft: Draft,
    held: Draft,
    readers: Mapping[Draft, set[Draft]],
    needs: Mapping[Draft, set[Draft]],
) -> bool:
    """True when the row of *held* is read by others that *draft* needs, and by nobody else."""
    same = held.root.dtype is draft.root.dtype and held.num_iterations == draft.num_iterations
    return same and bool(readers[held]) and readers[held] <= needs[draft]


def _has_rows(draft: Draft) -> bool:
    """True for a draft that reduces rows and uses them again, as a softmax: it has loops for them.

    Few elements are reduced where they are used.
    """
    longest = max((math.prod(sizes) for sizes in draft.loops), default=1)
    return longest > LEAST_ROW and any(len(own) < len(draft.ranges) for own in draft.leading)


def _num_bytes(version: UOp) -> int:
    return version.num_elems * version.dtype.itemsize
