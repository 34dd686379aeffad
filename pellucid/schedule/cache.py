"""Schedules that were made before, by the content of their graphs.

    (content of the normalised graph, devices, pending slots, device, machine)  ->  Template

A template names storage by number only; whoever finds it gives it storage (api.py). Safe to use
from several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from pellucid.core.records import dataclass
from pellucid.schedule.kernels import Call, Storage

MAX_CACHED = 512
"""Schedules that are kept."""

Key = tuple[object, ...]


@dataclass(frozen=True)
class Template:
    """A schedule without its storage, which is only numbered.

    outputs, checks: the storages of outputs and of flags, in the order of the graph.
    """

    calls: tuple[Call, ...]
    storages: tuple[Storage, ...]
    outputs: tuple[int, ...]
    checks: tuple[int, ...]


@dataclass
class CacheCounts:
    """How often a schedule was found, and how often not."""

    hits: int = 0
    misses: int = 0


class ScheduleCache:
    """Templates by key; the least recently used is forgotten first.

    >>> cache = ScheduleCache(capacity=1)
    >>> cache.get(("a",)) is None, cache.counts
    (True, CacheCounts(hits=0, misses=1))
    """

    def __init__(self, capacity: int = MAX_CACHED) -> None:
        self.capacity = capacity
        self.counts = CacheCounts()
        self._known: OrderedDict[Key, Template] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Template | None:
        """The template that was put under *key*, if it is still known."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                self.counts.misses += 1
                return None
            self.counts.hits += 1
            self._known.move_to_end(key)
            return found

    def put(self, key: Key, template: Template) -> None:
        """Keep *template*."""
        with self._lock:
            self._known[key] = template
            while len(self._known) > self.capacity:
                self._known.popitem(last=False)

    def clear(self) -> None:
        """Forget everything, and count from zero."""
        with self._lock:
            self._known.clear()
            self.counts = CacheCounts()


schedule_cache = ScheduleCache()
"""The cache that `schedule` uses."""
