"""Writing to all of a tensor: `assign`, what is like it, and operators in place.

    x.assign(y)    x.fill_(0)    x += 1     seen by all that share storage with x

The value takes the type of the tensor and is broadcast to its shape. Writing to a part, as in
`x[1:] = y`, is in indexing.py.
"""

from __future__ import annotations

from typing import Self

from pellucid.core.errors import DTypeError, ShapeError
from pellucid.frontend.operands import Number, Operand
from pellucid.frontend.random import Random
from pellucid.ir.op import Shape
from pellucid.ir.uop import UOp


class Writing(Random):
    """Methods that write in place."""

    __slots__ = ()

    def assign(self, value: Operand) -> Self:
        """Replace all elements, here and in everything that shares storage.

        >>> x = Tensor([1, 2, 3])
        >>> x[1:].assign(0).tolist(), x.tolist()
        ([0, 0], [1, 0, 0])
        """
        if (
            isinstance(value, Writing)
            and value._storage is self._storage
            and value._window is self._window
        ):
            return self
        self._write(self._fitting(value, self._shape))
        return self

    def copy_(self, value: Operand) -> Self:
        """The same as `assign`."""
        return self.assign(value)

    def fill_(self, value: Number) -> Self:
        """All elements equal to *value*."""
        return self.assign(value)

    def zero_(self) -> Self:
        """All elements 0."""
        return self.assign(0)

    def _incoming(self, value: Operand) -> UOp:
        """What is to be written, in this tensor's type."""
        given = self._lift(value, "assignment")
        if given._dtype.is_float and not self._dtype.is_float:
            raise DTypeError(
                f"floats cannot be written to a tensor of {self._dtype}",
                came=given._dtype,
                help=f"round and cast them first, as in .cast({str(self._dtype)!r})",
            )
        return given.uop.cast(self._dtype)

    def _fitting(self, value: Operand, shape: Shape) -> UOp:
        """What is to be written, broadcast to *shape*."""
        node = self._incoming(value)
        given = node.known_shape
        while len(given) > len(shape) and given[0] == 1:
            given = given[1:]
        padded = (1,) * (len(shape) - len(given)) + given
        if len(padded) != len(shape) or any(
            g not in (1, n) for g, n in zip(padded, shape, strict=True)
        ):
            raise ShapeError(
                "the value does not fit the place it is written to",
                rows=[("place", shape), ("value", node.known_shape)],
            )
        return node.reshape(given).expand(shape)

    # ---- in-place operators ---------------------------------------------------------------------

    def _updated(self, result: Self, name: str) -> Self:
        if result._dtype.is_float and not self._dtype.is_float:
            raise DTypeError(
                f"{name} in place would make floats of a tensor of {self._dtype}",
                help="write x = x … instead, which makes a new tensor",
            )
        if result._shape != self._shape:
            raise ShapeError(
                f"{name} in place cannot change the shape",
                rows=[("tensor", self._shape), ("result", result._shape)],
            )
        return self.assign(result)

    def __iadd__(self, other: Operand) -> Self:
        return self._updated(self + other, "+=")

    def __isub__(self, other: Operand) -> Self:
        return self._updated(self - other, "-=")

    def __imul__(self, other: Operand) -> Self:
        return self._updated(self * other, "*=")

    def __itruediv__(self, other: Operand) -> Self:
        return self._updated(self / other, "/=")

    def __ifloordiv__(self, other: Operand) -> Self:
        return self._updated(self // other, "//=")

    def __imod__(self, other: Operand) -> Self:
        return self._updated(self % other, "%=")

    def __ipow__(self, other: Operand) -> Self:
        return self._updated(self**other, "**=")

    def __iand__(self, other: Operand) -> Self:
        return self._updated(self & other, "&=")

    def __ior__(self, other: Operand) -> Self:
        return self._updated(self | other, "|=")

    def __ixor__(self, other: Operand) -> Self:
        return self._updated(self ^ other, "^=")

    def __ilshift__(self, other: Operand) -> Self:
        return self._updated(self << other, "<<=")

    def __irshift__(self, other: Operand) -> Self:
        return self._updated(self >> other, ">>=")

    def add_(self, other: Operand, alpha: Operand = 1) -> Self:
        """self += alpha * other."""
        return self._updated(self.add(other, alpha), "add_")

    def sub_(self, other: Operand, alpha: Operand = 1) -> Self:
        """self -= alpha * other."""
        return self._updated(self.sub(other, alpha), "sub_")

    def mul_(self, other: Operand) -> Self:
        """self *= other."""
        return self._updated(self * other, "mul_")

    def div_(self, other: Operand) -> Self:
        """self /= other."""
        return self._updated(self / other, "div_")
