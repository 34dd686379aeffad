"""Pellucid: realising an expression that is built anew at each call, or replaying a schedule."""

from __future__ import annotations

import importlib
import time
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
    """Import Pellucid; PELLUCID_THREADS is in the environment."""
    return Pellucid(name, importlib.import_module("pellucid"))


class Pellucid(TorchLike):
    """Pellucid on the CPU, as *name* says: "pellucid" or "pellucid-jit"."""

    def __init__(self, name: str, pellucid: Any) -> None:
        self.name = name
        self.pellucid = pellucid
        self.tensor: Any = pellucid.Tensor
        self.is_jitted = name == "pellucid-jit"

    def facts(self) -> dict[str, str]:
        from pellucid.core.options import current_options
        from pellucid.core.target import host_target

        options = current_options()
        return {
            "version": self.pellucid.__version__,
            "device": options.device,
            "threads": str(options.threads),
            "target": f"{host_target().arch} with vectors of {host_target().vector_bytes} bytes",
        }

    def _public(self, name: str, module: str = "") -> Any:
        where = ".".join(filter(None, ("pellucid", module)))
        try:
            return getattr(importlib.import_module(where), name)
        except (AttributeError, ModuleNotFoundError):
            raise Unavailable(f"{where} has no {name}") from None

    def load(self, array: Array, dtype: str | None = None) -> Any:
        tensor = self.tensor(array)
        if dtype is not None and array.dtype == np.float32:
            tensor = tensor.cast(dtype)
        return tensor.realize()

    def to_numpy(self, value: Any) -> Array:
        result: Array = (value.float() if value.dtype.is_float else value).numpy()
        return result

    def prepared(self, function: Function, values: Values) -> Step:
        """Jitted functions take the data as arguments, and keep a model's parameters."""
        no_grad = self._public("no_grad")
        data = [name for name in values if "." not in name]
        kept = {name: value for name, value in values.items() if "." in name}

        def compute(*given: Any) -> Any:
            with no_grad():
                all_values = kept | dict(zip(data, given, strict=True))
                return function(self, all_values).realize()

        arguments = [values[name] for name in data]
        run = self._public("jit")(compute) if self.is_jitted else compute
        return lambda: run(*arguments)

    def trained(self, loss: Function, values: Values, parameters: Sequence[str]) -> Step:
        data = [name for name in values if name not in parameters]
        weights = {name: values[name].requires_grad_() for name in parameters}
        optimizer = self._public("Adam", "nn.optim")(list(weights.values()), lr=0.001)

        def compute(*given: Any) -> Any:
            optimizer.zero_grad()
            result = loss(self, weights | dict(zip(data, given, strict=True)))
            result.backward()
            optimizer.step()
            return result.realize()

        arguments = [values[name] for name in data]
        run = self._public("jit")(compute) if self.is_jitted else compute
        return lambda: run(*arguments)

    def matmul_int8(self, a: Any, b: Any) -> Any:
        return a.matmul(b, dtype="int32")

    def compile_seconds(self, function: Function, values: Values) -> float:
        """Give the CPU time from SINK to loaded code, with neither cache in use."""
        pipeline: Any = importlib.import_module("pellucid.pipeline")
        device_type: Any = importlib.import_module("pellucid.runtime").Device
        ops = self._public("Ops")
        with self._public("Context")(cache_dir=""):
            linear = function(self, values).schedule_linear()
            sinks = [call.src[0] for call in linear.src if call.src[0].op is ops.SINK]
            if not sinks:
                raise Unavailable("the schedule has no kernel")
            renderer, device = pipeline.renderer_for("CPU"), device_type["CPU"]
            start = time.process_time()
            for sink in sinks:
                program = pipeline.do_to_program(sink, renderer)
                binary = next(s.arg for s in program.src if s.op is ops.BINARY)
                device.load(binary, program.arg.name)
            return time.process_time() - start

    def gelu(self, x: Any) -> Any:
        return x.gelu("tanh")

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return x.layer_norm(x.shape[-1], weight, bias)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return q.scaled_dot_product_attention(k, v, is_causal=True)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return logits.cross_entropy(labels)
