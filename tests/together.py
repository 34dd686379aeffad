"""Calls at the same time: many tests ask whether something holds when several threads do it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


def in_threads(work: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> None:
    """Call *work* once with each of the arguments in *calls*, each in a thread; wait for all."""
    threads = [threading.Thread(target=work, args=arguments) for arguments in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
