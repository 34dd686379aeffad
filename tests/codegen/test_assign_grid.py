"""Threads: each element is computed by one of them, whatever the sizes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid.codegen.linearize import linearize
from pellucid.codegen.program_info import program_info
from pellucid.core.dtype import dtypes
from pellucid.ir.arg import Action, AxisKind, VariableArg
from pellucid.ir.interpret import run_kernel
from pellucid.ir.interpret.kernels import Order
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from tests.codegen.kernels import (
    buffers_for,
    elementwise,
    in_place,
    kernel,
    matmul,
    old_value,
    param,
)
from tests.codegen.lowering import TARGET, lowered, with_actions


def threads_of(sink: UOp) -> int:
    """How many thread indices a lowered kernel asks for."""
    return program_info(sink, TARGET).num_threads


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 9, 31])
def test_blocks_cover_the_range(size: int, cores: int) -> None:
    sink = elementwise(size)
    target = dataclasses.replace(TARGET, cores=cores)
    after = lowered(with_actions(sink, Action("thread", 0)), target)
    assert threads_of(after) <= min(size, cores)
    for graph in (after, linearize(after)):
        wanted, got = (buffers_for(sink) for _ in range(2))
        run_kernel(sink, wanted)
        run_kernel(graph, got, order="reverse")
        np.testing.assert_array_equal(got[0], wanted[0])


def test_the_rest_beside_a_threaded_nest_runs_once() -> None:
    """y = y * 2 in place: a second thread that did the rest again would double it twice."""
    sink = in_place(35)
    actions = (Action("split", 0, 16), Action("thread", 0))
    after = lowered(with_actions(sink, *actions))
    assert threads_of(after) == 2
    wanted, got = (buffers_for(sink) for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(after, got)
    np.testing.assert_array_equal(got[0], wanted[0])


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_the_stores_of_the_rest_stay_together(order: Order) -> None:
    """z = y + 1 wants the y that another store of the same element overwrites."""
    sink = old_value(37)
    after = lowered(with_actions(sink, Action("upcast", 0, 4), Action("thread", 0)))
    assert threads_of(after) == 3
    wanted, got = (buffers_for(sink) for _ in range(2))
    run_kernel(sink, wanted)
    for graph in (after, linearize(after)):
        run_kernel(graph, got, order=order)
        np.testing.assert_array_equal(got[0], wanted[0])
        np.testing.assert_array_equal(got[1], wanted[1])
        got = buffers_for(sink)


def test_a_thread_without_a_block_reads_nothing_that_another_writes() -> None:
    """Two vectors of 16, and 5 elements: three threads share the latter, two the former."""
    sink = old_value(37)
    actions = (Action("lanes", 0, 16), Action("thread", 0), Action("thread", 2))
    after = lowered(with_actions(sink, *actions))
    assert threads_of(after) == 3
    wanted, got = (buffers_for(sink) for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(linearize(after), got)
    np.testing.assert_array_equal(got[0], wanted[0])
    np.testing.assert_array_equal(got[1], wanted[1])


def test_two_nests_with_threads_of_different_sizes() -> None:
    sink = matmul(7, 5, 16)
    actions = (Action("split", 0, 2), Action("thread", 0), Action("lanes", 2))
    after = lowered(with_actions(sink, *actions))
    assert threads_of(after) == 3
    wanted, got = (buffers_for(sink) for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(after, got, order="random", seed=1)
    np.testing.assert_array_equal(got[0], wanted[0])


def test_a_symbolic_range_is_shared_too() -> None:
    size = UOp(Ops.VARIABLE, dtypes.index, (), VariableArg("n", 1, 20))
    i = UOp.range(size, 0, AxisKind.THREAD)
    sink = kernel(param(0, 20).index(i).store(param(1, 20).index(i) + 1.0).end(i))
    after = lowered(with_actions(sink))
    for number in (1, 2, 7, 20):
        buffers = buffers_for(sink)
        before = buffers[0].copy()
        run_kernel(after, buffers, {"n": number})
        np.testing.assert_array_equal(buffers[0][:number], buffers[1][:number] + 1)
        np.testing.assert_array_equal(buffers[0][number:], before[number:])
