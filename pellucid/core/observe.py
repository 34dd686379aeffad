"""Who is told what the compiler does, and why.

The rewriter, the pipeline and the engine report to observers; they never know who listens. Nobody
listening costs one test of a module variable, so reports may stand in the hottest loop:

    if observe.watching:
        observe.rewrite(law.name, before, after)

An observer belongs to the code that set it, as options do: another thread is not observed.
Observers nest, and each of them hears everything. Graph nodes are opaque here: an observer that
looks into them lives on a higher floor (tools).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import field
from typing import NamedTuple

from pellucid.core.records import dataclass


class Observer:
    """What can be heard. Inherit from it and override what you want to hear."""

    def on_stage(self, name: str, before: object, after: object, seconds: float) -> None:
        """Stage *name* turned graph *before* into *after*."""

    def on_rewrite(self, law: str, before: object, after: object) -> None:
        """The law or rule named *law* replaced node *before* by *after*."""

    def on_decline(self, law: str, reason: str, node: object) -> None:
        """The rule named *law* stepped aside at *node*, for *reason*."""

    def on_decision(self, kind: str, what: object, reason: str) -> None:
        """A choice was made (a kernel boundary, a tile): of *kind*, about *what*, for *reason*."""

    def on_compile(self, kernel: str, seconds: float, size_bytes: int, cached: bool) -> None:
        """A kernel was compiled, or found in a cache."""

    def on_progress(self, task: str, done: int, total: int) -> None:
        """*done* of *total* steps of a longer *task* are finished."""


watching: int = 0
"""How many observers are set, in all threads: while it is 0, nothing needs to be reported."""

_lock = threading.Lock()
_observers: ContextVar[tuple[Observer, ...]] = ContextVar("pellucid_observers", default=())


def observers() -> tuple[Observer, ...]:
    """Give the observers that listen here, the outermost first."""
    return _observers.get()


@contextlib.contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let *observer* listen to all that this thread does in a block."""
    token = _observers.set((*_observers.get(), observer))
    _count(+1)
    try:
        yield
    finally:
        _count(-1)
        _observers.reset(token)


def _count(change: int) -> None:
    global watching
    with _lock:
        watching += change


def stage(name: str, before: object, after: object, seconds: float) -> None:
    """Report that a stage has run."""
    for observer in _observers.get():
        observer.on_stage(name, before, after, seconds)


def rewrite(law: str, before: object, after: object) -> None:
    """Report that a law has fired."""
    for observer in _observers.get():
        observer.on_rewrite(law, before, after)


def decline(law: str, reason: str, node: object) -> None:
    """Report that a rule has stepped aside."""
    for observer in _observers.get():
        observer.on_decline(law, reason, node)


def decision(kind: str, what: object, reason: str) -> None:
    """Report a choice."""
    for observer in _observers.get():
        observer.on_decision(kind, what, reason)


def compiled(kernel: str, seconds: float, size_bytes: int, cached: bool) -> None:
    """Report that a kernel is ready."""
    for observer in _observers.get():
        observer.on_compile(kernel, seconds, size_bytes, cached)


def progress(task: str, done: int, total: int) -> None:
    """Report how far a longer task is."""
    for observer in _observers.get():
        observer.on_progress(task, done, total)


class StageEvent(NamedTuple):
    """A stage that ran."""

    name: str
    before: object
    after: object
    seconds: float


class RewriteEvent(NamedTuple):
    """A law that fired."""

    law: str
    before: object
    after: object


class DeclineEvent(NamedTuple):
    """A rule that stepped aside."""

    law: str
    reason: str
    node: object


class DecisionEvent(NamedTuple):
    """A choice that was made."""

    kind: str
    what: object
    reason: str


class CompileEvent(NamedTuple):
    """A kernel that became ready."""

    kernel: str
    seconds: float
    size_bytes: int
    cached: bool


class ProgressEvent(NamedTuple):
    """A step of a longer task."""

    task: str
    done: int
    total: int


@dataclass
class Recorder(Observer):
    """Writes down everything it hears."""

    stages: list[StageEvent] = field(default_factory=list)
    rewrites: list[RewriteEvent] = field(default_factory=list)
    declines: list[DeclineEvent] = field(default_factory=list)
    decisions: list[DecisionEvent] = field(default_factory=list)
    compiles: list[CompileEvent] = field(default_factory=list)
    progress: list[ProgressEvent] = field(default_factory=list)

    def on_stage(self, name: str, before: object, after: object, seconds: float) -> None:
        self.stages.append(StageEvent(name, before, after, seconds))

    def on_rewrite(self, law: str, before: object, after: object) -> None:
        self.rewrites.append(RewriteEvent(law, before, after))

    def on_decline(self, law: str, reason: str, node: object) -> None:
        self.declines.append(DeclineEvent(law, reason, node))

    def on_decision(self, kind: str, what: object, reason: str) -> None:
        self.decisions.append(DecisionEvent(kind, what, reason))

    def on_compile(self, kernel: str, seconds: float, size_bytes: int, cached: bool) -> None:
        self.compiles.append(CompileEvent(kernel, seconds, size_bytes, cached))

    def on_progress(self, task: str, done: int, total: int) -> None:
        self.progress.append(ProgressEvent(task, done, total))


@contextlib.contextmanager
def record() -> Iterator[Recorder]:
    """Write down all that this thread reports in a block.

    >>> with record() as seen:
    ...     decision("kernel boundary", "%7", "a reduction is read by two kernels")
    >>> seen.decisions[0].reason
    'a reduction is read by two kernels'
    """
    recorder = Recorder()
    with observed_by(recorder):
        yield recorder
