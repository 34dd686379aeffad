"""Floats of the interpreter against numpy and ml_dtypes: every value of the small types, every op.

8-bit types: all values, all pairs. 16-bit types: all values for one source, sampled pairs for two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from pellucid.core.dtype import DType, dtypes, round_to, value_of_bits
from pellucid.ir.interpret.arithmetic import apply, reduce_values, threefry
from pellucid.ir.interpret.values import (
    bitcast_values,
    cast_values,
    from_storage,
    literal,
    quiet,
    round_values,
    storage_dtype,
    to_storage,
)
from pellucid.ir.op import Op, Ops

Array = npt.NDArray[Any]

SMALL = {
    dtypes.float8_e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.float16: np.dtype(np.float16),
    dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16),
}
BYTES = (dtypes.float8_e4m3, dtypes.float8_e5m2)
SHORTS = (dtypes.float16, dtypes.bfloat16)
by_name = pytest.mark.parametrize("dtype", SMALL, ids=str)


def singles(values: list[float]) -> Array:
    """An array of float32."""
    return np.array(values, np.float32)


def every_pattern(dtype: DType) -> Array:
    """All bit patterns of a small type."""
    return np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"uint{dtype.bits}")


def every_value(dtype: DType) -> Array:
    """All values of a small float type."""
    raw = every_pattern(dtype)
    return from_storage(dtype, raw.view(storage_dtype(dtype)))


def pairs(dtype: DType, count: int = 40_000) -> tuple[Array, Array]:
    """All pairs of an 8-bit type, some of a 16-bit one, and all of special values."""
    values = every_value(dtype)
    if dtype.bits == 8:
        a, b = np.meshgrid(values, values)
        return a.reshape(-1), b.reshape(-1)
    random = np.random.default_rng(7)
    special = singles([0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, dtype.finite_max, 2048])
    a, b = np.meshgrid(special, special)
    near = random.choice(values[np.abs(values) < 100], (2, count // 2))
    wide = random.choice(values, (2, count // 2))
    left = np.concatenate([a.reshape(-1), near[0], wide[0]])
    return left, np.concatenate([b.reshape(-1), near[1], wide[1]])


def same(ours: Array, theirs: Array) -> None:
    """Equal bit for bit, any NaN equal to any NaN."""
    theirs = np.asarray(theirs).astype(ours.dtype)
    both_nan = np.isnan(ours) & np.isnan(theirs) if ours.dtype.kind == "f" else np.False_
    equal = both_nan | (ours == theirs)
    if ours.dtype.kind == "f":
        equal &= both_nan | (np.signbit(ours) == np.signbit(theirs))
    bad = np.flatnonzero(~equal)
    assert not bad.size, (bad.size, ours.reshape(-1)[bad[:5]], theirs.reshape(-1)[bad[:5]])


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with quiet():
        yield


# ---- storage and rounding ----------------------------------------------------------------------


@by_name
def test_every_pattern_reads_as_its_value(dtype: DType) -> None:
    raw = every_pattern(dtype)
    ours = from_storage(dtype, raw.view(storage_dtype(dtype)))
    same(ours.astype(np.float32), raw.view(SMALL[dtype]).astype(np.float32))
    core = np.array([value_of_bits(dtype, int(bits)) for bits in raw[:: dtype.bits - 7]])
    same(core, ours.astype(np.float64)[:: dtype.bits - 7])


@by_name
def test_every_value_is_stored_as_its_pattern(dtype: DType) -> None:
    raw = every_pattern(dtype)
    values = every_value(dtype)
    stored = to_storage(dtype, values).view(raw.dtype)
    assert np.array_equal(stored[~np.isnan(values)], raw[~np.isnan(values)])
    back = from_storage(dtype, stored.view(storage_dtype(dtype)))
    assert np.isnan(back[np.isnan(values)]).all()


@by_name
def test_rounding_from_float32_is_that_of_ml_dtypes(dtype: DType) -> None:
    random = np.random.default_rng(1)
    exponents = random.integers(-160, 130, 50_000).astype(np.float64)
    wide = (random.standard_normal(50_000) * 2.0**exponents).astype(np.float32)
    values = np.sort(every_value(dtype)[np.isfinite(every_value(dtype))]).astype(np.float64)
    middles = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    for given in (wide, middles, np.nextafter(middles, np.float32(0)), middles * 3):
        same(round_values(dtype, given), given.astype(SMALL[dtype]).astype(np.float32))


@by_name
def test_rounding_from_float64_is_one_rounding(dtype: DType) -> None:
    values = np.sort(every_value(dtype)[np.isfinite(every_value(dtype))]).astype(np.float64)
    middles = (values[1:] + values[:-1]) / 2
    given = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
    given = given[:: max(1, given.size // 3000)]
    same(
        round_values(dtype, given).astype(np.float64),
        np.array([round_to(dtype, float(v)) for v in given]),
    )


# ---- exact ops ---------------------------------------------------------------------------------

NUMPY_UNARY: dict[Op, Callable[..., Any]] = {
    Ops.SQRT: np.sqrt,
    Ops.FLOOR: np.floor,
    Ops.CEIL: np.ceil,
    Ops.TRUNC: np.trunc,
    Ops.ROUND: np.rint,
    Ops.NEG: np.negative,
}
NUMPY_BINARY: dict[Op, Callable[..., Any]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.CMPLT: np.less,
    Ops.CMPLE: np.less_equal,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
}


def by_ml_dtypes(function: Callable[..., Any], dtype: DType, *sources: Array) -> Array:
    """The op in the type itself, as ml_dtypes or numpy computes it."""
    result = function(*(s.astype(SMALL[dtype]) for s in sources))
    return np.asarray(result.astype(np.bool_ if result.dtype == np.bool_ else np.float32))


@by_name
@pytest.mark.parametrize("op", NUMPY_UNARY, ids=lambda op: op.name)
def test_unary_ops_on_every_value(op: Op, dtype: DType) -> None:
    values = every_value(dtype)
    same(apply(op, dtype, [dtype], [values]), by_ml_dtypes(NUMPY_UNARY[op], dtype, values))


@by_name
@pytest.mark.parametrize("op", NUMPY_BINARY, ids=lambda op: op.name)
def test_binary_ops_on_pairs(op: Op, dtype: DType) -> None:
    a, b = pairs(dtype)
    result = op.result([dtype, dtype]) if op.result else dtype
    same(apply(op, result, [dtype] * 2, [a, b]), by_ml_dtypes(NUMPY_BINARY[op], dtype, a, b))


@by_name
def test_maximum_and_minimum_follow_the_op_table(dtype: DType) -> None:
    a, b = pairs(dtype, 4000)
    step = max(1, a.size // 4000)
    a, b = a[::step], b[::step]
    for op in (Ops.MAX, Ops.MIN):
        assert op.python is not None
        expected = [op.python(float(x), float(y)) for x, y in zip(a, b, strict=True)]
        same(apply(op, dtype, [dtype] * 2, [a, b]), np.array(expected))


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_multiply_add_of_bytes_is_rounded_once(dtype: DType) -> None:
    random = np.random.default_rng(3)
    values = every_value(dtype)
    a, b, c = random.choice(values[np.isfinite(values)], (3, 2000))
    exact = [
        round_to(dtype, float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    ours = apply(Ops.MULADD, dtype, [dtype] * 3, [a, b, c])
    assert np.array_equal(ours, np.array(exact), equal_nan=True)


def rounded_fraction(value: Fraction) -> float:
    """The nearest float32 of an exact value, ties to even, by way of integers alone."""
    if not value:
        return 0.0
    exponent = max(math.frexp(float(value))[1] - 1, -126) - 23
    scaled = value / Fraction(2) ** exponent
    return float(np.float32(math.ldexp(round(scaled), exponent)))


def test_multiply_add_of_float32_is_rounded_once() -> None:
    """Sums near a tie of float32: rounding to float64 first would round them wrong."""
    random = np.random.default_rng(5)
    count = 3000
    a = random.integers(1, 1 << 24, count).astype(np.float32)
    b = random.integers(1, 1 << 24, count).astype(np.float32)
    c = (random.standard_normal(count) * 2.0 ** random.integers(-60, 60, count)).astype(np.float32)
    a[0], b[0], c[0] = 1 + 2.0**-23, 1 + 2.0**-23, 2.0**-80  # just above a tie
    a[1], b[1], c[1] = 4097, 4097, 2.0**-40
    f32 = dtypes.float32
    ours = apply(Ops.MULADD, f32, [f32] * 3, [a, b, c])
    exact = [
        rounded_fraction(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert ours.astype(np.float64).tolist() == exact
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert not np.array_equal(twice, ours), "the sample must hold a case of double rounding"


def test_multiply_add_of_float64_is_exact_and_right_at_the_edges() -> None:
    f64 = dtypes.float64
    inf, nan = math.inf, math.nan

    def fused(a: float, b: float, c: float) -> float:
        sources = [np.array([v], np.float64) for v in (a, b, c)]
        return float(apply(Ops.MULADD, f64, [f64] * 3, sources)[0])

    e = 2.0**-52
    assert fused(1 + e, 1 - e, -1.0) == -(e * e)
    assert fused(1e308, 10.0, -inf) == -inf
    assert fused(1e308, 10.0, -1e308) == inf
    assert math.isnan(fused(inf, 0.0, 1.0))
    assert math.isnan(fused(inf, 1.0, -inf))
    assert math.isnan(fused(1.0, nan, 1.0))
    assert math.copysign(1.0, fused(-0.0, 1.0, -0.0)) == -1.0
    assert math.copysign(1.0, fused(1.0, 1.0, -1.0)) == 1.0


# ---- functions ---------------------------------------------------------------------------------

FUNCTIONS: dict[Op, Callable[..., Any]] = {
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG: np.log,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TANH: np.tanh,
}


@pytest.mark.parametrize("dtype", SHORTS, ids=str)
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_functions_of_every_value_round_the_float64_result(op: Op, dtype: DType) -> None:
    values = every_value(dtype)
    exact = FUNCTIONS[op](values.astype(np.float64))
    same(apply(op, dtype, [dtype], [values]), exact.astype(SMALL[dtype]).astype(np.float32))


@pytest.mark.parametrize("op", [*FUNCTIONS, Ops.ERF], ids=lambda op: op.name)
def test_functions_of_float64_are_within_an_ulp(op: Op) -> None:
    import mpmath

    random = np.random.default_rng(2)
    given = np.abs(random.standard_normal(60) * 3) + 0.01
    ours = apply(op, dtypes.float64, [dtypes.float64], [given])
    by_name = {Ops.EXP2: lambda v: mpmath.power(2, v), Ops.LOG2: lambda v: mpmath.log(v, 2)}
    function = by_name.get(op) or getattr(mpmath, op.name.lower())
    with mpmath.workdps(40):
        for value, result in zip(given, ours, strict=True):
            exact = function(mpmath.mpf(float(value)))
            assert abs(exact - float(result)) <= abs(math.ulp(float(result)))


def test_powers_of_floats_have_the_edges_of_case_21() -> None:
    f32 = dtypes.float32
    base = singles([math.nan, 1, -2, -2, 0])
    exponent = singles([0, math.nan, 3, 2.5, 0])
    ours = apply(Ops.POW, f32, [f32] * 2, [base, exponent])
    same(ours, singles([1, 1, -8, math.nan, 1]))


def test_threefry_gives_the_published_numbers() -> None:
    counter = np.array([0, 0xFFFFFFFFFFFFFFFF, 0x85A308D3243F6A88], np.uint64)
    key = np.array([0, 0xFFFFFFFFFFFFFFFF, 0x0370734413198A2E], np.uint64)
    expected = [0x99BA4EFE6B200159, 0xBB002BE71CB996FC, 0x483DF7A0C4923A9C]
    assert threefry(counter, key).tolist() == expected


# ---- casts -------------------------------------------------------------------------------------


@by_name
@pytest.mark.parametrize("to", SMALL, ids=str)
def test_casts_between_small_floats(dtype: DType, to: DType) -> None:
    values = every_value(dtype)
    expected = values.astype(np.float32).astype(SMALL[to]).astype(np.float32)
    same(cast_values(to, dtype, values), expected)


INTEGER_TYPES = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32]
INTEGER_TYPES += [dtypes.uint32, dtypes.int64, dtypes.uint64]


@by_name
@pytest.mark.parametrize("to", INTEGER_TYPES, ids=str)
def test_casts_of_every_value_to_integers_saturate(dtype: DType, to: DType) -> None:
    low, high = int(to.min), int(to.max)

    def saturated(value: float) -> int:
        if value != value:
            return 0
        return (
            max(low, min(high, int(value))) if math.isfinite(value) else low if value < 0 else high
        )

    values = every_value(dtype)[:: dtype.bits - 7]
    expected = [saturated(float(v)) for v in values]
    assert cast_values(to, dtype, values).tolist() == expected


@pytest.mark.parametrize("to", INTEGER_TYPES, ids=str)
@pytest.mark.parametrize("given", [dtypes.float32, dtypes.float64], ids=str)
def test_casts_at_the_borders_of_the_integer(to: DType, given: DType) -> None:
    low, high = int(to.min), int(to.max)
    numpy_type = np.float32 if given is dtypes.float32 else np.float64
    borders = [float(low), float(high), float(high + 1), float(low) * 2 - 1, 0.5, -0.5, 1e30, -1e30]
    values = np.array([*borders, math.inf, -math.inf], numpy_type)
    more = np.concatenate([np.nextafter(values, numpy_type(0)), values])
    expected = [
        max(low, min(high, int(v))) if math.isfinite(v) else (high if v > 0 else low)
        for v in map(float, more)
    ]
    assert cast_values(to, given, more).tolist() == expected


@pytest.mark.parametrize("to", [*SMALL, dtypes.float32, dtypes.float64], ids=str)
def test_casts_of_integers_round_once(to: DType) -> None:
    tie = (1 << 60) + (1 << 52)
    cases = [tie + 1, tie, tie - 1, -tie - 1, (1 << 60) + (1 << 36) + 1, 447, 464, 465, 257, 65520]
    cases += [(1 << 62) + k for k in (-1, 0, 1)]
    ours = cast_values(to, dtypes.int64, np.array(cases, np.int64))
    digits = to.mantissa_bits + 1
    for value, result in zip(cases, ours.astype(np.float64).tolist(), strict=True):
        shift = max(abs(value).bit_length() - digits, 0)
        quantum = 1 << shift
        exact = float(round(Fraction(value, quantum)) * quantum)
        if abs(exact) > to.finite_max:
            assert math.isnan(result) if to is dtypes.float8_e4m3 else math.isinf(result)
        else:
            assert result == exact, value


def test_casts_to_bool_are_true_for_nan() -> None:
    given = singles([0.0, -0.0, math.nan, 0.1, -math.inf])
    ours = cast_values(dtypes.bool, dtypes.float32, given)
    assert ours.tolist() == [False, False, True, True, True]


@by_name
def test_bitcasts_keep_every_pattern(dtype: DType) -> None:
    bits = every_pattern(dtype)
    signed = dtypes.int8 if dtype.bits == 8 else dtypes.int16
    values = bitcast_values(dtype, signed, bits.view(f"int{dtype.bits}"))
    back = bitcast_values(signed, dtype, values).view(bits.dtype)
    is_number = ~np.isnan(values)
    assert np.array_equal(back[is_number], bits[is_number])


# ---- reductions --------------------------------------------------------------------------------


def test_sums_of_floats_are_rounded_once() -> None:
    ones = np.ones(4096, np.float32)
    assert reduce_values(Ops.ADD, dtypes.float16, ones, (0,)).item() == 4096
    tenth = np.full(1 << 20, 0.1, np.float32)
    total = float(reduce_values(Ops.ADD, dtypes.float32, tenth, (0,)).item())
    assert abs(total - 104857.6) / 104857.6 < 1e-6


@pytest.mark.parametrize("op", [Ops.MAX, Ops.MIN], ids=lambda op: op.name)
def test_extremes_keep_nan_and_the_sign_of_zero(op: Op) -> None:
    f32 = dtypes.float32
    assert op.python is not None
    cases = [[1, math.nan, 3], [-0.0, 0.0], [-0.0, -0.0], [0.0, 0.0], [math.inf, -math.inf]]
    for case in cases:
        expected = case[0]
        for value in case[1:]:
            expected = float(op.python(expected, value))
        ours = reduce_values(op, f32, singles(case), (0,))
        same(ours.reshape(1), singles([expected]))


def test_empty_reductions_are_the_identity() -> None:
    empty = np.zeros((0,), np.float32)
    results = [
        float(reduce_values(op, dtypes.float32, empty, (0,)).item())
        for op in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
    ]
    assert results == [0.0, 1.0, -math.inf, math.inf]


def test_literals_have_one_value_for_all_lanes_or_one_each() -> None:
    assert literal(dtypes.float32.vec(3), 2.0).tolist() == [2.0] * 3
    assert literal(dtypes.int8.vec(2), (1, -1)).tolist() == [1, -1]
