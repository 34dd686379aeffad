"""Patterns: what they match, what they capture, and the source that they become."""

from __future__ import annotations

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import LawError
from pellucid.ir.arg import AxisKind, ReduceArg
from pellucid.ir.law import RuleSet, rule
from pellucid.ir.op import Op, Ops
from pellucid.ir.pattern import K, L, P, Pattern, X, Y, Z, orders
from pellucid.ir.rule import Rule
from pellucid.ir.uop import UOp

R, J = UOp.range(4, 0), UOp.range(5, 1)
TWO, THREE = UOp.const(dtypes.index, 2), UOp.const(dtypes.index, 3)


def captures(pattern: Pattern, node: UOp) -> dict[str, UOp] | None:
    """What *pattern* captures in *node*, or None: through the generated matcher."""
    found: dict[str, UOp] = {}
    names = pattern.names()
    scope = {"found": found}
    text = f"def take({', '.join(names)}):\n    found.update(locals())\n    return MARK"
    exec(text, scope | {"MARK": UOp.const(dtypes.bool, True)}, scope)
    one = Rule(pattern, scope["take"], "take")  # type: ignore[arg-type]
    return None if RuleSet("one", [one]).match(node) is None else dict(found)


@pytest.mark.parametrize(
    ("pattern", "node", "expected"),
    [
        (X + K, R + 2, {"x": R, "k": TWO}),
        (X + K, TWO + R, {"x": R, "k": TWO}),
        (X + K, R + J, None),
        (X * K + Y, J + R * 2, {"x": R, "k": TWO, "y": J}),
        ((X + K) // L, (THREE + R) // 2, {"x": R, "k": THREE, "l": TWO}),
        (X // K, TWO // R, None),
        (X + X, R + R, {"x": R}),
        (X + X, R + J, None),
        (X * K + X, R + TWO * R, {"x": R, "k": TWO}),
        (X + 2, R + 2, {"x": R}),
        (X + 2, R + 3, None),
        (X < Y, R < J, {"x": R, "y": J}),
        (X > Y, R < J, {"x": J, "y": R}),
        (X.where(Y, Z), (R < J).where(R, J), {"x": R < J, "y": R, "z": J}),
        (P((Ops.ADD, Ops.MUL), X, Y), R * J, {"x": R, "y": J}),
        (P((Ops.ADD, Ops.MUL), X, Y), R // J, None),
        (P(Ops.RANGE, ..., name="r"), R, {"r": R}),
        (P(Ops.RANGE, arg=lambda a: a.kind is AxisKind.REDUCE), R, None),
        (P(Ops.CAST, X, dtype=dtypes.int32), R.cast(dtypes.int32), {"x": R}),
        (P(Ops.CAST, X, dtype=dtypes.int32), R.cast(dtypes.int64), None),
        (P(Ops.ADD, X, P(Ops.MUL, name="m")), R * J + 2, {"x": TWO, "m": R * J}),
    ],
)
def test_captures(pattern: Pattern, node: UOp, expected: dict[str, UOp] | None) -> None:
    assert captures(pattern, node) == expected


def test_number_of_sources_is_part_of_the_pattern() -> None:
    value = R.cast(dtypes.float32)
    reduce = UOp(Ops.REDUCE, dtypes.float32, (value, R, J), ReduceArg(Ops.ADD))
    assert captures(P(Ops.REDUCE, X, Y), reduce) is None
    assert captures(P(Ops.REDUCE, X, Y, Z), reduce) == {"x": value, "y": R, "z": J}
    assert captures(P(Ops.REDUCE, X, ...), reduce) == {"x": value}
    assert captures(P(Ops.REDUCE, X, Y, Z, P(), ...), reduce) is None


def test_literal_patterns_tell_types_and_zeros_apart() -> None:
    x = UOp(Ops.SQRT, dtypes.float32, (UOp.const(dtypes.float32, 2.0),))
    assert captures(X + -0.0, x + -0.0) is not None
    assert captures(X + -0.0, x + 0.0) is None
    assert captures(X + 0, x + 0.0) is None
    b = R < J
    assert captures(X ^ True, b ^ True) is not None
    assert captures(X ^ 1, b ^ True) is None


def test_vector_literals_with_different_lanes_are_no_literal() -> None:
    vector = UOp.const(dtypes.index.vec(2), (0, 1))
    assert captures(X + K, R.splat(2) + vector) is None
    assert captures(X + K, R.splat(2) + UOp.const(dtypes.index.vec(2), 7)) is not None


def test_orders_leave_out_what_makes_no_difference() -> None:
    assert len(orders(X + X)) == 1
    assert len(orders(X + K)) == 2
    assert len(orders((X * K) + Y)) == 4
    assert len(orders(X // K)) == 1


def test_any_root_matches_every_op() -> None:
    seen: list[Op] = []

    @rule(P(name="n"))
    def look(n: UOp) -> UOp | None:
        seen.append(n.op)
        return None

    rules = RuleSet("look", [look])
    for node in (R, R + J, R < J):
        rules.match(node)
    assert seen == [Ops.RANGE, Ops.ADD, Ops.CMPLT]


def test_rule_that_asks_for_an_unknown_capture_is_refused() -> None:
    with pytest.raises(LawError, match="wrong asks for z, which its pattern does not capture"):

        @rule(X + Y)
        def wrong(x: UOp, z: UOp) -> UOp | None:
            return None


def test_matcher_shares_tests_and_can_be_read() -> None:
    @rule(X + K)
    def first(x: UOp) -> UOp | None:
        return None

    @rule(Y + L)
    def second(y: UOp) -> UOp | None:
        return None

    in_order = RuleSet("in_order", [first, second]).matcher_source(Ops.ADD)
    shared = RuleSet("shared", [first, second], any_order=True).matcher_source(Ops.ADD)
    assert in_order.count("n_1.op is op_const") == 2
    assert shared.count("n_1.op is op_const") == 1
    assert RuleSet("in_order", [first]).matcher_source(Ops.MUL) == ""


def test_patterns_print_as_equations() -> None:
    assert repr((X + K) // L < Y) == "((x + k) // l) < y"
    assert repr(P(Ops.REDUCE, X, ..., name="r")) == "r:REDUCE(x, …)"
