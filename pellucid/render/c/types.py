"""How C spells types and literals; vectors are typedefs of GNU's vector extensions.

    float32 x 16   ->  float32x16          0.1   ->  0.10000000149011612f

A decimal is the one that reads back as exactly the value.
"""

from __future__ import annotations

from typing import Final

from pellucid.core.dtype import DType, Scalar, dtypes, round_to

_FLOAT_NAMES: Final = {"float32": "float", "float64": "double"}
UNSIGNED: Final = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
SIGNED: Final = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}


def c_type(dtype: DType) -> str:
    """The C name of a type; vectors are typedefs.

    >>> c_type(dtypes.float32), c_type(dtypes.int8), c_type(dtypes.float32.vec(16))
    ('float', 'int8_t', 'float32x16')
    """
    if dtype.lanes > 1:
        return str(dtype)
    if dtype.is_bool:
        return "bool"
    return _FLOAT_NAMES.get(dtype.name) or f"{dtype.name}_t"


def c_literal(dtype: DType, value: Scalar) -> str:
    """A scalar literal; decimals are those that read back as exactly the value.

    >>> c_literal(dtypes.float32, 0.1), c_literal(dtypes.int64, -(2**63))
    ('0.10000000149011612f', '(-INT64_C(9223372036854775807) - 1)')
    """
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(dtype, round_to(dtype, float(value)))
    number = int(value)
    if dtype.bits == 64:
        if dtype.is_unsigned:
            return f"UINT64_C({number})"
        if number == -(2**63):
            return f"(-INT64_C({2**63 - 1}) - 1)"
        return str(number) if abs(number) < 2**31 else f"INT64_C({number})"
    if number == -(2**31):
        return f"(-{2**31 - 1} - 1)"
    return f"{number}u" if dtype is dtypes.uint32 else str(number)


def _float_literal(dtype: DType, value: float) -> str:
    suffix = "f" if dtype is dtypes.float32 else ""
    if value != value:
        return f'__builtin_nan{suffix}("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    return repr(value) + suffix


def mask_dtype(bits: int, lanes: int) -> DType:
    return SIGNED[max(bits, 8)].vec(lanes)


def stripped(text: str) -> str:
    """An expression without parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text
