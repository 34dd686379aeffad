"""What is chosen for convolutions, and that the values stay right on all shapes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import SMALL, TARGET

ONE_CORE = dataclasses.replace(TARGET, cores=1)


def convolution(out: int, channels: int, size: int, width: int) -> UOp:
    """y[o, w] = the sum of x[c, w + j] * k[o, c, j] over c and j."""
    o, w = kernels.loop(out, 0), kernels.loop(width, 1)
    c, j = kernels.axis(channels, 2), kernels.axis(size, 3)
    span = width + size - 1
    x = kernels.param(1, channels * span).index(c * span + w + j)
    k = kernels.param(2, out * channels * size).index((o * channels + c) * size + j)
    total = kernels.reduce(x * k, c, j)
    return kernels.kernel(kernels.param(0, out * width).index(o * width + w).store(total).end(o, w))


def kinds(sink: UOp) -> list[tuple[str, int | None]]:
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(choose(sink, ONE_CORE).sink)]


def test_pixels_are_lanes_and_channels_are_copies() -> None:
    found = kinds(convolution(64, 32, 3, 28))
    assert ("lanes", 16) in found
    assert found.count(("upcast", 4)) == 1
    assert found.count(("upcast", 2)) == 1
    assert all(size != 12 for _, size in found), "the rest of 28 is masked, not a loop"


def test_long_sums_are_nested() -> None:
    found = kinds(convolution(8, 512, 3, 16))
    reduced = [size or 0 for kind, size in found if kind == "reduce"]
    assert len(reduced) == 3
    assert reduced[1] * reduced[2] <= 128


def test_narrow_pictures_and_single_channels_are_left_alone() -> None:
    for sink in (convolution(8, 32, 3, 5), convolution(1, 32, 3, 64)):
        assert ("pad", 16) not in [(a.kind, a.amount) for a in choose(sink, ONE_CORE).actions]


def test_targets_with_few_registers_get_smaller_tiles() -> None:
    actions = choose(convolution(64, 32, 3, 32), SMALL).actions
    copies = [a.amount for a in actions if a.kind == "upcast"]
    assert all(amount <= 4 for amount in copies)


@pytest.mark.parametrize(
    ("batch", "channels", "out", "size", "kernel", "padding"),
    [(1, 3, 5, 7, 3, 1), (2, 17, 6, 13, 3, 1), (1, 40, 3, 18, 5, 2), (2, 4, 9, 70, 3, 0)],
)
def test_values(batch: int, channels: int, out: int, size: int, kernel: int, padding: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (batch, channels, size, size)).astype(np.float32)
    w = rng.integers(-3, 4, (out, channels, kernel, kernel)).astype(np.float32)
    around = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (kernel, kernel), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, w)
    got = Tensor(x).conv2d(Tensor(w), padding=padding).numpy()
    np.testing.assert_array_equal(got, expected)
