"""Random programs, with actions that a search finds whose measure is a die.

What a search may choose is far more than what the heuristic does: here chance says which candidate
is the fastest, the one that is chosen is compiled and run, and has to agree with numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from pellucid.core.options import Context
from pellucid.engine import beam
from pellucid.ir.uop import UOp
from pellucid.opt.searching.search import Limits, search
from tests.property.programs import Program, programs
from tests.property.test_programs import LARGE_SIZES, check

Many = Callable[[st.SearchStrategy[Any], Callable[[Any], None], int], None]


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let chance decide (but the same in every run); the number of actions of each result."""
    found: list[int] = []

    def counted(*given: Any, **options: Any) -> Any:
        report = search(*given, **options)
        found.append(len(report.actions))
        return report

    def thrown(self: beam.Bench, candidate: UOp) -> float:
        return int(candidate.key[:8], 16) / (1 + len(candidate.arg.applied)) ** 2

    monkeypatch.setattr(beam.Bench, "set_reference", lambda self: None)
    monkeypatch.setattr(beam.Bench, "measure", thrown)
    monkeypatch.setattr(beam, "search", counted)
    limits = Limits(seconds=1.0, candidates=16, steps=4, each_step=5)
    monkeypatch.setattr(Limits, "for_width", staticmethod(lambda width: limits))
    return found


def test_programs_agree_with_numpy_whatever_is_fastest(many: Many, chance: list[int]) -> None:
    def searched(program: Program) -> None:
        with Context(beam=1):
            check(program, "CPU:LLVM", True, True)

    many(programs(), searched, 40)
    assert max(chance) >= 2


def test_larger_programs_agree_too(
    many: Many, chance: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.property.programs.SIZES", LARGE_SIZES)
    monkeypatch.setattr("tests.property.programs.MOST_ELEMS", 50_000)

    def searched(program: Program) -> None:
        with Context(beam=2, verify=False):
            check(program, "CPU:LLVM", True, True)

    many(programs(), searched, 15)
    assert max(chance) >= 2
