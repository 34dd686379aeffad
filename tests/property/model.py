"""A second opinion in numpy: what a program of tensor operations means, and how exactly.

A `Known` is an array with its dtype. Where `error` is None the value is known in every bit; else
`value` is float64 and `error` bounds, element by element, how far a right answer may be from it:
each operation adds its own rounding to what its sources brought (J. H. Wilkinson, "Rounding errors
in algebraic processes", 1963, chapter 1).

    exact    [1, 2] + [3, 4] in float32               every bit
    bounded  exp([1, 2]) * 3                          2 ulp of exp, times 3, and half an ulp of *
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pellucid.core.dtype import DType, dtypes, promote

Array = np.ndarray[Any, Any]
FUNCTION_ULPS = {"float64": 4, "float32": 2, "float16": 2, "bfloat16": 2}
EXACT_SUM = float(1 << 22)
"""Sums of multiples of a quarter are exact in float32 in any order, while they stay below this."""


@dataclass(frozen=True)
class Known:
    """An array of a dtype, and a bound of its error (None: exact in every bit)."""

    dtype: DType
    value: Array
    error: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def is_exact(self) -> bool:
        return self.error is None

    def wide(self) -> tuple[Array, Array]:
        """Value and error in float64, for operations whose result is not exact."""
        value = self.value.astype(np.float64)
        return value, np.zeros_like(value) if self.error is None else self.error


def numpy_type(dtype: DType) -> Any:
    """The type that numpy computes in."""
    return np.dtype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else dtype.name)


def exact(dtype: DType, value: Any) -> Known:
    return Known(dtype, np.asarray(value, dtype=numpy_type(dtype)))


def bounded(dtype: DType, value: Array, error: Array, ulps: float = 1.0) -> Known:
    """A value that carries *error* and is rounded once more, by at most *ulps*."""
    smallest = math.ldexp(1.0, dtype.smallest_exponent - dtype.mantissa_bits)
    own = ulps * (dtype.epsilon * (np.abs(value) + error) + smallest)
    return Known(dtype, value, error + own)


# ---- movement ---------------------------------------------------------------------------------


def moved(x: Known, move: Callable[[Array], Array]) -> Known:
    """The same rearrangement of value and error."""
    return Known(x.dtype, move(x.value), None if x.error is None else move(x.error))


def padded(x: Known, amounts: Sequence[tuple[int, int]], fill: float) -> Known:
    def pad(values: Array, constant: Any) -> Array:
        shape = tuple(n + a + b for n, (a, b) in zip(values.shape, amounts, strict=True))
        made = np.full(shape, constant, values.dtype)
        made[tuple(slice(a, a + n) for n, (a, _) in zip(values.shape, amounts, strict=True))] = (
            values
        )
        return made

    error = None if x.error is None else pad(x.error, 0.0)
    return Known(x.dtype, pad(x.value, fill), error)


# ---- elementwise ------------------------------------------------------------------------------


def cast(x: Known, dtype: DType) -> Known:
    if x.dtype is dtype:
        return x
    if x.error is not None:
        value, error = x.wide()
        return bounded(dtype, value, error, 0.0 if dtype.bits >= x.dtype.bits else 1.0)
    if dtype.is_bool:
        return exact(dtype, x.value != 0)
    if x.dtype.is_float and dtype.is_int:
        return Known(dtype, saturated(x.value.astype(np.float64), dtype))
    if dtype is dtypes.bfloat16:
        return Known(dtype, to_bfloat16(x.value))
    return Known(dtype, x.value.astype(numpy_type(dtype)))


def to_bfloat16(values: Array) -> Array:
    """Round to nearest even, in one step (from float64, by way of a sticky last bit)."""
    if values.dtype.itemsize <= 4 and values.dtype.kind == "f":
        return values.astype(ml_dtypes.bfloat16)
    wide = values.astype(np.float64)
    with np.errstate(all="ignore"):
        single = wide.astype(np.float32)
        back = single.astype(np.float64)
        bits = single.view(np.uint32).copy()
        is_odd = (bits & 1) == 1
        changed = (back != wide) & np.isfinite(single) & ~is_odd
        towards_zero = np.abs(back) > np.abs(wide)
    bits = np.where(changed, np.where(towards_zero, bits - 1, bits | 1), bits).astype(np.uint32)
    return bits.view(np.float32).astype(ml_dtypes.bfloat16)


def saturated(values: Array, dtype: DType) -> Array:
    """Float to integer: towards zero, the ends of the type outside of it, 0 for NaN."""
    low, high = int(dtype.min), int(dtype.max)
    above, below = values >= float(high), values <= float(low)
    inside = np.where(np.isnan(values) | above | below, 0.0, np.trunc(values))
    made = inside.astype(numpy_type(dtype))
    made[above] = high
    made[below] = low
    return made


def function(x: Known, name: str) -> Known:
    """A function within its bound of ulps; *x* is nowhere near a singularity or an overflow."""
    value, error = x.wide()
    with np.errstate(all="ignore"):
        if name == "exp":
            result = np.exp(value)
            carried = result * np.expm1(error)
        elif name == "sin":
            result, carried = np.sin(value), error
        elif name == "tanh":
            result, carried = np.tanh(value), error
        else:
            result = np.sqrt(value)
            carried = np.where(error == 0, 0.0, error / np.maximum(result, 1e-300))
    return bounded(x.dtype, result, carried, FUNCTION_ULPS[x.dtype.name])


def unary(x: Known, name: str) -> Known:
    """Exact operations on one value; an error passes through those that are continuous."""
    if name == "neg":
        return moved_exactly(x, np.negative) if x.dtype.is_float else wrapped(x, np.negative)
    if name == "abs":
        return moved_exactly(x, np.abs) if x.dtype.is_float else wrapped(x, np.abs)
    if name == "relu":
        return maximum(x, cast(exact(dtypes.int32, np.zeros(x.shape)), x.dtype))
    if name == "invert":
        return Known(x.dtype, np.invert(x.value))
    if name == "sqrt":
        with np.errstate(all="ignore"):
            return Known(x.dtype, np.sqrt(x.value).astype(x.value.dtype))
    whole = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}[name]
    return Known(x.dtype, whole(x.value).astype(x.value.dtype))


def moved_exactly(x: Known, change: Any) -> Known:
    return Known(x.dtype, change(x.value), x.error)


def wrapped(x: Known, change: Any) -> Known:
    with np.errstate(all="ignore"):
        return Known(x.dtype, change(x.value).astype(x.value.dtype))


def binary(a: Known, b: Known, name: str) -> Known:
    """Both sources have one dtype, or are promoted to one."""
    dtype = promote(a.dtype, b.dtype)
    a, b = cast(a, dtype), cast(b, dtype)
    if name in ("maximum", "minimum"):
        return maximum(a, b) if name == "maximum" else minimum(a, b)
    if not (a.is_exact and b.is_exact):
        return inexact_binary(a, b, name)
    with np.errstate(all="ignore"):
        value = EXACT_BINARY[name](a.value, b.value)
    result = dtypes.bool if name in COMPARISONS else dtype
    return Known(result, np.asarray(value).astype(numpy_type(result)))


COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")
EXACT_BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: floor_divide(a, b),
    "mod": lambda a, b: floor_modulo(a, b),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def floor_divide(a: Array, b: Array) -> Array:
    """Rounded down; 0 for a zero divisor; the smallest by -1 is itself."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, 0, np.floor_divide(a, safe)).astype(a.dtype)


