"""What is chosen for convolutions, and that the values stay right on all shapes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.core.target import Target
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.plans.heuristic import choose
from tests import references
from tests.codegen import kernels
from tests.codegen.agreement import assert_plan_keeps_values
from tests.codegen.lowering import SMALL, TARGET

ONE_CORE = dataclasses.replace(TARGET, cores=1)
AVX2 = dataclasses.replace(ONE_CORE, features=frozenset({"avx2", "fma"}))


def convolution(out: int, channels: int, size: int, width: int, height: int = 1) -> UOp:
    """y[o, h, w] = the sum of x[c, h, w + j] * k[o, c, j] over c and j."""
    o, w = kernels.loop(out, 0), kernels.loop(width, 1)
    c, j = kernels.axis(channels, 2), kernels.axis(size, 3)
    h = kernels.loop(height, 4) if height > 1 else kernels.const(0)
    span = width + size - 1
    x = kernels.param(1, channels * height * span).index((c * height + h) * span + w + j)
    k = kernels.param(2, out * channels * size).index((o * channels + c) * size + j)
    y = kernels.param(0, out * height * width).index((o * height + h) * width + w)
    loops = (o, h, w) if height > 1 else (o, w)
    return kernels.kernel(y.store(kernels.reduce(x * k, c, j)).end(*loops))


def kinds(sink: UOp, target: Target = ONE_CORE) -> list[tuple[str, int | None]]:
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(choose(sink, target).sink)]


def test_pixels_are_lanes_and_channels_are_copies() -> None:
    found = kinds(convolution(64, 32, 3, 28))
    assert ("lanes", 16) in found
    assert found.count(("upcast", 8)) == 1
    assert found.count(("upcast", 2)) == 1
    assert all(size != 12 for _, size in found), "the rest of 28 is masked, not a loop"


def test_wide_pictures_fill_the_registers() -> None:
    found = kinds(convolution(64, 32, 3, 64))
    assert found.count(("upcast", 4)) == 2


@pytest.mark.parametrize(("width", "height"), [(56, 56), (7, 14), (16, 16), (28, 28)])
def test_sixteen_registers_hold_six_rows_of_two_vectors(width: int, height: int) -> None:
    found = kinds(convolution(66, 32, 3, width, height), AVX2)
    assert ("lanes", 8) in found
    copies = [size or 0 for kind, size in found if kind == "upcast"]
    assert copies[:2] == [6, 2], "one tile of 12 accumulators, vectors inside of rows"
    assert max(copies) == 6


def test_a_few_rows_stay_where_all_of_the_weight_would_come_from_memory() -> None:
    small = dataclasses.replace(AVX2, l3_bytes=1 << 20)
    found = kinds(convolution(64, 512, 9, 32, 8), small)
    assert found[0] == ("loop", 16), "the rows are the outermost loop"
    assert found.count(("upcast", 4)) == 1


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
    assert copies
    assert math.prod(amount for amount in copies if amount) <= 12


@pytest.mark.parametrize(
    ("batch", "channels", "out", "size", "kernel", "padding"),
    [
        (1, 3, 5, 7, 3, 1),
        (2, 17, 6, 13, 3, 1),
        (1, 40, 3, 18, 5, 2),
        (2, 4, 9, 70, 3, 0),
        (1, 9, 13, 9, 3, 1),
        (1, 16, 7, 57, 3, 1),
        (3, 8, 23, 15, 1, 0),
    ],
)
def test_values(batch: int, channels: int, out: int, size: int, kernel: int, padding: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (batch, channels, size, size)).astype(np.float32)
    w = rng.integers(-3, 4, (out, channels, kernel, kernel)).astype(np.float32)
    got = Tensor(x).conv2d(Tensor(w), padding=padding).numpy()
    np.testing.assert_array_equal(got, references.convolution(x, w, padding))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 3])
def test_values_with_steps_gaps_and_groups(stride: int, dilation: int, groups: int) -> None:
    rng = np.random.default_rng(stride)
    x = rng.integers(-3, 4, (2, 24, 19, 17)).astype(np.float32)
    w = rng.integers(-3, 4, (21, 24 // groups, 3, 3)).astype(np.float32)
    expected = references.convolution(x, w, 1, stride, dilation, groups)
    got = Tensor(x).conv2d(Tensor(w), padding=1, stride=stride, dilation=dilation, groups=groups)
    np.testing.assert_array_equal(got.numpy(), expected)


def test_only_the_last_vectors_of_a_row_have_a_mask() -> None:
    actions = choose(convolution(66, 64, 3, 100, 8), AVX2).actions
    assert ("pad", 8) in [(a.kind, a.amount) for a in actions]
    assert 96 in [a.amount for a in actions if a.kind == "split"]


def test_rows_are_innermost_unless_a_row_of_the_picture_stays_in_cache() -> None:
    for channels, order in ((8, [8, 11, 4]), (512, [8, 4, 11])):
        found = kinds(convolution(66, channels, 3, 64, 8), AVX2)
        assert [size for kind, size in found if kind == "loop"][:3] == order


@pytest.mark.parametrize("target", [TARGET, AVX2, SMALL])
@pytest.mark.parametrize(
    ("out", "channels", "size", "width", "height"),
    [(7, 5, 3, 13, 4), (8, 6, 2, 40, 1), (11, 3, 3, 9, 5), (5, 3, 3, 100, 3)],
)
def test_the_interpreter_agrees(
    target: Target, out: int, channels: int, size: int, width: int, height: int
) -> None:
    assert_plan_keeps_values(convolution(out, channels, size, width, height), target)
