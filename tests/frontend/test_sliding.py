"""The gradient of a convolution as a whole is that of its ops, one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.frontend import sliding
from pellucid.ir import gradient as rules
from pellucid.ir.op import Ops


def integers(*shape: int) -> Tensor:
    rng = np.random.default_rng(shape)
    return Tensor(rng.integers(-3, 4, shape).astype(np.float32), requires_grad=True)


@pytest.mark.parametrize(
    ("x", "weight", "given"),
    [
        ((2, 3, 6, 7), (4, 3, 3, 3), {"padding": 1}),
        ((1, 3, 9), (4, 3, 3), {}),
        ((2, 4, 6, 5), (6, 2, 3, 2), {"padding": (1, 0), "groups": 2}),
        ((2, 40, 6, 5), (3, 40, 3, 3), {"padding": 2}),
        ((2, 3, 9, 9), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
        ((2, 3, 9, 8), (32, 3, 3, 3), {"stride": 2, "padding": 1}),
        ((1, 2, 9, 10), (16, 2, 7, 5), {"stride": 3}),
        ((2, 3, 9, 9), (4, 3, 3, 3), {"dilation": 2}),
        ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), {}),
        ((2, 3, 4, 4), (4, 3, 1, 1), {}),
    ],
)
def test_gradients(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for whole in (rules.WHOLE, {}):
        monkeypatch.setattr(rules, "WHOLE", whole)
        left, right = integers(*x), integers(*weight)
        result = (left * 1.0).conv2d(right, **given)
        (result * result).sum().backward()
        assert left.grad is not None
        assert right.grad is not None
        found.append((left.grad.numpy(), right.grad.numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("given", "moves"),
    [
        ({"padding": 1}, ((1, 1), (1, 1))),
        ({"stride": 2}, ((2, 2), (1, 1))),
        ({"dilation": (1, 2)}, ((1, 1), (1, 2))),
        ({"stride": (2, 1), "dilation": (1, 3), "padding": 3}, ((2, 1), (1, 3))),
    ],
)
def test_a_convolution_is_read_from_its_sum(given: Any, moves: Any) -> None:
    x, weight = integers(2, 3, 6, 8) * 1.0, integers(4, 3, 3, 3)
    for _ in ("few uses of each element", "many, kept in phases"):
        found = sliding._read(x.conv2d(weight, **given).uop)
        assert found is not None
        assert (found.steps, found.gaps, found.kernel) == (*moves, (3, 3))
        weight = integers(64, 3, 3, 3)
    assert sliding._read(x.sum(3).uop) is None


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3, (1, 3)])
@pytest.mark.parametrize("gaps", [1, 2])
def test_a_transposed_convolution_puts_kernels_down(groups: int, steps: Any, gaps: int) -> None:
    x, weight = integers(2, 4, 3, 4), integers(4, 3, 2, 3)
    got = x.conv_transpose2d(weight, stride=steps, dilation=gaps, groups=groups)
    down, right = steps if isinstance(steps, tuple) else (steps, steps)
    shape = (2, 3 * groups, 2 * down + gaps + 1, 3 * right + 2 * gaps + 1)
    wanted = np.zeros(shape, np.float32)
    values, kernel = x.numpy(), weight.numpy()
    for i, j, c in np.ndindex(3, 4, 4):
        group = slice(3 * (c // (4 // groups)), 3 * (c // (4 // groups)) + 3)
        rows = slice(i * down, i * down + gaps + 1, gaps)
        columns = slice(j * right, j * right + 2 * gaps + 1, gaps)
        put = values[:, c, i, j, None, None, None] * kernel[c]
        wanted[:, group, rows, columns] += put
    np.testing.assert_array_equal(got.numpy(), wanted)


def test_the_gradient_of_steps_multiplies_no_zeros() -> None:
    """Each tap of each window is used twice, but for taps that fill up a phase."""
    x, weight = integers(1, 2, 16, 16), integers(32, 2, 4, 4)
    by_x = x.conv2d(weight, stride=2).square().sum().gradient(x)[0]
    sizes = [math.prod(node.known_shape) for node in by_x.uop.toposort() if node.op is Ops.MUL]
    assert max(sizes) == 32 * 2 * 4 * 4 * 8 * 8  # windows reach one phase over each edge


@pytest.mark.parametrize("is_pooled", [False, True])
def test_the_gradient_of_a_padded_picture_is_made_for_the_picture_alone(*, is_pooled: bool) -> None:
    """Its sums run over 16 x 16 places and not 18 x 18; what they read is padded in memory."""
    x, first = integers(2, 4, 32 if is_pooled else 16, 16), integers(16, 4, 3, 3)
    weight = integers(16, 16, 3, 3)
    hidden = x.conv2d(first, padding=1)
    hidden = hidden.max_pool2d((2, 1)) if is_pooled else hidden.relu()
    by_first = hidden.conv2d(weight, padding=1).square().sum().gradient(first)[0]
    kernels = [call.src[0] for call in by_first.schedule_linear().src]
    summed = [k for k in kernels if any(n.op is Ops.REDUCE for n in k.toposort())]
    sizes = [
        [int(n.src[0].arg) for n in kernel.toposort() if n.op is Ops.RANGE] for kernel in summed
    ]
    assert sizes.count([2, 16, 16, 16, 144]) == 2
    assert not any(18 in found for found in sizes)
