"""The meaning of every elementwise op, and of every reduction, on numpy arrays.

An op on a type narrower than float32 is computed in float64 and rounded once, to nearest even;
float64 is wide enough (53 >= 2 * 11 + 2 bits) that the second rounding cannot be seen (Figueroa,
"When is double rounding innocuous?", 1995). Functions such as exp are computed in a wider type.
Sums of floats are accumulated in float64 (float64 in long double) and rounded once.

    apply(FLOORDIV, int8, [-128, 5], [-1, 0])  ->  [-128, 0]

Warnings of numpy (overflow, invalid) are the business of callers: `quiet()` turns them off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any, Final

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import InterpretError
from pellucid.ir.interpret.values import (
    INT64_MAX,
    Array,
    bitcast_values,
    cast_values,
    largest_magnitude,
    narrow,
    round_values,
    value_dtype,
)
from pellucid.ir.op import Op, Ops

Function = Callable[..., Array]

UNDEFINED: Final = "undefined"


# ---- integers ----------------------------------------------------------------------------------


def _index_arithmetic(op: Op, a: Array, b: Array) -> Array:
    """Sum and product of unbounded integers."""
    if a.size == 1 and b.size == 1 and a.ndim == b.ndim == 1:  # a walk: one index at a time
        x, y = int(a[0]), int(b[0])
        exact = x + y if op is Ops.ADD else x * y
        small = -INT64_MAX <= exact <= INT64_MAX
        return np.array([exact], np.int64 if small else object)
    large = largest_magnitude(a), largest_magnitude(b)
    bound = sum(large) if op is Ops.ADD else large[0] * large[1]
    if bound > INT64_MAX:
        a, b = a.astype(object), b.astype(object)
        return narrow(np.asarray(a + b if op is Ops.ADD else a * b))
    return np.asarray(a + b if op is Ops.ADD else a * b)


_PYTHON: Final[dict[Op, Callable[[int, int], Any]]] = {
    op: op.python
    for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
    if op.python is not None
}


def _divide(op: Op, a: Array, b: Array) -> Array:
    """The four integer divisions; a zero divisor gives 0, and the smallest // -1 wraps."""
    if a.dtype == object or b.dtype == object:
        return narrow(np.asarray(np.frompyfunc(_PYTHON[op], 2, 1)(a, b), object))
    zero, minus_one = b == 0, (b == -1) if a.dtype.kind == "i" else np.False_
    safe = np.where(zero | minus_one, np.array(1, b.dtype), b)
    if op is Ops.FLOORMOD:
        return np.where(zero | minus_one, np.array(0, a.dtype), np.mod(a, safe))
    if op is Ops.TRUNCMOD:
        return np.where(zero | minus_one, np.array(0, a.dtype), np.fmod(a, safe))
    quotient = a // safe
    if op is Ops.TRUNCDIV:
        uneven = np.fmod(a, safe) != 0
        quotient = quotient + (uneven & ((a < 0) != (safe < 0))).astype(a.dtype)
    quotient = np.where(minus_one, np.array(0, a.dtype) - a, quotient)
    return np.where(zero, np.array(0, a.dtype), quotient)


def _trapping_divide(op: Op, dtype: DType, a: Array, b: Array) -> Array:
    """IDIV and IMOD, which end a process where they are not defined."""
    if np.any(b == 0):
        raise InterpretError(UNDEFINED, f"{op.name} by zero", at=None)
    if not dtype.is_unsigned and np.any((b == -1) & (a == dtype.scalar.min)):
        raise InterpretError(UNDEFINED, f"{op.name} of the smallest integer by -1", at=None)
    return _divide(Ops.TRUNCDIV if op is Ops.IDIV else Ops.TRUNCMOD, a, b)


