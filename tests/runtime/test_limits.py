"""The limits of the machine: measured once, kept on disk under the identity of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.core.errors import CompileError
from pellucid.core.options import Context
from pellucid.core.target import Target
from pellucid.runtime import limits as module
from pellucid.runtime.limits import STREAM_BYTES, Limits, machine_limits, read_kernel

RATES = {"fma": 1e11, "read": 1e10, "copy": 2e10, "stream": 3e10}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was measured, for how many threads; nothing really is."""
    asked: list[int] = []

    def measure(threads: int, seconds: float) -> dict[str, float]:
        asked.append(threads)
        return dict(RATES)

    monkeypatch.setattr(module, "measured_limits", measure)
    monkeypatch.setattr(module, "call_seconds", lambda threads: 1e-6)
    module._known_limits.cache_clear()
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
    def fail(threads: int, seconds: float) -> dict[str, float]:
        raise CompileError("no compiler here", stage="compile", kernel="fma")

    monkeypatch.setattr(module, "measured_limits", fail)
    with Context(cache_dir=str(tmp_path)):
        assert machine_limits(1) is None


def test_what_fits_a_cache_is_read_again_and_again() -> None:
    target = Target(arch="x86-64", features=frozenset({"avx2"}))
    small, large = read_kernel(target, 1, "l1", 16 << 10), read_kernel(target, 1)
    assert large.amount == STREAM_BYTES
    assert "urem i64 %i, 64" in small.text, "64 steps of 8 vectors of 32 bytes"
    assert small.amount == module.CACHED_BYTES
    assert small.steps == module.CACHED_BYTES // (8 * 32)
