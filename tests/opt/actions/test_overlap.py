"""Parts of an axis that overlap: where they are legal, where they pay, and the values."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid.codegen.linearize import linearize
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.overlap import overlaps
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, reductions, size_of
from pellucid.opt.plans.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions
from tests.opt.plans.test_windows import convolution
from tests.opt.products import AVX2, ONE_CORE, SMALL_AVX2

BY_FOUR = Action("overlap", 0, 4)


def act(sink: UOp, *actions: Action) -> UOp:
    for action in actions:
        sink = apply_action(sink, action, TARGET)
        verify(sink, LOOP)
    return sink


def check_value(sink: UOp, after: UOp) -> None:
    """Both kernels give the same, and every element is written."""
    want, have = kernels.buffers_for(sink), kernels.buffers_for(sink)
    run_kernel(sink, want)
    run_kernel(after, have)
    for right, came in zip(want, have, strict=True):
        np.testing.assert_array_equal(right, came)


def in_place() -> UOp:
    """x[i] = x[i] + 1"""
    i = kernels.loop(10, 0)
    x = kernels.param(0, 10).index(i)
    return kernels.kernel(x.store(x + 1.0).end(i))


# ---- the action --------------------------------------------------------------------------------


def test_there_is_one_nest_and_no_rest() -> None:
    after = act(kernels.elementwise(10), BY_FOUR)
    assert [size_of(a) for a in axes_of(after)] == [3, 4]
    assert after.src[0].op is Ops.END
    assert [overlaps(after, a) for a in axes_of(after)] == [True, True]
    check_value(kernels.elementwise(10), after)


@pytest.mark.parametrize("target", [TARGET, AVX2], ids=["32 registers", "16 registers"])
@pytest.mark.parametrize(
    ("sink", "actions"),
    [
        (kernels.elementwise(10), [BY_FOUR, Action("upcast", 1)]),
        (kernels.elementwise(10), [BY_FOUR, Action("lanes", 1)]),
        (kernels.elementwise(11), [Action("overlap", 0, 8), Action("lanes", 1)]),
        (kernels.elementwise(10), [BY_FOUR, Action("split", 0, 2), Action("unroll", 1)][:2]),
        (kernels.two_axes(12, 33), [Action("overlap", 1, 16), Action("lanes", 2)]),
        (kernels.two_axes(12, 33), [Action("thread", 0), Action("overlap", 1, 16)]),
        (kernels.matmul(7, 13, 16), [BY_FOUR, Action("upcast", 1), Action("lanes", 2, 8)]),
        (kernels.matmul(7, 13, 16), [BY_FOUR, Action("swap", 1, 2), Action("hoist", 3, 1)]),
        (kernels.matmul(7, 13, 16), [BY_FOUR, Action("pack", 0, 1)]),
    ],
)
def test_values_stay_the_same(sink: UOp, actions: list[Action], target: Target) -> None:
    after = lowered(with_actions(sink, *actions), target)
    verify(after, NATIVE)
    check_value(sink, after)
    check_value(sink, linearize(after))


@pytest.mark.parametrize(
    ("sink", "action", "message"),
    [
        (
            kernels.matmul(7, 13, 16),
            Action("overlap", 2, 4),
            "overlap of axis 2 is refused: it is reduced, and would add some elements twice",
        ),
        (
            kernels.elementwise(10),
            Action("overlap", 0, 5),
            "overlap of axis 0 is refused: its size 10 is a multiple of 5; split it",
        ),
        (
            kernels.elementwise(10),
            Action("overlap", 0, 10),
            "overlap of axis 0 is refused: the amount 10 is not between 1 and its size 10",
        ),
        (
            in_place(),
            BY_FOUR,
            "overlap of axis 0 is refused: the nest reads what it stores",
        ),
        (
            act(kernels.elementwise(10), Action("thread", 0)),
            BY_FOUR,
            "overlap of axis 0 is refused: it is shared out among threads already",
        ),
        (
            act(kernels.elementwise(10), BY_FOUR),
            Action("thread", 0),
            "thread of axis 0 is refused: "
            "parts of it overlap, and two threads would store one element",
        ),
        (
            act(kernels.elementwise(18), BY_FOUR, Action("split", 0, 2)),
            Action("thread", 0),
            "thread of axis 0 is refused: "
            "parts of it overlap, and two threads would store one element",
        ),
    ],
)
def test_refusals(sink: UOp, action: Action, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, TARGET)
    assert str(caught.value).splitlines()[0] == message


def test_threads_share_rows_but_neither_parts_nor_what_is_inside_of_them() -> None:
    """Element 6 of 10 is that of place 2 in one part of 4, and of place 0 in the next."""
    inner = act(kernels.elementwise(10), BY_FOUR, Action("swap", 0, 1))
    with pytest.raises(ActionError, match="two threads would store one element"):
        act(inner, Action("thread", 0))
    rows = act(kernels.two_axes(12, 33), Action("overlap", 1, 16))
    assert [overlaps(rows, a) for a in axes_of(rows)] == [False, True, True]
    columns = act(kernels.two_axes(10, 32), BY_FOUR)
    assert [overlaps(columns, a) for a in axes_of(columns)] == [True, True, False]
    act(columns, Action("swap", 0, 2), Action("thread", 0))


def test_sums_that_wait_in_memory_are_not_added_to_twice() -> None:
    sink = act(kernels.matmul(7, 13, 16), Action("hoist", 2, 0))
    stored, cleared, summed = (p for p, a in enumerate(axes_of(sink)) if size_of(a) == 7)
    for place in (stored, cleared):
        check_value(kernels.matmul(7, 13, 16), act(sink, Action("overlap", place, 4)))
    with pytest.raises(ActionError, match="the nest reads what it stores"):
        act(sink, Action("overlap", summed, 4))


# ---- who chooses it ----------------------------------------------------------------------------


def rows_of(sink: UOp, target: Target) -> list[str]:
    """The actions on rows that are chosen: what overlaps, or else copies of a rest."""
    return [a.kind for a in choose(sink, target).actions if a.kind in ("overlap", "thread")]


def test_tiles_leave_no_rest_of_rows() -> None:
    after = choose(kernels.matmul(64, 32, 64), SMALL_AVX2).sink
    assert len(list(reductions(after))) == 1, "one sum in one run, and no second body"
    assert ("loop", 11) in [(a.arg.kind.value, size_of(a)) for a in axes_of(after)]


def test_windows_leave_no_rest_of_rows() -> None:
    after = choose(convolution(64, 32, 3, 16, 8), AVX2).sink
    assert [size_of(a) for a in axes_of(after)].count(6) == 1
    assert "overlap" in rows_of(convolution(64, 32, 3, 16, 8), AVX2)


def test_a_large_part_is_not_computed_twice() -> None:
    assert rows_of(kernels.matmul(20, 512, 64), AVX2) == []


def test_rows_that_threads_share_do_not_overlap() -> None:
    two = dataclasses.replace(AVX2, cores=2)
    assert rows_of(convolution(256, 512, 9, 16), two) == ["thread"]
    assert rows_of(convolution(256, 512, 9, 16, 8), two) == ["overlap", "thread"]


@pytest.mark.parametrize("target", [ONE_CORE, AVX2, SMALL_AVX2], ids=["32", "16", "small caches"])
@pytest.mark.parametrize(
    "sink",
    [kernels.matmul(32, 20, 32), kernels.matmul(64, 24, 48), convolution(64, 4, 3, 24)],
    ids=["matmul 32", "matmul 64", "convolution"],
)
def test_chosen_plans_keep_the_values(sink: UOp, target: Target) -> None:
    check_value(sink, lowered(sink, target))


def test_the_start_of_a_part_is_computed_once_outside_of_the_sum() -> None:
    lines = linearize(lowered(kernels.matmul(64, 32, 64), SMALL_AVX2)).src
    (start,) = [n for n, line in enumerate(lines) if line.op is Ops.MIN]
    opened = [line for line in lines[:start] if line.op is Ops.RANGE]
    closed = [line.src[-1] for line in lines[:start] if line.op is Ops.END]
    around = [size_of(loop) for loop in opened if loop not in closed]
    assert around == [2, 11], "groups of panels, and tiles of rows; not panels, nor the sum"
