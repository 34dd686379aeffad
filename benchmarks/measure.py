"""Measure works: each framework in its process, results compared first, rounds interleaved.

    prepare A B C   ->  compare B and C with A  ->  time A B C  A B C  A B C

A framework whose result differs, that lacks what a work needs, or that fails is noted with the
reason and not timed; the others go on. First calls and compilations get a new process each time.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.client import WorkerError, WorkerProcess
from benchmarks.frameworks import OWN
from benchmarks.frameworks.base import Array, Unavailable
from benchmarks.work import Limit, Measure, Ratio, Seconds, Work, difference

COMPARED_TRAINING_STEPS = 3
LIMIT_SECONDS = 2.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    frameworks: tuple[str, ...]
    rounds: int = 5
    seconds: float = 0.2
    """For one framework's turn in a round."""
    is_tiny: bool = False


@dataclass
class Figure:
    """What was found out about one framework at one work."""

    framework: str
    samples: list[float] = field(default_factory=list)
    """Seconds of a call; CPU seconds for first calls and compilations."""
    first_seconds: float | None = None
    first_cpu_seconds: float | None = None
    difference: float | None = None
    """Largest relative difference from the reference; None for the reference itself."""
    note: str = ""
    """Why there is no time, if there is none."""

    @property
    def best(self) -> float | None:
        """The least time."""
        return min(self.samples, default=None)

    @property
    def median(self) -> float | None:
        """The time in the middle."""
        return statistics.median(self.samples) if self.samples else None


@dataclass(frozen=True)
class Verdict:
    """A limit and what came: *value* is a ratio or seconds, None if there is nothing to compare."""

    limit: Limit
    value: float | None
    against: str = ""
    """The peer that was the best."""

    @property
    def holds(self) -> bool | None:
        """Tell whether the limit is kept; None when that is unknown."""
        return None if self.value is None else self.value <= self.limit.at_most


@dataclass
class Row:
    """Everything about one work with one number of threads."""

    work: Work
    threads: int
    figures: dict[str, Figure]

    @property
    def own(self) -> Figure | None:
        """Pellucid's figure that counts: the better of the ways that the work allows."""
        timed = [self.figures[n] for n in self.work.counted if n in self.figures]
        timed = [figure for figure in timed if figure.samples]
        if self.work.measure is not Measure.STEADY:
            timed = [f for f in self.figures.values() if f.samples and "pellucid" in f.framework]
        return min(timed, key=lambda figure: figure.best or 0.0, default=None)

    def verdicts(self) -> list[Verdict]:
        """Compare with each limit."""
        own = self.own.best if self.own else None
        return [self._verdict(limit, own) for limit in self.work.limits]

    def _verdict(self, limit: Limit, own: float | None) -> Verdict:
        if isinstance(limit, Seconds):
            return Verdict(limit, own)
        best = {n: f.best for n, f in self.figures.items() if n in limit.peers and f.best}
        if own is None or not best:
            return Verdict(limit, None)
        peer = min(best, key=lambda name: best[name] or 0.0)
        return Verdict(limit, own / (best[peer] or 1.0), peer)

    def as_data(self) -> dict[str, Any]:
        """Give the row for a JSON file."""
        return {
            "work": self.work.name,
            "threads": self.threads,
            "measure": self.work.measure.name.lower(),
            "figures": [asdict(f) | {"best": f.best, "median": f.median} for f in self._sorted()],
            "verdicts": [
                {
                    "limit": verdict.limit.title,
                    "kind": "ratio" if isinstance(verdict.limit, Ratio) else "seconds",
                    "at_most": verdict.limit.at_most,
                    "value": verdict.value,
                    "against": verdict.against,
                    "holds": verdict.holds,
                }
                for verdict in self.verdicts()
            ],
        }

    def _sorted(self) -> list[Figure]:
        return sorted(self.figures.values(), key=lambda figure: figure.best or float("inf"))


