"""Beam search: the actions with which a kernel runs fastest, found by measuring.

    the heuristic's choice                          measured first; it sets the scale
    one action, then the heuristic; plain loops     other beginnings, if the cost model likes them
    the *width* fastest so far   ->   one more step from each, until two steps gain nothing:
                                      one action more, one changed, one left out (moves.py)

Before anything is compiled, a candidate is left out when an action refuses, when its kernel is one
that was measured before, when it would round sums more than it may, when it would become too large,
or when the cost model says that it is much slower than the best. Of the others, each family has its
turn, and those come first of which the cost model, and the time of what they were made of, promise
most.

`measure(sink) -> seconds` is passed in: this file knows no device. It raises `Dropped` for what
does not compile, crashes, hangs or computes something else; the report keeps the reason. The result
is the heuristic's choice, unless another list was clearly faster when both were measured in turn.

Source: B. T. Lowerre, "The HARPY speech recognition system", 1976 (beam search).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from pellucid.core.errors import ActionError, PellucidError
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind, KernelInfo, RangeArg
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.cost import own_ranges
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.searching.estimate import estimated_us
from pellucid.opt.searching.moves import Actions, Moves
from pellucid.opt.searching.report import SearchReport
from pellucid.opt.searching.rounding import allowed_sum, longest_sum

SEARCH_VERSION: Final = 3
"""Counts changes of what is tried, which make older results unwanted."""
LEAST_GAIN: Final = 0.01
"""A step that gains less than this part gained nothing."""
CLEARLY: Final = 0.03
"""By which part the result has to be faster than the heuristic's choice to be taken for it."""
CONFIRMATIONS: Final = 5
"""How often the result is measured against the heuristic's choice before it is taken."""
MUCH_SLOWER: Final = 2.5
"""How many times the estimate of the best a candidate's may be."""
PLAIN_IS_NEAR: Final = 8.0
"""How many times the estimate of the heuristic's choice that of plain loops may be."""
THINKING: Final = 0.2
"""The part of the time in which a step may look for candidates."""
EXPANDED: Final = 2
"""From how many of the beam a step goes on; the others wait, and may be overtaken."""
LONGER: Final = 0.01
"""What an action more has to promise: of two equal guesses, the shorter list is tried first."""
MOST_NODES: Final = 4000
"""How large copies may make a kernel."""
_PLAIN: Final[Actions] = ()

Measure = Callable[[UOp], float]
Prepare = Callable[[Sequence[UOp]], None]
Progress = Callable[[int, int, float], None]
Move = TypeVar("Move")


