"""Small floats in float32: the same bits as the interpreter, which rounds each op once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pellucid.codegen.emulate_dtypes import emulate_dtypes
from pellucid.core.dtype import DType, dtypes
from pellucid.ir.interpret import from_storage, to_storage
from pellucid.ir.op import COMPARISONS, Ops
from pellucid.ir.uop import UOp
from pellucid.render import CRenderer, LLVMRenderer
from tests.codegen.test_decompose_ops import (
    check,
    differing,
    elementwise,
    lowered,
    run_compiled,
    storage,
)


@pytest.fixture(params=["CPU:LLVM", "CPU:C"])
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn."""
    return str(request.param)


SMALL = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2)
ML_DTYPES = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.float16: np.float16,
    dtypes.float8_e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.float8_e5m2: ml_dtypes.float8_e5m2,
}


def every_value(dtype: DType) -> np.ndarray:
    """All bit patterns, as they lie in a buffer."""
    bits = np.arange(2**dtype.bits, dtype=f"uint{dtype.bits}")
    return bits.view(storage(dtype))


def compiled(device: str, make, given: DType, values: np.ndarray, result: DType) -> np.ndarray:
    """What a compiled kernel computes, as it lies in a buffer."""
    target = (LLVMRenderer() if device == "CPU:LLVM" else CRenderer()).target
    out = np.zeros(values.size, storage(result))
    run_compiled(
        device, lowered(elementwise([given], make, values.size, 16), target), [out, values]
    )
    return out


def same_floats(dtype: DType, a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, all NaNs being one."""
    x, y = (np.asarray(from_storage(dtype, v), np.float32) for v in (a, b))
    return not differing(x, y).size


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_every_value_widens(device: str, dtype: DType) -> None:
    values = every_value(dtype)
    expected = values.view(ML_DTYPES[dtype]).astype(np.float32)
    got = compiled(device, lambda x: x.cast(dtypes.float32), dtype, values, dtypes.float32)
    assert not differing(got, expected).size


def around(dtype: DType, wide: str) -> np.ndarray:
    """All values, all points midway between two, their neighbours, and random numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.unique(every_value(dtype).view(ML_DTYPES[dtype]).astype(np.float64))
        values = values[np.isfinite(values)]
        midway = ((values[1:] + values[:-1]) / 2).astype(wide)
        x = np.concatenate([values.astype(wide), midway])
        x = np.concatenate(
            [x, np.nextafter(x, np.inf, dtype=wide), np.nextafter(x, -np.inf, dtype=wide)]
        )
        edges = [
            np.inf,
            -np.inf,
            np.nan,
            -0.0,
            1e-45,
            1e38,
            -1e38,
            65519.99,
            65520.0,
            464.0,
            465.0,
            61440.0,
        ]
        finite_max = float(dtype.finite_max)
        edges += [finite_max * f for f in (1.0, 1.001, 1.03, 1.06, 1.2, 2.0)]
        random = np.exp(np.random.default_rng(0).uniform(-90, 88, 4096)) * np.resize([1, -1], 4096)
        x = np.concatenate([x, np.array(edges).astype(wide), random.astype(wide)])
    return np.resize(x, -(-x.size // 16) * 16)


@pytest.mark.parametrize("wide", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_casts_round_once(device: str, dtype: DType, wide: DType) -> None:
    x = around(dtype, wide.name)
    got = compiled(device, lambda v: v.cast(dtype), wide, x, dtype)
    assert same_floats(dtype, got, to_storage(dtype, x))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize(
    "given", [dtypes.bool, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint64], ids=str
)
def test_integers_round_once(device: str, dtype: DType, given: DType) -> None:
    random = np.random.default_rng(1)
    if given.is_bool:
        x = np.array([0, 1] * 8, bool)
    else:
        powers = np.array([2.0**k for k in range(given.bits - 1)], object).astype(given.name)
        midway = powers + (powers >> 8) + (powers >> 9)
        x = np.concatenate([powers, midway, midway + 1, midway - 1, powers - 1])
        bits = random.integers(0, 2 ** (given.bits - 1), 512, np.uint64).astype(given.name)
        x = np.concatenate(
            [x, bits, bits >> random.integers(0, given.bits - 1, 512).astype(given.name)]
        )
        x = np.concatenate([x, 0 - x]) if not given.is_unsigned else x
        x = np.resize(x, -(-x.size // 16) * 16)
    check(device, lambda v: v.cast(dtype), [x], [given], 16)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_every_op_rounds_its_result(device: str, dtype: DType) -> None:
    values = every_value(dtype)
    random = np.random.default_rng(2)
    if dtype.bits == 8:
        a, b = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    else:
        a, b = values, random.permutation(values)

    def of_two(x: UOp, y: UOp) -> list[UOp]:
        arithmetic = (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.MIN, *COMPARISONS)
        return [UOp.make(op, x, y) for op in arithmetic] + [x - y, (x < y).where(x * 2, y + 1.5)]

    def of_one(x: UOp) -> list[UOp]:
        roundings = (Ops.SQRT, Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND)
        casts = [x.cast(dtypes.bool), x.cast(dtypes.float64)]
        return [UOp.make(op, x) for op in roundings] + [-x, *casts]

    check(device, of_two, [a, b], [dtype] * 2, 16)
    check(device, of_one, [values], [dtype], 16)


def test_tiny_products_and_quotients_of_bfloat16(device: str) -> None:
    """Results among the denormals, where float32 is no wider than it must be."""
    random = np.random.default_rng(3)
    a, b = (random.integers(0, 0x8000, 1 << 16).astype(np.uint16) for _ in "ab")
    a = a % 0x2080  # small; b of any size
    check(device, lambda x, y: [x * y, x / y], [a, b], [dtypes.bfloat16] * 2, 16)


@pytest.mark.parametrize("given", SMALL, ids=str)
def test_casts_between_small_floats(device: str, given: DType) -> None:
    others = [to for to in SMALL if to is not given]
    check(device, lambda x: [x.cast(to) for to in others], [every_value(given)], [given], 16)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_bits_pass_through(device: str, dtype: DType) -> None:
    values = every_value(dtype)
    integer = dtypes.uint8 if dtype.bits == 8 else dtypes.uint16
    copied = compiled(device, lambda x: x, dtype, values, dtype)
    assert (copied.view(np.uint8) == values.view(np.uint8)).all()
    bits = compiled(device, lambda x: x.bitcast(integer), dtype, values, integer)
    assert (bits == np.arange(values.size)).all()
    back = compiled(device, lambda x: x.bitcast(dtype), integer, bits, dtype)
    assert same_floats(dtype, back, values)


@pytest.mark.parametrize("lanes", [1, 16])
def test_lanes_do_not_matter(device: str, lanes: int) -> None:
    values = every_value(dtypes.float16)
    half = UOp.const(dtypes.float16.vec(lanes), 0.1)
    check(device, lambda x: x * half + half, [values], [dtypes.float16], lanes)


def test_nothing_small_is_left() -> None:
    sink = elementwise([dtypes.bfloat16], lambda x: UOp.make(Ops.MAX, x, x * 3), 16, 4)
    after = emulate_dtypes(sink, CRenderer().target)
    assert not any(n.dtype.is_float and n.dtype.bits < 32 for n in after.toposort())
    untouched = elementwise([dtypes.float32], lambda x: x + 1, 16, 4)
    assert emulate_dtypes(untouched, CRenderer().target) is untouched
