"""ERF, the error function.

    erf(x) = x + x Q(x**2)             |x| < 9/10
           = 1 - exp(P(|x|))           beyond, with the sign of x

P is a polynomial for the logarithm of 1 - erf, so that the exponential supplies the steep fall
and the polynomial what is left, which is smooth. From 4 (float32) or 6 (float64) on the result is
1.
"""

from __future__ import annotations

from pellucid.codegen.decompositions import coefficients
from pellucid.codegen.decompositions.building import (
    absolute,
    at_most,
    horner,
    literal,
    multiply_add,
    sign_bit,
    subtract,
    with_sign,
)
from pellucid.core.target import Target
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_SPLIT = 0.9
_CENTRE = 1.5  # the polynomial is in |x| - _CENTRE


@rule(Ops.ERF)
def error_function(node: UOp, ctx: Target) -> UOp:
    """Error function."""
    x = node.src[0]
    wide = x.dtype.bits == 64
    inner = coefficients.ERF_64 if wide else coefficients.ERF_32
    outer = coefficients.LOG_ERFC_64 if wide else coefficients.LOG_ERFC_32
    size = absolute(x)
    near = multiply_add(ctx, horner(ctx, size * size, inner), size, size)
    t = subtract(at_most(size, 6.0 if wide else 4.1), _CENTRE)
    far = subtract(literal(x, 1.0), UOp.make(Ops.EXP, horner(ctx, t, outer)))
    magnitude = (size < literal(x, _SPLIT)).where(near, far)
    return with_sign(magnitude, sign_bit(x))


RULES = [error_function]
