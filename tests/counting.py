"""Count work instead of timing it: a loaded machine makes time longer, but no count."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pellucid.ir.uop import clear_dead


@contextmanager
def _alone() -> Iterator[None]:
    """Count nothing of what others left to be cleared away: nodes that died, and cycles."""
    gc.collect()
    clear_dead()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def calls_in(function: Callable[[], object]) -> int:
    """How many Python functions and generators a call of *function* enters, itself not counted."""
    count = 0

    def see(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    with _alone():
        sys.setprofile(see)
        try:
            function()
        finally:
            sys.setprofile(None)
    return count - 1


def lines_in(function: Callable[[], object]) -> int:
    """How many lines of Python a call of *function* runs: turns of a loop count, called or not."""
    count = 0

    def see(frame: object, event: str, arg: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return see

    before = sys.gettrace()
    with _alone():
        sys.settrace(see)
        try:
            function()
        finally:
            sys.settrace(before)
    return count
