"""The drivers: order, fixpoints, loops, deep and shared graphs, and what observers hear."""

from __future__ import annotations

import pytest

from pellucid.core import observe
from pellucid.core.dtype import dtypes
from pellucid.core.errors import RewriteLoopError
from pellucid.ir import origin
from pellucid.ir.arg import ParamArg
from pellucid.ir.law import RuleSet, Statistics, decline, rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import K, P, X, Y
from pellucid.ir.rewrite import rewrite, rewrite_once, rewrite_top_down
from pellucid.ir.simplify import SIMPLIFY, simplify
from pellucid.ir.uop import UOp
from pellucid.ir.walk import count_users, users
from tests.counting import lines_in

R, J = UOp.range(4, 0), UOp.range(5, 1)
F = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, 8)).index(R)


@rule(X + K)
def halve_literal(x: UOp, k: UOp) -> UOp | None:
    """x + 2k becomes x + k."""
    return x + k.arg // 2 if k.arg > 1 else decline("nothing to halve", k)


HALVE = RuleSet("halve", [halve_literal])


def test_rewrite_goes_on_until_nothing_applies() -> None:
    assert rewrite(R + 40, HALVE) is R + 1


def test_rewrite_once_applies_each_rule_once() -> None:
    assert rewrite_once(R + 40, HALVE) is R + 20
    assert rewrite_once((R + 40) * (J + 8), HALVE) is (R + 20) * (J + 4)


def test_results_inside_of_results_are_rewritten_too() -> None:
    @rule(Ops.SQRT)
    def spell(node: UOp) -> UOp | None:
        return (node.src[0].cast(dtypes.index) + 8).cast(dtypes.float32)

    found = rewrite(F.alu(Ops.SQRT), HALVE + RuleSet("spell", [spell]))
    assert found is (F.cast(dtypes.index) + 1).cast(dtypes.float32)


def test_top_down_sees_a_node_before_its_sources() -> None:
    seen: list[UOp] = []

    @rule(Ops.MUL, Ops.ADD)
    def look(node: UOp, ctx: list[UOp]) -> UOp | None:
        ctx.append(node)
        return node.src[0] if node.op is Ops.MUL else None

    root = (R + 1) * (J + 2)
    assert rewrite_top_down(root, RuleSet("look", [look]), seen) is R + 1
    assert seen == [root, R + 1]
    seen.clear()
    assert rewrite(root, RuleSet("look", [look]), seen) is R + 1
    assert seen == [J + 2, R + 1, root] or seen == [R + 1, J + 2, root]


def test_context_is_handed_to_rules() -> None:
    @rule(P(Ops.RANGE, name="r"))
    def stretch(r: UOp, ctx: dict[UOp, UOp]) -> UOp | None:
        return ctx.get(r)

    assert rewrite(R + J, RuleSet("stretch", [stretch]), {R: J}) is J + J


@rule(X + K)
def add_to_mul(x: UOp, k: UOp) -> UOp | None:
    return x * k


@rule(X * K)
def mul_to_add(x: UOp, k: UOp) -> UOp | None:
    return x + k


@rule(X + K)
def grow(x: UOp, k: UOp) -> UOp | None:
    return x + int(k.arg + 1)


@rule(P(Ops.SQRT, X, name="root"))
def wrap_in_itself(root: UOp, x: UOp) -> UOp | None:
    return root + root


def test_laws_that_undo_each_other_are_named() -> None:
    with pytest.raises(RewriteLoopError) as caught:
        rewrite(R + 3, RuleSet("seesaw", [add_to_mul, mul_to_add]))
    assert set(caught.value.laws) == {"add_to_mul", "mul_to_add"}
    assert caught.value.rule_set == "seesaw"


@pytest.mark.parametrize("driver", [rewrite, rewrite_top_down])
def test_growth_without_end_is_found_out(driver) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RewriteLoopError) as caught:
        driver(R + 3, RuleSet("growing", [grow]))
    assert caught.value.laws == ("grow",)


