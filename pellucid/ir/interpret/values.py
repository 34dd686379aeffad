"""Values of every type as numpy arrays: storage, rounding, and casts.

numpy has no bfloat16 and no 8-bit floats, so a type has two pictures:

    storage   what lies in a buffer     bfloat16: uint16 bit patterns    float16: float16
    values    what is computed with     bfloat16: float32, representable values only

`from_storage` and `to_storage` go between them. `index` values are int64 arrays that become arrays
of Python integers where 64 bits do not hold them: an index is a mathematical integer. What
elementwise ops mean on values is in arithmetic.py.

    round_values(bfloat16, [1.01171875])    -> [1.015625]
    cast_values(uint8, float32, [-1, 256])  -> [0, 255]

Warnings of numpy (overflow, invalid) are the business of callers: `quiet()` turns them off.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pellucid.core.dtype import DType, Kind, dtypes, value_of_bits

Array = npt.NDArray[Any]

INT64_MAX: Final = (1 << 63) - 1


def quiet() -> np.errstate:
    """No warnings for what IEEE and wrapping integers define: a context, or a decorator."""
    return np.errstate(all="ignore")


# ---- pictures of a type ------------------------------------------------------------------------


@cache
def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type of a buffer of *dtype* (lanes aside).

    >>> storage_dtype(dtypes.bfloat16), storage_dtype(dtypes.int8)
    (dtype('uint16'), dtype('int8'))
    """
    if dtype.is_float and not _numpy_has(dtype):
        return np.dtype(f"uint{dtype.bits}")
    return np.dtype("int64" if dtype.is_index else dtype.name)


