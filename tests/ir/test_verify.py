"""verify: what the error says, and that the parts of schedules and programs are verified too."""

from __future__ import annotations

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import FormError
from pellucid.ir.arg import CallInfo, KernelInfo, ParamArg, ProgramInfo, ReduceArg
from pellucid.ir.form import LOOP, PROGRAM, SCHEDULE, TENSOR
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, new_buffer
from pellucid.ir.verify import is_in_form, verify

i = UOp.range(4, 0)
y, x = (UOp(Ops.PARAM, dtypes.float32, (), ParamArg(slot, 4)) for slot in (0, 1))
reduce_of_nothing = UOp(Ops.REDUCE, dtypes.float32, (x.index(i),), ReduceArg(Ops.ADD))
broken = UOp.sink(y.index(i).store(reduce_of_nothing).end(i), arg=KernelInfo())
sound = UOp.sink(y.index(i).store(x.index(i)).end(i), arg=KernelInfo())


def test_the_error_names_stage_law_and_the_graph_around() -> None:
    with pytest.raises(FormError) as caught:
        verify(broken, LOOP, stage="simplify_ranges", law="drop_ranges_of_one")
    lines = str(caught.value).split("\n")
    assert lines[:6] == [
        "the graph is not in form LOOP: REDUCE without a range",
        "    stage   simplify_ranges",
        "    law     drop_ranges_of_one",
        "    around",
        "        REDUCE(INDEX(p1:float32, i0), ReduceArg(Ops.ADD))",
        "            in STORE(INDEX(p0:float32, i0), REDUCE(…, ReduceArg(Ops.ADD)))",
    ]
    assert caught.value.form == "LOOP"


def test_the_first_problem_from_below_is_told() -> None:
    wrong = UOp(Ops.ADD, dtypes.int8, (UOp.const(dtypes.int8, 1), UOp.const(dtypes.int16, 1)))
    with pytest.raises(FormError, match="ADD of int8, int16"):
        verify(UOp.sink(wrong + 1), TENSOR)


def test_kernels_of_a_schedule_are_in_form_loop() -> None:
    buffers = [new_buffer(4, dtypes.float32, "CPU") for _ in range(2)]
    for sink, fine in ((sound, True), (broken, False)):
        call = UOp.make(Ops.CALL, sink, *buffers, arg=CallInfo())
        schedule = UOp(Ops.LINEAR, dtypes.void, (call,))
        assert is_in_form(schedule, SCHEDULE) is fine
    with pytest.raises(FormError, match="the graph is not in form LOOP: REDUCE without a range"):
        verify(schedule, SCHEDULE)


def test_the_parts_of_a_program_are_verified() -> None:
    program = UOp(Ops.PROGRAM, dtypes.void, (sound,), ProgramInfo("copy"))
    with pytest.raises(FormError, match="the graph is not in form NATIVE: CONST is of type index"):
        verify(program, PROGRAM)


def test_a_graph_with_many_nodes_is_verified_in_one_walk() -> None:
    node = UOp.const(dtypes.int32, 1)
    for _ in range(5000):
        node = node + node
    verify(node, TENSOR)
