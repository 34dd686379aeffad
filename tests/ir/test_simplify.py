"""simplify: what it finds, and what it must leave alone."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import ParamArg, ReduceArg, VariableArg
from pellucid.ir.law import RuleSet
from pellucid.ir.laws.folding import fold_value
from pellucid.ir.op import Ops
from pellucid.ir.rewrite import rewrite
from pellucid.ir.simplify import SIMPLIFY, simplify, simplify_movement
from pellucid.ir.smt import same_value
from pellucid.ir.uop import UOp, new_buffer
from tests.ir.integers import Maker, evaluate, random_values

R, J, N = UOp.range(5, 0), UOp.range(3, 1), UOp.range(4, 2)
S = UOp(Ops.VARIABLE, dtypes.index, (), VariableArg("s", -50, 50))
FLAT = R * 12 + J * 4 + N


def param(dtype: DType, slot: int = 0, at: UOp = R) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, 100)).index(at)


F, G = param(dtypes.float32, 0), param(dtypes.float32, 1)
A, B = param(dtypes.int32, 2), param(dtypes.int32, 3)
C, D = param(dtypes.bool, 4), param(dtypes.bool, 5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # splitting and joining index expressions
        (FLAT // 12, R),
        (FLAT // 4 % 3, J),
        (FLAT % 4, N),
        ((J * 8 + N * -6) % 7, J + N),
        (FLAT % 12, J * 4 + N),
        (FLAT % 12 // 4, J),
        (FLAT // 6 % 2, (J * 4 + N) // 6),
        (FLAT // 4 * 4 + FLAT % 4, FLAT),
        (S // 4 * 4 + S % 4, S),
        (S // 4 % 3 * 4 + S % 4, S % 12),
        (S // 12 * 12 + S // 4 % 3 * 4 + S % 4, S),
        ((S * 12 + 8) // 4, S * 3 + 2),
        ((S * 12 + N) // 4, S * 3),
        ((S * 6 + 7) // 6, S + 1),
        ((S * 6 + 7) % 6, UOp.const(dtypes.index, 1)),
        (S % 12 % 4, S % 4),
        ((S % 12 + R) % 4, (R + S) % 4),
        (S // 3 // 4, S // 12),
        (S % 12 // 3, S // 3 % 4),
        ((S * 4) // 6, (S * 2) // 3),
        ((S * 4) % 6, ((S * 2) % 3) * 2),
        (S // -2, (S * -1) // 2),
        ((3 - R) // 2, (R * -1 + 1) // 2 + 1),
        # sums
        (J + R, R + J),
        (R * 2 + R + 3 + 4, R * 3 + 7),
        (R + J - R, J),
        ((R + J) * 3, R * 3 + J * 3),
        ((R + 1) * 4 - 4, R * 4),
        # comparisons
        (FLAT < 24, R < 2),
        (FLAT < 25, FLAT < 25),
        (R * 4 + 1 < J * 4 + 9, R < J + 2),
        (R - 3 >= 0, UOp.const(dtypes.index, 2) < R),
        ((R + J).eq(J + R), UOp.const(dtypes.bool, True)),
        ((R * 2).eq(3), UOp.const(dtypes.bool, False)),
        ((R < 3).logical_not(), UOp.const(dtypes.index, 2) < R),
        # conditions
        ((R < 3) & (R < 5), R < 3),
        ((R < 3) | (R < 2), R < 3),
        ((R < 3).where(R % 3, J), (R < 3).where(R, J)),
        ((R < 3).where((R < 4).where(J, N), N), (R < 3).where(J, N)),
        ((R < 3).where(J, J), J),
        (C.where(UOp.const(dtypes.bool, True), False), C),
        (C.logical_not().where(A, B), C.where(B, A)),
        (C.where(C.where(A, B), B), C.where(A, B)),
        # bits, extremes, casts
        ((A & 12) & 5, A & 4),
        (param(dtypes.uint8) & 255, param(dtypes.uint8)),
        (A.maximum(3).maximum(5), A.maximum(5)),
        (R.maximum(0), R),
        (R.minimum(J + 9), R),
        (A.cast(dtypes.int64).cast(dtypes.int32), A),
        (A.cast(dtypes.int16).cast(dtypes.int8), A.cast(dtypes.int8)),
        (A.cast(dtypes.int64).cast(dtypes.int8), A.cast(dtypes.int8)),
        (C.cast(dtypes.int32).ne(0), C),
        (C.cast(dtypes.float32).eq(0.0), C.logical_not()),
        (R.cast(dtypes.int64) * 2 + 1 < 7, R < 3),
        (R.cast(dtypes.int8) * 2 + J.cast(dtypes.int8), (R * 2 + J).cast(dtypes.int8)),
        (R.cast(dtypes.int8) * 100, R.cast(dtypes.int8) * 100),
        (R.cast(dtypes.int64).cast(dtypes.index), R),
        # floats
        (F * 1.0, F),
        (F + -0.0, F),
        (F / 1.0, F),
        (F / 4.0, F * 0.25),
        (F / -0.5, F * -2.0),
        ((F * -1.0) * -1.0, F),
        ((F * -1.0) * 3.0, F * -3.0),
        (C.where(D, False), C & D),
        (C.where(True, D), C | D),
        (C.where(D.where(A, B), B), (C & D).where(A, B)),
        (UOp.range(1, 8) + R, R),
        (G * F + F * G, F * G + F * G),
    ],
)
def test_finds(before: UOp, after: UOp) -> None:
    assert simplify(before) is after


@pytest.mark.parametrize(
    "node",
    [
        F + 0.0,
        F * 0.0,
        F * -1.0 + F,
        F / F,
        F / 3.0,
        F / 2.0**-149,
        F.maximum(F + 1.0),
        F < F,
        F.eq(F),
        F.ne(F),
        (F < G).logical_not(),
        F.cast(dtypes.int8).cast(dtypes.float32),
        F.cast(dtypes.float16).cast(dtypes.float32),
        param(dtypes.int64).cast(dtypes.int32).cast(dtypes.int64),
        param(dtypes.float64).cast(dtypes.float32).cast(dtypes.float64),
        F.alu(Ops.EXP),
        UOp.const(dtypes.float32, 1.0).alu(Ops.EXP),
        A + 1 < B + 1,
        (A + B) // 2,
    ],
)
def test_leaves_alone(node: UOp) -> None:
    assert simplify(node) is node or simplify(node).op is node.op
    assert len(simplify(node).toposort()) == len(node.toposort())


def literal(dtype: DType, value: bool | int | float) -> UOp:
    return UOp.const(dtype, value)


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ((literal(dtypes.int8, 100) + 50) * 6, -124),
        ((literal(dtypes.int16, 30000) + 30000) > 0, False),
        ((literal(dtypes.uint8, 200) * 2) // 2, 72),
        (literal(dtypes.int32, -(2**31)) // -1, -(2**31)),
        (literal(dtypes.int32, 5) // 0, 0),
        (literal(dtypes.int32, 5) % 0, 0),
        (literal(dtypes.int32, -7) // 3, -3),
        (literal(dtypes.int32, -7) % 3, 2),
        (literal(dtypes.int32, 7) % -3, -2),
        (literal(dtypes.int32, 1) << 32, 0),
        (literal(dtypes.int32, -5) >> 99, -1),
        ((-literal(dtypes.uint8, 1)).cast(dtypes.int32), 255),
        ((literal(dtypes.float16, 60000.0) * 2) / 2, math.inf),
        ((literal(dtypes.bfloat16, 256.0) + 1) + 1, 256.0),
        (literal(dtypes.float32, 2147483646.0).cast(dtypes.int32), 2147483647),
        (literal(dtypes.float32, math.nan).cast(dtypes.int32), 0),
        (literal(dtypes.float32, 3.9).cast(dtypes.uint8), 3),
        (literal(dtypes.int64, 2**60 + 2**36 + 1).cast(dtypes.float32), float(2**60 + 2**37)),
        (literal(dtypes.int64, -(2**60) - 2**36 - 1).cast(dtypes.float32), -float(2**60 + 2**37)),
        (literal(dtypes.int64, 2**60 + 2**36).cast(dtypes.float32), float(2**60)),
        (literal(dtypes.int64, 2**60 + 129).cast(dtypes.float64), float(2**60 + 256)),
        (literal(dtypes.float32, -0.0).maximum(0.0), 0.0),
        (literal(dtypes.float32, -0.0).minimum(0.0), -0.0),
        (literal(dtypes.float32, math.nan).maximum(1.0), math.nan),
        (literal(dtypes.float32, 1.0).bitcast(dtypes.int32), 0x3F800000),
    ],
)
def test_folds_to(node: UOp, value: bool | int | float) -> None:
    found = simplify(node)
    assert found.op is Ops.CONST
    assert same_value(found.arg, value)
    assert type(found.arg) is type(value)


def test_floor_semantics_of_the_cases() -> None:
    v = UOp.range(7, 0)
    node = ((v * -1) // 6 + v + 1) // 2 + v
    values = [evaluate(simplify(node), {v: i}) for i in range(7)]
    assert values == [0, 1, 3, 4, 6, 7, 9]
    assert [evaluate(simplify((3 - v) // 2), {v: i}) for i in range(7)] == [1, 1, 0, 0, -1, -1, -2]
    assert [evaluate(simplify((3 - v) % 2), {v: i}) for i in range(7)] == [1, 0, 1, 0, 1, 0, 1]


def test_vector_literals_fold_lane_by_lane() -> None:
    x = UOp.const(dtypes.int32.vec(4), (0, 1, 2, 3))
    assert simplify(x * 2 + x) is UOp.const(dtypes.int32.vec(4), (0, 3, 6, 9))
    assert simplify(x // 4) is UOp.const(dtypes.int32.vec(4), 0)
    assert simplify(x < 2) is UOp.const(dtypes.bool.vec(4), (True, True, False, False))


def test_vector_index_has_one_scalar_part() -> None:
    lanes = UOp.const(dtypes.index.vec(4), (0, 1, 2, 3))
    node = (lanes + R.splat(4) * 4) + (J * 8).splat(4) + 3
    found = simplify(node)
    assert found is (R * 4 + J * 8).splat(4) + UOp.const(dtypes.index.vec(4), (3, 4, 5, 6))
    assert simplify((lanes + R.splat(4) * 4) // 4) is R.splat(4)
    assert simplify((lanes + R.splat(4) * 4) % 4) is lanes


def test_lanes_and_stacks() -> None:
    stack = UOp(Ops.STACK, dtypes.float32.vec(2), (F, G))
    assert simplify(stack.lane(1)) is G
    assert simplify(F.splat(4).lane(2)) is F
    assert simplify(UOp(Ops.STACK, dtypes.float32.vec(2), (F, F))) is F.splat(2)
    assert simplify(F.splat(4) * G.splat(4)) is (F * G).splat(4)
    vector = UOp(Ops.SQRT, dtypes.float32.vec(4), (param(dtypes.float32.vec(4)),))
    assert simplify(vector.lane((0, 1, 2, 3))) is vector
    assert simplify(vector.lane((3, 2)).lane(1)) is vector.lane(2)


def test_validity_narrows_its_own_index_only() -> None:
    buffer = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, 100))
    r = UOp.range(16, 7)
    assert simplify(buffer.index(r % 8, r < 8)) is buffer.index(r, r < 8)
    open_access = (r < 8).where(buffer.index(r % 8), 0.0)
    assert simplify(open_access) is open_access
    assert simplify(buffer.index(r, r < 99)) is buffer.index(r)


def test_reduce_of_what_does_not_change() -> None:
    r = UOp.range(6, 9)

    def reduce(value: UOp, op: object) -> UOp:
        return UOp(Ops.REDUCE, value.dtype, (value, r), ReduceArg(op))

    assert simplify(reduce(A, Ops.ADD)) is A * 6
    assert simplify(reduce(A, Ops.MAX)) is A
    assert simplify(reduce(F, Ops.MAX)) is F
    assert simplify(reduce(F, Ops.ADD)) is reduce(F, Ops.ADD)
    moving = param(dtypes.int32, 6, r)
    assert simplify(reduce(moving * A, Ops.ADD)) is A * reduce(moving, Ops.ADD) or (
        simplify(reduce(moving * A, Ops.ADD)) is reduce(moving, Ops.ADD) * A
    )


def test_relaxed_laws_apply_only_when_asked_for() -> None:
    node = F * -1.0 + F
    assert simplify(node).op is Ops.ADD
    assert simplify(node, relaxed_float=True) is UOp.const(dtypes.float32, 0.0)
    assert simplify((F + 1.5) + 2.0, relaxed_float=True) is F + 3.5


def test_movement() -> None:
    x = new_buffer(24, dtypes.float32, "CPU").reshape((2, 3, 4))
    flat = x.src[0]
    assert simplify_movement(x.reshape((6, 4)).reshape((24,))) is flat
    assert simplify_movement(x.permute((1, 2, 0)).permute((2, 0, 1))) is x
    assert simplify_movement(x.flip((0, 1)).flip((1, 2))) is x.flip((0, 2))
    box = x.shrink(((0, 2), (1, 3), (1, 4))).shrink(((1, 2), (0, 1), (0, 2)))
    assert simplify_movement(box) is x.shrink(((1, 2), (1, 2), (1, 3)))
    padded = x.pad(((1, 0), (0, 0), (0, 0)), 7.0).pad(((0, 2), (0, 0), (0, 1)), 7.0)
    assert simplify_movement(padded) is x.pad(((1, 2), (0, 0), (0, 1)), 7.0)
    other = x.pad(((1, 0), (0, 0), (0, 0)), 7.0).pad(((0, 2), (0, 0), (0, 1)), 8.0)
    assert simplify_movement(other) is other
    rim = x.pad(((1, 1), (0, 2), (0, 0)))
    assert simplify_movement(rim.shrink(((1, 3), (0, 3), (0, 4)))) is x
    assert simplify_movement(rim.shrink(((2, 3), (1, 3), (0, 4)))) is x.shrink(
        ((1, 2), (1, 3), (0, 4))
    )
    touching = rim.shrink(((0, 3), (0, 3), (0, 4)))
    assert simplify_movement(touching) is touching
    scalar = UOp.const(dtypes.float32, 2.0).expand((2, 3))
    assert simplify_movement(scalar.permute((1, 0)).reshape((6,))) is UOp.const(
        dtypes.float32, 2.0
    ).expand((6,))


FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, math.inf, -math.inf, math.nan, 1e-40, 3e38]


@pytest.mark.parametrize("seed", range(4))
def test_random_float_graphs_keep_every_bit(seed: int) -> None:
    rng = random.Random(seed)
    leaves = [F, G]

    def number(depth: int) -> UOp:
        if depth == 0 or rng.random() < 0.15:
            return rng.choice(leaves) if rng.random() < 0.7 else F.const_like(rng.choice(FLOATS))
        op = rng.choice([Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.FDIV, Ops.WHERE])
        if op is Ops.WHERE:
            compare = rng.choice([Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE])
            condition = UOp.make(compare, number(depth - 1), number(depth - 1))
            if rng.random() < 0.3:
                condition = condition.logical_not()
            return condition.where(number(depth - 1), number(depth - 1))
        return UOp.make(op, number(depth - 1), number(depth - 1))

    def value(root: UOp, f: float, g: float) -> object:
        done: dict[UOp, bool | int | float] = {F: f, G: g}
        for node in root.toposort(lambda n: n not in done):
            if node.op is Ops.CONST:
                done[node] = node.arg
            elif node not in done:
                given = tuple(done[s] for s in node.src)
                done[node] = fold_value(node.op, node.dtype, node.src[0].dtype, given)
        return done[root]

    for _ in range(60):
        node = number(4)
        simple = simplify(node)
        for f, g in itertools.product(FLOATS, FLOATS[::2]):
            f32, g32 = (float(F.const_like(v).arg) for v in (f, g))
            before, after = value(node, f32, g32), value(simple, f32, g32)
            assert same_value(before, after), (f, g)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_laws_hold_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    rules = list(SIMPLIFY)
    rng.shuffle(rules)
    shuffled = RuleSet("shuffled", rules)
    for dtype in (dtypes.index, dtypes.int8):
        for _ in range(40):
            node = Maker(rng, dtype).integer(4)
            simple = rewrite(node, shuffled)
            for _ in range(6):
                values = random_values(node, rng)
                assert evaluate(simple, values) == evaluate(node, values)


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 1, 7), (8, 8), (3, 5, 2, 2)])
def test_reshape_there_and_back_is_nothing(shape: tuple[int, ...]) -> None:
    ranges = [UOp.range(size, axis) for axis, size in enumerate(shape)]
    flat = UOp.const(dtypes.index, 0)
    for size, r in zip(shape, ranges, strict=True):
        flat = flat * size + r
    back, stride = [], 1
    for size in reversed(shape):
        back.append(flat // stride % size)
        stride *= size
    for found, r, size in zip(reversed(back), ranges, shape, strict=True):
        assert simplify(found) is (r if size > 1 else UOp.const(dtypes.index, 0))


def test_equal_index_sums_become_the_same_node() -> None:
    rng = random.Random(3)
    for _ in range(60):
        ranges = [UOp.range(rng.randint(2, 9), axis) for axis in range(4)]
        terms = [rng.choice(ranges) * rng.randint(-4, 9) for _ in range(6)]

        def total(parts: list[UOp] = terms) -> UOp:
            rng.shuffle(parts)
            found = parts[0]
            for part in parts[1:]:
                found = found + part if rng.random() < 0.5 else part + found
            return found + 3

        size = rng.randint(2, 12)
        assert simplify(total()) is simplify(total())
        assert simplify(total() // size) is simplify(total() // size)
        assert simplify(total() % size) is simplify(total() % size)
        assert simplify(total() < size) is simplify(total() < size)