class Dropped(Exception):  # noqa: N818 - it ends a candidate, not the search
    """A candidate that cannot be measured: what became of it (`crashed`, `hung`, …), and why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind, self.reason = kind, reason


@dataclass(frozen=True)
class Limits:
    """When a search ends: seconds, candidates measured, steps; and how many a step measures."""

    seconds: float = 14.0
    candidates: int = 64
    steps: int = 8
    each_step: int = 18

    @staticmethod
    def for_width(width: int) -> Limits:
        """A wider beam may try more."""
        return Limits(6.0 + 2.0 * width, 24 + 10 * width, 8, 10 + 2 * width)


def search(
    sink: UOp,
    target: Target,
    measure: Measure,
    *,
    width: int,
    limits: Limits | None = None,
    prepare: Prepare = lambda sinks: None,
    progress: Progress = lambda done, total, best: None,
) -> SearchReport:
    """Find actions for a kernel (LOOP form, ranges simplified); `report.actions` is the result.

    The heuristic's actions are the result where nothing measured is clearly faster.
    prepare: is told what will be measured next, which may be compiled meanwhile.
    Errors: Dropped when the heuristic's own choice cannot be measured.
    """
    limits = limits or Limits.for_width(width)
    return _Search(sink, target, measure, width, limits, prepare, progress).run()


@dataclass(frozen=True)
class _Candidate:
    """A list of actions, the named kernel that it leads to, and how long that takes."""

    actions: Actions
    sink: UOp
    estimate: float
    family: str = "the heuristic"
    guess: float = math.inf
    """How long it may take: as its estimate, from that and the time of what it was made of."""
    seconds: float = math.inf


class _Search:
    """One search: what was seen, what is best, what is left of the budget."""

    def __init__(
        self,
        sink: UOp,
        target: Target,
        measure: Measure,
        width: int,
        limits: Limits,
        prepare: Prepare,
        progress: Progress,
    ) -> None:
        self.sink, self.target, self.measure = sink, target, measure
        self.width, self.limits = width, limits
        self.prepare, self.progress = prepare, progress
        self.report = SearchReport()
        self.start = time.monotonic()
        self.applied: dict[tuple[UOp, Action], UOp | ActionError] = {}
        self.seen: set[str] = set()
        self.tried: set[Actions] = set()
        self.expanded: set[Actions] = set()
        self.waiting: dict[str, list[_Candidate]] = {}
        self.allowed = math.inf
        self.best: _Candidate | None = None
        self.moves = Moves(sink, target, self.apply, self._choose)

    def run(self) -> SearchReport:
        """Measure the beginnings, then go on from the best."""
        first = self._heuristic()
        beam = self._measured([first], self._beginnings(first))
        idle = 0
        while idle < 2 and len(self.report.steps) < self.limits.steps and not self._is_over():
            before = beam[0].seconds
            beam = self._measured(beam, self._next(beam))
            self.report.steps.append(beam[0].seconds)
            idle = idle + 1 if beam[0].seconds > before * (1 - LEAST_GAIN) else 0
        self.report.ended = self._reason_of_end(idle)
        self._confirm(first, beam[0])
        self.report.took = time.monotonic() - self.start
        return self.report

    # ---- beginnings -------------------------------------------------------------------------

    def _heuristic(self) -> _Candidate:
        """The heuristic's choice sets the scale: how long sums may be, and what it costs."""
        plan = choose(self.sink, self.target)
        self.allowed = allowed_sum(self.sink, longest_sum(plan.sink))
        found = self._candidate(tuple(plan.actions), is_heuristic=True)
        assert found is not None, "the first candidate is like no other"
        self._is_new(found)
        self.best = self._timed(_ready(found))
        if self.best is None:
            raise Dropped(*self.report.dropped[-1][1:])
        self.report.heuristic_seconds = self.best.seconds
        return self.best

    def _beginnings(self, first: _Candidate) -> list[_Candidate]:
        """Plain loops, where they are not hopeless, and the heuristic after one other action."""
        if estimated_us(self.sink, self.target) < PLAIN_IS_NEAR * first.estimate:
            self._note("plain", first, self._candidate(_PLAIN, is_heuristic=True))
        for family, actions in self._for_a_while(self.moves.beginnings()):
            self._note(family, first, self._candidate(actions))
        return self._in_turn(self.limits.each_step // 3)

    def _next(self, beam: list[_Candidate]) -> list[_Candidate]:
        """What follows from each of the beam, the most promising of each family in turn.

        What is not measured in this step may be in the next one.
        """
        fresh = [candidate for candidate in beam if candidate.actions not in self.expanded]
        del fresh[EXPANDED:]
        self.expanded.update(candidate.actions for candidate in fresh)
        made = ((parent, move) for parent in fresh for move in self.moves.after(parent.actions))
        for parent, (family, actions) in self._for_a_while(made):
            if actions not in self.tried:
                self._note(family, parent, self._candidate(actions))
        return self._in_turn(self.limits.each_step)

    def _for_a_while(self, moves: Iterable[Move]) -> Iterator[Move]:
        """The moves that are thought of in a part of the time: the rest is for measuring them."""
        end = time.monotonic() + THINKING * self.limits.seconds
        for move in moves:
            if time.monotonic() > end or self._is_over():
                return
            yield move

    def _note(self, family: str, parent: _Candidate, candidate: _Candidate | None) -> None:
        """Keep a candidate until its turn comes to be measured."""
        if candidate is not None:
            guess = parent.seconds * candidate.estimate / max(parent.estimate, 1e-9)
            guess *= 1 + LONGER * (len(candidate.actions) - len(parent.actions))
            waits = self.waiting.setdefault(family, [])
            waits.append(replace(candidate, family=family, guess=guess))

    def _in_turn(self, most: int) -> list[_Candidate]:
        """The most promising of each family, the second of each, …, at *most* so many."""
        chosen: list[_Candidate] = []
        for waits in self.waiting.values():
            waits.sort(key=lambda candidate: candidate.guess)
        while len(chosen) < most and any(self.waiting.values()):
            families = sorted(filter(None, self.waiting.values()), key=lambda w: w[0].guess)
            for waits in families:
                candidate = waits.pop(0)
                if len(chosen) < most and self._is_new(candidate):
                    chosen.append(candidate)
                elif len(chosen) == most:
                    waits.insert(0, candidate)
        return chosen

    # ---- candidates -------------------------------------------------------------------------

    def apply(self, sink: UOp, action: Action) -> UOp:
        """One action, tried once on each kernel. Errors: ActionError, also where it breaks."""
        known = self.applied.get((sink, action))
        if known is None:
            known = self.applied[sink, action] = self._apply(sink, action)
        if isinstance(known, ActionError):
            raise known
        return known

    def _apply(self, sink: UOp, action: Action) -> UOp | ActionError:
        try:
            return apply_action(sink, action, self.target)
        except ActionError as problem:
            reason = problem
        except (PellucidError, *_BROKEN) as problem:
            broke = f"it broke with {type(problem).__name__}"
            reason = ActionError(action.kind, f"axis {action.axis}", broke)
        self.report.refused[f"{action.kind}: {reason.reason}"] += 1
        return reason

    def _choose(self, sink: UOp) -> Actions | None:
        """What the heuristic makes of a kernel that an action has changed before, if anything."""
        try:
            return tuple(choose(sink, self.target).actions)
        except (PellucidError, *_BROKEN) as problem:
            self.report.refused[f"the heuristic broke with {type(problem).__name__}"] += 1
            return None

    def _candidate(self, actions: Actions, *, is_heuristic: bool = False) -> _Candidate | None:
        """Apply a list, and look whether it is worth being measured; None where it is not."""
        self.tried.add(actions)
        sink = self.sink
        try:
            for action in actions:
                sink = self.apply(sink, action)
        except ActionError as problem:
            if is_heuristic:
                raise Dropped("refused", f"the heuristic's own choice: {problem}") from problem
            return None
        estimate = estimated_us(sink, self.target)
        if not is_heuristic and self._is_hopeless(sink, estimate):
            return None
        return _Candidate(actions, sink, estimate)

    def _is_hopeless(self, raw: UOp, estimate: float) -> bool:
        """Count why a candidate is not worth compiling, if it is not."""
        reason = None
        if longest_sum(raw) > self.allowed:
            reason = "its sums would round more than they may"
        elif num_expanded(raw) > MOST_NODES:
            reason = f"copies would make it larger than {MOST_NODES} operations"
        elif self.best is not None and estimate > self.best.estimate * MUCH_SLOWER:
            reason = "the cost model calls it much slower than the best"
        if reason is not None:
            self.report.pruned[reason] += 1
        return reason is not None

    def _is_new(self, candidate: _Candidate) -> bool:
        """False for a kernel that was measured already, whatever list has led to it."""
        sink = _renumbered(simplify(candidate.sink))
        key = sink.replace(arg=KernelInfo(hints=sink.arg.hints)).key
        is_new = key not in self.seen
        self.seen.add(key)
        self.report.equal += not is_new
        return is_new

    # ---- measuring --------------------------------------------------------------------------

    def _measured(self, beam: list[_Candidate], others: list[_Candidate]) -> list[_Candidate]:
        """The *width* fastest of all, fastest first."""
        others = [_ready(candidate) for candidate in others]
        self.prepare([candidate.sink for candidate in others])
        found = list(beam)
        for candidate in others:
            if self._is_over():
                break
            timed = self._timed(candidate)
            found += [timed] if timed is not None else []
        return sorted(found, key=lambda c: c.seconds)[: self.width]

    def _timed(self, candidate: _Candidate) -> _Candidate | None:
        """Measure; None, with the reason in the report, for what cannot be measured."""
        try:
            seconds = self.measure(candidate.sink)
        except Dropped as problem:
            self.report.dropped.append((candidate.actions, problem.kind, problem.reason))
            return None
        finally:
            self.report.measured += 1
            self.report.tried[candidate.family] += 1
            best = self.best.seconds if self.best is not None else 0.0
            self.progress(self.report.measured, self.limits.candidates, best)
        found = replace(candidate, seconds=seconds)
        if not candidate.actions:
            self.report.plain_seconds = seconds
        self.report.note(candidate.actions, candidate.family, seconds)
        if self.best is None or seconds < self.best.seconds:
            self.best = found
        return found

    def _is_over(self) -> bool:
        seconds = time.monotonic() - self.start
        return seconds > self.limits.seconds or self.report.measured >= self.limits.candidates

    def _reason_of_end(self, idle: int) -> str:
        if idle >= 2:
            return "two steps gained nothing"
        if self.report.measured >= self.limits.candidates:
            return "enough candidates were measured"
        return "its time was over" if self._is_over() else "enough steps were taken"

    def _confirm(self, first: _Candidate, best: _Candidate) -> None:
        """Measure the best and the heuristic's choice in turn; keep the latter when in doubt.

        The best of many measurements is also the luckiest: only what is measured now counts.
        """
        now = {first: first.seconds}
        if best is not first:
            try:
                now = dict.fromkeys((first, best), math.inf)
                for candidate in (first, best) * CONFIRMATIONS:
                    seconds = self.measure(candidate.sink)
                    now[candidate] = min(now[candidate], seconds)
            except Dropped as problem:
                self.report.dropped.append((best.actions, problem.kind, problem.reason))
                now = {first: first.seconds}
        if now.get(best, math.inf) > now[first] * (1 - CLEARLY):
            best = first
        self.report.heuristic_seconds = now[first]
        self.report.actions, self.report.seconds = best.actions, now[best]


_BROKEN = (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError)
"""What a mistake in an action looks like: the search goes on without it, and says so."""


def _ready(candidate: _Candidate) -> _Candidate:
    """The kernel as `apply_actions` leaves it, all candidates under one name."""
    info: KernelInfo = candidate.sink.arg
    sink = simplify(candidate.sink) if candidate.actions else candidate.sink
    asked = dataclasses.replace(info, actions=candidate.actions, applied=candidate.actions)
    return replace(candidate, sink=sink.replace(arg=asked))


def _renumbered(sink: UOp) -> UOp:
    """Number the RANGEs by their order: lists of actions may lead to one kernel on several ways."""
    axes = axes_of(sink)
    return sink.substitute(
        {r: r.replace(arg=RangeArg(place, r.arg.kind)) for place, r in enumerate(axes)}
    )


# ---- its size ----------------------------------------------------------------------------------


def num_expanded(sink: UOp) -> int:
    """About how many operations are left when copies have been made.

    >>> from pellucid.core.dtype import dtypes
    >>> i = UOp.range(8, 0, AxisKind.UPCAST)
    >>> num_expanded(UOp.sink(i * 4))  # 8 of i, of the product and of the root; two literals
    26
    """
    total = 0
    for node in sink.toposort():
        copies = 1
        for r in own_ranges(node):
            if r.arg.kind in (AxisKind.UPCAST, AxisKind.UNROLL):
                copies *= size_of(r) or 1
        total += copies
    return total
