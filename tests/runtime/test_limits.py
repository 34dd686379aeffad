"""The limits of the machine: measured once, kept on disk under the identity of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.core.errors import CompileError
from pellucid.core.options import Context
from pellucid.core.target import Target
from pellucid.runtime import limits as module
from pellucid.runtime import limits_kernels
from pellucid.runtime.limits import Limits, Measured, machine_limits
from pellucid.runtime.limits_kernels import STREAM_BYTES, read_kernel

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


def test_what_fits_a_cache_is_read_again_and_again() -> None:
    target = Target(arch="x86-64", features=frozenset({"avx2"}))
    small, large = read_kernel(target, 1, "l1", 16 << 10), read_kernel(target, 1)
    assert large.amount == STREAM_BYTES
    assert "urem i64 %i, 64" in small.text, "64 steps of 8 vectors of 32 bytes"
    assert small.amount == limits_kernels.CACHED_BYTES
    assert small.steps == limits_kernels.CACHED_BYTES // (8 * 32)


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


def test_every_kernel_runs_here() -> None:
    for threads in (1, 2):
        found = module.measured(threads, 0.0)
        assert {"fma", "l1", "l2", "read", "copy", "stream"} <= set(found.rates)
        assert all(rate > 0 for rate in found.rates.values())
