"""Actions: what they make of a kernel, and the exact reasons why they refuse."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, describe_axes, size_of
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, stages, with_actions


def sizes(sink: UOp) -> list[tuple[str, int | None]]:
    """Kind and size of every axis."""
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(sink)]


def act(sink: UOp, kind: str, axis: int, amount: int = 0) -> UOp:
    """Apply one action, and check the form that it leaves."""
    after = apply_action(sink, Action(kind, axis, amount), TARGET)
    verify(after, LOOP)
    return after


# ---- what they make ----------------------------------------------------------------------------


def test_axes_are_listed_outputs_first() -> None:
    assert [str(axis) for axis in describe_axes(kernels.matmul(7, 13, 37))] == [
        "axis 0: output, over 7, loop",
        "axis 1: output, over 37, loop",
        "axis 2: reduced, over 13, reduce",
    ]


def test_split_divides() -> None:
    after = act(kernels.elementwise(96), "split", 0, 16)
    assert sizes(after) == [("loop", 6), ("loop", 16)]


def test_split_leaves_a_specialised_rest() -> None:
    after = act(kernels.elementwise(100), "split", 0, 16)
    assert sizes(after) == [("loop", 6), ("loop", 16), ("loop", 4)]
    group = after.src[0]
    assert group.op is Ops.GROUP
    assert [end.op for end in group.src] == [Ops.END, Ops.END]


def test_split_of_an_inner_axis_keeps_the_outer_loop_common() -> None:
    after = act(kernels.two_axes(12, 33), "split", 1, 16)
    end = after.src[0]
    assert end.op is Ops.END
    assert end.src[0].op is Ops.GROUP
    assert sizes(after) == [("loop", 12), ("loop", 2), ("loop", 16)]


def test_split_of_a_reduction_adds_the_rest() -> None:
    after = act(kernels.reduce_rows(5, 37), "split", 1, 16)
    assert sizes(after) == [("loop", 5), ("reduce", 2), ("reduce", 16), ("reduce", 5)]


def test_cascade_nests_a_reduction() -> None:
    after = act(kernels.reduce_all(1000), "cascade", 0, 10)
    reduce = after.src[0].src[1]
    assert reduce.op is Ops.REDUCE
    assert reduce.src[0].op is Ops.REDUCE
    assert (size_of(reduce.src[1]), size_of(reduce.src[0].src[1])) == (100, 10)


def test_swap_changes_the_order_of_loops() -> None:
    assert sizes(act(kernels.two_axes(12, 33), "swap", 0, 1)) == [("loop", 33), ("loop", 12)]


def test_an_amount_means_the_inner_part() -> None:
    assert sizes(act(kernels.elementwise(64), "lanes", 0, 16)) == [("loop", 4), ("lanes", 16)]
    assert sizes(act(kernels.elementwise(64), "upcast", 0, 4)) == [("loop", 16), ("upcast", 4)]
    assert sizes(act(kernels.reduce_all(64), "unroll", 0, 4)) == [("reduce", 16), ("unroll", 4)]


def test_applied_actions_stand_in_the_kernel_and_in_its_name() -> None:
    sink = with_actions(kernels.elementwise(64), Action("lanes", 0, 16), Action("thread", 0))
    after = stages(sink)[3][2]
    assert after.arg.applied == (Action("lanes", 0, 16), Action("thread", 0))
    assert after.arg.name == "e_4_16"


def test_a_reduction_that_does_not_depend_on_a_split_axis_stays_one() -> None:
    after = act(kernels.softmax(3, 37), "split", 1, 16)
    assert sum(node.op is Ops.REDUCE for node in after.toposort()) == 2


# ---- one range, five fates ---------------------------------------------------------------------


def fate(sink: UOp, *actions: Action) -> set[str]:
    """How the axis of an elementwise kernel over 16 ends."""
    nodes = lowered(with_actions(sink, *actions)).toposort()
    found = {n.op.name for n in nodes if n.op in (Ops.RANGE, Ops.SPECIAL)}
    stores = [n for n in nodes if n.op is Ops.STORE]
    if stores[0].src[1].dtype.lanes > 1:
        found.add("lanes")
    if len(stores) > 1:
        found.add(f"{len(stores)} copies")
    return found


def test_one_range_five_fates() -> None:
    sink = kernels.elementwise(16)
    assert fate(sink) == {"RANGE"}
    assert fate(sink, Action("split", 0, 8), Action("thread", 0)) == {"RANGE", "SPECIAL"}
    assert fate(sink, Action("lanes", 0)) == {"lanes"}
    assert fate(sink, Action("upcast", 0)) == {"16 copies"}
    assert fate(kernels.elementwise(1)) == set()


def test_a_thread_index_alone() -> None:
    assert fate(kernels.elementwise(3), Action("thread", 0)) == {"SPECIAL"}


# ---- refusals ----------------------------------------------------------------------------------

NO_LANES = dataclasses.replace(TARGET, has_lanes=False)
NO_THREADS = dataclasses.replace(TARGET, has_threads=False)


def lanes_on(sink: UOp, axis: int, amount: int) -> UOp:
    """A kernel with one axis as lanes already."""
    return apply_action(sink, Action("lanes", axis, amount), TARGET)


def all_of(sink: UOp, *actions: Action) -> UOp:
    """A kernel with several actions already."""
    for action in actions:
        sink = apply_action(sink, action, TARGET)
    return sink


@pytest.mark.parametrize(
    ("sink", "action", "target", "message"),
    [
        (
            kernels.elementwise(),
            Action("tile", 0, 4),
            TARGET,
            "tile of axis 0 is refused: there is no such action; "
            "actions are block, cascade, compute, each, group, hoist, lanes, local, offset, "
            "overlap, pack, pad, prefetch, split, stage, stream, swap, thread, unit, unroll, "
            "upcast",
        ),
        (
            kernels.elementwise(),
            Action("split", 3, 4),
            TARGET,
            "split of axis 3 is refused: the kernel has 1 axes, which count from 0",
        ),
        (
            kernels.elementwise(),
            Action("split", 0, -4),
            TARGET,
            "split of axis 0 is refused: its amount -4 is negative",
        ),
        (
            kernels.elementwise(),
            Action("split", 0, 4, (4,)),
            TARGET,
            "split of axis 0 is refused: it takes an axis and an amount, and no third thing",
        ),
        (
            kernels.elementwise(),
            Action("split", 0, 1),
            TARGET,
            "split of axis 0 is refused: the amount is less than 2",
        ),
        (
            kernels.elementwise(100),
            Action("split", 0, 100),
            TARGET,
            "split of axis 0 is refused: the amount 100 is not below its size 100",
        ),
        (
            kernels.scatter(),
            Action("split", 0, 4),
            TARGET,
            "split of axis 0 is refused: the iterations of this kernel must run in order",
        ),
        (
            kernels.scatter(),
            Action("thread", 0),
            TARGET,
            "thread of axis 0 is refused: the iterations of this kernel must run in order",
        ),
        (
            kernels.elementwise(),
            Action("lanes", 0, 6),
            TARGET,
            "lanes of axis 0 is refused: 6 lanes are not a power of two",
        ),
        (
            kernels.elementwise(1000),
            Action("lanes", 0, 128),
            TARGET,
            "lanes of axis 0 is refused: 128 lanes are more than the 64 of a vector",
        ),
        (
            kernels.elementwise(),
            Action("lanes", 0, 4),
            NO_LANES,
            "lanes of axis 0 is refused: the target has no vectors",
        ),
        (
            lanes_on(kernels.two_axes(16, 32), 1, 16),
            Action("lanes", 0, 4),
            TARGET,
            "lanes of axis 0 is refused: values that depend on it have lanes already",
        ),
        (
            lanes_on(kernels.elementwise(64), 0, 16),
            Action("upcast", 1),
            TARGET,
            "upcast of axis 1 is refused: it is lanes already",
        ),
        (
            kernels.reduce_all(),
            Action("upcast", 0, 4),
            TARGET,
            "upcast of axis 0 is refused: it is reduced; unroll it",
        ),
        (
            kernels.elementwise(),
            Action("unroll", 0, 4),
            TARGET,
            "unroll of axis 0 is refused: it is an output axis; upcast it",
        ),
        (
            kernels.elementwise(100),
            Action("upcast", 0),
            TARGET,
            "upcast of axis 0 is refused: 100 copies are more than 64",
        ),
        (
            kernels.reduce_all(),
            Action("thread", 0),
            TARGET,
            "thread of axis 0 is refused: it is reduced",
        ),
        (
            kernels.elementwise(),
            Action("thread", 0),
            NO_THREADS,
            "thread of axis 0 is refused: the target has no threads",
        ),
        (
            kernels.two_axes(),
            Action("thread", 1),
            TARGET,
            "thread of axis 1 is refused: it is not the outermost of its nest; swap it there",
        ),
        (
            all_of(kernels.two_axes(12, 33), Action("thread", 0), Action("swap", 0, 1)),
            Action("thread", 0),
            TARGET,
            "thread of axis 0 is refused: "
            "another axis of its nest is shared out among threads already",
        ),
        (
            apply_action(kernels.two_axes(12, 33), Action("split", 1, 16), TARGET),
            Action("thread", 1),
            TARGET,
            "thread of axis 1 is refused: it stands inside of another axis",
        ),
        (
            kernels.elementwise(1),
            Action("thread", 0),
            TARGET,
            "thread of axis 0 is refused: its size is 1",
        ),
        (
            kernels.matmul(),
            Action("swap", 0, 2),
            TARGET,
            "swap of axis 0 is refused: axis 2 belongs to another nest",
        ),
        (
            kernels.matmul(),
            Action("swap", 0, 7),
            TARGET,
            "swap of axis 0 is refused: the kernel has no axis 7",
        ),
        (
            kernels.matmul(),
            Action("swap", 0, 0),
            TARGET,
            "swap of axis 0 is refused: it is the other axis too",
        ),
        (
            kernels.elementwise(),
            Action("cascade", 0, 4),
            TARGET,
            "cascade of axis 0 is refused: it is an output axis",
        ),
        (
            kernels.reduce_all(),
            Action("cascade", 0),
            TARGET,
            "cascade of axis 0 is refused: no other loop of the reduction is left inside",
        ),
    ],
)
def test_refusals(sink: UOp, action: Action, target: Target, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, target)
    assert str(caught.value).splitlines()[0] == message


# ---- random lists ------------------------------------------------------------------------------

KINDS = (
    *("split", "lanes", "upcast", "unroll", "thread", "swap", "cascade"),
    *("pad", "pack", "pack", "hoist", "hoist", "compute", "prefetch", "stream"),
)
AMOUNTS = {"pack": (1, 2), "hoist": (0, 1), "compute": (0, 1), "prefetch": (1, 2), "stream": (0,)}


def random_actions(sink: UOp, numbers: random.Random) -> UOp:
    """A kernel with up to six random actions that are legal."""
    chosen: list[Action] = []
    after = sink
    for _ in range(numbers.randint(1, 6)):
        count = len(axes_of(after))
        if count == 0:
            break
        kind = numbers.choice(KINDS)
        amounts = range(count) if kind == "swap" else AMOUNTS.get(kind, (0, 2, 3, 4, 5, 8))
        amount = numbers.choice(amounts)
        action = Action(kind, numbers.randrange(count), amount)
        try:
            after = apply_action(after, action, TARGET)
        except ActionError:
            continue
        chosen.append(action)
    return with_actions(sink, *chosen)


@pytest.mark.parametrize("seed", range(80))
def test_random_actions_keep_the_value(seed: int) -> None:
    numbers = random.Random(seed)
    start = kernels.KERNELS[numbers.choice(list(kernels.KERNELS))]()
    simple = stages(start)[2][2]
    sink = random_actions(simple, numbers)
    buffers = kernels.buffers_for(start)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(start, wanted)
    after = lowered(sink)
    verify(after, NATIVE)
    run_kernel(after, got)
    for want, came in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(came, want, err_msg=f"{sink.arg.actions}")


def test_kinds_are_all_reached() -> None:
    found: set[AxisKind] = set()
    for name, make in kernels.KERNELS.items():
        numbers = random.Random(name)
        for _ in range(4):
            after = stages(random_actions(stages(make())[2][2], numbers))[3][2]
            found |= {axis.arg.kind for axis in axes_of(after)}
    elsewhere = {AxisKind.GLOBAL, AxisKind.LOCAL, AxisKind.ROW, AxisKind.COLUMN, AxisKind.DEPTH}
    assert found >= set(AxisKind) - elsewhere  # test_grid.py, test_units.py
