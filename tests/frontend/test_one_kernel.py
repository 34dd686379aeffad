"""What is reduced and used over the same outer loops is one kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from pellucid import Tensor, nn
from pellucid.core.target import host_target

ROWS, WIDTH, CLASSES = 256, 512, 512
_numbers = np.random.default_rng(0)
X = _numbers.standard_normal((ROWS, WIDTH)).astype(np.float32)
W = _numbers.standard_normal(WIDTH).astype(np.float32)
IMAGES = _numbers.standard_normal((8, 16, 14, 14)).astype(np.float32)
LARGE_IMAGES = _numbers.standard_normal((64, 16, 16, 16)).astype(np.float32)
ROWS_OF_RUNS = _numbers.standard_normal((256, 1024)).astype(np.float32)
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
    "sums over disjoint ranges of unequal length": (
        X,
        lambda x: [x[:, :200].sum(-1), x[:, 200:].sum(-1)],
        lambda x: [x[:, :200].sum(1), x[:, 200:].sum(1)],
    ),
    "different reductions of parts of rows": (
        X,
        lambda x: [x[:, :100].amax(-1), x[:, 100:300].sum(-1), x[:, 300:].amin(-1)],
        lambda x: [x[:, :100].max(1), x[:, 100:300].sum(1), x[:, 300:].min(1)],
    ),
    "sums of halves": (
        X,
        lambda x: [x[:128].sum(), x[128:].sum()],
        lambda x: [x[:128].sum(), x[128:].sum()],
    ),
    "smallest and largest": (
        X,
        lambda x: [x.amin(-1), x.amax(-1)],
        lambda x: [x.min(1), x.max(1)],
    ),
    "mean and deviation": (
        X,
        lambda x: [x.mean(-1), x.std(-1)],
        lambda x: [x.mean(1), x.std(1, ddof=1)],
    ),
    "largest and its place": (
        X,
        lambda x: [x.amax(-1), x.argmax(-1)],
        lambda x: [x.max(1), x.argmax(1)],
    ),
    "logarithm of softmax": (
        X,
        lambda x: [x.softmax(-1).log()],
        lambda x: [_away(x, 1) - np.log(np.exp(_away(x, 1)).sum(1, keepdims=True))],
    ),
    "logsumexp": (
        X,
        lambda x: [x.logsumexp(-1)],
        lambda x: [np.log(np.exp(x).sum(1))],
    ),
    "rows over their length": (
        X,
        lambda x: [x / x.norm(2, -1, keepdim=True)],
        lambda x: [x / np.sqrt((x * x).sum(1, keepdims=True))],
    ),
    "groupnorm": (
        LARGE_IMAGES,
        lambda x: [nn.GroupNorm(4, 16)(x)],
        lambda x: [_normal(x.reshape(64, 4, -1), (2,)).reshape(x.shape)],
    ),
    "running sums": (
        ROWS_OF_RUNS,
        lambda x: [x.cumsum(-1)],
        lambda x: [x.cumsum(1)],
    ),
    "several reductions of rows": (
        X,
        lambda x: [x.sum(-1), x.amax(-1), x.square().sum(-1)],
        lambda x: [x.sum(1), x.max(1), (x * x).sum(1)],
    ),
}


@pytest.fixture(autouse=True)
def a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, with a second cache that is smaller than the tensors here, and two cores."""
    machine = dataclasses.replace(host_target(), l2_bytes=512 << 10, cores=2)
    monkeypatch.setenv("PELLUCID_TARGET", machine.key.partition(";")[0])


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


BLOCKS = _numbers.standard_normal((256, 64, 8, 8)).astype(np.float32)
VECTOR = _numbers.standard_normal(1 << 20).astype(np.float32)
COUNTS: dict[str, tuple[int, Callable[[], list[Tensor]]]] = {
    "extremes of a vector: its parts, and theirs": (
        2,
        lambda: [(v := Tensor(VECTOR)).amin(), v.amax()],
    ),
    "sums of two parts of a vector: parts of both, these, and the rests": (
        3,
        lambda: [(v := Tensor(VECTOR))[:300_000].sum(), v[300_000:].sum()],
    ),
    "softmax over channels": (1, lambda: [Tensor(BLOCKS).softmax(1)]),
    "product and softmax": (2, lambda: [(Tensor(X) @ Tensor(X).T).softmax(-1)]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_more_than_one_kernel_has_a_reason(name: str) -> None:
    count, make = COUNTS[name]
    results = make()
    assert len(results[0].schedule_linear(*results[1:]).src) <= count
