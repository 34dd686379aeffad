"""Count work instead of timing it: a loaded machine makes time longer, but no count."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls_in(function: Callable[[], object]) -> int:
    """How many Python functions and generators a call of *function* enters, itself not counted."""
    count = 0

    def see(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

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
    sys.settrace(see)
    try:
        function()
    finally:
        sys.settrace(before)
    return count
