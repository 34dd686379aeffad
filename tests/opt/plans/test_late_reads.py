"""A convolution reads what is added to its results along memory, where that comes from far away."""

from __future__ import annotations

import dataclasses

import pytest

from pellucid.opt.plans.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import TARGET

ONE_CORE = dataclasses.replace(TARGET, cores=1)
CHANNELS, SIZE, IMAGE = 32, 3, 32


@pytest.mark.parametrize(("batch", "is_far"), [(4, False), (64, True)])
def test_lanes_are_channels_where_lines_would_come_late(batch: int, is_far: bool) -> None:
    """Tiles of pixels would wait for each line of it; blocks of sums are put down in order."""
    sizes = (batch, CHANNELS, IMAGE, IMAGE)
    n, o, h, w = (kernels.loop(size, number) for number, size in enumerate(sizes))
    c, i, j = (kernels.axis(size, 4 + number) for number, size in enumerate((CHANNELS, SIZE, SIZE)))
    span = IMAGE + SIZE - 1
    x = kernels.param(1, batch * CHANNELS * span * span)
    x = x.index(((n * CHANNELS + c) * span + h + i) * span + w + j)
    k = kernels.param(2, CHANNELS * CHANNELS * SIZE * SIZE)
    k = k.index(((o * CHANNELS + c) * SIZE + i) * SIZE + j)
    y, added = (kernels.param(slot, batch * CHANNELS * IMAGE * IMAGE) for slot in (0, 3))
    place = ((n * CHANNELS + o) * IMAGE + h) * IMAGE + w
    summed = kernels.reduce(x * k, c, i, j) + added.index(place)
    kernel = kernels.kernel(y.index(place).store(summed).end(n, o, h, w))
    kinds = [action.kind for action in choose(kernel, ONE_CORE).actions]
    assert ("pack" in kinds) == is_far
