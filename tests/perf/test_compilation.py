"""What compiling costs, as counts of operations: they do not depend on the machine's load.

`pytest --bless` writes tests/perf/budgets.json anew; a budget that grows is reviewed like code.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.kernels import KERNELS
from tests.perf.compilation import LARGE, Counts

ROOT = Path(__file__).parents[2]
BUDGETS = Path(__file__).with_name("budgets.json")
ALLOWED = 1.2
"""How far above its budget a count may be."""
SMALL = 25
"""Counts below this one are not looked at so closely."""


@functools.cache
def measured() -> dict[str, Counts]:
    command = [sys.executable, "-m", "tests.perf.compilation"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found: dict[str, Counts] = json.loads(done.stdout)
    return found


def budgets(request: pytest.FixtureRequest) -> dict[str, Counts]:
    if request.config.getoption("--bless"):
        rows = [f'  "{name}": {json.dumps(counts)}' for name, counts in measured().items()]
        BUDGETS.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    found: dict[str, Counts] = json.loads(BUDGETS.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", [*KERNELS, *LARGE, "chain of 4000 adds"])
def test_budget(name: str, request: pytest.FixtureRequest) -> None:
    budget = budgets(request)
    assert name in budget, f"{name} has no budget: run pytest --bless tests/perf, and review"
    for what, count in measured()[name].items():
        limit = ALLOWED * max(SMALL, budget[name][what])
        assert count <= limit, f"{name}: {what} {count}, the budget is {budget[name][what]}"


@pytest.mark.parametrize("what", ["tried", "fired", "nodes"])
def test_a_chain_costs_as_much_for_each_of_its_nodes_however_long_it_is(what: str) -> None:
    short, middle, long = (measured()[f"chain of {n} adds"][what] for n in (1000, 2000, 4000))
    assert middle <= 2.1 * max(SMALL, short)
    assert long <= 2.1 * max(SMALL, middle)
