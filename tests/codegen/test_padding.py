"""Padding that bounds prove away: a 4x3 tensor padded to 4x4, and summed along the padded axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pellucid.codegen.linearize import linearize
from pellucid.codegen.program_info import program_info
from pellucid.core.target import Target
from pellucid.ir.interpret import run_kernel, value_mapping
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.pipeline import full_rewrite_to_sink
from pellucid.render import CRenderer, LLVMRenderer, Renderer
from tests.codegen.kernels import axis, buffers_for, kernel, loop, pad_and_sum, param, reduce
from tests.codegen.lowering import lowered


def padded_rows_summed() -> UOp:
    """A 3x4 tensor padded to 4x4, summed down the padded axis."""
    j, k = loop(4, 0), axis(4, 1)
    valid = k < 3
    value = valid.where(param(1, 12).index(k * 4 + j, valid), 0.0)
    return kernel(param(0, 4).index(j).store(reduce(value, k)).end(j))


@pytest.mark.parametrize("make", [pad_and_sum, padded_rows_summed])
def test_no_loop_no_predicate_vector_stores(make: object) -> None:
    sink = pad_and_sum() if make is pad_and_sum else padded_rows_summed()
    after = lowered(sink)
    nodes = linearize(after).toposort()
    ops = {n.op for n in nodes}
    assert not ops & {Ops.RANGE, Ops.END, Ops.WHERE, *_COMPARISONS}
    assert all(len(n.src) == 1 for n in nodes if n.op is Ops.LOAD)
    stores = [n for n in nodes if n.op is Ops.STORE]
    assert [(len(n.src), n.src[1].dtype.lanes) for n in stores] == [(2, 4)]
    assert sum(n.op is Ops.ADD and n.dtype.is_float for n in nodes) >= 2
    assert value_mapping(after) == value_mapping(sink)
    buffers = buffers_for(sink)
    run_kernel(after, buffers)
    shape, along = ((4, 3), 1) if make is pad_and_sum else ((3, 4), 0)
    np.testing.assert_array_equal(buffers[0], buffers[1].reshape(shape).sum(along))


_COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)


@pytest.mark.parametrize(("kind", "ending"), [(LLVMRenderer, "ll"), (CRenderer, "c")])
def test_the_source_is_kept(
    golden: Callable[[str, str], None], kind: type[Renderer], ending: str
) -> None:
    renderer = kind(Target(arch="x86-64", features=frozenset(["avx512f", "avx512dq", "avx512bw"])))
    after = full_rewrite_to_sink(pad_and_sum(), renderer.target)
    text = renderer.render(linearize(after), program_info(after, renderer.target))
    golden(f"render/{renderer.name}/pad_and_sum.{ending}", text)
