"""Comparisons, choices between elements, and operations on bits.

    x < y      x == y      where(mask, x, 0)      x.clamp(0, 1)      a & b      ~a      a << 2

`a > b` is `b < a`, and `a >= b` is written with `<` and `not` as NaN asks for it: the graph has one
spelling for each thing.
"""

from __future__ import annotations

import math
from typing import Any, Self

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DTypeError
from pellucid.frontend import arguments
from pellucid.frontend.arguments import default_float
from pellucid.frontend.arithmetic import Arithmetic, magnitude
from pellucid.frontend.operands import Operand
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp


class Comparison(Arithmetic):
    """Methods that compare elements, choose between them, and work on their bits."""

    __slots__ = ()

    # ---- comparison -----------------------------------------------------------------------------

    def _comparison(self, other: Operand, op: Op, name: str, *, swap: bool = False) -> Self:
        left, right = self._comparable(other, name)
        return self._value(UOp.make(op, right, left) if swap else UOp.make(op, left, right))

    def _comparable(self, other: Operand, name: str) -> tuple[UOp, UOp]:
        """Operands of a comparison: a Python integer outside of the type still compares right."""
        if not isinstance(other, int) or isinstance(other, bool) or not self._dtype.is_int:
            return self._pair(other, name)
        if not self._dtype.min <= other <= self._dtype.max:
            above = other > self._dtype.max
            wide = self.uop.cast(default_float()) * 0.0
            return wide, wide.const_like(math.inf if above else -math.inf)
        return self._pair(other, name)

    def __lt__(self, other: Operand) -> Self:
        return self._comparison(other, Ops.CMPLT, "lt")

    def __le__(self, other: Operand) -> Self:
        return self._comparison(other, Ops.CMPLE, "le")

    def __gt__(self, other: Operand) -> Self:
        return self._comparison(other, Ops.CMPLT, "gt", swap=True)

    def __ge__(self, other: Operand) -> Self:
        return self._comparison(other, Ops.CMPLE, "ge", swap=True)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._comparison(other, Ops.CMPEQ, "eq")

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._comparison(other, Ops.CMPNE, "ne")

    def lt(self, other: Operand) -> Self:
        """self < other."""
        return self < other

    def le(self, other: Operand) -> Self:
        """self <= other."""
        return self <= other

    def gt(self, other: Operand) -> Self:
        """self > other."""
        return self > other

    def ge(self, other: Operand) -> Self:
        """self >= other."""
        return self >= other

    def eq(self, other: Operand) -> Self:
        """self == other."""
        return self == other

    def ne(self, other: Operand) -> Self:
        """self != other."""
        return self != other

    def isnan(self) -> Self:
        """True for NaN.

        >>> Tensor([1.0, float('inf'), float('nan')]).isnan().tolist()
        [False, False, True]
        """
        node = self.uop
        return self._value(node.ne(node))

    def isinf(self) -> Self:
        """True for both infinities.

        >>> Tensor([1.0, float('inf'), float('nan')]).isinf().tolist()
        [False, True, False]
        """
        node = self.uop
        if not self._dtype.is_float:
            return self._value(UOp.const(dtypes.bool, False).expand(self._shape))
        return self._value(magnitude(node).eq(math.inf))

    def isfinite(self) -> Self:
        """True for what is neither infinite nor NaN.

        >>> Tensor([1.0, float('inf'), float('nan')]).isfinite().tolist()
        [True, False, False]
        """
        if not self._dtype.is_float:
            return self._value(UOp.const(dtypes.bool, True).expand(self._shape))
        return self._value(magnitude(self.uop) < math.inf)

    def isclose(
        self,
        other: Operand,
        rtol: float = 1e-05,
        atol: float = 1e-08,
        equal_nan: bool = False,
    ) -> Self:
        """True where |self - other| <= atol + rtol |other|; infinities are close if equal.

        >>> Tensor([1.0, 1.0, math.inf]).isclose(Tensor([1.000001, 1.1, math.inf])).tolist()
        [True, False, True]
        """
        right = self._lift(other, "isclose")
        near = ((self - right).abs() <= right.abs() * rtol + atol) & right.isfinite()
        close = near | self.eq(right)
        return close | (self.isnan() & right.isnan()) if equal_nan else close

    # ---- selection ------------------------------------------------------------------------------

    def maximum(self, other: Operand) -> Self:
        """The larger of two; NaN if either is.

        >>> Tensor([2.0, float("nan")]).maximum(Tensor([5.0, 1.0])).tolist()
        [5.0, nan]
        """
        return self._binary(other, Ops.MAX, "maximum")

    def minimum(self, other: Operand) -> Self:
        """The smaller of two; NaN if either is.

        >>> Tensor([1.0, 5.0]).minimum(Tensor([3.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        return self._binary(other, Ops.MIN, "minimum")

    def clamp(self, min: Operand = None, max: Operand = None) -> Self:
        """Kept between *min* and *max*; NaN stays.

        >>> Tensor([-2, 5, 9]).clamp(0, 6).tolist()
        [0, 5, 6]
        """
        if min is None and max is None:
            raise DTypeError("clamp needs min, max or both")
        low = self if min is None else self.maximum(min)
        return low if max is None else low.minimum(max)

    clip = clamp

    def where(self, condition: Operand, other: Operand) -> Self:
        """self where *condition* holds, else *other* (PyTorch's order of arguments for the method).

        >>> Tensor([1, 2]).where(Tensor([True, False]), 0).tolist()
        [1, 0]
        """
        return self._select(self._lift(condition, "where"), self, other)

    def masked_fill(self, mask: Operand, value: Operand) -> Self:
        """*value* where *mask* holds, else self.

        >>> Tensor([1, 2]).masked_fill(Tensor([True, False]), 9).tolist()
        [9, 2]
        """
        condition = self._lift(mask, "masked_fill")
        _chooses(condition._dtype, "masked_fill")
        return self._select(~condition, self, value, "masked_fill")

    def _select(self, condition: Self, if_true: Self, other: Operand, name: str = "where") -> Self:
        _chooses(condition._dtype, name)
        left, right = if_true._pair(other, name)
        shape = arguments.broadcast(condition._shape, left.known_shape, name=name)
        chosen = condition.uop.expand(shape).where(left.expand(shape), right.expand(shape))
        return self._value(chosen)

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """self + weight * (end - self).

        >>> Tensor([0.0, 10.0]).lerp(Tensor([4.0, 20.0]), 0.25).tolist()
        [1.0, 12.5]
        """
        return self + (self._lift(end, "lerp") - self) * weight

    # ---- bits and logic -------------------------------------------------------------------------

    def _bits(self, other: Operand, op: Op, name: str) -> Self:
        left, right = self._pair(other, name)
        if left.dtype.is_float:
            raise DTypeError(
                f"{name} works on integers and bools",
                came=left.dtype,
                help="bitcast to an integer type first",
            )
        return self._value(UOp.make(op, left, right))

    def __and__(self, other: Operand) -> Self:
        return self._bits(other, Ops.AND, "bitwise_and")

    def __or__(self, other: Operand) -> Self:
        return self._bits(other, Ops.OR, "bitwise_or")

    def __xor__(self, other: Operand) -> Self:
        return self._bits(other, Ops.XOR, "bitwise_xor")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Self:
        if self._dtype.is_float:
            raise DTypeError("bitwise_not works on integers and bools", came=self._dtype)
        return self._value(self.uop ^ (True if self._dtype.is_bool else -1))

    def bitwise_and(self, other: Operand) -> Self:
        """self & other."""
        return self & other

    def bitwise_or(self, other: Operand) -> Self:
        """self | other."""
        return self | other

    def bitwise_xor(self, other: Operand) -> Self:
        """self ^ other.

        >>> Tensor([5]).bitwise_xor(3).tolist()
        [6]
        """
        return self ^ other

    def bitwise_not(self) -> Self:
        """~self."""
        return ~self

    def _shift(self, count: Operand, op: Op, name: str, *, reverse: bool = False) -> Self:
        if isinstance(count, int) and count < 0 and not reverse:
            raise DTypeError(f"{name} needs a count of 0 or more", came=count)
        left, right = self._pair(count, name, reverse=reverse)
        if not left.dtype.is_int:
            raise DTypeError(f"{name} works on integers", came=left.dtype)
        return self._value(UOp.make(op, left, right))

    def __lshift__(self, count: Operand) -> Self:
        return self._shift(count, Ops.SHL, "left shift")

    def __rshift__(self, count: Operand) -> Self:
        return self._shift(count, Ops.SHR, "right shift")

    def __rlshift__(self, value: Operand) -> Self:
        return self._shift(value, Ops.SHL, "left shift", reverse=True)

    def __rrshift__(self, value: Operand) -> Self:
        return self._shift(value, Ops.SHR, "right shift", reverse=True)

    def bitwise_left_shift(self, count: Operand) -> Self:
        """self << count; 0 when the count is the width or more.

        >>> Tensor([1, 3]).bitwise_left_shift(2).tolist()
        [4, 12]
        """
        return self << count

    def bitwise_right_shift(self, count: Operand) -> Self:
        """self >> count; all sign when the count is the width or more.

        >>> Tensor([8, -8]).bitwise_right_shift(2).tolist()
        [2, -2]
        """
        return self >> count

    def logical_and(self, other: Operand) -> Self:
        """True where both are not 0."""
        return self.cast(dtypes.bool) & self._lift(other, "logical_and").cast(dtypes.bool)

    def logical_or(self, other: Operand) -> Self:
        """True where one is not 0."""
        return self.cast(dtypes.bool) | self._lift(other, "logical_or").cast(dtypes.bool)

    def logical_xor(self, other: Operand) -> Self:
        """True where exactly one is not 0.

        >>> Tensor([0, 1, 2]).logical_xor(Tensor([1, 1, 0])).tolist()
        [True, False, True]
        """
        return self.cast(dtypes.bool) ^ self._lift(other, "logical_xor").cast(dtypes.bool)

    def logical_not(self) -> Self:
        """True where self is 0.

        >>> Tensor([0, 1, 2]).logical_not().tolist()
        [True, False, False]
        """
        return ~self.cast(dtypes.bool)


def _chooses(dtype: DType, name: str) -> None:
    """Errors: DTypeError where the condition of *name* is not made of bools."""
    if not dtype.is_bool:
        raise DTypeError(f"{name} chooses by bools", came=dtype, help="compare, as in x > 0")
