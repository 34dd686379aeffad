"""What the stages of a schedule hand on: drafts of kernels, and the plan that holds them.

Draft    a kernel in the making: what it stores, over which ranges, what it reads, and why
Inside   a value that a kernel makes for itself, a row at a time
Plan     all drafts, and for every value that is computed on the way where it is wanted
"""

from __future__ import annotations

import math
from dataclasses import field

from pellucid.core.records import dataclass
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.schedule.facts import Facts
from pellucid.schedule.views import Index, Use, flat_index

Step = tuple[tuple[UOp, Use], ...]
"""The sources that a value is computed from, and where each is read."""


@dataclass(eq=False)
class Draft:
    """A kernel in the making.

    root: the node that it brings into memory: a new version of some storage.
    value, value_use: what is stored: this node, at these indices.
    store_index, store_valid: where it is stored (row-major position), and under which condition.
    base: the version that a write or scatter changes, in place if possible.
    combine: the SCATTER node whose op joins old and new values.
    reads: for each version the uses, with how many elements each of them reads in all.
    loops: for each reduction in it, the sizes of its ranges.
    frontier: nodes that are wanted and not looked at yet (while the walk is on).
    leading: sets of ranges that stand outermost, each a part of the next: reductions in it depend
        on those ranges alone, and run once for each of their values.
    contracts: it has a reduction that wants tiles (a matrix product).
    multiplies: such a reduction is a sum of products.
    inside: versions that it makes for itself, in this order, in each turn of its *outer* ranges.
    row_reads: where it reads these itself; `reads` has what they are made of instead.
    """

    number: int
    root: UOp
    device: str | None
    reason: str
    ranges: tuple[UOp, ...]
    num_iterations: int
    value: UOp
    value_use: Use
    store_index: UOp
    store_valid: UOp | None = None
    base: UOp | None = None
    covers_base: bool = False
    combine: UOp | None = None
    ordered: bool = False
    is_copy: bool = False
    num_nodes: int = 0
    frontier: set[UOp] = field(default_factory=set)
    reads: dict[UOp, dict[Use, int]] = field(default_factory=dict)
    loops: set[Shape] = field(default_factory=set)
    leading: set[frozenset[UOp]] = field(default_factory=set)
    contracts: bool = False
    multiplies: bool = False
    inside: dict[UOp, Inside] = field(default_factory=dict)
    outer: tuple[UOp, ...] = ()
    row_reads: dict[UOp, dict[Use, int]] = field(default_factory=dict)

    def lead(self, ranges: frozenset[UOp]) -> bool:
        """Let *ranges* stand outermost; False, and no change, where other reductions forbid it."""
        if any(not (other <= ranges or ranges <= other) for other in self.leading):
            return False
        self.leading.add(ranges)
        depth = {r: sum(r in leading for leading in self.leading) for r in self.ranges}
        self.ranges = tuple(sorted(self.ranges, key=lambda r: -depth[r]))
        return True


@dataclass(frozen=True)
class Inside:
    """Scores that a kernel makes: their draft, and for each of its RANGEs that of the kernel.

    None stands for the RANGE along the row, for which there is a loop of its own. The row lies in
    memory of its own, or in that of an earlier one (keep_rows.py).
    """

    draft: Draft
    places: tuple[UOp | None, ...]
    memory: Draft | None = None

    @property
    def bound(self) -> dict[UOp, UOp]:
        """The RANGEs that are those of the kernel's outer loops."""
        pairs = zip(self.draft.ranges, self.places, strict=True)
        return {axis: place for axis, place in pairs if place is not None}

    @property
    def inner(self) -> tuple[UOp, ...]:
        """The loops that fill a row."""
        pairs = zip(self.draft.ranges, self.places, strict=True)
        return tuple(axis for axis, place in pairs if place is None)

    @property
    def size(self) -> int:
        """Elements of a row."""
        return math.prod(int(r.src[0].arg) for r in self.inner)

    def position(self, index: Index) -> UOp:
        """Where in the row the element at *index*, one for each axis, is."""
        axes = zip(self.draft.root.known_shape, self.draft.value_use[0], index, strict=True)
        along = [(size, place) for size, own, place in axes if own in self.inner]
        return flat_index(tuple(size for size, _ in along), tuple(place for _, place in along))


@dataclass
class Plan:
    """What the consumers-first walk found.

    drafts: consumers first.  stored: the draft of each stored node.
    steps: for each value that is computed where it is wanted, its sources; consumers first.
    loops: the ranges of a REDUCE.  around: for each of these the ranges that it stands in.
    valid: the condition of a PAD or GATHER.
    placeholders: what stands for a value that an index depends on.
    """

    order: list[UOp]
    facts: Facts
    drafts: list[Draft] = field(default_factory=list)
    stored: dict[UOp, Draft] = field(default_factory=dict)
    steps: dict[tuple[UOp, Use], Step] = field(default_factory=dict)
    loops: dict[tuple[UOp, Use], tuple[UOp, ...]] = field(default_factory=dict)
    around: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)
    valid: dict[tuple[UOp, Use], UOp] = field(default_factory=dict)
    placeholders: dict[tuple[str, UOp, Use, int], UOp] = field(default_factory=dict)


def moved_to(draft: Draft, index: tuple[UOp, ...]) -> dict[UOp, UOp]:
    """For each RANGE of a draft what stands for it where its result is read at *index*."""
    pairs = zip(draft.value_use[0], index, strict=True)
    return {own: at for own, at in pairs if own.op is Ops.RANGE}


def base_of(node: UOp) -> UOp:
    """The node below RESHAPEs, whose elements are the same in the same order."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node
