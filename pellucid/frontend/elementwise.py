"""One element at a time: arithmetic, comparison, functions, types.

    x * 2.0 + y        x < y        x.exp()        x.cast(dtypes.float16)        where(mask, x, 0)

Operands broadcast and promote (core/dtype.py); Python numbers are weak, they take the type of the
tensor. Subtraction is `a + b * -1`, `a > b` is `b < a`: the graph has one spelling for each thing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from pellucid.core.dtype import DType, dtypes, promote
from pellucid.core.errors import ArgumentError, DTypeError
from pellucid.engine.memory import buffer_with
from pellucid.frontend import arguments
from pellucid.frontend.arguments import DTypeLike, default_float, default_int
from pellucid.frontend.movement import Movement
from pellucid.frontend.value import Value
from pellucid.ir.arg import CheckArg, ReduceArg
from pellucid.ir.op import Op, Ops, Shape
from pellucid.ir.uop import UOp

Operand = object
"""A tensor, a Python number, or a numpy value: whatever it is, it is checked when it comes."""
Number = bool | int | float


class Elementwise(Movement):
    """Methods that compute each element from those at the same place."""

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

    # ---- arithmetic -----------------------------------------------------------------------------

    def add(self, other: Operand, alpha: Operand = 1) -> Self:
        """self + alpha * other.

        >>> Tensor([1, 2]).add(3).tolist()
        [4, 5]
        """
        return self + other if alpha == 1 else self + self._lift(other, "add") * alpha

    def sub(self, other: Operand, alpha: Operand = 1) -> Self:
        """self - alpha * other."""
        return self - other if alpha == 1 else self - self._lift(other, "sub") * alpha

    def mul(self, other: Operand) -> Self:
        """self * other."""
        return self * other

    def div(self, other: Operand, rounding_mode: str | None = None) -> Self:
        """self / other; rounding_mode "trunc" rounds towards zero, "floor" downwards.

        >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        [3, -3]
        """
        if rounding_mode is None:
            return self / other
        if rounding_mode == "floor":
            return self // other
        if rounding_mode != "trunc":
            raise ArgumentError(
                f"div has no rounding mode {rounding_mode!r}", expected="None, 'trunc' or 'floor'"
            )
        left, right = self._pair(other, "div")
        if left.dtype.is_float:
            return self._value((left / right).alu(Ops.TRUNC))
        return self._value(left.alu(Ops.TRUNCDIV, right))

    def __add__(self, other: Operand) -> Self:
        if self._dtype.is_bool:
            left, right = self._pair(other, "add")
            return self._value((left | right) if left.dtype.is_bool else left + right)
        return self._binary(other, Ops.ADD, "add")

    def __radd__(self, other: Operand) -> Self:
        return self + other

    def __sub__(self, other: Operand) -> Self:
        self._not_bool("subtraction", other)
        left, right = self._pair(other, "sub")
        return self._value(left + _negated(right))

    def __rsub__(self, other: Operand) -> Self:
        self._not_bool("subtraction", other)
        left, right = self._pair(other, "sub", reverse=True)
        return self._value(left + _negated(right))

    def __mul__(self, other: Operand) -> Self:
        left, right, shape = self._operands(other, "mul")
        op = Ops.AND if left.dtype.is_bool else Ops.MUL
        return self._value(UOp.make(op, left, right), shape)

    def __rmul__(self, other: Operand) -> Self:
        return self * other

    def __neg__(self) -> Self:
        self._not_bool("negation")
        return self._value(-self.uop)

    def neg(self) -> Self:
        """-self; unsigned integers wrap."""
        return -self

    def __pos__(self) -> Self:
        return self

    def _quotient(self, other: Operand, *, reverse: bool) -> Self:
        left, right = self._pair(other, "div", reverse=reverse)
        if not left.dtype.is_float:
            left, right = left.cast(default_float()), right.cast(default_float())
        return self._value(left / right)

    def __truediv__(self, other: Operand) -> Self:
        return self._quotient(other, reverse=False)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._quotient(other, reverse=True)

    def _floor_quotient(self, other: Operand, *, reverse: bool) -> Self:
        self._not_bool("floor division", other)
        left, right = self._pair(other, "floor_divide", reverse=reverse)
        if left.dtype.is_float:
            return self._value((left / right).alu(Ops.FLOOR))
        return self._value(left // right)

    def __floordiv__(self, other: Operand) -> Self:
        return self._floor_quotient(other, reverse=False)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self._floor_quotient(other, reverse=True)

    def floor_divide(self, other: Operand) -> Self:
        """The quotient rounded to minus infinity; for integers 0 where the divisor is 0.

        >>> Tensor([-7, 7, 1]).floor_divide(Tensor([3, -3, 0])).tolist()
        [-3, -3, 0]
        """
        return self // other

    def _remainder(self, other: Operand, *, reverse: bool) -> Self:
        self._not_bool("remainder", other)
        left, right = self._pair(other, "remainder", reverse=reverse)
        if not left.dtype.is_float:
            return self._value(left % right)
        return self._value(_float_remainder(left, right, Ops.FLOOR))

    def __mod__(self, other: Operand) -> Self:
        return self._remainder(other, reverse=False)

    def __rmod__(self, other: Operand) -> Self:
        return self._remainder(other, reverse=True)

    def __divmod__(self, other: Operand) -> tuple[Self, Self]:
        return self // other, self % other

    def remainder(self, other: Operand) -> Self:
        """The remainder with the sign of the divisor.

        >>> Tensor([-7, 7]).remainder(3).tolist()
        [2, 1]
        """
        return self % other

    def fmod(self, other: Operand) -> Self:
        """The remainder with the sign of the dividend.

        >>> Tensor([-7, 7]).fmod(3).tolist()
        [-1, 1]
        """
        self._not_bool("fmod", other)
        left, right = self._pair(other, "fmod")
        if not left.dtype.is_float:
            return self._value(left.alu(Ops.TRUNCMOD, right))
        return self._value(_float_remainder(left, right, Ops.TRUNC))

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        return (
            self._scalar(other, "pow", self._dtype).pow(self)
            if isinstance(other, Number)
            else (self._lift(other, "pow").pow(self))
        )

    def pow(self, exponent: Operand) -> Self:
        """self to the power of *exponent*; integers exactly, modulo their width.

        >>> Tensor([2, -2]).pow(3).tolist(), Tensor([2.0]).pow(0.5).tolist()
        ([8, -8], [1.4142135381698608])
        """
        if isinstance(exponent, int) and not isinstance(exponent, bool):
            small = self._whole_power(exponent)
            if small is not None:
                return small
        left, right = self._pair(exponent, "pow")
        if left.dtype.is_float:
            return self._value(left.alu(Ops.POW, right))
        if left.dtype.is_bool:
            return self._value(left | right.logical_not())
        return self._value(_integer_power(left, right))

    def _whole_power(self, exponent: int) -> Self | None:
        """A power by multiplication, where that is exact (integers) or short (floats)."""
        if self._dtype.is_float:
            node = self.uop
            spelled = {1: node, 2: node * node, 3: node * node * node}.get(exponent)
            return None if spelled is None else self._value(spelled)
        if exponent < 0:
            raise DTypeError(
                "an integer tensor cannot be raised to a negative integer power",
                came=exponent,
                help="cast it to float first, as in x.float() ** -1",
            )
        base = self.uop.cast(default_int()) if self._dtype.is_bool else self.uop
        result = base.const_like(1)
        while exponent:
            if exponent & 1:
                result = result * base
            base, exponent = base * base, exponent >> 1
        return self._value(result)

    def square(self) -> Self:
        """self * self."""
        return self * self

    def reciprocal(self) -> Self:
        """1 / self."""
        return 1 / self

    def abs(self) -> Self:
        """The magnitude; of the smallest integer, itself.

        >>> Tensor([-1.5, 2.0]).abs().tolist()
        [1.5, 2.0]
        """
        node = self.uop
        if self._dtype.is_float:
            return self._value(_magnitude(node))
        if self._dtype.is_bool or self._dtype.is_unsigned:
            return self._value(node)
        return self._value((node < 0).where(-node, node))

    def __abs__(self) -> Self:
        return self.abs()

    def sign(self) -> Self:
        """-1, 0 or 1; NaN and a signed zero stay."""
        node = self.uop
        if self._dtype.is_bool:
            return self._value(node)
        small = (node < 0).where(node.const_like(-1), node) if not self._dtype.is_unsigned else node
        return self._value((node > 0).where(node.const_like(1), small))

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
        """True for NaN."""
        node = self.uop
        return self._value(node.ne(node))

    def isinf(self) -> Self:
        """True for both infinities."""
        node = self.uop
        if not self._dtype.is_float:
            return self._value(UOp.const(dtypes.bool, False).expand(self._shape))
        return self._value(_magnitude(node).eq(math.inf))

    def isfinite(self) -> Self:
        """True for what is neither infinite nor NaN."""
        if not self._dtype.is_float:
            return self._value(UOp.const(dtypes.bool, True).expand(self._shape))
        return self._value(_magnitude(self.uop) < math.inf)

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
        """The smaller of two; NaN if either is."""
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
        return self._select(~self._lift(mask, "masked_fill"), self, value)

    def _select(self, condition: Self, if_true: Self, other: Operand) -> Self:
        if not condition._dtype.is_bool:
            raise DTypeError(
                "where chooses by bools", came=condition._dtype, help="compare, as in x > 0"
            )
        left, right = if_true._pair(other, "where")
        shape = arguments.broadcast(condition._shape, left.known_shape, name="where")
        chosen = condition.uop.expand(shape).where(left.expand(shape), right.expand(shape))
        return self._value(chosen)

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """self + weight * (end - self)."""
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
        """self ^ other."""
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
        """self << count; 0 when the count is the width or more."""
        return self << count

    def bitwise_right_shift(self, count: Operand) -> Self:
        """self >> count; all sign when the count is the width or more."""
        return self >> count

    def logical_and(self, other: Operand) -> Self:
        """True where both are not 0."""
        return self.cast(dtypes.bool) & self._lift(other, "logical_and").cast(dtypes.bool)

    def logical_or(self, other: Operand) -> Self:
        """True where one is not 0."""
        return self.cast(dtypes.bool) | self._lift(other, "logical_or").cast(dtypes.bool)

    def logical_xor(self, other: Operand) -> Self:
        """True where exactly one is not 0."""
        return self.cast(dtypes.bool) ^ self._lift(other, "logical_xor").cast(dtypes.bool)

    def logical_not(self) -> Self:
        """True where self is 0."""
        return ~self.cast(dtypes.bool)

    # ---- functions ------------------------------------------------------------------------------

    def exp(self) -> Self:
        """e to the self.

        >>> Tensor([0.0]).exp().tolist()
        [1.0]
        """
        return self._function(Ops.EXP)

    def exp2(self) -> Self:
        """2 to the self."""
        return self._function(Ops.EXP2)

    def expm1(self) -> Self:
        """e to the self, less 1: 2 tanh(x/2) / (1 - tanh(x/2)), right near 0 too."""

        def build(x: UOp) -> UOp:
            half = (x * 0.5).alu(Ops.TANH)
            near = half * 2.0 / (1.0 - half)
            return (_magnitude(x) < 1.0).where(near, x.alu(Ops.EXP) - 1.0)

        return self._map(build)

    def log(self) -> Self:
        """The natural logarithm."""
        return self._function(Ops.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self._function(Ops.LOG2)

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self._map(lambda x: x.alu(Ops.LOG) * (1.0 / math.log(10.0)))

    def log1p(self) -> Self:
        """log(1 + self), right near 0 too.

        With u = 1 + x rounded, log(u) x / (u - 1) repairs what the rounding lost (W. Kahan, in
        Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
        theorem 4).
        """

        def build(x: UOp) -> UOp:
            u = x + 1.0
            repaired = u.alu(Ops.LOG) * (x / (u - 1.0))
            return u.eq(1.0).where(x, u.eq(math.inf).where(u.alu(Ops.LOG), repaired))

        return self._map(build)

    def sqrt(self) -> Self:
        """The square root."""
        return self._function(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(self)."""
        return self._map(lambda x: x.const_like(1.0) / x.alu(Ops.SQRT))

    def sin(self) -> Self:
        """The sine of radians."""
        return self._function(Ops.SIN)

    def cos(self) -> Self:
        """The cosine of radians."""
        return self._function(Ops.COS)

    def tan(self) -> Self:
        """The tangent of radians."""
        return self._map(lambda x: x.alu(Ops.SIN) / x.alu(Ops.COS))

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self._function(Ops.TANH)

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        grown = self.expm1()
        return (grown + grown / (grown + 1)) * 0.5

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return (self.exp() + (-self).exp()) * 0.5

    def erf(self) -> Self:
        """The error function."""
        return self._function(Ops.ERF)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-self)).

        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
        """
        return self._map(_sigmoid)

    def relu(self) -> Self:
        """self where it is above 0, else 0; NaN stays.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        node = self.uop
        return self._value((node <= 0).where(node.const_like(0), node))

    def relu6(self) -> Self:
        """Kept between 0 and 6."""
        return self.relu().minimum(6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """self where it is above 0, else self * negative_slope."""
        return self._map(lambda x: (x > 0).where(x, x * negative_slope))

    def elu(self, alpha: float = 1.0) -> Self:
        """self where it is above 0, else alpha (exp(self) - 1)."""
        x = self.cast(self._promoted_float())
        return x.where(x > 0, x.minimum(0).expm1() * alpha)

    def selu(self) -> Self:
        """1.0507 elu(self, 1.6733), exactly as its authors scale it."""
        return self.elu(1.6732632423543772848170429916717) * 1.0507009873554804934193349852946

    def silu(self) -> Self:
        """self * sigmoid(self)."""
        return self * self.sigmoid()

    swish = silu

    def gelu(self, approximate: str = "none") -> Self:
        """self times the share of a normal distribution below it, which "tanh" approximates."""
        x = self.cast(self._promoted_float())
        if approximate == "none":
            return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)
        if approximate != "tanh":
            raise ArgumentError(
                f"gelu has no approximation {approximate!r}", expected="'none' or 'tanh'"
            )
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1)

    def quick_gelu(self) -> Self:
        """self * sigmoid(1.702 self)."""
        return self * (self * 1.702).sigmoid()

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta self)) / beta, without overflow."""
        x = self.cast(self._promoted_float()) * beta
        return (x.maximum(0) + (-x.abs()).exp().log1p()) / beta

    def logsigmoid(self) -> Self:
        """log(sigmoid(self)), without overflow."""
        return -(-self).softplus()

    def mish(self) -> Self:
        """self * tanh(softplus(self))."""
        return self * self.softplus().tanh()

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Kept between min_val and max_val."""
        return self.clamp(min_val, max_val)

    def hardsigmoid(self) -> Self:
        """(self + 3) / 6, kept between 0 and 1."""
        return (self + 3).clamp(0, 6) / 6

    def hardswish(self) -> Self:
        """self * hardsigmoid(self)."""
        return self * self.hardsigmoid()

    def softsign(self) -> Self:
        """self / (1 + |self|)."""
        return self / (self.abs() + 1)

    def _rounded(self, op: Op) -> Self:
        return self._value(UOp.make(op, self.uop) if self._dtype.is_float else self.uop)

    def floor(self) -> Self:
        """The largest whole number not above."""
        return self._rounded(Ops.FLOOR)

    def ceil(self) -> Self:
        """The smallest whole number not below."""
        return self._rounded(Ops.CEIL)

    def trunc(self) -> Self:
        """The whole number towards zero."""
        return self._rounded(Ops.TRUNC)

    def round(self, decimals: int = 0) -> Self:
        """The nearest whole number, ties to even; or the nearest with some decimals.

        >>> Tensor([0.5, 1.5, 2.5]).round().tolist()
        [0.0, 2.0, 2.0]
        """
        if decimals == 0:
            return self._rounded(Ops.ROUND)
        scale = 10.0 ** abs(decimals)
        return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale

    def __round__(self, digits: int | None = None) -> Self:
        return self.round(digits or 0)

    def frac(self) -> Self:
        """What is left of self without its whole part."""
        return self - self.trunc()


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


