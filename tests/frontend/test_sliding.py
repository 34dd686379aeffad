"""The gradient of a convolution as a whole is that of its ops, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.frontend import sliding
from pellucid.ir import gradient as rules


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


def test_only_convolutions_with_steps_of_one_are_read() -> None:
    x, weight = integers(2, 3, 6, 7) * 1.0, integers(4, 3, 3, 3)
    found = sliding._read(x.conv2d(weight, padding=1).uop)
    assert found is not None
    assert found.kernel == (3, 3)
    assert sliding._read(x.conv2d(weight, stride=2).uop) is None
    assert sliding._read(x.conv2d(weight, dilation=2).uop) is None
    assert sliding._read(x.sum(3).uop) is None
