"""Sums of exponentials of long rows take the maxima of parts on the way: one pass for both."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pellucid import Tensor

COUNT = 1 << 18
DRAWN = (np.random.default_rng(0).standard_normal(COUNT) * 8).astype(np.float32)
PART = COUNT // 64


def with_values(**places: float) -> np.ndarray[Any, Any]:
    """The drawn numbers, but for the first part, one element, or all."""
    x = DRAWN.copy()
    x[: {"part": PART, "one": 1, "all": COUNT}[next(iter(places))]] = next(iter(places.values()))
    return x


ROWS = {
    "drawn": DRAWN,
    "a part is hidden": with_values(part=-math.inf),
    "all is hidden": with_values(all=-math.inf),
    "one is infinite": with_values(one=math.inf),
    "one is no number": with_values(one=math.nan),
    "one is far above": with_values(one=5e4),
    "all are far below": with_values(all=-3e38),
}


def num_kernels(value: Tensor) -> int:
    return len(value.schedule_linear().src)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(COUNT,), (2, COUNT // 2)])
def test_values(name: str, shape: tuple[int, ...]) -> None:
    x = np.stack([ROWS[name], DRAWN]) if len(shape) == 2 else ROWS[name]
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        top = wide.max(-1, keepdims=True)
        safe = np.where(np.isfinite(top), top, 0)
        sums = np.log(np.exp(wide - safe).sum(-1)) + safe[..., 0]
        grown = np.exp(wide - top)
        shares = grown / grown.sum(-1, keepdims=True)
    np.testing.assert_allclose(Tensor(x).logsumexp(-1).numpy(), sums, rtol=1e-6)
    np.testing.assert_allclose(Tensor(x).softmax(-1).numpy(), shares, rtol=1e-5, atol=1e-37)


def test_maximum_and_sum_of_a_part_are_one_pass() -> None:
    """Parts, all of them, and for a softmax the row once more."""
    x = Tensor(DRAWN)
    assert num_kernels(x.logsumexp(0)) == 2
    assert num_kernels(x.softmax(0)) == num_kernels(x.log_softmax(0)) == 3


@pytest.mark.parametrize(
    "shift",
    [
        lambda x: x.amin(),
        lambda x: x.amax() * 2.0,
        lambda x: (x * 1.0 + 1.0).amax(),
        lambda x: x.mean(),
        lambda x: Tensor(3.0),
    ],
)
def test_what_is_taken_away_has_to_be_the_maximum(shift: Callable[[Tensor], Tensor]) -> None:
    x = Tensor(DRAWN / 8)
    away = x - shift(x)
    want = np.exp(away.numpy().astype(np.float64)).sum()
    np.testing.assert_allclose(away.exp().sum().numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("count", [COUNT + 64, COUNT + 7])
def test_rows_of_any_length(count: int) -> None:
    x = np.resize(DRAWN, count)
    want = np.log(np.exp(x.astype(np.float64)).sum())
    np.testing.assert_allclose(Tensor(x).logsumexp().numpy(), want, rtol=1e-6)


def test_gradients_of_long_rows() -> None:
    x = Tensor(DRAWN, requires_grad=True)
    (found,) = x.logsumexp(0).gradient(x)
    np.testing.assert_allclose(found.numpy(), Tensor(DRAWN).softmax(0).numpy(), rtol=1e-5)
