"""Gradients of every op against differences in float64; and rules that those cannot see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pellucid import Tensor, dtypes, no_grad, where
from pellucid.core.errors import GradientError
from pellucid.ir.gradient import GRADIENTS, NO_GRADIENT
from pellucid.ir.op import Group, Ops

Function = Callable[..., Tensor]
X, Y = [[0.3, -1.2, 2.1], [0.7, 1.4, -0.4]], [[1.5, 0.6, -0.9], [-2.2, 0.8, 1.1]]
POSITIVE = [[0.3, 1.2, 2.1], [0.7, 1.4, 0.4]]
INDEX = [[0, 2], [1, 1]]

CASES: dict[str, tuple[Function, list[list[list[float]]]]] = {
    "add": (lambda x, y: x + y, [X, Y]),
    "sub": (lambda x, y: x - y, [X, Y]),
    "mul": (lambda x, y: x * y, [X, Y]),
    "div": (lambda x, y: x / y, [X, Y]),
    "max": (lambda x, y: x.maximum(y), [X, Y]),
    "min": (lambda x, y: x.minimum(y), [X, Y]),
    "pow": (lambda x, y: x**y, [POSITIVE, Y]),
    "cube": (lambda x: x**3, [X]),
    "sqrt": (lambda x: x.sqrt(), [POSITIVE]),
    "rsqrt": (lambda x: x.rsqrt(), [POSITIVE]),
    "exp": (lambda x: x.exp(), [X]),
    "exp2": (lambda x: x.exp2(), [X]),
    "log": (lambda x: x.log(), [POSITIVE]),
    "log2": (lambda x: x.log2(), [POSITIVE]),
    "log1p": (lambda x: x.log1p(), [POSITIVE]),
    "expm1": (lambda x: x.expm1(), [X]),
    "sin": (lambda x: x.sin(), [X]),
    "cos": (lambda x: x.cos(), [X]),
    "tan": (lambda x: x.tan(), [X]),
    "tanh": (lambda x: x.tanh(), [X]),
    "erf": (lambda x: x.erf(), [X]),
    "sigmoid": (lambda x: x.sigmoid(), [X]),
    "relu": (lambda x: x.relu(), [X]),
    "gelu": (lambda x: x.gelu(), [X]),
    "silu": (lambda x: x.silu(), [X]),
    "elu": (lambda x: x.elu(), [X]),
    "softplus": (lambda x: x.softplus(), [X]),
    "abs": (lambda x: x.abs(), [X]),
    "where": (lambda x, y: where(x < y, x * 2, y * 3), [X, Y]),
    "clamp": (lambda x: x.clamp(-1, 1), [X]),
    "reshape": (lambda x: x.reshape(3, 2), [X]),
    "permute": (lambda x: x.T, [X]),
    "expand": (lambda x: x.reshape(2, 1, 3).expand(4, 2, 5, 3), [X]),
    "pad": (lambda x: x.pad((1, 2, 0, 1), value=5), [X]),
    "reflect": (lambda x: x.pad((1, 2), mode="reflect"), [X]),
    "shrink": (lambda x: x[:, 1:], [X]),
    "flip": (lambda x: x.flip(1), [X]),
    "cat": (lambda x, y: Tensor.cat([x, y, x], 1), [X, Y]),
    "sum": (lambda x: x.sum(0), [X]),
    "mean": (lambda x: x.mean(1), [X]),
    "var": (lambda x: x.var(1), [X]),
    "prod": (lambda x: x.prod(1), [X]),
    "amax": (lambda x: x.max(1).values, [X]),
    "amin": (lambda x: x.min(0).values, [X]),
    "cumsum": (lambda x: x.cumsum(1), [X]),
    "cumprod": (lambda x: x.cumprod(1), [X]),
    "logsumexp": (lambda x: x.logsumexp(1), [X]),
    "softmax": (lambda x: x.softmax(1), [X]),
    "log_softmax": (lambda x: x.log_softmax(0), [X]),
    "norm": (lambda x: x.norm(), [X]),
    "matmul": (lambda x, y: x @ y.T, [X, Y]),
    "layernorm": (lambda x: x.layernorm(), [X]),
    "rms_norm": (lambda x: x.rms_norm(), [X]),
    "gather": (lambda x: x.gather(1, Tensor(INDEX)), [X]),
    "index": (lambda x: x[Tensor([1, 0, 1])], [X]),
    "index_inner": (lambda x: x[:, Tensor([2, 0, 2])], [X]),
    "scatter": (lambda x, y: x.scatter(1, Tensor(INDEX), y), [X, Y]),
    "scatter_add": (lambda x, y: x.scatter_add(1, Tensor(INDEX), y), [X, Y]),
    "scatter_max": (lambda x, y: x.scatter_reduce(1, Tensor(INDEX), y, "amax"), [X, Y]),
    "scatter_prod": (lambda x, y: x.scatter_reduce(1, Tensor(INDEX), y, "prod"), [X, Y]),
    "contiguous": (lambda x: x.contiguous() * 2, [X]),
    "cross_entropy": (lambda x: x.cross_entropy(Tensor([2, 0])), [X]),
    "conv": (lambda x, y: x.reshape(1, 1, 2, 3).conv2d(y.reshape(1, 1, 2, 3), padding=1), [X, Y]),
    "pool": (lambda x: x.reshape(1, 1, 2, 3).max_pool2d(2, 1), [X]),
    "average": (lambda x: x.reshape(1, 1, 2, 3).avg_pool2d(2, 1, 1), [X]),
    "attention": (lambda x, y: x.scaled_dot_product_attention(y, y, is_causal=True), [X, Y]),
    "diagonal": (lambda x: x.diagonal(1), [X]),
    "strided": (lambda x: x.reshape(-1)[::2], [X]),
    "backwards": (lambda x: x[:, ::-2], [X]),
    "unfold": (lambda x: x.unfold(1, 2, 1), [X]),
    "tril": (lambda x: x.tril(), [X]),
    "roll": (lambda x: x.roll(1, 1), [X]),
}


def written(x: Tensor, y: Tensor) -> Tensor:
    """A program with writes."""
    z = x * 2
    z[:, 1:] = y[:, 1:] * y[:, 1:]
    z[0] *= x[1]
    return z * z


CASES["writes"] = (written, [X, Y])


def weighted(function: Function, tensors: list[Tensor]) -> Tensor:
    """A scalar in which every element of the result counts differently."""
    result = function(*tensors)
    weights = Tensor.arange(1, result.numel() + 1).cast(result.dtype).reshape(result.shape)
    return (result * (weights * 0.37).detach()).sum()


def differences(function: Function, values: list[np.ndarray], which: int) -> np.ndarray:
    """Central differences, all of them in one go on the interpreter's precision: float64."""
    step = 1e-5
    found = np.zeros_like(values[which])
    for place in np.ndindex(found.shape):
        ends = []
        for sign in (1, -1):
            moved = [v.copy() for v in values]
            moved[which][place] += sign * step
            with no_grad():
                ends.append(weighted(function, [Tensor(v) for v in moved]).item())
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_what_differences_say(name: str) -> None:
    function, data = CASES[name]
    values = [np.array(d, np.float64) for d in data]
    tensors = [Tensor(v) for v in values]
    weighted(function, tensors).backward()
    for which, tensor in enumerate(tensors):
        assert tensor.grad is not None
        expected = differences(function, values, which)
        np.testing.assert_allclose(tensor.grad.numpy(), expected, rtol=2e-5, atol=2e-6)


