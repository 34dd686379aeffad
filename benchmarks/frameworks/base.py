"""What a framework has to be able to do, and the parts that several frameworks spell alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Values = Mapping[str, Any]
Function = Callable[["Framework", Values], Any]
Step = Callable[[], Any]
"""Compute once, completely, and give the result."""


class Unavailable(Exception):  # noqa: N818 - a fact about the machine, not a mistake
    """The framework, or what a work asks of it, is not there; the text says why."""


class Framework(ABC):
    """A framework: how to load arrays, what to compute with, and how to do it again and again."""

    name: str

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Give the version, and what the figures depend on."""

    @abstractmethod
    def load(self, array: Array, dtype: str | None = None) -> Any:
        """Make a tensor; floats become *dtype*, if one is given."""

    @abstractmethod
    def to_numpy(self, value: Any) -> Array:
        """Read a tensor back; types that numpy lacks as float32."""

    @abstractmethod
    def prepared(self, function: Function, values: Values) -> Step:
        """Give a call that computes *function* of *values*, in the way that is measured."""

    @abstractmethod
    def trained(self, loss: Function, values: Values, parameters: Sequence[str]) -> Step:
        """Give a call that does one step of Adam (rate 0.001) on *parameters*; gives the loss."""

    def compile_seconds(self, function: Function, values: Values) -> float:
        """Give the CPU time from the SINKs of *function* to loaded code."""
        raise Unavailable(f"{self.name} has no kernels that start from a SINK")

    # Operations. Shapes and arguments are those of PyTorch.

    @abstractmethod
    def relu(self, x: Any) -> Any:
        """max(x, 0)."""

    @abstractmethod
    def exp(self, x: Any) -> Any:
        """e to the power of x."""

    @abstractmethod
    def gelu(self, x: Any) -> Any:
        """x times the normal distribution's integral, in its tanh form."""

    @abstractmethod
    def sum(self, x: Any, axis: int | None) -> Any:
        """Add along an axis, or all."""

    @abstractmethod
    def mean(self, x: Any, axis: tuple[int, ...]) -> Any:
        """Average over axes."""

    @abstractmethod
    def argmax(self, x: Any, axis: int) -> Any:
        """Find the first largest along an axis."""

    @abstractmethod
    def cumsum(self, x: Any, axis: int) -> Any:
        """Add up along an axis."""

    @abstractmethod
    def take_rows(self, table: Any, rows: Any) -> Any:
        """Take rows of a matrix."""

    @abstractmethod
    def softmax(self, x: Any) -> Any:
        """Apply softmax along the last axis."""

    @abstractmethod
    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        """Normalise the last axis (epsilon 1e-5); weight and bias may be None."""

    @abstractmethod
    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        """x weight^T + bias."""

    @abstractmethod
    def conv2d(self, x: Any, weight: Any, *, stride: int, padding: int, groups: int) -> Any:
        """Convolve pictures (batch, channels, height, width) with filters."""

    @abstractmethod
    def max_pool(self, x: Any, *, size: int, stride: int, padding: int) -> Any:
        """Take the largest of each square."""

    @abstractmethod
    def batch_norm(self, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        """Normalise channels by given statistics (epsilon 1e-5)."""

    @abstractmethod
    def batch_norm_training(self, x: Any, weight: Any, bias: Any) -> Any:
        """Normalise channels by the statistics of this batch (epsilon 1e-5)."""

    @abstractmethod
    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Apply causal scaled dot-product attention."""

    @abstractmethod
    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """Give the mean cross-entropy of class indices."""

    def matmul(self, a: Any, b: Any) -> Any:
        """Multiply matrices."""
        return a @ b

    def matmul_int8(self, a: Any, b: Any) -> Any:
        """Multiply matrices of int8, added up in int32."""
        raise Unavailable(f"{self.name} has no product of int8")

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Give the same elements in another shape."""
        return x.reshape(tuple(shape))

    @abstractmethod
    def swap(self, x: Any, first: int, second: int) -> Any:
        """Exchange two axes."""

    @abstractmethod
    def contiguous(self, x: Any) -> Any:
        """Put the elements in memory in row-major order."""


class TorchLike(Framework):
    """Operations that PyTorch, tinygrad and Pellucid spell as the same methods."""

    def relu(self, x: Any) -> Any:
        return x.relu()

    def exp(self, x: Any) -> Any:
        return x.exp()

    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum() if axis is None else x.sum(axis)

    def mean(self, x: Any, axis: tuple[int, ...]) -> Any:
        return x.mean(axis)

    def argmax(self, x: Any, axis: int) -> Any:
        return x.argmax(axis)

    def cumsum(self, x: Any, axis: int) -> Any:
        return x.cumsum(axis)

    def take_rows(self, table: Any, rows: Any) -> Any:
        return table[rows]

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight.transpose(0, 1) + bias

    def conv2d(self, x: Any, weight: Any, *, stride: int, padding: int, groups: int) -> Any:
        return x.conv2d(weight, None, stride=stride, padding=padding, groups=groups)

    def max_pool(self, x: Any, *, size: int, stride: int, padding: int) -> Any:
        return x.max_pool2d((size, size), stride=stride, padding=padding)

    def batch_norm(self, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        return x.batchnorm(weight, bias, mean, (var + 1e-5).rsqrt())

    def batch_norm_training(self, x: Any, weight: Any, bias: Any) -> Any:
        mean = x.mean((0, 2, 3))
        away = x - mean.reshape((1, -1, 1, 1))
        return self.batch_norm(x, weight, bias, mean, (away * away).mean((0, 2, 3)))

    def swap(self, x: Any, first: int, second: int) -> Any:
        return x.transpose(first, second)

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()
