"""Softmaxes made part by part: what is no number stays none, and errors stay those of sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
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
from pellucid.opt.actions.table import apply_action
from pellucid.opt.plans.heuristic import choose
from tests.codegen.kernels import buffers_for
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions
from tests.opt.actions.test_blocks import short_loops
from tests.schedule.graphs import check, exp, keep, kernels, reduce, tensor
from tests.schedule.test_inside import product, softmax, turned

KEYS, WIDTH = 32, 2
ONLINE = Action("block", 0, 4, (8,))
Buffers = list[np.ndarray]


@functools.cache
def attention(keys: int = KEYS, mask: str = "") -> UOp:
    """An attention of 16 rows; its buffers are the result, q, k, bias and v, in some order."""
    q, k, v = (tensor((1, n, WIDTH)) for n in (16, keys, keys))
    scores = product(q, turned(k)) + tensor((1, 16, keys))
    if mask:
        row = UOp(Ops.IOTA, dtypes.int64, (), 16).reshape((1, 16, 1)).expand((1, 16, keys))
        key = UOp(Ops.IOTA, dtypes.int64, (), keys).reshape((1, 1, keys)).expand((1, 16, keys))
        keep_ = {"causal": key <= row + 3, "later": key >= row + 9}[mask]
        scores = keep_.where(scores, -float("inf"))
    (kernel,) = kernels(check([product(softmax(scores), v)]))
    return simplify_ranges(kernel, TARGET)


def bias_in(buffers: Buffers) -> np.ndarray:
    """The bias, by rows of the result."""
    return max(buffers, key=lambda b: b.size).reshape(16, -1)


def results(kernel: UOp, changed: UOp, edit: Callable[[Buffers], None]) -> Buffers:
    """What a kernel and a changed one compute of the same numbers."""
    buffers = buffers_for(kernel)
    edit(buffers)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    with np.errstate(all="ignore"):
        run_kernel(kernel, wanted)
        run_kernel(changed, got)
    return [wanted[0], got[0]]


def assert_same(kernel: UOp, changed: UOp, edit: Callable[[Buffers], None]) -> np.ndarray:
    """Both compute the same; what that is."""
    wanted, got = results(kernel, changed, edit)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    return got


def nothing(buffers: Buffers) -> None:
    """Leave numbers as they are."""


@pytest.mark.parametrize(
    ("keys", "length", "part"), [(16, 8, 8), (20, 4, 12), (37, 8, 16), (37, 16, 4), (16, 4, 64)]
)
def test_parts_of_any_size(keys: int, length: int, part: int) -> None:
    kernel = attention(keys)
    online = apply_action(kernel, Action("block", 0, length, (part,)), TARGET)
    assert_same(kernel, online, nothing)


def test_what_is_kept_is_as_long_as_a_part() -> None:
    online = apply_action(attention(), ONLINE, TARGET)
    sizes = sorted(n.arg.size for n in online.toposort() if n.op is Ops.DEFINE)
    # four statistics and the one that is read, exponentials of a block, scores of a part, the rest
    assert sizes == [16] * 5 + [16 * WIDTH] * 2 + [4 * 16, 8 * 16]


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("place", [slice(0, 8), slice(24, KEYS), slice(0, KEYS)])
def test_what_is_no_number_stays_none(value: float, place: slice) -> None:
    """First parts that are hidden, later ones, and whole rows."""

    def edit(buffers: Buffers) -> None:
        bias_in(buffers)[3, place] = value
        bias_in(buffers)[7, place.start] = value

    kernel = attention()
    got = assert_same(kernel, apply_action(kernel, ONLINE, TARGET), edit).reshape(16, WIDTH)
    is_hidden = value == -math.inf and place != slice(0, KEYS)
    assert np.isnan(got[3]).all() == (not is_hidden)
    assert np.isnan(got[7]).all() == (value != -math.inf)
    assert np.isfinite(got[:3]).all()


@pytest.mark.parametrize("first", [-1000.0, -80.0, 3e38])
def test_scores_far_from_each_other(first: float) -> None:
    """A first part far below or above all others: sums are scaled by 0, or not at all."""

    def edit(buffers: Buffers) -> None:
        bias_in(buffers)[::2, :8] = first
        bias_in(buffers)[1::2, 8:] = -math.inf

    kernel = attention()
    got = assert_same(kernel, apply_action(kernel, ONLINE, TARGET), edit)
    assert np.isfinite(got).all()


def test_large_values_do_not_overflow() -> None:
    """Sums of 32 equal weights with values near the largest float."""

    def edit(buffers: Buffers) -> None:
        bias_in(buffers)[:] = 0.0
        buffers[-1][:] = 2.5e38

    kernel = attention()
    wanted, got = results(kernel, apply_action(kernel, ONLINE, TARGET), edit)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("mask", ["causal", "later"])
@pytest.mark.parametrize("part", [4, 8])
@pytest.mark.parametrize("finite", [True, False])
def test_dead_blocks_are_left_out_of_parts(mask: str, part: int, finite: bool) -> None:
    def edit(buffers: Buffers) -> None:
        if not finite:
            buffers[-1][[3, 30, 60]] = np.inf, np.nan, -np.inf

    kernel = attention(KEYS, mask)
    split = apply_action(kernel, Action("split", 0, 8), TARGET)
    online = apply_action(split, Action("block", 1, 4, (part,)), TARGET)
    assert short_loops(online)
    assert_same(kernel, online, edit)


@pytest.mark.parametrize("target", [TARGET, SMALL])
@pytest.mark.parametrize("keys", [32, 37])
def test_every_nest_takes_actions_of_its_own(target: Target, keys: int) -> None:
    kernel = attention(keys)
    actions = choose(kernel, replace(target, l2_bytes=4096)).actions
    assert any(a.kind == "block" and a.extra for a in actions)
    assert_same(kernel, lowered(with_actions(kernel, *actions), target), nothing)


def test_rows_that_fit_the_cache_are_kept_whole() -> None:
    blocks = [a for a in choose(attention(), TARGET).actions if a.kind == "block"]
    assert [a.extra for a in blocks] == [()]


@pytest.mark.parametrize("growth", [0.01, 5.0])
def test_errors_are_those_of_a_sum(growth: float) -> None:
    """Where each part has a new maximum, the error is within what a sum may have."""
    keys, numbers = 64, np.random.default_rng(1)
    kernel = attention(keys)
    buffers = buffers_for(kernel)
    bias = np.arange(keys) // 8 * growth + numbers.random((16, keys))
    for one in buffers[1:]:
        one[:] = 0
    bias_in(buffers)[:] = bias
    buffers[-1][:] = values = numbers.random(keys * WIDTH, np.float32)
    scores = bias.astype(np.float32).astype(np.float64)
    weights = np.exp((scores - scores.max(1, keepdims=True)) * 0.125)
    weights /= weights.sum(1, keepdims=True)
    exact = weights @ values.reshape(keys, WIDTH).astype(np.float64)
    run_kernel(apply_action(kernel, Action("block", 0, 4, (8,)), TARGET), buffers)
    allowed = 2 * np.finfo(np.float32).eps * math.log2(keys)
    assert np.max(np.abs(buffers[0].reshape(16, WIDTH) / exact - 1)) <= allowed


def test_sums_that_nothing_divides() -> None:
    """What exponentials weigh, and their sum, which an output divides."""
    q, k, v = (tensor((1, n, WIDTH)) for n in (16, KEYS, KEYS))
    scores = product(q, turned(k))
    e = exp(scores - keep(reduce(scores, 2, op=Ops.MAX), 2, KEYS))
    (kernel,) = kernels(check([product(e, v) / keep(reduce(e, 2), 2, WIDTH)]))
    plain = simplify_ranges(kernel, TARGET)
    assert_same(plain, apply_action(plain, ONLINE, TARGET), nothing)


def test_other_uses_of_a_softmax_are_refused() -> None:
    q, k, v = (tensor((1, n, WIDTH)) for n in (16, KEYS, KEYS))
    scores = product(q, turned(k))
    e = exp(scores - keep(reduce(scores, 2, op=Ops.MAX), 2, KEYS))
    (kernel,) = kernels(check([product(e * e, v) / keep(reduce(e, 2), 2, WIDTH)]))
    with pytest.raises(ActionError, match="its softmax is used before it is complete"):
        apply_action(simplify_ranges(kernel, TARGET), ONLINE, TARGET)


def test_infinities_under_weights_that_vanish_are_no_number_either_way() -> None:
    """Such a weight is 0 in one order and not in the other: what it weighs is NaN, or infinite."""

    def edit(buffers: Buffers) -> None:
        for buffer in buffers[1:]:
            buffer[:] = 0
        bias_in(buffers)[:, 3] = -np.linspace(80, 120, 16) * 8  # weights from 1e-35 on
        bias_in(buffers)[::2, 30] = 16.0  # a later part brings all sums to another maximum
        buffers[-1][3 * WIDTH] = np.inf

    kernel = attention()
    wanted, got = results(kernel, apply_action(kernel, ONLINE, TARGET), edit)
    assert not np.isfinite(wanted.reshape(16, WIDTH)[:, 0]).any()
    assert not np.isfinite(got.reshape(16, WIDTH)[:, 0]).any()
    np.testing.assert_allclose(got.reshape(16, WIDTH)[:, 1], wanted.reshape(16, WIDTH)[:, 1])
    assert np.isposinf(wanted).sum() >= 1
    assert np.isnan(wanted).sum() >= 1
