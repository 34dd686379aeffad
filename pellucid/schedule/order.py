"""Put kernels in an order that respects data, and decide which writes happen in place.

Form before: drafts of kernels, with what they read and write. After: for each draft those that
must run before it.

    y = a * 10;  a[:] = 4      y reads the old a: it runs before the write       (anti dependence)
    a[:] = 4;    z = a + 1     z reads the new a: it runs after                  (true dependence)
    a[0] = 1;    a[1] = 2      one storage, in this order                        (output dependence)
    y = a + (a := 4)           reads both: the write goes to new storage

Each stored node is a *version*; a write makes a new version of its base. It is done in the base's
storage when nobody needs the old version any more: the user holds no lazy value on it (`pending`),
it is no output, and all kernels that read it can run before the write. Else the version gets new
storage, into which the base is copied first, unless the write covers all of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import field

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Plan
from pellucid.schedule.views import flat_index


@dataclass
class Order:
    """What runs before what."""

    drafts: list[Draft]  # in an order that respects `before`
    before: dict[Draft, set[Draft]]
    in_place: set[UOp] = field(default_factory=set)
    copies_base: set[UOp] = field(default_factory=set)


def order_drafts(plan: Plan, pending: frozenset[int], kept: set[UOp]) -> Order:
    """Find the dependences, and decide which writes happen in place.

    *pending* are slots, *kept* versions (outputs) that must keep their values. A given buffer may
    only end up with a version that is an output: otherwise nobody would know what it holds.
    """
    while True:
        ordering = _Ordering(plan, pending, kept)
        order = ordering.run()
        unnamed = {slot for slot, last in ordering.latest.items() if last not in kept}
        if not unnamed:
            return order
        pending |= unnamed


class _Ordering:
    def __init__(self, plan: Plan, pending: frozenset[int], kept: set[UOp]) -> None:
        self.plan, self.pending, self.kept = plan, pending, kept
        self.overwritten: set[UOp] = set()
        self.slot_of: dict[UOp, int] = {}  # versions in the storage of a given buffer
        self.latest: dict[int, UOp] = {}
        self.before: dict[Draft, set[Draft]] = {d: set() for d in reversed(plan.drafts)}
        self.after: dict[Draft, set[Draft]] = {d: set() for d in self.before}
        self.readers: dict[UOp, list[Draft]] = {}
        self.result = Order([], self.before)

    def run(self) -> Order:
        for draft in list(self.before):
            for version in dict.fromkeys((*draft.reads, draft.base)):
                if version is None:
                    continue
                if version in self.plan.stored:
                    self.put_before(self.plan.stored[version], draft)
                self.readers.setdefault(version, []).append(draft)
        self.sort()
        for draft in [d for d in self.result.drafts if d.base is not None]:
            self.decide(draft)
        self.sort()
        return self.result

    def put_before(self, first: Draft, second: Draft) -> None:
        if first is not second:
            self.before[second].add(first)
            self.after[first].add(second)

    def sort(self) -> None:
        """Topological order; among those that are ready, writes last, then as in the graph."""
        self.result.drafts = topological(self.before, self.after, _writes_last)
        self.position = {draft: place for place, draft in enumerate(self.result.drafts)}

    def decide(self, draft: Draft) -> None:
        base = draft.base
        assert base is not None, "only a write has a base"
        others = [r for r in self.readers[base] if r is not draft]
        if self.must_keep(draft, base) or self.reaches(draft, others):
            if not draft.covers_base:
                self.result.copies_base.add(draft.root)
            return
        self.result.in_place.add(draft.root)
        self.overwritten.add(base)
        slot = self.slot(base)
        if slot is not None:
            self.slot_of[draft.root] = slot
            self.latest[slot] = draft.root
        late = any(self.position[reader] > self.position[draft] for reader in others)
        for reader in others:
            self.put_before(reader, draft)
        if late:
            self.sort()

    def slot(self, version: UOp) -> int | None:
        """The given buffer that *version* lives in, if any."""
        return int(version.arg.slot) if version.op is Ops.PARAM else self.slot_of.get(version)

    def must_keep(self, draft: Draft, base: UOp) -> bool:
        """True when the old value of *base* is needed afterwards."""
        if base in self.kept or base in self.overwritten:
            return True
        slot = self.slot(base)
        return slot is not None and (slot in self.pending or draft.root.op is not Ops.WRITE)

    def reaches(self, start: Draft, goals: Iterable[Draft]) -> bool:
        """True when one of *goals* needs *start* to run before it."""
        wanted = {g for g in goals if self.position[g] > self.position[start]}
        last = max((self.position[g] for g in wanted), default=-1)
        stack, seen = [start], {start}
        while stack and wanted:
            for following in self.after[stack.pop()]:
                if following in wanted:
                    return True
                if following not in seen and self.position[following] < last:
                    seen.add(following)
                    stack.append(following)
        return False


def _writes_last(draft: Draft) -> tuple[int, int]:
    return (draft.base is not None, -draft.number)


def topological(
    before: dict[Draft, set[Draft]],
    after: dict[Draft, set[Draft]],
    rank: Callable[[Draft], tuple[int, ...]],
) -> list[Draft]:
    """All of them, each after those it needs; the one of least rank first."""
    missing = {draft: len(needs) for draft, needs in before.items()}
    ready = [(rank(d), d.number, d) for d, count in missing.items() if count == 0]
    heapq.heapify(ready)
    found: list[Draft] = []
    while ready:
        *_, draft = heapq.heappop(ready)
        found.append(draft)
        for following in after[draft]:
            missing[following] -= 1
            if missing[following] == 0:
                heapq.heappush(ready, (rank(following), following.number, following))
    assert len(found) == len(before), "dependences of kernels form a cycle"
    return found


def hazards(plan: Plan) -> set[UOp]:
    """WRITEs and SCATTERs whose kernel reads what it overwrites, elsewhere than where it writes.

    Their values are put into memory first (a[1:] = a[:-1] is as if the right side were copied).
    """
    return {d.root for d in plan.drafts if d.base is not None and _reads_elsewhere(d, d.base)}


def _reads_elsewhere(draft: Draft, base: UOp) -> bool:
    uses = draft.reads.get(base)
    if not uses:
        return False
    if draft.ordered:
        return True
    shape = base.known_shape
    return any(
        valid is not None or flat_index(shape, index) is not draft.store_index
        for index, valid in uses
    )
