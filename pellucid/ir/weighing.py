"""The gradient of a softmax, and of what a softmax weighs, as a whole.

    w = e / l                l = sum of e along an axis                      weights
    y = sum over j of w[j] * v[j, d], for all d                              what they weigh

Differentiated op by op, the quotient gives two terms, which are divided again element by element,
and a sum over the products of both. As a whole, with e = exp(x) and g the gradient by w:

    dx[j] = w[j] * (g[j] - sum over k of w[k] * g[k])

For weights of a product the sum is that of the result with its gradient, so that nothing runs along
j, which is hidden for many j where a mask is:

    g[j] = sum over d of dy[d] * v[j, d]
    sum over k of w[k] * g[k] = sum over d of dy[d] * y[d]

Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with
IO-awareness", 2022, appendix B.2, equation 4.
"""

from __future__ import annotations

from pellucid.ir import gradient as rules
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp

VIEWS = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.CAST)
"""Ops whose elements are those of the source, rounded at most."""


@rules.differentiates_whole(Ops.FDIV)
def softmax(node: UOp, grad: UOp) -> dict[UOp, UOp] | None:
    """The gradient of exponentials that are divided by their sum, by the exponents."""
    axis = _axis_of_softmax(node)
    if axis is None:
        return None
    total = UOp.make(Ops.REDUCE, node * grad, arg=ReduceArg(Ops.ADD, (axis,)))
    return {node.src[0].src[0]: node * (grad - _spread(total, node.known_shape, axis))}


@rules.differentiates_whole(Ops.REDUCE)
def weighed(node: UOp, grad: UOp) -> dict[UOp, UOp] | None:
    """The gradients of a sum of products with the weights of a softmax along the same axis."""
    product = node.src[0]
    if node.arg.op is not Ops.ADD or product.op is not Ops.MUL or len(node.arg.axes) != 1:
        return None
    for side, other in (product.src, product.src[::-1]):
        weights = _below_views(side)
        axis = _axis_of_softmax(weights)
        places = None if axis is None else places_of(side, weights)
        if axis is None or places is None or places.get(axis) != node.arg.axes[0]:
            continue
        shape, summed = product.known_shape, node.arg.axes[0]
        spread = _spread(grad, shape, summed)
        by_weights = _through_views(side, weights, spread * other)
        total = _total(node * grad, summed, set(places.values()))
        away = by_weights - _spread(total, weights.known_shape, axis)
        found = {other: spread * side}
        exponent, part = weights.src[0].src[0], weights * away
        found[exponent] = found[exponent] + part if exponent in found else part
        return found
    return None


def _axis_of_softmax(node: UOp) -> int | None:
    """The axis of exponentials divided by their sum, in at least float32; None for all else."""
    if node.op is not Ops.FDIV or node.src[0].op is not Ops.EXP or node.dtype.bits < 32:
        return None
    spread = node.src[1]
    below = spread.src[0] if spread.op is Ops.EXPAND else spread
    below = below.src[0] if below.op is Ops.RESHAPE else below
    if below.op is not Ops.REDUCE or below.arg.op is not Ops.ADD or len(below.arg.axes) != 1:
        return None
    (axis,) = below.arg.axes
    shape = node.known_shape
    is_own = below.src[0] is node.src[0] and _spread(below, shape, axis) is spread
    return axis if is_own and shape[axis] > 1 else None


def _spread(reduced: UOp, shape: Shape, axis: int) -> UOp:
    """What is the same all along *axis*, for each element of *shape*."""
    return reduced.reshape(tuple(1 if a == axis else n for a, n in enumerate(shape))).expand(shape)


def _below_views(node: UOp) -> UOp:
    while node.op in VIEWS:
        node = node.src[0]
    return node


def places_of(side: UOp, weights: UOp) -> dict[int, int] | None:
    """Where the axes of weights (of more than one element) are in a view of them.

    None where axes are joined, taken apart or exchanged.
    """
    views: list[UOp] = []
    while side is not weights:
        views.append(side)
        side = side.src[0]
    places = {axis: axis for axis, n in enumerate(weights.known_shape) if n > 1}
    for view in reversed(views):
        shape, before = view.known_shape, view.src[0].known_shape
        if view.op is Ops.PERMUTE:
            places = {axis: view.arg.index(place) for axis, place in places.items()}
        elif view.op is Ops.EXPAND:
            added = len(shape) - len(before)
            places = {axis: place + added for axis, place in places.items()}
        elif view.op is Ops.RESHAPE:
            old = [place for place, n in enumerate(before) if n > 1]
            new = [place for place, n in enumerate(shape) if n > 1]
            if [before[place] for place in old] != [shape[place] for place in new]:
                return None
            moved = dict(zip(old, new, strict=True))
            places = {axis: moved[place] for axis, place in places.items()}
    order = [places[axis] for axis in sorted(places)]
    return places if order == sorted(order) else None


def _through_views(side: UOp, weights: UOp, grad: UOp) -> UOp:
    """The gradient by weights, from that by a view of them."""
    while side is not weights:
        part = rules.GRADIENTS[side.op](side, grad)[0]
        assert part is not None, "views hand gradients on"
        side, grad = side.src[0], part
    return grad


def _total(product: UOp, summed: int, places: set[int]) -> UOp:
    """The sum over all axes that the weights do not have; *summed* is missing from the product."""
    axes = [place for place in range(len(product.known_shape) + 1) if place != summed]
    gone = tuple(i for i, place in enumerate(axes) if place not in places)
    return UOp.make(Ops.REDUCE, product, arg=ReduceArg(Ops.ADD, gone)) if gone else product
