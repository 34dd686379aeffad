"""Random kernels: computed over all iterations at once, and walked one node at a time.

Both ways share the meaning of elementwise ops and nothing else: order, loops, reductions and
memory are done twice.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import AxisKind, KernelInfo, ParamArg, ReduceArg
from pellucid.ir.form import LOOP
from pellucid.ir.interpret import from_storage, run_kernel, to_storage, value_mapping
from pellucid.ir.interpret.values import storage_dtype
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify

TYPES = [dtypes.int8, dtypes.uint16, dtypes.int64, dtypes.float16, dtypes.float32, dtypes.bfloat16]
BINARY = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN]
INPUT_SIZE = 12


def param(slot: int, size: int, dtype: DType) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, size))


@st.composite
def kernels(draw: st.DrawFn) -> UOp:
    """One output over up to three ranges, of values that read two inputs, some of them reduced."""
    dtype = draw(st.sampled_from(TYPES))
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    outputs = [UOp.range(size, number) for number, size in enumerate(sizes)]
    number = len(outputs)

    def position(ranges: list[UOp]) -> UOp:
        at = UOp.const(dtypes.index, draw(st.integers(-2, 3)))
        for r in draw(st.lists(st.sampled_from(ranges), max_size=2)):
            at = at + r * draw(st.integers(-2, 3))
        return at % draw(st.integers(1, INPUT_SIZE)) if draw(st.booleans()) else at // 2

    def read(ranges: list[UOp]) -> UOp:
        at = position(ranges)
        inside = (at >= 0) & (at < INPUT_SIZE)
        x = param(draw(st.integers(1, 2)), INPUT_SIZE, dtype).index(at, inside)
        fill = UOp.const(dtype, draw(st.integers(0, 3)))
        return inside.where(x, fill)

    def value(ranges: list[UOp], depth: int) -> UOp:
        nonlocal number
        kind = draw(st.integers(0, 3 if depth else 0))
        if kind == 0:
            return read(ranges)
        if kind == 1:
            axis = UOp.range(draw(st.integers(0, 4)), number, AxisKind.REDUCE)
            number += 1
            op: Op = draw(st.sampled_from(BINARY))
            return UOp.make(Ops.REDUCE, value([*ranges, axis], depth - 1), axis, arg=ReduceArg(op))
        left, right = value(ranges, depth - 1), value(ranges, depth - 1)
        if kind == 2:
            return left.alu(draw(st.sampled_from(BINARY)), right)
        return (left < right).where(left, right)

    place = UOp.const(dtypes.index, 0)
    for r, size in zip(outputs, sizes, strict=True):
        place = place * size + r
    target = param(0, int(np.prod(sizes)), dtype).index(place)
    return UOp.sink(target.store(value(outputs, 3)).end(*outputs), arg=KernelInfo())


@given(kernels(), st.integers(0, 1000))
@settings(max_examples=120, deadline=None)
def test_both_ways_of_running_a_kernel_agree(sink: UOp, seed: int) -> None:
    verify(sink, LOOP)
    params = {n.arg.slot: n for n in sink.toposort() if n.op is Ops.PARAM}
    random = np.random.default_rng(seed)
    buffers = [np.zeros(0, np.uint8)] * 3
    for slot, node in params.items():
        low = 0 if node.dtype.is_unsigned else -5
        values = random.integers(low, 6, node.arg.size).astype(np.float64)
        buffers[slot] = to_storage(node.dtype, values).astype(storage_dtype(node.dtype))
    walked = [b.copy() for b in buffers]
    run_kernel(sink, buffers, poison=True)
    run_kernel(sink, walked, poison=True, at_once=False)
    output = params[0].dtype
    ours, theirs = from_storage(output, buffers[0]), from_storage(output, walked[0])
    assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
    assert set(value_mapping(sink)) == {(0, k) for k in range(params[0].arg.size)}
