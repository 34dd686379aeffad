"""Random programs mean the same in numpy, in the interpreter, and as machine code of both kinds.

Optimised or not, with leaves that are folded or in memory: bit for bit where the operation is
exact, within the bound of its roundings where it is not (model.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from pellucid.core.options import Context
from pellucid.engine.memory import buffer_of
from pellucid.ir.interpret import evaluate_all
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes
from tests.property.model import Known, disagreement
from tests.property.programs import (
    Program,
    model_of,
    numpy_of,
    outputs_of,
    programs,
    tensors_of,
)
from tests.property.regressions import PROGRAMS

Many = Callable[[st.SearchStrategy[Any], Callable[[Any], None], int], None]

# device, optimised, leaves in memory, programs in a run of all tests
PATHS = {
    "llvm": ("CPU:LLVM", True, True, 400),
    "llvm, folded": ("CPU:LLVM", True, False, 250),
    "llvm, plain loops": ("CPU:LLVM", False, True, 250),
    "c": ("CPU:C", True, True, 80),
    "c, plain loops": ("CPU:C", False, False, 50),
}


def check(program: Program, device: str, optimize: bool, is_computed: bool) -> None:
    """Compare all that a program computes with the model."""
    expected = model_of(program)
    with Context(device=device, optimize=optimize):
        tensors = tensors_of(program, is_computed=is_computed)
        outputs = outputs_of(program)
        tensors[outputs[0]].realize(*(tensors[i] for i in outputs[1:]))
        for place in outputs:
            compare(program, place, expected[place], tensors[place].dtype, numpy_of(tensors[place]))


def compare(program: Program, place: int, expected: Known, dtype: Any, got: Any) -> None:
    """Fail with the program, as it can be written into a test."""
    problem = disagreement(expected, got)
    if dtype is not expected.dtype:
        problem = f"the dtype is {dtype}, not {expected.dtype}"
    assert problem is None, f"value {place} is wrong {problem}\n{program!r}"


LARGE_SIZES = (1, 2, 16, 33, 64, 100, 130, 257, 512, 1000)
"""Sizes for which the heuristic takes tiles, several accumulators and threads."""


@pytest.mark.parametrize(("device", "count"), [("CPU:LLVM", 150), ("CPU:C", 30)])
def test_larger_programs_agree_with_numpy(
    device: str, count: int, many: Many, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.property.programs.SIZES", LARGE_SIZES)
    monkeypatch.setattr("tests.property.programs.MOST_ELEMS", 150_000)
    many(programs(), lambda program: check(program, device, True, True), count)


def test_programs_keep_every_form(many: Many) -> None:
    def verified(program: Program) -> None:
        with Context(verify=True):
            check(program, "CPU:LLVM", True, True)

    many(programs(), verified, 150)


@pytest.mark.parametrize("path", PATHS)
def test_programs_agree_with_numpy(path: str, many: Many) -> None:
    device, optimize, is_computed, count = PATHS[path]
    many(programs(), lambda program: check(program, device, optimize, is_computed), count)


def interpreted(uops: list[UOp]) -> list[Any]:
    """What the interpreter makes of whole tensors."""
    leaves = [node for node in all_nodes(uops) if node.op is Ops.BUFFER]
    return evaluate_all(uops, {node: buffer_of(node).as_numpy() for node in leaves})


def check_interpreter(program: Program) -> None:
    """Compare the value of the tensor graph, as the interpreter defines it, with the model."""
    lazy = [step for step in program if step[0] != "realize"]
    if len(lazy) != len(program):
        program = [("contiguous", *step[1:]) if step[0] == "realize" else step for step in program]
    expected = model_of(program)
    tensors = tensors_of(program, is_computed=False)
    outputs = outputs_of(program)
    values = interpreted([tensors[i].uop for i in outputs])
    for place, value in zip(outputs, values, strict=True):
        got = np.asarray(value)
        compare(program, place, expected[place], tensors[place].dtype, got)


def test_the_interpreter_agrees_with_numpy(many: Many) -> None:
    many(programs(), check_interpreter, 600)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_that_failed_once(number: int) -> None:
    program = PROGRAMS[number]
    check_interpreter(program)
    for device, optimize, is_computed, _ in PATHS.values():
        check(program, device, optimize, is_computed)
