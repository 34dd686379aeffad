"""Copies of what inner loops read, sums outside of output loops, and axes that are filled up."""

from __future__ import annotations

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError
from pellucid.ir.arg import Action, AddrSpace
from pellucid.ir.form import LOOP
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, size_of, stride_of
from pellucid.opt.plans.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions
from tests.opt.products import ONE_CORE, SMALL_AVX2, batched, check_value, halves


def act(sink: UOp, *actions: Action) -> UOp:
    """The kernel after some actions, each checked for its form."""
    for action in actions:
        sink = apply_action(sink, action, TARGET)
        verify(sink, LOOP)
    return sink


def test_pack_copies_what_inner_loops_read() -> None:
    after = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("split", 0, 16))
    after = act(after, Action("pack", 0, 2))
    (buffer,) = [n for n in after.toposort() if n.op is Ops.DEFINE]
    assert (buffer.arg.space, buffer.arg.size) == (AddrSpace.LOCAL, 5 * 16)
    (use,) = [n for n in after.toposort() if n.op is Ops.AFTER]
    assert use.ranges == (axes_of(after)[0],)
    check_value(kernels.matmul(6, 5, 32), after)


def test_a_copy_floats_outside_of_loops_it_does_not_need() -> None:
    after = act(kernels.matmul(6, 5, 32), Action("pack", 0, 2))
    (use,) = [n for n in after.toposort() if n.op is Ops.AFTER]
    assert use.ranges == ()


def test_what_is_packed_is_converted_once() -> None:
    sink = halves(20, 5, 32)
    packed = act(sink, Action("pack", 0, 2))
    (buffer,) = [n for n in packed.toposort() if n.op is Ops.DEFINE]
    assert buffer.dtype is dtypes.float32
    check_value(sink, packed)
    kinds = [a.kind for a in choose(halves(64, 64, 64), ONE_CORE).actions]
    assert "pack" in kinds


def test_a_rest_fills_a_buffer_of_its_own() -> None:
    packed = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("pack", 0, 2))
    after = act(packed, Action("split", 0, 12))
    assert sum(n.op is Ops.DEFINE for n in after.toposort()) == 2
    check_value(kernels.matmul(6, 5, 32), lowered(with_actions(after)))


def test_rows_that_share_a_panel_share_the_copy() -> None:
    packed = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("split", 0, 16))
    packed = act(packed, Action("swap", 1, 2), Action("pack", 0, 2), Action("split", 1, 4))
    assert sum(n.op is Ops.DEFINE for n in packed.toposort()) == 1
    check_value(kernels.matmul(6, 5, 32), lowered(with_actions(packed)))


def test_panels_that_are_packed_together_follow_each_other() -> None:
    split = act(kernels.matmul(6, 5, 32), Action("split", 1, 8))
    after = act(split, Action("pack", 0, 2))
    (fill,) = [n.src[1] for n in after.toposort() if n.op is Ops.AFTER]
    assert [size_of(r) for r in fill.src[1:]] == [4, 5, 8]
    place = fill.src[0].src[0].src[1]
    assert [stride_of(place, r) for r in fill.src[1:]] == [40, 8, 1]
    check_value(kernels.matmul(6, 5, 32), after)


def test_columns_of_less_than_a_panel_are_packed_too() -> None:
    sink = kernels.matmul(20, 160, 8)
    actions = choose(sink, SMALL_AVX2).actions
    assert "pack" in [action.kind for action in actions]
    check_value(sink, act(sink, *actions))


def test_hoist_takes_a_sum_outside_of_output_loops() -> None:
    after = act(kernels.matmul(6, 8, 16), Action("split", 2, 4), Action("hoist", 2, 0))
    assert [(a.arg.kind.value, size_of(a)) for a in axes_of(after)] == [
        ("loop", 6),
        ("loop", 16),
        ("loop", 6),
        ("loop", 16),
        ("reduce", 4),
        ("loop", 2),
        ("loop", 6),
        ("loop", 16),
    ]
    check_value(kernels.matmul(6, 8, 16), after)
    check_value(kernels.matmul(6, 8, 16), lowered(with_actions(after)))


def test_hoisted_sums_start_again_in_each_outer_turn() -> None:
    sink = batched(2, 3, 4, 4)
    after = act(sink, Action("split", 3, 2), Action("hoist", 3, 1))
    check_value(sink, after)
    check_value(sink, lowered(with_actions(after)))


def test_hoist_of_a_maximum_starts_from_its_identity() -> None:
    after = act(kernels.reduce_columns(9, 35), Action("hoist", 1, 0))
    check_value(kernels.reduce_columns(9, 35), after)


