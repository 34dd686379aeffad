"""A buffer: a number of elements of one dtype in the memory of one device.

    Buffer("CPU", 4, dtypes.float32)     no memory yet: size and type are known, the rest waits
        .address  .as_numpy()            the first use allocates
        .view(8, 2, dtypes.float32)      a window on the same memory, 8 bytes further
        (forgotten by everybody)         the memory goes back to the allocator, to be used again

Laziness lets a schedule be planned and compiled before a byte is taken. Memory lives as long as
anything that shows it: the buffer, its views, and numpy arrays made of it.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DeviceError, DTypeError, ShapeError
from pellucid.runtime.allocator import Allocator, Block
from pellucid.runtime.registry import allocator_of, canonical_device

Array = np.ndarray[Any, Any]

_NUMPY_TYPES: Final[dict[str, str]] = {
    "bool": "?",
    "bfloat16": "u2",  # numpy has no such types: their bits are shown
    "float8_e4m3": "u1",
    "float8_e5m2": "u1",
}

_first_use = threading.Lock()


def _restart_after_fork() -> None:
    global _first_use
    _first_use = threading.Lock()


os.register_at_fork(after_in_child=_restart_after_fork)


class Buffer:
    """*size_elems* elements of *dtype* on *device*, allocated when first used.

    >>> numbers = Buffer("CPU", 3, dtypes.float32)
    >>> numbers.is_allocated, numbers.nbytes
    (False, 12)
    >>> numbers.copy_from(np.array([1.0, 2.0, 3.0], np.float32))
    >>> numbers.view(4, 2, dtypes.float32).as_numpy().tolist()
    [2.0, 3.0]
    """

    __slots__ = ("__weakref__", "_base", "_block", "_owner", "device", "dtype", "offset", "size")

    def __init__(
        self,
        device: str,
        size_elems: int,
        dtype: DType,
        *,
        allocator: Allocator | None = None,
        base: Buffer | None = None,
        offset_bytes: int = 0,
    ) -> None:
        if size_elems < 0:
            raise ShapeError(f"a buffer cannot have {size_elems} elements")
        if dtype is dtypes.void or dtype.is_index:
            raise DTypeError(f"a buffer cannot hold {dtype}, which has no size in memory")
        self.device: str = canonical_device(device)
        self.size: int = size_elems
        self.dtype: DType = dtype
        self.offset: int = offset_bytes
        self._base = base
        self._owner: Allocator = allocator or allocator_of(device)
        self._block: Block | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def base(self) -> Buffer:
        """The buffer that owns the memory: this one, unless it is a view."""
        return self if self._base is None else self._base

    @property
    def is_allocated(self) -> bool:
        """True once there is memory behind the buffer."""
        return self.base._block is not None

    @property
    def block(self) -> Block:
        """The memory itself, allocated now if it was not before."""
        base = self if self._base is None else self._base
        if base._block is None:
            with _first_use:
                if base._block is None:
                    base._block = base._owner.allocate(base.nbytes)
        return base._block

    @property
    def address(self) -> int:
        """Where the first element is. Errors: DeviceError when the device has no memory."""
        address = self.block.address
        if address == 0:
            raise DeviceError(
                f"{self.device} has no memory that could be read or written",
                help="choose CPU to run kernels; NULL only compiles them",
            )
        return address + self.offset

    def view(self, offset_bytes: int, size_elems: int, dtype: DType) -> Buffer:
        """Return a window on the same memory, which starts *offset_bytes* after this buffer.

        Errors: ShapeError when the window is not inside.
        """
        end = offset_bytes + size_elems * dtype.itemsize
        if offset_bytes < 0 or size_elems < 0 or end > self.nbytes:
            raise ShapeError(
                "a view has to lie inside its buffer",
                expected=f"bytes within 0 to {self.nbytes}",
                came=f"bytes {offset_bytes} to {end}",
            )
        start = self.offset + offset_bytes
        return Buffer(
            self.device,
            size_elems,
            dtype,
            allocator=self._owner,
            base=self.base,
            offset_bytes=start,
        )

    def as_numpy(self) -> Array:
        """Return the memory as a one-dimensional numpy array: a view, not a copy.

        Types that numpy lacks appear as unsigned integers of their size; a vector dtype as its
        lanes one after the other.
        """
        scalar = self.dtype.scalar
        kind = _NUMPY_TYPES.get(scalar.name) or scalar.name
        window = _Window(self.block, self.address, self.size * self.dtype.lanes, np.dtype(kind))
        return np.asarray(window)

    def copy_from(self, source: Array | bytes | bytearray | memoryview) -> None:
        """Copy all bytes of *source*, in row-major order, over this buffer.

        Errors: ShapeError when the sizes in bytes differ.
        """
        if isinstance(source, np.ndarray):
            data = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        else:
            data = np.frombuffer(source, np.uint8)
        if data.nbytes != self.nbytes:
            raise ShapeError(
                "the bytes to copy do not fit the buffer",
                expected=f"{self.nbytes} bytes ({self.size} of {self.dtype})",
                came=f"{data.nbytes} bytes",
            )
        self._bytes()[:] = data

    def copy_from_buffer(self, source: Buffer) -> None:
        """Copy all bytes of another buffer over this one."""
        self.copy_from(source._bytes())

    def tobytes(self) -> bytes:
        """Return a copy of the bytes."""
        return self._bytes().tobytes()

    def _bytes(self) -> Array:
        return np.asarray(_Window(self.block, self.address, self.nbytes, np.dtype(np.uint8)))

    def __repr__(self) -> str:
        state = "allocated" if self.is_allocated else "not allocated"
        return f"Buffer({self.device!r}, {self.size}, {self.dtype!r}, {state})"


class _Window:
    """What numpy needs to show memory; numpy holds it, and it holds the block."""

    def __init__(self, block: Block, address: int, size: int, dtype: np.dtype[Any]) -> None:
        self._block = block
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": dtype.str,
            "data": (address, False),
            "version": 3,
        }


def buffer_on(block: Block, device: str, size_elems: int, dtype: DType) -> Buffer:
    """Return a buffer whose elements stand in a *block* that its device has allocated."""
    buffer = Buffer(device, size_elems, dtype)
    buffer._block = block
    return buffer


def import_array(device: str, array: Array, dtype: DType) -> Buffer:
    """Return a buffer on the memory of a numpy *array*, without a copy.

    The array must be contiguous and is kept alive by the buffer; writes to one show in the other.
    It may be less aligned than our own memory (kernels assume no more than an element's alignment).
    """
    if not array.flags.c_contiguous or array.nbytes % dtype.itemsize:
        raise ShapeError("only a contiguous array of whole elements can be imported without a copy")
    block = Block((array.ctypes.data, array.nbytes, array), None)
    return buffer_on(block, device, array.nbytes // dtype.itemsize, dtype)
