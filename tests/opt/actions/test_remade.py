"""Passes that make their rows again: the same values, and no memory as long as a row."""

from __future__ import annotations

import functools
from dataclasses import replace

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
from pellucid.opt.actions.online import read_online
from pellucid.opt.actions.remade import made_again, without_links
from pellucid.opt.actions.table import apply_action
from pellucid.opt.actions.values import RowValue, row_values
from pellucid.opt.plans import passes
from pellucid.opt.plans.heuristic import choose
from tests.codegen.kernels import buffers_for
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions
from tests.opt.actions.test_blocks import gradient_kernel, plain_kernel, short_loops
from tests.schedule.graphs import check, exp, keep, kernels, reduce, tensor
from tests.schedule.test_inside import product, softmax, turned

ROWS, KEYS, WIDTH = 16, 32, 2
ONLINE = Action("block", 0, 4, (8,))
AGAIN = Action("block", 0, 4, (0,))
gradients = functools.cache(gradient_kernel)


def kernel_of(*outputs: UOp) -> UOp:
    (kernel,) = kernels(check(list(outputs)))
    return simplify_ranges(kernel, TARGET)


@functools.cache
def inputs(keys: int = KEYS) -> tuple[UOp, UOp, UOp]:
    q, k, v = (tensor((1, n, WIDTH)) for n in (ROWS, keys, keys))
    return q, k, v


def assert_same(kernel: UOp, changed: UOp, spoilt: float | None = None) -> None:
    """Both compute the same; with one element of each input that is *spoilt*, if it is given."""
    buffers = buffers_for(kernel)
    for number, buffer in enumerate(buffers):
        buffer[:] = np.random.default_rng(number).standard_normal(buffer.size)
        if spoilt is not None:
            buffer[5 * number % buffer.size] = spoilt
    wanted, got = [b.copy() for b in buffers], [b.copy() for b in buffers]
    with np.errstate(all="ignore"):
        run_kernel(kernel, wanted)
        run_kernel(changed, got)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def memory_of(kernel: UOp) -> list[int]:
    """Elements of each buffer in local memory."""
    return sorted(n.arg.size for n in kernel.toposort() if n.op is Ops.DEFINE)


def values_of(kernel: UOp) -> list[RowValue]:
    (end,) = kernel.src
    return row_values(end.src[0], AGAIN, end.src[-1])


@pytest.mark.parametrize("action", [ONLINE, AGAIN])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("spoilt", [None, np.inf, np.nan])
def test_gradients_follow_an_online_softmax(
    action: Action, causal: bool, spoilt: float | None
) -> None:
    kernel = gradients(causal)
    assert_same(kernel, apply_action(kernel, action, TARGET), spoilt)


@pytest.mark.parametrize("action", [ONLINE, AGAIN])
def test_memory_does_not_grow_with_the_row(action: Action) -> None:
    short, long = (
        memory_of(apply_action(gradients(False, rows), action, TARGET)) for rows in (16, 32)
    )
    # rows are also those of the loop that makes them together: twice as many there
    assert [2 * size for size in short] == long


@pytest.mark.parametrize("amount", [6, 8])
@pytest.mark.parametrize("action", [ONLINE, AGAIN])
def test_later_passes_leave_dead_blocks_out(action: Action, amount: int) -> None:
    kernel = gradients(True)
    split = apply_action(kernel, Action("split", 0, amount), TARGET)
    changed = apply_action(split, Action("block", 1, 4, action.extra), TARGET)
    assert len(short_loops(changed)) >= 2
    assert_same(kernel, changed)


@pytest.mark.parametrize(("keys", "length"), [(16, 8), (21, 4)])
def test_rows_of_a_softmax_that_is_not_online(keys: int, length: int) -> None:
    kernel = plain_kernel(ROWS, keys)
    changed = apply_action(kernel, Action("block", 1, length, (0,)), TARGET)
    assert_same(kernel, changed)
    assert max(memory_of(changed)) == ROWS * max(8, length)


def test_weights_that_are_rounded_are_made_in_a_pass_of_their_own() -> None:
    """A sum of them is no sum of exponentials, but the total still is."""
    q, k, v = inputs()
    weights = softmax(product(q, turned(k))).cast(dtypes.bfloat16).cast(dtypes.float32)
    kernel = kernel_of(product(weights, v))
    online = apply_action(kernel, ONLINE, TARGET)
    assert_same(kernel, online)
    assert KEYS * ROWS not in memory_of(online)


