"""A plan: a kernel under change, and the actions that led to it.

    plan.do("lanes", 0, 16, "contiguous")   ->   Pieces(outer=1, inner=2, rest=3)

The heuristic speaks of a RANGE by its id, which stays the same while others come and go; an action
speaks of the place of an axis, which does not. Each step is reported to observers with its reason.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from pellucid.core import observe
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.bounds import bounds
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, size_of


@dataclass
class Plan:
    """A kernel, and the actions that led to it."""

    sink: UOp
    target: Target
    actions: list[Action] = field(default_factory=list)

    def axis(self, number: int) -> UOp:
        """The RANGE with an id."""
        return next(a for a in axes_of(self.sink) if a.arg.id == number)

    def size(self, number: int) -> int:
        """The size of the RANGE with an id; 0 where it is a variable."""
        return size_of(self.axis(number)) or 0

    def most(self, number: int) -> int:
        """The largest size that the RANGE with an id can have."""
        return bounds(self.axis(number)).max + 1

    def do(
        self, kind: str, number: int, amount: int, reason: str, extra: tuple[Any, ...] = ()
    ) -> Pieces:
        """Apply an action to the RANGE with an id; the ids of the pieces that it leaves."""
        axis = self.axis(number)
        action = Action(kind, axes_of(self.sink).index(axis), amount, extra)
        size, first = size_of(axis) or 0, next_range_id(self.sink)
        self.sink = apply_action(self.sink, action, self.target)
        self.actions.append(action)
        if observe.watching:
            observe.decision("action", action, reason)
        if kind in _WHOLE or amount in (0, size):
            return Pieces(None, number, None)
        if kind == "overlap":
            return Pieces(first, first + 1, None)
        rest = first + 2 if size % amount > 1 else None
        return Pieces(first if size // amount > 1 else None, first + 1, rest)


_WHOLE = ("swap", "pack", "unit", "hoist", "block", "compute", "offset", "prefetch", "stream")
"""Actions whose amount is not the size of a part."""


@dataclass(frozen=True)
class Pieces:
    """What a split leaves: the ids of the outer part, the inner part, and the rest."""

    outer: int | None
    inner: int
    rest: int | None
