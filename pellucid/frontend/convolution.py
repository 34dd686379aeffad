"""Sliding windows: convolution and pooling over any number of axes.

    x (batch, channels, h, w)  ->  windows (batch, channels, out_h, out_w, k_h, k_w)
    conv2d: multiply by the weight, add up over channels and window     max_pool2d: maximum

Convolution is what neural networks call by that name: the weight is not reversed (correlation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from pellucid.core.dtype import promote
from pellucid.core.errors import ShapeError
from pellucid.frontend import arguments, sliding
from pellucid.frontend.arguments import default_float
from pellucid.frontend.linear import Linear, product_dtype
from pellucid.ir.op import Ops, Shape

Sizes = int | Sequence[int]


class Convolution(Linear):
    """Methods with sliding windows."""

    __slots__ = ()

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Self:
        """Convolve (batch, in, h, w) with a weight (out, in / groups, k_h, k_w).

        Works for any number of spatial axes: as many as the weight has after its first two.
        padding: zeros around, a number or one for each axis, or "same" or "valid".

        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        num = weight.ndim - 2
        x = self.unsqueeze(0) if self.ndim == num + 1 else self
        _check_convolution(x._shape, weight._shape, groups)
        steps, gaps = _each(stride, num, "stride", 1), _each(dilation, num, "dilation", 1)
        kernel = weight._shape[2:]
        around = _around(padding, kernel, gaps, steps)
        padded = x._padded([(0, 0), (0, 0), *around])
        _check_windows(padded._shape[2:], kernel, gaps)
        uses = weight._shape[0] // groups * math.prod(kernel) // math.prod(steps)
        if uses >= sliding.MANY_USES and steps[-1] > 1 and kernel[-1] > 1:
            padded = self._value(sliding.in_phases(padded.uop, steps[-1]))
        elif uses >= sliding.MANY_USES and any(low or high for low, high in around):
            padded = padded.contiguous()  # cheaper than asking at each use what lies outside
        result = padded._correlated(weight, steps, gaps, groups)
        if bias is not None:
            result = result + bias.reshape(1, -1, *(1,) * num)
        return result.squeeze(0) if self.ndim == num + 1 else result

    conv1d = conv2d
    conv3d = conv2d

    def _correlated(self, weight: Self, steps: Shape, gaps: Shape, groups: int) -> Self:
        result = promote(self._dtype, weight._dtype, default_float=default_float())
        wide = product_dtype(result)
        summed = sliding.correlate(self.uop, weight.uop, steps, gaps, groups, wide)
        return self._value(summed.cast(result))

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Self:
        """The gradient of a convolution with respect to its input, as an operation.

        Elements are spread *stride* apart, padded, and convolved with the weight reversed. The
        weight has shape (in, out / groups, k_h, k_w).

        >>> Tensor([[[[1.0]]]]).conv_transpose2d(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
        [[[[1.0, 2.0], [3.0, 4.0]]]]
        """
        num = weight.ndim - 2
        x = self.unsqueeze(0) if self.ndim == num + 1 else self
        if x.ndim != num + 2 or x._shape[1] != weight._shape[0] or weight._shape[0] % groups:
            raise ShapeError(
                "conv_transpose takes a weight (in, out / groups, kernel…) that fits the channels",
                rows=[("tensor", self._shape), ("weight", weight._shape), ("groups", groups)],
            )
        steps, gaps = _each(stride, num, "stride", 1), _each(dilation, num, "dilation", 1)
        less, more = (
            _each(padding, num, "padding", 0),
            _each(output_padding, num, "output_padding", 0),
        )
        result = x._transposed(weight, steps, gaps, groups)
        grown = [(-p, m - p) for p, m in zip(less, more, strict=True)]
        result = result._padded([(0, 0), (0, 0), *grown])
        if bias is not None:
            result = result + bias.reshape(1, -1, *(1,) * num)
        return result.squeeze(0) if self.ndim == num + 1 else result

    def _transposed(self, weight: Self, steps: Shape, gaps: Shape, groups: int) -> Self:
        result = promote(self._dtype, weight._dtype, default_float=default_float())
        wide = product_dtype(result)
        summed = sliding.transposed(self.uop, weight.uop, steps, gaps, groups, wide)
        return self._value(summed.cast(result))

    conv_transpose1d = conv_transpose2d
    conv_transpose3d = conv_transpose2d

    # ---- pooling --------------------------------------------------------------------------------

    def max_pool2d(
        self,
        kernel_size: Sizes = 2,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Self:
        """The maximum of every window over the last axes; padding never wins.

        >>> Tensor([[[[1, 2], [3, 4]]]]).max_pool2d(2).tolist()
        [[[[4]]]]
        """
        pool = _Pool(self._shape, kernel_size, stride, padding, dilation, ceil_mode, "max_pool")
        padded = self._padded(pool.around, Ops.MAX.identity_for(self._dtype))
        return padded._windows(pool.kernel, pool.steps, pool.gaps).amax(pool.axes)

    max_pool1d = max_pool2d
    max_pool3d = max_pool2d

    def avg_pool2d(
        self,
        kernel_size: Sizes = 2,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The average of every window over the last axes.

        Padding counts as elements of value 0, unless count_include_pad is False; what ceil_mode
        adds beyond the padding never counts.

        >>> Tensor([[[[1.0, 2.0], [3.0, 6.0]]]]).avg_pool2d().tolist()
        [[[[3.0]]]]
        """
        pool = _Pool(self._shape, kernel_size, stride, padding, 1, ceil_mode, "avg_pool")
        x = self.cast(self._promoted_float())
        total = x._padded(pool.around)._windows(pool.kernel, pool.steps, pool.gaps).sum(pool.axes)
        within = pool.padded_only if count_include_pad else [(0, 0)] * self.ndim
        shape = [n + low + high for n, (low, high) in zip(self._shape, within, strict=True)]
        ones = x.ones(shape[-pool.num :], dtype=x._dtype, device=x.device)
        rest = [
            (low - inner_low, high - inner_high)
            for (low, high), (inner_low, inner_high) in zip(pool.around, within, strict=True)
        ]
        counted = ones._padded(rest[-pool.num :])._windows(pool.kernel, pool.steps, pool.gaps)
        return total / counted.sum(pool.axes)

    avg_pool1d = avg_pool2d
    avg_pool3d = avg_pool2d


class _Pool:
    """The arguments of a pooling, checked: windows over the last axes of a shape."""

    def __init__(
        self,
        shape: Shape,
        kernel_size: Sizes,
        stride: Sizes | None,
        padding: Sizes,
        dilation: Sizes,
        ceil_mode: bool,
        name: str,
    ) -> None:
        ndim = len(shape)
        num = len(kernel_size) if isinstance(kernel_size, Sequence) else max(1, min(2, ndim - 1))
        self.num = num
        self.kernel = _each(kernel_size, num, "kernel_size", 1)
        self.steps = self.kernel if stride is None else _each(stride, num, "stride", 1)
        self.gaps, less = _each(dilation, num, "dilation", 1), _each(padding, num, "padding", 0)
        self.axes = tuple(range(-num, 0))
        if ndim < num or any(2 * p > k for p, k in zip(less, self.kernel, strict=True)):
            raise ShapeError(
                f"{name} needs an axis for each size of the window, and half of it as padding",
                rows=[("tensor", shape), ("window", self.kernel), ("padding", less)],
            )
        lead = [(0, 0)] * (ndim - num)
        self.padded_only = [*lead, *((p, p) for p in less)]
        self.around = list(lead)
        for size, k, s, g, p in zip(
            shape[-num:], self.kernel, self.steps, self.gaps, less, strict=True
        ):
            extra = _extra(size + 2 * p, size + p, g * (k - 1) + 1, s) if ceil_mode else 0
            self.around.append((p, p + extra))
        sizes = tuple(n + low + high for n, (low, high) in zip(shape, self.around, strict=True))
        _check_windows(sizes[-num:], self.kernel, self.gaps)


def _extra(size: int, last_start: int, reach: int, step: int) -> int:
    """How much ceil_mode adds after the end, so that a last, partial window fits.

    A window counts only if it starts inside of the tensor or of the padding before it.
    """
    rest = size - reach
    if rest < 0:
        return 0
    more = -(-rest // step)
    if more * step >= last_start:
        more -= 1
    return max(0, more * step + reach - size)


def _each(value: Sizes, num: int, name: str, least: int) -> Shape:
    """One number for each axis."""
    given = tuple(value) if isinstance(value, Sequence) else (value,) * num
    found = tuple(arguments.integer(v, name) for v in given)
    if len(found) == 1:
        found *= num
    if len(found) != num or any(v < least for v in found):
        raise ShapeError(f"{name} is one number, or {num}, of at least {least}", came=value)
    return found


def _around(
    padding: Sizes | str, kernel: Shape, gaps: Shape, steps: Shape
) -> list[tuple[int, int]]:
    """Zeros before and after each spatial axis."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        if any(s != 1 for s in steps):
            raise ShapeError("padding 'same' needs a stride of 1", came=steps)
        total = [g * (k - 1) for g, k in zip(gaps, kernel, strict=True)]
        return [(t // 2, t - t // 2) for t in total]
    if isinstance(padding, str):
        raise ShapeError(f"there is no padding {padding!r}", expected="numbers, 'same' or 'valid'")
    return [(p, p) for p in _each(padding, len(kernel), "padding", 0)]


def _check_convolution(shape: Shape, weight: Shape, groups: int) -> None:
    fits = len(weight) > 2 and len(shape) == len(weight) and groups > 0
    if not fits or shape[1] != weight[1] * groups or weight[0] % groups:
        raise ShapeError(
            "a convolution takes (batch, in, …) and a weight (out, in / groups, …)",
            rows=[("tensor", shape), ("weight", weight), ("groups", groups)],
            help="check the order of the axes, and that groups divides both channels",
        )


def _check_windows(sizes: Shape, kernel: Shape, gaps: Shape) -> None:
    reach = tuple(g * (k - 1) + 1 for g, k in zip(gaps, kernel, strict=True))
    if any(r > n for r, n in zip(reach, sizes, strict=True)):
        raise ShapeError(
            "the window is larger than the padded tensor",
            rows=[("tensor", sizes), ("window", reach)],
        )
