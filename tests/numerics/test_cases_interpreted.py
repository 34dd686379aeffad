"""The cases that tensor compilers get wrong, at the level of the interpreter (TENSOR form).

Numbers in names are those of the list of cases: types and numbers, 10 to 17 and 20 to 22.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import ReduceArg
from pellucid.ir.interpret import evaluate, to_storage
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp, new_buffer

Array = npt.NDArray[Any]
i8, u8, i16, i32 = dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32
f16, bf16, f32 = dtypes.float16, dtypes.bfloat16, dtypes.float32


class Given:
    """A tensor over storage with given values."""

    def __init__(self, dtype: DType, values: list[Any]) -> None:
        self.node = new_buffer(len(values), dtype, "CPU")
        as_float = np.array(values, np.float64) if dtype.is_float else np.array(values)
        self.storage = {self.node: to_storage(dtype, as_float)}

    def value(self, node: UOp) -> list[Any]:
        """The value of a node over this tensor."""
        return evaluate(node, self.storage).tolist()  # type: ignore[no-any-return]


def check(dtype: DType, values: list[Any], graph: Any, expected: list[Any]) -> None:
    """Hold the value of *graph* over *values* against *expected*, down to the sign of a zero."""
    given = Given(dtype, values)
    ours = given.value(graph(given.node))
    assert list(map(repr, ours)) == list(map(repr, expected))


def folded(dtype: DType, op: Op, *values: Any) -> Any:
    """An op over literals."""
    return evaluate(UOp.make(op, *(UOp.const(dtype, v) for v in values))).item()


def extreme(node: UOp, op: Op) -> UOp:
    """Reduce a vector to a scalar."""
    return UOp.make(Ops.REDUCE, node, arg=ReduceArg(op, (0,)))


def test_10_quotients_of_products() -> None:
    check(i32, [110], lambda x: x // 55, [2])
    check(i32, [110], lambda x: x % 55, [0])
    every = list(range(1, 501))
    for b in range(1, 501, 7):
        check(i32, every, lambda a, b=b: (a * b) // b, every)


def test_11_division_by_zero_and_of_the_smallest() -> None:
    check(i32, [5, -5, 0], lambda x: x // (x * 0), [0, 0, 0])
    check(i32, [5, -5, 0], lambda x: x % (x * 0), [0, 0, 0])
    check(i32, [-(2**31)], lambda x: x // -1, [-(2**31)])
    assert folded(i32, Ops.FLOORDIV, 5, 0) == 0


def test_12_nan_goes_through_extremes() -> None:
    nan = math.nan
    given = Given(f32, [1, nan, 3])
    assert math.isnan(evaluate(extreme(given.node, Ops.MAX), given.storage).item())
    a, b = Given(f32, [2, 1, nan, nan]), Given(f32, [nan, 5, 3, nan])
    both = evaluate(a.node.maximum(b.node), a.storage | b.storage).tolist()
    assert list(map(repr, both)) == ["nan", "5.0", "nan", "nan"]
    check(f32, [nan, -1], lambda x: x.maximum(0.0), [nan, 0.0])


def test_13_nothing_is_folded_that_changes_a_float() -> None:
    inf, nan = math.inf, math.nan
    check(f32, [inf, nan, 1, -1], lambda x: x * 0, [nan, nan, 0.0, -0.0])
    check(f32, [0, inf, nan], lambda x: x / x, [nan, nan, nan])
    check(f32, [inf, nan, 1], lambda x: x - x, [nan, nan, 0.0])
    check(f32, [-0.0], lambda x: 1.0 * (x + 0.0) * 0 + (x + 0.0), [0.0])
    check(f32, [-0.0], lambda x: x.const_like(1.0) / (x + 0.0), [inf])
    check(f32, [0.0], lambda x: x.const_like(1.0) / (0.0 - x), [inf])


def test_14_bytes_wrap_before_they_are_cast() -> None:
    check(u8, [128, 200], lambda x: (x + x).cast(i16), [0, 144])
    check(i8, [100], lambda x: ((x + 50) * 6).cast(i32), [-124])
    check(i8, [100], lambda x: (x + 50).cast(i32) * 6, [-636])


def test_15_integers_wrap_before_they_are_compared() -> None:
    check(i32, [2**31 - 1], lambda x: (x + 1) > (2**31 - 1), [False])
    check(i16, [30000], lambda x: (x + 30000) > 0, [False])
    check(i8, [100], lambda x: (x * 2) // 2, [-28])
    check(u8, [200], lambda x: (x * 2) // 2, [72])
    check(u8, [1], lambda x: (-x).cast(i32), [255])


def test_16_floats_saturate_as_integers() -> None:
    check(f32, [-1, -266, 256, 259999, 3.9, -0.5], lambda x: x.cast(u8), [0, 0, 255, 255, 3, 0])
    check(f32, [math.nan, 2147483646.0], lambda x: x.cast(i32), [0, 2**31 - 1])
    literal = UOp.const(f32, 2147483646.0)
    assert evaluate(literal.cast(i32)).item() == UOp.const(i32, literal.arg).arg == 2**31 - 1


def test_17_each_op_rounds_in_its_own_type() -> None:
    check(bf16, [12, 10], lambda x: UOp.make(Ops.EXP, x), [162816.0, 22016.0])
    check(f16, [60000], lambda x: (x * 2) / 2, [math.inf])
    check(bf16, [256], lambda x: (x + 1) + 1, [256.0])
    check(f16, [65504], lambda x: x * 2, [math.inf])
    check(f32, [1.00390625, 1.01171875], lambda x: x.cast(bf16), [1.0, 1.015625])
    check(f32, [65519, 65520], lambda x: x.cast(f16), [65504.0, math.inf])


def test_18_and_19_sums_of_many() -> None:
    ones = UOp.const(f16, 1.0).expand((4096,)).cast(f32)
    assert evaluate(extreme(ones, Ops.ADD).cast(f16)).item() == 4096
    tenths = UOp.const(f32, 0.1).expand((1 << 20,))
    assert abs(evaluate(extreme(tenths, Ops.ADD)).item() - 104857.6) < 0.1


def test_20_signs_of_zero() -> None:
    check(f32, [-0.0] * 20, lambda x: x.minimum(0.0), [-0.0] * 20)
    check(f32, [0.0] * 20, lambda x: x.minimum(-0.0), [-0.0] * 20)
    check(f32, [-0.0] * 20, lambda x: x.maximum(0.0), [0.0] * 20)
    check(f32, [0.5, 1.5, 2.5, -0.5], lambda x: UOp.make(Ops.ROUND, x), [0.0, 2.0, 2.0, -0.0])


def test_21_powers() -> None:
    nan = math.nan
    base, exponent = Given(f32, [nan, 1, -2, -2, 0]), Given(f32, [0, nan, 3, 2.5, 0])
    node = UOp.make(Ops.POW, base.node, exponent.node)
    ours = evaluate(node, base.storage | exponent.storage).tolist()
    assert list(map(repr, ours)) == ["1.0", "1.0", "-8.0", "nan", "1.0"]
    product = UOp.const(i32, 1)
    for _ in range(20):
        product = product * 3
    assert evaluate(product).item() == -808182895


def test_22_narrowing_and_absolute_values() -> None:
    assert evaluate(UOp.const(dtypes.int64, 2**40).cast(i32)).item() == 0
    check(i8, [-128], lambda x: (x < 0).where(-x, x), [-128])
    check(u8, [3], lambda x: x - 5, [254])
