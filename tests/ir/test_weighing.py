"""Gradients of softmaxes and of what they weigh, as a whole and op by op."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.core.observe import observed_by
from pellucid.ir import gradient as rules
from pellucid.ir import weighing
from pellucid.ir.op import Ops
from pellucid.tools.kernels import ScheduleCollector

Function = Callable[[Tensor, Tensor], Tensor]


def random(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape)).float()


def op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the rules for what several nodes make together."""
    for op, rule in ((Ops.FDIV, weighing.softmax), (Ops.REDUCE, weighing.weighed)):
        left = [r for r in rules.WHOLE[op] if r is not rule]
        monkeypatch.setitem(rules.WHOLE, op, left)


FUNCTIONS: dict[str, tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    "attention": (lambda x, v: x.softmax(-1) @ v, (2, 5, 7), (2, 7, 3)),
    "one batch of weights": (lambda x, v: x.softmax(-1) @ v, (5, 7), (3, 7, 2)),
    "one row": (lambda x, v: x.softmax(-1) @ v, (1, 7), (7, 3)),
    "a vector": (lambda x, v: x.softmax(-1) @ v, (5, 7), (7,)),
    "columns": (lambda x, v: x.softmax(-2).mT @ v, (2, 7, 5), (2, 7, 3)),
    "rows that turned": (lambda x, v: v @ x.softmax(-2), (2, 7, 5), (2, 3, 7)),
    "another axis": (lambda x, v: x.softmax(-1).mT @ v, (2, 5, 7), (2, 5, 3)),
    "weighs itself": (lambda x, v: (x.softmax(-1) * x).sum(-1) * v, (5, 7), (5,)),
    "squares": (lambda x, v: (x.softmax(-1) * x.softmax(-1)).sum(-1) * v, (5, 7), (5,)),
    "twice": (lambda x, v: x.softmax(-1) @ v + (x.softmax(-1) @ v).cos(), (5, 7), (7, 3)),
    "both": (lambda x, v: x.softmax(-1) @ v.softmax(0), (5, 7), (7, 3)),
    "weights too": (lambda x, v: (x.softmax(-1) @ v) * x.softmax(-1)[..., :3], (5, 7), (7, 3)),
    "alone": (lambda x, v: x.softmax(-1) * v, (5, 7), (5, 7)),
    "one key": (lambda x, v: x.softmax(-1) @ v, (5, 1), (1, 3)),
    "rounded": (lambda x, v: (x.softmax(-1).half() @ v.half()).float(), (5, 7), (7, 3)),
}


def gradients(name: str) -> list[np.ndarray]:
    function, *shapes = FUNCTIONS[name]
    x, v = (random(*shape, seed=n) for n, shape in enumerate(shapes))
    result = function(x, v)
    loss = (result * random(*result.shape, seed=2)).sum()
    return [g.numpy() for g in loss.gradient(x, v)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_single_ops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gradients(name)
    op_by_op(monkeypatch)
    tolerance = 3e-3 if name == "rounded" else 2e-5
    for got, wanted in zip(whole, gradients(name), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_second_gradients_are_those_of_single_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    def second() -> np.ndarray:
        x, v = random(5, 7), random(7, 3, seed=1)
        (first,) = (x.softmax(-1) @ v).cos().sum().gradient(x)
        (found,) = (first * first).sum().gradient(x)
        return found.numpy()

    whole = second()
    op_by_op(monkeypatch)
    np.testing.assert_allclose(whole, second(), rtol=1e-4, atol=1e-5)


def test_a_total_that_is_detached_is_no_softmax() -> None:
    x = random(5, 7)
    e = x.exp()
    (got,) = ((e / e.sum(-1, keepdim=True).detach()) * random(5, 7, seed=1)).sum().gradient(x)
    wanted = x.softmax(-1) * random(5, 7, seed=1)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_an_attention_and_its_gradients_are_three_kernels(causal: bool) -> None:
    q, k, v, g = (random(1, 2, 48, 8, seed=n).realize() for n in range(4))
    result = q.scaled_dot_product_attention(k, v, is_causal=causal)
    grads = (result * g).sum().gradient(q, k, v)
    listener = ScheduleCollector()
    with observed_by(listener):
        result.realize(*grads)
    assert [len(linear.src) for linear in listener.linears] == [3]  # the first one scales queries
