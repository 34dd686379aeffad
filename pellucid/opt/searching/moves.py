"""What a search tries: other beginnings, and lists of actions with one more, or one changed.

    []               ->   [stage(1), …], [split(0, 64), …]    one action, and what the heuristic
                                                              makes of the kernel then
    [lanes(1, 16)]   ->   [lanes(1, 16), upcast(0, 4)], …     one for each axis, kind and amount
                     ->   [], [lanes(1, 8)], [lanes(1, 32)]   one left out, or changed
    [each(l, m)]     ->   [each(l', m)], [each(l, m')], …     the same for the list of each nest

Every action that the heuristic may use is proposed, by every amount that is near. When one is
changed in the middle, those behind it follow the loops that they meant (retune.py). Most are
refused by the actions themselves, which costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pellucid.core.errors import ActionError
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.hints import all_accesses, bytes_of
from pellucid.opt.actions.nests import has_nests, with_each
from pellucid.opt.actions.offset import OTHERS
from pellucid.opt.axes import Axis, describe_axes, reductions
from pellucid.opt.searching.retune import Apply, retuned

Actions = tuple[Action, ...]

MOST_ACTIONS = 32
"""Longer lists are not made longer."""
_COPIES = (2, 3, 4, 6, 8, 12, 16)
_SPLITS = (8, 16, 64, 256)
_RUNS = (0, 8, 16, 64)
_ROWS = (16, 32, 64)
_BEGINNINGS = ("stage", "compute", "block", "split", "hoist", "unit")
"""Actions after which the heuristic sees another kernel."""
_LOOPS_ONLY = ("split", "swap", "pack", "cascade", "stage", "hoist", "compute", "block", "pad")
"""Actions that leave loops as they are: what is packed has to be packed before the others."""
_IN_NESTS = ("lanes", "upcast", "unroll", "split", "overlap", "cascade", "swap", "prefetch")
"""What is added to the list of a nest: there is one for each loop of a row, and time is short."""
_HALF_OR_TWICE = ("lanes", "cascade", "block", "pad", "local")
_NEAR = ("upcast", "unroll", "overlap", "hoist")
_BROAD = ("split",)


@dataclass(frozen=True)
class Moves:
    """What may be tried for one kernel: *start* is the kernel before the first action."""

    start: UOp
    target: Target
    apply: Apply
    choose: Callable[[UOp], Actions | None]
    """What the heuristic makes of a kernel; None where it knows nothing."""
    in_nest: bool = False

    def beginnings(self) -> Iterator[tuple[str, Actions]]:
        """One action, and then the heuristic: families and lists."""
        seen: set[UOp] = set()
        for action in next_actions(self.start, self.target):
            if action.kind not in _BEGINNINGS:
                continue
            try:
                after = self.apply(self.start, action)
            except ActionError:
                continue
            if after not in seen:
                seen.add(after)
                chosen = self.choose(after)
                if chosen is not None:
                    yield action.kind, (action, *chosen)

    def after(self, actions: Actions) -> Iterator[tuple[str, Actions]]:
        """The lists to try after *actions*, which are legal: families and lists."""
        steps = self._steps(actions)
        yield from self._changed(actions, steps)
        if len(actions) < MOST_ACTIONS:
            for action in next_actions(steps[-1], self.target):
                if not self.in_nest or action.kind in _IN_NESTS:
                    yield action.kind, (*actions, action)
            if not self.in_nest:
                yield from self._packed_early(actions, steps)

    def _steps(self, actions: Actions) -> list[UOp]:
        """The kernel before the first action, and after each."""
        steps = [self.start]
        for action in actions:
            steps.append(self.apply(steps[-1], action))
        return steps

    # ---- one changed ------------------------------------------------------------------------

    def _changed(self, actions: Actions, steps: list[UOp]) -> Iterator[tuple[str, Actions]]:
        """The same list with one action changed, or left out."""
        for place, action in enumerate(actions):
            for family, others in self._instead(action, steps[place]):
                made = retuned(self.start, actions, place, others, self.apply)
                if made is not None:
                    yield family, made

    def _instead(self, action: Action, before: UOp) -> Iterator[tuple[str, Actions]]:
        """What may stand in the place of an action."""
        for amount in _amounts_near(action):
            yield f"{action.kind} by another amount", (replace(action, amount=amount),)
        if action.kind in ("split", "overlap"):  # what is left of an axis: a rest, or done twice
            other = "overlap" if action.kind == "split" else "split"
            yield "rest", (replace(action, kind=other),)
        if action.kind == "prefetch" and action.extra:
            for turns in (action.extra[0] // 2, action.extra[0] * 2):
                yield "prefetch by another distance", (replace(action, extra=(turns,)),)
        if action.kind == "unit":
            for name in _units_like(action, self.target):
                yield "unit", (replace(action, extra=(name, *action.extra[1:])),)
        if action.kind == "each":
            yield from self._each_changed(action, before)
        yield "left out", ()

    def _each_changed(self, action: Action, before: UOp) -> Iterator[tuple[str, Actions]]:
        """The same lists for nests, but for one change in one of them."""
        alone = self.target.with_changes({"has_threads": False, "cores": 1})
        nests: list[UOp] = []

        def collect(number: int, kernel: UOp) -> UOp:
            nests.append(kernel)
            for step in action.extra[number] if number < len(action.extra) else ():
                kernel = self.apply(kernel, step)
            return kernel

        with_each(before, collect)
        lists = [*action.extra, *[()] * (len(nests) - len(action.extra))]
        for number, nest in enumerate(nests):
            moves = Moves(nest, alone, self.apply, self.choose, in_nest=True)
            for family, changed in moves.after(tuple(lists[number])):
                now = (*lists[:number], changed, *lists[number + 1 :])
                yield f"{family} in a nest", (replace(action, extra=now),)

    # ---- one more ---------------------------------------------------------------------------

    def _packed_early(self, actions: Actions, steps: list[UOp]) -> Iterator[tuple[str, Actions]]:
        """A copy of a parameter, made before axes become anything else than loops."""
        plain = [action.kind in _LOOPS_ONLY for action in actions]
        if False not in plain:
            return
        place = plain.index(False)
        sink = steps[place]
        for axis in describe_axes(sink):
            for slot in _read_slots(sink) if not axis.is_reduced else ():
                pack = (Action("pack", axis.position, slot),)
                made = retuned(self.start, actions, place, pack, self.apply, replaced=0)
                if made is not None:
                    yield "pack", made


# ---- amounts ----------------------------------------------------------------------------------


def _amounts_near(action: Action) -> list[int]:
    """Other amounts for an action.

    >>> _amounts_near(Action("lanes", 0, 16)), _amounts_near(Action("upcast", 0, 6))
    ([8, 32], [5, 7, 4, 8, 3, 12])
    >>> _amounts_near(Action("split", 0, 64))
    [32, 128, 48, 96]
    """
    n = action.amount
    if action.kind in _HALF_OR_TWICE:
        found = [n // 2, n * 2]
    elif action.kind in _NEAR:
        found = [n - 1, n + 1, n - 2, n + 2, n // 2, n * 2]
    elif action.kind in _BROAD:
        found = [n // 2, n * 2, n * 3 // 4, n * 3 // 2]
    else:
        return []
    least = 0 if action.kind == "hoist" else 2
    return [m for m in dict.fromkeys(found) if m >= least and m != n] if n else []


def _units_like(action: Action, target: Target) -> Iterator[str]:
    """Other matrix units that the target has, with as many axes."""
    rows = len(action.extra) > 1
    for name in sorted(target.matrix_units):
        if name != action.extra[0] and (MATRIX_UNITS[name].rows > 1) == rows:
            yield name


# ---- one action -------------------------------------------------------------------------------


def next_actions(sink: UOp, target: Target) -> Iterator[Action]:
    """Every action that may come next, on every axis."""
    nodes = sink.toposort()
    stores = [n for n in nodes if n.op is Ops.STORE]
    slots = _read_slots(sink)
    narrow = _slots_of_bytes(sink, slots)
    asked, streamed = _hinted(sink, slots, target)
    yield from (Action("stream", 0, slot) for slot in streamed)
    # a sum that is stored as it is gains nothing by waiting in memory
    computed = range(2) if any(n.src[1].op is not Ops.REDUCE for n in stores) else ()
    axes = describe_axes(sink)
    rows = _ROWS if has_nests(sink) else ()
    for axis in axes:
        lanes = sorted({target.max_lanes(n) for n in (1, 2, 4, 8)} | {target.max_lanes(4) // 2})
        kinds: list[tuple[str, Sequence[int]]] = [("lanes", lanes[::-1])]
        if axis.is_reduced:
            kinds += [("unroll", (0, *_COPIES)), ("cascade", _RUNS), ("split", _SPLITS)]
            kinds += [("stage", (0,)), ("hoist", range(3)), ("offset", narrow)]
            yield from _units_for(axis, axes, sink, target)
        else:
            kinds += [("upcast", (0, *_COPIES)), ("thread", (0,)), ("split", _SPLITS)]
            kinds += [("pad", (target.max_lanes(4),)), ("pack", slots), ("overlap", _COPIES)]
            kinds += [("prefetch", asked), ("compute", computed), ("block", rows)]
            kinds += [("group", (0,)), ("local", (0, 8, 32, 64))] if target.has_groups else []
        others = [o.position for o in axes if o.position > axis.position]
        kinds.append(("swap", others))
        for kind, amounts in kinds:
            for amount in amounts:
                yield Action(kind, axis.position, amount)


def _units_for(axis: Axis, axes: Sequence[Axis], sink: UOp, target: Target) -> Iterator[Action]:
    """Matrix units that may add along a reduced axis; where there is more than one, by columns."""
    types = {n.dtype.scalar for n in reductions(sink)}
    outputs = [other.position for other in axes if not other.is_reduced]
    for name in sorted(target.matrix_units):
        unit = MATRIX_UNITS[name]
        if unit.sum not in types:
            continue
        for column in outputs:
            rows = [row for row in outputs if row != column] if unit.rows > 1 else [None]
            for row in rows:
                extra = (name,) if row is None else (name, row)
                yield Action("unit", axis.position, column, extra)


def _read_slots(sink: UOp) -> list[int]:
    """The slots of the parameters that a kernel reads and does not write."""
    nodes = sink.toposort()
    stored = {n.src[0].src[0] for n in nodes if n.op is Ops.STORE}
    return sorted({n.src[0].arg.slot for n in nodes if _is_access(n) and n.src[0] not in stored})


def _slots_of_bytes(sink: UOp, slots: Sequence[int]) -> list[int]:
    """Those of the parameters that hold integers of 8 bits."""
    params = {n.arg.slot: n.dtype for n in sink.toposort() if n.op is Ops.PARAM}
    return [slot for slot in slots if params[slot] in OTHERS]


def _hinted(sink: UOp, read: Sequence[int], target: Target) -> tuple[list[int], list[int]]:
    """The slots to ask for ahead, and those to stream: of what is too large to stay in cache.

    An output that fits the last cache is never streamed: the gain would be measured here, and the
    loss in the kernel that reads it next.
    """
    known = {(h.kind, h.slot) for h in sink.arg.hints}
    touched = sorted(all_accesses(sink).items())
    large = [slot for slot, found in touched if bytes_of(found) > target.l2_bytes]
    asked = [s for s in large if s in read and ("prefetch", s) not in known]
    written = [slot for slot, found in touched if bytes_of(found) > target.l3_bytes // 4]
    return asked, [
        s for s in large if s in written and s not in read and ("stream", s) not in known
    ]


def _is_access(node: UOp) -> bool:
    return node.op is Ops.INDEX and node.src[0].op is Ops.PARAM
