"""Golden and random kernels with every action that is legal on them, forced, and lists of several.

Machine code is held against the interpreter; so is a sample in C, and a sample that the interpreter
runs itself, which finds races. A run of all tests takes one amount of each action on each axis, and
other ones every day (PROPERTY_SEED); PROPERTY_SCALE takes more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from pellucid.core.observe import observed_by
from pellucid.core.options import Context
from pellucid.engine import beam
from pellucid.ir.uop import UOp
from pellucid.opt.searching.search import Limits
from pellucid.pipeline import renderer_for
from pellucid.tools.kernels import ScheduleCollector, kernels_of
from tests.codegen.kernels import KERNELS
from tests.codegen.test_golden import SHOWN
from tests.property import actions
from tests.property.actions import Actions, Subject, Tally
from tests.property.conftest import SCALE, SEED
from tests.property.programs import Program, outputs_of, programs, tensors_of
from tests.property.test_programs import check

Many = Callable[[st.SearchStrategy[Any], Callable[[Any], None], int], None]

AMOUNTS = max(1, int(SCALE))
"""How many amounts of an action on an axis are tried."""
SEVERAL = 3
"""How many lists of several actions each kernel gets."""
SAMPLE = 12
"""One in so many lists is also compiled as C, and run by the interpreter."""


def lists_for(one: Subject, numbers: random.Random) -> list[Actions]:
    """Every legal action alone, and a few lists of several."""
    target = renderer_for("CPU:LLVM").target
    found: list[Actions] = [(a,) for a in actions.singles(one.sink, target, numbers, AMOUNTS)]
    several = (actions.several(one.sink, target, numbers) for _ in range(SEVERAL * AMOUNTS))
    return list(dict.fromkeys((*found, *filter(None, several))))


def sweep(ast: UOp, numbers: random.Random, tally: Tally) -> None:
    """Run a kernel with all of its lists."""
    one = actions.subject(ast, numbers.randrange(1 << 30))
    if one is None:
        return
    lists = lists_for(one, numbers)
    actions.check(one, lists, "CPU:LLVM")
    sample = [chosen for chosen in lists if numbers.randrange(SAMPLE) == 0]
    if sample:
        actions.check(one, sample[:1], "CPU:C")
    for chosen in sample:
        actions.check_lowered(one, chosen, numbers.randrange(1 << 30))
    tally.add(lists)


def test_golden_kernels_with_every_action(record_property: Callable[[str, object], None]) -> None:
    asts = {make().key: make() for make in (*SHOWN.values(), *KERNELS.values())}
    tally = Tally()
    try:
        for name, ast in sorted(asts.items()):
            sweep(ast, random.Random(f"{SEED} {name}"), tally)
    finally:
        record_property("programs", f"{tally}, with PROPERTY_SEED={SEED}")
    assert tally.kernels >= 38
    assert tally.lists >= 500
    assert set(tally.kinds) >= {*("split", "lanes", "upcast", "unroll", "thread", "swap"), *OTHERS}


OTHERS = ("cascade", "hoist", "overlap", "pack", "pad", "stage")


def test_random_kernels_with_every_action(
    many: Many, record_property: Callable[[str, object], None]
) -> None:
    found: dict[str, UOp] = {}

    def collect(program: Program) -> None:
        listener = ScheduleCollector()
        with Context(optimize=False), observed_by(listener):
            tensors, outputs = tensors_of(program, is_computed=True), outputs_of(program)
            tensors[outputs[0]].realize(*(tensors[i] for i in outputs[1:]))
        for kernel in kernels_of(listener.linears):
            found.setdefault(kernel.ast.key, kernel.ast)

    many(programs(), collect, 30)
    tally = Tally()
    try:
        for key, ast in found.items():
            sweep(ast, random.Random(f"{SEED} {key}"), tally)
    finally:
        record_property("programs", f"{tally}, with PROPERTY_SEED={SEED}")
    assert tally.kernels >= 0.8 * len(found)


def test_a_search_that_measures_agrees_with_numpy(
    many: Many, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """A small beam with real measuring, in a child process, on programs of a few kernels."""
    beam.forget_searches()
    limits = Limits(seconds=0.3, candidates=6, steps=2, each_step=3)
    monkeypatch.setattr(Limits, "for_width", staticmethod(lambda width: limits))
    reports = []
    search = beam.search

    def noted(*given: Any, **options: Any) -> Any:
        reports.append(search(*given, **options))
        return reports[-1]

    monkeypatch.setattr(beam, "search", noted)

    def searched(program: Program) -> None:
        with Context(beam=1):
            check(program, "CPU:LLVM", True, True)

    many(programs(), searched, 6)
    measured = sum(report.measured for report in reports)
    wrong = [row for report in reports for row in report.dropped]
    record_property("programs", f"{measured} candidates measured, {len(wrong)} dropped")
    assert measured > 0
    assert not [kind for _, kind, _ in wrong if kind in ("wrong", "crashed")], wrong
