"""Pellucid: a lazy tensor library and kernel compiler; every step can be seen and checked."""

from pellucid.core.dtype import DType, dtypes
from pellucid.core.options import Context
from pellucid.frontend.autograd import enable_grad, no_grad
from pellucid.frontend.tensor import Tensor, where
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

__version__ = "0.1.0"

__all__ = ["Context", "DType", "Ops", "Tensor", "UOp", "dtypes", "enable_grad", "no_grad", "where"]
