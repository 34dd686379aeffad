"""Integers of the interpreter against Python's own, wrapped: all pairs of the 8-bit types."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pellucid.core.dtype import DType, Scalar, dtypes, wrap
from pellucid.core.errors import InterpretError
from pellucid.ir.interpret.arithmetic import apply, reduce_values
from pellucid.ir.interpret.values import cast_values, value_dtype
from pellucid.ir.op import Op, Ops, shift_left, shift_right

Array = npt.NDArray[Any]
Meaning = Callable[[int, int], Scalar]

TYPES = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32]
TYPES += [dtypes.int64, dtypes.uint64]


def operands(dtype: DType) -> tuple[Array, Array]:
    """All pairs of an 8-bit type; pairs of edges and of random values for the wider ones."""
    low, high = int(dtype.min), int(dtype.max)
    if dtype.bits == 8:
        values = list(range(low, high + 1))
    else:
        near = {low, low + 1, high, high - 1, high // 2, -3, -2, -1, 0, 1, 2, 3, 7, 63, 64, 100}
        near |= {dtype.bits, dtype.bits - 1, dtype.bits + 1}
        values = sorted(v for v in near if low <= v <= high)
    a, b = np.meshgrid(np.array(values, value_dtype(dtype)), np.array(values, value_dtype(dtype)))
    return a.reshape(-1), b.reshape(-1)


def meaning(op: Op, dtype: DType) -> Meaning:
    """What the op gives on Python's integers, before it wraps."""
    if op is Ops.SHL:
        return lambda a, b: shift_left(a, b, dtype.bits)
    if op is Ops.SHR:
        return lambda a, b: shift_right(a, b, dtype.bits)
    assert op.python is not None
    return op.python


WRAPPING = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD]
WRAPPING += [Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR]
COMPARING = [Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("op", [*WRAPPING, *COMPARING], ids=lambda op: op.name)
def test_binary_ops_are_python_wrapped(op: Op, dtype: DType) -> None:
    a, b = operands(dtype)
    result = dtypes.bool if op in COMPARING else dtype
    ours = apply(op, result, [dtype] * 2, [a, b])
    exact = [meaning(op, dtype)(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    expected = exact if op in COMPARING else [wrap(dtype, int(v)) for v in exact]
    assert ours.dtype == value_dtype(result)
    assert ours.tolist() == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_negation_and_multiply_add_wrap(dtype: DType) -> None:
    a, b = operands(dtype)
    assert apply(Ops.NEG, dtype, [dtype], [a]).tolist() == [wrap(dtype, -x) for x in a.tolist()]
    ours = apply(Ops.MULADD, dtype, [dtype] * 3, [a, b, a])
    expected = [wrap(dtype, x * y + x) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert ours.tolist() == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_native_division_traps_where_a_processor_does(dtype: DType) -> None:
    a, b = operands(dtype)
    low, one = np.array([dtype.min], a.dtype), np.array([1], a.dtype)
    with pytest.raises(InterpretError, match="IDIV by zero"):
        apply(Ops.IDIV, dtype, [dtype] * 2, [one, one * 0])
    if not dtype.is_unsigned:
        with pytest.raises(InterpretError, match="IMOD of the smallest integer by -1"):
            apply(Ops.IMOD, dtype, [dtype] * 2, [low, -one])
    fine = (b != 0) & ~((b == np.array(-1).astype(b.dtype)) & (a == dtype.min))
    for op in (Ops.IDIV, Ops.IMOD):
        assert op.python is not None
        expected = [
            op.python(x, y) for x, y in zip(a[fine].tolist(), b[fine].tolist(), strict=True)
        ]
        assert apply(op, dtype, [dtype] * 2, [a[fine], b[fine]]).tolist() == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_native_shifts_are_shifts_below_the_width(dtype: DType) -> None:
    a, b = operands(dtype)
    fine = (b >= 0) & (b < dtype.bits)
    for native, op in ((Ops.ISHL, Ops.SHL), (Ops.ISHR, Ops.SHR)):
        ours = apply(native, dtype, [dtype] * 2, [a[fine], b[fine]])
        assert np.array_equal(ours, apply(op, dtype, [dtype] * 2, [a[fine], b[fine]]))


@pytest.mark.parametrize("to", TYPES, ids=str)
@pytest.mark.parametrize("given", TYPES, ids=str)
def test_casts_between_integers_wrap(given: DType, to: DType) -> None:
    values, _ = operands(given)
    ours = cast_values(to, given, values)
    assert ours.tolist() == [wrap(to, v) for v in values.tolist()]


def test_bools_are_logic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    kinds = {Ops.AND: operator.and_, Ops.OR: operator.or_, Ops.XOR: operator.xor}
    kinds |= {Ops.MAX: operator.or_, Ops.MIN: operator.and_}
    for op, python in kinds.items():
        ours = apply(op, dtypes.bool, [dtypes.bool] * 2, [a, b])
        assert ours.tolist() == [python(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_an_index_is_a_mathematical_integer() -> None:
    index = dtypes.index
    large = np.array([1 << 62, 3], np.int64)
    product = apply(Ops.MUL, index, [index] * 2, [large, large])
    assert product.tolist() == [1 << 124, 9]
    assert apply(Ops.FLOORMOD, index, [index] * 2, [product, large]).tolist() == [0, 0]
    quotient = apply(Ops.FLOORDIV, index, [index] * 2, [product, large])
    assert quotient.tolist() == large.tolist()
    assert quotient.dtype == np.int64
    assert cast_values(dtypes.int32, index, product).tolist() == [0, 9]
    assert cast_values(index, dtypes.uint64, np.array([2**64 - 1], np.uint64)).tolist() == [
        2**64 - 1
    ]


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint64, dtypes.int8], ids=str)
def test_reductions_wrap(dtype: DType) -> None:
    values = np.array([dtype.max, 2, 3], value_dtype(dtype))
    total, product = int(dtype.max) + 5, int(dtype.max) * 6
    assert reduce_values(Ops.ADD, dtype, values, (0,)).item() == wrap(dtype, total)
    assert reduce_values(Ops.MUL, dtype, values, (0,)).item() == wrap(dtype, product)
    assert reduce_values(Ops.XOR, dtype, values, (0,)).item() == int(dtype.max) ^ 2 ^ 3
    empty = values[:0]
    assert reduce_values(Ops.MAX, dtype, empty, (0,)).item() == dtype.min
    assert reduce_values(Ops.AND, dtype, empty, (0,)).item() == wrap(dtype, -1)
