"""Rows of local memory that are made many at a time, in blocks; dead blocks are left out."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.codegen.simplify_ranges import simplify_ranges
from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.actions.values import row_values
from pellucid.opt.axes import axes_of, end_of, size_of
from pellucid.opt.plans.passes import even_part
from tests.codegen.kernels import buffers_for, elementwise, old_value
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions
from tests.schedule.graphs import check, keep, kernels, reduce, tensor
from tests.schedule.test_inside import attention, product, softmax, turned

BLOCK = Action("block", 1, 8)


def places(rows: int, keys: int) -> tuple[UOp, UOp]:
    """Number of the row and of the key of each score, as int64."""
    row = UOp(Ops.IOTA, dtypes.int64, (), rows).reshape((1, rows, 1)).expand((2, rows, keys))
    key = UOp(Ops.IOTA, dtypes.int64, (), keys).reshape((1, 1, keys)).expand((2, rows, keys))
    return row, key


def masked_kernel(kept: str, rows: int = 16, keys: int = 32) -> UOp:
    """An attention of which a comparison of places keeps some scores."""
    q, k, v = (tensor((2, n, 8)) for n in (rows, keys, keys))
    row, key = places(rows, keys)
    keep = {
        "causal": key <= row + 3,
        "strictly": key < row + 3,
        "later": key >= row + 9,
        "data": tensor((2, rows, keys)) < 1.0,
        "both": (key <= row + 3) & (tensor((2, rows, keys)) < 1.0),
    }[kept]
    scores = keep.where(product(q, turned(k)), -float("inf"))
    (kernel,) = kernels(check([product(softmax(scores), v)]))
    return simplify_ranges(kernel, TARGET)


def plain_kernel(rows: int, keys: int) -> UOp:
    q, k, v = (tensor((2, n, 8)) for n in (rows, keys, keys))
    (kernel,) = kernels(check([attention(q, k, v)]))
    return simplify_ranges(kernel, TARGET)


def assert_same(kernel: UOp, changed: UOp, finite: bool = True) -> None:
    """Both kernels compute the same of the same buffers."""
    buffers = buffers_for(kernel)
    if not finite:
        buffers[-1][[3, 100, 200]] = np.inf, np.nan, -np.inf
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(kernel, wanted)
    run_kernel(changed, got)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-4, atol=1e-5)


def short_loops(kernel: UOp) -> list[UOp]:
    """Loops whose size is not a number: those over live blocks, and over dead ones."""
    return [n for n in kernel.toposort() if n.op is Ops.RANGE and size_of(n) is None]


def test_rows_are_made_together_block_by_block() -> None:
    kernel = plain_kernel(16, 32)
    blocked = apply_action(kernel, BLOCK, TARGET)
    assert_same(kernel, blocked)
    sizes = sorted(n.arg.size for n in blocked.toposort() if n.op is Ops.DEFINE)
    # two statistics and weights of a block; sums and queries; scores and exponentials of whole rows
    assert sizes == [16, 16, 8 * 16, 16 * 8, 8 * 16, 32 * 16, 32 * 16]


@pytest.mark.parametrize("keys", [16, 20])
@pytest.mark.parametrize("amount", [6, 8, 16])
@pytest.mark.parametrize("length", [7, 8, 16])
def test_blocks_of_any_size(keys: int, amount: int, length: int) -> None:
    kernel = plain_kernel(16, keys)
    changed = kernel
    if amount < 16:
        changed = apply_action(kernel, Action("split", 1, amount), TARGET)
    axis = 1 if amount == 16 else 2
    assert_same(kernel, apply_action(changed, Action("block", axis, length), TARGET))


@pytest.mark.parametrize("target", [TARGET, SMALL])
@pytest.mark.parametrize("rows", [16, 37])
def test_every_nest_takes_actions_of_its_own(target: Target, rows: int) -> None:
    kernel = plain_kernel(rows, rows)
    native = lowered(kernel, target)
    assert_same(kernel, native)
    assert {"block", "each"} <= {a.kind for a in native.arg.applied}
    asked = with_actions(kernel, *native.arg.applied)
    assert lowered(asked, target).src == native.src


def test_passes_follow_statistics() -> None:
    kernel = plain_kernel(16, 32)
    (end,) = kernel.src
    values = row_values(end.src[0], BLOCK, end.src[-1])
    assert [(v.is_row, v.stage, v.kept) for v in values] == [
        (True, 0, True),  # scores
        (False, 0, False),  # their maximum
        (True, 1, True),  # exponentials
        (False, 1, False),  # their sum
        (True, 2, False),  # weights
        (False, 2, False),  # the sum of values
    ]


@pytest.mark.parametrize(
    ("kept", "is_short"), [("causal", 1), ("strictly", 1), ("later", 1), ("both", 1)]
)
@pytest.mark.parametrize("finite", [True, False])
def test_dead_blocks_are_left_out(kept: str, is_short: int, finite: bool) -> None:
    """Also where a key that is masked has a value that is no number: 0 * NaN is NaN."""
    kernel = masked_kernel(kept)
    split = apply_action(kernel, Action("split", 1, 8), TARGET)
    blocked = apply_action(split, Action("block", 2, 8), TARGET)
    assert bool(short_loops(blocked)) == bool(is_short)
    assert_same(kernel, blocked, finite)


def gradient_kernel(causal: bool, rows: int = 16) -> UOp:
    """An attention with the gradient of its queries: a sum over a row of the result between."""
    q, k, v, grad = (tensor((1, rows, 2)) for _ in range(4))
    row, key = (place.shrink(((0, 1), (0, rows), (0, rows))) for place in places(rows, rows))
    scores = product(q, turned(k))
    weights = softmax((key <= row).where(scores, -float("inf")) if causal else scores)
    result = product(weights, v)
    along = keep(reduce(grad * result, 2), 2, rows)
    away = weights * (product(grad, turned(v)) - along)
    by_scores = (key <= row).where(away, 0.0) if causal else away
    (kernel,) = kernels(check([result, product(by_scores, k)]))
    return simplify_ranges(kernel, TARGET)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("amount", [16, 8])
def test_a_total_of_a_sum_stands_between_passes(causal: bool, amount: int) -> None:
    kernel = gradient_kernel(causal)
    (end,) = kernel.src
    values = row_values(end.src[0], BLOCK, end.src[-1])
    assert [v.stage for v in values if v.is_total] == [3]
    assert [len(v.uses) for v in values if v.inner] == [2, 1]
    split = apply_action(kernel, Action("split", 0, amount), TARGET) if amount < 16 else kernel
    blocked = apply_action(split, Action("block", 1 if amount < 16 else 0, 4), TARGET)
    assert bool(short_loops(blocked)) == (causal and amount < 16)
    buffers = buffers_for(kernel)
    for number, buffer in enumerate(buffers):
        buffer[:] = np.random.default_rng(number).standard_normal(buffer.size)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(kernel, wanted)
    run_kernel(blocked, got)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_blocks_of_nothing_but_masked_scores_are_made_in_each_turn() -> None:
    """They depend on no loop, but share their memory with blocks that do."""
    kernel = masked_kernel("later", 16, 24)
    split = apply_action(kernel, Action("split", 1, 12), TARGET)
    (axis,) = [n for n, r in enumerate(axes_of(split)) if size_of(r) == 4 and end_of(split, r)]
    assert_same(kernel, apply_action(split, Action("block", axis, 16), TARGET))


def test_a_mask_of_data_leaves_nothing_out() -> None:
    blocked = apply_action(masked_kernel("data"), BLOCK, TARGET)
    assert short_loops(blocked) == []


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Action("block", 1, 0), "a block of 0 is not a part of 32"),
        (Action("block", 1, 33), "a block of 33 is not a part of 32"),
        (Action("block", 0, 8), "it is not the innermost of its loops"),
    ],
)
def test_refusals(action: Action, message: str) -> None:
    with pytest.raises(ActionError, match=message):
        apply_action(plain_kernel(16, 32), action, TARGET)


def test_a_kernel_without_rows_has_no_blocks() -> None:
    (kernel,) = kernels(check([tensor((4, 4)) + 1.0]))
    with pytest.raises(ActionError, match="no row is filled in its turns"):
        apply_action(simplify_ranges(kernel, TARGET), Action("block", 0, 4), TARGET)


def test_a_copied_row_that_an_output_reads_has_no_blocks() -> None:
    """Found by random lists: the row of `pack` was filled in two places."""
    packed = apply_action(elementwise(32), Action("split", 0, 8), TARGET)
    packed = apply_action(packed, Action("pack", 0, 1), TARGET)
    with pytest.raises(ActionError, match="a row is read by an output, and not by a reduction"):
        apply_action(packed, Action("block", 1, 8), TARGET)


def test_a_nest_that_reads_what_it_stores_has_no_blocks() -> None:
    """Found by random lists: all of one output was stored before the other read what it was."""
    packed = apply_action(old_value(32), Action("split", 0, 8), TARGET)
    packed = apply_action(packed, Action("pack", 0, 2), TARGET)
    with pytest.raises(ActionError, match="the nest reads what it stores"):
        apply_action(packed, Action("block", 1, 8), TARGET)


def test_parts_divide_where_they_can() -> None:
    assert [even_part(n, 32) for n in (8, 32, 48, 64, 67, 100)] == [8, 32, 24, 32, 32, 25]
