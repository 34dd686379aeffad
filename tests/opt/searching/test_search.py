"""Beam search with a measure that is known: what it finds, what it leaves out, when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind, KernelInfo
from pellucid.ir.interpret import run_kernel
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import _STEPS, apply_action
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.searching.moves import Moves, next_actions
from pellucid.opt.searching.report import SearchReport
from pellucid.opt.searching.retune import Actions, retuned
from pellucid.opt.searching.rounding import adds_floats, allowed_sum, longest_sum
from pellucid.opt.searching.search import Dropped, Limits, Measure, _renumbered, search
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, stages, with_actions
from tests.opt.actions.test_units import product as words

FEW = Limits(seconds=20.0, candidates=24, steps=3, each_step=10)
MANY = Limits(seconds=60.0, candidates=160, steps=6, each_step=40)


def most(sink: UOp, kind: AxisKind) -> int:
    """How many lanes or copies the largest axis of a kind gives."""
    return max((size_of(a) or 1 for a in axes_of(sink) if a.arg.kind is kind), default=1)


def tile_of_five(sink: UOp) -> float:
    """Up to sixteen lanes are good, and five copies are best."""
    return 100 / min(16, most(sink, AxisKind.LANES)) + abs(5 - most(sink, AxisKind.UPCAST))


def recorded(measure: Measure) -> tuple[list[UOp], Measure]:
    """A measure, and the list of all that it is asked about."""
    asked: list[UOp] = []

    def measure_too(sink: UOp) -> float:
        asked.append(sink)
        return measure(sink)

    return asked, measure_too


# ---- what it finds ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3])
def test_the_known_best_is_found(width: int) -> None:
    sink = kernels.matmul(12, 8, 32)
    report = search(sink, TARGET, tile_of_five, width=width, limits=MANY)
    assert report.seconds == 100 / 16
    assert report.heuristic_seconds is not None
    assert report.heuristic_seconds > report.seconds
    assert report.speedup == report.heuristic_seconds / report.seconds
    assert report.steps == sorted(report.steps, reverse=True)
    assert report.ended in ("two steps gained nothing", "enough candidates were measured")
    assert (*report.fastest[0][:1], report.fastest[0][2]) == (report.actions, report.seconds)


def test_the_actions_found_lead_to_the_kernel_that_was_measured() -> None:
    asked, measure = recorded(tile_of_five)
    sink = kernels.matmul(12, 8, 32)
    report = search(sink, TARGET, measure, width=2)
    name, _, after = stages(with_actions(sink, *report.actions), TARGET)[3]
    assert name == "apply_actions"
    found = next(s for s in asked if s.arg.applied == report.actions)
    assert found.replace(arg=KernelInfo()) is after.replace(arg=KernelInfo())


def test_the_heuristic_stays_where_nothing_is_faster() -> None:
    report = search(kernels.matmul(12, 8, 32), TARGET, lambda sink: 1.0, width=2, limits=FEW)
    assert report.actions == tuple(choose(kernels.matmul(12, 8, 32), TARGET).actions)
    assert report.speedup == 1.0


def test_a_lucky_measurement_does_not_win() -> None:
    """A candidate that looked fast once, and is slow when it is measured again."""
    times: Counter[UOp] = Counter()

    def measure(sink: UOp) -> float:
        times[sink] += 1
        is_lucky = most(sink, AxisKind.UPCAST) == 5 and times[sink] == 1
        return 0.5 if is_lucky else 1.0

    sink = kernels.matmul(12, 8, 32)
    report = search(sink, TARGET, measure, width=2, limits=MANY)
    assert min(report.steps) == 0.5
    assert report.actions == tuple(choose(sink, TARGET).actions)


def test_equal_kernels_are_measured_once() -> None:
    asked, measure = recorded(lambda sink: 1.0)
    report = search(kernels.matmul(12, 8, 32), TARGET, measure, width=3)
    distinct = {_renumbered(sink).replace(arg=KernelInfo()).key for sink in asked}
    assert len(asked) == len(distinct) == report.measured


# ---- what it leaves out ----------------------------------------------------------------------


def test_candidates_that_fail_are_dropped_and_reported() -> None:
    def measure(sink: UOp) -> float:
        if most(sink, AxisKind.UPCAST) == 4:
            raise Dropped("hung", "no result after 2.0 s")
        if most(sink, AxisKind.UPCAST) == 2:
            raise Dropped("crashed", "by SIGSEGV")
        return tile_of_five(sink)

    report = search(kernels.matmul(12, 8, 32), TARGET, measure, width=2, limits=MANY)
    assert report.dropped_kinds["hung"] > 0
    assert report.dropped_kinds["crashed"] > 0
    assert "crashed" in report.sentence()
    assert report.seconds == 100 / 16


def test_a_search_needs_the_choice_of_the_heuristic() -> None:
    def measure(sink: UOp) -> float:
        raise Dropped("not compiled", "no compiler")

    with pytest.raises(Dropped, match="not compiled: no compiler"):
        search(kernels.elementwise(64), TARGET, measure, width=1)


def test_refusals_are_counted_by_reason() -> None:
    report = search(kernels.elementwise(48), TARGET, lambda sink: 1.0, width=1, limits=FEW)
    assert report.refused["lanes: 64 lanes are more than the 48 of a vector"] == 0
    assert any(reason.startswith("lanes: ") for reason in report.refused)
    assert all(count > 0 for count in report.refused.values())


def test_an_action_that_breaks_ends_its_candidate_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(sink: UOp, action: Action, target: object) -> UOp:
        if action.kind == "pad":
            raise KeyError(action)
        return apply_action(sink, action, TARGET)

    monkeypatch.setattr("pellucid.opt.searching.search.apply_action", broken)
    report = search(kernels.elementwise(50), TARGET, lambda sink: 1.0, width=1, limits=FEW)
    assert report.refused["pad: it broke with KeyError"] > 0


def test_much_slower_ones_are_not_measured() -> None:
    asked, measure = recorded(lambda sink: 1.0)
    report = search(kernels.matmul(96, 64, 64), TARGET, measure, width=2, limits=FEW)
    assert report.pruned["the cost model calls it much slower than the best"] > 0
    assert all(most(s, AxisKind.LANES) > 1 for s in asked), "nor are plain loops"


def test_plain_loops_are_measured_where_the_heuristic_is_not_much_better() -> None:
    asked, measure = recorded(lambda sink: 1.0)
    search(kernels.old_value(37), TARGET, measure, width=1, limits=FEW)
    assert () in [sink.arg.applied for sink in asked]


def test_what_was_not_measured_in_one_step_waits_for_the_next() -> None:
    limits = Limits(seconds=30.0, candidates=60, steps=2, each_step=8)
    asked, measure = recorded(lambda sink: 1.0)
    report = search(kernels.matmul(12, 8, 32), TARGET, measure, width=1, limits=limits)
    assert report.measured == len(asked) >= 1 + 8 + 8


def test_sums_never_round_more_than_they_may() -> None:
    plain = kernels.reduce_all(4096)
    asked, measure = recorded(lambda sink: 1.0 / len(sink.arg.applied or (0,)))
    report = search(plain, TARGET, measure, width=3, limits=FEW)
    allowed = allowed_sum(plain, longest_sum(choose(plain, TARGET).sink))
    assert allowed < longest_sum(plain)
    assert all(longest_sum(sink) <= allowed for sink in asked if sink.arg.applied)
    assert report.pruned["its sums would round more than they may"] > 0


# ---- when it ends ----------------------------------------------------------------------------


def test_it_ends_when_enough_were_measured() -> None:
    limits = Limits(seconds=60.0, candidates=5, steps=50, each_step=50)
    report = search(kernels.matmul(12, 8, 32), TARGET, tile_of_five, width=4, limits=limits)
    assert report.measured == 5
    assert report.ended == "enough candidates were measured"


def test_it_ends_when_its_time_is_over() -> None:
    limits = Limits(seconds=0.0, candidates=50, steps=50, each_step=50)
    report = search(kernels.matmul(12, 8, 32), TARGET, tile_of_five, width=4, limits=limits)
    assert report.ended == "its time was over"
    assert report.measured == 1  # the heuristic's choice


def test_progress_is_told() -> None:
    seen: list[tuple[int, int, float]] = []
    search(
        kernels.elementwise(64),
        TARGET,
        lambda sink: 1.0,
        width=1,
        limits=FEW,
        progress=lambda *now: seen.append(now),
    )
    assert [done for done, _, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total, _ in seen} == {FEW.candidates}


# ---- its parts -------------------------------------------------------------------------------


def apply(sink: UOp, action: Action) -> UOp:
    return apply_action(sink, action, TARGET)


def moves_after(sink: UOp, *actions: Action, target: Target = TARGET) -> dict[str, list[Actions]]:
    """The lists that are tried after *actions*, by family."""
    found: dict[str, list[Actions]] = {}
    moves = Moves(sink, target, apply, lambda kernel: tuple(choose(kernel, target).actions))
    for family, made in moves.after(actions):
        found.setdefault(family, []).append(made)
    return found


def test_moves_add_and_change_actions() -> None:
    first = Action("lanes", 1, 16)
    tried = moves_after(kernels.two_axes(16, 32), first)
    assert tried["left out"] == [()]
    assert tried["lanes by another amount"] == [(Action("lanes", 1, 8),), (Action("lanes", 1, 32),)]
    assert (first, Action("upcast", 0, 4)) in tried["upcast"]
    assert (Action("pack", 0, 1), first) in tried["pack"]


def test_every_kind_of_action_is_proposed() -> None:
    """What the heuristic may use, the search may too; `each` comes with what makes nests."""
    grid = replace(TARGET, has_groups=True, matrix_units=frozenset({"pmaddwd_256"}))
    sinks = [kernels.matmul(64, 64, 64), kernels.softmax(), kernels.elementwise(1 << 26)]
    narrow = (dtypes.int8, dtypes.int16)
    sinks.extend(words(8, 16, 32, dtype, dtype, dtypes.int32) for dtype in narrow)
    proposed = {a.kind for sink in sinks for a in next_actions(stages(sink)[2][2], grid)}
    staged = apply(stages(kernels.softmax())[2][2], Action("stage", 3))
    proposed |= {action.kind for action in next_actions(staged, grid)}
    assert proposed == set(_STEPS) - {"each"}
    assert any(a.kind == "each" for made in beginnings(kernels.softmax()) for a in made)


def beginnings(sink: UOp) -> list[Actions]:
    """One action, then the heuristic."""
    moves = Moves(
        stages(sink)[2][2], TARGET, apply, lambda kernel: tuple(choose(kernel, TARGET).actions)
    )
    return [made for _, made in moves.beginnings()]


def test_lists_for_nests_are_changed_one_at_a_time() -> None:
    made = next(m for m in beginnings(kernels.softmax()) if "each" in [a.kind for a in m])
    place = next(at for at, action in enumerate(made) if action.kind == "each")
    tried = moves_after(stages(kernels.softmax())[2][2], *made)
    inside = [found for family in tried for found in tried[family] if "nest" in family]
    assert inside
    for found in inside:
        pairs = zip(made[place].extra, found[place].extra, strict=True)
        assert sum(a != b for a, b in pairs) == 1
        check(stages(kernels.softmax())[2][2], found[: place + 1])


# ---- one action changed in the middle ----------------------------------------------------------

ROWS = (Action("split", 1, 32), Action("lanes", 2, 16), Action("upcast", 2), Action("upcast", 0, 4))


@pytest.mark.parametrize(
    ("place", "changed", "expected"),
    [
        # one vector fills the part: there is nothing to copy
        (0, [Action("split", 1, 24)], ["split 1 24", "lanes 2 16", "upcast 0 4"]),
        (0, [Action("split", 1, 16)], ["split 1 16", "lanes 2 16", "upcast 0 4"]),
        (1, [Action("lanes", 2, 8)], ["split 1 32", "lanes 2 8", "upcast 2 0", "upcast 0 4"]),
        (1, [], ["split 1 32", "upcast 2 0", "upcast 0 4"]),
        (2, [], ["split 1 32", "lanes 2 16", "upcast 0 4"]),
        (3, [], ["split 1 32", "lanes 2 16", "upcast 2 0"]),
        (0, [Action("split", 1, 80)], None),  # larger than the axis
    ],
)
def test_actions_follow_the_loops_that_they_meant(
    place: int, changed: list[Action], expected: list[str] | None
) -> None:
    sink = kernels.two_axes(16, 72)
    found = retuned(sink, ROWS, place, changed, apply)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert [f"{a.kind} {a.axis} {a.amount}" for a in found] == expected
    check(sink, found)


def check(sink: UOp, actions: Actions) -> None:
    """The list is legal, and the kernel computes the same."""
    after = sink
    for action in actions:
        after = apply(after, action)
    want, have = kernels.buffers_for(sink), kernels.buffers_for(sink)
    run_kernel(sink, want)
    run_kernel(after, have)
    for right, came in zip(want, have, strict=True):
        np.testing.assert_allclose(came, right, rtol=1e-5, atol=1e-5)


def test_an_action_put_in_before_others_moves_their_axes() -> None:
    sink = kernels.matmul(16, 8, 32)
    actions = (Action("lanes", 1, 16), Action("cascade", 3, 4), Action("unroll", 4))
    found = retuned(sink, actions, 0, [Action("pack", 0, 2)], apply, replaced=0)
    assert found is not None
    assert found[0] == Action("pack", 0, 2)
    assert [action.kind for action in found[1:]] == ["lanes", "cascade", "unroll"]
    check(sink, found)


def test_sums_are_counted_as_they_round() -> None:
    assert longest_sum(kernels.reduce_all(1000)) == 999
    nested = apply_action(kernels.reduce_all(1000), Action("cascade", 0, 10), TARGET)
    assert longest_sum(nested) == 9 + 99
    lanes = apply_action(kernels.reduce_all(1024), Action("lanes", 0, 16), TARGET)
    assert longest_sum(lanes) == 63 + 4
    hoisted = apply_action(kernels.matmul(4, 8, 16), Action("hoist", 2, 1), TARGET)
    assert longest_sum(hoisted) == 8
    assert adds_floats(kernels.reduce_all(10))
    assert not adds_floats(kernels.reduce_columns())  # a maximum


def test_a_report_is_written_and_read() -> None:
    report = search(kernels.matmul(12, 8, 32), TARGET, tile_of_five, width=1, limits=FEW)
    report.dropped.append(((Action("lanes", 0, 8),), "hung", "after 2 s"))
    again = SearchReport.from_json(report.to_json())
    assert again is not None
    assert again.is_remembered
    again.is_remembered = False
    assert again == report


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"actions": ["1"], "dropped": []}', "\x00"])
def test_a_damaged_report_is_no_report(text: str) -> None:
    assert SearchReport.from_json(text) is None


# ---- every candidate means the same ------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(kernels.KERNELS))
def test_every_candidate_computes_what_plain_loops_compute(name: str) -> None:
    make: Callable[[], UOp] = kernels.KERNELS[name]
    plain = stages(make())[2][2]
    if plain.arg.ordered:
        pytest.skip("its iterations run in order: there is nothing to search")
    given: list[Any] = list(kernels.buffers_for(make()))
    expected = [buffer.copy() for buffer in given]
    run_kernel(plain, expected)

    def measure(sink: UOp) -> float:
        got = [buffer.copy() for buffer in given]
        run_kernel(sink, got)
        for left, right in zip(expected, got, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
        return 1.0 / (1 + len(sink.arg.applied))

    limits = Limits(seconds=1.0, candidates=12, steps=3, each_step=4)
    try:
        search(plain, TARGET, measure, width=2, limits=limits)
    except ActionError as problem:
        pytest.fail(str(problem))
