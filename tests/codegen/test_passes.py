"""Every pass leaves the form that it claims, and the values and the mapping that it found."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.codegen.expand_ranges import expand_ranges
from pellucid.codegen.linearize import linearize
from pellucid.core.options import Context
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.form import LINEAR, VECTOR
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.apply_actions import apply_actions
from tests.codegen.kernels import KERNELS, Array, buffers_for, matmul
from tests.codegen.lowering import SMALL, TARGET, stages, with_actions

WRITTEN_ELEMENTS_MAPPED = 400


def result(graph: UOp, buffers: list[Array]) -> list[Array]:
    """The buffers after a run."""
    copies = [b.copy() for b in buffers]
    run_kernel(graph, copies)
    return copies


def check_all(sink: UOp, target: Target) -> None:
    """Form and value of a kernel after each pass, and of its linear program."""
    buffers = buffers_for(sink)
    wanted = result(sink, buffers)
    graphs = stages(sink, target)
    graphs.append(("linearize", LINEAR, linearize(graphs[-1][2])))
    before = sink
    for name, form, graph in graphs:
        verify(graph, form)
        if graph is before:
            continue  # the pass had nothing to do
        before = graph
        for slot, (want, got) in enumerate(zip(wanted, result(graph, buffers), strict=True)):
            np.testing.assert_array_equal(got, want, err_msg=f"after {name}, parameter {slot}")


def test_products_of_copies_are_added_where_they_are_made() -> None:
    """Eight in a row at most: ten products are two sums, so that no error grows much."""
    sink = with_actions(matmul(1, 10, 3), Action("unroll", 2, 0))
    graph = expand_ranges(apply_actions(sink, TARGET), TARGET)
    verify(graph, VECTOR)
    fused = [n for n in graph.toposort() if n.op is Ops.MULADD]
    assert len(fused) == 10
    assert [n.src[2].arg for n in fused if n.src[2].is_const] == [0.0, 0.0]
    assert not any(
        n.op is Ops.MULADD for n in expand_ranges(apply_actions(sink, SMALL), SMALL).toposort()
    )


@pytest.mark.parametrize("name", KERNELS)
def test_forms_and_values_with_wide_vectors(name: str) -> None:
    check_all(KERNELS[name](), TARGET)


@pytest.mark.parametrize("name", KERNELS)
def test_forms_and_values_with_narrow_vectors_and_no_masks(name: str) -> None:
    check_all(KERNELS[name](), SMALL)


@pytest.mark.parametrize("name", KERNELS)
def test_forms_and_values_without_optimisation(name: str) -> None:
    with Context(optimize=False):
        check_all(KERNELS[name](), TARGET)
