"""Workers answer, results are compared before they are timed, and verdicts state true figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import client
from benchmarks.client import WorkerError, WorkerProcess, environment_for
from benchmarks.frameworks import PEERS
from benchmarks.frameworks.base import Unavailable
from benchmarks.measure import Bench, Figure, Plan, Row, Verdict, compare
from benchmarks.work import Measure, Ratio, Seconds, work_named
from benchmarks.worker import samples_of

MATMUL, FUSED, EXP = (work_named(n) for n in ("matmul 512", "fused elementwise 16M", "exp 4M"))
TINY = Plan(("numpy",), rounds=1, seconds=0.001, is_tiny=True)


@pytest.fixture(scope="module")
def numpy_worker() -> Iterator[WorkerProcess]:
    with WorkerProcess("numpy", 1, patience=60) as worker:
        yield worker


def figure(name: str, *samples: float) -> Figure:
    return Figure(name, list(samples))


def test_a_worker_prepares_compares_and_times(numpy_worker: WorkerProcess, tmp_path: Path) -> None:
    assert numpy_worker.ask("facts")["facts"]["version"] == np.__version__
    assert numpy_worker.ask("prepare", work="exp 4M", tiny=True)["first_seconds"] > 0
    (path,) = numpy_worker.ask("results", folder=str(tmp_path), calls=1)["paths"]
    assert np.array_equal(np.load(path), np.exp(EXP.arrays(is_tiny=True)["x"]))
    assert min(numpy_worker.ask("time", seconds=0.001)["samples"]) > 0
    numpy_worker.ask("drop")
    with pytest.raises(Unavailable, match="no work is prepared"):
        numpy_worker.ask("time", seconds=0.001)


def test_an_exception_in_a_worker_is_an_answer(numpy_worker: WorkerProcess) -> None:
    with pytest.raises(WorkerError, match="StopIteration"):
        numpy_worker.ask("prepare", work="no such work")
    assert numpy_worker.ask("facts"), "the worker goes on"


def test_a_worker_that_dies_is_reported_and_started_again() -> None:
    with WorkerProcess("no-such-framework", 1, patience=60) as worker:
        with pytest.raises(WorkerError, match="KeyError"):
            worker.ask("facts")
        assert worker._process is not None
        worker._process.kill()
        with pytest.raises(WorkerError, match="ended with status -9"):
            worker.ask("facts")
        with pytest.raises(WorkerError, match="KeyError"):
            worker.ask("facts")


def test_a_silent_worker_is_ended() -> None:
    with (
        WorkerProcess("numpy", 1, patience=0.001) as worker,
        pytest.raises(WorkerError, match="said nothing"),
    ):
        worker.ask("facts")


def test_a_missing_peer_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "PEERS_PYTHON", tmp_path / "python")
    with pytest.raises(Unavailable, match="make bench-peers"):
        WorkerProcess("jax", 1).ask("facts")
    row = next(Bench(Plan(("jax",), is_tiny=True), 1).run([MATMUL]))
    assert row.figures["jax"].note == "not available: not installed: make bench-peers"
    assert client.python_for("numpy") == sys.executable


def test_the_environment_of_a_worker() -> None:
    given = {
        "OPENBLAS_CORETYPE": "Haswell",
        "OPENBLAS_L2_SIZE": "1",
        "PELLUCID_DEBUG": "2",
        "PYTHONDONTWRITEBYTECODE": "1",
        "A": "b",
    }
    made = environment_for(2, "/caches", given)
    assert "OPENBLAS_CORETYPE" not in made
    assert "OPENBLAS_L2_SIZE" not in made
    assert "PELLUCID_DEBUG" not in made
    assert "PYTHONDONTWRITEBYTECODE" not in made
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PELLUCID_THREADS")
    assert [made[name] for name in threads] == ["2"] * 3
    assert made["PELLUCID_CACHE_DIR"] == "/caches/pellucid"
    assert made["A"] == "b"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_workers_stay_on_the_first_cores() -> None:
    before = os.sched_getaffinity(0)
    with client.on_first_cores(1):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_a_bench_gives_a_row_with_first_call_and_samples() -> None:
    with Bench(TINY, 1) as bench:
        (row,) = bench.run([EXP])
    found = row.figures["numpy"]
    assert found.samples
    assert (found.first_seconds or 0) > 0
    assert row.verdicts()[0].value is None, "nothing of ours was measured"
    assert row.as_data()["figures"][0]["best"] == found.best


def test_the_limits_of_the_machine() -> None:
    from pellucid.runtime.limits import measured_limits

    limits = measured_limits(1, 0.01)
    assert {"fma", "read", "copy", "stream"} <= set(limits)
    assert all(1e8 < value < 1e14 for value in limits.values())


def test_samples_of_quick_calls_are_taken_several_at_a_time() -> None:
    calls = []
    samples = samples_of(lambda: calls.append(1), 0.0)
    assert len(samples) == 1
    assert len(calls) > 10


def test_the_better_way_counts_unless_the_work_is_jitted() -> None:
    both = {n: figure(n, t) for n, t in (("pellucid", 1.0), ("pellucid-jit", 2.0))}
    assert Row(MATMUL, 1, both).own is both["pellucid"]
    assert Row(work_named("ResNet-18 forward"), 1, both).own is both["pellucid-jit"]


def test_verdicts_compare_best_times() -> None:
    figures = {
        "pellucid": figure("pellucid", 3.0, 2.0),
        "numpy": figure("numpy", 4.0, 5.0),
        "torch": figure("torch", 1.0),
    }
    numpy_verdict, torch_verdict = Row(MATMUL, 1, figures).verdicts()
    assert numpy_verdict == Verdict(Ratio(("numpy",), 1.0), 0.5, "numpy")
    assert numpy_verdict.holds
    assert torch_verdict.value == 2.0
    assert torch_verdict.holds is False
    (best_peer,) = Row(EXP, 1, figures).verdicts()
    assert best_peer == Verdict(Ratio(PEERS, 1.0), 2.0, "torch")
    fused = Row(FUSED, 1, figures).verdicts()
    assert [verdict.value for verdict in fused] == [0.5, None, None]


def test_verdicts_in_seconds() -> None:
    work = work_named("first call: MLP")
    figures = {"pellucid-jit": figure("pellucid-jit", 1.5), "torch": figure("torch", 9.0)}
    (verdict,) = Row(work, 1, figures).verdicts()
    assert verdict == Verdict(Seconds(1.0), 1.5)
    assert verdict.holds is False
    assert work.measure is Measure.FIRST


def test_wrong_results_are_not_timed() -> None:
    row = Row(EXP, 1, {name: Figure(name) for name in ("numpy", "torch", "pellucid")})
    right, wrong = np.ones(3), np.array([1.0, 1.0, 1.1])
    compare(row, {"pellucid": [wrong], "torch": [right], "numpy": [right]})
    assert row.figures["torch"].note == ""
    assert row.figures["torch"].difference == 0
    assert row.figures["pellucid"].note == "wrong: off by 1.0e-01, allowed 1e-04"


def test_later_steps_are_compared_with_the_first_peer_that_trains() -> None:
    row = Row(EXP, 1, {name: Figure(name) for name in ("numpy", "torch", "pellucid")})
    one, two = np.ones(1), np.ones(1) * 2
    compare(row, {"numpy": [one], "torch": [one, two], "pellucid": [one, one]})
    assert row.figures["torch"].note == ""
    assert row.figures["pellucid"].note.startswith("wrong: off by 5.0e-01")