def _shift(op: Op, dtype: DType, a: Array, count: Array) -> Array:
    """SHL and SHR with counts of any size; ISHL and ISHR take a count modulo the width."""
    if a.dtype == object or (dtype.is_index and op is Ops.SHL):
        return _index_arithmetic(Ops.MUL, a, np.asarray(2 ** count.astype(object), object))
    bits = dtype.bits
    if op is Ops.ISHL or op is Ops.ISHR:
        count = count & np.array(bits - 1, count.dtype)
    inside = (count >= 0) & (count < bits)
    safe = np.where(inside, count, np.array(0, count.dtype))
    if op is Ops.SHL or op is Ops.ISHL:
        return np.where(inside, np.left_shift(a, safe), np.array(0, a.dtype))
    sign = np.where(
        a < 0, np.array(-1 if a.dtype.kind == "i" else 0, a.dtype), np.array(0, a.dtype)
    )
    return np.where(inside, np.right_shift(a, safe), sign)


# ---- floats ------------------------------------------------------------------------------------


def _maximum(a: Array, b: Array) -> Array:
    """The larger; NaN wins; 0.0 is above -0.0."""
    result = np.maximum(a, b)
    return result if a.dtype.kind != "f" else np.where((a == 0) & (b == 0), a + b, result)


def _minimum(a: Array, b: Array) -> Array:
    """The smaller; NaN wins; -0.0 is below 0.0."""
    result = np.minimum(a, b)
    return result if a.dtype.kind != "f" else np.where((a == 0) & (b == 0), -((-a) + (-b)), result)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """The float64 sum, its last bit set when it is inexact, so that rounding again is right.

    The error of a sum is a float itself (Knuth, TAOCP 2, 4.2.2, theorem B).
    """
    total = a + b
    shifted = total - a
    error = (a - (total - shifted)) + (b - shifted)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    towards_zero = (error < 0) == (total > 0)
    odd = (bits + np.where(towards_zero, -1, 1)).view(np.float64)
    return np.where(inexact, odd, total)


