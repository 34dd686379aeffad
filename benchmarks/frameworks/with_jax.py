"""JAX: everything goes through jax.jit, and is waited for."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.frameworks.base import Array, Framework, Function, Step, Values

RATE, BETAS, EPSILON = 0.001, (0.9, 0.999), 1e-8


def start(name: str, num_threads: int) -> Framework:
    """Import JAX; its thread pools follow the process's cores."""
    jax: Any = importlib.import_module("jax")
    return Jax(jax)


class Jax(Framework):
    """JAX on the CPU."""

    name = "jax"

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self.np: Any = jax.numpy
        self.nn: Any = jax.nn
        self.lax: Any = jax.lax

    def facts(self) -> dict[str, str]:
        return {"version": self.jax.__version__}

    def load(self, array: Array, dtype: str | None = None) -> Any:
        tensor = self.np.asarray(array)
        is_float = dtype is not None and array.dtype == np.float32
        return tensor.astype(dtype) if is_float else tensor

    def to_numpy(self, value: Any) -> Array:
        value = value.astype("float32") if value.dtype == self.np.bfloat16 else value
        return np.asarray(value)

    def prepared(self, function: Function, values: Values) -> Step:
        compute = self.jax.jit(lambda v: function(self, v))
        return lambda: compute(values).block_until_ready()

    def trained(self, loss: Function, values: Values, parameters: Sequence[str]) -> Step:
        data = {name: x for name, x in values.items() if name not in parameters}
        weights = {name: values[name] for name in parameters}
        zeros = {name: self.np.zeros_like(x) for name, x in weights.items()}
        compute = self.jax.jit(self._training_step(loss), donate_argnums=0)
        state = [(weights, zeros, {name: x + 0 for name, x in zeros.items()}, self.np.float32(0))]

        def step() -> Any:
            state[0], result = compute(state[0], data)
            self.jax.block_until_ready((state[0], result))
            return result

        return step

    def _training_step(self, loss: Function) -> Any:
        """Adam, as it is written down (Kingma and Ba, 2014, algorithm 1)."""
        gradient = self.jax.value_and_grad(lambda w, data: loss(self, {**data, **w}))

        def step(state: Any, data: Any) -> Any:
            weights, first, second, count = state
            result, g = gradient(weights, data)
            count = count + 1
            first = {n: BETAS[0] * first[n] + (1 - BETAS[0]) * g[n] for n in g}
            second = {n: BETAS[1] * second[n] + (1 - BETAS[1]) * g[n] * g[n] for n in g}
            rate = RATE / (1 - BETAS[0] ** count)
            scale = 1 / (1 - BETAS[1] ** count)
            weights = {
                n: weights[n] - rate * first[n] / (self.np.sqrt(second[n] * scale) + EPSILON)
                for n in g
            }
            return (weights, first, second, count), result

        return step

    def relu(self, x: Any) -> Any:
        return self.np.maximum(x, 0)

    def exp(self, x: Any) -> Any:
        return self.np.exp(x)

    def gelu(self, x: Any) -> Any:
        return self.nn.gelu(x, approximate=True)

    def sum(self, x: Any, axis: int | None) -> Any:
        return self.np.sum(x, axis)

    def mean(self, x: Any, axis: tuple[int, ...]) -> Any:
        return self.np.mean(x, axis)

    def argmax(self, x: Any, axis: int) -> Any:
        return self.np.argmax(x, axis)

    def cumsum(self, x: Any, axis: int) -> Any:
        return self.np.cumsum(x, axis)

    def take_rows(self, table: Any, rows: Any) -> Any:
        return table[rows]

    def softmax(self, x: Any) -> Any:
        return self.nn.softmax(x, -1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        result = self.nn.standardize(x, axis=-1, epsilon=1e-5)
        return result if weight is None else result * weight + bias

    def matmul_int8(self, a: Any, b: Any) -> Any:
        return self.np.matmul(a, b, preferred_element_type=self.np.int32)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight.T + bias

    def conv2d(self, x: Any, weight: Any, *, stride: int, padding: int, groups: int) -> Any:
        return self.lax.conv_general_dilated(
            x,
            weight,
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
            feature_group_count=groups,
        )

    def max_pool(self, x: Any, *, size: int, stride: int, padding: int) -> Any:
        around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        window, steps = (1, 1, size, size), (1, 1, stride, stride)
        return self.lax.reduce_window(x, -math.inf, self.lax.max, window, steps, around)

    def batch_norm(self, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        scale = weight * self.lax.rsqrt(var + 1e-5)
        return x * scale[:, None, None] + (bias - mean * scale)[:, None, None]

    def batch_norm_training(self, x: Any, weight: Any, bias: Any) -> Any:
        axes = (0, 2, 3)
        return self.batch_norm(x, weight, bias, x.mean(axes), x.var(axes))

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        q, k, v = (self.np.swapaxes(x, 1, 2) for x in (q, k, v))
        return self.np.swapaxes(self.nn.dot_product_attention(q, k, v, is_causal=True), 1, 2)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        logs = self.nn.log_softmax(logits, 1)
        return -self.np.take_along_axis(logs, labels[:, None], 1).mean()

    def swap(self, x: Any, first: int, second: int) -> Any:
        return self.np.swapaxes(x, first, second)

    def contiguous(self, x: Any) -> Any:
        return x
