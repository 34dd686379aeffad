"""What may be asked for instead of an action that was refused.

    lane of axis 1        ->   Action('lanes', 1, 16)          the kind that is spelled like it
    lanes of axis 1 by 5  ->   Action('lanes', 1, 4), …        amounts near it that are legal there
    upcast of axis 2      ->   Action('upcast', 0, 4), …       axes on which it is legal

Each is tried on the kernel as it was before the action: what is named here is legal.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence

from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import ACTIONS, apply_action
from pellucid.opt.axes import axes_of, describe_axes, size_of

MOST_NAMED = 4
"""How many actions a message names."""
_INSTEAD = {"upcast": "unroll", "unroll": "upcast"}
"""The same, for axes of the other role."""
_AMOUNTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)


def explained(
    problem: ActionError, sink: UOp, actions: Sequence[Action], place: int, target: Target
) -> ActionError:
    """The refusal of one action of a list, with the axes that the kernel had and what is legal.

    sink: the kernel as the actions before *place* have left it.
    """
    rows = [("action", f"{place + 1} of {len(actions)}: {actions[place]!r}")]
    rows += [("axes" if axis.position == 0 else "", str(axis)) for axis in describe_axes(sink)]
    found = [repr(action) for action in legal_instead(sink, actions[place], target)]
    advice = (
        f"legal here: {', '.join(found)}" if found else "leave it out: nothing like it is legal"
    )
    return ActionError(problem.action, problem.axis, problem.reason, rows=rows, help=advice)


def legal_instead(sink: UOp, action: Action, target: Target) -> list[Action]:
    """Some actions like a refused one that are legal, those that differ least first."""
    found: list[Action] = []
    for other in _like(sink, action):
        if len(found) == MOST_NAMED:
            break
        if other != action and other not in found and _is_legal(sink, other, target):
            found.append(other)
    return found


def _is_legal(sink: UOp, action: Action, target: Target) -> bool:
    try:
        apply_action(sink, action, target)
    except ActionError:
        return False
    return True


def _like(sink: UOp, action: Action) -> Iterator[Action]:
    """The same kind, or one that is spelled like it; there and elsewhere; by near amounts."""
    kinds = [action.kind]
    if action.kind not in ACTIONS:
        kinds = difflib.get_close_matches(action.kind, ACTIONS, 1, 0.5)
    axes = range(len(axes_of(sink)))
    near = sorted(axes, key=lambda place: abs(place - action.axis))
    for kind in kinds:
        same = dataclasses.replace(action, kind=kind)
        yield same
        if action.axis in axes:
            yield from (dataclasses.replace(same, amount=n) for n in _amounts(sink, same))
            if kind in _INSTEAD:
                yield dataclasses.replace(same, kind=_INSTEAD[kind])
        yield from (dataclasses.replace(same, axis=place) for place in near)
        for place in near:
            moved = dataclasses.replace(same, axis=place)
            yield from (dataclasses.replace(moved, amount=n) for n in _amounts(sink, moved))


def _amounts(sink: UOp, action: Action) -> list[int]:
    """Amounts to try, the nearest first; 0 stands for all of the axis."""
    if action.kind in ("thread", "stage", "group"):
        return [0]
    axis = axes_of(sink)[action.axis]
    amounts = [*_AMOUNTS, 0, *range(len(axes_of(sink)))]
    if action.kind in ("lanes", "upcast", "unroll", "split", "overlap"):
        amounts = [*_AMOUNTS, size_of(axis) or 0, 0]
    return sorted(dict.fromkeys(amounts), key=lambda n: abs(n - action.amount))
