"""Arithmetic: sums, products, quotients, remainders, powers.

    x + y      x - y      x * 2      x / y      x // y      x % y      x ** 3

Subtraction is `a + b * -1`, and a power with a whole exponent is products: the graph has one
spelling for each thing.
"""

from __future__ import annotations

from typing import Self

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ArgumentError, DTypeError
from pellucid.frontend.arguments import default_float, default_int
from pellucid.frontend.operands import Number, Operand, Operands
from pellucid.ir.arg import CheckArg, ReduceArg
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp


class Arithmetic(Operands):
    """Methods that add, multiply and divide element by element."""

    __slots__ = ()

    # ---- arithmetic -----------------------------------------------------------------------------

    def add(self, other: Operand, alpha: Operand = 1) -> Self:
        """self + alpha * other.

        >>> Tensor([1, 2]).add(3).tolist()
        [4, 5]
        """
        return self + other if alpha == 1 else self + self._lift(other, "add") * alpha

    def sub(self, other: Operand, alpha: Operand = 1) -> Self:
        """self - alpha * other.

        >>> Tensor([5.0]).sub(1.0, alpha=3).tolist()
        [2.0]
        """
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
        """1 / self.

        >>> Tensor([4.0]).reciprocal().tolist()
        [0.25]
        """
        return 1 / self

    def abs(self) -> Self:
        """The magnitude; of the smallest integer, itself.

        >>> Tensor([-1.5, 2.0]).abs().tolist()
        [1.5, 2.0]
        """
        node = self.uop
        if self._dtype.is_float:
            return self._value(magnitude(node))
        if self._dtype.is_bool or self._dtype.is_unsigned:
            return self._value(node)
        return self._value((node < 0).where(-node, node))

    def __abs__(self) -> Self:
        return self.abs()

    def sign(self) -> Self:
        """-1, 0 or 1; NaN and a signed zero stay.

        >>> Tensor([-2.5, 0.0, 3.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        node = self.uop
        if self._dtype.is_bool:
            return self._value(node)
        small = (node < 0).where(node.const_like(-1), node) if not self._dtype.is_unsigned else node
        return self._value((node > 0).where(node.const_like(1), small))


def _negated(node: UOp) -> UOp:
    """-node, a literal as a literal."""
    return -node


def magnitude(node: UOp) -> UOp:
    """|x| of a float: clears the sign, of zero and NaN too."""
    return node.maximum(-node)


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