class Bench:
    """Workers for one number of threads, which live until the bench is closed."""

    def __init__(self, plan: Plan, threads: int, progress: Progress = lambda text: None) -> None:
        self.plan = plan
        self.threads = threads
        self.progress = progress
        self._workers = {name: WorkerProcess(name, threads) for name in plan.frameworks}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.stop()

    def facts(self) -> dict[str, dict[str, str]]:
        """Ask every framework what it is."""
        found: dict[str, dict[str, str]] = {}
        for name, worker in self._workers.items():
            self.progress(f"{name}: start")
            try:
                found[name] = worker.ask("facts")["facts"]
            except (Unavailable, WorkerError) as error:
                found[name] = {"not available": str(error)}
        return found

    def limits(self) -> dict[str, float]:
        """Measure the machine; nothing, if that fails."""
        self.progress("limits of the machine")
        seconds = 0.1 if self.plan.is_tiny else LIMIT_SECONDS
        try:
            with WorkerProcess("pellucid", self.threads) as worker:
                answer = worker.ask("limits", seconds=seconds, threads=self.threads)
        except (Unavailable, WorkerError):
            return {}
        limits: dict[str, float] = answer["limits"]
        return limits

    def run(self, works: Sequence[Work]) -> Iterator[Row]:
        """Measure works, one after the other."""
        for work in works:
            if work.measure is Measure.STEADY:
                yield self._steady(work)
            else:
                yield self._fresh(work)

    # ---- calls in the long run --------------------------------------------------------------

    def _steady(self, work: Work) -> Row:
        row = Row(work, self.threads, {name: Figure(name) for name in self._workers})
        with tempfile.TemporaryDirectory(prefix="pellucid-results-") as folder:
            results = {}
            for figure in row.figures.values():
                self.progress(f"{work.name}: {figure.framework} prepares")
                found = self._guarded(figure, lambda f: self._prepared(work, f, folder))
                if found:
                    results[figure.framework] = found
        compare(row, results)
        if not work.is_timed_in("numpy") and "numpy" in row.figures:
            figure = row.figures["numpy"]
            figure.note = figure.note or "checks the results only"
        for turn in range(self.plan.rounds):
            for figure in row.figures.values():
                if not figure.note:
                    self.progress(f"{work.name}: round {turn + 1}, {figure.framework}")
                    self._guarded(figure, self._timed)
        for figure in row.figures.values():
            if figure.framework in results:
                self._guarded(figure, lambda f: self._workers[f.framework].ask("drop"))
        return row

    def _guarded(self, figure: Figure, act: Callable[[Figure], Any]) -> Any:
        """Do something with a worker; what goes wrong becomes the figure's note."""
        try:
            return act(figure)
        except Unavailable as error:
            figure.note = f"not available: {error}"
        except WorkerError as error:
            figure.note = f"failed: {error}"
        return None

    def _prepared(self, work: Work, figure: Figure, folder: str) -> list[Array]:
        worker = self._workers[figure.framework]
        answer = worker.ask("prepare", work=work.name, tiny=self.plan.is_tiny)
        figure.first_seconds = answer["first_seconds"]
        figure.first_cpu_seconds = answer["first_cpu_seconds"]
        is_once = figure.framework == "numpy" and not work.numpy_is_timed
        calls = COMPARED_TRAINING_STEPS if work.is_training and not is_once else 1
        paths = worker.ask("results", folder=folder, calls=calls)["paths"]
        return [np.load(Path(path)) for path in paths]

    def _timed(self, figure: Figure) -> None:
        worker = self._workers[figure.framework]
        figure.samples += worker.ask("time", seconds=self.plan.seconds)["samples"]

    # ---- calls in a new process -------------------------------------------------------------

    def _fresh(self, work: Work) -> Row:
        names = [name for name in self._workers if work.is_timed_in(name)]
        row = Row(work, self.threads, {name: Figure(name) for name in names})
        for turn in range(self.plan.rounds):
            for figure in row.figures.values():
                if not figure.note:
                    self.progress(f"{work.name}: round {turn + 1}, {figure.framework}")
                    self._guarded(figure, lambda f: self._first(work, f))
        return row

    def _first(self, work: Work, figure: Figure) -> None:
        with WorkerProcess(figure.framework, self.threads) as worker:
            if work.measure is Measure.COMPILE:
                answer = worker.ask("compile", work=work.name, tiny=self.plan.is_tiny)
                figure.samples.append(answer["cpu_seconds"])
                return
            answer = worker.ask("prepare", work=work.name, tiny=self.plan.is_tiny)
            figure.samples.append(answer["first_cpu_seconds"])
            figure.first_cpu_seconds = min(figure.samples)
            figure.first_seconds = min(
                answer["first_seconds"], figure.first_seconds or answer["first_seconds"]
            )


def compare(row: Row, results: Mapping[str, Sequence[Array]]) -> None:
    """Compare all results with numpy's; what numpy does not compute, with the first that did.

    A figure whose results differ by more than the work's tolerance gets a note, and no time.
    """
    expected: list[Array] = []
    for name in sorted(results, key=lambda name: (name != "numpy", name in OWN)):
        figure, found = row.figures[name], results[name]
        if expected:
            pairs = zip(found, expected, strict=False)
            figure.difference = max((difference(a, b) for a, b in pairs), default=0.0)
        if (figure.difference or 0.0) <= row.work.tolerance:
            expected += found[len(expected) :]
        else:
            away, allowed = figure.difference, row.work.tolerance
            figure.note = f"wrong: off by {away:.1e}, allowed {allowed:.0e}"
