"""What is chosen for the gradients of weights, and that the values stay right on all shapes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid import Context, Tensor
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.plans.dots import plan_dots
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.plans.plan import Plan
from tests.codegen import kernels
from tests.codegen.agreement import assert_plan_keeps_values
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions

ONE_CORE = dataclasses.replace(TARGET, cores=1)
AVX2 = dataclasses.replace(ONE_CORE, features=frozenset({"avx2", "fma"}))


def gradient(out: int, batch: int, height: int, width: int, size: int = 3) -> UOp:
    """g[o, j] = the sum of d[n, o, h, w] * x[n, h, w + j] over n, h and w."""
    o, j = kernels.loop(out, 0), kernels.loop(size, 1)
    n, h, w = kernels.axis(batch, 2), kernels.axis(height, 3), kernels.axis(width, 4)
    span = width + size - 1
    d = kernels.param(1, batch * out * height * width)
    x = kernels.param(2, batch * height * span)
    left = d.index(((n * out + o) * height + h) * width + w)
    total = kernels.reduce(left * x.index((n * height + h) * span + w + j), n, h, w)
    return kernels.kernel(kernels.param(0, out * size).index(o * size + j).store(total).end(o, j))


def kinds(sink: UOp, target: Target = ONE_CORE) -> list[tuple[str, int | None]]:
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(choose(sink, target).sink)]


@pytest.mark.parametrize(("target", "lanes"), [(ONE_CORE, 16), (AVX2, 8)])
def test_the_summed_axis_is_lanes(target: Target, lanes: int) -> None:
    found = kinds(gradient(64, 64, 16, 32), target)
    assert {size for kind, size in found if kind == "lanes"} == {lanes}
    assert ("upcast", 3) in found, "each vector of d serves three vectors of x"


def test_sixteen_registers_hold_four_rows_of_three_vectors() -> None:
    found = kinds(gradient(64, 64, 16, 32), AVX2)
    assert [size for kind, size in found if kind == "upcast"] == [4, 3]


def test_what_is_read_stays_in_cache_for_all_rows() -> None:
    actions = choose(gradient(64, 64, 16, 16), AVX2).actions
    assert Action("split", 2, 4) in actions, "4 pictures of 16 x 16 fill runs of 128 in 8 lanes"
    assert [a.amount for a in actions if a.kind == "hoist"] == [0]


def test_no_sum_in_memory_grows_by_many_terms() -> None:
    actions = choose(gradient(8, 640, 32, 32), AVX2).actions
    assert [a.amount for a in actions if a.kind == "split"] == [5]
    assert [a.kind for a in actions if a.kind in ("hoist", "cascade")] == ["hoist", "cascade"]


def test_threads_take_even_parts_of_the_rows() -> None:
    two = dataclasses.replace(AVX2, cores=2)
    chosen = choose(gradient(64, 256, 32, 32), two)
    assert [a.kind for a in chosen.actions if a.kind in ("thread", "hoist")] == ["hoist", "thread"]
    assert [size_of(a) for a in axes_of(chosen.sink) if a.arg.kind.value == "thread"] == [2]


def test_what_fills_no_vector_is_a_smaller_one_without_a_mask() -> None:
    found = kinds(gradient(64, 64, 16, 28), AVX2)
    assert ("lanes", 8) in found
    assert ("lanes", 4) in found
    assert not any(a.kind == "pad" for a in choose(gradient(64, 64, 16, 28), AVX2).actions)


def test_lanes_along_the_output_need_no_sum_of_lanes() -> None:
    for sink in (gradient(64, 64, 16, 16, size=32), gradient(64, 8, 4, 4)):
        assert not plan_dots(Plan(sink, AVX2))


def test_targets_without_masks_are_left_alone_where_one_is_needed() -> None:
    assert not plan_dots(Plan(gradient(64, 64, 16, 15), SMALL))


@pytest.mark.parametrize(
    ("batch", "channels", "out", "size", "kernel"),
    [
        (4, 5, 9, 16, 3),
        (3, 4, 7, 15, 3),
        (2, 3, 6, 28, 5),
        (1, 6, 8, 17, 3),
        (5, 2, 5, 33, 3),
        (2, 3, 4, 40, 7),
        (7, 3, 2, 12, 2),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_values(batch: int, channels: int, out: int, size: int, kernel: int, threads: int) -> None:
    rng = np.random.default_rng(0)
    span = size + kernel - 1
    x = rng.integers(-3, 4, (batch, channels, span, span)).astype(np.float32)
    w = Tensor.zeros(out, channels, kernel, kernel).realize().requires_grad_()
    d = rng.integers(-3, 4, (batch, out, size, size)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    with Context(threads=threads):
        Tensor(x).conv2d(w).backward(Tensor(d))
        assert w.grad is not None
        got = w.grad.numpy()
    np.testing.assert_array_equal(got, np.einsum("nohw,nchwij->ocij", d, windows))


def test_beyond_the_edge_of_a_sum_nothing_is_added() -> None:
    sink = gradient(3, 2, 4, 13)
    padded = apply_action(sink, Action("pad", 4, 8), AVX2)
    assert [size_of(a) for a in axes_of(padded)] == [3, 3, 2, 4, 16]
    assert sum(len(n.src) > 2 for n in padded.toposort() if n.op is Ops.INDEX) == 2
    buffers = kernels.buffers_for(sink)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(lowered(with_actions(sink, Action("pad", 4, 8), Action("lanes", 4, 8))), got)
    for want, came in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(came, want)


def test_a_sum_of_anything_else_is_not_padded() -> None:
    i, k = kernels.loop(4, 0), kernels.axis(10, 1)
    x = kernels.param(1, 40).index(i * 10 + k)
    sink = kernels.kernel(kernels.param(0, 4).index(i).store(kernels.reduce(x, k)).end(i))
    with pytest.raises(ActionError, match="not to a sum of products"):
        apply_action(sink, Action("pad", 1, 4), AVX2)


@pytest.mark.parametrize("target", [TARGET, AVX2, dataclasses.replace(AVX2, cores=2), SMALL])
@pytest.mark.parametrize(
    ("out", "batch", "height", "width", "size"),
    [(9, 4, 3, 17, 3), (7, 6, 2, 28, 3), (13, 8, 2, 32, 5), (6, 4, 5, 15, 2)],
)
def test_the_interpreter_agrees(
    target: Target, out: int, batch: int, height: int, width: int, size: int
) -> None:
    assert_plan_keeps_values(gradient(out, batch, height, width, size), target)
