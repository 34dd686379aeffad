"""Random programs keep their value when they are cut into kernels, and after every stage of each.

The interpreter runs the schedule of a program, then each of its kernels in the form that every
stage of the kernel pipeline leaves (tools/bisect.py). The forms are verified too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pellucid.core.dtype import dtypes
from pellucid.core.options import Context
from pellucid.engine.memory import buffer_of
from pellucid.ir.form import SCHEDULE
from pellucid.ir.interpret import from_storage, run_schedule
from pellucid.ir.op import Ops
from pellucid.ir.text import to_text
from pellucid.ir.uop import UOp, all_nodes
from pellucid.ir.verify import verify
from pellucid.pipeline import renderer_for
from pellucid.schedule.api import schedule
from pellucid.tools.bisect import bisect
from pellucid.tools.kernels import kernels_of
from tests.property.programs import Program, model_of, outputs_of, programs, tensors_of
from tests.property.test_programs import compare

Many = Callable[[st.SearchStrategy[Any], Callable[[Any], None], int], None]


def check_schedule(program: Program) -> None:
    """Run a program's schedule in the interpreter, and compare with the model."""
    program = without_realize(program)
    expected, tensors = model_of(program), tensors_of(program, is_computed=False)
    places = outputs_of(program)
    uops = [tensors[i].uop for i in places]
    scheduled = schedule(uops)
    verify(scheduled.linear, SCHEDULE)
    buffers = {n: buffer_of(n).as_numpy() for n in all_nodes(uops) if n.op is Ops.BUFFER}
    run_schedule(scheduled.linear, buffers)
    for place, uop in zip(places, uops, strict=True):
        got = stored_value(scheduled.stored.get(uop, uop), buffers)
        compare(program, place, expected[place], tensors[place].dtype, got)


def without_realize(program: Program) -> Program:
    """The program as one schedule."""
    return [("contiguous", *step[1:]) if step[0] == "realize" else step for step in program]


def stored_value(node: UOp, buffers: dict[UOp, Any]) -> Any:
    """The value of a RESHAPE of a BUFFER."""
    shape = node.known_shape
    buffer = node
    while buffer.op is not Ops.BUFFER:
        buffer = buffer.src[0]
    raw = buffers[buffer] if buffer in buffers else buffer_of(buffer).as_numpy()
    values = from_storage(node.dtype, np.asarray(raw)).reshape(shape)
    return values.astype(np.float16) if node.dtype is dtypes.float16 else values


def test_schedules_agree_with_numpy(many: Many) -> None:
    many(programs(), check_schedule, 400)


def check_stages(program: Program) -> None:
    """Compare each kernel of a program, on numbers of its own, before and after every stage."""
    program = without_realize(program)
    tensors = tensors_of(program, is_computed=False)
    linear = schedule([tensors[i].uop for i in outputs_of(program)]).linear
    for kernel in kernels_of([linear]):
        with Context(verify=True):
            verdict = bisect(kernel, renderer_for("CPU"), "CPU")
        assert verdict.is_right, (
            f"{verdict.stage} changes {verdict.problem}\n{verdict.law}: {verdict.example}\n"
            f"{program!r}\n{to_text(kernel.ast)}"
        )


def test_every_stage_keeps_the_value(many: Many) -> None:
    many(programs(), check_stages, 120)
