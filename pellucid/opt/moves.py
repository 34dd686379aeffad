"""What a search tries next: a list of actions with one more at its end, or with one changed.

    [lanes(1, 16)]   ->   [lanes(1, 16), upcast(0, 4)], …     one for each axis, kind and amount
                     ->   [], [lanes(1, 8)], [lanes(1, 32)]   one left out, or by another amount

Most are refused by the actions themselves, which costs little. Families are tried in turn, so that
a small budget sees some of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import describe_axes

Actions = tuple[Action, ...]

MOST_ACTIONS = 24
"""Longer lists are not tried."""
_COPIES = (2, 3, 4, 6, 8, 12, 16)
_BLOCKS = (8, 16, 64, 256)
_RUNS = (0, 8, 16, 64)


def moves(actions: Actions, sink: UOp, target: Target) -> list[Actions]:
    """The lists to try after *actions*, which led to *sink*: a few of each family in turn."""
    families: dict[str, list[Actions]] = {}
    if len(actions) < MOST_ACTIONS:
        for action in _next_actions(sink, target):
            families.setdefault(action.kind, []).append((*actions, action))
    families["changed"] = list(_changed(actions))
    rows = itertools.zip_longest(*families.values())
    return list(dict.fromkeys(a for row in rows for a in row if a is not None))


def _next_actions(sink: UOp, target: Target) -> Iterator[Action]:
    """One action more, for every axis."""
    nodes = sink.toposort()
    stored = {n.src[0].src[0] for n in nodes if n.op is Ops.STORE}
    slots = sorted({n.src[0].arg.slot for n in nodes if _is_access(n) and n.src[0] not in stored})
    hints = {(h.kind, h.slot) for h in sink.arg.hints}
    written = sorted({s.arg.slot for s in stored if s.op is Ops.PARAM})
    yield from (Action("stream", 0, s) for s in written if ("stream", s) not in hints)
    axes = describe_axes(sink)
    for axis in axes:
        lanes = sorted({target.max_lanes(n) for n in (1, 2, 4, 8)} | {target.max_lanes(4) // 2})
        kinds: list[tuple[str, Sequence[int]]] = [("lanes", lanes[::-1])]
        if axis.is_reduced:
            kinds += [("unroll", (0, *_COPIES)), ("cascade", _RUNS), ("split", _BLOCKS)]
            kinds += [("stage", (0,)), ("hoist", range(3))]
        else:
            kinds += [("upcast", (0, *_COPIES)), ("thread", (0,)), ("split", _BLOCKS)]
            kinds += [("pad", (target.max_lanes(4),)), ("pack", slots)]
            asked = [s for s in slots if ("prefetch", s) not in hints]
            kinds.append(("prefetch", asked))
        others = [o.position for o in axes if o.position > axis.position]
        kinds.append(("swap", others))
        for kind, amounts in kinds:
            for amount in amounts:
                yield Action(kind, axis.position, amount)


def _is_access(node: UOp) -> bool:
    return node.op is Ops.INDEX and node.src[0].op is Ops.PARAM


def _changed(actions: Actions) -> Iterator[Actions]:
    """The same list with one action left out, or by half or twice its amount."""
    for place, action in reversed(list(enumerate(actions))):
        before, behind = actions[:place], actions[place + 1 :]
        if action.kind not in ("swap", "pack", "hoist", "prefetch", "stream"):
            n = action.amount
            for amount in (n * 2, n // 2, n + 1, n - 1):
                if amount > 1:
                    changed = Action(action.kind, action.axis, amount, action.extra)
                    yield (*before, changed, *behind)
        yield (*before, *behind)
