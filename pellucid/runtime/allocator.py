"""Host memory for buffers: aligned, reused, counted, and refused before the system runs out.

    allocate(1000) -> Block of 1024 bytes -> forgotten -> kept for the next of 961 to 1024

A fresh page costs more than the work that a small kernel does on it (the operating system has to
find and clear it), so freed blocks are kept by size class and handed out again. Classes are eighths
between powers of two: at most an eighth of a block is unused. Blocks of 2 MB and more start on a
2 MB boundary and ask for huge pages, which is worth 25-30 % on every stream of data.

A block may be forgotten in the middle of anything, the allocator included. It is therefore only put
on a queue and sorted in at the next request, unless it is just what that asks for: a loop that
gives back what it takes gets the same block each time. The queue's own append is called for that,
and nothing of ours: an interrupt that comes in Python code at such a moment would be lost. For the
same reason, nodes that died (ir/uop.py) may hold memory until they are cleared; that comes first.

Source: size classes after Evans, "A scalable concurrent malloc(3) implementation for
FreeBSD", 2006.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from pellucid.core.errors import AllocationError
from pellucid.core.records import dataclass
from pellucid.ir.uop import clear_dead

ALIGNMENT_BYTES: Final = 64
HUGE_PAGE_BYTES: Final = 2 << 20
_CHECK_EVERY_BYTES: Final = 16 << 20


Span = tuple[int, int, object]
"""Address, capacity, and what keeps the memory there: all that an allocator needs to know."""


class _Lease(weakref.ref["Block"]):
    """Says that a span is in use as a block, and joins a queue when the block is forgotten."""

    __slots__ = ("span",)
    span: Span


class _Home:
    """Where blocks come back to: their leases, and the queue of those that have ended."""

    __slots__ = ("leases", "queue")

    def __init__(self) -> None:
        self.leases: set[_Lease] = set()
        self.queue: deque[_Lease] = deque()


class Block:
    """A span of memory in use; it goes back to its allocator when the last user forgets it."""

    __slots__ = ("__weakref__", "_span", "address")

    def __init__(self, span: Span, home: _Home | None) -> None:
        self.address = span[0]
        self._span = span
        if home is not None:
            lease = _Lease(self, home.queue.append)
            lease.span = span
            home.leases.add(lease)

    @property
    def capacity(self) -> int:
        """Bytes that may be used."""
        return self._span[1]


@dataclass(frozen=True)
class AllocatorStatistics:
    """What an allocator has done so far."""

    in_use_bytes: int
    peak_bytes: int
    held_bytes: int
    num_fresh: int
    num_reused: int


class Allocator(Protocol):
    """What a device needs from its memory."""

    def allocate(self, size_bytes: int) -> Block:
        """Return a block of at least *size_bytes*."""

    def trim(self) -> int:
        """Give unused memory back to the system; return how many bytes that was."""

    def statistics(self) -> AllocatorStatistics:
        """Return the counts."""


class HostAllocator:
    """Aligned host memory with reuse by size class. Safe to use from several threads.

    >>> memory = HostAllocator()
    >>> first = memory.allocate(1000)
    >>> address, capacity = first.address, first.capacity
    >>> del first
    >>> memory.allocate(1024).address == address, capacity, memory.statistics().num_reused
    (True, 1024, 1)
    """

    def __init__(
        self,
        name: str = "CPU",
        *,
        held_limit_bytes: int | None = None,
        available_bytes: Callable[[], int] | None = None,
        resident_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._name = name
        self._available_bytes = available_bytes or available_memory_bytes
        self._resident_bytes = resident_bytes or _resident_bytes
        self._held_limit_bytes = held_limit_bytes
        self._lock = threading.Lock()
        self._free: dict[int, list[Span]] = {}
        self._home = _Home()
        self._in_use = self._peak = self._held = self._unchecked = 0
        self._num_fresh = self._num_reused = 0
        _all_allocators.add(self)

    def allocate(self, size_bytes: int) -> Block:
        """Return a block of at least *size_bytes* bytes, old if possible, else fresh.

        Errors: AllocationError, at once, when the memory is not there.
        """
        capacity = size_class(size_bytes)
        home = self._home
        if len(home.queue) == 1:  # no lock: whoever takes a lease from the queue has it alone
            try:
                lease = home.queue.popleft()
            except IndexError:
                pass  # another thread was faster
            else:
                if lease.span[1] == capacity:
                    home.leases.discard(lease)
                    self._num_reused += 1  # it is counted as in use until it is sorted in
                    return Block(lease.span, home)
                home.queue.append(lease)
        clear_dead()
        with self._lock:
            if home.queue:
                self._collect()
            spans = self._free.get(capacity)
            block = self._reused(spans.pop()) if spans else self._fresh(capacity, size_bytes)
            self._in_use += capacity
            if self._in_use > self._peak:
                self._peak = self._in_use
        return block

    def trim(self) -> int:
        """Give the blocks held for reuse back to the system; return how many bytes that was."""
        clear_dead()
        with self._lock:
            self._collect()
            return self._drop_held(0)

    def statistics(self) -> AllocatorStatistics:
        """Return bytes in use, their peak, bytes held for reuse, and counts of requests."""
        clear_dead()
        with self._lock:
            self._collect()
            return AllocatorStatistics(
                self._in_use, self._peak, self._held, self._num_fresh, self._num_reused
            )

    def restart_after_fork(self) -> None:
        """Replace the lock: in a forked child its owner may not exist any more."""
        self._lock = threading.Lock()

    def _reused(self, span: Span) -> Block:
        self._held -= span[1]
        self._num_reused += 1
        return Block(span, self._home)

    def _fresh(self, capacity: int, size_bytes: int) -> Block:
        self._check_available(capacity, size_bytes)
        try:
            span = _mapped(capacity)
        except (MemoryError, OSError, OverflowError, ValueError):
            raise self._refusal(size_bytes, self._available_bytes()) from None
        self._num_fresh += 1
        return Block(span, self._home)

    def _check_available(self, capacity: int, size_bytes: int) -> None:
        """Refuse what would end in the system killing this process.

        Pages that nobody has written yet do not show in what the system calls available, so all
        bytes of ours are compared with what is available plus what we occupy already.
        """
        self._unchecked += capacity
        if self._unchecked < _CHECK_EVERY_BYTES:
            return
        self._unchecked = 0
        ours = self._in_use + self._held
        limit = self._available_bytes() + min(self._resident_bytes(), ours)
        if ours + capacity > limit:
            self._drop_held(0)
            ours = self._in_use
        if ours + capacity > limit:
            self._unchecked = _CHECK_EVERY_BYTES  # look again at the next request
            raise self._refusal(size_bytes, max(limit - ours, 0))

    def _refusal(self, size_bytes: int, available: int) -> AllocationError:
        return AllocationError(
            f"cannot allocate {human_bytes(size_bytes)} on {self._name}",
            rows=[
                ("asked", f"{human_bytes(size_bytes)} ({size_bytes} bytes)"),
                ("available", human_bytes(available)),
                ("in use", f"{human_bytes(self._in_use)} by live buffers"),
            ],
            help="use a smaller shape or a narrower dtype, work in batches, "
            "or delete tensors that are no longer needed",
        )

    def _collect(self) -> None:
        """Sort in what came back since the last request. Called with the lock held."""
        queue, leases = self._home.queue, self._home.leases
        while queue:
            lease = queue.popleft()
            leases.discard(lease)
            span = lease.span
            capacity = span[1]
            self._in_use -= capacity
            self._held += capacity
            self._free.setdefault(capacity, []).append(span)
        if self._held_limit_bytes is None:
            self._held_limit_bytes = _total_memory_bytes() // 4
        if self._held > self._held_limit_bytes:
            self._drop_held(self._held_limit_bytes // 2)

    def _drop_held(self, keep_bytes: int) -> int:
        """Drop held blocks, largest first, until at most *keep_bytes* are left."""
        before = self._held
        for capacity in sorted(self._free, reverse=True):
            spans = self._free[capacity]
            while spans and self._held > keep_bytes:
                spans.pop()
                self._held -= capacity
        return before - self._held


_all_allocators: weakref.WeakSet[HostAllocator] = weakref.WeakSet()


def _restart_all_after_fork() -> None:
    for allocator in list(_all_allocators):
        allocator.restart_after_fork()


os.register_at_fork(after_in_child=_restart_all_after_fork)


@lru_cache(maxsize=4096)
def size_class(size_bytes: int) -> int:
    """Round up to the capacity of a block: multiples of 64, then eighths of powers of two.

    >>> [size_class(n) for n in (0, 64, 65, 1000, 1025, 3 << 20, (3 << 20) + 1)]
    [64, 64, 128, 1024, 1152, 3145728, 3407872]
    """
    step = max(ALIGNMENT_BYTES, 1 << max((size_bytes - 1).bit_length() - 4, 0))
    return max((size_bytes + step - 1) // step, 1) * step


def human_bytes(size_bytes: int) -> str:
    """Write a size as a person would say it.

    >>> human_bytes(512), human_bytes(1536), human_bytes(4 * 10**12)
    ('512 B', '1.50 KiB', '3.64 TiB')
    """
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size: float = size_bytes
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.2f} {unit}"
    return f"{size / 1024:.4g} EiB"


def _mapped(capacity: int) -> Span:
    """Return *capacity* fresh bytes, aligned."""
    if capacity < HUGE_PAGE_BYTES:
        memory: object = (ctypes.c_char * (capacity + ALIGNMENT_BYTES))()
        address = ctypes.addressof(memory)  # type: ignore[arg-type]
        return address + -address % ALIGNMENT_BYTES, capacity, memory
    pages = mmap.mmap(-1, capacity + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the system was built without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    anchor = ctypes.c_char.from_buffer(pages)
    address = ctypes.addressof(anchor)
    return address + -address % HUGE_PAGE_BYTES, capacity, anchor


def available_memory_bytes() -> int:
    """Return how much memory can be used without swapping: of the machine, or of our container.

    A sixty-fourth of the machine is left to the others, and for the errors of this estimate.
    """
    total = _total_memory_bytes()
    available = _meminfo("MemAvailable")
    available = total if available is None else available
    room = _cgroup_room_bytes()
    available = available if room is None else min(available, room)
    return max(available - total // 64, 0)


def _total_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def _meminfo(field: str) -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup_room_bytes() -> int | None:
    """Return what the memory limit of the control group (a container) leaves, None without one."""
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as text:
            limit = int(text.read())  # "max" means no limit and is no number
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as text:
            return max(limit - int(text.read()), 0)
    except (OSError, ValueError):
        return None


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as text:
            return int(text.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


class NullAllocator:
    """Counts bytes and hands out none: what the NULL device has for memory.

    >>> memory = NullAllocator()
    >>> block = memory.allocate(1 << 60)
    >>> block.address, memory.statistics().in_use_bytes == 1 << 60
    (0, True)
    """

    def __init__(self) -> None:
        self._home = _Home()
        self._in_use = self._peak = self._num_fresh = 0

    def allocate(self, size_bytes: int) -> Block:
        """Return a block that has a size and no address."""
        self._collect()
        self._in_use += size_bytes
        self._peak = max(self._peak, self._in_use)
        self._num_fresh += 1
        return Block((0, size_bytes, None), self._home)

    def trim(self) -> int:
        """Nothing is held for reuse."""
        return 0

    def statistics(self) -> AllocatorStatistics:
        """Return what the program would have used."""
        self._collect()
        return AllocatorStatistics(self._in_use, self._peak, 0, self._num_fresh, 0)

    def _collect(self) -> None:
        clear_dead()
        while self._home.queue:
            lease = self._home.queue.popleft()
            self._home.leases.discard(lease)
            self._in_use -= lease.span[1]
