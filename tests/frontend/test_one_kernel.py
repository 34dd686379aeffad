"""What is reduced and used over the same outer loops is one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pellucid import Tensor

ROWS, WIDTH, CLASSES = 256, 512, 512
_numbers = np.random.default_rng(0)
X = _numbers.standard_normal((ROWS, WIDTH)).astype(np.float32)
W = _numbers.standard_normal(WIDTH).astype(np.float32)
IMAGES = _numbers.standard_normal((8, 16, 14, 14)).astype(np.float32)
_CHANNEL = (0, 2, 3)


def _away(x: np.ndarray, axis: int) -> np.ndarray:
    return x - x.max(axis, keepdims=True)


def _normal(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


Case = tuple[np.ndarray, Callable[[Tensor], list[Tensor]], Callable[[np.ndarray], list[np.ndarray]]]
CASES: dict[str, Case] = {
    "softmax": (
        X,
        lambda x: [x.softmax(-1)],
        lambda x: [np.exp(_away(x, 1)) / np.exp(_away(x, 1)).sum(1, keepdims=True)],
    ),
    "softmax of columns": (
        X,
        lambda x: [x.softmax(0)],
        lambda x: [np.exp(_away(x, 0)) / np.exp(_away(x, 0)).sum(0, keepdims=True)],
    ),
    "log_softmax": (
        X,
        lambda x: [x.log_softmax(-1)],
        lambda x: [_away(x, 1) - np.log(np.exp(_away(x, 1)).sum(1, keepdims=True))],
    ),
    "layernorm": (
        X,
        lambda x: [x.layer_norm((WIDTH,), Tensor(W), Tensor(W))],
        lambda x: [_normal(x, (1,)) * W + W],
    ),
    "rmsnorm": (
        X,
        lambda x: [x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * Tensor(W)],
        lambda x: [x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * W],
    ),
    "variance": (X, lambda x: [x.var(-1)], lambda x: [x.var(1, ddof=1)]),
    "batchnorm": (
        IMAGES,
        lambda x: [
            (x - x.mean(_CHANNEL, keepdim=True))
            / (x.var(_CHANNEL, keepdim=True, correction=0) + 1e-5).sqrt()
        ],
        lambda x: [_normal(x, _CHANNEL)],
    ),
    "statistics of channels": (
        IMAGES,
        lambda x: [x.mean(_CHANNEL), x.var(_CHANNEL)],
        lambda x: [x.mean(_CHANNEL), x.var(_CHANNEL, ddof=1)],
    ),
    "sums over disjoint ranges": (
        X,
        lambda x: [x[:, :256].sum(-1), x[:, 256:].sum(-1)],
        lambda x: [x[:, :256].sum(1), x[:, 256:].sum(1)],
    ),
    "sums of halves": (
        X,
        lambda x: [x[:128].sum(), x[128:].sum()],
        lambda x: [x[:128].sum(), x[128:].sum()],
    ),
    "several reductions of rows": (
        X,
        lambda x: [x.sum(-1), x.amax(-1), x.square().sum(-1)],
        lambda x: [x.sum(1), x.max(1), (x * x).sum(1)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_kernel(name: str) -> None:
    data, ours, theirs = CASES[name]
    results = ours(Tensor(data))
    assert len(results[0].schedule_linear(*results[1:]).src) == 1
    for got, want in zip(results, theirs(data.astype(np.float64)), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def test_a_loss_of_rows_is_one_kernel_beside_the_check_of_its_classes() -> None:
    """Its mean joins the check; the rows are shared out among cores."""
    classes = Tensor(_numbers.integers(0, CLASSES, ROWS))
    for reduction in ("none", "mean"):
        loss = Tensor(X).cross_entropy(classes, reduction=reduction)
        assert len(loss.schedule_linear().src) == 2
