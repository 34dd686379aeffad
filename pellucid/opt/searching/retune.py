"""Change one action in the middle of a list; those behind it follow the loops that they meant.

    split(1, 16) lanes(2, 8) upcast(2)   --split by 24-->   split(1, 24) lanes(2, 8) upcast(2)
    lanes(0, 8) thread(0) lanes(1, 4)    --lanes by 16-->   lanes(0, 16) thread(0)

Actions name axes by their places, and one changed amount moves the places behind it: a rest comes
or goes, and with it copies of the loops inside of it. So both lists are applied side by side, and
each loop of the one is known by what it is in the other: the outer part, the inner part or the
rest of the same split, or the same copy. An action on a loop that is no more is left out.

Nothing here measures or judges; `moves.py` says what is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final

from pellucid.core.errors import ActionError
from pellucid.core.records import dataclass
from pellucid.ir.arg import Action
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, size_of

Actions = tuple[Action, ...]

SPLITTING: Final = ("split", "lanes", "upcast", "unroll", "local", "cascade", "overlap")
"""Actions whose amount is the size of the inner part."""
FITTING: Final = ("lanes", "upcast", "unroll")
"""Actions that take the whole of a loop that has become smaller than their amount."""
NAMING_AN_AXIS: Final = ("swap", "unit")
"""Actions whose amount is the place of another axis."""

Role = tuple[str, int]
Apply = Callable[[UOp, Action], UOp]


def retuned(
    start: UOp,
    actions: Sequence[Action],
    place: int,
    changed: Sequence[Action],
    apply: Apply,
    *,
    replaced: int = 1,
) -> Actions | None:
    """The list with *changed* instead of the action at *place*; None where that cannot be.

    With *replaced* 0, *changed* is put in before that action, and has to keep the loops it finds.

    start: the kernel before the first action.  changed: none, one or several actions, whose axes
    are those at that place of the list.  What is in the list has to be legal.
    apply: applies one action to a kernel, or raises ActionError.
    """
    before = start
    for action in actions[:place]:
        before = apply(before, action)
    pair = _Pair(before, before, apply)
    try:
        pair.exchange(actions[place : place + replaced], changed)
        for action in actions[place + replaced :]:
            pair.follow(action)
    except ActionError:
        return None
    return (*actions[:place], *pair.made)


@dataclass
class _Pair:
    """A kernel as the old list leaves it, and as the new one does; which loop is which."""

    old: UOp
    new: UOp
    apply: Apply
    made: list[Action] = field(default_factory=list)
    meaning: dict[int, int] = field(default_factory=dict)
    """The RANGE of the new kernel that stands for one of the old; else it is the same."""

    def exchange(self, actions: Sequence[Action], changed: Sequence[Action]) -> None:
        """The first difference: both kernels are the same before it."""
        old_roles: dict[Role, int] = {}
        new_roles: dict[Role, int] = {}
        for action in actions:
            number = _number(axes_of(self.old)[action.axis])
            old_roles |= self._apply_old(action)
            if not changed and action.kind in SPLITTING:
                new_roles["outer", 0] = number
        for action in changed:
            new_roles |= self._apply_new(action)
        self._match(old_roles, new_roles)

    def follow(self, action: Action) -> None:
        """One action more on the old kernel, and what it means for the new one."""
        renamed = self._renamed(action)
        old_roles = self._apply_old(action)
        if renamed is None:
            self._match(old_roles, {})
            return
        try:
            new_roles = self._apply_new(renamed)
        except ActionError:
            size = size_of(axes_of(self.new)[renamed.axis])
            if action.kind not in FITTING or size is None or renamed.amount <= size:
                raise
            new_roles = {} if size == 1 else self._apply_new(replace(renamed, amount=0))
        self._match(old_roles, new_roles)

    # ---- both lists -------------------------------------------------------------------------

    def _apply_old(self, action: Action) -> dict[Role, int]:
        before, self.old = self.old, self.apply(self.old, action)
        return _roles(action, before, self.old)

    def _apply_new(self, action: Action) -> dict[Role, int]:
        before, self.new = self.new, self.apply(self.new, action)
        self.made.append(action)
        return _roles(action, before, self.new)

    def _match(self, old: dict[Role, int], new: dict[Role, int]) -> None:
        """Loops that play the same part in both lists are the same; others have no counterpart."""
        for role, number in old.items():
            self.meaning[number] = new.get(role, _NONE)

    def _renamed(self, action: Action) -> Action | None:
        """The action with the places that its axes have in the new kernel."""
        axis = self._place(action.axis)
        amount: int | None = action.amount
        if action.kind in NAMING_AN_AXIS:
            amount = self._place(action.amount)
        extra = list(action.extra)
        if action.kind == "unit":
            extra[1:] = [self._place(place) for place in extra[1:]]
        if axis is None or amount is None or None in extra:
            return None
        return Action(action.kind, axis, amount, tuple(extra))

    def _place(self, place: int) -> int | None:
        """Where the axis at *place* of the old kernel is in the new one."""
        axes = axes_of(self.old)
        if not 0 <= place < len(axes):
            return None
        wanted = self.meaning.get(_number(axes[place]), _number(axes[place]))
        return next((p for p, a in enumerate(axes_of(self.new)) if _number(a) == wanted), None)


_NONE: Final = -1


def _number(axis: UOp) -> int:
    return int(axis.arg.id)


def _roles(action: Action, before: UOp, after: UOp) -> dict[Role, int]:
    """The RANGEs that an action has made, by the part that each plays."""
    first = next_range_id(before)
    known = {_number(a) for a in axes_of(before)}
    created = sorted(_number(a) for a in axes_of(after) if _number(a) not in known)
    axis = axes_of(before)[action.axis]
    size = size_of(axis)
    if action.kind not in SPLITTING or size is None:
        return {("made", number - first): number for number in created}
    if action.amount in (0, size):
        return {("inner", 0): _number(axis), **_copies(created, first)}
    roles: dict[Role, int] = {("outer", 0): first, ("inner", 0): first + 1}
    behind = first + 2
    if action.kind != "overlap" and size % action.amount > 1:
        roles["rest", 0] = behind
        behind += 1
    return roles | _copies([number for number in created if number >= behind], behind)


def _copies(numbers: Sequence[int], first: int) -> dict[Role, int]:
    return {("copy", number - first): number for number in numbers}
