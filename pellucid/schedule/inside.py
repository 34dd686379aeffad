"""Let every kernel that uses scores make them itself, a row or a column at a time.

Form before: a plan (ranges.py) with drafts of scores and of statistics (scores.py). After: the same
without the drafts of scores; each draft that reads scores says which it makes, and reads what they
are made of.

    s over (b, h, i, j)      out over (b, h, i, d) reads s at (b, h, i, r), summed over r
        ->  out makes a row of s in each turn of (b, h, i)

    dk over (b, h, j, d) reads s at (b, h, r, j)
        ->  dk makes a column of s in each turn of (b, h, j)

A row lies in local memory of the kernel. Where some use of scores is no row and no column, nothing
is done, and the caller plans again with scores as values like any other.
"""

from __future__ import annotations

from collections.abc import Collection

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Inside, Plan
from pellucid.schedule.views import Index, Use


def place_inside(plan: Plan, scores: Collection[UOp]) -> bool:
    """Move the drafts of *scores* into those that use them; False, and no change, if one cannot."""
    made = {node: plan.stored[node] for node in scores if node in plan.stored}
    placing = [
        _Placing(draft, made)
        for draft in plan.drafts
        if draft.root not in made and not made.keys().isdisjoint(draft.reads)
    ]
    if not all(one.run() for one in placing):
        return False
    for one in placing:
        one.keep()
    plan.drafts = [draft for draft in plan.drafts if draft.root not in made]
    return True


class _Placing:
    """One draft that uses scores: where each of them is made in it."""

    def __init__(self, draft: Draft, made: dict[UOp, Draft]) -> None:
        self.draft, self.made = draft, made
        self.inside: dict[UOp, Inside] = {}
        self.reads: dict[UOp, dict[Use, int]] = {}
        self.outer: set[UOp] = set()
        self.row: UOp | None = None  # some RANGE along the row

    def run(self) -> bool:
        """Find a place for all that is read; False where there is none."""
        draft = self.draft
        plain = not (draft.ordered or draft.is_copy) and draft.base is None
        if not plain or draft.value is not draft.root or not self._add(draft.reads, {}):
            return False
        depth = len(self.outer)
        return depth > 0 and set(draft.ranges[:depth]) == self.outer

    def _add(self, reads: dict[UOp, dict[Use, int]], bound: dict[UOp, UOp]) -> bool:
        """Go through reads, with RANGEs of the scores that read exchanged."""
        for version, uses in reads.items():
            for (index, valid), count in uses.items():
                place = tuple(position.substitute(bound) for position in index)
                condition = None if valid is None else valid.substitute(bound)
                if version not in self.made:
                    known = self.reads.setdefault(version, {})
                    known[place, condition] = max(count, known.get((place, condition), 0))
                elif condition is not None or not self._make(version, place):
                    return False
        return True

    def _make(self, version: UOp, index: Index) -> bool:
        """Let the kernel make scores that it reads at *index*."""
        draft = self.made[version]
        positions = [p for p in index if not p.is_const]
        if len(positions) != len(draft.ranges) or any(p.op is not Ops.RANGE for p in positions):
            return False
        summed = [p for p in positions if p not in self.draft.ranges]
        if len(summed) != 1 or len(set(positions)) != len(positions):
            return False
        if summed[0].arg.kind is not AxisKind.REDUCE:
            return False
        self.row = self.row or summed[0]
        if self.row.src != summed[0].src:
            return False
        places = tuple(None if p is summed[0] else p for p in positions)
        here = Inside(draft, places)
        if version in self.inside:
            return self.inside[version] == here
        self.outer.update(here.bound.values())
        if not self._add(draft.reads, {**here.bound, here.inner[0]: summed[0]}):
            return False
        self.inside[version] = here
        return True

    def keep(self) -> None:
        """Write down in the draft what was found: scores in the order in which they are made."""
        depth = len(self.outer)
        self.draft.inside = self.inside
        self.draft.row_reads = {v: uses for v, uses in self.draft.reads.items() if v in self.made}
        self.draft.outer = self.draft.ranges[:depth]
        self.draft.reads = self.reads
