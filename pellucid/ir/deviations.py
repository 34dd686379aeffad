"""The gradient of a sum of squares about the mean, as a whole.

    m = sum of x along axes / n        s = sum of (x - m)^2 along the same axes

Differentiated op by op, the mean gets a gradient too: minus twice the sum of all deviations, which
is nothing but rounding, and takes a pass over the elements once the gradient by s is known. As a
whole, with g the gradient by s:

    dx[i] = 2 * g * (x[i] - m)

Source: S. Ioffe, C. Szegedy, "Batch normalization", 2015, section 3: the gradient by the mean,
whose second term is 0.
"""

from __future__ import annotations

import math

from pellucid.ir import gradient as rules
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


@rules.differentiates_whole(Ops.REDUCE)
def squares_about_the_mean(node: UOp, grad: UOp) -> dict[UOp, UOp] | None:
    """The gradient of a sum of squared deviations, by what deviates."""
    square = node.src[0]
    is_sum_of_squares = square.op is Ops.MUL and square.src[0] is square.src[1]
    if node.arg.op is not Ops.ADD or not is_sum_of_squares or square.src[0].op is not Ops.ADD:
        return None
    away = square.src[0]
    for x, minus in (away.src, away.src[::-1]):
        if _is_minus_mean(minus, x, node):
            half = rules.spread_back(grad, node) * away
            return {x: half + half}
    return None


def _is_minus_mean(minus: UOp, x: UOp, node: UOp) -> bool:
    """True for the mean of *x* along the axes that *node* reduces, times -1."""
    if minus.op is not Ops.MUL or not _is_literal(minus.src[1], -1):
        return False
    mean = minus.src[0]
    while mean.op is Ops.EXPAND or mean.op is Ops.RESHAPE:
        mean = mean.src[0]
    if mean.op is not Ops.FDIV or rules.spread_back(mean, node) is not minus.src[0]:
        return False
    total, count = mean.src
    num_elems = math.prod(x.known_shape[axis] for axis in node.arg.axes)
    is_total = total.op is Ops.REDUCE and total.src[0] is x and total.arg == node.arg
    return is_total and _is_literal(count, num_elems)


def _is_literal(node: UOp, value: int) -> bool:
    while node.op is Ops.EXPAND or node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.CONST and node.arg == value
