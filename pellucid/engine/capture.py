"""What a jit hears while it captures a function: draws of random numbers, reads, realisations.

    with capturing() as heard: fn(...)     draws are noted, `realize` waits, reading is an error

The listener belongs to the thread that captures.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Final, Protocol

from pellucid.core.errors import JitError
from pellucid.core.records import dataclass
from pellucid.ir.uop import UOp


class Stream(Protocol):
    """Where random numbers come from (engine/generator.py)."""

    key: int

    def advance(self, count: int) -> int:
        """Take *count* numbers; return the place of the first."""


@dataclass
class Draw:
    """A draw of *count* random numbers, whose counter stands in *buffer*."""

    generator: Stream
    buffer: UOp
    count: int


@dataclass
class GradientNote:
    """The gradient of a leaf was set: what it was, and whether it was replaced or added to."""

    leaf: Any
    before: Any
    is_replaced: bool


@dataclass
class Listener:
    """What happened during one capture, in its thread."""

    draws: list[Draw] = field(default_factory=list)
    made: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """The storages (engine/storage.py) that were made, by identity."""
    written: dict[int, Any] = field(default_factory=dict)
    """The storages that are older and were written to."""
    gradients: dict[int, GradientNote] = field(default_factory=dict)


_listener: ContextVar[Listener | None] = ContextVar("pellucid_capture", default=None)


listener: Final = _listener.get
"""The capture that is under way in this thread, if any."""


@contextlib.contextmanager
def capturing() -> Iterator[Listener]:
    """Listen to what happens in a block."""
    heard = Listener()
    token = _listener.set(heard)
    try:
        yield heard
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Do something during a capture that is no part of it."""
    token = _listener.set(None)
    try:
        yield
    finally:
        _listener.reset(token)


def note_gradient(leaf: Any, before: Any, *, is_replaced: bool) -> None:
    """Tell the capture, if there is one, that the gradient of a leaf changes (the first time)."""
    heard = _listener.get()
    if heard is not None:
        heard.gradients.setdefault(id(leaf), GradientNote(leaf, before, is_replaced))


def note_draw(generator: Stream, buffer: UOp, count: int) -> None:
    """Tell the capture, if there is one, of a draw."""
    heard = _listener.get()
    if heard is not None:
        heard.draws.append(Draw(generator, buffer, count))


def forbid(what: str, instead: str) -> None:
    """Raise JitError if a function is being captured: what it does now would not happen again."""
    if _listener.get() is not None:
        raise JitError(f"{what} cannot be part of a function that jit captures", help=instead)


def forbid_reading(what: str) -> None:
    """Raise JitError if a function is being captured: later calls would read other values."""
    if _listener.get() is not None:
        raise JitError(
            f"{what} reads a value while the function is being captured by jit",
            help="return the tensor from the function and read it outside, or keep it a tensor",
        )
