"""tinygrad: everything goes through TinyJit, and is read to the end."""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.frameworks.base import (
    Array,
    Framework,
    Function,
    Step,
    TorchLike,
    Unavailable,
    Values,
)


def start(name: str, num_threads: int) -> Framework:
    """Import tinygrad; the environment has set its device and threads."""
    if shutil.which("clang") is None:
        raise Unavailable("tinygrad compiles with clang, which is not installed")
    return Tinygrad(importlib.import_module("tinygrad"))


class Tinygrad(TorchLike):
    """tinygrad on the CPU."""

    name = "tinygrad"

    def __init__(self, tinygrad: Any) -> None:
        self.tinygrad = tinygrad
        self.tensor: Any = tinygrad.Tensor
        self.device: Any = tinygrad.Device[tinygrad.Device.DEFAULT]

    def facts(self) -> dict[str, str]:
        device = str(self.tinygrad.Device.DEFAULT)
        return {"version": importlib.metadata.version("tinygrad"), "device": device}

    def load(self, array: Array, dtype: str | None = None) -> Any:
        tensor = self.tensor(array)
        if dtype is not None and array.dtype == np.float32:
            tensor = tensor.cast(getattr(self.tinygrad.dtypes, dtype))
        return tensor.contiguous().realize()

    def to_numpy(self, value: Any) -> Array:
        is_float = self.tinygrad.dtypes.is_float(value.dtype)
        result: Array = (value.float() if is_float else value).numpy()
        return result

    def _replayed(self, compute: Step) -> Step:
        jitted = self.tinygrad.TinyJit(compute)

        def step() -> Any:
            result = jitted()
            self.device.synchronize()
            return result

        return step

    def prepared(self, function: Function, values: Values) -> Step:
        return self._replayed(lambda: function(self, values).realize())

    def matmul_int8(self, a: Any, b: Any) -> Any:
        return a.matmul(b, dtype=self.tinygrad.dtypes.int32)

    def trained(self, loss: Function, values: Values, parameters: Sequence[str]) -> Step:
        adam = importlib.import_module("tinygrad.nn.optim").Adam
        for name in parameters:
            values[name].requires_grad = True
        optimizer = adam([values[name] for name in parameters], lr=0.001)

        def compute() -> Any:
            optimizer.zero_grad()
            result = loss(self, values).backward()
            return result.realize(*optimizer.schedule_step())

        replayed = self._replayed(compute)

        def step() -> Any:
            with self.tinygrad.Context(TRAINING=1):
                return replayed()

        return step

    def gelu(self, x: Any) -> Any:
        return x.gelu()

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        result = x.layernorm(eps=1e-5)
        return result if weight is None else result * weight + bias

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return q.scaled_dot_product_attention(k, v, is_causal=True)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return logits.sparse_categorical_crossentropy(labels)
