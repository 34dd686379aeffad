"""`Tensor`: the class that users hold, and its ways to and from other kinds of data.

    Tensor([[1, 2], [3, 4]])  ->  tensor  ->  .numpy()  .tolist()  .item()

Reading values is the only thing that computes them. A tensor that is in memory is read where it
lies: a window is a numpy view, so no kernel is made to look at one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.core.errors import DTypeError, ShapeError
from pellucid.engine import capture
from pellucid.engine.memory import buffer_of
from pellucid.engine.realize import realize_storages, schedule_storages
from pellucid.engine.storage import stored_buffer
from pellucid.frontend import arguments
from pellucid.frontend.arguments import DTypeLike
from pellucid.frontend.autograd import Autograd
from pellucid.frontend.creation import device_of
from pellucid.frontend.value import Value
from pellucid.ir.interpret.values import from_storage
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

Array = np.ndarray[Any, Any]


class Tensor(Autograd):
    """Numbers in a box of any number of axes, computed when they are needed.

    data: a number, nested lists, a numpy array, bytes (uint8), or another tensor; it is copied.
    dtype: float32 for Python floats, int64 for integers, that of an array, unless given.
    requires_grad: True and False say whether it gets a `.grad`; unsaid, every float leaf gets one.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x + 1).tolist()
    [[8.0, 11.0], [16.0, 23.0]]
    """

    __slots__ = ()

    explain: ClassVar[Callable[..., None]]
    """Print what computing this tensor takes (tools/explain.py; the package puts it here)."""

    def __init__(
        self,
        data: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        # __new__ has built it
        super().__init__()

    def __new__(
        cls,
        data: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        if device is None and isinstance(data, Value):
            device = data.device
        return cls._leaf(cls._from_data(data, dtype, device), device_of(device), requires_grad)

    # ---- types ----------------------------------------------------------------------------------

    def type(self, dtype: DTypeLike) -> Self:
        """The same as `cast`."""
        return self.cast(dtype)

    def float(self) -> Self:
        """As float32."""
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """As float16.

        >>> Tensor([1.0]).half().dtype
        dtypes.float16
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """As bfloat16."""
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """As float64."""
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """As int32."""
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """As int64.

        >>> Tensor([1.7, -1.7]).long().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        """As bool: x != 0.

        >>> Tensor([0.0, 0.5]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)

    def to(self, *where: Any) -> Self:
        """On another device, in another dtype, or both.

        >>> Tensor([1]).to(dtypes.float32).dtype
        dtypes.float32
        """
        result = self
        for target in where:
            if isinstance(target, str) and not _is_dtype_name(target):
                result = result._moved_to(device_of(target))
            else:
                result = result.cast(target)
        return result

    def cpu(self) -> Self:
        """On the CPU."""
        return self.to("CPU")

    def _moved_to(self, device: str) -> Self:
        if device == self.device:
            return self
        return self._from(UOp(Ops.COPY, self._dtype, (self.uop,), device), device)

    # ---- reading --------------------------------------------------------------------------------

    def numpy(self) -> Array:
        """A copy of the elements as a numpy array; bfloat16 and 8-bit floats as float32.

        >>> Tensor([1, 2]).numpy()
        array([1, 2])
        """
        capture.forbid_reading("item(), tolist() or numpy()")
        realize_storages([self._storage])
        base = self._storage.uop
        buffer = stored_buffer(base)
        if buffer is None:  # written to by another thread meanwhile
            return self.contiguous().numpy()
        array = buffer_of(buffer).as_numpy().reshape(base.known_shape)
        dtype = base.dtype
        for step in self._window.steps() if self._window is not None else []:
            if step.op is Ops.BITCAST:
                array, dtype = np.array(array, order="C").view(_storage_type(step.arg)), step.arg
            elif step.op is Ops.PAD:
                array = np.pad(array, step.arg)
            elif step.op is not Ops.DETACH:
                array = _moved(step.applied_to(_stand_in(array, dtype)), array)
        if dtype is not dtypes.float16:  # which numpy has, though it computes in float32
            array = from_storage(dtype, array)
        return np.array(array, order="C")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def tolist(self) -> Any:
        """The elements as Python numbers in nested lists.

        >>> Tensor([[1.5], [2.5]]).tolist()
        [[1.5], [2.5]]
        """
        return self.numpy().tolist()

    def item(self) -> Any:
        """The only element, as a Python number.

        >>> Tensor([7]).item()
        7
        """
        if self.numel() != 1:
            raise ShapeError(
                "item() reads the only element of a tensor",
                came=f"shape {self._shape}, {self.numel()} elements",
                help="index first, or use tolist()",
            )
        return self.numpy().reshape(()).item()

    def data_ptr(self) -> Any:
        """The address of the memory of this tensor's storage; computes it first."""
        self.realize()
        buffer = stored_buffer(self._storage.uop)
        return buffer_of(buffer).address if buffer is not None else 0

    def __len__(self) -> Any:
        if not self._shape:
            raise ShapeError("a tensor without axes has no length", help="use numel(), or item()")
        return self._shape[0]

    def __iter__(self) -> Iterator[Self]:
        if not self._shape:
            raise ShapeError("a tensor without axes cannot be iterated over", help="use item()")
        return (self[i] for i in range(self._shape[0]))

    def __bool__(self) -> Any:
        if self.numel() != 1:
            raise ShapeError(
                "only a tensor with one element is true or false",
                came=self._shape,
                help="use any() or all()",
            )
        return self.item() != 0

    def __int__(self) -> Any:
        return int(self.item())

    def __float__(self) -> Any:
        return float(self.item())

    def __index__(self) -> Any:
        if not self._dtype.is_int:
            raise DTypeError("only an integer tensor can be an index", came=self._dtype)
        return self.item()

    def __contains__(self, value: Any) -> Any:
        return (self == value).any().item()

    def __deepcopy__(self, memo: Any) -> Self:
        if not self.is_leaf:
            return self.clone()
        return type(self)(self.detach(), requires_grad=self._storage.requires_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        asked = self._storage.requires_grad if self.is_leaf else None
        return type(self), (self.numpy(), self._dtype, self.device, asked)

    def __repr__(self) -> str:
        state = "in memory" if self.is_realized else "lazy"
        return f"<Tensor {self._shape} {self._dtype} on {self.device}, {state}>"

    def __str__(self) -> str:
        """The values, as numpy shows them; in a function that is being captured there are none yet.

        >>> print(Tensor([[1, 2], [3, 4]]) * 0.5)
        Tensor([[0.5, 1. ],
                [1.5, 2. ]])
        >>> print(Tensor([1, 2], dtype="int8"))
        Tensor([1, 2], dtype=int8)
        """
        if capture.listener() is not None or self.device == "NULL":
            return repr(self)
        values = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        usual = self._dtype in (dtypes.float32, dtypes.int64, dtypes.bool)
        return f"Tensor({values})" if usual else f"Tensor({values}, dtype={self._dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return (1, 0)

    # ---- scheduling -----------------------------------------------------------------------------

    def schedule_linear(self, *others: Self) -> UOp:
        """The kernels that would compute this tensor, and *others*, as a LINEAR of CALLs in order.

        `run_linear` executes it; the tensors then are in memory.
        """
        return schedule_storages([self._storage, *(o._storage for o in others)])


def where(condition: Tensor, input: Any, other: Any) -> Tensor:
    """*input* where *condition* holds, else *other*.

    >>> where(Tensor([True, False]), 1, Tensor([5, 6])).tolist()
    [1, 6]
    """
    if isinstance(input, Tensor):
        return input.where(condition, other)
    if isinstance(other, Tensor):
        return condition._select(condition, other._lift(input, "where"), other)
    first = condition._scalar(input, "where", arguments.dtype(_kind(input, other)))
    return condition._select(condition, first, other)


def _kind(first: Any, second: Any) -> Any:
    """The Python type that two numbers share."""
    if isinstance(first, float) or isinstance(second, float):
        return float
    return bool if isinstance(first, bool) and isinstance(second, bool) else int


def _is_dtype_name(name: str) -> bool:
    try:
        arguments.dtype(name)
    except DTypeError:
        return False
    return True


def _moved(node: UOp, array: Array) -> Array:
    # here, not above: few programs read windows, and the interpreter takes a while to import
    from pellucid.ir.interpret.tensors import move

    return move(node, array)


def _storage_type(dtype: Any) -> Any:
    from_types = {"bfloat16": "uint16", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}
    return np.dtype(from_types.get(dtype.name, dtype.name))


def _stand_in(array: Array, dtype: Any) -> UOp:
    """A node of the shape of an array, to apply a step to."""
    return UOp.const(dtype, 0).expand(array.shape)
