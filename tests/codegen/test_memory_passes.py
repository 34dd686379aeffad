"""coalesce_memory, choose_index_width, move_validity_into_gates, add_control_flow: small cases."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.codegen.add_loads import add_loads
from pellucid.codegen.choose_index_width import choose_index_width
from pellucid.codegen.coalesce_memory import coalesce_memory
from pellucid.codegen.linearize import linearize
from pellucid.codegen.move_validity_into_gates import move_validity_into_gates
from pellucid.core.dtype import dtypes
from pellucid.ir.form import LINEAR, SCALAR
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from tests.codegen.kernels import buffers_for, const, copy_then_scatter, kernel, loop, param
from tests.codegen.lowering import SMALL, TARGET, lowered


def lanes(*values: int) -> UOp:
    """A literal vector index."""
    return UOp.const(dtypes.index.vec(len(values)), values)


def shapes(index: UOp, op: str = "load") -> list[int]:
    """Lanes of each access that one access with a vector index becomes."""
    if op == "load":
        value = param(1, 64).index(index).load()
        place = UOp(Ops.INDEX, value.dtype, (param(0, 64), const(0)))
        sink = kernel(place.store(value))
        after = coalesce_memory(sink, TARGET)
        return [n.dtype.lanes for n in after.toposort() if n.op is Ops.LOAD]
    value = UOp.const(dtypes.float32.vec(index.dtype.lanes), 1.0)
    after = coalesce_memory(kernel(param(0, 64).index(index).store(value)), TARGET)
    return [n.src[1].dtype.lanes for n in after.toposort() if n.op is Ops.STORE]


@pytest.mark.parametrize(
    ("offsets", "loads"),
    [
        ((0, 1, 2, 3), [4]),
        ((5, 6, 7, 8), [4]),
        ((3, 2, 1, 0), [4]),
        ((2, 2, 2, 2), [1]),
        ((0, 1, 8, 9), [2, 2]),
        ((0, 2, 4, 6), [1, 1, 1, 1]),
        ((0, 1, 2, 9), [2, 1, 1]),
    ],
)
def test_neighbours_are_joined(offsets: tuple[int, ...], loads: list[int]) -> None:
    assert shapes(lanes(*offsets)) == loads


def test_stores_are_joined() -> None:
    assert shapes(lanes(0, 1, 2, 3), "store") == [4]
    assert shapes(lanes(3, 2, 1, 0), "store") == [4]
    assert shapes(lanes(0, 8, 16, 24), "store") == [1, 1, 1, 1]


def test_division_by_an_aligned_width_is_read() -> None:
    i = loop(4, 0)
    index = (i * 8).splat(8) + lanes(*range(8))
    eight = UOp.const(dtypes.index.vec(8), 4)
    value = param(1, 64).index(index // eight * eight + index % eight).load()
    place = UOp(Ops.INDEX, value.dtype, (param(0, 64), i * 8))
    after = coalesce_memory(kernel(place.store(value).end(i)), TARGET)
    assert [n.dtype.lanes for n in after.toposort() if n.op is Ops.LOAD] == [8]


def test_masks_need_a_target_that_has_them() -> None:
    valid = UOp.const(dtypes.bool.vec(4), (True, True, True, False))
    value = param(1, 3).index(lanes(0, 1, 2, 3), valid).load()
    sink = kernel(UOp(Ops.INDEX, value.dtype, (param(0, 4), const(0))).store(value))
    for target, wanted in ((TARGET, [4]), (SMALL, [1, 1, 1, 1])):
        after = move_validity_into_gates(coalesce_memory(sink, target), target)
        loads = [n.dtype.lanes for n in after.toposort() if n.op is Ops.LOAD]
        assert loads == wanted or loads == [1, 1, 1]
        buffers = buffers_for(sink)
        run_kernel(after, buffers)
        np.testing.assert_array_equal(buffers[0], [*buffers[1], 0])


# ---- widths -------------------------------------------------------------------------------------


def width_of(size: int) -> set[str]:
    """Types of the addresses of a kernel over *size* rows of 70 000."""
    i, j = loop(size, 0), loop(70_000, 1)
    place = i * 70_000 + j
    count = size * 70_000
    store = param(0, count).index(place).store(param(1, count).index(place))
    after = choose_index_width(lowered_loads(kernel(store.end(i, j))), TARGET)
    verify(after, SCALAR)
    return {n.src[1].dtype.name for n in after.toposort() if n.op is Ops.INDEX}


def lowered_loads(sink: UOp) -> UOp:
    """The kernel with its loads explicit."""
    return add_loads(sink, TARGET)


def test_addresses_are_as_wide_as_they_need_to_be() -> None:
    assert width_of(100) == {"int32"}
    assert width_of(70_000) == {"int64"}


def test_data_of_64_bits_stays_an_index_of_64_bits() -> None:
    i = loop(4, 0)
    place = param(2, 4, dtypes.int64).index(i).cast(dtypes.index)
    valid = (place >= 0) & (place < 8)
    sink = kernel(param(0, 4).index(i).store(param(1, 8).index(place, valid)).end(i))
    after = choose_index_width(lowered_loads(sink), TARGET)
    verify(after, SCALAR)
    buffers = [np.zeros(4, np.float32), np.arange(8, dtype=np.float32)]
    buffers.append(np.array([1, 1 << 40, -1, 7]))
    run_kernel(after, buffers)
    np.testing.assert_array_equal(buffers[0], [1, 0, 0, 7])


# ---- gates --------------------------------------------------------------------------------------


def gated(valid: UOp, fill: float = 7.0) -> UOp:
    """WHERE(valid, x[i], fill) for i over 4, x of 3 elements."""
    i = loop(4, 0)
    value = valid.where(param(1, 3).index(i, valid).load(), fill)
    return move_validity_into_gates(kernel(param(0, 4).index(i).store(value).end(i)), TARGET)


def test_the_fill_is_the_fallback() -> None:
    after = gated(loop(4, 0) < 3)
    loads = [n for n in after.toposort() if n.op is Ops.LOAD]
    assert len(loads[0].src) == 3
    assert loads[0].src[1].arg == 7.0
    assert not any(n.op is Ops.WHERE for n in after.toposort())


def test_gates_that_always_hold_are_gone() -> None:
    after = gated(loop(4, 0) < 4)
    assert [len(n.src) for n in after.toposort() if n.op is Ops.LOAD] == [1]


def test_gates_that_never_hold_touch_nothing() -> None:
    after = gated(loop(4, 0) < 0)
    assert not any(n.op is Ops.LOAD for n in after.toposort())


# ---- order --------------------------------------------------------------------------------------


def test_effects_that_touch_one_storage_stand_in_order() -> None:
    linear = linearize(lowered(copy_then_scatter()))
    verify(linear, LINEAR)
    stores = [n for n in linear.src if n.op is Ops.STORE]
    assert any(s.op is Ops.AFTER for s in stores[1].src[0].src)
    ends = [n for n in linear.src if n.op is Ops.END]
    assert linear.src.index(ends[0]) < linear.src.index(stores[1])


def test_a_write_waits_for_earlier_reads() -> None:
    """y = x, then x = 0: the second effect must not run first, whatever stands where."""
    i, j = loop(4, 0), loop(4, 1)
    x = param(1, 4)
    copied = param(0, 4).index(i).store(x.index(i)).end(i)
    zero = UOp.const(dtypes.float32, 0.0)
    sink = kernel(copied, x.index(j).store(zero).end(j))
    buffers = buffers_for(sink)
    before = buffers[1].copy()
    run_kernel(linearize(lowered(sink)), buffers)
    np.testing.assert_array_equal(buffers[0], before)
    np.testing.assert_array_equal(buffers[1], np.zeros(4))
