"""Sums of several vectors at once: the same bits as one by one, with fewer operations."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.codegen.combine_lanes import combined
from pellucid.codegen.expand_ranges import combine_lanes
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Op, Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions
from tests.opt.plans.test_tiles import AVX2


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX], ids=lambda op: op.name)
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 15, 17])
def test_each_sum_adds_in_the_order_that_it_has_alone(op: Op, lanes: int, count: int) -> None:
    values = np.random.default_rng(0).standard_normal((count, lanes)).astype(np.float32)
    rows = [UOp.const(dtypes.float32.vec(lanes), tuple(map(float, row))) for row in values]
    alone = [simplify(combine_lanes(op, row)).arg for row in rows]
    assert [simplify(total).arg for total in combined(op, rows)] == alone


@pytest.mark.parametrize(("target", "lanes"), [(TARGET, 16), (AVX2, 8)])
def test_sums_of_one_loop_are_added_up_together(target: Target, lanes: int) -> None:
    low = lowered(kernels.matmul_transposed(64, 512, 4), target)
    narrow = [n for n in low.toposort() if n.op is Ops.ADD and 1 < n.dtype.lanes < lanes]
    assert not narrow, "a vector alone would be halved, and halved again"
    assert sum(n.op is Ops.STORE and n.src[0].src[0].op is Ops.PARAM for n in low.toposort()) >= 4


def test_sums_that_need_those_of_another_loop() -> None:
    """The sums of each loop are added together, though those of the second need the first ones."""
    i, k, m = kernels.loop(4, 0), kernels.axis(32, 1), kernels.axis(32, 2)
    x = kernels.param(1, 128)
    total = kernels.reduce(x.index(i * 32 + k), k)
    again = kernels.reduce(x.index(i * 32 + m) * total, m)
    sink = kernels.kernel(kernels.param(0, 4).index(i).store(again).end(i))
    low = lowered(with_actions(sink, *_EACH_IN_LANES), TARGET)
    assert len([n for n in low.toposort() if n.op is Ops.ADD and n.dtype.lanes == 16]) >= 6
    assert not [n for n in low.toposort() if n.op is Ops.ADD and n.dtype.lanes in (2, 4, 8)]
    wanted, got = ([b.copy() for b in kernels.buffers_for(sink)] for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(low, got)
    np.testing.assert_array_equal(got[0], wanted[0])


_EACH_IN_LANES = (
    Action("upcast", 0, 0),
    Action("lanes", 1, 16),
    Action("lanes", 3, 16),
)
