"""Buffers: lazy, aligned, viewed, shared with numpy, and never gone too early."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pellucid.core.dtype import VALUE_DTYPES, DType, dtypes
from pellucid.core.errors import DeviceError, DTypeError, ShapeError
from pellucid.runtime import Buffer
from pellucid.runtime.allocator import HostAllocator
from pellucid.runtime.buffer import import_array


def test_memory_is_taken_at_the_first_use() -> None:
    memory = HostAllocator()
    buffer = Buffer("CPU", 100, dtypes.float32, allocator=memory)
    assert (buffer.is_allocated, memory.statistics().in_use_bytes) == (False, 0)
    assert buffer.address % 64 == 0
    assert memory.statistics().in_use_bytes == 448


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=str)
def test_every_dtype_shows_in_numpy(dtype: DType) -> None:
    buffer = Buffer("CPU", 3, dtype)
    array = buffer.as_numpy()
    assert array.shape == (3,)
    assert array.itemsize == dtype.itemsize
    assert array.nbytes == buffer.nbytes
    array[:] = 1
    assert buffer.as_numpy().tolist() == [1, 1, 1]


def test_types_that_numpy_lacks_show_their_bits() -> None:
    buffer = Buffer("CPU", 1, dtypes.bfloat16)
    buffer.copy_from(b"\x80\x3f")
    assert buffer.as_numpy().dtype == np.uint16
    assert buffer.as_numpy().tolist() == [0x3F80]


def test_a_vector_dtype_shows_its_lanes() -> None:
    assert Buffer("CPU", 2, dtypes.float32.vec(4)).as_numpy().shape == (8,)


def test_nothing_is_a_size() -> None:
    buffer = Buffer("CPU", 0, dtypes.float32)
    assert buffer.as_numpy().tolist() == []
    assert buffer.address != 0
    buffer.copy_from(b"")


def test_a_numpy_view_keeps_the_memory() -> None:
    memory = HostAllocator()
    buffer = Buffer("CPU", 4, dtypes.int32, allocator=memory)
    array = buffer.as_numpy()
    array[:] = 7
    part = array[1:3]
    del buffer, array
    gc.collect()
    assert memory.statistics().in_use_bytes == 64
    assert part.tolist() == [7, 7]
    del part
    gc.collect()
    assert memory.statistics().in_use_bytes == 0


def test_views_share_memory_and_keep_it() -> None:
    memory = HostAllocator()
    arena = Buffer("CPU", 64, dtypes.uint8, allocator=memory)
    numbers = arena.view(16, 4, dtypes.float32)
    inner = numbers.view(4, 2, dtypes.float32)
    assert not arena.is_allocated
    numbers.copy_from(np.array([1, 2, 3, 4], np.float32))
    assert inner.as_numpy().tolist() == [2, 3]
    assert inner.address == arena.address + 20
    assert inner.base is arena
    assert memory.statistics().in_use_bytes == 64
    del arena, numbers
    gc.collect()
    assert inner.as_numpy().tolist() == [2, 3]


@pytest.mark.parametrize(("offset", "size"), [(-4, 1), (0, 5), (13, 1), (0, -1)])
def test_a_view_has_to_lie_inside(offset: int, size: int) -> None:
    with pytest.raises(ShapeError, match="a view has to lie inside its buffer"):
        Buffer("CPU", 4, dtypes.float32).view(offset, size, dtypes.float32)


def test_copies_go_by_bytes() -> None:
    buffer = Buffer("CPU", 4, dtypes.int16)
    buffer.copy_from(np.arange(8, dtype=np.int16)[::2])
    other = Buffer("CPU", 4, dtypes.int16)
    other.copy_from_buffer(buffer)
    assert other.as_numpy().tolist() == [0, 2, 4, 6]
    assert other.tobytes() == np.array([0, 2, 4, 6], np.int16).tobytes()


def test_copies_have_to_fit() -> None:
    with pytest.raises(ShapeError) as caught:
        Buffer("CPU", 4, dtypes.float32).copy_from(np.zeros(4))
    assert str(caught.value).startswith(
        "the bytes to copy do not fit the buffer\n"
        "    expected  16 bytes (4 of float32)\n"
        "    came      32 bytes\n"
    )


def test_an_array_is_imported_without_a_copy() -> None:
    array = np.arange(4, dtype=np.float32)
    buffer = import_array("CPU", array, dtypes.float32)
    array[0] = 9
    assert buffer.as_numpy().tolist() == [9, 1, 2, 3]
    assert buffer.address == array.ctypes.data
    with pytest.raises(ShapeError, match="contiguous"):
        import_array("CPU", array[::2], dtypes.float32)


def test_bad_buffers_are_refused() -> None:
    with pytest.raises(ShapeError, match="a buffer cannot have -1 elements"):
        Buffer("CPU", -1, dtypes.float32)
    with pytest.raises(DTypeError, match="a buffer cannot hold index"):
        Buffer("CPU", 1, dtypes.index)
    with pytest.raises(DeviceError, match="there is no device 'GPU'"):
        Buffer("GPU", 1, dtypes.float32)


def test_large_buffers_start_on_a_huge_page() -> None:
    buffer = Buffer("CPU", (2 << 20) // 4, dtypes.float32, allocator=HostAllocator())
    assert buffer.address % (2 << 20) == 0
    array = buffer.as_numpy()
    array[0] = array[-1] = 1
    assert float(array[0] + array[-1]) == 2
