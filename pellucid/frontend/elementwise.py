"""One element at a time: the functions, from exp to gelu, and rounding.

    x.exp()        x.sqrt()        x.tanh()        x.gelu()        x.round()

The classes below this one have the operators: arithmetic.py, comparison.py, and operands.py, which
says what may stand on the other side of them.
"""

from __future__ import annotations

import math
from typing import Self

from pellucid.core.errors import ArgumentError
from pellucid.frontend.arithmetic import magnitude
from pellucid.frontend.comparison import Comparison
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp


class Elementwise(Comparison):
    """Methods that compute each element from those at the same place."""

    __slots__ = ()

    # ---- functions ------------------------------------------------------------------------------

    def exp(self) -> Self:
        """e to the self.

        >>> Tensor([0.0]).exp().tolist()
        [1.0]
        """
        return self._function(Ops.EXP)

    def exp2(self) -> Self:
        """2 to the self.

        >>> Tensor([3.0, -1.0]).exp2().tolist()
        [8.0, 0.5]
        """
        return self._function(Ops.EXP2)

    def expm1(self) -> Self:
        """e to the self, less 1: 2 tanh(x/2) / (1 - tanh(x/2)), right near 0 too.

        >>> Tensor([1e-10]).expm1().item() > 0
        True
        """

        def build(x: UOp) -> UOp:
            half = (x * 0.5).alu(Ops.TANH)
            near = half * 2.0 / (1.0 - half)
            return (magnitude(x) < 1.0).where(near, x.alu(Ops.EXP) - 1.0)

        return self._map(build)

    def log(self) -> Self:
        """The natural logarithm.

        >>> Tensor([1.0, 0.0]).log().tolist()
        [0.0, -inf]
        """
        return self._function(Ops.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2.

        >>> Tensor([1.0, 8.0]).log2().tolist()
        [0.0, 3.0]
        """
        return self._function(Ops.LOG2)

    def log10(self) -> Self:
        """The logarithm to base 10.

        >>> [round(x, 3) for x in Tensor([1.0, 1000.0]).log10().tolist()]
        [0.0, 3.0]
        """
        return self._map(lambda x: x.alu(Ops.LOG) * (1.0 / math.log(10.0)))

    def log1p(self) -> Self:
        """log(1 + self), right near 0 too.

        With u = 1 + x rounded, log(u) x / (u - 1) repairs what the rounding lost (W. Kahan, in
        Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
        theorem 4).

        >>> Tensor([1e-10]).log1p().item() > 0
        True
        """

        def build(x: UOp) -> UOp:
            u = x + 1.0
            repaired = u.alu(Ops.LOG) * (x / (u - 1.0))
            return u.eq(1.0).where(x, u.eq(math.inf).where(u.alu(Ops.LOG), repaired))

        return self._map(build)

    def sqrt(self) -> Self:
        """The square root.

        >>> Tensor([4.0, -1.0]).sqrt().tolist()
        [2.0, nan]
        """
        return self._function(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(self).

        >>> Tensor([4.0, 0.0]).rsqrt().tolist()
        [0.5, inf]
        """
        return self._map(lambda x: x.const_like(1.0) / x.alu(Ops.SQRT))

    def sin(self) -> Self:
        """The sine of radians.

        >>> Tensor([0.0]).sin().tolist()
        [0.0]
        """
        return self._function(Ops.SIN)

    def cos(self) -> Self:
        """The cosine of radians.

        >>> Tensor([0.0]).cos().tolist()
        [1.0]
        """
        return self._function(Ops.COS)

    def tan(self) -> Self:
        """The tangent of radians.

        >>> Tensor([0.0]).tan().tolist()
        [0.0]
        """
        return self._map(lambda x: x.alu(Ops.SIN) / x.alu(Ops.COS))

    def tanh(self) -> Self:
        """The hyperbolic tangent.

        >>> Tensor([0.0, 100.0]).tanh().tolist()
        [0.0, 1.0]
        """
        return self._function(Ops.TANH)

    def sinh(self) -> Self:
        """The hyperbolic sine.

        >>> Tensor([0.0]).sinh().tolist()
        [0.0]
        """
        grown = self.expm1()
        return (grown + grown / (grown + 1)) * 0.5

    def cosh(self) -> Self:
        """The hyperbolic cosine.

        >>> Tensor([0.0]).cosh().tolist()
        [1.0]
        """
        return (self.exp() + (-self).exp()) * 0.5

    def erf(self) -> Self:
        """The error function.

        >>> [round(x, 3) for x in Tensor([0.0, 1.0]).erf().tolist()]
        [0.0, 0.843]
        """
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
        """Kept between 0 and 6.

        >>> Tensor([-1.0, 3.0, 9.0]).relu6().tolist()
        [0.0, 3.0, 6.0]
        """
        return self.relu().minimum(6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """self where it is above 0, else self * negative_slope.

        >>> Tensor([-4.0, 4.0]).leaky_relu(0.25).tolist()
        [-1.0, 4.0]
        """
        return self._map(lambda x: (x > 0).where(x, x * negative_slope))

    def elu(self, alpha: float = 1.0) -> Self:
        """self where it is above 0, else alpha (exp(self) - 1).

        >>> [round(x, 3) for x in Tensor([-1.0, 2.0]).elu().tolist()]
        [-0.632, 2.0]
        """
        x = self.cast(self._promoted_float())
        return x.where(x > 0, x.minimum(0).expm1() * alpha)

    def selu(self) -> Self:
        """1.0507 elu(self, 1.6733), exactly as its authors scale it.

        >>> [round(x, 3) for x in Tensor([-1.0, 1.0]).selu().tolist()]
        [-1.111, 1.051]
        """
        return self.elu(1.6732632423543772848170429916717) * 1.0507009873554804934193349852946

    def silu(self) -> Self:
        """self * sigmoid(self).

        >>> [round(x, 3) for x in Tensor([-1.0, 1.0]).silu().tolist()]
        [-0.269, 0.731]
        """
        return self * self.sigmoid()

    swish = silu

    def gelu(self, approximate: str = "none") -> Self:
        """self times the share of a normal distribution below it, which "tanh" approximates.

        >>> [round(x, 3) for x in Tensor([-1.0, 1.0]).gelu().tolist()]
        [-0.159, 0.841]
        """
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
        """self * sigmoid(1.702 self).

        >>> [round(x, 3) for x in Tensor([0.0, 1.0]).quick_gelu().tolist()]
        [0.0, 0.846]
        """
        return self * (self * 1.702).sigmoid()

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta self)) / beta, without overflow.

        >>> Tensor([-200.0, 200.0]).softplus().tolist()
        [0.0, 200.0]
        """
        x = self.cast(self._promoted_float()) * beta
        return (x.maximum(0) + (-x.abs()).exp().log1p()) / beta

    def logsigmoid(self) -> Self:
        """log(sigmoid(self)), without overflow.

        >>> Tensor([-200.0]).logsigmoid().tolist()
        [-200.0]
        """
        return -(-self).softplus()

    def mish(self) -> Self:
        """self * tanh(softplus(self)).

        >>> [round(x, 3) for x in Tensor([0.0, 1.0]).mish().tolist()]
        [0.0, 0.865]
        """
        return self * self.softplus().tanh()

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Kept between min_val and max_val.

        >>> Tensor([-4.0, 0.5, 4.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        """
        return self.clamp(min_val, max_val)

    def hardsigmoid(self) -> Self:
        """(self + 3) / 6, kept between 0 and 1.

        >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return (self + 3).clamp(0, 6) / 6

    def hardswish(self) -> Self:
        """self * hardsigmoid(self).

        >>> Tensor([-4.0, 0.0, 4.0]).hardswish().tolist()
        [-0.0, 0.0, 4.0]
        """
        return self * self.hardsigmoid()

    def softsign(self) -> Self:
        """self / (1 + |self|).

        >>> Tensor([-1.0, 3.0]).softsign().tolist()
        [-0.5, 0.75]
        """
        return self / (self.abs() + 1)

    def _rounded(self, op: Op) -> Self:
        return self._value(UOp.make(op, self.uop) if self._dtype.is_float else self.uop)

    def floor(self) -> Self:
        """The largest whole number not above.

        >>> Tensor([1.2, -1.2]).floor().tolist()
        [1.0, -2.0]
        """
        return self._rounded(Ops.FLOOR)

    def ceil(self) -> Self:
        """The smallest whole number not below.

        >>> Tensor([1.2, -1.2]).ceil().tolist()
        [2.0, -1.0]
        """
        return self._rounded(Ops.CEIL)

    def trunc(self) -> Self:
        """The whole number towards zero.

        >>> Tensor([1.7, -1.7]).trunc().tolist()
        [1.0, -1.0]
        """
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
        """What is left of self without its whole part.

        >>> Tensor([1.25, -1.25]).frac().tolist()
        [0.25, -0.25]
        """
        return self - self.trunc()


def _sigmoid(x: UOp) -> UOp:
    """1 / (1 + e^-x)."""
    return x.const_like(1.0) / ((-x).alu(Ops.EXP) + 1.0)
