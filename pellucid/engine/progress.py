"""How far a longer task is: told to observers at once, and on a terminal once it takes a while.

with progress("compile", "compiling kernels", 12) as advance:     compiling kernels ━━━━╸  7/12
    advance(7)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pellucid.core import observe
from pellucid.core.options import current_options

PATIENCE_SECONDS: Final = 0.7
"""How long a task may take before its progress is shown."""


@contextmanager
def progress(task: str, label: str, total: int) -> Iterator[Callable[..., None]]:
    """Give a function that is told how many of *total* steps are done, and perhaps a new label."""
    start = time.perf_counter()
    bar: list[Any] = []
    wanted = current_options().progress
    is_shown = wanted == "on" or (wanted == "auto" and sys.stderr.isatty())

    def advance(done: int, label_now: str = label) -> None:
        if observe.watching:
            observe.progress(task, done, total)
        waited = time.perf_counter() - start
        if is_shown and not bar and done < total and waited > PATIENCE_SECONDS:
            bar.extend(_start_bar(label_now, total))
        if bar:
            bar[0].update(bar[1], completed=done, description=label_now)

    try:
        yield advance
    finally:
        if bar:
            bar[0].stop()


def _start_bar(label: str, total: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import Progress

    shown = Progress(console=Console(stderr=True), transient=True)
    shown.start()
    return shown, shown.add_task(label, total=total)