def floor_modulo(a: Array, b: Array) -> Array:
    """With the sign of the divisor; 0 for a zero divisor."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, 0, np.remainder(a, safe)).astype(a.dtype)


def inexact_binary(a: Known, b: Known, name: str) -> Known:
    (x, dx), (y, dy) = a.wide(), b.wide()
    with np.errstate(all="ignore"):
        if name in ("add", "sub"):
            return bounded(a.dtype, x + y if name == "add" else x - y, dx + dy)
        return bounded(a.dtype, x * y, np.abs(x) * dy + np.abs(y) * dx + dx * dy)


def maximum(a: Known, b: Known) -> Known:
    """NaN wins; 0.0 is above -0.0."""
    if not (a.is_exact and b.is_exact):
        (x, dx), (y, dy) = a.wide(), b.wide()
        return Known(a.dtype, np.maximum(x, y), np.maximum(dx, dy))
    with np.errstate(all="ignore"):
        value = np.maximum(a.value, b.value)
        if a.dtype.is_float:
            value = np.where((a.value == 0) & (b.value == 0), a.value + b.value, value)
    return Known(a.dtype, np.asarray(value).astype(numpy_type(a.dtype)))


def minimum(a: Known, b: Known) -> Known:
    """NaN wins; -0.0 is below 0.0."""
    if a.dtype.is_float:
        opposite = maximum(moved_exactly(a, np.negative), moved_exactly(b, np.negative))
        return moved_exactly(opposite, np.negative)
    return Known(a.dtype, np.minimum(a.value, b.value))


def shifted(x: Known, count: int, is_left: bool) -> Known:
    """0 for a count of the width or more, or all sign bits to the right."""
    bits = x.dtype.bits
    if is_left:
        value = np.zeros_like(x.value) if count >= bits else np.left_shift(x.value, count)
    else:
        value = np.right_shift(x.value, min(count, bits - 1))
        if count >= bits and x.dtype.is_unsigned:
            value = np.zeros_like(x.value)
    return Known(x.dtype, value.astype(x.value.dtype))


def where(condition: Known, a: Known, b: Known) -> Known:
    dtype = promote(a.dtype, b.dtype)
    a, b = cast(a, dtype), cast(b, dtype)
    if a.is_exact and b.is_exact:
        value = np.where(condition.value, a.value, b.value).astype(numpy_type(dtype))
        return Known(dtype, value)
    (x, dx), (y, dy) = a.wide(), b.wide()
    return Known(dtype, np.where(condition.value, x, y), np.where(condition.value, dx, dy))


# ---- reductions -------------------------------------------------------------------------------


def reduced(x: Known, name: str, axes: tuple[int, ...], keepdim: bool) -> Known:
    if name in ("sum", "prod", "mean"):
        return summed(x, name, axes, keepdim)
    if name in ("any", "all"):
        function_ = np.any if name == "any" else np.all
        return exact(dtypes.bool, function_(x.value != 0, axis=axes, keepdims=keepdim))
    return extreme(x, name, axes, keepdim)


def extreme(x: Known, name: str, axes: tuple[int, ...], keepdim: bool) -> Known:
    """max and min, with the sign of zero decided."""
    find = np.max if name == "max" else np.min
    if x.error is not None:
        error = np.max(x.error, axis=axes, keepdims=keepdim)
        return Known(x.dtype, find(x.value, axis=axes, keepdims=keepdim), error)
    with np.errstate(all="ignore"):
        value = np.asarray(find(x.value, axis=axes, keepdims=keepdim))
    if x.dtype.is_float:
        is_negative = np.signbit(x.value)
        is_zero = x.value == 0
        if name == "max":
            has = np.any(is_zero & ~is_negative, axis=axes, keepdims=keepdim)
            zero = np.where(has, 0.0, -0.0)
        else:
            has = np.any(is_zero & is_negative, axis=axes, keepdims=keepdim)
            zero = np.where(has, -0.0, 0.0)
        value = np.where(value == 0, zero, value.astype(np.float64))
    return Known(x.dtype, value.astype(numpy_type(x.dtype)))


def summed(x: Known, name: str, axes: tuple[int, ...], keepdim: bool) -> Known:
    if not x.dtype.is_float and name != "mean":
        wide = np.uint64 if x.dtype.is_unsigned else np.int64
        function_ = np.sum if name == "sum" else np.prod
        with np.errstate(all="ignore"):
            value = function_(x.value, axis=axes, keepdims=keepdim, dtype=wide)
        return exact(dtypes.uint64 if x.dtype.is_unsigned else dtypes.int64, value)
    result = x.dtype if x.dtype.is_float else dtypes.float32
    value, error = x.wide()
    count = math.prod(x.shape[axis] for axis in axes)
    if name == "prod":
        return product(x, axes, keepdim)
    with np.errstate(all="ignore"):
        total = np.asarray(np.sum(value, axis=axes, keepdims=keepdim))
        size = np.asarray(np.sum(np.abs(value), axis=axes, keepdims=keepdim))
        carried = np.asarray(np.sum(error, axis=axes, keepdims=keepdim))
    is_quarters = bool(np.all(value * 4 == np.rint(value * 4)))
    if name == "sum" and x.is_exact and is_quarters and not np.any(size >= EXACT_SUM):
        zero = np.where(total == 0, 0.0, total)  # no -0.0 in, so none out
        has_negative_zero = np.any((x.value == 0) & np.signbit(x.value))
        if not has_negative_zero:
            return cast(exact(dtypes.float64, zero), result)
    accumulator = dtypes.float64 if result is dtypes.float64 else dtypes.float32
    own = 2 * accumulator.epsilon * max(1.0, math.log2(max(count, 1))) * size
    if name == "mean":
        divisor = count or math.nan
        total, carried, own = total / divisor, carried / divisor, own / divisor + size * 0
    return bounded(result, total, carried + own, 2.0)


def product(x: Known, axes: tuple[int, ...], keepdim: bool) -> Known:
    value, error = x.wide()
    with np.errstate(all="ignore"):
        total = np.asarray(np.prod(value, axis=axes, keepdims=keepdim))
        largest = np.prod(np.maximum(np.abs(value), 1), axis=axes, keepdims=keepdim)
    is_whole = bool(np.all(value == np.rint(value)))
    if x.is_exact and is_whole and not np.any(largest >= EXACT_SUM) and not np.any(total == 0):
        return cast(exact(dtypes.float64, total), x.dtype)
    count = math.prod(x.shape[axis] for axis in axes)
    relative = count * (2 * dtypes.float32.epsilon if x.dtype.bits < 64 else x.dtype.epsilon)
    if np.any(error):
        own = np.full(total.shape, np.inf)
    else:
        own = np.abs(total) * relative
    return bounded(x.dtype, total, own, 2.0)


def matmul(a: Known, b: Known) -> Known:
    (x, dx), (y, dy) = a.wide(), b.wide()
    with np.errstate(all="ignore"):
        total, size = x @ y, np.abs(x) @ np.abs(y)
        carried = np.abs(x) @ dy + dx @ np.abs(y) + dx @ dy
    is_whole = bool(np.all(x == np.rint(x)) and np.all(y == np.rint(y)))
    if a.is_exact and b.is_exact and is_whole and not np.any(size >= EXACT_SUM):
        if not (np.any(np.signbit(x) & (x == 0)) or np.any(np.signbit(y) & (y == 0))):
            return cast(exact(dtypes.float64, np.where(total == 0, 0.0, total)), a.dtype)
    accumulator = dtypes.float64 if a.dtype is dtypes.float64 else dtypes.float32
    count = max(2, a.shape[-1])
    return bounded(
        a.dtype, total, carried + 4 * accumulator.epsilon * math.log2(count) * size + 0 * total, 2.0
    )


def taken(x: Known, index: Known) -> Known:
    """x[index] along the first axis; negative indices count from the end."""
    places = index.value.astype(np.int64)
    return moved(x, lambda values: values[places])


# ---- positions --------------------------------------------------------------------------------

SAME_WIDTH: dict[str, tuple[str, ...]] = {
    "int8": ("uint8",),
    "uint8": ("int8",),
    "int16": ("uint16", "float16"),
    "uint16": ("int16", "float16"),
    "float16": ("int16", "uint16"),
    "int32": ("uint32", "float32"),
    "uint32": ("int32", "float32"),
    "float32": ("int32", "uint32"),
    "int64": ("uint64", "float64"),
    "uint64": ("int64", "float64"),
    "float64": ("int64", "uint64"),
}
"""Types with as many bits: what a bitcast may lead to."""


def bits_as(x: Known, dtype: DType) -> Known:
    return Known(dtype, np.ascontiguousarray(x.value).view(numpy_type(dtype)).reshape(x.shape))


def joined(a: Known, b: Known, axis: int) -> Known:
    if a.is_exact and b.is_exact:
        return Known(a.dtype, np.concatenate([a.value, b.value], axis))
    (x, dx), (y, dy) = a.wide(), b.wide()
    return Known(a.dtype, np.concatenate([x, y], axis), np.concatenate([dx, dy], axis))


def position(x: Known, name: str, axis: int, keepdim: bool) -> Known:
    """The first place of the extreme, or of the first NaN."""
    find = np.argmax if name == "argmax" else np.argmin
    values = x.value.astype(np.float64) if x.dtype.is_float else x.value
    return exact(dtypes.int64, find(values, axis=axis, keepdims=keepdim))


def sums_exactly(x: Known) -> bool:
    """Whether sums of these values are exact in any order."""
    if not x.dtype.is_float:
        return True
    value = x.wide()[0]
    if not x.is_exact or not np.isfinite(value).all():
        return False
    is_quarters = bool(np.all(value * 4 == np.rint(value * 4)))
    has_negative_zero = bool(np.any((value == 0) & np.signbit(value)))
    return is_quarters and not has_negative_zero and float(np.abs(value).sum()) < EXACT_SUM


def running_sum(x: Known, axis: int) -> Known:
    if x.dtype.is_float:
        total = np.cumsum(x.value.astype(np.float64), axis)
        return cast(exact(dtypes.float64, total), x.dtype)
    wide = dtypes.uint64 if x.dtype.is_unsigned else dtypes.int64
    return exact(wide, np.cumsum(x.value, axis, dtype=numpy_type(wide)))


# ---- comparing --------------------------------------------------------------------------------


def disagreement(expected: Known, got: Array) -> str | None:
    """Say how *got* (in float32 for bfloat16) is not what is known; None where it agrees."""
    if tuple(got.shape) != expected.shape:
        return f"the shape is {got.shape}, not {expected.shape}"
    value = expected.value
    if expected.dtype is dtypes.bfloat16 and expected.is_exact:
        value = value.astype(np.float32)
    if expected.is_exact and got.dtype != value.dtype:
        return f"the dtype is {got.dtype}, not {value.dtype}"
    wrong = _wrong_bits(value, got) if expected.is_exact else _outside(expected, got)
    if not wrong.any():
        return None
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    allowed = "" if expected.error is None else f" +- {expected.error[first]}"
    place = tuple(int(i) for i in first)
    return f"at {place}: {got[first]!r}, not {value[first]!r}{allowed}"


def _wrong_bits(value: Array, got: Array) -> Array:
    if value.dtype.kind != "f":
        return np.asarray(value != got)
    both_nan = np.isnan(value) & np.isnan(got)
    same = (value == got) & (np.signbit(value) == np.signbit(got))
    return np.asarray(~(both_nan | same))


def _outside(expected: Known, got: Array) -> Array:
    """Outside of the bound; nothing is asked where a value may have overflowed."""
    assert expected.error is not None
    limit = 0.4 * expected.dtype.finite_max
    with np.errstate(all="ignore"):
        is_safe = np.isfinite(expected.value) & (np.abs(expected.value) + expected.error < limit)
        distance = np.abs(got.astype(np.float64) - expected.value)
        return np.asarray(is_safe & ~(distance <= expected.error))
