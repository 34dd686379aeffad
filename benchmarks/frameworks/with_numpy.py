"""numpy: the reference of every comparison, and a peer where it has the function itself.

Convolution, pooling and attention are spelled with plain numpy; they check results and are not
timed. Products write into an array that exists, so that OpenBLAS is measured and not page faults.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.frameworks.base import Array, Framework, Function, Step, Values

RATE, BETAS, EPSILON = 0.001, (0.9, 0.999), 1e-8


def start(name: str, num_threads: int) -> Framework:
    """Make the framework; OpenBLAS has read its number of threads from the environment."""
    return Numpy()


class Numpy(Framework):
    """Plain numpy."""

    name = "numpy"

    def facts(self) -> dict[str, str]:
        return {"version": np.__version__} | blas_facts()

    def load(self, array: Array, dtype: str | None = None) -> Array:
        return array  # a work in bfloat16 has values that bfloat16 has: float32 is the reference

    def to_numpy(self, value: Any) -> Array:
        return np.asarray(value)

    def prepared(self, function: Function, values: Values) -> Step:
        if function.__name__ == "matmul":
            a, b = values["a"], values["b"]
            result = np.empty(
                (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]),
                np.float32,
            )
            return lambda: np.matmul(a, b, out=result)
        return lambda: function(self, values)

    def trained(self, loss: Function, values: Values, parameters: Sequence[str]) -> Step:
        """Train the MLP by its written-out gradient; other models give their loss and stay."""
        if loss.__name__ == "mlp_loss":
            return _MLPTraining(self, dict(values), parameters)
        return lambda: loss(self, values)

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def exp(self, x: Any) -> Any:
        return np.exp(x)

    def gelu(self, x: Any) -> Any:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + np.tanh(inner))

    def sum(self, x: Any, axis: int | None) -> Any:
        return np.sum(x, axis)

    def mean(self, x: Any, axis: tuple[int, ...]) -> Any:
        return np.mean(x, axis)

    def argmax(self, x: Any, axis: int) -> Any:
        return np.argmax(x, axis)

    def cumsum(self, x: Any, axis: int) -> Any:
        return np.cumsum(x, axis)

    def take_rows(self, table: Any, rows: Any) -> Any:
        return table[rows]

    def softmax(self, x: Any) -> Any:
        powers = np.exp(x - x.max(-1, keepdims=True))
        powers /= powers.sum(-1, keepdims=True)
        return powers

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        away = x - x.mean(-1, keepdims=True)
        result = away / np.sqrt((away * away).mean(-1, keepdims=True) + np.float32(1e-5))
        return result if weight is None else result * weight + bias

    def matmul_int8(self, a: Any, b: Any) -> Any:
        return np.matmul(a, b, dtype=np.int32)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight.T + bias

    def conv2d(self, x: Any, weight: Any, *, stride: int, padding: int, groups: int) -> Any:
        windows = _windows(x, weight.shape[-1], stride, padding, fill=0)
        parts = [
            np.tensordot(part, filters, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
            for part, filters in zip(
                np.split(windows, groups, 1), np.split(weight, groups), strict=True
            )
        ]
        return np.concatenate(parts, 1)

    def max_pool(self, x: Any, *, size: int, stride: int, padding: int) -> Any:
        return _windows(x, size, stride, padding, fill=-np.inf).max((4, 5))

    def batch_norm(self, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        scale = weight / np.sqrt(var + np.float32(1e-5))
        return x * _channels(scale) + _channels(bias - mean * scale)

    def batch_norm_training(self, x: Any, weight: Any, bias: Any) -> Any:
        axes = (0, 2, 3)
        return self.batch_norm(x, weight, bias, x.mean(axes), x.var(axes))

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ np.swapaxes(k, -1, -2) / np.float32(math.sqrt(q.shape[-1]))
        is_later = ~np.tri(q.shape[-2], k.shape[-2], dtype=bool)
        scores[..., is_later] = -np.inf
        return self.softmax(scores) @ v

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        shifted = logits - logits.max(1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        return -logs[np.arange(len(labels)), labels].mean()

    def swap(self, x: Any, first: int, second: int) -> Any:
        return np.swapaxes(x, first, second)

    def contiguous(self, x: Any) -> Any:
        return np.ascontiguousarray(x)


def _channels(x: Array) -> Array:
    return x[:, None, None]


def _windows(x: Array, size: int, stride: int, padding: int, fill: float) -> Array:
    """(batch, channels, rows, columns) -> (batch, channels, rows', columns', size, size)."""
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x, around, constant_values=fill) if padding else x
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    return windows[:, :, ::stride, ::stride]


class _MLPTraining:
    """The MLP's gradient, written out, and Adam (Kingma and Ba, 2014, algorithm 1)."""

    def __init__(self, f: Numpy, values: dict[str, Any], parameters: Sequence[str]) -> None:
        self.f = f
        self.v = {name: np.array(value) for name, value in values.items()}
        self.moments = {name: [0 * self.v[name], 0 * self.v[name]] for name in parameters}
        self.steps = 0

    def __call__(self) -> Any:
        v, labels = self.v, self.v["labels"]
        first = self.f.relu(self.f.linear(v["x"], v["fc1.weight"], v["fc1.bias"]))
        second = self.f.relu(self.f.linear(first, v["fc2.weight"], v["fc2.bias"]))
        logits = self.f.linear(second, v["fc3.weight"], v["fc3.bias"])
        away = self.f.softmax(logits)
        away[np.arange(len(labels)), labels] -= 1
        away /= np.float32(len(labels))
        loss = self.f.cross_entropy(logits, labels)
        gradients = {}
        for name, x in (("fc3", second), ("fc2", first), ("fc1", v["x"])):
            gradients[f"{name}.weight"] = away.T @ x
            gradients[f"{name}.bias"] = away.sum(0)
            away = (away @ v[f"{name}.weight"]) * (x > 0)
        self._update(gradients)
        return loss

    def _update(self, gradients: dict[str, Array]) -> None:
        self.steps += 1
        for name, gradient in gradients.items():
            first, second = self.moments[name]
            first += (1 - BETAS[0]) * (gradient - first)
            second += (1 - BETAS[1]) * (gradient * gradient - second)
            scale = np.sqrt(second / (1 - BETAS[1] ** self.steps)) + EPSILON
            self.v[name] -= RATE / (1 - BETAS[0] ** self.steps) * first / scale


def blas_facts() -> dict[str, str]:
    """Give the BLAS library that is loaded, with its kernel and threads, if threadpoolctl is."""
    try:
        threadpoolctl: Any = importlib.import_module("threadpoolctl")
    except ImportError:
        return {"blas": "unknown: threadpoolctl is not installed"}
    found = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return {
        "blas": ", ".join(
            f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')} "
            f"on {pool['num_threads']} threads"
            for pool in found
        )
    }
