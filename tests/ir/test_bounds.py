"""Intervals and alignment: exhaustive for small types, and what conditions add."""

from __future__ import annotations

import itertools

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import ParamArg, SpecialArg, VariableArg
from pellucid.ir.bounds import (
    UNKNOWN,
    Interval,
    alignment,
    bounds,
    bounds_under,
    facts_of,
    full_range,
)
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from tests.ir.integers import evaluate

R, J = UOp.range(4, 0), UOp.range(3, 1)
BINARY = [
    Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX, Ops.MIN,
    Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE,
]  # fmt: skip
INTERVALS = [(0, 0), (0, 3), (1, 2), (-3, 2), (-2, -1), (-1, -1), (5, 9), (-128, 127), (100, 127)]


def variable(name: str, low: int, high: int, dtype: DType) -> UOp:
    return UOp(Ops.VARIABLE, dtype, (), VariableArg(name, low, high))


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.uint8], ids=str)
def test_bounds_hold_every_value(op: Op, dtype: DType) -> None:
    if dtype.is_index and op in (Ops.SHL, Ops.SHR):
        pytest.skip("index values are not shifted")
    edges = (0, 1, 2, 3)
    for (a, b), (c, d) in itertools.product(INTERVALS, INTERVALS):
        if dtype.is_unsigned and (a < 0 or c < 0):
            continue
        x, y = variable("x", a, b, dtype), variable("y", c, d, dtype)
        node = UOp.make(op, x, y)
        low, high = bounds(node)
        step = alignment(node)
        xs = sorted({v for e in edges for v in (a + e, b - e, e, -e) if a <= v <= b})
        ys = sorted({v for e in edges for v in (c + e, d - e, e, -e) if c <= v <= d})
        for v, w in itertools.product(xs, ys):
            value = evaluate(node, {x: v, y: w})
            assert low <= value <= high, (op, (a, b), (c, d), v, w, value)
            assert value == 0 if step == 0 else value % step == 0


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (R * 3 + J, (0, 11)),
        (R // 2, (0, 1)),
        ((R * -1) // 2, (-2, 0)),
        ((R * -1) % 2, (0, 1)),
        (R % 8, (0, 3)),
        ((R + 8) % 4, (0, 3)),
        ((J + 8) % 4, (0, 2)),
        ((R < 4), (1, 1)),
        ((R < 0), (0, 0)),
        ((R < 2), (0, 1)),
        (R.cast(dtypes.int8), (0, 3)),
        ((R * 100).cast(dtypes.int8), (-128, 127)),
        ((R - 9).cast(dtypes.bool), (1, 1)),
        ((R < 4).where(J, 99), (0, 2)),
        (R.minimum(2) + J.maximum(1), (1, 4)),
        (UOp.const(dtypes.index.vec(3), (5, -2, 4)), (-2, 5)),
        (UOp.const(dtypes.index.vec(3), (5, -2, 4)).lane((0, 2)), (4, 5)),
        (R.splat(4) * 2, (0, 6)),
        (UOp(Ops.STACK, dtypes.index.vec(2), (R, J + 7)), (0, 9)),
        (UOp.const(dtypes.uint8, 200) + UOp.const(dtypes.uint8, 100), (0, 255)),
        (UOp.make(Ops.SPECIAL, UOp.const(dtypes.index, 8), arg=SpecialArg("thread")), (0, 7)),
        (UOp.range(variable("n", 1, 10, dtypes.index), 0), (0, 9)),
        (UOp(Ops.PARAM, dtypes.uint16, (), ParamArg(0, 4)).index(R), (0, 65535)),
        (UOp(Ops.PARAM, dtypes.int8, (), ParamArg(0, 4)).index(R).cast(dtypes.index), (-128, 127)),
    ],
)
def test_intervals(node: UOp, expected: tuple[int, int]) -> None:
    assert bounds(node) == expected


def test_index_does_not_wrap_and_int64_does() -> None:
    big = 1 << 40
    x = variable("x", 0, big, dtypes.index)
    assert bounds(x * big).max == big * big
    y = variable("x", 0, big, dtypes.int64)
    assert bounds(y * big) == full_range(dtypes.int64)


def test_floats_have_no_bounds_and_decide_nothing() -> None:
    x = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, 4)).index(R)
    assert bounds(x) == UNKNOWN
    assert bounds(x < x + 1.0) == (0, 1)
    assert bounds(x.cast(dtypes.uint8)) == (0, 255)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (R * 12 + 8, 4),
        (R * 12, 12),
        ((R * 12) // 4, 3),
        ((R * 12) % 8, 4),
        ((R * 6).maximum(9), 3),
        (UOp.const(dtypes.index, 0), 0),
        (variable("a", 0, 255, dtypes.uint8) * 12, 4),
        (variable("a", 0, 9, dtypes.int32) << 3, 8),
        ((R < 2).where(R * 6, 15), 3),
        (R.splat(4) * 4 + UOp.const(dtypes.index.vec(4), (0, 8, 16, 24)), 4),
        (R, 1),
    ],
)
def test_alignment(node: UOp, expected: int) -> None:
    assert alignment(node) == expected


def test_facts_follow_sums_products_and_quotients() -> None:
    i, j = UOp.range(100, 0), UOp.range(4, 1)
    assert facts_of(i * 4 + j < 18)[i] == (0, 4)
    assert facts_of(i + -3 >= 7)[i] == (10, 99)
    assert facts_of(i // 4 < 3)[i] == (0, 11)
    assert facts_of((i < 50) & (i >= 20))[i] == (20, 49)
    assert facts_of((i < 20) | (i >= 50), holds=False)[i] == (20, 49)
    assert facts_of((i < 20).logical_not())[i] == (20, 99)
    assert facts_of(i.eq(7))[i] == (7, 7)
    assert i not in facts_of(i.ne(7))


def test_bounds_under_a_condition() -> None:
    i, j = UOp.range(100, 0), UOp.range(4, 1)
    facts = facts_of((i < 3) & (j < 2))
    assert bounds_under(i * 4 + j, facts) == (0, 9)
    assert bounds_under(i < 3, facts) == (1, 1)
    assert bounds_under(i < 5, facts) == (1, 1)
    assert bounds_under(i * 4 + j, {}) == bounds(i * 4 + j)


def test_deep_chains_do_not_recurse() -> None:
    node = R
    for _ in range(50_000):
        node = node + J
    assert bounds(node) == (0, 3 + 100_000)


def test_contains() -> None:
    assert 3 in Interval(1, 3)
    assert 4 not in Interval(1, 3)
