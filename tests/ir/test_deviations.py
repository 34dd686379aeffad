"""The gradient of a variance as a whole is that of its ops, one by one, but for a sum that is 0."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.ir import deviations
from pellucid.ir import gradient as rules
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

SHAPE = (4, 3, 5)
VALUES = np.random.default_rng(0).standard_normal(SHAPE)


def squares(x: Tensor, axes: tuple[int, ...], correction: int) -> UOp:
    """The sum of squares in a variance."""
    order = x.var(axes, correction=correction).uop.toposort()
    return [n for n in order if n.op is Ops.REDUCE and n.src[0].op is Ops.MUL][-1]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("correction", [0, 1])
def test_the_gradient(
    axes: tuple[int, ...], correction: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = Tensor(VALUES, requires_grad=True)
    node = squares(x, axes, correction)
    assert deviations.squares_about_the_mean(node, node.const_like(1.0)) is not None
    found = []
    for whole in (rules.WHOLE, {}):
        monkeypatch.setattr(rules, "WHOLE", whole)
        (by_x,) = x.var(axes, correction=correction).square().sum().gradient(x)
        (twice,) = (by_x * Tensor(VALUES)).sum().gradient(x)
        found.append((by_x.numpy(), twice.numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_other_sums_of_squares_are_left_alone() -> None:
    x = Tensor(VALUES, requires_grad=True)
    others = (
        x.square().sum(1),
        (x - 1.0).square().sum(1),
        (x - x.mean(1, keepdim=True) * 2.0).square().sum(1),
        (x - x.mean(0, keepdim=True)).square().sum(1),
        (x - x.sum(1, keepdim=True) / 4).square().sum(1),
        (x - x.mean(1, keepdim=True)).square().amax(1),
    )
    for other in others:
        node = other.uop
        assert deviations.squares_about_the_mean(node, node.const_like(1.0)) is None


def test_the_gradient_of_a_normalisation_takes_two_sums() -> None:
    """By the scale, the shift and the statistics alike: of the gradient, and of it with x."""
    x, weight, bias = (Tensor(v, requires_grad=True) for v in (VALUES, VALUES[0], VALUES[1]))
    scale, shift = weight[:, 0], bias[:, 0]
    mean, var = x.mean((0, 2)), x.var((0, 2), correction=0)
    result = x.batchnorm(scale, shift, mean, (var + 1e-5).rsqrt())
    given = Tensor(np.random.default_rng(1).standard_normal(SHAPE))
    found = (result * given).sum().gradient(x, scale, shift)
    roots = [g.uop for g in found]
    sums = {
        n
        for n in UOp.sink(*roots).toposort()
        if n.op is Ops.REDUCE and any(given.uop in s.toposort() for s in n.src)
    }
    assert len(sums) == 2


def test_factors_of_a_sum_that_are_the_same_for_all_of_it_come_later() -> None:
    x, factor = Tensor(VALUES, requires_grad=True), Tensor(VALUES[0, :, :1], requires_grad=True)
    (by_factor,) = (x * factor * factor).sum((0, 2)).sum().gradient(factor)
    want = 2 * VALUES[0, :, :1] * VALUES.sum((0, 2))[:, None]
    np.testing.assert_allclose(by_factor.numpy(), want, rtol=1e-12)
    sums = [n for n in by_factor.uop.toposort() if n.op is Ops.REDUCE]
    assert all(n.src[0].op is not Ops.MUL for n in sums)
