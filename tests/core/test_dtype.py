"""Number types against numpy and ml_dtypes: bits, rounding, promotion, what a cast survives."""

from __future__ import annotations

import itertools
import math
import pickle

import ml_dtypes
import numpy as np
import pytest

from pellucid.core.dtype import (
    FLOATS,
    INTEGERS,
    VALUE_DTYPES,
    DType,
    bits_of,
    can_hold,
    dtypes,
    parse_dtype,
    promote,
    round_to,
    to_scalar,
    value_of_bits,
    wrap,
)

NUMPY = {
    dtypes.float16: np.dtype(np.float16),
    dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16),
    dtypes.float8_e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.float32: np.dtype(np.float32),
    dtypes.float64: np.dtype(np.float64),
}
SMALL_FLOATS = [dtype for dtype in FLOATS if dtype.bits <= 16]


def same(a: float, b: float) -> bool:
    """Equal with NaN equal to itself and zeros told apart."""
    if a != a or b != b:
        return a != a and b != b
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_every_pattern_of_a_small_float_means_what_numpy_says(dtype: DType) -> None:
    raw = np.arange(1 << dtype.bits, dtype=f"uint{dtype.bits}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = raw.view(NUMPY[dtype]).astype(np.float64)
    for bits, value in enumerate(expected.tolist()):
        assert same(float(value_of_bits(dtype, bits)), value)
        if value == value:
            assert bits_of(dtype, value) == bits


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_is_to_nearest_even(dtype: DType) -> None:
    generator = np.random.default_rng(1)
    scale = generator.uniform(-30, 20, 4000)
    values = generator.standard_normal(4000) * 2.0**scale
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, dtype.finite_max, -dtype.finite_max, 1e-45]
    halves = [1.0 + dtype.epsilon / 2, 1.0 + 1.5 * dtype.epsilon, dtype.finite_max * 1.03]
    for value in [*values.tolist(), *edges, *halves]:
        with np.errstate(over="ignore", invalid="ignore"):
            expected = float(np.float64(value).astype(NUMPY[dtype]).astype(np.float64))
        assert same(round_to(dtype, value), expected), value


def test_cases_of_the_design() -> None:
    assert round_to(dtypes.bfloat16, 1.00390625) == 1.0
    assert round_to(dtypes.bfloat16, 1.01171875) == 1.015625
    assert round_to(dtypes.float16, 65519.0) == 65504.0
    assert round_to(dtypes.float16, 65520.0) == math.inf
    saturated = [to_scalar(dtypes.uint8, v) for v in (-1.0, -266.0, 256.0, 259999.0, 3.9, -0.5)]
    assert saturated == [0, 0, 255, 255, 3, 0]
    assert to_scalar(dtypes.int32, math.nan) == 0
    assert to_scalar(dtypes.int32, 2147483646.0) == 2147483646
    assert to_scalar(dtypes.int32, math.inf) == 2**31 - 1
    assert to_scalar(dtypes.bool, math.nan) is True
    assert to_scalar(dtypes.int32, 2**40) == 0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_as_numpy_does(dtype: DType) -> None:
    for value in (0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**63, 2**64 + 5, -(2**63) - 1):
        expected = int(np.array(value & (2**64 - 1), dtype=np.uint64).astype(dtype.name))
        assert wrap(dtype, value) == expected


def test_promotion_is_a_lattice() -> None:
    table = {
        ("uint8", "int8"): "int16",
        ("uint32", "int64"): "int64",
        ("uint64", "int8"): "float32",
        ("float16", "bfloat16"): "float32",
        ("int64", "float16"): "float16",
        ("bool", "uint16"): "uint16",
        ("float64", "complex64"): "complex128",
        ("int32", "uint8"): "int32",
        ("uint32", "int8"): "int64",
    }
    for (left, right), result in table.items():
        assert promote(parse_dtype(left), parse_dtype(right)).name == result
    for a, b in itertools.product(VALUE_DTYPES, repeat=2):
        assert promote(a, b) is promote(b, a)
        assert promote(a, a) is a
        assert promote(promote(a, b), a) is promote(a, b)


@pytest.mark.parametrize("wide", [d for d in VALUE_DTYPES if d.bits <= 16], ids=str)
@pytest.mark.parametrize("narrow", [d for d in VALUE_DTYPES if d.bits <= 8], ids=str)
def test_can_hold_is_found_by_trying_all_values(wide: DType, narrow: DType) -> None:
    survives = True
    for bits in range(1 << narrow.bits):
        value = value_of_bits(narrow, bits)
        back = to_scalar(narrow, to_scalar(wide, value))
        through = float(to_scalar(wide, value))
        kept = same(float(back), float(value)) and same(through, float(value))
        survives = survives and (kept or (wide.is_bool and kept))
    assert can_hold(wide, narrow) == survives


def test_vectors_are_interned_and_survive_pickling() -> None:
    vector = dtypes.float32.vec(16)
    assert vector is dtypes.float32.vec(16)
    assert vector.scalar is dtypes.float32
    assert vector.itemsize == 64
    assert pickle.loads(pickle.dumps(vector)) is vector
    assert parse_dtype(str(vector)) is vector
    with pytest.raises(KeyError):
        parse_dtype("float33")


def test_large_integers_become_floats_by_one_rounding() -> None:
    above_a_tie = (1 << 60) + (1 << 36) + 1
    assert to_scalar(dtypes.float32, above_a_tie) == float(np.float32(np.int64(above_a_tie)))
    assert to_scalar(dtypes.bfloat16, (1 << 60) + (1 << 52) + 1) == float((1 << 60) + (1 << 53))
    assert to_scalar(dtypes.bfloat16, -(1 << 60) - (1 << 52)) == -float(1 << 60)
    assert to_scalar(dtypes.float64, (1 << 60) + 1) == float(1 << 60)
    assert to_scalar(dtypes.float32, 1 << 2000) == math.inf
