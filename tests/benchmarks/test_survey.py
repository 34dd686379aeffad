"""The survey beside PyTorch: what it says of results, and of what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import survey


def test_results_must_agree() -> None:
    ones = np.ones(3, np.float32)
    assert survey.problem_of(ones, ones + np.float32(1e-4)) == ""
    assert survey.problem_of(ones, ones + np.float32(1e-2)) == "values differ"
    assert survey.problem_of(ones * np.float32("nan"), ones) == "values differ"
    assert survey.problem_of(ones, ones[:2]) == "shape (3,), torch (2,)"


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s "), (0.0031, "3.1 ms"), (4.2e-7, "0.42 us")]
)
def test_times_have_the_unit_that_suits(seconds: float, text: str) -> None:
    assert survey.text_of(seconds) == text


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr(survey, "import_torch", missing)
    assert survey.main(["matmul 32"]) == 2
    assert "make bench-peers installs it" in capsys.readouterr().out
    assert survey.main(["no such work"]) == 2
    assert capsys.readouterr().out.startswith("no work is like no such work; there are gelu 4M")