def _multiply_add(dtype: DType, a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    if not dtype.is_float:
        return np.asarray(a * b + c)
    if dtype.scalar is dtypes.float64:
        return np.asarray(np.frompyfunc(_multiply_add_exactly, 3, 1)(a, b, c), np.float64)
    a, b, c = np.broadcast_arrays(*(x.astype(np.float64) for x in (a, b, c)))
    return round_values(dtype, _sum_to_odd(np.ascontiguousarray(a * b).reshape(a.shape), c))


def _multiply_add_exactly(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return c + math.copysign(0.0, a) * math.copysign(1.0, b) if c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


_erf = np.frompyfunc(math.erf, 1, 1)


def _error_function(values: Array) -> Array:
    return np.asarray(_erf(values.astype(np.float64)), np.float64)


_FUNCTIONS: Final[dict[Op, Function]] = {
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG: np.log,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TANH: np.tanh,
    Ops.ERF: _error_function,
    Ops.POW: np.power,
}


def threefry(counter: Array, key: Array) -> Array:
    """Threefry-2x32 with 20 rounds; of each uint64 the low half is word 0, the high half word 1.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.

    >>> hex(threefry(np.uint64([0]), np.uint64([0]))[0])
    '0x99ba4efe6b200159'
    """
    half = np.uint64(32)
    x = [counter.astype(np.uint32), (counter >> half).astype(np.uint32)]
    k = [key.astype(np.uint32), (key >> half).astype(np.uint32)]
    k.append(k[0] ^ k[1] ^ np.uint32(0x1BD11BDA))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    x = [x[0] + k[0], x[1] + k[1]]
    for block in range(5):
        for r in rotations[block % 2]:
            first = x[0] + x[1]
            turned = (x[1] << np.uint32(r)) | (x[1] >> np.uint32(32 - r))
            x = [first, turned ^ first]
        x = [x[0] + k[(block + 1) % 3], x[1] + k[(block + 2) % 3] + np.uint32(block + 1)]
    return np.asarray(x[0].astype(np.uint64) | (x[1].astype(np.uint64) << half))


# ---- the table ---------------------------------------------------------------------------------

_SAME_FOR_ALL: Final[dict[Op, Function]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.FDIV: np.divide,
    Ops.SQRT: np.sqrt,
    Ops.FLOOR: np.floor,
    Ops.CEIL: np.ceil,
    Ops.TRUNC: np.trunc,
    Ops.ROUND: np.rint,
    Ops.MUL: np.multiply,
    Ops.NEG: np.negative,
}
_NEVER_ROUNDS: Final[dict[Op, Function]] = {
    Ops.MAX: _maximum,
    Ops.MIN: _minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.CMPLT: np.less,
    Ops.CMPLE: np.less_equal,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
    Ops.WHERE: np.where,
    Ops.THREEFRY: threefry,
}
_DIVISIONS: Final = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
_SHIFTS: Final = (Ops.SHL, Ops.SHR, Ops.ISHL, Ops.ISHR)


def apply(
    op: Op, dtype: DType, given: Sequence[DType], sources: Sequence[Array], precise: bool = False
) -> Array:
    """The value of an elementwise *op* that gives *dtype*, from values of types *given*.

    precise: floats are float64 arrays that are never rounded, for measuring errors.

    >>> half = dtypes.float16
    >>> apply(Ops.ADD, half, [half, half], [np.float32([2048]), np.float32([1])]).tolist()
    [2048.0]
    """
    if precise and dtype.is_float and op not in _NEVER_ROUNDS:
        return _apply_precisely(op, dtype, given, sources)
    return np.asarray(meaning(op, dtype, tuple(given))(*sources))


@cache
def meaning(op: Op, dtype: DType, given: tuple[DType, ...]) -> Function:
    """The function on arrays that an elementwise *op* is, for one choice of types."""
    dtype = dtype.scalar
    if op in _NEVER_ROUNDS:
        return _NEVER_ROUNDS[op]
    if op is Ops.CAST:
        return partial(cast_values, dtype, given[0])
    if op is Ops.FTOI:
        return partial(_float_to_fitting, dtype)
    if op is Ops.BITCAST:
        return partial(bitcast_values, dtype, given[0])
    if op is Ops.MULADD:
        return partial(_multiply_add, dtype)
    return _meaning_on_floats(op, dtype) if dtype.is_float else _meaning_on_integers(op, dtype)


def _meaning_on_integers(op: Op, dtype: DType) -> Function:
    if dtype.is_index and (op is Ops.ADD or op is Ops.MUL):
        return partial(_index_arithmetic, op)
    if op in _DIVISIONS:
        return partial(_divide, op)
    if op in _SHIFTS:
        return partial(_shift, op, dtype)
    if op is Ops.IDIV or op is Ops.IMOD:
        return partial(_trapping_divide, op, dtype)
    return np.power if op is Ops.POW else _SAME_FOR_ALL[op]


def _meaning_on_floats(op: Op, dtype: DType) -> Function:
    function = _SAME_FOR_ALL.get(op)
    if function is not None:
        return function if dtype.bits >= 32 else partial(_rounded, dtype, np.float64, function)
    wide = np.longdouble if dtype.bits == 64 else np.float64
    return partial(_rounded, dtype, wide, _FUNCTIONS[op])


def _rounded(dtype: DType, wide: type[Any], function: Function, *sources: Array) -> Array:
    """Compute in a wider type and round once."""
    return round_values(dtype, np.asarray(function(*(s.astype(wide) for s in sources))))


def _apply_precisely(
    op: Op, dtype: DType, given: Sequence[DType], sources: Sequence[Array]
) -> Array:
    """A float op with float64 everywhere; it rounds to the type only where bits are asked for."""
    if op is Ops.BITCAST:
        return bitcast_values(dtype, given[0], sources[0]).astype(np.float64)
    wide = [np.asarray(s, np.float64) for s in sources]
    if op is Ops.CAST:
        return wide[0]
    if op is Ops.MULADD:
        return wide[0] * wide[1] + wide[2]
    return np.asarray((_SAME_FOR_ALL.get(op) or _FUNCTIONS[op])(*wide))


def _float_to_fitting(dtype: DType, values: Array) -> Array:
    """FTOI: a value that does not fit gives the pattern with the top bit set, as processors do."""
    whole = np.trunc(values.astype(np.float64))
    inside = (whole >= float(dtype.min)) & (whole < float(int(dtype.max) + 1))
    bad = np.array(dtype.max if dtype.is_unsigned else dtype.min, value_dtype(dtype))
    return np.where(inside, np.where(inside, whole, 0.0).astype(value_dtype(dtype)), bad)


# ---- reductions --------------------------------------------------------------------------------

_REDUCERS: Final[dict[Op, Any]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
}


def reduce_values(
    op: Op, dtype: DType, values: Array, axes: tuple[int, ...], keepdims: bool = False
) -> Array:
    """Combine along *axes*; floats in float64 (float64 in long double), rounded at the end.

    >>> reduce_values(Ops.ADD, dtypes.float32, np.float32([2**24, 1, 1]), (0,)).item()
    16777218.0
    """
    dtype = dtype.scalar
    start = op.identity_for(dtype)
    reducer = _REDUCERS[op]
    if op is Ops.ADD and dtype.is_bool:
        reducer = np.logical_or
    if not dtype.is_float:
        kind = values.dtype if values.dtype == object or dtype.is_bool else value_dtype(dtype)
        result = reducer.reduce(values, axis=axes, dtype=kind, keepdims=keepdims, initial=start)
        return np.asarray(result)
    wide = values.astype(np.longdouble if values.dtype == np.float64 else np.float64)
    result = np.asarray(reducer.reduce(wide, axis=axes, keepdims=keepdims, initial=start))
    if op is Ops.MAX or op is Ops.MIN:
        result = _with_sign_of_zero(op, values, result, axes, keepdims)
    if values.dtype == np.float64:
        return np.asarray(result, np.float64)
    return round_values(dtype, result)


def _with_sign_of_zero(
    op: Op, values: Array, result: Array, axes: tuple[int, ...], keepdims: bool
) -> Array:
    """Give a zero its sign: 0.0 is above -0.0."""
    negative = np.signbit(values)
    wanted = (values == 0) & (~negative if op is Ops.MAX else negative)
    found = wanted.any(axis=axes, keepdims=keepdims)
    sign = np.where(found, 1.0, -1.0) if op is Ops.MAX else np.where(found, -1.0, 1.0)
    return np.where(result == 0, np.copysign(result, sign), result)


def reduce_pairs(
    op: Op,
    dtype: DType,
    pairs: tuple[Array, Array],
    axes: tuple[int, ...],
    keepdims: bool = False,
) -> Array:
    """The value with the best key along *axes*, of several the smallest; NaN is the best key.

    >>> keys = np.float32([1, 3, 3])
    >>> reduce_pairs(Ops.ARGMAX, dtypes.int32, (np.int32([7, 9, 8]), keys), (0,)).item()
    8
    """
    values, keys = np.broadcast_arrays(*pairs)
    nothing = op.identity_for(dtype.scalar)
    if math.prod(keys.shape[axis] for axis in axes) == 0:
        return np.asarray(values.min(axis=axes, keepdims=keepdims, initial=nothing))
    extreme = np.fmax if op is Ops.ARGMAX else np.fmin
    best = extreme.reduce(keys, axis=axes, keepdims=True)
    is_nan = keys != keys
    wins = np.where(is_nan.any(axis=axes, keepdims=True), is_nan, keys == best)
    least = np.where(wins, values, np.asarray(nothing, values.dtype))
    return np.asarray(least.min(axis=axes, keepdims=keepdims))