@pytest.mark.parametrize("driver", [rewrite, rewrite_top_down])
def test_result_that_needs_itself_is_found_out(driver) -> None:  # type: ignore[no-untyped-def]
    root = F.alu(Ops.SQRT)
    with pytest.raises(RewriteLoopError, match="wrap_in_itself"):
        driver(root, RuleSet("nested", [wrap_in_itself]))
    assert rewrite_once(root, RuleSet("nested", [wrap_in_itself])) is root + root


def chain(length: int, first: float = 0.0) -> UOp:
    node = F
    for step in range(length):
        node = node * 1.0 + (first + step)
    return node


@pytest.mark.parametrize("driver", [rewrite, rewrite_once, rewrite_top_down])
def test_deep_chains_cost_linear_time(driver) -> None:  # type: ignore[no-untyped-def]
    rules = RuleSet("fresh", [SIMPLIFY])
    simple = driver(chain(5_000), rules)  # the rules are compiled by now
    assert len(simple.toposort()) < 10_010
    short, long = chain(500, 0.25), chain(1_000, 0.5)
    lines = lines_in(lambda: driver(short, rules))
    assert lines_in(lambda: driver(long, rules)) < 2.2 * lines


def test_long_index_sums_cost_linear_time() -> None:
    rules = RuleSet("fresh", [SIMPLIFY])

    def lines(length: int) -> int:
        node = R + length
        for step in range(length):
            node = node + UOp.range(3, step + 2) * 2
        return lines_in(lambda: rewrite(node, rules))

    lines(10)
    assert lines(600) < 2.2 * lines(300)


def test_shared_diamonds_are_visited_once() -> None:
    node = F
    for _ in range(200):
        node = node * 1.0
        node = node * node
    before = Statistics.tried
    found = rewrite(node, RuleSet("fresh", [SIMPLIFY]))
    assert Statistics.tried - before < 1500
    assert len(found.toposort()) == len(F.toposort()) + 200


def test_normal_forms_are_remembered() -> None:
    simple = simplify(chain(50))
    before = Statistics.tried
    assert simplify(simple) is simple
    assert Statistics.tried == before


def test_matched_nodes_count_as_fired() -> None:
    before = halve_literal.fired
    rewrite(R + 8, HALVE)
    assert halve_literal.fired == before + 3


def test_observer_hears_rewrites_and_declines() -> None:
    with observe.record() as heard:
        rewrite(R + 2, HALVE)
    assert [(e.law, e.before, e.after) for e in heard.rewrites] == [("halve_literal", R + 2, R + 1)]
    assert [(e.law, e.reason) for e in heard.declines] == [("halve_literal", "nothing to halve")]


def test_origins_are_inherited_while_recording() -> None:
    root = R + 8
    with origin.recording_origins():
        origin.record(root, "train.py:3", "train.py:4")
        found = rewrite(root * J, HALVE)
        assert origin.of(found.src[0]) == ("train.py:3", "train.py:4")
        assert origin.of(J) == ()
    assert not origin.recording


def test_origins_pass_through_changed_sources() -> None:
    root = (R + 8) // 7
    with origin.recording_origins():
        origin.record(root, "a.py:1")
        found = rewrite(root, HALVE)
    assert found is not root
    assert origin.of(found) == ("a.py:1",)


def test_users_and_counts() -> None:
    root = (R * R) + J
    assert users(root)[R] == [R * R]
    assert users(root)[root] == []
    assert count_users(root)[R] == 2


def test_rule_sets_add_up_in_order() -> None:
    @rule(X + Y)
    def first(x: UOp, y: UOp) -> UOp | None:
        return x

    both = RuleSet("a", [first]) + HALVE
    assert both.rules == (first, halve_literal)
    assert rewrite(R + 8, both) is R
