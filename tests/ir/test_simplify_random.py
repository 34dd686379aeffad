"""simplify keeps the value of random integer graphs, and bounds hold it."""

from __future__ import annotations

import random

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.bounds import alignment, bounds
from pellucid.ir.simplify import simplify
from tests.ir.integers import Maker, evaluate, random_values


@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.uint8, dtypes.int32], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_keep_their_value(dtype: DType, seed: int) -> None:
    rng = random.Random(seed * 1000 + dtype.bits)
    for _ in range(40):
        maker = Maker(rng, dtype)
        node = maker.integer(4) if rng.random() < 0.7 else maker.truth(4)
        simple = simplify(node)
        low, high = bounds(node)
        step = alignment(node)
        for _ in range(12):
            values = random_values(node, rng)
            value = evaluate(node, values)
            assert evaluate(simple, values) == value
            assert low <= value <= high
            assert value == 0 if step == 0 else value % step == 0
