"""What one row needs is kept in local memory by the kernel that needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import Tensor
from pellucid.core.target import Target, host_target
from pellucid.ir.arg import AddrSpace
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from tests.codegen.kernels import buffers_for
from tests.codegen.lowering import SMALL, TARGET, stages
from tests.schedule.graphs import check, keep, kernels, num_calls, reduce, tensor

CORES = 2
"""Rows are shared out among so many cores, so 8 rows are enough."""


def with_cache(l2_bytes: int) -> str:
    """This machine with a second cache of another size."""
    target = dataclasses.replace(host_target(), cores=CORES, l2_bytes=l2_bytes)
    return target.key.partition(";")[0]


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the smallest tensors are larger than the second cache here."""
    monkeypatch.setenv("PELLUCID_TARGET", with_cache(1024))


def stored(x: UOp) -> UOp:
    """The value in memory, as far as the graph is concerned."""
    return UOp.make(Ops.CONTIGUOUS, x)


def flipped(x: UOp) -> UOp:
    """Each row from its end."""
    return x.flip((len(x.known_shape) - 1,))


def rows_in(kernel: UOp) -> list[int]:
    """The sizes of local memory."""
    found = [n.arg for n in kernel.toposort() if n.op is Ops.DEFINE]
    assert all(arg.space is AddrSpace.LOCAL for arg in found)
    return sorted(arg.size for arg in found)


