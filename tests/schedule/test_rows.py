"""Random programs over rows: reductions, and their use over the row again, in any order.

Each schedule computes what its graph means, and each of its kernels does the same with the actions
that the heuristic chooses, on wide and on narrow vectors.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.target import Target
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from tests.codegen.kernels import buffers_for
from tests.codegen.lowering import SMALL, TARGET, lowered, stages
from tests.schedule.graphs import check, exp, kernels, matmul, reduce, tensor

SHAPES: tuple[Shape, ...] = ((3, 9), (4, 17), (9, 3), (1, 12), (12, 1), (2, 3, 10), (3, 10, 2))
NUM_EXAMPLES = 60


class Grower:
    """Grows values of one shape, and reductions of them that are used again."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.shape = draw(st.sampled_from(SHAPES))
        self.pool = [tensor(self.shape), tensor(self.shape)]
        self.small: list[UOp] = []

    def pick(self) -> UOp:
        return self.pool[self.draw(st.integers(0, len(self.pool) - 1))]

    def row_value(self, x: UOp) -> UOp:
        """A reduction of x along some axes, repeated along them."""
        axes = [a for a in range(len(self.shape)) if self.draw(st.booleans())] or [-1]
        axes = [a % len(self.shape) for a in axes]
        op = self.draw(st.sampled_from((Ops.ADD, Ops.MAX)))
        value = reduce(x, *axes, op=op)
        if self.draw(st.booleans()):
            value = value * 0.125 + 1.0
        self.small.append(value)
        kept = tuple(1 if a in axes else n for a, n in enumerate(self.shape))
        return value.reshape(kept).expand(self.shape)

    def grow(self) -> None:
        x, kind = self.pick(), self.draw(st.integers(0, 5))
        if kind == 0:
            made = exp(x * 0.03125)
        elif kind == 1:
            made = x * self.pick() * 0.0625
        elif kind == 2:
            made = (x < self.row_value(self.pick())).where(x, self.pick())
        elif kind == 3:
            made = UOp.make(Ops.SQRT, x * x + 1.0)
        else:
            made = x * 0.5 + self.row_value(self.pick()) * -0.125
        self.pool.append(made)


@st.composite
def programs(draw: st.DrawFn) -> list[UOp]:
    grower = Grower(draw)
    for _ in range(draw(st.integers(1, 7))):
        grower.grow()
    extra = [x for x in (*grower.pool[2:-1], *grower.small) if draw(st.integers(0, 3)) == 0]
    return [grower.pool[-1], *extra]


def check_lowered(kernel: UOp, target: Target) -> None:
    """The kernel with the actions that are chosen for it gives what its plain loops give."""
    buffers = buffers_for(kernel)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(kernel, wanted)
    graphs = stages(kernel, target)
    for _, form, graph in graphs[:4]:  # later forms want exp spelled out
        verify(graph, form)
    run_kernel(graphs[-1][2], got)
    for want, have in zip(wanted, got, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)


@settings(max_examples=NUM_EXAMPLES, deadline=None)
@given(programs())
def test_schedules_of_rows_mean_what_the_graph_means(outputs: list[UOp]) -> None:
    for kernel in dict.fromkeys(kernels(check(outputs, rtol=1e-3))):
        check_lowered(kernel, TARGET)
        check_lowered(kernel, SMALL)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("size", [1, 3, 16, 33, 70])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_with_chosen_actions(rows: int, size: int, axis: int) -> None:
    shape = (rows, size)
    kept = (1, size) if axis == 0 else (rows, 1)
    x = tensor(shape) * 0.25
    largest = reduce(x, axis, op=Ops.MAX).reshape(kept).expand(shape)
    grown = exp(x + largest * -1.0)
    total = reduce(grown, axis).reshape(kept).expand(shape)
    for kernel in kernels(check([grown / total])):
        check_lowered(kernel, TARGET)


def test_what_is_not_a_number_stays_in_its_row() -> None:
    x = tensor((4, 20))
    total = reduce(x, 1).reshape((4, 1)).expand((4, 20))
    (kernel,) = kernels(check([x / (total + 0.5)]))
    native = lowered(kernel, TARGET)
    values = np.arange(1.0, 81.0, dtype=np.float32)
    values[25], values[45], values[46] = np.nan, np.inf, -np.inf
    buffers = [np.zeros(80, np.float32), values]
    run_kernel(native, buffers)
    rows = buffers[0].reshape(4, 20)
    assert np.isnan(rows).any(axis=1).tolist() == [False, True, True, False]
    assert np.isfinite(rows[[0, 3]]).all()


def test_product_of_rows_and_a_matrix_with_chosen_actions() -> None:
    x, w = tensor((6, 10)), tensor((10, 12))
    total = reduce(x * x, 1).reshape((6, 1)).expand((6, 10))
    for kernel in kernels(check([matmul(x / (total + 1.0), w)])):
        check_lowered(kernel, TARGET)
