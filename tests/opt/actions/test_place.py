"""Values computed at a chosen level: once each, as before, in loops that take actions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pellucid.core.errors import ActionError
from pellucid.ir.arg import Action
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, size_of
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions

COMPUTE = Action("compute", 0, 0)


def shape(sink: UOp) -> list[tuple[str, int | None]]:
    """Kind and size of every axis."""
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(sink)]


def agrees(sink: UOp, *actions: Action) -> UOp:
    """Lower with actions, and compare with the kernel as it is."""
    after = lowered(with_actions(sink, *actions), TARGET)
    verify(after, NATIVE)
    wanted, got = (kernels.buffers_for(sink) for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(after, got)
    for want, came in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(came, want)
    return after


def test_a_row_of_sums_is_computed_before_it_is_used() -> None:
    sink = kernels.matmul(3, 7, 37)
    after = apply_action(sink, COMPUTE, TARGET)
    verify(after, LOOP)
    (define,) = (n for n in after.toposort() if n.op is Ops.DEFINE)
    assert define.arg.size == 37
    assert shape(after) == [("loop", 3), ("loop", 37), ("reduce", 7), ("loop", 37)]
    agrees(sink, COMPUTE)


def test_with_the_axis_split_a_block_is_computed_at_a_time() -> None:
    sink = kernels.matmul(8, 7, 16)
    after = apply_action(apply_action(sink, Action("split", 0, 4), TARGET), COMPUTE, TARGET)
    (define,) = (n for n in after.toposort() if n.op is Ops.DEFINE)
    assert define.arg.size == 4 * 16


def test_the_loops_of_a_value_and_of_its_use_take_actions_of_their_own() -> None:
    actions = (COMPUTE, Action("lanes", 3, 16), Action("lanes", 1, 8), Action("thread", 0))
    after = agrees(kernels.matmul(3, 7, 32), *actions)
    lanes = {n.src[1].dtype.lanes for n in after.toposort() if n.op is Ops.STORE}
    assert lanes == {16, 8}


@pytest.mark.parametrize(
    "make",
    [
        *(kernels.convolution, kernels.matmul_transposed),
        *(kernels.running_sums, kernels.dear_rows),
    ],
    ids=lambda make: make.__name__,
)
def test_values_stay(make: Callable[[], UOp]) -> None:
    sink = make()
    for axis in range(len(axes_of(sink))):
        try:
            apply_action(sink, Action("compute", axis, 0), TARGET)
        except ActionError:
            continue
        agrees(sink, Action("compute", axis, 0))


@pytest.mark.parametrize(
    ("sink", "action", "message"),
    [
        (kernels.matmul(), Action("compute", 2), "it is reduced"),
        (
            kernels.matmul(),
            Action("compute", 0, 1),
            "1 reductions depend on the loops inside of it",
        ),
        (
            kernels.matmul(),
            Action("compute", 1),
            "0 reductions depend on the loops inside of it",
        ),
        (
            apply_action(kernels.matmul(4, 7, 32), Action("upcast", 0), TARGET),
            Action("compute", 0),
            "it is upcast already",
        ),
        (
            apply_action(kernels.matmul(4, 7, 32), Action("lanes", 1, 16), TARGET),
            Action("compute", 0),
            "a loop inside of it is lanes already",
        ),
    ],
)
def test_refusals(sink: UOp, action: Action, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, TARGET)
    assert message in str(caught.value).splitlines()[0]
