"""Let the kernel that uses a large value compute it block by block, in local memory.

Form before: units in order (share.py). After: the same, but that some drafts stand *inside* of the
only unit that uses them: the kernel has their outer loops in common, and a block of the value, what
the inner loops make of it, is kept in memory of the kernel's own.

    s = q @ k^T            over (b, h, i, j)        one kernel: in each (b, h)
    p = softmax(s)         over (b, h, i, j)            512 x 512 of s, then of p, in cache
    p @ v                  over (b, h, i, d)            and p @ v from there

The scores of an attention never go to memory that way. It is done where the value is too large for
the cache, a block of it is not, and there are blocks for all cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Plan
from pellucid.schedule.fuse import ROWS_PER_CORE
from pellucid.schedule.nests import ranges_of
from pellucid.schedule.order import Order
from pellucid.schedule.share import Unit
from pellucid.schedule.views import Index, Use

TILE = 8
"""A product of blocks has so many rows and columns at least."""

MAX_INSIDE = 4
"""So many values at most may be made inside of one kernel."""


@dataclass(frozen=True)
class Inside:
    """A draft that another unit's kernel computes in blocks: one for each turn of *outer*."""

    draft: Draft
    outer: tuple[UOp, ...]

    @property
    def inner(self) -> tuple[UOp, ...]:
        """The loops that fill a block."""
        return self.draft.ranges[len(self.outer) :]

    @property
    def size(self) -> int:
        """Elements of a block."""
        return math.prod(int(r.src[0].arg) for r in self.inner)

    def in_block(self, index: Index) -> tuple[tuple[int, ...], Index]:
        """The shape of a block, and the place in it of the element at *index*."""
        own = self.draft.value_use[0]
        kept = [axis for axis, position in enumerate(own) if position not in self.outer]
        shape = self.draft.root.known_shape
        return tuple(shape[axis] for axis in kept), tuple(index[axis] for axis in kept)


def place_inside(
    plan: Plan, order: Order, units: list[Unit], kept: set[UOp]
) -> tuple[list[Unit], dict[UOp, Inside]]:
    """The units that stay, and what is computed inside of them, by version."""
    unit_of = {draft: unit for unit in units for draft in unit.drafts}
    readers: dict[UOp, dict[Unit, None]] = {}
    for draft, unit in unit_of.items():
        for version in (*draft.reads, draft.base):
            if version in plan.stored:
                readers.setdefault(version, {})[unit] = None
    overwritten = {plan.stored[version].base for version in order.in_place}
    inside: dict[UOp, Inside] = {}
    home: dict[Unit, Unit] = {}
    counts: dict[Unit, int] = {}
    for unit in units:
        root = unit.drafts[0].root
        users = list(readers.get(root, ()))
        if len(unit.drafts) != 1 or len(users) != 1 or users[0] is unit or root in kept:
            continue
        if overwritten.intersection(unit.drafts[0].reads):
            continue  # it would be read later than now
        outer = _outer_loops(plan, unit.drafts[0], users[0])
        if outer is None or counts.get(users[0], 0) + counts.get(unit, 0) >= MAX_INSIDE:
            continue
        inside[root] = Inside(unit.drafts[0], outer)
        home[unit] = users[0]
        counts[users[0]] = counts.get(users[0], 0) + counts.get(unit, 0) + 1
    return [unit for unit in units if unit not in home], inside


def _outer_loops(plan: Plan, draft: Draft, user: Unit) -> tuple[UOp, ...] | None:
    """The loops that *draft* and its user have in common, few enough that blocks fill caches."""
    drafts = (draft, *user.drafts)
    if any(d.ordered or d.is_copy or d.base is not None for d in drafts):
        return None
    if draft.value is not draft.root or len({d.ranges for d in user.drafts}) != 1:
        return None
    target = plan.facts.target
    num_bytes = draft.root.num_elems * draft.root.dtype.itemsize
    if num_bytes <= target.l2_bytes:
        return None
    most = _common(draft, user)
    blocks = 1
    for depth in range(most):
        blocks *= int(draft.ranges[depth].src[0].arg)
        is_block = num_bytes / blocks <= target.l2_bytes and depth + 1 < len(draft.ranges)
        if is_block and blocks >= ROWS_PER_CORE * target.cores:
            outer = draft.ranges[: depth + 1]
            return outer if _has_products_of_blocks(drafts, outer) else None
    return None


def _has_products_of_blocks(drafts: tuple[Draft, ...], outer: tuple[UOp, ...]) -> bool:
    """True where all products of matrices are of blocks, large enough for tiles.

    All else streams, or is a row; and an operand that all blocks share would be read for each.
    """
    products = [draft for draft in drafts if draft.contracts]
    return bool(products) and all(_is_of_blocks(draft, outer) for draft in products)


def _is_of_blocks(draft: Draft, outer: tuple[UOp, ...]) -> bool:
    sizes = [int(r.src[0].arg) for r in draft.ranges[len(outer) :]]
    summed = [
        ranges
        for uses in draft.reads.values()
        for ranges in map(ranges_of, uses)
        if any(r.arg.kind is AxisKind.REDUCE for r in ranges)
    ]
    return sum(n >= TILE for n in sizes) >= 2 and all(set(outer) <= set(r) for r in summed)


def _common(draft: Draft, user: Unit) -> int:
    """How many outermost loops all have, where every use is at the element of those loops."""
    depth = 0
    own = draft.value_use[0]
    uses: list[Use] = [use for d in user.drafts for use in d.reads.get(draft.root, {})]
    for axis in draft.ranges:
        same = all(len(d.ranges) > depth and d.ranges[depth] is axis for d in user.drafts)
        if not same or not all(index[own.index(axis)] is axis for index, _ in uses):
            break
        depth += 1
    if any(n.op is Ops.VARIABLE for index, _ in uses for n in UOp.sink(*index).toposort()):
        return 0
    return depth
