"""Closed forms of sums over comparisons: the same values, and no loop left."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pellucid.codegen.collapse_reductions import collapse_reductions
from pellucid.core.dtype import DType, dtypes
from pellucid.ir.form import LOOP
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from tests.codegen.kernels import axis, buffers_for, const, kernel, loop, param, reduce
from tests.codegen.lowering import TARGET

ONE = UOp.const(dtypes.int64, 1)


def summed(value: UOp, *ranges: UOp, outputs: tuple[UOp, ...] = (), op: Op = Ops.ADD) -> UOp:
    """A kernel that reduces a value for each output."""
    total = reduce(value, *ranges, op=op)
    place, size = const(0), 1
    for output in outputs:
        place, size = place * output.src[0].arg + output, size * output.src[0].arg
    return kernel(param(0, size, value.dtype).index(place).store(total).end(*outputs))


def check(sink: UOp, collapses: bool = True) -> UOp:
    """Hold the kernel after the pass against the one before, on several inputs."""
    after = collapse_reductions(sink, TARGET)
    verify(after, LOOP)
    assert any(n.op is Ops.REDUCE for n in after.toposort()) is not collapses
    for seed in range(4):
        before_buffers, after_buffers = buffers_for(sink, seed), buffers_for(sink, seed)
        run_kernel(sink, before_buffers)
        run_kernel(after, after_buffers)
        np.testing.assert_array_equal(after_buffers[0], before_buffers[0])
    return after


OUT, K = loop(9, 0), axis(7, 1)
K64, OUT64 = K.cast(dtypes.int64), OUT.cast(dtypes.int64)


@pytest.mark.parametrize(
    "condition",
    [
        K < OUT,
        K <= OUT,
        OUT < K,
        OUT <= K,
        (K < OUT).logical_not(),
        K * 2 < OUT,
        K * 3 + 1 <= OUT,
        OUT < K * 2 + 1,
        K * -1 + 4 < OUT,
        (K < OUT) & (OUT + -3 <= K),
        (K < OUT) & (OUT < 5),
        K64 * 2 < OUT64 + 3,
        K + OUT < 6,
        K.eq(OUT),
        K.ne(OUT).logical_not(),
        (K * 2).eq(OUT),
        (K * -2 + 6).eq(OUT),
        K64.eq(OUT64 + 2),
        K.eq(OUT) & (K < 4),
    ],
)
def test_counts(condition: UOp) -> None:
    check(summed(condition.where(ONE, 0), K, outputs=(OUT,)))
    check(summed(condition.where(UOp.const(dtypes.float32, 3.0), 0.0), K, outputs=(OUT,)))
    check(summed(condition.cast(dtypes.int32), K, outputs=(OUT,)))


def test_a_one_hot_row_is_a_gather() -> None:
    hit = param(1, 9, dtypes.int64).index(OUT).eq(K64)
    after = check(summed(hit.where(param(2, 7).index(K), 0.0), K, outputs=(OUT,)))
    gathers = [n for n in after.toposort() if n.op is Ops.INDEX and len(n.src) == 3]
    assert len(gathers) == 1  # memory is read only where the index is valid


def test_a_one_hot_row_of_unsigned_bytes() -> None:
    hit = param(1, 9, dtypes.uint8).index(OUT).eq(K.cast(dtypes.uint8))
    check(summed(hit.where(param(2, 7).index(K), 0.0), K, outputs=(OUT,)))


def test_a_cast_that_may_wrap_is_left_alone() -> None:
    long = axis(300, 1)
    hit = param(1, 9, dtypes.uint8).index(OUT).eq(long.cast(dtypes.uint8))
    check(summed(hit.where(ONE, 0), long, outputs=(OUT,)), collapses=False)


def test_two_ranges_of_conditions() -> None:
    other = axis(5, 2)
    value = (K.eq(OUT) & other.eq(3)).where(param(1, 35).index(K * 5 + other), 0.0)
    check(summed(value, K, other, outputs=(OUT,)))


def test_products_of_conditions_in_integers() -> None:
    value = (K < OUT).cast(dtypes.int64) * (K.eq(2)).cast(dtypes.int64)
    check(summed(value, K, outputs=(OUT,)))


def test_a_product_of_floats_is_no_selection() -> None:
    value = K.eq(OUT).where(UOp.const(dtypes.float32, 1.0), 0.0) * param(1, 7).index(K)
    check(summed(value, K, outputs=(OUT,)), collapses=False)  # 0 * inf is NaN


def test_equal_terms() -> None:
    check(summed(param(1, 9, dtypes.int64).index(OUT), K, outputs=(OUT,)))
    check(summed(param(1, 9).index(OUT), K, outputs=(OUT,)), collapses=False)  # rounding
    check(summed(param(1, 9).index(OUT), K, outputs=(OUT,), op=Ops.MAX))


def test_padding_is_not_summed() -> None:
    valid = (K >= 2) & (K < 5)
    value = valid.where(param(1, 27).index(OUT * 3 + K + -2, valid), 0.0)
    after = check(summed(value, K, outputs=(OUT,)), collapses=False)
    sizes = [n.src[1].src[0].arg for n in after.toposort() if n.op is Ops.REDUCE]
    assert sizes == [3]
    assert not any(n.op is Ops.WHERE for n in after.toposort())


def test_only_padding_is_nothing() -> None:
    check(summed((K < 0).where(param(1, 7).index(K), 0.0), K))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32])
def test_counts_that_would_round_are_left_alone(dtype: DType) -> None:
    size = 1 << (dtype.mantissa_bits + 2)
    long = axis(size, 1)
    value = (long < OUT).where(UOp.const(dtype, 1.0), 0.0)
    sink = summed(value, long, outputs=(OUT,))
    after = collapse_reductions(sink, TARGET)
    assert any(n.op is Ops.REDUCE for n in after.toposort())


def test_minus_zero_becomes_zero() -> None:
    """A sum starts from 0.0, so one term -0.0 sums to 0.0."""
    sink = summed(K.eq(OUT).where(param(1, 7).index(K), 0.0), K, outputs=(OUT,))
    after = collapse_reductions(sink, TARGET)
    for graph in (sink, after):
        buffers = [np.zeros(9, np.float32), np.full(7, -0.0, np.float32)]
        run_kernel(graph, buffers)
        assert not np.signbit(buffers[0]).any()


def test_infinities_and_nan_are_gathered_as_they_are() -> None:
    sink = summed(K.eq(OUT).where(param(1, 7).index(K), 0.0), K, outputs=(OUT,))
    data = np.array([1, math.inf, math.nan, -math.inf, 0, 2, 3], np.float32)
    buffers = [np.zeros(9, np.float32), data]
    run_kernel(collapse_reductions(sink, TARGET), buffers)
    np.testing.assert_array_equal(buffers[0], [*data, 0, 0])
