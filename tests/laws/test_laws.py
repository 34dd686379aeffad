"""Every law: true, shrinking, applied as it is written, at the level that the table says."""

from __future__ import annotations

import random

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import LawError
from pellucid.ir import smt
from pellucid.ir.arg import ParamArg, VariableArg
from pellucid.ir.equation import Bool, Equation, Float, Index, Known, Real, Value, Wrap
from pellucid.ir.law import Law, RuleSet, known_levels, law
from pellucid.ir.laws.order import SMALLEST_VARIABLE, weight
from pellucid.ir.op import Ops
from pellucid.ir.pattern import Pattern
from pellucid.ir.rewrite import rewrite_once
from pellucid.ir.simplify import all_laws, all_rules, laws_table
from pellucid.ir.uop import UOp

LAWS = all_laws()
by_name = pytest.mark.parametrize("one", LAWS, ids=lambda one: f"{one.family}.{one.name}")


@by_name
def test_law_is_true_at_the_level_of_the_table(one: Law) -> None:
    verdict = smt.check(one)
    assert verdict.level != smt.FALSE, verdict
    assert verdict.level == one.level, "run python -m pellucid.ir.smt"


def test_table_of_levels_has_a_row_for_each_law_and_no_other() -> None:
    assert set(known_levels()) == {f"{one.family}.{one.name}" for one in LAWS}


@by_name
def test_law_shrinks_the_order(one: Law) -> None:
    rng = random.Random(1)
    for _ in range(200):
        literals = known_values(one, rng)
        weights = {
            n: SMALLEST_VARIABLE + rng.choice([0, 0, 1, 7, 1000])
            for n, types in one.types.items()
            if Known not in types
        }
        left, right = (weight(side, weights, literals) for side in (one.left, one.right))
        assert left > right


@by_name
def test_law_fires_and_builds_its_right_side(one: Law) -> None:
    rng = random.Random(2)
    alone = RuleSet("alone", [one])
    fired = 0
    for _ in range(100):
        literals = known_values(one, rng)
        for dtype in dtypes_of(one):
            nodes = leaves(one, dtype, literals, rng)
            left = build(one.left, nodes, dtype)
            before = one.fired
            found = rewrite_once(left, alone)
            if one.fired > before:
                fired += 1
                assert found.dtype is left.dtype
                assert found in [build(one.right, n, dtype) for n in renamings(one, nodes)]
        if fired > 3:
            return
    raise AssertionError("it never fired")


def test_rules_have_names_and_sentences_of_their_own() -> None:
    names = [one.name for one in all_rules()]
    assert len(set(names)) == len(names)
    assert all(one.doc.endswith(".") for one in all_rules())


def test_laws_table_has_a_row_for_each_law() -> None:
    table = laws_table()
    assert table.count("\n") == len(LAWS) + 2
    assert "| divide_twice | divmod | `(x // a) // b = x // (a * b)  if 0 < b` |" in table


# ---- false laws are found out --------------------------------------------------------------------


@law
def false_add_zero(x: Float) -> Equation:
    """False for x = -0.0."""
    return x + 0.0, x


@law
def false_mul_zero(x: Float) -> Equation:
    """False for infinities, NaN and negative numbers."""
    return x * 0.0, 0.0


