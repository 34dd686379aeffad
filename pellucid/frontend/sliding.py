"""Graphs of sliding windows and of convolutions, and the gradient of a convolution as a whole.

    windows      x (…, h, w)  ->  (…, out_h, out_w, k_h, k_w)
    correlate    y[n, o, h, w] = sum over c, i, j of x[n, c, h + i, w + j] * k[o, c, i, j]

Differentiated op by op, a convolution would give the gradient of every window, nine times as much
as the tensor for a 3 x 3 kernel, and add them up where windows overlap. As a whole, its gradient is
a convolution again, of the padded gradient with the reversed kernel:

    dx[n, c, h, w] = sum over o, i, j of dy[n, o, h - i, w - j] * k[o, c, i, j]

With steps of s, dy would stand s apart with zeros between, most of the work for nothing. Elements
of dx that leave the same remainder by s, a phase, read the same taps of the kernel, so each phase
is a convolution with steps of 1; all are made as channels of one, and then put side by side:

    dx[s q + r] = sum over j of dy[q - j] * k[s j + r]        (`transposed`)

Source: V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016, ch. 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pellucid.core.dtype import DType
from pellucid.ir import gradient as rules
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp

MANY_USES = 64
"""A padded tensor of which each element is used as often is kept in memory."""
MAX_MOVE = 4
"""The largest step or gap of a convolution whose gradient is made as a whole."""
_VIEWS = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.CAST)


def windows(
    node: UOp, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> UOp:
    """All places of a sliding box over the last axes: (…, outputs…, kernel…).

    Repeating an axis of length L and cutting the result into rows of length L + d shifts each row
    by d against the one before: element j of row k is x[j + k d].
    """
    num = len(kernel)
    first = len(node.known_shape) - num
    for i in range(num):
        node = _slide(node, first + 2 * i, kernel[i], stride[i], dilation[i])
    # (lead…, kernel0, out0, kernel1, out1, …) -> (lead…, out…, kernel…)
    outs = (first + 2 * i + 1 for i in range(num))
    return node.permute((*range(first), *outs, *(first + 2 * i for i in range(num))))


def _slide(node: UOp, place: int, size: int, stride: int, dilation: int) -> UOp:
    """Replace axis *place* of length L by (kernel, output)."""
    shape = node.known_shape
    length = shape[place]
    before, after = shape[:place], shape[place + 1 :]
    out = (length - dilation * (size - 1) - 1) // stride + 1
    if stride == size and (dilation == 1 or size == 1):  # windows that do not overlap are rows
        kept = ((0, out * size if i == place else n) for i, n in enumerate(shape))
        cut = node.shrink(tuple(kept))
        rows = cut.reshape((*before, out, size, *after))
        return rows.permute((*range(place), place + 1, place, *range(place + 2, len(shape) + 1)))
    if out * stride > length + dilation:
        grow = out * stride - length - dilation
        node = node.pad((*((0, 0) for _ in before), (0, grow), *((0, 0) for _ in after)))
        length += grow
    row = length + dilation
    repeats = -(-size * row // length) if length else 0
    node = node.reshape((*before, 1, length, *after)).expand((*before, repeats, length, *after))
    node = node.reshape((*before, repeats * length, *after))
    whole = tuple((0, n) for n in before), tuple((0, n) for n in after)
    node = node.shrink((*whole[0], (0, size * row), *whole[1]))
    node = node.reshape((*before, size, row, *after))
    node = node.shrink((*whole[0], (0, size), (0, out * stride), *whole[1]))
    node = node.reshape((*before, size, out, stride, *after))
    node = node.shrink((*whole[0], (0, size), (0, out), (0, 1), *whole[1]))
    return node.reshape((*before, size, out, *after))


def in_phases(node: UOp, step: int) -> UOp:
    """The same value, in memory with elements *step* apart on the last axis side by side.

    Windows that are *step* apart then read neighbours: 0 2 4 6 1 3 5 7 for a step of 2.
    """
    *lead, size = node.known_shape
    columns = -(-size // step)
    none = tuple((0, 0) for _ in lead)
    padded = node.pad((*none, (0, columns * step - size)), 0)
    swapped = (*range(len(lead)), len(lead) + 1, len(lead))
    phases = padded.reshape((*lead, columns, step)).permute(swapped)
    back = UOp.make(Ops.CONTIGUOUS, phases).permute(swapped).reshape((*lead, columns * step))
    return back.shrink((*((0, n) for n in lead), (0, size)))


def correlate(x: UOp, weight: UOp, steps: Shape, gaps: Shape, groups: int, wide: DType) -> UOp:
    """Convolve (batch, in, …) with (out, in / groups, kernel…); products and sums are *wide*."""
    left, right = _operands(x, weight, steps, gaps, groups, wide)
    return _summed(left, right, len(weight.known_shape) - 2)


def transposed(x: UOp, weight: UOp, steps: Shape, gaps: Shape, groups: int, wide: DType) -> UOp:
    """Put the kernel, times each element of (batch, in, n…), down *steps* apart, and add up.

    The weight is (in, out / groups, k…), reversed on no axis; the result (batch, out, m…) with
    m = (n - 1) * step + gap * (k - 1) + 1.
    """
    if any(s > 1 and g > 1 for s, g in zip(steps, gaps, strict=True)):
        weight, gaps = _spread_out(weight, gaps), (1,) * len(gaps)
    out, *kernel = weight.known_shape[1:]
    num, phases = len(kernel), math.prod(steps)
    turned = _turned(weight, steps, groups)
    taps = turned.known_shape[2:]
    around = ((g * (t - 1),) * 2 for t, g in zip(taps, gaps, strict=True))
    padded = x.pad(((0, 0), (0, 0), *around), 0)
    if out * phases * math.prod(taps) >= MANY_USES:
        padded = UOp.make(Ops.CONTIGUOUS, padded)
    made = correlate(padded, turned, (1,) * num, gaps, groups, wide)
    if phases == 1:
        return made  # of which a SHRINK may leave a part only
    less = zip(x.known_shape[2:], steps, kernel, gaps, strict=True)
    sizes = tuple((n - 1) * s + g * (k - 1) + 1 for n, s, k, g in less)
    return _side_by_side(UOp.make(Ops.CONTIGUOUS, made), groups * out, steps, sizes)


def _turned(weight: UOp, steps: Shape, groups: int) -> UOp:
    """(in, out / groups, k…) -> (out and phases, in / groups, taps of one phase…), reversed."""
    inner, out, *kernel = weight.known_shape
    inner, num = inner // groups, len(kernel)
    taps = tuple(-(-k // s) for k, s in zip(kernel, steps, strict=True))
    more = ((0, t * s - k) for t, s, k in zip(taps, steps, kernel, strict=True))
    whole = weight.pad(((0, 0), (0, 0), *more), 0)
    pairs = (size for pair in zip(taps, steps, strict=True) for size in pair)
    places, phases = range(3, 3 + 2 * num, 2), range(4, 4 + 2 * num, 2)
    parts = whole.reshape((groups, inner, out, *pairs)).flip(tuple(places))
    turned = parts.permute((0, 2, *phases, 1, *places))
    turned = turned.reshape((groups * out * math.prod(steps), inner, *taps))
    return UOp.make(Ops.CONTIGUOUS, turned) if math.prod(steps) > 1 else turned


def _side_by_side(made: UOp, out: int, steps: Shape, sizes: Shape) -> UOp:
    """(batch, out and phases, columns…) -> (batch, out, sizes…): phase r of column q is s q + r.

    What is made stands in memory: a loop over the result would divide every index by s.
    """
    batch, _, *columns = made.known_shape
    num = len(steps)
    beside = (place for i in range(num) for place in (2 + num + i, 2 + i))
    lined = made.reshape((batch, out, *steps, *columns)).permute((0, 1, *beside))
    flat = lined.reshape((batch, out, *(c * s for c, s in zip(columns, steps, strict=True))))
    return flat.shrink(((0, batch), (0, out), *((0, size) for size in sizes)))


def _spread_out(node: UOp, steps: Shape) -> UOp:
    """Zeros between the elements of the last axes, so that they stand *steps* apart."""
    for i, step in enumerate(steps):
        *before, size = node.known_shape[: i + 3]
        after = node.known_shape[i + 3 :]
        kept, rest = tuple((0, n) for n in before), tuple((0, n) for n in after)
        wide = node.reshape((*before, size, 1, *after))
        wide = wide.pad(
            (*((0, 0) for _ in kept), (0, 0), (0, step - 1), *((0, 0) for _ in rest)), 0
        )
        flat = wide.reshape((*before, size * step, *after))
        node = flat.shrink((*kept, (0, (size - 1) * step + 1), *rest))
    return node


def _summed(left: UOp, right: UOp, num: int) -> UOp:
    """Multiply, and add up over channels and window: one reduction, whose axes become one."""
    shape = left.known_shape
    batch, groups, out, inner = shape[:4]
    order = (0, 1, 2, *range(4, 4 + num), 3, *range(4 + num, len(shape)))
    lined = (left * right).permute(order)
    places, kernel = shape[4 : 4 + num], shape[4 + num :]
    lined = lined.reshape((batch, groups * out, *places, inner * math.prod(kernel)))
    return UOp.make(Ops.REDUCE, lined, arg=ReduceArg(Ops.ADD, (2 + num,)))


def _operands(
    x: UOp, weight: UOp, steps: Shape, gaps: Shape, groups: int, wide: DType
) -> tuple[UOp, UOp]:
    """(batch, groups, 1, in, places…, kernel…) and (1, groups, out, in, 1…, kernel…), expanded."""
    out, inner, *kernel = weight.known_shape
    ones = (1,) * len(kernel)
    right = weight.cast(wide).reshape((1, groups, out // groups, inner, *ones, *kernel))
    left = _left(x, tuple(kernel), steps, gaps, (groups, inner), wide)
    batch, places = left.known_shape[0], left.known_shape[4 : 4 + len(kernel)]
    shape = (batch, groups, out // groups, inner, *places, *kernel)
    return left.expand(shape), right.expand(shape)


def _left(
    x: UOp, kernel: Shape, steps: Shape, gaps: Shape, channels: tuple[int, int], wide: DType
) -> UOp:
    found = windows(x, kernel, steps, gaps)
    batch, groups, inner = found.known_shape[0], *channels
    return found.cast(wide).reshape((batch, groups, 1, inner, *found.known_shape[2:]))


# ---- the gradient ------------------------------------------------------------------------------


class _Convolution(NamedTuple):
    """What a sum was made of."""

    x: UOp
    left: UOp
    weight: UOp  # (1, groups, out, in, 1…, kernel…)
    kernel: Shape
    steps: Shape
    gaps: Shape


@rules.differentiates_whole(Ops.REDUCE)
def convolution(node: UOp, grad: UOp) -> dict[UOp, UOp] | None:
    """The gradients of a convolution, by its tensor and its weight."""
    found = _read(node)
    if found is None:
        return None
    x, left, weight, kernel, steps, gaps = found
    num, shape = len(kernel), left.known_shape
    batch, groups, out, inner, *_ = shape
    places = shape[4 : 4 + num]
    spread = grad.reshape((batch, groups, out, 1, *places, *(1,) * num)).expand(shape)
    by_weight = (spread * left).cast(grad.dtype)
    summed = (0, *range(4, 4 + num))
    by_weight = UOp.make(Ops.REDUCE, by_weight, arg=ReduceArg(Ops.ADD, summed))
    turned = weight.reshape((groups, out, inner, *kernel)).reshape((groups * out, inner, *kernel))
    by_x = transposed(grad, turned, steps, gaps, groups, grad.dtype)
    rest = (n - m for n, m in zip(x.known_shape[2:], by_x.known_shape[2:], strict=True))
    by_x = by_x.pad(((0, 0), (0, 0), *((0, n) for n in rest)), 0)
    return {x: by_x.cast(x.dtype), weight: by_weight.reshape(weight.known_shape)}


def _read(node: UOp) -> _Convolution | None:
    """Read what `correlate` made; None for every other sum."""
    lined = node.src[0]
    if node.arg.op is not Ops.ADD or lined.op is not Ops.RESHAPE:
        return None
    product = lined.src[0].src[0] if lined.src[0].op is Ops.PERMUTE else lined
    num = len(node.known_shape) - 2
    if product.op is not Ops.MUL or num < 1 or len(product.known_shape) != 4 + 2 * num:
        return None
    for left, right in (product.src, product.src[::-1]):
        if left.op is Ops.EXPAND and right.op is Ops.EXPAND:
            found = _with_operands(left, right, num)
            if found is not None and _summed(left, right, num) is node:
                return found
    return None


def _with_operands(left: UOp, right: UOp, num: int) -> _Convolution | None:
    weight, shape = right.src[0], left.known_shape
    kernel, places = shape[4 + num :], shape[4 : 4 + num]
    if math.prod(kernel) == 1 or weight.known_shape != (1, *shape[1:4], *(1,) * num, *kernel):
        return None
    for base in _below(left):
        found = base.known_shape
        if len(found) != 2 + num or found[:2] != (shape[0], shape[1] * shape[3]):
            continue
        each = map(_moves, found[2:], kernel, places)
        for moves in itertools.product(*each):
            steps, gaps = tuple(s for s, _ in moves), tuple(g for _, g in moves)
            made = _left(base, kernel, steps, gaps, (shape[1], shape[3]), left.dtype)
            if made.expand(shape) is left:
                return _Convolution(base, left, weight, kernel, steps, gaps)
    return None


def _moves(size: int, taps: int, places: int) -> list[tuple[int, int]]:
    """Which (step, gap) give *places* windows of *taps* elements along an axis of *size*."""
    if size == places + taps - 1:  # almost always; further ones are also equal where places is 1
        return [(1, 1)]
    either = itertools.product(range(1, MAX_MOVE + 1), repeat=2)
    return [(s, g) for s, g in either if (size - g * (taps - 1) - 1) // s + 1 == places]


def _below(node: UOp) -> Iterator[UOp]:
    """A node, and those that it is a view of; a RESHAPE hides the one that it was made of."""
    yield node
    *lead, columns, step = node.known_shape or (1, 1)
    if node.op is Ops.PERMUTE and lead:  # elements of `in_phases`, put in line
        yield node.reshape((*lead, columns * step))
    while node.op in _VIEWS:
        node = node.src[0]
        yield node
