"""What is chosen for convolutions with many channels, and that the values stay right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.plans.channels import Channels
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.plans.plan import Plan
from tests import references
from tests.codegen import kernels
from tests.codegen.agreement import assert_plan_keeps_values
from tests.codegen.lowering import SMALL, TARGET, lowered

ONE_CORE = dataclasses.replace(TARGET, cores=1)
AVX2 = dataclasses.replace(ONE_CORE, features=frozenset({"avx2", "fma"}))
TWO_CORES = dataclasses.replace(AVX2, cores=2)


def convolution(
    out: int, channels: int, size: int, image: int, step: int = 1, batch: int = 1
) -> UOp:
    """y[n, o, h, w] = the sum of x[n, c, h * step + i, w * step + j] * k[o, c, i, j]."""
    o, h, w = kernels.loop(out, 0), kernels.loop(image, 1), kernels.loop(image, 2)
    c = kernels.axis(channels, 3)
    i, j = (kernels.axis(size, a) if size > 1 else kernels.const(0) for a in (4, 5))
    n = kernels.loop(batch, 6) if batch > 1 else kernels.const(0)
    span = (image - 1) * step + size
    x = kernels.param(1, batch * channels * span * span)
    x = x.index(((n * channels + c) * span + h * step + i) * span + w * step + j)
    k = kernels.param(2, out * channels * size * size)
    k = k.index(((o * channels + c) * size + i) * size + j)
    y = kernels.param(0, batch * out * image * image)
    y = y.index(((n * out + o) * image + h) * image + w)
    loops = (n, o, h, w) if batch > 1 else (o, h, w)
    return kernels.kernel(
        y.store(kernels.reduce(x * k, *((c, i, j) if size > 1 else (c,)))).end(*loops)
    )


def axes(sink: UOp, target: Target) -> list[tuple[str, int | None]]:
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(choose(sink, target).sink)]


def kinds(sink: UOp, target: Target) -> list[str]:
    return [action.kind for action in choose(sink, target).actions]


def test_weights_are_turned_around_and_blocks_of_the_sum_stand_outside_of_pixels() -> None:
    actions = choose(convolution(64, 64, 3, 56), AVX2).actions
    assert [a.kind for a in actions].count("pack") == 1
    assert [a.kind for a in actions].count("hoist") == 1
    found = axes(convolution(64, 64, 3, 56), AVX2)
    assert ("upcast", 6) in found, "pixels of a tile"
    assert found.count(("lanes", 8)) >= 3


def test_pictures_of_any_width_and_steps_fill_vectors() -> None:
    for image, step in ((28, 1), (7, 2), (14, 2)):
        assert "hoist" in kinds(convolution(64, 32, 3, image, step, batch=8), AVX2)


def test_tiles_of_heavy_weights_are_the_outermost_loop() -> None:
    found = axes(convolution(256, 256, 3, 14), AVX2)
    assert found[0] == ("loop", 16), "two vectors of channels at a time"


def test_threads_share_channels_where_all_weights_are_read_once() -> None:
    assert axes(convolution(256, 256, 3, 14), TWO_CORES)[0] == ("thread", 16)


def test_threads_share_pictures_or_lines_where_weights_stay_in_cache() -> None:
    assert axes(convolution(64, 32, 3, 28, batch=8), TWO_CORES)[0] == ("thread", 8)
    assert axes(convolution(64, 64, 3, 56), TWO_CORES)[0][0] == "thread"


def test_short_sums_stay_in_registers() -> None:
    assert "hoist" not in kinds(convolution(32, 3, 3, 64, 2), AVX2)


@pytest.mark.parametrize(
    "sink",
    [
        convolution(60, 64, 3, 56),  # channels do not fill vectors
        convolution(8, 4, 3, 8),  # too little to do
        kernels.matmul(128, 768, 50257),
        kernels.matmul_transposed(128, 768, 50257),
        kernels.matmul_transposed(50257, 768, 128),
    ],
)
def test_other_kernels_are_left_alone(sink: UOp) -> None:
    assert Channels.of(Plan(sink, AVX2)) is None


def test_a_sum_over_one_axis_is_taken_where_pixels_lie_apart() -> None:
    assert Channels.of(Plan(convolution(64, 128, 1, 14, 2), AVX2)) is not None
    assert Channels.of(Plan(convolution(64, 128, 1, 14, 1), AVX2)) is None


def test_few_pixels_do_not_pay_for_turning_weights_around() -> None:
    sink = convolution(64, 64, 3, 7)
    assert Channels.of(Plan(sink, AVX2)) is not None
    assert "pack" not in kinds(sink, AVX2)


@pytest.mark.parametrize("target", [TARGET, AVX2, TWO_CORES, SMALL])
@pytest.mark.parametrize(
    ("out", "channels", "size", "image", "step", "batch"),
    [(16, 15, 3, 5, 1, 1), (24, 3, 3, 5, 2, 2), (16, 37, 2, 3, 2, 1), (16, 30, 3, 3, 2, 1)],
)
def test_the_interpreter_agrees(
    target: Target,
    out: int,
    channels: int,
    size: int,
    image: int,
    step: int,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pellucid.opt.plans.channels.LEAST_WORK", 1)
    monkeypatch.setattr("pellucid.opt.plans.channels.TURN_CYCLES", 0.0)
    assert_plan_keeps_values(convolution(out, channels, size, image, step, batch), target)


@pytest.mark.parametrize(
    ("batch", "channels", "out", "size", "kernel", "step"),
    [
        (1, 24, 32, 28, 3, 1),
        (2, 17, 48, 13, 3, 2),
        (1, 40, 24, 18, 5, 2),
        (3, 3, 64, 30, 7, 2),
        (1, 128, 144, 9, 3, 1),
        (2, 61, 16, 14, 3, 1),
    ],
)
def test_values(batch: int, channels: int, out: int, size: int, kernel: int, step: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (batch, channels, size, size)).astype(np.float32)
    w = rng.integers(-3, 4, (out, channels, kernel, kernel)).astype(np.float32)
    b = rng.integers(-3, 4, (out, 1, 1)).astype(np.float32)
    expected = references.convolution(x, w, kernel // 2, step)
    y = Tensor(x).conv2d(Tensor(w), padding=kernel // 2, stride=step)
    np.testing.assert_array_equal((y + Tensor(b)).relu().numpy(), np.maximum(expected + b, 0))


def test_short_sums_wait_too_so_that_results_are_stored_along_memory() -> None:
    """Of a picture that is read pixel by pixel, every channel would be stored alone."""
    sink = convolution(128, 64, 1, 28, 2)
    assert "compute" in kinds(sink, ONE_CORE)
    stores = [n for n in lowered(sink, ONE_CORE).toposort() if n.op is Ops.STORE]
    assert all(n.src[1].dtype.lanes > 1 for n in stores)


@pytest.mark.parametrize("image", [7, 14])
def test_channels_of_short_lines_are_a_loop_around_pixels(image: int) -> None:
    """What belongs to a channel is computed once, and lanes are stored by one piece of code."""
    sink = convolution(256, 128, 1, image, 2)
    stores = [n for n in lowered(sink, ONE_CORE).toposort() if n.op is Ops.STORE]
    alone = [n for n in stores if n.src[1].dtype.lanes == 1]
    assert len(alone) == 16