@law
def false_divide_twice(x: Index, a: Known, b: Known) -> Equation:
    """False for a negative second divisor."""
    return (x // a) // b, x // (a * b)


@law
def false_wrap_compare(x: Wrap, y: Wrap, a: Known) -> Equation:
    """False where a sum wraps."""
    return x + a < y + a, x < y


@law
def false_quotient(x: Index, a: Known) -> Equation:
    """False for negative values."""
    return x // a, 0, x < a


FALSE_LAWS = [
    false_add_zero,
    false_mul_zero,
    false_divide_twice,
    false_wrap_compare,
    false_quotient,
]


@pytest.mark.parametrize("one", FALSE_LAWS, ids=lambda one: one.name)
def test_false_law_dies_in_sampling_and_in_the_solver(one: Law) -> None:
    verdict = smt.check(one)
    assert verdict.level == smt.FALSE
    assert verdict.dtype is not None, "sampling should have found it"
    left, right = (
        smt.evaluate(side, verdict.counterexample, verdict.dtype) for side in (one.left, one.right)
    )
    assert not smt.same_value(left, right)
    assert smt.prove(one).level == smt.FALSE


def test_counterexample_of_float_zero_is_minus_zero() -> None:
    found = smt.check(false_add_zero).counterexample["x"]
    assert str(found) == "-0.0"


def test_growing_law_is_seen_by_the_order() -> None:
    @law
    def grow(x: Index) -> Equation:
        """Grows."""
        return x * 1, x * 1 + 0

    assert weight(grow.left, {"x": 5}, {}) <= weight(grow.right, {"x": 5}, {})


def test_law_without_types_is_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x + 0, x

    with pytest.raises(LawError, match="x is not declared"):
        law(untyped)


def test_law_that_invents_a_variable_is_refused() -> None:
    def invents(x: Index, y: Index) -> Equation:
        return x + 0, y

    with pytest.raises(LawError, match="uses y on the right side only"):
        law(invents)


# ---- building sides as graphs --------------------------------------------------------------------

DTYPES = {
    Index: [dtypes.index],
    Wrap: [dtypes.int32, dtypes.uint8],
    Float: [dtypes.float32],
    Real: [dtypes.float32],
    Bool: [dtypes.bool],
    Value: [dtypes.float32, dtypes.bool, dtypes.int64],
}


def dtypes_of(one: Law) -> list[DType]:
    return [d for member in smt.theories_of(one) for d in DTYPES[member]]


def known_values(one: Law, rng: random.Random) -> dict[str, int]:
    """Literals that fulfil what the law's condition says about literals."""
    names = [n for n, types in one.types.items() if Known in types]
    for _ in range(1000):
        found = {n: rng.choice([-12, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 12]) for n in names}
        if one.condition is None or not set(one.condition.names()) <= set(names):
            return found
        if smt.evaluate(one.condition, found, dtypes.index):
            return found
    raise AssertionError("no literals fulfil the condition")


def leaves(one: Law, dtype: DType, literals: dict[str, int], rng: random.Random) -> dict[str, UOp]:
    nodes: dict[str, UOp] = {}
    for number, (name, types) in enumerate(one.types.items()):
        own = dtypes.bool if types == (Bool,) else dtype
        if name in literals:
            nodes[name] = UOp.const(dtype, literals[name])
        elif own.is_int:
            low = max(rng.randint(-9, 9), int(own.min))
            nodes[name] = UOp(
                Ops.VARIABLE, own, (), VariableArg(name, low, low + rng.randint(2, 9))
            )
        else:
            param = UOp(Ops.PARAM, own, (), ParamArg(number, 8))
            nodes[name] = param.index(UOp.const(dtypes.index, 1))
    return nodes


def renamings(one: Law, nodes: dict[str, UOp]) -> list[dict[str, UOp]]:
    """The nodes, and for laws that choose between two variables by bounds, also swapped."""
    plain = [n for n, types in one.types.items() if Known not in types and types != (Bool,)]
    if len(plain) != 2 or one.condition is None:
        return [nodes]
    first, second = plain
    return [nodes, {**nodes, first: nodes[second], second: nodes[first]}]


def build(side: Pattern, nodes: dict[str, UOp], dtype: DType) -> UOp:
    """One side of a law as a graph; what is literal is computed."""
    if side.value is not None:
        return UOp.const(dtypes.bool if isinstance(side.value, bool) else dtype, side.value)
    if side.src is None:
        return nodes[str(side.name)]
    given = [build(s, nodes, dtype) for s in side.src]
    assert side.op is not None
    made = UOp.make(side.op, *given)
    if all(g.op is Ops.CONST for g in given):
        values = {n: v.arg for n, v in nodes.items() if v.op is Ops.CONST}
        return UOp.const(made.dtype, smt.evaluate(side, values, dtype))
    return made