def test_every_op_has_a_rule_or_a_reason() -> None:
    groups = (Group.ELEMENTWISE, Group.MOVEMENT, Group.TENSOR)
    ops = [op for op in Ops.all() if op.group in groups and not op.native_only]
    assert [op for op in ops if op not in GRADIENTS and op not in NO_GRADIENT] == []


def test_ties_share_and_nan_takes_all() -> None:
    x, y = Tensor([1.0, 2.0, float("nan")]), Tensor([1.0, 3.0, 4.0])
    x.maximum(y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [0.5, 0.0, 1.0]
    assert y.grad.tolist() == [0.5, 1.0, 0.0]


def test_gradients_add_up_and_can_be_cleared() -> None:
    x = Tensor([1.0, 2.0])
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0, 5.0]
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_second_derivatives() -> None:
    x = Tensor([2.0, 3.0])
    (first,) = (x * x * x).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    assert second.tolist() == [12.0, 18.0]


def test_gradient_of_something_computed() -> None:
    x = Tensor([2.0])
    h = x * 3
    y = (h * h).sum()
    assert y.gradient(h)[0].tolist() == [12.0]
    h.realize()
    assert y.gradient(h, x)[1].tolist() == [36.0]
    assert (h * h).sum().gradient(h)[0].tolist() == [12.0]


