"""Pellucid: a lazy tensor library and kernel compiler; every step can be seen and checked."""

from typing import Any

from pellucid.core.dtype import DType, dtypes
from pellucid.core.options import Context
from pellucid.engine.compile import compile_linear
from pellucid.engine.generator import Generator
from pellucid.engine.run import run_linear
from pellucid.frontend.autograd import enable_grad, no_grad
from pellucid.frontend.jit import TinyJit, jit
from pellucid.frontend.tensor import Tensor, where
from pellucid.frontend.transforms import grad, value_and_grad
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.device import Device

__version__ = "0.1.0"

__all__ = [
    "Context",
    "DType",
    "Device",
    "Generator",
    "Ops",
    "Tensor",
    "TinyJit",
    "UOp",
    "compile_linear",
    "dtypes",
    "enable_grad",
    "grad",
    "jit",
    "no_grad",
    "run_linear",
    "value_and_grad",
    "where",
]


def _explain(tensor: Tensor, **asked: Any) -> None:
    """Print what computing this tensor takes, without computing it.

    kernel: the number of one kernel.  stages: the graph after each stage, too.  disassemble: the
    machine instructions, too. Lines of the program are known for tensors that were made with
    PELLUCID_TRACE=1 or under `Context(trace=True)`.
    """
    from pellucid.tools.explain import explain  # tools stand above tensors, and load when used

    explain(tensor, **asked)


Tensor.explain = _explain
