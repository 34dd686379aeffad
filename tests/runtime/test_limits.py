"""The limits of the machine: measured once, kept on disk under the identity of the machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pellucid.core.errors import CompileError
from pellucid.core.options import Context
from pellucid.core.target import Target, host_target
from pellucid.runtime import limits as module
from pellucid.runtime import limits_kernels
from pellucid.runtime.limits import Limits, Measured, machine_limits
from pellucid.runtime.limits_kernels import (
    CACHED_BYTES,
    FLOAT_BYTES,
    STREAM_BYTES,
    Kernel,
    copy_kernel,
    fma_kernel,
    read_kernel,
)

RATES = {"fma": 1e11, "read": 1e10, "copy": 2e10, "stream": 3e10}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was measured, for how many threads; nothing really is."""
    asked: list[int] = []

    def measure(threads: int, seconds: float) -> Measured:
        asked.append(threads)
        return Measured(dict(RATES))

    monkeypatch.setattr(module, "measured", measure)
    monkeypatch.setattr(module, "call_seconds", lambda threads: 1e-6)
    module._known_limits.cache_clear()
    return asked


def takes(monkeypatch: pytest.MonkeyPatch, *found: Measured) -> list[int]:
    """Let measuring two threads give *found*, one after the other."""
    asked: list[int] = []

    def measure(threads: int, seconds: float) -> Measured:
        asked.append(threads)
        return Measured(dict(RATES)) if threads == 1 else found[asked.count(2) - 1]

    monkeypatch.setattr(module, "measured", measure)
    return asked


def test_limits_are_measured_once(measured: list[int], tmp_path: Path) -> None:
    with Context(cache_dir=str(tmp_path)):
        first = machine_limits(1)
        assert first == Limits(1, RATES, 1e-6)
        assert first is not None
        assert first.memory == 3e10
        assert machine_limits(1) is first
        module._known_limits.cache_clear()  # as another process would find it
        assert machine_limits(1) == first
        assert measured == [1]
        machine_limits(2)
    assert measured == [1, 2]