def test_requires_grad_is_honoured() -> None:
    x, y = Tensor([1.0], requires_grad=False), Tensor([2.0])
    (x * y).sum().backward()
    assert x.grad is None
    assert y.grad is not None
    assert (x * 2).requires_grad is False
    assert (y * 2).requires_grad is True


def test_detach_and_no_grad_stop_it() -> None:
    x = Tensor([3.0])
    (x * x.detach()).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0]
    with no_grad():
        y = x * 2
    with pytest.raises(GradientError, match="depends on no tensor"):
        y.sum().backward()


def test_errors_of_backward() -> None:
    with pytest.raises(GradientError, match="needs to know how to weigh"):
        Tensor([1.0, 2.0]).backward()
    with pytest.raises(GradientError, match="depends on no tensor"):
        Tensor([1, 2]).sum().backward()
    with pytest.raises(GradientError, match="does not depend"):
        Tensor(1.0).gradient(Tensor([1.0]))


def test_a_write_in_place_keeps_gradients_right() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = (x * x).realize()
    with no_grad():
        x.assign(x * 10).realize()
    (g,) = (y * 1).sum().gradient(y)
    assert g.tolist() == [1.0, 1.0]
    z = (x * 3).sum()
    z.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_leaf_that_nobody_asked_for_is_not_kept_for_ever() -> None:
    w, x = Tensor([2.0], requires_grad=True), Tensor([3.0])
    for _ in range(3):
        (w * x).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [9.0]
    with pytest.raises(GradientError, match="was not kept"):
        x.grad


def test_long_loops_over_realized_values() -> None:
    x = Tensor([1.0])
    with no_grad():
        step = Tensor([0.001])
    y = x
    for _ in range(300):
        y = (y + step * x).realize()
    with pytest.raises(GradientError, match="longer than 256 realised steps"):
        y.sum().backward()
    w = Tensor([1.0], requires_grad=True)
    y = w
    for _ in range(300):
        y = (y * 1.0).realize()
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [1.0]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32])
def test_gradients_have_the_type_of_their_leaf(dtype: dtypes) -> None:
    x = Tensor([1.0, 2.0], dtype=dtype)
    (x * 2).float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is dtype
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("realized", [False, True])
def test_a_leaf_that_was_written_to_stays_one(realized: bool) -> None:
    a, x = Tensor([2.0, 3.0]), Tensor([1.0, 5.0])

    def settle() -> None:
        if realized:
            x.realize()

    x[0] = a[1] * 0.5
    settle()
    with no_grad():
        x *= 2
    settle()
    y = x * x
    settle()
    x[1] = a[0]
    settle()
    (y + x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]
    assert a.grad is not None
    assert a.grad.tolist() == [3.0, 0.0]


def test_a_written_leaf_inside_what_was_realized() -> None:
    a, x = Tensor([2.0]), Tensor([1.0])
    b = (a * 3).realize()
    x.assign(b * 2)
    y = (x * x).sum()
    y.backward()
    assert x.grad is not None
    assert a.grad is not None
    assert x.grad.tolist() == [24.0]
    assert a.grad.tolist() == [144.0]


def test_a_realized_loss_over_a_leaf_whose_source_is_gone() -> None:
    source, leaf = Tensor([1.0, 2.0]), Tensor.ones(2)
    leaf[0] = source[1] * 0.5
    leaf.realize()
    source[0] = 7.0
    loss = (leaf * 3).sum()
    loss.realize()
    loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0, 3.0]
