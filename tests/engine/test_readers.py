"""Lazy values that read what a write is about to change: computed along with it, or kept apart."""

from __future__ import annotations

import numpy as np

from pellucid import Tensor
from pellucid.engine.readers import computed_before
from pellucid.engine.realize import written_buffers
from pellucid.nn.optim import SGD


def batch() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)


def step(x: Tensor, w: Tensor) -> Tensor:
    """Take a step of gradient descent; give the loss, which nobody has asked for yet."""
    optimizer = SGD([w], lr=0.5)
    loss = ((x @ w).relu() ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


def test_a_loss_is_computed_by_the_step_that_overwrites_its_weights() -> None:
    x, start = batch(), batch()[:32] / 8
    w = Tensor(start.copy()).requires_grad_()
    loss = step(Tensor(x), w)
    assert loss.is_realized
    product = np.maximum(x @ start, 0)
    np.testing.assert_allclose(loss.numpy(), (product**2).mean(), rtol=1e-5)
    gradient = x.T @ (2 * product / product.size)
    np.testing.assert_allclose(w.numpy(), start - 0.5 * gradient, rtol=1e-4, atol=1e-6)


def test_a_gradient_that_nobody_asked_for_is_not_computed() -> None:
    x, w = Tensor(batch()), Tensor(batch()[:32] / 8).requires_grad_()
    before = w.numpy().copy()
    step(x, w)
    assert x.grad is not None
    assert not x.grad.is_realized  # another product, as large as those of the step
    product = np.maximum(x.numpy() @ before, 0)
    expected = (2 * product / product.size) @ before.T
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_a_reader_larger_than_what_it_reads_stays_lazy() -> None:
    w = Tensor(np.float32([1, 2, 3])).realize()
    wide = w.reshape(1, 3).expand(5, 3) * 2
    w.assign(w + 1)
    w.realize()
    assert not wide.is_realized
    assert w.tolist() == [2, 3, 4]
    assert wide.tolist() == [[2, 4, 6]] * 5


def test_who_reads_nothing_that_is_written_is_left_alone() -> None:
    w, other = Tensor(np.float32([1, 2])).realize(), Tensor(np.float32([3, 4])).realize()
    unread = other.sum()
    w.assign(w + 1)
    assert computed_before([w._storage], written_buffers([w.uop])) == []
    assert not unread.is_realized


def test_a_value_with_a_check_of_its_own_fails_where_it_is_read() -> None:
    w = Tensor(np.float32([1, 2, 3, 4])).realize()
    picked = w[Tensor(np.int32([0, 3]))]
    w.assign(w * 2)
    w.realize()
    assert not picked.is_realized
    assert picked.tolist() == [1, 4]