def test_another_machine_measures_again(
    measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Context(cache_dir=str(tmp_path)):
        machine_limits(1)
        monkeypatch.setattr(module, "machine_identity", lambda: "a faster one")
        machine_limits(1)
    assert measured == [1, 1]


def test_a_machine_without_a_compiler_has_unknown_limits(
    measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(threads: int, seconds: float) -> Measured:
        raise CompileError("no compiler here", stage="compile", kernel="fma")

    monkeypatch.setattr(module, "measured", fail)
    with Context(cache_dir=str(tmp_path)):
        assert machine_limits(1) is None


# ---- kernels ------------------------------------------------------------------------------------

AVX2 = Target(arch="x86-64", features=frozenset({"avx2", "fma"}))
AVX512 = Target(arch="x86-64", features=frozenset({"avx2", "fma", "avx512f"}))
HERE = host_target()


def summed(kernel: Kernel) -> float:
    """What all lanes of a reading kernel have added up, of ones."""
    streams = [module._filled(STREAM_BYTES // FLOAT_BYTES, 1.0) for _ in range(2)]
    module._bound(kernel, streams, 1).run([kernel.steps])
    lanes = max(HERE.vector_bytes, 16) // FLOAT_BYTES
    return float(streams[1].as_numpy()[:lanes].sum())


@pytest.mark.parametrize(("target", "count"), [(AVX2, 12), (AVX512, 24)])
def test_sums_enough_are_under_way_to_hide_their_latency(target: Target, count: int) -> None:
    """Two units, whose results come after four cycles; the registers hold them all."""
    assert 8 < count < target.num_vector_registers
    for kernel in (fma_kernel(target), read_kernel(target, 1, "l1", 16 << 10)):
        step = kernel.text.partition("loop:")[2].partition("done:")[0]
        sums = re.findall(r"%a\d+ = phi <(\d+) x float>", step)
        assert sums == [str(target.vector_bytes // FLOAT_BYTES)] * count, kernel.name


def test_counting_steps_takes_no_time_of_the_work() -> None:
    """One addition to a counter stands beside 96 multiplications; no step has to divide."""
    kernel = fma_kernel(AVX512)
    assert kernel.text.count(" = call <16 x float> @llvm.fma") == 4 * 24
    assert kernel.amount == 2.0 * kernel.steps * 4 * 24 * 16
    assert not re.search("urem|udiv|srem|sdiv", read_kernel(AVX512, 1).text)


def test_what_fits_a_cache_is_read_again_and_again() -> None:
    small, large = read_kernel(AVX2, 1, "l1", 15 << 10), read_kernel(AVX2, 1, streams=8)
    assert large.amount == STREAM_BYTES
    assert "icmp eq i64 %ahead, 480" in small.text, "40 steps of 12 vectors of 32 bytes"
    assert 0.9 * CACHED_BYTES < small.amount <= CACHED_BYTES
    assert small.steps == small.amount // (12 * 32)


@pytest.mark.parametrize("streams", [1, 8, 16])
def test_streams_go_through_all_of_the_memory(
    streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_kernels, "CACHED_BYTES", 1)
    kernel = read_kernel(HERE, 1, "read", 48 << 10, streams)
    apart = 48 << 10 if streams == 1 else (48 << 10) // streams
    assert kernel.amount == 48 << 10
    assert (f"add i64 %at, {apart // HERE.vector_bytes}" in kernel.text) == (streams > 1)
    assert summed(kernel) == kernel.amount / FLOAT_BYTES


@pytest.mark.parametrize("streams", limits_kernels.COPY_STREAMS)
@pytest.mark.parametrize("past_caches", [False, True])
def test_copies_copy_all(streams: int, past_caches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_kernels, "STREAM_BYTES", 32 << 10)
    kernel = copy_kernel(HERE, 1, past_caches=past_caches, streams=streams)
    assert kernel.amount == 2 * (32 << 10)
    buffers = [module._filled((32 << 10) // FLOAT_BYTES, 0.0) for _ in range(2)]
    numbers = np.arange((32 << 10) // FLOAT_BYTES, dtype=np.float32)
    buffers[0].as_numpy()[:] = numbers
    module._bound(kernel, buffers, 1).run([kernel.steps])
    np.testing.assert_array_equal(buffers[1].as_numpy(), numbers)


def test_memory_is_gone_through_in_several_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_bound", lambda kernel, buffers, threads: kernel)
    kernels = [kernel for kernel, _ in module._works(1)]
    names = [kernel.name for kernel in kernels]
    assert [names.count(name) for name in ("read", "copy", "stream")] == [3, 2, 2]
    assert len({kernel.text for kernel in kernels}) == len(kernels)


def test_a_short_kernel_runs_until_its_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run finds a processor that has not come to its full speed."""
    runs: list[list[int]] = []

    class Counted:
        def run(self, variables: list[int]) -> None:
            runs.append(variables)

    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    module._take_turn(Measured(), Kernel("fma", "", 7, 1.0), Counted(), 1)  # type: ignore[arg-type]
    assert runs == [[7]]
    monkeypatch.setattr(module, "TURN_SECONDS", 0.01)
    module._take_turn(Measured(), Kernel("fma", "", 7, 1.0), Counted(), 1)  # type: ignore[arg-type]
    assert len(runs) > 10


# ---- doubtful figures ---------------------------------------------------------------------------


def scaled(factor: float, *names: str) -> dict[str, float]:
    """The rates of one thread, but for those of some names."""
    return {name: rate * factor if name in names else rate * 2 for name, rate in RATES.items()}


def test_what_is_doubtful_is_measured_again(
    measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = takes(
        monkeypatch, Measured(scaled(1.2, "fma"), {"fma", "copy"}), Measured(scaled(1.5, "read"))
    )
    with Context(cache_dir=str(tmp_path)):
        found = machine_limits(2)
        assert found is not None
        assert not found.doubtful
        assert found.rates == scaled(2, *RATES), "the best of both"
        assert asked == [1, 2, 2]
        module._known_limits.cache_clear()
        assert machine_limits(2) == found
    assert asked == [1, 2, 2], "it was kept"


@pytest.mark.parametrize(
    "spoilt", [Measured(scaled(2, "fma"), {"fma"}), Measured(scaled(0.8, "fma"))]
)
def test_a_doubtful_figure_is_not_kept(
    spoilt: Measured, measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that had to wait for a core, or that did less than one does."""
    asked = takes(monkeypatch, *[spoilt] * 6)
    with Context(cache_dir=str(tmp_path)):
        found = machine_limits(2)
        assert found is not None
        assert found.doubtful == ("fma",)
        assert asked == [1, 2, 2, 2]
        assert machine_limits(2) is found, "in this process it will do"
        module._known_limits.cache_clear()
        machine_limits(2)
    assert asked == [1, 2, 2, 2, 2, 2, 2], "one thread was kept, two were not"


def test_a_run_that_waited_leaves_its_figure_doubtful() -> None:
    found = Measured(doubtful={"fma"})
    found.note("fma", 2e9, 0.5)
    assert found.doubtful == {"fma"}
    found.note("fma", 1e9, 0.98)
    assert (found.rates, found.doubtful) == ({"fma": 2e9}, set())


def test_every_kernel_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_ROUNDS", 1)
    for threads in (1, 2):
        found = module.measured(threads, 0.0)
        assert {"fma", "l1", "l2", "read", "copy", "stream"} <= set(found.rates)
        assert {unit.name for unit in limits_kernels.dot_units(host_target())} <= set(found.rates)
        assert all(rate > 0 for rate in found.rates.values())
