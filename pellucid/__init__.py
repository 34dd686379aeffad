"""Pellucid: a lazy tensor library and kernel compiler; every step can be seen and checked."""

from pellucid.core.dtype import DType, dtypes
from pellucid.core.options import Context
from pellucid.engine.compile import compile_linear
from pellucid.engine.run import run_linear
from pellucid.frontend.autograd import enable_grad, no_grad
from pellucid.frontend.jit import TinyJit, jit
from pellucid.frontend.tensor import Tensor, where
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.device import Device

__version__ = "0.1.0"

__all__ = [
    "Context",
    "DType",
    "Device",
    "Ops",
    "Tensor",
    "TinyJit",
    "UOp",
    "compile_linear",
    "dtypes",
    "enable_grad",
    "jit",
    "no_grad",
    "run_linear",
    "where",
]
