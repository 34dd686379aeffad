"""Reductions of pairs: how two pairs join, and what loops they become."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.form import LOOP
from pellucid.ir.interpret import run_kernel
from pellucid.ir.interpret.arithmetic import reduce_pairs
from pellucid.ir.interpret.tensors import evaluate
from pellucid.ir.op import PAIR_OPS, Op, Ops
from pellucid.ir.pairs import joined, paired
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from tests.codegen import kernels
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions

KEYS = (math.nan, math.inf, 1.0, 0.0, -0.0, -1.0, -math.inf)


def pair(value: int, key: float) -> UOp:
    return paired(UOp.const(dtypes.int32, value), UOp.const(dtypes.float32, key))


@pytest.mark.parametrize("op", PAIR_OPS, ids=repr)
def test_two_pairs_join_as_the_interpreter_reduces_them(op: Op) -> None:
    for (a, x), (b, y) in itertools.product(itertools.product((3, 5), KEYS), repeat=2):
        result = joined(op, pair(a, x), pair(b, y))
        expected = reduce_pairs(op, dtypes.int32, (np.int32([a, b]), np.float32([x, y])), (0,))
        assert evaluate(result.src[0]) == expected, (op, a, x, b, y)
        again = joined(op, result, pair(b, y))
        assert evaluate(again.src[0]) == expected, "a pair that is joined twice counts once"


@pytest.mark.parametrize("op", PAIR_OPS, ids=repr)
def test_the_best_key_decides_and_the_first_of_equal_ones(op: Op) -> None:
    places = np.arange(4, dtype=np.int32)

    def place(*keys: float) -> int:
        return int(reduce_pairs(op, dtypes.int32, (places, np.float32(keys)), (0,)))

    largest, smallest = (2, 0) if op is Ops.ARGMAX else (0, 2)
    assert place(-1, 0, 7, 0) == largest
    assert place(1, 0, -7, 0) == smallest
    assert place(3, math.nan, math.inf, math.nan) == 1
    assert place(0.0, -0.0, 0.0, -0.0) == 0
    assert place(*[math.inf if op is Ops.ARGMIN else -math.inf] * 4) == 0


def loops_and_reads(sink: UOp) -> tuple[int, int]:
    nodes = sink.toposort()
    reads = [n for n in nodes if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    return sum(n.op is Ops.END for n in nodes), len(reads)


@pytest.mark.parametrize("target", [TARGET, SMALL], ids=["wide", "narrow"])
def test_a_place_takes_one_loop_that_reads_each_element_once(target: Target) -> None:
    sink = lowered(kernels.places(4, 256), target)
    assert loops_and_reads(sink) == (2, 4), "a loop over rows, one along a row; four vectors a turn"
    accumulators = [n for n in sink.toposort() if n.op is Ops.DEFINE]
    lanes = target.max_lanes(4)
    assert sorted(str(n.dtype) for n in accumulators) == sorted(
        [f"float32x{lanes}"] * 4 + [f"int32x{lanes}"] * 4
    )


def test_places_that_grow_are_not_compared() -> None:
    sink = lowered(kernels.places(4, 256), TARGET)
    (end,) = [n for n in sink.toposort() if n.op is Ops.END and n.src[0].op is Ops.GROUP]
    inside = [n for n in end.src[0].toposort() if set(end.src[1:]) & set(n.ranges)]
    assert not any(n.op is Ops.MIN for n in inside)
    splats = [n for n in inside if n.op is Ops.SPLAT and n.dtype.scalar is dtypes.int32]
    assert len(splats) == 1, "all lanes of all copies keep the same number"


def test_places_in_any_order_are_compared() -> None:
    """A kernel that walks backwards meets the last of equal keys first."""
    k = kernels.axis(100, 1)
    x = kernels.param(1, 100).index(k)
    place = (k * -1 + 99).cast(dtypes.int32)
    value = kernels.reduce(paired(place, x), k, op=Ops.ARGMAX)
    sink = kernels.kernel(kernels.param(0, 1, dtypes.int32).index(kernels.const(0)).store(value))
    keys = np.zeros(100, np.float32)
    keys[[20, 50, 70]] = 1
    for kernel in (sink, lowered(sink, TARGET), lowered(sink, SMALL)):
        result = np.zeros(1, np.int32)
        run_kernel(kernel, [result, keys])
        assert result[0] == 29


@pytest.mark.parametrize("op", PAIR_OPS, ids=repr)
@pytest.mark.parametrize(
    "actions",
    [
        (),
        (Action("split", 1, 10),),
        (Action("split", 1, 16), Action("lanes", 2)),
        (Action("unroll", 1, 5), Action("cascade", 1, 4)),
        (Action("cascade", 1, 20),),
        (Action("split", 1, 16), Action("cascade", 2)),
        (Action("lanes", 0, 4), Action("unroll", 2, 2)),
    ],
    ids=repr,
)
def test_actions_keep_the_place(op: Op, actions: tuple[Action, ...]) -> None:
    sink = kernels.places(5, 75, op)
    buffers = kernels.buffers_for(sink)
    keys = buffers[1].reshape(5, 75)
    keys[1, [7, 11, 70]] = np.nan
    keys[2] = -np.inf
    keys[3] = np.inf
    keys[4] = 0.0
    keys[4, ::2] = -0.0
    find = np.argmax if op is Ops.ARGMAX else np.argmin
    changed = sink
    for action in actions:
        changed = apply_action(changed, action, TARGET)
        verify(changed, LOOP)
    for kernel in (changed, lowered(with_actions(sink, *actions), TARGET)):
        run_kernel(kernel, buffers)
        np.testing.assert_array_equal(buffers[0], find(keys, 1))


def test_a_reduction_of_pairs_does_not_wait_in_memory() -> None:
    with pytest.raises(ActionError, match="pairs"):
        apply_action(kernels.places(8, 75), Action("hoist", 1, 0), TARGET)
