"""Work-groups and their items: every element is computed by one item, whatever the sizes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid.codegen.linearize import linearize
from pellucid.core.errors import ActionError, CompileError
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.form import NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions

GRID = dataclasses.replace(TARGET, has_groups=True, has_threads=False)
GROUP, LOCAL = Action("group", 0), Action("local", 0)


def launch_of(sink: UOp) -> dict[str, int]:
    """The indices that a lowered kernel asks of its launch, with their sizes."""
    specials = (n for n in sink.toposort() if n.op is Ops.SPECIAL)
    return {n.arg.name: n.src[0].arg for n in specials}


def agrees(sink: UOp, *actions: Action) -> UOp:
    """Lower with actions; every order of groups and items gives the kernel's value."""
    after = lowered(with_actions(sink, *actions), GRID)
    verify(after, NATIVE)
    buffers = kernels.buffers_for(sink)
    wanted = [b.copy() for b in buffers]
    run_kernel(sink, wanted)
    for order in ("forward", "reverse", "random"):
        for graph in (after, linearize(after)):
            got = [b.copy() for b in buffers]
            run_kernel(graph, got, order=order)
            for want, came in zip(wanted, got, strict=True):
                np.testing.assert_array_equal(came, want)
    return after


def test_an_axis_becomes_groups_of_items() -> None:
    after = agrees(kernels.elementwise(64), Action("local", 0, 16), GROUP)
    assert launch_of(after) == {"group0": 4, "local0": 16}
    assert not [n for n in after.toposort() if n.op is Ops.RANGE]


def test_the_rest_is_done_by_the_first_group() -> None:
    """100 = 6 groups of 16, and 4 items of one group."""
    after = agrees(kernels.elementwise(100), Action("local", 0, 16), GROUP, Action("local", 2))
    assert launch_of(after) == {"group0": 6, "local0": 16}


def test_two_dimensions() -> None:
    actions = (GROUP, Action("group", 1))
    assert launch_of(agrees(kernels.two_axes(3, 33), *actions)) == {"group0": 3, "group1": 33}
    tile = (Action("local", 1, 8), Action("local", 0), Action("group", 1))
    assert launch_of(agrees(kernels.matmul(4, 5, 16), *tile)) == {
        "group0": 2,
        "local0": 4,
        "local1": 8,
    }


@pytest.mark.parametrize("name", ["reduce_rows", "softmax", "transpose", "gather", "in_place"])
def test_each_group_does_its_rows(name: str) -> None:
    agrees(kernels.KERNELS[name](), GROUP)


def test_groups_have_buffers_of_their_own() -> None:
    agrees(kernels.matmul(4, 6, 16), Action("pack", 0, 2), GROUP)


@pytest.mark.parametrize(
    ("sink", "action", "target", "message"),
    [
        (
            kernels.elementwise(),
            GROUP,
            TARGET,
            "group of axis 0 is refused: the target has no work-groups",
        ),
        (
            kernels.elementwise(),
            LOCAL,
            TARGET,
            "local of axis 0 is refused: the target has no work-groups",
        ),
        (
            kernels.elementwise(300),
            LOCAL,
            GRID,
            "local of axis 0 is refused: 300 items of a group are more than 256",
        ),
        (kernels.reduce_all(), GROUP, GRID, "group of axis 0 is refused: it is reduced"),
        (
            apply_action(kernels.elementwise(), GROUP, GRID),
            LOCAL,
            GRID,
            "local of axis 0 is refused: it is a launch dimension already",
        ),
        (
            apply_action(kernels.matmul(4, 6, 16), Action("pack", 0, 2), GRID),
            LOCAL,
            GRID,
            "local of axis 0 is refused: "
            "the items of a group would share a buffer that each of them fills",
        ),
        (
            apply_action(kernels.two_axes(), Action("thread", 0), TARGET),
            Action("group", 1),
            GRID,
            "group of axis 1 is refused: another axis is shared out among threads",
        ),
    ],
)
def test_refusals(sink: UOp, action: Action, target: Target, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, target)
    assert str(caught.value).splitlines()[0] == message


def test_no_more_dimensions_than_a_grid_has() -> None:
    sink = kernels.elementwise(16)
    for _ in range(3):
        sink = apply_action(sink, Action("split", 0, 2), GRID)
    for axis in range(3):
        sink = apply_action(sink, Action("group", axis), GRID)
    with pytest.raises(ActionError, match="3 axes of its nest are global already"):
        apply_action(sink, Action("group", 3), GRID)


def test_renderers_for_processors_say_that_they_cannot() -> None:
    from pellucid.render import LLVMRenderer
    from tests.render.conftest import Kernel

    linear = linearize(lowered(with_actions(kernels.elementwise(64), GROUP), GRID))
    with pytest.raises(CompileError, match="no emitter for this op"):
        LLVMRenderer(TARGET).render(linear, Kernel().info(linear))