def _negated(node: UOp) -> UOp:
    """-node, a literal as a literal."""
    return -node


def _magnitude(node: UOp) -> UOp:
    """|x| of a float: clears the sign, of zero and NaN too."""
    return node.maximum(-node)


def _sigmoid(x: UOp) -> UOp:
    """1 / (1 + e^-x)."""
    return x.const_like(1.0) / ((-x).alu(Ops.EXP) + 1.0)


def _float_remainder(left: UOp, right: UOp, rounding: Op) -> UOp:
    return left - (left / right).alu(rounding) * right


def _integer_power(base: UOp, exponent: UOp) -> UOp:
    """Square and multiply, one step for each bit of the exponent; checks for negative exponents."""
    shape, dtype = base.known_shape, base.dtype
    if not dtype.is_unsigned:
        exponent = _check_exponent(exponent)
    result = base.const_like(1)
    for bit in range(dtype.bits - (not dtype.is_unsigned)):
        is_set = ((exponent >> bit) & 1).ne(0)
        result = is_set.where(result * base, result)
        base = base * base
    return result.expand(shape)


def _check_exponent(exponent: UOp) -> UOp:
    """The exponent, with a check that none is negative."""
    count = exponent.num_elems
    position = UOp(Ops.IOTA, dtypes.int64, (), count).reshape(exponent.known_shape)
    bad = (exponent < 0).where(position, position.const_like(count))
    axes = tuple(range(len(exponent.known_shape)))
    first = UOp.make(Ops.REDUCE, bad, arg=ReduceArg(Ops.MIN, axes)) if axes else bad
    flag = (first < count).where(first, -1)
    arg = CheckArg("pow: negative exponent", 0, count)
    return UOp.make(Ops.CHECK, exponent, flag, arg=arg)
