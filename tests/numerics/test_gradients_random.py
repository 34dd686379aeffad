"""Random programs of reads, writes and realize: realize() changes no value and cuts no gradient."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pellucid import Tensor, dtypes, no_grad
from pellucid.core.errors import GradientError

COMPUTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y * 0.5,
    "div": lambda x, y: x / (y * y + 1),
    "sin": lambda x, y: (x * 0.3).sin(),
    "window": lambda x, y: x.reshape(2, 2).T.reshape(4),
    "sum": lambda x, y: x * 0.1 + x.sum() * 0.1,
    "detach": lambda x, y: x * y.detach(),
}


def put_slice(x: Tensor, y: Tensor) -> Tensor:
    """Write to a part of a new value."""
    z = x * 1.1
    z[1:3] = y[0:2] * 2
    return z


def add_in_place(x: Tensor, y: Tensor) -> Tensor:
    """Add to a new value."""
    z = x * 1.0
    z += y
    return z


COMPUTED |= {"slice": put_slice, "in place": add_in_place}


def write_one(x: Tensor, y: Tensor) -> None:
    """Write to what may be a leaf."""
    x[0] = y[1] * 0.7


def write_rows(x: Tensor, y: Tensor) -> None:
    """Write where an index tensor says."""
    x[Tensor([2, 0])] = y[Tensor([1, 1])] * 0.3


def scale_without_gradient(x: Tensor, y: Tensor) -> None:
    """Write as an optimiser does."""
    with no_grad():
        x *= 1.25


WRITTEN = {"one": write_one, "rows": write_rows, "scale": scale_without_gradient}


def outcome(seed: int, is_realized: bool) -> list[Any]:
    """All values and gradients after a random program."""
    numbers, coin = random.Random(seed), random.Random(seed + 1)
    leaves = [Tensor(np.array([numbers.uniform(0.5, 2) for _ in range(4)])) for _ in range(2)]
    leaves += [Tensor.full((4,), 1.5, dtype=dtypes.float64)]
    leaves[1].requires_grad_(numbers.choice([True, False, True]))
    values = list(leaves)

    def maybe_realize() -> None:
        if is_realized and coin.random() < 0.5:
            values[coin.randrange(len(values))].realize()

    for _ in range(numbers.randint(3, 9)):
        kind = numbers.choice([*COMPUTED, *WRITTEN])
        x, y = numbers.choice(values), numbers.choice(values)
        if kind in COMPUTED:
            values.append(COMPUTED[kind](x, y))
        else:
            WRITTEN[kind](x, y)
        maybe_realize()
    total = (values[-1] * values[-2]).sum() + values[len(values) // 2].sum()
    maybe_realize()
    try:
        total.backward()
    except GradientError as error:
        return [type(error)]
    grads = [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]
    return [total.item(), *(v.tolist() for v in values), *grads]


@pytest.mark.parametrize("seed", range(30))
def test_realize_changes_nothing(seed: int) -> None:
    lazy, realized = outcome(seed, is_realized=False), outcome(seed, is_realized=True)
    assert len(lazy) == len(realized)
    for mine, other in zip(lazy, realized, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and not isinstance(mine, type):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