def check_lowered(kernel: UOp, target: Target) -> None:
    """The kernel with the actions that are chosen for it gives what its plain loops give."""
    buffers: list[Any] = buffers_for(kernel)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(kernel, wanted)
    run_kernel(stages(kernel, target)[-1][2], got)
    for want, have in zip(wanted, got, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


def test_a_row_that_is_read_backwards_stays_in_the_kernel() -> None:
    x = tensor((40, 30))
    (kernel,) = kernels(check([x + flipped(stored(x * 2.0))]))
    assert rows_in(kernel) == [30]


def test_steps_of_a_row_take_turns_in_two_places() -> None:
    x = tensor((40, 30))
    for _ in range(5):
        x = stored(x + flipped(x))
    (kernel,) = kernels(check([flipped(x)]))
    assert rows_in(kernel) == [30, 30]


def test_a_row_that_is_needed_to_the_end_keeps_its_place() -> None:
    first = stored(tensor((40, 30)) * 2.0)
    x = stored(first + flipped(first))
    x = stored(x + flipped(x))
    (kernel,) = kernels(check([flipped(x) + flipped(first)]))
    assert rows_in(kernel) == [30, 30, 30]


def test_sums_of_blocks_are_kept_for_the_row() -> None:
    x = tensor((40, 6, 8))
    total = reduce(x, 2)
    before = total * 0.5 + flipped(total)
    (kernel,) = kernels(check([x + keep(before, 2, 8)]))
    assert rows_in(kernel) == [6]


def test_rows_of_two_axes_are_kept() -> None:
    x = tensor((40, 6, 8))
    (kernel,) = kernels(check([x + stored(x * x).flip((1, 2))]))
    assert rows_in(kernel) == [48]


def test_what_others_read_is_stored() -> None:
    made = stored(tensor((40, 30)) * 2.0)
    assert num_calls(flipped(made) * 3.0, made) == 2
    assert num_calls(flipped(made) * 3.0, reduce(made, 0)) == 3


def test_other_rows_are_not_kept() -> None:
    made = stored(tensor((40, 40)) * 2.0)
    assert num_calls(made.permute((1, 0)) + 1.0) == 2
    assert num_calls(made + made.flip((0,))) == 2


def test_few_rows_are_shared_out_among_cores_as_a_whole() -> None:
    made = stored(tensor((4, 300)) * 2.0)
    assert num_calls(flipped(made)) == 2


def test_long_rows_are_stored() -> None:
    made = stored(tensor((40, 1000)) * 2.0)
    assert num_calls(flipped(made)) == 2


def test_a_padded_picture_is_stored_for_the_windows_of_a_convolution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its kernel makes tiles of many pixels, and copies of the weights that serve all pictures."""
    monkeypatch.setenv("PELLUCID_TARGET", with_cache(8192))
    x, w = Tensor.zeros(16, 4, 6, 6).contiguous(), Tensor.zeros(8, 4, 3, 3).contiguous()
    calls = x.realize().conv2d(w.realize(), padding=1).schedule_linear().src
    assert len(calls) == 2
    assert not any(n.op is Ops.DEFINE for call in calls for n in call.src[0].toposort())


def test_what_follows_element_by_element_joins_the_kernel() -> None:
    x = tensor((40, 30))
    y = x + flipped(stored(x * 2.0))
    assert num_calls(y, y * 3.0) == 1


def test_a_row_that_takes_the_place_of_another_is_written_after_that_is_read() -> None:
    """A loop that writes to local memory does not read again what was read before it."""
    x = tensor((24, 20))
    for _ in range(2):
        x = stored(x).shrink(((0, 24), (0, 19))).pad(((0, 0), (1, 0)), 0)
    largest = flipped(reduce(x.reshape((24, 5, 4)), 2, op=Ops.MAX))
    for kernel in kernels(check([keep(largest, 2, 4)])):
        check_lowered(kernel, TARGET)
        check_lowered(kernel, SMALL)


class Grower:
    """Grows values of rows: stored ones, sums of blocks, neighbours."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.width = draw(st.sampled_from((4, 12, 20)))
        self.pool = [tensor((24, self.width))]

    def grow(self) -> None:
        x = self.pool[self.draw(st.integers(0, len(self.pool) - 1))]
        kind = self.draw(st.integers(0, 4))
        if kind == 0:
            made = stored(x * 0.5 + 1.0)
        elif kind == 1:
            made = flipped(x) + self.pool[-1]
        elif kind == 2:
            parts = x.reshape((24, self.width // 4, 4))
            made = keep(flipped(reduce(parts, 2, op=Ops.MAX)), 2, 4).reshape((24, self.width))
        elif kind == 3:
            whole = ((0, 24), (0, self.width - 1))
            made = stored(x).shrink(whole).pad(((0, 0), (1, 0)), 0)
        else:
            made = x.flip((0,)) * 0.5
        self.pool.append(made)


@st.composite
def programs(draw: st.DrawFn) -> list[UOp]:
    grower = Grower(draw)
    for _ in range(draw(st.integers(2, 9))):
        grower.grow()
    extra = [x for x in grower.pool[1:-1] if draw(st.integers(0, 5)) == 0]
    return [grower.pool[-1], *extra]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(programs())
def test_schedules_of_rows_mean_what_the_graph_means(outputs: list[UOp]) -> None:
    for kernel in dict.fromkeys(kernels(check(outputs))):
        check_lowered(kernel, TARGET)
        check_lowered(kernel, SMALL)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
@pytest.mark.parametrize("shape", [(40, 100), (40, 257), (40, 3, 40)])
def test_running_results_of_rows_are_one_kernel(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(0.75, 1.25, shape).astype(np.float32)
    running: dict[str, Callable[..., Any]] = {
        "cumsum": np.cumsum,
        "cumprod": np.cumprod,
        "cummax": np.maximum.accumulate,
    }
    got = getattr(Tensor(x), name)(-1)
    assert len(got.schedule_linear().src) == 1
    np.testing.assert_allclose(got.numpy(), running[name](x.astype(np.float64), -1), rtol=1e-5)


def test_rows_are_sorted_in_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_TARGET", with_cache(4096))
    x = np.random.default_rng(0).standard_normal((40, 37)).astype(np.float32)
    places = Tensor(x).argsort()
    assert len(places.schedule_linear().src) == 1
    np.testing.assert_array_equal(places.numpy(), np.argsort(x, -1, kind="stable"))
