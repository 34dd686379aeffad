"""Layers and optimisers: shapes, formulas in numpy, and training that learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pellucid import Tensor, jit, nn, no_grad
from pellucid.core.errors import GradientError, ShapeError, StateError
from pellucid.nn.optim import SGD, Adam, AdamW, Optimizer

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Reference:
    """The rules of optimisers in numpy, float64."""

    def __init__(self, name: str) -> None:
        self.name, self.m, self.v, self.t = name, 0.0, 0.0, 0

    def step(self, p: Any, g: Any) -> Any:
        self.t += 1
        if self.name == "sgd":
            return p - 0.1 * g
        if self.name == "momentum":
            self.m = 0.9 * self.m + g + 0.01 * p
            return p - 0.1 * self.m
        if self.name == "nesterov":
            self.m = 0.9 * self.m + g
            return p - 0.1 * (g + 0.9 * self.m)
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g * g
        step = self.m / (1 - 0.9**self.t) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)
        return p - 0.1 * (step + (0.01 * p if self.name == "adamw" else 0))


MAKERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: Adam(p, lr=0.1),
    "adamw": lambda p: AdamW(p, lr=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("jitted", [False, True])
def test_optimisers_follow_their_formula(name: str, jitted: bool) -> None:
    start, target = np.array([1.0, -2.0, 3.0]), np.array([0.5, 0.5, 0.5])
    w = Tensor(start.tolist())
    optimizer = MAKERS[name]([w])

    def step(goal: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((w - goal) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if jitted else step
    reference, expected = Reference(name), start
    for i in range(5):
        loss = run(Tensor((target * (i + 1)).tolist()))
        assert loss.item() == pytest.approx(
            float(((expected - target * (i + 1)) ** 2).sum()), rel=1e-4
        )
        expected = reference.step(expected, 2 * (expected - target * (i + 1)))
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_small_network_learns_exclusive_or() -> None:
    Tensor.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = Adam(nn.get_parameters(model), lr=0.1)
    x, y = Tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), Tensor([0, 1, 1, 0])

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(60)]
    assert losses[-1] < 0.05 < losses[0]
    assert model(x).argmax(1).tolist() == [0, 1, 1, 0]


def test_case_34_parameters_realized_late() -> None:
    w, b = Tensor.randn(3, requires_grad=True), Tensor.zeros(3, requires_grad=True)
    Tensor.randn(4).realize()
    w.realize()
    before = w.tolist()
    optimizer = Adam([w, b], lr=0.1)
    (w * 2 + b).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(w.numpy(), np.array(before) - 0.1, rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), [-0.1] * 3, rtol=1e-5)


def test_batchnorm_by_batch_and_by_running_averages() -> None:
    data = np.random.default_rng(0).normal(2, 3, (4, 2, 3, 3)).astype(np.float32)
    layer = nn.BatchNorm2d(2)
    got = layer(Tensor(data)).numpy()
    mean, var = data.mean((0, 2, 3)), data.var((0, 2, 3))
    shape = (1, 2, 1, 1)
    np.testing.assert_allclose(
        got, (data - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5), atol=1e-4
    )
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * mean, rtol=1e-4)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * var * 36 / 35, rtol=1e-4)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    used = layer(Tensor(data)).numpy()
    running = layer.running_mean.numpy().reshape(shape), layer.running_var.numpy().reshape(shape)
    np.testing.assert_allclose(used, (data - running[0]) / np.sqrt(running[1] + 1e-5), atol=1e-4)


def test_layernorm_and_relatives() -> None:
    data = np.random.default_rng(1).normal(1, 2, (3, 8)).astype(np.float32)
    x = Tensor(data)
    expected = (data - data.mean(1, keepdims=True)) / np.sqrt(data.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(nn.LayerNorm(8)(x).numpy(), expected, atol=1e-5)
    rms = data / np.sqrt((data * data).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(nn.RMSNorm(8)(x).numpy(), rms, atol=1e-5)
    groups = data.reshape(3, 2, 4)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(nn.GroupNorm(2, 8)(x).numpy(), normal.reshape(3, 8), atol=1e-5)


def test_state_dict_travels() -> None:
    first, second = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2))
    names = list(first.state_dict())
    assert names == ["0.weight", "0.bias"]
    second.load_state_dict(first.state_dict())
    x = Tensor.rand(4, 3)
    np.testing.assert_array_equal(first(x).numpy(), second(x).numpy())
    with pytest.raises(ShapeError):
        nn.Sequential(nn.Linear(4, 2)).load_state_dict(first.state_dict())
    with pytest.raises(StateError):
        second.load_state_dict({})


def test_embedding_gradients_add_up() -> None:
    layer = nn.Embedding(4, 2)
    layer(Tensor([1, 1, 3])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_dropout_in_training_only() -> None:
    layer = nn.Dropout(0.5)
    x = Tensor.ones(1000)
    share = (layer(x).numpy() == 0).mean()
    assert 0.4 < share < 0.6
    assert set(layer(x).tolist()) == {0.0, 2.0}
    layer.eval()
    assert layer(x).tolist() == [1.0] * 1000


def test_optimiser_without_parameters() -> None:
    with pytest.raises(GradientError, match="needs parameters"):
        SGD([])


def test_eval_and_train_reach_inner_layers() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    model.eval()
    assert not model[1][0].training
    with no_grad():
        assert model(Tensor([1.0])).tolist() == [1.0]


def test_functions_are_layers_with_their_options() -> None:
    x = Tensor([[-1.0, 2.0], [3.0, 0.5]])
    labels = Tensor([1, 0])
    assert nn.Softmax(dim=0)(x).allclose(x.softmax(0))
    assert nn.LogSoftmax(1)(x).allclose(x.log_softmax(1))
    assert nn.LeakyReLU(0.1)(x).allclose(x.leaky_relu(0.1))
    assert nn.ReLU(inplace=True)(x).allclose(x.relu())
    assert nn.GELU(approximate="tanh")(x).allclose(x.gelu("tanh"))
    assert nn.CrossEntropyLoss(label_smoothing=0.1)(x, labels).allclose(
        x.cross_entropy(labels, label_smoothing=0.1)
    )
    assert nn.MSELoss(reduction="sum")(x, x + 1).item() == 4.0
    assert nn.Identity()(x) is x
    assert nn.AvgPool2d(2)(x.reshape(1, 1, 2, 2)).item() == 1.125
    assert repr(nn.Softmax(dim=0)) == "Softmax(dim=0)"