def test_pad_masks_what_is_too_much() -> None:
    after = act(kernels.elementwise(10), Action("pad", 0, 4))
    assert size_of(axes_of(after)[0]) == 12
    check_value(kernels.elementwise(10), after)


def test_no_mask_is_left_where_bounds_prove() -> None:
    padded = with_actions(kernels.elementwise(100), Action("pad", 0, 16), Action("lanes", 0, 16))
    loads = [n for n in lowered(padded).toposort() if n.op is Ops.LOAD]
    assert all(len(n.src) == 3 for n in loads)
    exact = with_actions(kernels.elementwise(100), Action("pad", 0, 16), Action("split", 0, 96))
    loads = [n for n in lowered(exact).toposort() if n.op is Ops.LOAD]
    assert sorted(len(n.src) for n in loads) == [1, 1, 3, 3]


def quotients() -> UOp:
    """y[i] = x[i] // z[i]"""
    i = kernels.loop(10, 0)
    x, z, y = (kernels.param(slot, 10, dtypes.int32).index(i) for slot in (1, 2, 0))
    return kernels.kernel(y.store(x // z).end(i))


def last_of_all() -> UOp:
    """y[0] = the last of x"""
    i = kernels.loop(10, 0)
    value = kernels.param(1, 10).index(i)
    return kernels.kernel(kernels.param(0, 1).index(kernels.const(0)).store(value).end(i))


PACKED = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("split", 0, 16))
PACKED = act(PACKED, Action("pack", 0, 2))
UPCAST = act(kernels.matmul(6, 5, 32), Action("upcast", 0, 2))


@pytest.mark.parametrize(
    ("sink", "action", "message"),
    [
        (kernels.matmul(), Action("pack", 2, 2), "it is reduced; hoist it first"),
        (kernels.matmul(), Action("pack", 0, 5), "parameter 5 is not read inside of it"),
        (kernels.matmul(), Action("pack", 0, 0), "parameter 0 is written by the kernel"),
        (
            kernels.elementwise(),
            Action("pack", 0, 1),
            "no loop inside of it moves along parameter 1",
        ),
        (
            UPCAST,
            Action("pack", 1, 2),
            "the buffer would be filled inside of an axis that is upcast",
        ),
        (
            kernels.matmul(2, 4096, 4096),
            Action("pack", 0, 2),
            "a buffer of 67108864 bytes is larger than 16777216",
        ),
        (PACKED, Action("upcast", 0), "a buffer is filled in each of its turns"),
        (PACKED, Action("lanes", 0), "a buffer is filled in each of its turns"),
        (
            kernels.scatter(),
            Action("pack", 0, 1),
            "the iterations of this kernel must run in order",
        ),
        (
            kernels.matmul(),
            Action("pack", 0, 2, (0,)),
            "none of what is read moves along a loop 0",
        ),
        (
            kernels.matmul(),
            Action("pack", 0, 2, (9,)),
            "none of what is read moves along a loop 9",
        ),
        (kernels.matmul(), Action("hoist", 0, 0), "it is an output axis"),
        (
            kernels.matmul(),
            Action("hoist", 2, 2),
            "2 loops cannot stay outside of a nest of 2",
        ),
        (
            kernels.reduce_all(),
            Action("hoist", 0, 0),
            "its reduction stands in 0 nests of output loops",
        ),
        (UPCAST, Action("hoist", 3, 0), "it would cross a loop that is upcast"),
        (
            UPCAST,
            Action("hoist", 3, 2),
            "the buffer would be filled inside of an axis that is upcast",
        ),
        (
            kernels.softmax(3, 37),
            Action("hoist", 2, 1),
            "its reduction does not depend on the loops that it would cross",
        ),
        (quotients(), Action("pad", 0, 4), "a division by what is read beyond the edge would fail"),
        (last_of_all(), Action("pad", 0, 4), "an output does not move along it"),
        (
            kernels.reduce_all(),
            Action("pad", 0, 16),
            "it is reduced, and not to a sum of products of what is read along it",
        ),
        (kernels.matmul(), Action("pad", 0, 1), "the amount is less than 2"),
        (kernels.matmul(), Action("pad", 0, 3), "its size 3 is a multiple of 3 already"),
    ],
)
def test_refusals(sink: UOp, action: Action, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, TARGET)
    wanted = f"{action.kind} of axis {action.axis} is refused: {message}"
    assert str(caught.value).splitlines()[0] == wanted
