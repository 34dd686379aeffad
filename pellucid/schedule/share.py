"""Let kernels over the same ranges become one kernel with several outputs.

Form before: drafts in order, with what must run before what (order.py). After: units of one or
more drafts.

    m = relu(x); m * 2; m + y      three drafts over (i, j)         ->  one kernel, loads x once
    x.sum(1), (x * x).sum(1)       the same ranges of one input     ->  one kernel, one loop
    x[:, :9].sum(1), x[:, 9:].sum(1)       parts of the same rows   ->  one kernel, a loop for each
    m = x.mean(1); x - m           over (i), over (i, j)            ->  one kernel, stores m in i

A draft may join a unit when it depends on the unit only at exactly the element it computes itself
(then the value stays in a register), and on nothing that depends on the unit. Levels show the
second: every unit is above all units it needs. A draft joins where all else it needs is below the
unit, or where the unit can be lifted above that and stays below all units that need it. So no cycle
can arise, and one pass in order is enough. It joins when there is something to gain: a value or an
input in common, or kernels so small that starting them is most of the work.

Drafts over fewer ranges may stand in the outer loops of the others, where both are about one row:
what is reduced is used at once for the row, and stored for those who want it later. Drafts that
make the same scores (inside.py) in the same turns of the same loops make them once for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from itertools import islice

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Plan, moved_to
from pellucid.schedule.fuse import MAX_BUFFERS, MAX_NODES, ROWS_PER_CORE, SMALL_WORK
from pellucid.schedule.nests import executions
from pellucid.schedule.order import Order
from pellucid.schedule.views import flat_index

SMALL_KERNEL = 4096
"""Elements below which starting a kernel takes longer than running it."""

MAX_OUTPUTS = 16
MAX_CANDIDATES = 16
"""How many units with fitting loops a draft is held against: the latest ones."""
MAX_LOOKED_AT = 128
"""How many units are looked at for that; a bound, or a long chain of writes is quadratic."""


@dataclass(eq=False)
class Unit:
    """Drafts that become one kernel."""

    number: int
    level: int
    drafts: list[Draft] = field(default_factory=list)
    user_level: float = math.inf  # the lowest level of a unit that needs this one
    num_nodes: int = 0
    reads: set[UOp] = field(default_factory=set)
    writes: set[UOp] = field(default_factory=set)
    loops: set[Shape] = field(default_factory=set)
    ranges: tuple[UOp, ...] = ()

    @property
    def makes_scores(self) -> bool:
        """True when it makes scores for itself, rows or columns at a time."""
        return any(draft.inside for draft in self.drafts)

    def add(self, draft: Draft) -> None:
        """Take a draft in."""
        if self.makes_scores and not draft.inside and draft.ranges == self.drafts[0].outer:
            draft.outer = draft.ranges  # it sums rows of what others make of scores
        self.drafts.append(draft)
        self.num_nodes += draft.num_nodes
        self.reads |= draft.reads.keys() - self.writes
        self.writes.add(draft.root)
        self.loops |= draft.loops
        self.ranges = max(self.ranges, draft.ranges, key=len)


def share_kernels(plan: Plan, order: Order) -> list[Unit]:
    """Group drafts into units; the units are in an order in which they can run."""
    return _Sharing(plan, order).run()


def terms_of(index: UOp) -> Iterator[UOp]:
    """What is added up to an index: the RANGEs among it move along memory by one."""
    for part in index.src if index.op is Ops.ADD else ():
        yield from terms_of(part)
    if index.op is not Ops.ADD:
        yield index


class _Sharing:
    def __init__(self, plan: Plan, order: Order) -> None:
        self.plan, self.order = plan, order
        self.units: list[Unit] = []
        self.unit_of: dict[Draft, Unit] = {}
        self.candidates: dict[tuple[object, ...], list[Unit]] = {}

    def run(self) -> list[Unit]:
        for draft in self.order.drafts:
            unit = self.find(draft) or self.new_unit(draft)
            self.unit_of[draft] = unit
            unit.level = max(unit.level, self.least_level(draft, unit))
            unit.add(draft)
            for needed in self.order.before[draft]:
                home = self.unit_of[needed]
                if home is not unit:
                    home.user_level = min(home.user_level, unit.level)
        return self.sorted_units()

    def least_level(self, draft: Draft, unit: Unit | None = None) -> int:
        """The lowest level at which all that *draft* needs, outside of *unit*, is below."""
        homes = (self.unit_of[needed] for needed in self.order.before[draft])
        return 1 + max((home.level for home in homes if home is not unit), default=0)

    def new_unit(self, draft: Draft) -> Unit:
        unit = Unit(len(self.units), self.least_level(draft))
        self.units.append(unit)
        if self.can_share(draft):
            self.candidates.setdefault(self.key(draft), []).append(unit)
        return unit

    def key(self, draft: Draft) -> tuple[object, ...]:
        return (draft.device, draft.ranges[:1])

    def can_share(self, draft: Draft) -> bool:
        return not (draft.ordered or draft.is_copy or draft.root in self.order.copies_base)

    def find(self, draft: Draft) -> Unit | None:
        if not self.can_share(draft):
            return None
        known = self.candidates.get(self.key(draft), [])
        newest = islice(reversed(known), MAX_LOOKED_AT)
        latest = (unit for unit in newest if self.nests(draft, unit))
        fitting = [unit for unit in islice(latest, MAX_CANDIDATES) if self.fits(draft, unit)]
        for unit in fitting:
            if draft.reads.keys() & unit.writes:
                return unit
        for unit in fitting:
            if self.gains(draft, unit):
                return unit
        return None

    def nests(self, draft: Draft, unit: Unit) -> bool:
        """True when the loops are the same, or those of one are the outer loops of the other."""
        if draft.inside or unit.makes_scores:
            ways = (self.makes_same_rows, self.sums_rows, self.follows_rows)
            return any(way(draft, unit) for way in ways)
        if draft.ranges == unit.ranges:
            return all(d.ranges == draft.ranges for d in unit.drafts) or draft.base is None
        shared = min(len(draft.ranges), len(unit.ranges))
        if draft.ranges[:shared] != unit.ranges[:shared]:
            return False
        drafts = (draft, *unit.drafts)
        if any(d.base is not None or d.contracts for d in drafts):
            return False
        outer = [d for d in drafts if len(d.ranges) < max(len(draft.ranges), len(unit.ranges))]
        return all(self.is_of_rows(d) for d in outer) and self.is_joined(draft, unit)

    def makes_same_rows(self, draft: Draft, unit: Unit) -> bool:
        """True when all make the same scores, one row or column in each turn of the same loops."""
        made = [other.inside.items() for other in unit.drafts if other.inside]
        same = bool(made) and all(other.outer == draft.outer for other in unit.drafts)
        return same and not any(rows.isdisjoint(draft.inside.items()) for rows in made)

    def sums_rows(self, draft: Draft, unit: Unit) -> bool:
        """True when a draft sums, in each turn of the outer loops, a row of what a unit makes."""
        plain = bool(draft.loops) and not draft.inside and draft.base is None
        return plain and draft.ranges == unit.drafts[0].outer and self.is_joined(draft, unit)

    def follows_rows(self, draft: Draft, unit: Unit) -> bool:
        """True when a draft uses what a unit makes of rows at the same element, and no more."""
        plain = not (draft.inside or draft.loops) and draft.base is None
        plain = plain and not any(other.multiplies for other in unit.drafts)
        return plain and draft.ranges == unit.ranges and self.is_joined(draft, unit)

    def is_of_rows(self, draft: Draft) -> bool:
        """True for a reduction of rows, each of which stays in cache; enough rows for all cores."""
        row = self.plan.facts.rows.get(draft.root)
        if row is None or row.contracts:
            return False
        target = self.plan.facts.target
        is_small = draft.num_iterations * row.elems <= SMALL_WORK
        enough = is_small or draft.num_iterations >= ROWS_PER_CORE * target.cores
        return enough and row.bytes <= target.l2_bytes

    def is_joined(self, draft: Draft, unit: Unit) -> bool:
        """True when a value of one is used by the other."""
        return bool(draft.reads.keys() & unit.writes)

    # ---- may it? ---------------------------------------------------------------------------------

    def fits(self, draft: Draft, unit: Unit) -> bool:
        """True when *draft* can be computed in the kernel of *unit*."""
        if unit.num_nodes + draft.num_nodes > MAX_NODES or len(unit.drafts) >= MAX_OUTPUTS:
            return False
        if len(unit.reads | draft.reads.keys()) + len(unit.writes) >= MAX_BUFFERS:
            return False
        is_apart = unit.loops and draft.loops and unit.loops != draft.loops
        if is_apart and not (unit.makes_scores or self.share_rows(draft, unit)):
            return False
        if self.least_level(draft, unit) >= unit.user_level:
            return False
        inside = [d for d in self.order.before[draft] if self.unit_of[d] is unit]
        return all(self.same_element(draft, needed) for needed in inside)

    def share_rows(self, draft: Draft, unit: Unit) -> bool:
        """True for reductions of parts of the same rows, each of which lies in one piece."""
        drafts = (draft, *unit.drafts)
        same = all(d.ranges == draft.ranges and d.reads.keys() == unit.reads for d in drafts)
        return same and bool(draft.ranges) and all(map(self.is_along_memory, drafts))

    def is_along_memory(self, draft: Draft) -> bool:
        """True for a reduction whose innermost loop runs over neighbours in memory."""
        indices = [index for uses in draft.reads.values() for index, _ in uses if index]
        fastest = [[t for t in terms_of(index[-1]) if t.op is Ops.RANGE] for index in indices]
        return not draft.contracts and all(
            found and not any(r in draft.ranges for r in found) for found in fastest
        )

    def same_element(self, draft: Draft, needed: Draft) -> bool:
        """True when *draft* comes after *needed* only because of the element that both are at."""
        if draft.base is needed.root:
            return False  # two stores to one place
        if needed.root in draft.reads and not (
            self.reads_at(draft, needed.root, needed) or self.reads_rows(draft, needed)
        ):
            return False
        base = draft.base
        if base is not None and draft.root in self.order.in_place and base in needed.reads:
            # the old value is read into a register that the write itself uses, so before it writes
            return self.reads_at(needed, base, draft) and base in draft.reads
        return True

    def reads_at(self, draft: Draft, version: UOp, other: Draft) -> bool:
        """True when *draft* reads *version* only where *other* is, once in each of its turns."""
        shape = version.known_shape
        return all(
            valid is None
            and flat_index(shape, index) is other.store_index
            and executions(draft, (index, valid), self.plan.around) <= other.num_iterations
            for index, valid in draft.reads[version]
        )

    def reads_rows(self, draft: Draft, needed: Draft) -> bool:
        """True when *draft* sums a row of what *needed* makes of scores in the same outer loops."""
        if not needed.inside or draft.ranges != needed.outer:
            return False
        return all(
            valid is None
            and all(
                at is own or (own not in needed.outer and at.op is Ops.RANGE)
                for own, at in moved_to(needed, index).items()
            )
            for index, valid in draft.reads[needed.root]
        )

    def gains(self, draft: Draft, unit: Unit) -> bool:
        if unit.makes_scores:
            return True
        if bool(unit.loops) != bool(draft.loops):
            return False
        if unit.loops:
            if all(self.is_small(each) for each in (draft, *unit.drafts)):
                return True
            return draft.reads.keys() <= unit.reads or draft.reads.keys() >= unit.reads
        return draft.num_iterations <= SMALL_KERNEL or bool(draft.reads.keys() & unit.reads)

    def is_small(self, draft: Draft) -> bool:
        """True where starting a kernel would take longer than running it."""
        longest = max((math.prod(sizes) for sizes in draft.loops), default=1)
        return draft.num_iterations * longest <= SMALL_KERNEL

    # ---- order -----------------------------------------------------------------------------------

    def sorted_units(self) -> list[Unit]:
        """Units in an order that respects what their drafts need, close to that of the drafts."""
        place = {draft: number for number, draft in enumerate(self.order.drafts)}
        needs = {
            unit: {self.unit_of[n] for d in unit.drafts for n in self.order.before[d]} - {unit}
            for unit in self.units
        }
        done: list[Unit] = []
        seen: set[Unit] = set()
        for first in sorted(self.units, key=lambda u: place[u.drafts[-1]]):
            stack = [first]
            while stack:
                unit = stack[-1]
                missing = sorted(needs[unit] - seen, key=lambda u: u.number)
                if missing:
                    stack.extend(missing)
                    continue
                stack.pop()
                if unit not in seen:
                    seen.add(unit)
                    done.append(unit)
        return done
