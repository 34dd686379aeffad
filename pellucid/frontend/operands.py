"""What the other side of an operator may be: tensors, Python numbers, numpy arrays.

    x * 2.0     2.0 becomes a literal of x's type and shape
    x + y       both become what they promote to (core/dtype.py), and are broadcast to one shape

Python numbers are weak: they take the type of the tensor, as far as it can hold them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from pellucid.core.dtype import DType, dtypes, promote
from pellucid.core.errors import DTypeError
from pellucid.engine.memory import buffer_with
from pellucid.frontend import arguments
from pellucid.frontend.arguments import DTypeLike, default_float, default_int
from pellucid.frontend.arrangement import Arrangement
from pellucid.frontend.value import Value
from pellucid.ir.op import Op, Shape
from pellucid.ir.uop import UOp

Operand = object
"""A tensor, a Python number, or a numpy value: whatever it is, it is checked when it comes."""
Number = bool | int | float


class Operands(Arrangement):
    """Methods that bring operands to one type and shape."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy leaves `array + tensor` to us
    __hash__ = object.__hash__

    # ---- types ----------------------------------------------------------------------------------

    def cast(self, dtype: DTypeLike) -> Self:
        """Convert every element to *dtype*.

        Floats become integers towards zero, saturating, NaN as 0; integers wrap; x != 0 is True.

        >>> Tensor([-1.5, 300.0]).cast(dtypes.uint8).tolist()
        [0, 255]
        """
        new = arguments.dtype(dtype, "cast")
        return self if new is self._dtype else self._value(self.uop.cast(new))

    def type_as(self, other: Value) -> Self:
        """In the type of *other*."""
        return self.cast(other.dtype)

    # ---- operands -------------------------------------------------------------------------------

    def _lift(self, value: Operand, name: str, *, like: DType | None = None) -> Self:
        """Make a tensor of an operand; Python numbers take this tensor's type, or *like*."""
        if isinstance(value, type(self)):
            self._check_device(value, name)
            return value
        if isinstance(value, Number):
            return self._scalar(value, name, like or self._dtype)
        if isinstance(value, np.ndarray | np.generic | list | tuple):
            return self._array(np.asarray(value), name)
        raise DTypeError(
            f"{name} works on tensors and numbers",
            came=type(value).__name__,
            help="make it a tensor first, as in Tensor(...)",
        )

    def _scalar(self, value: Number, name: str, like: DType) -> Self:
        """A Python number as a tensor of shape (), in the type it takes beside *like*."""
        return self._value(weak_constant(value, like, name))

    def _array(self, array: np.ndarray[Any, Any], name: str) -> Self:
        dtype = arguments.dtype(array.dtype, name)
        data = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(
            array.shape
        )
        node = buffer_with(data, dtype, self._storage.device).reshape(array.shape)
        return self._from(node, self._storage.device)

    def _operands(self, other: Operand, name: str) -> tuple[UOp, UOp, Shape]:
        """Both operands as nodes of one type and shape, and the shape."""
        shape = self._shape
        if isinstance(other, Number):
            literal = _weak_literal(other, self._dtype, name, shape)
            return self.uop.cast(literal.dtype), literal, shape
        right = self._lift(other, name)
        dtype = self._dtype
        if right._dtype is not dtype:
            dtype = promote(dtype, right._dtype, default_float=default_float())
        first, second = self.uop.cast(dtype), right.uop.cast(dtype)
        if right._shape != shape:
            shape = arguments.broadcast(shape, right._shape, name=name)
            first, second = first.expand(shape), second.expand(shape)
        return first, second, shape

    def _pair(self, other: Operand, name: str, *, reverse: bool = False) -> tuple[UOp, UOp]:
        """Both operands as nodes of one type and shape."""
        first, second, _ = self._operands(other, name)
        return (second, first) if reverse else (first, second)

    def _binary(self, other: Operand, op: Op, name: str) -> Self:
        left, right, shape = self._operands(other, name)
        return self._value(UOp.make(op, left, right), shape)

    def _not_bool(self, name: str, *others: Operand) -> None:
        if self._dtype.is_bool and all(
            isinstance(o, bool) or getattr(o, "dtype", None) is dtypes.bool for o in others
        ):
            raise DTypeError(
                f"{name} is not defined for bools", help="cast to int first, or use logical_xor, …"
            )

    def _function(self, op: Op) -> Self:
        """A float function; integers become the default float first."""
        return self._value(UOp.make(op, self.uop.cast(self._promoted_float())))

    def _map(self, build: Callable[[UOp], UOp]) -> Self:
        """*build* applied to the node as a float."""
        return self._value(build(self.uop.cast(self._promoted_float())))


def _weak_literal(value: Number, like: DType, name: str, shape: Shape) -> UOp:
    """A Python number as a literal of a shape; the same node again for the same number."""
    if like.is_float and value:  # of equal numbers, only zeros can differ (-0.0), and True from 1
        return _float_literal(value, like, shape)
    return weak_constant(value, like, name).expand(shape)


@functools.lru_cache(maxsize=256, typed=True)
def _float_literal(value: Number, dtype: DType, shape: Shape) -> UOp:
    return UOp.const(dtype, value).expand(shape)


def weak_constant(value: Number, like: DType, name: str) -> UOp:
    """A Python number as a literal, in the type it takes beside *like*.

    Errors: DTypeError for an integer that the type does not hold.
    """
    dtype = weak_dtype(value, like)
    if dtype.is_int and not isinstance(value, bool) and not dtype.min <= value <= dtype.max:
        raise DTypeError(
            f"{name}: the number {value} does not fit {dtype}",
            expected=f"{dtype.min} to {dtype.max}",
            help=f"cast the tensor to a wider type first, as in .cast({str(default_int())!r})",
        )
    return UOp.const(dtype, value)


def weak_dtype(value: Number, like: DType) -> DType:
    """The type of a Python number beside a tensor of type *like*.

    >>> weak_dtype(1.5, dtypes.int32), weak_dtype(1, dtypes.float16), weak_dtype(True, dtypes.int8)
    (dtypes.float32, dtypes.float16, dtypes.int8)
    """
    if isinstance(value, bool) or like.is_float:
        return like
    if isinstance(value, int):
        return default_int() if like.is_bool else like
    return default_float()
