"""The action `stage`: a dear value of a row is computed once, and kept in local memory."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AddrSpace
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import describe_axes
from pellucid.opt.plans.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions

STAGE = Action("stage", 2, 0)


def staged(sink: UOp) -> UOp:
    after = apply_action(sink, STAGE, TARGET)
    verify(after, LOOP)
    return after


def count(sink: UOp, op: object) -> int:
    return sum(node.op is op for node in sink.toposort())


def test_all_loops_over_a_row_read_what_one_has_computed() -> None:
    before = kernels.dear_rows(3, 37)
    after = staged(before)
    assert (count(before, Ops.SQRT), count(after, Ops.SQRT)) == (6, 2)
    (row,) = [n for n in after.toposort() if n.op is Ops.DEFINE]
    assert (row.arg.space, row.arg.size) == (AddrSpace.LOCAL, 37)


def test_the_loop_that_fills_a_row_is_an_axis() -> None:
    axes = [str(axis) for axis in describe_axes(staged(kernels.dear_rows(3, 37)))]
    assert len(axes) == 5
    assert sum("output, over 37" in axis for axis in axes) == 2


@pytest.mark.parametrize("columns", [1, 2, 3, 15, 16, 17, 64, 100])
@pytest.mark.parametrize("target", [TARGET, SMALL])
def test_values_are_the_same_in_local_memory(columns: int, target: Target) -> None:
    sink = kernels.dear_rows(5, columns)
    buffers = kernels.buffers_for(sink)
    wanted = [b.copy() for b in buffers]
    run_kernel(sink, wanted)
    kernel = lowered(with_actions(sink, STAGE) if columns == 2 else sink, target)
    verify(kernel, NATIVE)
    run_kernel(kernel, buffers)
    np.testing.assert_array_equal(buffers[0], wanted[0])


@pytest.mark.parametrize("kind", ["split", "thread", "lanes", "upcast"])
def test_other_actions_on_a_staged_kernel_keep_its_values(kind: str) -> None:
    sink = kernels.dear_rows(5, 37)
    buffers = kernels.buffers_for(sink)
    wanted = [b.copy() for b in buffers]
    run_kernel(sink, wanted)
    applied = 0
    for axis in range(5):
        action = Action(kind, axis, 0 if kind == "thread" else 2)
        try:
            apply_action(staged(sink), action, TARGET)
        except ActionError:
            continue
        applied += 1
        got = [b.copy() for b in buffers]
        run_kernel(lowered(with_actions(sink, STAGE, action)), got)
        np.testing.assert_array_equal(got[0], wanted[0], err_msg=str(action))
    assert applied


@pytest.mark.parametrize(
    ("sink", "actions", "message"),
    [
        (
            kernels.dear_rows(3, 37),
            [Action("stage", 1, 0)],
            "stage of axis 1 is refused: it is an output axis; name that of a reduction",
        ),
        (
            kernels.reduce_rows(3, 37),
            [Action("stage", 1, 0)],
            "stage of axis 1 is refused: no other loop over the same row computes what its "
            "reduction does",
        ),
        (
            kernels.dear_rows(3, 37),
            [Action("lanes", 1, 16), Action("stage", 3, 0)],
            "stage of axis 3 is refused: the row would be filled beside an axis that is lanes",
        ),
    ],
)
def test_refusals_say_why(sink: UOp, actions: list[Action], message: str) -> None:
    *before, last = actions
    for action in before:
        sink = apply_action(sink, action, TARGET)
    with pytest.raises(ActionError) as error:
        apply_action(sink, last, TARGET)
    assert message in str(error.value)


def test_only_dear_values_are_kept() -> None:
    kinds = {a.kind for a in choose(kernels.dear_rows(64, 256), TARGET).actions}
    assert {"stage", "lanes"} <= kinds
    assert "stage" not in {a.kind for a in choose(kernels.softmax(64, 256), TARGET).actions}


def test_lanes_run_along_the_rows_and_not_across_them() -> None:
    """The axis that all work depends on is not the best one where it is read with a stride."""
    sink = choose(kernels.softmax(4096, 256), TARGET).sink
    (end,) = sink.src
    assert [r.arg.kind.value for r in end.src[1:]] == ["thread", "loop", "lanes"]


def test_loops_never_move_outside_of_a_reduction_of_rows() -> None:
    """Else what is reduced once for each column would be reduced for each element."""
    rows, columns = 256, 512
    j, i, k = kernels.loop(columns, 0), kernels.loop(rows, 1), kernels.axis(rows, 2)
    x = kernels.param(1, rows * columns)
    total = kernels.reduce(x.index(k * columns + j), k)
    value = x.index(i * columns + j) + total
    place = kernels.param(0, rows * columns).index(i * columns + j)
    plan = choose(kernels.kernel(place.store(value).end(j, i)), TARGET)
    assert not {"hoist", "swap"} & {action.kind for action in plan.actions}
    (end,) = plan.sink.src
    assert end.src[1].arg.id != i.arg.id