@cache
def value_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type that values of *dtype* are computed in (lanes aside)."""
    if dtype.is_float and dtype.bits < 32:
        return np.dtype("float32")
    return storage_dtype(dtype)


@cache
def _numpy_has(dtype: DType) -> bool:
    return dtype.name in ("float16", "float32", "float64")


@quiet()
def from_storage(dtype: DType, raw: Array) -> Array:
    """Read the values out of storage: bit patterns where numpy lacks the type.

    >>> from_storage(dtypes.bfloat16, np.array([0x3F80, 0x4000], np.uint16))
    array([1., 2.], dtype=float32)
    """
    if not dtype.is_float or _numpy_has(dtype):
        return raw.astype(value_dtype(dtype), copy=False)
    if raw.dtype.kind == "f":
        return round_values(dtype, raw)
    bits = raw if raw.dtype.kind in "iu" else raw.view(storage_dtype(dtype))
    if dtype.bits == 16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return _table(dtype)[bits.astype(np.uint8)]


@quiet()
def to_storage(dtype: DType, values: Array) -> Array:
    """Write values as they lie in a buffer, rounding floats that are not of the type yet.

    >>> to_storage(dtypes.bfloat16, np.array([1.0, 2.0])).tolist() == [0x3F80, 0x4000]
    True
    """
    values = np.asarray(values)
    if not dtype.is_float:
        return values.astype(storage_dtype(dtype), copy=False)
    if dtype.bits >= 32:
        return values.astype(storage_dtype(dtype), copy=False)
    rounded = round_values(dtype, values)
    if _numpy_has(dtype):
        return rounded.astype(np.float16)
    if dtype.bits == 16:
        return (_bits32(rounded) >> 16).astype(np.uint16)
    return _small_bits(dtype, rounded)


def _bits32(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32).reshape(values.shape).view(np.uint32)


@cache
def _table(dtype: DType) -> Array:
    return np.array([value_of_bits(dtype, bits) for bits in range(256)], np.float32)


def _small_bits(dtype: DType, values: Array) -> Array:
    """Bit patterns of representable values of an 8-bit float."""
    nan = 0x7F if dtype is dtypes.float8_e4m3 else 0x7E
    magnitudes = _table(dtype)[:0x80]
    order = np.argsort(magnitudes, kind="stable")  # NaN comes last
    found = order[np.searchsorted(magnitudes[order], np.abs(values)).clip(0, 0x7F)]
    found = np.where(np.isnan(values), nan, found)
    return (found | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def round_values(dtype: DType, values: Array) -> Array:
    """Round floats of any width to the nearest values of *dtype*, ties to even.

    >>> round_values(dtypes.float16, np.array([65519.0, 2.0**-25])).tolist()
    [65504.0, 0.0]
    """
    dtype = dtype.scalar
    if dtype.bits >= 32:
        return np.asarray(values.astype(value_dtype(dtype), copy=False))
    wide = np.asarray(values, np.float64)
    exponent = np.maximum(np.frexp(wide)[1] - 1, dtype.smallest_exponent)
    quantum = np.ldexp(1.0, exponent - dtype.mantissa_bits)
    rounded = np.copysign(np.rint(wide / quantum) * quantum, wide)
    has_inf = dtype is not dtypes.float8_e4m3
    beyond = np.copysign(np.inf if has_inf else np.nan, wide)
    finite = np.abs(rounded) <= dtype.finite_max
    result = np.where(finite, rounded, np.where(np.isnan(wide), wide, beyond))
    return np.asarray(result.astype(np.float32))


# ---- conversions -------------------------------------------------------------------------------


def cast_values(to: DType, given: DType, values: Array) -> Array:
    """CAST: floats to integers saturate with NaN as 0, wider integers wrap, anything but 0 is True.

    >>> cast_values(dtypes.uint8, dtypes.float32, np.float32([-1, 3.9, 259999, np.nan])).tolist()
    [0, 3, 255, 0]
    """
    to, given = to.scalar, given.scalar
    if to is given:
        return values
    if to.is_bool:
        return np.asarray(values != 0)
    if to.kind is Kind.COMPLEX:
        return np.asarray(values.astype(value_dtype(to)))
    if given.kind is Kind.COMPLEX:
        return cast_values(to, dtypes.float64, np.asarray(values.real, np.float64))
    if given.is_float:
        return round_values(to, values) if to.is_float else _saturate(to, values)
    if to.is_float:
        return _round_integers(to, values)
    if to.is_index:
        return narrow(values.astype(object)) if given.name == "uint64" else values.astype(np.int64)
    if values.dtype == object:
        mask = (1 << to.bits) - 1
        values = np.asarray(np.frompyfunc(lambda v: v & mask, 1, 1)(values)).astype(np.uint64)
    return np.asarray(values.astype(value_dtype(to)))


def _saturate(to: DType, values: Array) -> Array:
    """Floats to integers, towards zero."""
    low, high = int(to.min), int(to.max)
    whole = np.trunc(values.astype(np.float64, copy=False))
    top = float(high + 1)  # a power of two, so exact; high itself need not be
    inside = (whole >= float(low)) & (whole < top)
    result = np.where(inside, whole, 0.0).astype(value_dtype(to))
    result = np.where(whole >= top, np.array(high, result.dtype), result)
    return np.where(whole < float(low), np.array(low, result.dtype), result)


def _round_integers(to: DType, values: Array) -> Array:
    """Integers to floats, rounded once, also where a first step through float64 would round too."""
    if values.dtype == object:
        rounded = np.frompyfunc(lambda v: _odd_float(int(v)), 1, 1)(values)
        return round_values(to, np.asarray(rounded, np.float64))
    if to.bits >= 32 or values.dtype.itemsize < 8:
        return np.asarray(round_values(to, values if to.bits >= 32 else values.astype(np.float64)))
    negative = values < 0
    magnitude = np.where(negative, 0 - values.astype(np.uint64), values.astype(np.uint64))
    sticky = (magnitude >> np.uint64(12)) | ((magnitude & np.uint64(0xFFF)) != 0)
    wide = np.where(
        magnitude < 2**53, magnitude.astype(np.float64), sticky.astype(np.float64) * 4096
    )
    return round_values(to, np.where(negative, -wide, wide))


def _odd_float(value: int) -> float:
    """A float64 near *value* whose last bit tells that it is inexact, for rounding again."""
    shift = max(value.bit_length() - 53, 0)
    magnitude = abs(value)
    kept = magnitude >> shift
    if kept << shift != magnitude:
        kept |= 1
    try:
        wide = math.ldexp(kept, shift)
    except OverflowError:
        wide = math.inf
    return wide if value > 0 else -wide


def bitcast_values(to: DType, given: DType, values: Array) -> Array:
    """BITCAST: the same bits as another type of equal width.

    >>> bitcast_values(dtypes.int32, dtypes.float32, np.float32([1.0])).tolist() == [0x3F800000]
    True
    """
    raw = np.ascontiguousarray(to_storage(given.scalar, values)).reshape(values.shape)
    if to.is_bool:
        return (raw.view(np.uint8) & 1).astype(np.bool_)
    return np.asarray(from_storage(to.scalar, raw.view(storage_dtype(to.scalar))))


# ---- integers of any size ----------------------------------------------------------------------


def narrow(values: Array) -> Array:
    """Python integers as int64 where they all fit."""
    fits = all(-INT64_MAX <= v <= INT64_MAX for v in values.flat)
    return values.astype(np.int64) if fits else values


def largest_magnitude(values: Array) -> int:
    """The largest absolute value, 0 where there are no values."""
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def literal(dtype: DType, value: Any) -> Array:
    """The lanes of a CONST as an array with one axis."""
    lanes = value if isinstance(value, tuple) else (value,) * dtype.lanes
    if dtype.is_index and largest_magnitude(np.array(lanes, object)) > INT64_MAX:
        return np.array(lanes, object)
    return np.array(lanes, value_dtype(dtype.scalar))