def test_squares_of_weights_are_no_weights() -> None:
    """They were to be divided by the total once in place of twice."""
    values = values_of(plain_kernel(16, 16))
    (result,) = (v for v in values if v.inner)
    (weights,) = (n for n in result.body.src if n.src[0] is values[-2].node)
    result.body = weights * weights
    assert result not in read_online(values, ONLINE).sums


def test_what_needs_the_total_waits_for_it() -> None:
    """A sum of weights times shares of another row, which depend on the total too."""
    q, k, v = inputs()
    scores = product(q, turned(k))
    e = exp(scores - keep(reduce(scores, 2, op=Ops.MAX), 2, KEYS))
    total = keep(reduce(e, 2), 2, KEYS)
    kernel = kernel_of(product(e / total, v), product(e * (scores / total), v))
    assert_same(kernel, apply_action(kernel, ONLINE, TARGET))


def test_rows_that_depend_on_another_sum_are_refused() -> None:
    """In a part, that sum would not be complete."""
    q, k, v = inputs()
    scores = product(q, turned(k))
    e = exp(scores - keep(reduce(scores, 2, op=Ops.MAX), 2, KEYS))
    total = keep(reduce(e, 2), 2, WIDTH)
    away = scores - keep(reduce(scores, 2), 2, KEYS)
    kernel = kernel_of(product(e, v) / total, product(away, v))
    with pytest.raises(ActionError, match="its rows depend on other statistics"):
        apply_action(kernel, ONLINE, TARGET)


def test_only_rows_that_are_read_are_made_again() -> None:
    values = values_of(gradients(False))
    made = made_again(values, 0)
    assert [(v.is_row, v.stage) for v in values] == [
        *((True, 0), (False, 0)),  # scores, their maximum
        *((True, 1), (False, 1)),  # exponentials, their sum
        *((True, 2), (False, 2), (False, 3)),  # weights, the result, the sum with its gradient
        *((True, 3), (False, 3)),  # gradients by scores and by queries
    ]
    stages = [v.stage for v in made if v.is_row]
    assert sorted(stages) == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert not any(v.kept for v in made)


def test_what_one_row_reads_is_made_in_its_loop() -> None:
    made = without_links(made_again(values_of(gradients(False)), 0))
    # scores and exponentials; scores and weights; scores, and gradients by scores
    assert sorted(v.stage for v in made if v.is_row) == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("causal", [False, True])
def test_long_rows_with_gradients_are_made_part_by_part(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where on depends on the second cache: to make scores twice is not for nothing."""
    monkeypatch.setattr(passes, "LENGTH", 8)
    kernel, row_bytes = gradients(causal), 3 * 16 * 16 * 4
    half = 2 if causal else 1

    def extras(l2_bytes: int) -> list[tuple[int, ...]]:
        actions = choose(kernel, replace(TARGET, l2_bytes=l2_bytes)).actions
        return [a.extra for a in actions if a.kind == "block"]

    assert extras(int(row_bytes / passes.SPILL / half) + 1) == [()]
    assert extras(int(row_bytes / passes.SPILL / half) - 1) == [(8,)]


def test_long_rows_that_are_no_softmax_are_made_again() -> None:
    q, k, v = inputs()
    scores = product(q, turned(k))
    largest = keep(reduce(scores, 2, op=Ops.MAX), 2, KEYS)
    kernel = kernel_of(product(scores / largest, v))
    actions = choose(kernel, replace(TARGET, l2_bytes=1024)).actions
    assert [a.extra for a in actions if a.kind == "block"] == [(0,)]
    assert_same(kernel, lowered(with_actions(kernel, *actions), TARGET))


@pytest.mark.parametrize("target", [TARGET, SMALL])
def test_gradients_part_by_part_in_tiles(target: Target) -> None:
    kernel = gradients(True)
    actions = choose(kernel, replace(target, l2_bytes=512)).actions
    assert any(a.extra for a in actions if a.kind == "block")
    assert_same(kernel, lowered(with_actions(kernel, *actions), target))
