"""PyTorch, eager and through torch.compile."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from benchmarks.frameworks.base import Array, Framework, Function, Step, TorchLike, Values


def start(name: str, num_threads: int) -> Framework:
    """Import PyTorch and limit its threads."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(num_threads)
    torch.set_num_interop_threads(1)
    return Torch(name, torch)


class Torch(TorchLike):
    """PyTorch on the CPU; functions run under no_grad unless they train."""

    def __init__(self, name: str, torch: Any) -> None:
        self.name = name
        self.torch = torch
        self.functional: Any = torch.nn.functional
        self.is_compiled = name == "torch-compile"

    def facts(self) -> dict[str, str]:
        threads = str(self.torch.get_num_threads())
        return {"version": self.torch.__version__, "threads": threads}

    def load(self, array: Array, dtype: str | None = None) -> Any:
        tensor = self.torch.from_numpy(array.copy())
        if tensor.dtype == self.torch.int32:
            return tensor.long()
        return tensor if dtype is None else tensor.to(getattr(self.torch, dtype))

    def to_numpy(self, value: Any) -> Array:
        value = value.detach()
        value = value.float() if value.dtype == self.torch.bfloat16 else value
        result: Array = value.numpy()
        return result

    def _maybe_compiled(self, function: Any) -> Any:
        if not self.is_compiled:
            return function
        self.torch.compiler.reset()  # else it makes sizes of earlier works dynamic, which is slower
        return self.torch.compile(function, dynamic=False)

    def prepared(self, function: Function, values: Values) -> Step:
        compute = self._maybe_compiled(lambda v: function(self, v))

        def step() -> Any:
            with self.torch.no_grad():
                return compute(values)

        return step

    def trained(self, loss: Function, values: Values, parameters: Sequence[str]) -> Step:
        for name in parameters:
            values[name].requires_grad_()
        optimizer = self.torch.optim.Adam([values[name] for name in parameters], lr=0.001)
        compute = self._maybe_compiled(lambda v: loss(self, v))

        def step() -> Any:
            optimizer.zero_grad()
            result = compute(values)
            result.backward()
            optimizer.step()
            return result

        return step

    def gelu(self, x: Any) -> Any:
        return self.functional.gelu(x, approximate="tanh")

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functional.layer_norm(x, x.shape[-1:], weight, bias)

    def matmul_int8(self, a: Any, b: Any) -> Any:
        return self.torch._int_mm(a, b)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functional.linear(x, weight, bias)

    def conv2d(self, x: Any, weight: Any, *, stride: int, padding: int, groups: int) -> Any:
        return self.functional.conv2d(x, weight, stride=stride, padding=padding, groups=groups)

    def max_pool(self, x: Any, *, size: int, stride: int, padding: int) -> Any:
        return self.functional.max_pool2d(x, size, stride, padding)

    def batch_norm(self, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        return self.functional.batch_norm(x, mean, var, weight, bias, training=False)

    def batch_norm_training(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functional.batch_norm(x, None, None, weight, bias, training=True)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.functional.cross_entropy(logits, labels)

    def take_rows(self, table: Any, rows: Any) -> Any:
        return self.functional.embedding(rows, table)
