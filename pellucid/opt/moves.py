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
from pellucid.opt.hints import all_accesses, bytes_of

Actions = tuple[Action, ...]

MOST_ACTIONS = 24
"""Longer lists are not tried."""
_COPIES = (2, 3, 4, 6, 8, 12, 16)
_BLOCKS = (8, 16, 64, 256)
_RUNS = (0, 8, 16, 64)
_NAMED = ("swap", "pack", "unit", "hoist", "block", "compute", "prefetch", "stream")
"""Actions whose amount is a name, of an axis or of a parameter, and not a size."""


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
    stores = [n for n in nodes if n.op is Ops.STORE]
    stored = {n.src[0].src[0] for n in stores}
    slots = sorted({n.src[0].arg.slot for n in nodes if _is_access(n) and n.src[0] not in stored})
    asked, streamed = _hinted(sink, slots, target)
    yield from (Action("stream", 0, slot) for slot in streamed)
    # a sum that is stored as it is gains nothing by waiting in memory
    computed = range(2) if any(n.src[1].op is not Ops.REDUCE for n in stores) else ()
    axes = describe_axes(sink)
    for axis in axes:
        lanes = sorted({target.max_lanes(n) for n in (1, 2, 4, 8)} | {target.max_lanes(4) // 2})
        kinds: list[tuple[str, Sequence[int]]] = [("lanes", lanes[::-1])]
        if axis.is_reduced:
            kinds += [("unroll", (0, *_COPIES)), ("cascade", _RUNS), ("split", _BLOCKS)]
            kinds += [("stage", (0,)), ("hoist", range(3))]
        else:
            kinds += [("upcast", (0, *_COPIES)), ("thread", (0,)), ("split", _BLOCKS)]
            kinds += [("pad", (target.max_lanes(4),)), ("pack", slots), ("overlap", _COPIES)]
            kinds += [("prefetch", asked), ("compute", computed)]
            kinds += [("group", (0,)), ("local", (0, 8, 32, 64))] if target.has_groups else []
        others = [o.position for o in axes if o.position > axis.position]
        kinds.append(("swap", others))
        for kind, amounts in kinds:
            for amount in amounts:
                yield Action(kind, axis.position, amount)


def _hinted(sink: UOp, read: Sequence[int], target: Target) -> tuple[list[int], list[int]]:
    """The slots to ask for ahead, and those to stream: of what is too large to stay in cache."""
    known = {(h.kind, h.slot) for h in sink.arg.hints}
    touched = sorted(all_accesses(sink).items())
    large = [slot for slot, found in touched if bytes_of(found) > target.l2_bytes]
    asked = [s for s in large if s in read and ("prefetch", s) not in known]
    return asked, [s for s in large if s not in read and ("stream", s) not in known]


def _is_access(node: UOp) -> bool:
    return node.op is Ops.INDEX and node.src[0].op is Ops.PARAM


def _changed(actions: Actions) -> Iterator[Actions]:
    """The same list with one action left out, or by half or twice its amount."""
    for place, action in reversed(list(enumerate(actions))):
        before, behind = actions[:place], actions[place + 1 :]
        if action.kind not in _NAMED:
            n = action.amount
            for amount in (n * 2, n // 2, n + 1, n - 1):
                if amount > 1:
                    changed = Action(action.kind, action.axis, amount, action.extra)
                    yield (*before, changed, *behind)
        yield (*before, *behind)
