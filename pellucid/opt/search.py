"""Beam search: the actions with which a kernel runs fastest, found by measuring.

    plain loops                           the heuristic's choice            measured first
      + one action, or one changed          + one action, or one changed    each that is legal
    the *width* fastest so far   ->   one more step from each, until two steps gain nothing

Before anything is compiled, a candidate is left out when an action refuses, when its kernel is one
that was measured before, when it would round sums more than it may, when it would become too large,
or when the cost model says that it is much slower than the best.

`measure(sink) -> seconds` is passed in: this file knows no device. It raises `Dropped` for what
does not compile, crashes, hangs or computes something else; the report keeps the reason.

Source: B. T. Lowerre, "The HARPY speech recognition system", 1976 (beam search).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pellucid.core.errors import ActionError, PellucidError
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind, KernelInfo, RangeArg
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp
from pellucid.opt.actions import apply_action
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.cost import Costs, own_ranges
from pellucid.opt.heuristic import choose
from pellucid.opt.moves import Actions, moves
from pellucid.opt.report import SearchReport
from pellucid.opt.rounding import allowed_sum, longest_sum

SEARCH_VERSION: Final = 1
"""Counts changes of what is tried, which make older results unwanted."""
LEAST_GAIN: Final = 0.01
"""A step that gains less than this part gained nothing."""
CONFIRMATIONS: Final = 5
"""How often the result is measured against the heuristic's choice before it is taken."""
MUCH_SLOWER: Final = 4.0
"""How many times the estimate of the best a candidate's may be."""
MOST_NODES: Final = 4000
"""How large copies may make a kernel."""
_PLAIN: Final[Actions] = ()

Measure = Callable[[UOp], float]
Progress = Callable[[int, int, float], None]


