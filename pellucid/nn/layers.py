"""Layers: functions that own their parameters.

    Linear(4, 2)(x)     x @ weight.T + bias        weight (2, 4), bias (2,)

Names, argument orders and starting values are those of PyTorch, so that a state dict fits both
ways.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pellucid.core.errors import ArgumentError, ShapeError
from pellucid.frontend.autograd import no_grad
from pellucid.frontend.tensor import Tensor
from pellucid.nn import init
from pellucid.nn.module import Module

Sizes = int | Sequence[int]


class Linear(Module):
    """x @ weight.T + bias.

    >>> Linear(3, 2)(Tensor.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight = init.kaiming_uniform((out_features, in_features), a=math.sqrt(5))
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.bias = init.parameter_uniform((out_features,), bound) if bias else None

    def forward(self, *args: Any) -> Tensor:
        """The product with the weight, plus the bias."""
        x: Tensor = args[0]
        return x.linear(self.weight, self.bias)


class _Convolution(Module):
    """A convolution over *num* axes."""

    num = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                "groups divides both channels",
                rows=[("channels", (in_channels, out_channels)), ("groups", groups)],
            )
        kernel = (
            tuple(kernel_size) if isinstance(kernel_size, Sequence) else (kernel_size,) * self.num
        )
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = (out_channels, in_channels // groups, *kernel)
        self.weight = init.kaiming_uniform(shape, a=math.sqrt(5))
        bound = 1 / math.sqrt(init.fans(shape)[0])
        self.bias = init.parameter_uniform((out_channels,), bound) if bias else None

    def forward(self, *args: Any) -> Tensor:
        """Convolve with the weight, and add the bias."""
        x: Tensor = args[0]
        return x.conv2d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv2d(_Convolution):
    """A convolution over the last two axes.

    >>> Conv2d(1, 4, 3, padding=1)(Tensor.ones(2, 1, 8, 8)).shape
    (2, 4, 8, 8)
    """


class Conv1d(_Convolution):
    """A convolution over the last axis.

    >>> Conv1d(3, 2, 3)(Tensor.ones(1, 3, 8)).shape
    (1, 2, 6)
    """

    num = 1


class ConvTranspose2d(Module):
    """The gradient of a convolution, as a layer that enlarges.

    >>> ConvTranspose2d(3, 2, 2, stride=2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 2, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
    ) -> None:
        kernel = tuple(kernel_size) if isinstance(kernel_size, Sequence) else (kernel_size,) * 2
        self.options = (stride, padding, output_padding, groups, dilation)
        shape = (in_channels, out_channels // groups, *kernel)
        self.weight = init.kaiming_uniform(shape, a=math.sqrt(5))
        bound = 1 / math.sqrt(init.fans(shape)[0])
        self.bias = init.parameter_uniform((out_channels,), bound) if bias else None

    def forward(self, *args: Any) -> Tensor:
        """Spread, and convolve with the reversed weight."""
        x: Tensor = args[0]
        return x.conv_transpose2d(self.weight, self.bias, *self.options)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, scaled and moved.

    >>> LayerNorm(4)(Tensor.ones(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        one = not isinstance(normalized_shape, Sequence)
        self.shape: tuple[int, ...] = (normalized_shape,) if one else tuple(normalized_shape)  # type: ignore[arg-type, assignment]
        self.eps = eps
        self.weight = Tensor.ones(self.shape, requires_grad=True) if elementwise_affine else None
        affine = elementwise_affine and bias
        self.bias = Tensor.zeros(self.shape, requires_grad=True) if affine else None

    def forward(self, *args: Any) -> Tensor:
        """Normalise."""
        x: Tensor = args[0]
        return x.layer_norm(self.shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Mean square 1 over the last axis, scaled.

    >>> RMSNorm(4)(Tensor.ones(2, 4)).shape
    (2, 4)
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.eps = eps
        self.weight = Tensor.ones(dim, requires_grad=True)

    def forward(self, *args: Any) -> Tensor:
        """Normalise."""
        x: Tensor = args[0]
        return x.rms_norm(-1, self.weight, self.eps)


class GroupNorm(Module):
    """Mean 0 and variance 1 over each group of channels.

    Source: Wu and He, "Group normalization", 2018.

    >>> GroupNorm(2, 4)(Tensor.ones(1, 4, 5)).shape
    (1, 4, 5)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        self.num_groups, self.eps = num_groups, eps
        self.weight = Tensor.ones(num_channels, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_channels, requires_grad=True) if affine else None

    def forward(self, *args: Any) -> Tensor:
        """Normalise."""
        x: Tensor = args[0]
        groups = x.reshape(x.shape[0], self.num_groups, -1).layernorm(-1, self.eps).reshape(x.shape)
        if self.weight is None or self.bias is None:
            return groups
        shape = (1, -1, *(1,) * (x.ndim - 2))
        return groups * self.weight.reshape(shape) + self.bias.reshape(shape)


class BatchNorm2d(Module):
    """Mean 0 and variance 1 of each channel over the batch, with running averages for use.

    Source: Ioffe and Szegedy, "Batch normalization", 2015, algorithms 1 and 2.

    >>> BatchNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
        self.weight = Tensor.ones(num_features, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_features, requires_grad=True) if affine else None
        self.running_mean = Tensor.zeros(num_features, requires_grad=False)
        self.running_var = Tensor.ones(num_features, requires_grad=False)
        self.num_batches_tracked = Tensor(0)

    def forward(self, *args: Any) -> Tensor:
        """Normalise by the batch when training, else by the running averages."""
        x: Tensor = args[0]
        channels = self.running_mean.shape
        if x.ndim < 2 or x.shape[1:2] != channels:
            rows = [("tensor", x.shape), ("channels", *channels)]
            raise ShapeError(f"{type(self).__name__} has its channels in axis 1", rows=rows)
        if self.training or not self.track_running_stats:
            axes = tuple(i for i in range(x.ndim) if i != 1)
            mean, var = x.mean(axes), x.var(axes, correction=0)
            if self.training and self.track_running_stats:
                self._track(mean, var, x.numel() // x.shape[1])
        else:
            mean, var = self.running_mean, self.running_var
        return x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())

    def _track(self, mean: Tensor, var: Tensor, count: int) -> None:
        unbiased = var.detach() * (count / max(count - 1, 1))
        keep, take = 1 - self.momentum, self.momentum
        with no_grad():
            self.running_mean.assign(self.running_mean * keep + mean.detach() * take)
            self.running_var.assign(self.running_var * keep + unbiased * take)
            self.num_batches_tracked += 1


class BatchNorm1d(BatchNorm2d):
    """The same over (batch, channels) or (batch, channels, length).

    >>> BatchNorm1d(3)(Tensor.ones(2, 3, 5)).shape
    (2, 3, 5)
    """


class Embedding(Module):
    """A row of a table for each index.

    >>> Embedding(10, 4)(Tensor([1, 7])).shape
    (2, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.weight = Tensor.randn(num_embeddings, embedding_dim, requires_grad=True)

    def forward(self, *args: Any) -> Tensor:
        """Look the rows up."""
        return self.weight[args[0]]


class Dropout(Module):
    """Some elements 0 in training, the others enlarged to make up for them.

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError("dropout needs a probability from 0 to 1", came=p)
        self.p = p

    def forward(self, *args: Any) -> Tensor:
        """Drop."""
        x: Tensor = args[0]
        return x.dropout(self.p, self.training)


class Flatten(Module):
    """All axes but the first as one.

    >>> Flatten()(Tensor.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.dims = start_dim, end_dim

    def forward(self, *args: Any) -> Tensor:
        """Flatten."""
        x: Tensor = args[0]
        return x.flatten(*self.dims)


class MaxPool2d(Module):
    """The maximum of every window.

    >>> MaxPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.options = (kernel_size, stride, padding, dilation, ceil_mode)

    def forward(self, *args: Any) -> Tensor:
        """Take the maxima."""
        x: Tensor = args[0]
        return x.max_pool2d(*self.options)


class _Function(Module):
    """A method of Tensor as a layer; what it is made with, the method is called with."""

    method = ""

    def __init__(self, *options: Any, **named: Any) -> None:
        self.options, self.named = options, named

    def forward(self, *args: Any) -> Tensor:
        """Apply the function."""
        call = getattr(args[0], self.method)
        result: Tensor = call(*args[1:], *self.options, **self.named)
        return result

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.named.items()]
        return f"{type(self).__name__}({', '.join([*map(repr, self.options), *named])})"


class AvgPool2d(_Function):
    """The mean of every window.

    >>> AvgPool2d(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """

    method = "avg_pool2d"


class ReLU(_Function):
    """x where it is above 0, else 0.

    >>> ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    method = "relu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()  # a fused kernel stores no intermediate, in place or not


class LeakyReLU(_Function):
    """x where it is above 0, else a small part of it."""

    method = "leaky_relu"


class ELU(_Function):
    """x where it is above 0, else exp(x) - 1."""

    method = "elu"


class GELU(_Function):
    """x times the share of a normal distribution below it."""

    method = "gelu"


class SiLU(_Function):
    """x * sigmoid(x)."""

    method = "silu"


class Tanh(_Function):
    """The hyperbolic tangent."""

    method = "tanh"


class Sigmoid(_Function):
    """1 / (1 + exp(-x))."""

    method = "sigmoid"


class Softmax(_Function):
    """Positive, and 1 in sum along an axis.

    >>> Softmax(dim=0)(Tensor([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    method = "softmax"


class LogSoftmax(_Function):
    """The logarithm of softmax."""

    method = "log_softmax"


class CrossEntropyLoss(_Function):
    """`Tensor.cross_entropy`, made with its options by name.

    >>> loss = CrossEntropyLoss(reduction="sum")
    >>> round(loss(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """

    method = "cross_entropy"


class MSELoss(_Function):
    """The mean of squared differences.

    >>> MSELoss()(Tensor([1.0]), Tensor([3.0])).item()
    4.0
    """

    method = "mse_loss"


class Identity(Module):
    """What comes in goes out.

    >>> Identity()(Tensor([1, 2])).tolist()
    [1, 2]
    """

    def forward(self, *args: Any) -> Any:
        """Give the first argument."""
        return args[0]
