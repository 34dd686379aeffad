"""The allocator reuses, counts, bounds what it holds, and refuses in time."""

from __future__ import annotations

import gc

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import AllocationError
from pellucid.runtime import Buffer
from pellucid.runtime.allocator import (
    HostAllocator,
    available_memory_bytes,
    size_class,
)
from tests.together import in_threads

MIB = 1 << 20


@pytest.mark.parametrize("size", [1, 63, 1000, 4097, 70_000, 3 * MIB, (1 << 40) + 1])
def test_size_classes_hold_the_size_and_waste_little(size: int) -> None:
    capacity = size_class(size)
    assert size <= capacity <= max(64, size + size // 8 + 64)
    assert capacity % 64 == 0
    assert size_class(capacity) == capacity


def test_freed_blocks_come_back() -> None:
    memory = HostAllocator()
    addresses = set()
    for _ in range(10):
        storage = memory.allocate(5 * MIB)
        addresses.add(storage.address)
        del storage
    assert len(addresses) == 1
    counts = memory.statistics()
    assert (counts.num_fresh, counts.num_reused) == (1, 9)
    assert (counts.in_use_bytes, counts.held_bytes, counts.peak_bytes) == (0, 5 * MIB, 5 * MIB)


def test_blocks_in_use_are_never_given_twice() -> None:
    memory = HostAllocator()
    live = [memory.allocate(1000) for _ in range(50)]
    assert len({storage.address for storage in live}) == 50
    assert memory.statistics().peak_bytes == 50 * 1024


def test_trim_gives_everything_back() -> None:
    memory = HostAllocator()
    memory.allocate(MIB)
    assert memory.statistics().held_bytes == MIB
    assert memory.trim() == MIB
    assert memory.statistics().held_bytes == 0


def test_what_is_held_is_bounded() -> None:
    memory = HostAllocator(held_limit_bytes=4 * MIB)
    live = [memory.allocate(MIB) for _ in range(10)]
    live.clear()
    gc.collect()
    assert memory.statistics().held_bytes <= 4 * MIB


def test_an_absurd_size_is_refused_at_once() -> None:
    memory = HostAllocator(available_bytes=lambda: 8 << 30, resident_bytes=lambda: 0)
    small = memory.allocate(1024)
    with pytest.raises(AllocationError) as caught:
        memory.allocate(4 * 10**15)
    text = str(caught.value)
    assert text[: text.index("\n    at ")] == (
        "cannot allocate 3.55 PiB on CPU\n"
        "    asked      3.55 PiB (4000000000000000 bytes)\n"
        "    available  8.00 GiB\n"
        "    in use     1.00 KiB by live buffers\n"
        "    help:      use a smaller shape or a narrower dtype, work in batches, "
        "or delete tensors that are no longer needed"
    )
    assert memory.statistics().in_use_bytes == 1024
    assert memory.allocate(1024).address != small.address


def test_an_absurd_buffer_stays_usable_as_a_plan() -> None:
    buffer = Buffer("CPU", 1 << 60, dtypes.float32)
    for _ in range(2):
        with pytest.raises(AllocationError, match=r"cannot allocate 4 EiB on CPU"):
            buffer.as_numpy()
    assert not buffer.is_allocated


def test_untouched_pages_count_too() -> None:
    memory = HostAllocator(available_bytes=lambda: 100 * MIB, resident_bytes=lambda: 0)
    first = memory.allocate(64 * MIB)  # nothing has been written: the system still shows 100 free
    with pytest.raises(AllocationError):
        memory.allocate(64 * MIB)
    del first
    assert memory.allocate(80 * MIB).capacity == 80 * MIB  # what was held is dropped for it


def test_many_small_blocks_are_checked_as_well() -> None:
    memory = HostAllocator(available_bytes=lambda: 40 * MIB, resident_bytes=lambda: 0)
    live: list[object] = []

    def fill() -> None:
        for _ in range(1000):
            live.append(memory.allocate(MIB // 2))  # noqa: PERF401 - counts until the error

    with pytest.raises(AllocationError):
        fill()
    assert 20 <= len(live) <= 120


def test_the_machine_tells_what_is_available() -> None:
    assert available_memory_bytes() > MIB


def test_threads_allocate_at_the_same_time() -> None:
    memory = HostAllocator()
    live: list[object] = []

    def work() -> None:
        for size in range(64, 4000, 64):
            kept = memory.allocate(size)
            memory.allocate(size)
            live.append(kept)

    in_threads(work, [()] * 4)
    counts = memory.statistics()
    assert counts.num_fresh + counts.num_reused == 4 * 62 * 2
    live.clear()
    gc.collect()
    assert memory.statistics().in_use_bytes == 0
