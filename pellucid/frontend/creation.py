"""Making tensors: from data, filled, counted.

    Tensor([[1, 2], [3, 4]])    Tensor.zeros(2, 3)    Tensor.arange(5)    Tensor.eye(3)

Data is copied at once; everything else is lazy: a filled tensor is one literal, expanded. Floats
that are created here are leaves of differentiation, each with an identity of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DeviceError, DTypeError, RaggedListError, ShapeError
from pellucid.core.options import current_options
from pellucid.engine.memory import buffer_with
from pellucid.frontend import arguments
from pellucid.frontend.arguments import DTypeLike, default_float, default_int
from pellucid.frontend.operands import Number, weak_constant
from pellucid.frontend.reduce import Reduce, counting
from pellucid.frontend.value import Value
from pellucid.ir.interpret.values import cast_values, to_storage
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.registry import canonical_device

Array = np.ndarray[Any, Any]


def device_of(device: str | None) -> str:
    """Read a device argument; None is the default device."""
    name = current_options().device if device is None else device
    if not isinstance(name, str):
        raise DeviceError("a device is named by a word", expected="'CPU', say", came=repr(name))
    return canonical_device(name)


class Creation(Reduce):
    """Methods of the class that make tensors."""

    __slots__ = ()

    # ---- filled ---------------------------------------------------------------------------------

    @classmethod
    def full(
        cls,
        size: int | Sequence[int],
        fill_value: Number,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """All elements equal to *fill_value*.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        shape = arguments.shape((size,), "full")
        if dtype is not None:
            new = arguments.dtype(dtype, "full")
            literal = weak_constant(fill_value, new, "full")
            literal = literal if literal.dtype is new else UOp.const(new, fill_value)
        else:
            literal = UOp.const(_python_dtype(fill_value), fill_value)
        return cls._leaf(literal.expand(shape), device_of(device), requires_grad)

    @classmethod
    def zeros(cls, *shape: Any, **options: Any) -> Self:
        """All elements 0. Options: dtype, device, requires_grad.

        >>> Tensor.zeros(2, dtype=dtypes.int8).tolist()
        [0, 0]
        """
        return cls._filled(0, "zeros", shape, options)

    @classmethod
    def ones(cls, *shape: Any, **options: Any) -> Self:
        """All elements 1. Options: dtype, device, requires_grad.

        >>> Tensor.ones(2).tolist()
        [1.0, 1.0]
        """
        return cls._filled(1, "ones", shape, options)

    @classmethod
    def empty(cls, *shape: Any, **options: Any) -> Self:
        """The same as `zeros`: no tensor has undefined elements here."""
        return cls._filled(0, "empty", shape, options)

    @classmethod
    def _filled(
        cls, value: int, name: str, shape: tuple[Any, ...], options: dict[str, Any]
    ) -> Self:
        options["dtype"] = default_float() if options.get("dtype") is None else options["dtype"]
        return cls.full(arguments.shape(shape, name), value, **options)

    def full_like(self, fill_value: Number, **options: Any) -> Self:
        """A filled tensor of this shape, and this dtype and device unless given.

        >>> Tensor([1.5, 2.5]).full_like(7).tolist()
        [7.0, 7.0]
        """
        options.setdefault("dtype", self._dtype)
        options.setdefault("device", self.device)
        return self.full(self._shape, fill_value, **options)

    def zeros_like(self, **options: Any) -> Self:
        """Zeros of this shape, and this dtype and device unless given.

        >>> Tensor([1, 2]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, **options)

    def ones_like(self, **options: Any) -> Self:
        """Ones of this shape, and this dtype and device unless given."""
        return self.full_like(1, **options)

    empty_like = zeros_like

    # ---- counted --------------------------------------------------------------------------------

    @classmethod
    def arange(
        cls,
        start: Number,
        end: Number | None = None,
        step: Number = 1,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Numbers from *start* (0 if only one number is given) up to, without, *end*.

        >>> Tensor.arange(5).tolist(), Tensor.arange(1, 2, 0.5).tolist()
        ([0, 1, 2, 3, 4], [1.0, 1.5])
        """
        first, last = (0, start) if end is None else (start, end)
        if step == 0:
            raise ShapeError("arange needs a step other than 0")
        is_whole = all(isinstance(v, int) for v in (first, last, step))
        new = (
            arguments.dtype(dtype, "arange")
            if dtype is not None
            else _python_dtype(first + last + step + 0)
        )
        steps = -(-(last - first) // step) if is_whole else math.ceil((last - first) / step)
        count = max(0, int(steps))
        node = _counted(count, first, step, dtypes.int64 if is_whole else dtypes.float64)
        return cls._leaf(node.cast(new), device_of(device), requires_grad)

    @classmethod
    def linspace(
        cls, start: float, end: float, steps: int, *, dtype: DTypeLike | None = None, **options: Any
    ) -> Self:
        """*steps* numbers at equal distances from *start* to *end*, both included.

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        count = arguments.shape((steps,), "linspace")[0]
        new = default_float() if dtype is None else arguments.dtype(dtype, "linspace")
        step = (end - start) / max(count - 1, 1)
        node = _counted(count, float(start), step, dtypes.float64)
        device = device_of(options.pop("device", None))
        return cls._leaf(node.cast(new), device, options.pop("requires_grad", None))

    @classmethod
    def eye(
        cls, n: int, m: int | None = None, *, dtype: DTypeLike | None = None, **options: Any
    ) -> Self:
        """Ones on the diagonal of an (n, m) matrix, zeros elsewhere.

        >>> Tensor.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        shape = arguments.shape((n, n if m is None else m), "eye")
        new = default_float() if dtype is None else arguments.dtype(dtype, "eye")
        node = counting(shape, 0).eq(counting(shape, 1)).cast(new)
        device = device_of(options.pop("device", None))
        return cls._leaf(node, device, options.pop("requires_grad", None))

    # ---- triangles ------------------------------------------------------------------------------

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle, zeros above the *diagonal*.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        return self._triangle(diagonal, "tril")

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle, zeros below the *diagonal*.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        return self._triangle(diagonal, "triu")

    def _triangle(self, diagonal: int, name: str) -> Self:
        if self.ndim < 2:
            raise ShapeError(f"{name} needs at least two axes", came=self._shape)
        row, column = counting(self._shape, self.ndim - 2), counting(self._shape, self.ndim - 1)
        away = column + (-row)
        keep = away <= diagonal if name == "tril" else away >= diagonal
        return self._value(keep.where(self.uop, self.uop.const_like(0)))

    def one_hot(self, num_classes: int = -1) -> Self:
        """A 1 at the place that each element names, along a new last axis.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        if not self._dtype.is_int:
            raise DTypeError("one_hot takes integers", came=self._dtype)
        if num_classes < 0:
            raise ShapeError("one_hot needs the number of classes", help="give num_classes")
        shape = (*self._shape, num_classes)
        wide = self.uop.cast(dtypes.int64).reshape((*self._shape, 1)).expand(shape)
        return self._value(wide.eq(counting(shape, self.ndim)).cast(dtypes.int64))

    # ---- from data ------------------------------------------------------------------------------

    @classmethod
    def _from_data(cls, data: Any, dtype: DTypeLike | None, device: str | None) -> UOp:
        """Copy *data* into a new buffer; the node has its shape."""
        new = None if dtype is None else arguments.dtype(dtype, "Tensor")
        place = device_of(device)
        if isinstance(data, Value):
            node = data.uop.cast(new or data.dtype)
            return UOp.make(Ops.CONTIGUOUS, UOp.make(Ops.DETACH, node))
        array, found = _read(data, new)
        if new is not None and new is not found:
            _check_fits(array, found, new, is_python=not isinstance(data, np.ndarray | np.generic))
            array = cast_values(new, found, array)
        result = new or found
        stored = np.ascontiguousarray(to_storage(result, array))
        return buffer_with(stored, result, place).reshape(array.shape)


def _counted(count: int, first: Number, step: Number, dtype: DType) -> UOp:
    node = UOp(Ops.IOTA, dtypes.int64, (), count).cast(dtype)
    scaled = node if step == 1 else node * step
    return scaled if first == 0 else scaled + first


def _python_dtype(value: Number) -> DType:
    """The type that a Python number has by itself."""
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        new = default_int()
        if not new.min <= value <= new.max:
            raise DTypeError(
                f"the number {value} does not fit {new}", help="give a dtype, or use a float"
            )
        return new
    if isinstance(value, float):
        return default_float()
    raise DTypeError("a tensor is filled with a Python number", came=type(value).__name__)


def _read(data: Any, wanted: DType | None) -> tuple[Array, DType]:
    """Read data as values in a numpy array, and find its type."""
    if isinstance(data, bytes | bytearray | memoryview):
        return np.frombuffer(data, np.uint8), dtypes.uint8
    if isinstance(data, np.ndarray | np.generic):
        return _read_numpy(np.asarray(data))
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return _read_numpy(np.asarray(data))
    if hasattr(data, "__dlpack__"):
        return _read_numpy(np.from_dlpack(data))
    if isinstance(data, bool | int | float):
        return _read_python(data, wanted)
    if isinstance(data, list | tuple | range):
        return _read_python(list(data), wanted)
    raise DTypeError(
        "a tensor is made of numbers, nested lists of numbers, a numpy array or bytes",
        came=type(data).__name__,
    )


def _read_numpy(array: Array) -> tuple[Array, DType]:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DTypeError(
            f"a tensor cannot be made of numpy's {array.dtype}",
            expected="bool, integers up to 64 bits or floats up to 64 bits",
            help="convert it first, as in array.astype(np.float32)",
        )
    native = array.astype(array.dtype.newbyteorder("="))
    return native, arguments.dtype(native.dtype, "Tensor")


def _read_python(data: Any, wanted: DType | None) -> tuple[Array, DType]:
    try:
        array = np.array(data)
        if array.dtype.kind in "fuO" and wanted is dtypes.uint64:
            array = _read_long(data, array)  # numpy makes floats of some 64-bit integers
    except (ValueError, OverflowError) as problem:
        _check_box(data)
        raise DTypeError("the numbers given cannot be read", came=str(problem)) from None
    if array.dtype == np.uint64 and wanted is dtypes.uint64:
        return array, wanted
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.float32), default_float()
    if array.dtype.kind == "b":
        return array, dtypes.bool
    if array.dtype.kind in "iu":
        new = default_int()
        if array.size and (int(array.max()) > new.max or int(array.min()) < new.min):
            raise DTypeError(
                f"a number does not fit {new}",
                rows=[("least", int(array.min())), ("most", int(array.max()))],
                help="give a dtype, as in Tensor(data, dtype=dtypes.uint64)",
            )
        return array.astype(new.name), new
    if array.dtype.kind == "f":
        return cast_values(default_float(), dtypes.float64, array), default_float()
    _check_box(data)
    wrong = _first_wrong(data)
    if isinstance(wrong, int):
        raise DTypeError(f"the number {wrong} does not fit any integer type", help="use a float")
    raise DTypeError("a tensor is made of numbers", came=f"{type(wrong).__name__} {wrong!r}"[:80])


def _read_long(data: Any, array: Array) -> Array:
    """Read integers that take all of 64 bits; other numbers as they were read before."""
    exact = np.array(data, dtype=object)
    is_whole = all(isinstance(n, int | np.integer) and 0 <= n < 1 << 64 for n in exact.flat)
    return exact.astype(np.uint64) if is_whole and exact.size else array


def _first_wrong(data: Any) -> Any:
    if isinstance(data, list | tuple):
        found = (_first_wrong(item) for item in data)
        return next((item for item in found if item is not None), None)
    is_number = isinstance(data, bool | float | np.generic) or (
        isinstance(data, int) and -(1 << 63) <= data < 1 << 64
    )
    return None if is_number else data


def _check_box(data: Any) -> None:
    """Raise RaggedListError unless all lists at one depth have one length."""
    lengths: list[int] = []

    def visit(item: Any, depth: int, path: str) -> None:
        is_list = isinstance(item, list | tuple)
        length = len(item) if is_list else -1
        if depth == len(lengths):
            lengths.append(length)
        if lengths[depth] != length:
            raise RaggedListError(
                "nested lists need the same length at the same depth",
                rows=[("at", path or "the top")],
                expected="a number" if lengths[depth] < 0 else f"a list of {lengths[depth]}",
                came=f"a list of {length}" if is_list else repr(item),
                help="pad the shorter lists, or make one tensor for each",
            )
        for i, inner in enumerate(item if is_list else ()):
            visit(inner, depth + 1, f"{path}[{i}]")

    visit(data, 0, "")


def _check_fits(array: Array, found: DType, new: DType, *, is_python: bool) -> None:
    """Python integers must fit the type that they are given; arrays are cast."""
    if not (is_python and found.is_int and new.is_int) or array.size == 0:
        return
    low, high = int(array.min()), int(array.max())
    if low < new.min or high > new.max:
        raise DTypeError(
            f"a number does not fit {new}",
            expected=f"{new.min} to {new.max}",
            came=low if low < new.min else high,
            help="choose a wider dtype, or cast a tensor to let it wrap",
        )