class Dropped(Exception):  # noqa: N818 - it ends a candidate, not the search
    """A candidate that cannot be measured: what became of it (`crashed`, `hung`, …), and why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind, self.reason = kind, reason


@dataclass(frozen=True)
class Limits:
    """When a search ends: seconds, candidates measured, steps; and how many a step measures."""

    seconds: float = 30.0
    candidates: int = 160
    steps: int = 12
    each_step: int = 32

    @staticmethod
    def for_width(width: int) -> Limits:
        """A wider beam may try more."""
        return Limits(15.0 + 5.0 * width, 64 + 32 * width, 12, 16 + 8 * width)


def search(
    sink: UOp,
    target: Target,
    measure: Measure,
    *,
    width: int,
    limits: Limits | None = None,
    progress: Progress = lambda done, total, best: None,
) -> SearchReport:
    """Find actions for a kernel (LOOP form, ranges simplified); `report.actions` is the result.

    The heuristic's actions are the result where nothing measured is faster.
    Errors: Dropped when the heuristic's own choice cannot be measured.
    """
    limits = limits or Limits.for_width(width)
    return _Search(sink, target, measure, width, limits, progress).run()


@dataclass(frozen=True)
class _Candidate:
    """A list of actions, the named kernel that it leads to, and how long that takes."""

    actions: Actions
    sink: UOp
    seconds: float
    estimate: float


class _Search:
    """One search: what was seen, what is best, what is left of the budget."""

    def __init__(
        self,
        sink: UOp,
        target: Target,
        measure: Measure,
        width: int,
        limits: Limits,
        progress: Progress,
    ) -> None:
        self.sink, self.target, self.measure = sink, target, measure
        self.width, self.limits, self.progress = width, limits, progress
        self.report = SearchReport()
        self.start = time.monotonic()
        self.applied: dict[Actions, UOp | None] = {_PLAIN: sink}
        self.seen: dict[str, float | None] = {}
        self.tried: set[Actions] = set()
        self.allowed = float("inf")
        self.best: _Candidate | None = None

    def run(self) -> SearchReport:
        """Measure the two starts, then go on from the best."""
        heuristic = tuple(choose(self.sink, self.target).actions)
        first = self._heuristic(heuristic)
        plain = self._try(_PLAIN, is_start=True)
        self.report.heuristic_seconds = first.seconds
        self.report.plain_seconds = None if plain is None else plain.seconds
        starts = [first, plain] if plain is not None and plain is not first else [first]
        beam = sorted(starts, key=lambda c: c.seconds)[: self.width]
        self.best = beam[0]
        idle = 0
        while idle < 2 and len(self.report.steps) < self.limits.steps and not self._is_over():
            before = self.best.seconds
            beam = self._step(beam)
            self.best = beam[0]
            self.report.steps.append(self.best.seconds)
            idle = idle + 1 if self.best.seconds > before * (1 - LEAST_GAIN) else 0
        self.report.ended = self._reason_of_end(idle)
        self._confirm(first)
        self.report.took = time.monotonic() - self.start
        return self.report

    def _heuristic(self, actions: Actions) -> _Candidate:
        """The heuristic's choice sets the scale: how long sums may be, and what it costs."""
        sink = self._apply(actions)
        if sink is None:
            raise Dropped("refused", "the heuristic's own choice is not legal")
        self.allowed = allowed_sum(self.sink, longest_sum(sink))
        found = self._try(actions, is_start=True)
        if found is None:
            kind, reason = self.report.dropped[-1][1:] if self.report.dropped else ("refused", "")
            raise Dropped(kind, reason)
        return found

    # ---- steps ------------------------------------------------------------------------------

    def _step(self, beam: list[_Candidate]) -> list[_Candidate]:
        """Try what follows from each of the beam; the new beam, fastest first."""
        found = list(beam)
        measured = self.report.measured
        lists = [moves(c.actions, self._apply(c.actions) or c.sink, self.target) for c in beam]
        for actions in _in_turn(lists):
            if self.report.measured - measured >= self.limits.each_step or self._is_over():
                break
            if actions not in self.tried:
                candidate = self._try(actions)
                found += [candidate] if candidate is not None else []
        return sorted(found, key=lambda c: c.seconds)[: self.width]

    def _is_over(self) -> bool:
        seconds = time.monotonic() - self.start
        return seconds > self.limits.seconds or self.report.measured >= self.limits.candidates

    def _reason_of_end(self, idle: int) -> str:
        if idle >= 2:
            return "two steps gained nothing"
        if self.report.measured >= self.limits.candidates:
            return "enough candidates were measured"
        return "its time was over" if self._is_over() else "enough steps were taken"

    def _confirm(self, first: _Candidate) -> None:
        """Measure the best and the heuristic's choice in turn; keep the latter when in doubt.

        The best of many measurements is also the luckiest: only what is measured now counts.
        """
        best = self.best
        assert best is not None, "a search starts with candidates"
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
        if now.get(best, math.inf) > now[first] * (1 - LEAST_GAIN):
            best = first
        self.report.heuristic_seconds = now[first]
        self.report.actions, self.report.seconds = best.actions, now[best]

    # ---- one candidate ----------------------------------------------------------------------

    def _try(self, actions: Actions, *, is_start: bool = False) -> _Candidate | None:
        """Apply, look whether it is worth it, measure; None where that ends early."""
        self.tried.add(actions)
        raw = self._apply(actions)
        if raw is None:
            return None
        estimate = estimated_us(raw, self.target)
        if not is_start and self._is_hopeless(raw, estimate):
            return None
        sink = _named(simplify(raw), actions)
        key = _renumbered(sink).replace(arg=KernelInfo(hints=sink.arg.hints)).key
        if key in self.seen:
            self.report.equal += 1
            return None if not is_start or self.best is None else self.best
        self.seen[key] = None
        try:
            seconds = self.measure(sink)
        except Dropped as problem:
            self.report.dropped.append((actions, problem.kind, problem.reason))
            return None
        finally:
            self.report.measured += 1
            best = self.best.seconds if self.best is not None else 0.0
            self.progress(self.report.measured, self.limits.candidates, best)
        self.seen[key] = seconds
        found = _Candidate(actions, sink, seconds, estimate)
        if self.best is None or seconds < self.best.seconds:
            self.best = found
        return found

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

    def _apply(self, actions: Actions) -> UOp | None:
        """The kernel after *actions*; None, and the reason is counted, where one is refused."""
        if actions not in self.applied:
            before = self._apply(actions[:-1])
            self.applied[actions] = None if before is None else self._one(before, actions[-1])
        return self.applied[actions]

    def _one(self, sink: UOp, action: Action) -> UOp | None:
        try:
            return apply_action(sink, action, self.target)
        except ActionError as problem:
            self.report.refused[f"{action.kind}: {problem.reason}"] += 1
        except (PellucidError, *_BROKEN) as problem:
            self.report.refused[f"{action.kind}: it broke with {type(problem).__name__}"] += 1
        return None


_BROKEN = (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError)
"""What a mistake in an action looks like: the search goes on without it, and says so."""


def _in_turn(lists: list[list[Actions]]) -> Iterable[Actions]:
    """The first of each, the second of each, …"""
    longest = max(map(len, lists), default=0)
    return (some[place] for place in range(longest) for some in lists if place < len(some))


def _named(sink: UOp, actions: Actions) -> UOp:
    """The kernel as `apply_actions` leaves it, all candidates under one name."""
    info: KernelInfo = sink.arg
    return sink.replace(arg=dataclasses.replace(info, actions=actions, applied=actions))


def _renumbered(sink: UOp) -> UOp:
    """Number the RANGEs by their order: lists of actions may lead to one kernel on several ways."""
    axes = axes_of(sink)
    return sink.substitute(
        {r: r.replace(arg=RangeArg(place, r.arg.kind)) for place, r in enumerate(axes)}
    )


# ---- the cost model ------------------------------------------------------------------------------


def estimated_us(sink: UOp, target: Target) -> float:
    """About how long a kernel takes, as far as lanes and threads tell."""
    axes = axes_of(sink)
    lanes = {r: size_of(r) or 1 for r in axes if r.arg.kind is AxisKind.LANES}
    time_us = Costs(sink, target).time_us(lanes)
    threads = [size_of(r) or 1 for r in axes if r.arg.kind is AxisKind.THREAD]
    return time_us / min(max(threads, default=1), target.cores)


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
