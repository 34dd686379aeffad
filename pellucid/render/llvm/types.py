"""How LLVM IR spells types and literals.

    float32 x 16   ->  <16 x float>        bool  ->  i1, a byte in memory
    1.5            ->  0x3FF8000000000000

Floats are spelled by their bits: a decimal would have to be exact.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from pellucid.core.dtype import DType, Scalar, dtypes, round_to

_FLOAT_NAMES: Final = {"float16": "half", "float32": "float", "float64": "double"}


@cache
def llvm_type(dtype: DType) -> str:
    """The LLVM name of a value's type.

    >>> llvm_type(dtypes.float32.vec(16)), llvm_type(dtypes.uint8), llvm_type(dtypes.bool)
    ('<16 x float>', 'i8', 'i1')
    """
    scalar = _FLOAT_NAMES.get(dtype.name) or f"i{dtype.bits}"
    return scalar if dtype.lanes == 1 else f"<{dtype.lanes} x {scalar}>"


@cache
def suffix(dtype: DType) -> str:
    """How the name of an intrinsic spells a type: v16f32, i64."""
    scalar = f"{'f' if dtype.is_float else 'i'}{dtype.bits}"
    return scalar if dtype.lanes == 1 else f"v{dtype.lanes}{scalar}"


def llvm_literal(dtype: DType, value: Scalar | tuple[Scalar, ...]) -> str:
    """A literal; floats by their bits, as decimals would have to be exact.

    >>> llvm_literal(dtypes.float32, 1.5), llvm_literal(dtypes.int32.vec(4), 7)
    ('0x3FF8000000000000', 'splat (i32 7)')
    """
    scalar = dtype.scalar
    if isinstance(value, tuple):
        lanes = ", ".join(f"{llvm_type(scalar)} {_scalar_literal(scalar, v)}" for v in value)
        return f"<{lanes}>"
    text = _scalar_literal(scalar, value)
    return text if dtype.lanes == 1 else f"splat ({llvm_type(scalar)} {text})"


def _scalar_literal(dtype: DType, value: Scalar) -> str:
    if dtype.is_bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = round_to(dtype, float(value))
    if dtype is dtypes.float16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    if number != number:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def lane_list(lanes: range | tuple[int, ...]) -> str:
    """The mask of a shufflevector."""
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>"
