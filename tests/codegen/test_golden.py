"""The graph before and after each pass, as text, for kernels that show what the pass does.

`pytest --bless` rewrites tests/golden/<pass>/<kernel>.uop; the difference is reviewed like code.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pellucid.codegen.linearize import linearize
from pellucid.ir.arg import Action
from pellucid.ir.text import from_text, to_text
from pellucid.ir.uop import UOp
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, stages, with_actions


def hinted_rows() -> UOp:
    """Rows that are asked for ahead, and written past the caches."""
    lanes = (Action("lanes", axis, 16) for axis in (3, 2, 1))
    hints = (Action("prefetch", 0, 1), Action("stream", 0, 0))
    return with_actions(kernels.softmax(3, 64), *hints, *lanes)


SHOWN: dict[str, Callable[[], UOp]] = {
    "elementwise": lambda: kernels.elementwise(35),
    "reduce_rows": lambda: kernels.reduce_rows(3, 100),
    "places": lambda: kernels.places(3, 128),
    "matmul": lambda: kernels.matmul(4, 20, 16),
    "pad_and_sum": kernels.pad_and_sum,
    "one_hot_matmul": lambda: kernels.one_hot_matmul(3, 11, 8),
    "arange": lambda: kernels.arange(8),
    "reshape_split": kernels.reshape_split,
    "flip": lambda: kernels.flip(16),
    "halves": lambda: kernels.halves(8),
    "threads": lambda: kernels.fused(1 << 21),
    "scatter": kernels.scatter,
    "copy_then_scatter": kernels.copy_then_scatter,
    "dear_rows": lambda: kernels.dear_rows(3, 64),
    "hints": hinted_rows,
}


def changes() -> list[tuple[str, str]]:
    """(pass, kernel) wherever a pass changes a kernel."""
    found = []
    for name, make in SHOWN.items():
        before = make()
        for run, _, after in stages(before)[1:]:
            if after is not before:
                found.append((run, name))
            before = after
        found.append(("linearize", name))
    return found


@pytest.mark.parametrize(("run", "name"), changes())
def test_golden(run: str, name: str, golden: Callable[[str, str], None]) -> None:
    graphs = stages(SHOWN[name]())
    graphs.append(("linearize", graphs[-1][1], linearize(graphs[-1][2])))
    place = [step for step, _, _ in graphs].index(run)
    before, after = graphs[place - 1][2], graphs[place][2]
    assert from_text(to_text(after)) is after
    shown = f"# before\n{to_text(before, names=True)}\n# after\n{to_text(after, names=True)}\n"
    golden(f"{run}/{name}.uop", shown)


def test_every_pass_is_shown() -> None:
    assert {run for run, _ in changes()} == {
        *(step for step, _, _ in stages(SHOWN["elementwise"]())[1:]),
        "linearize",
    }


def test_target_is_the_same_everywhere() -> None:
    assert TARGET.vector_bytes == 64
