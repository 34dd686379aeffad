"""What the heuristic chooses, and that its sums are exact enough."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pellucid.core import observe
from pellucid.core.dtype import dtypes
from pellucid.core.options import Context
from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind, VariableArg
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, size_of, stride_of
from pellucid.opt.plans.heuristic import balanced, choose
from pellucid.opt.plans.runs import run_length
from tests.codegen import kernels
from tests.codegen.lowering import SMALL, TARGET, lowered, stages, with_actions

ONE_CORE = dataclasses.replace(TARGET, cores=1)


def kinds(sink: UOp) -> list[tuple[str, int | None]]:
    """Kind and size of every axis of the kernel that is chosen."""
    return [(a.arg.kind.value, size_of(a)) for a in axes_of(choose(sink, ONE_CORE).sink)]


def test_elementwise_takes_the_contiguous_axis() -> None:
    assert kinds(kernels.elementwise(64)) == [("loop", 4), ("lanes", 16)]
    assert kinds(kernels.two_axes(12, 32)) == [("loop", 12), ("loop", 2), ("lanes", 16)]


def test_the_widest_type_gives_the_lanes() -> None:
    assert ("lanes", 8) in kinds(kernels.bytes_sum(128))


def test_a_sum_gets_four_vectors_of_accumulators() -> None:
    assert kinds(kernels.reduce_all(1024)) == [("reduce", 16), ("unroll", 4), ("lanes", 16)]


def sum_of_logarithms(size: int) -> UOp:
    """y = the sum of log2(x): many instructions in each turn."""
    k = kernels.axis(size, 0)
    value = UOp.make(Ops.LOG2, kernels.param(1, size).index(k))
    total = kernels.reduce(value, k)
    return kernels.kernel(kernels.param(0, 1).index(kernels.const(0)).store(total))


def test_a_short_sum_of_much_work_is_not_copied() -> None:
    """One turn takes longer than an addition, so nothing waits for the accumulator."""
    assert kinds(sum_of_logarithms(128)) == [("reduce", 8), ("lanes", 16)]
    assert ("unroll", 4) in kinds(sum_of_logarithms(1 << 20))
    assert ("unroll", 4) in kinds(kernels.reduce_all(128))


def test_a_running_sum_compares_with_literals() -> None:
    found = kinds(kernels.running_sums(8, 16))
    assert found == [("loop", 8), ("lanes", 16), ("unroll", 16)]


def test_a_running_sum_of_several_vectors_compares_with_literals() -> None:
    """Two vectors of 8 places: what is left of 16 copies is a read and a selection each."""
    avx2 = dataclasses.replace(ONE_CORE, features=frozenset({"avx2", "fma"}))
    sink = choose(kernels.running_sums(8, 16), avx2).sink
    found = [(a.arg.kind.value, size_of(a)) for a in axes_of(sink)]
    assert found == [("loop", 8), ("upcast", 2), ("lanes", 8), ("unroll", 16)]


def test_long_rows_are_summed_side_by_side_where_memory_is_far() -> None:
    far = [("loop", 128), ("upcast", 8), ("reduce", 4), ("reduce", 16), ("lanes", 16)]
    assert sorted(kinds(kernels.reduce_rows(1024, 1024))) == sorted(far)
    near = kinds(kernels.reduce_rows(16, 1024))
    assert ("unroll", 4) in near
    assert not any(kind == "upcast" for kind, _ in near)


@pytest.mark.parametrize(
    ("target", "rows", "together"),
    [
        (ONE_CORE, 1024, 8),
        (ONE_CORE, 12, 6),  # two blocks, as shares for one core
        (dataclasses.replace(ONE_CORE, cores=4), 64, 8),
        (dataclasses.replace(ONE_CORE, cores=64), 64, 4),
        (dataclasses.replace(ONE_CORE, features=frozenset({"avx2", "fma"})), 1024, 4),
    ],
)
def test_as_many_rows_side_by_side_as_registers_and_cores_allow(
    target: Target, rows: int, together: int
) -> None:
    sink = choose(kernels.reduce_rows(rows, (1 << 20) // rows), target).sink
    copies = [size_of(a) for a in axes_of(sink) if a.arg.kind is AxisKind.UPCAST]
    assert copies == [together]


def test_columns_take_lanes_across() -> None:
    found = kinds(kernels.reduce_columns(16, 64))
    assert ("lanes", 16) in found
    assert ("upcast", 4) in found


def test_matmul_gets_a_register_tile() -> None:
    found = kinds(kernels.matmul(48, 16, 64))
    assert found.count(("lanes", 16)) == 1
    assert [size for kind, size in found if kind == "upcast"] == [6, 4]


def test_a_tile_fits_the_registers() -> None:
    for target in (ONE_CORE, SMALL):
        sink = choose(kernels.matmul(48, 16, 64), target).sink
        copies = math.prod(size_of(a) or 1 for a in axes_of(sink) if a.arg.kind is AxisKind.UPCAST)
        assert 4 <= copies <= target.num_vector_registers * 3 // 4


def test_a_transpose_walks_along_the_lines_it_reads() -> None:
    assert kinds(kernels.transpose(64, 32)) == [("loop", 4), ("lanes", 16), ("loop", 32)]


def test_copies_turn_divisions_into_literals() -> None:
    """y[i, j] = x[i, (j * 5 + 3) // 4]: eight copies of j, and no division is left."""
    i, j = kernels.loop(64, 0), kernels.loop(8, 1)
    value = kernels.param(1, 64 * 16).index((j * 5 + 3) // 4 * 64 + i)
    sink = kernels.kernel(kernels.param(0, 512).index(j * 64 + i).store(value).end(j, i))
    assert ("upcast", 8) in kinds(sink)
    divisions = (Ops.FLOORDIV, Ops.FLOORMOD)
    assert not any(n.op in divisions for n in lowered(sink).toposort())


def test_short_loops_without_lanes_are_copied() -> None:
    """A nest whose axes are all strided: the innermost loops are too short for loops."""
    i, j, k = kernels.loop(100, 0), kernels.loop(2, 1), kernels.loop(2, 2)
    place = kernels.param(1, 400, dtypes.int64).index(i * 4 + k * 2 + j).cast(dtypes.index)
    value = kernels.param(2, 11).index(place, (place >= 0) & (place < 11))
    sink = kernels.kernel(
        kernels.param(0, 1200).index(i * 12 + j * 5 + k * 3).store(value).end(i, j, k)
    )
    assert [kind for kind, _ in kinds(sink)] == ["loop", "upcast", "upcast"]


def test_long_sums_are_nested() -> None:
    sizes = [size_of(a) for a in axes_of(choose(kernels.reduce_all(1 << 24), ONE_CORE).sink)]
    assert max(size for size in sizes if size is not None) <= 16


@pytest.mark.parametrize("number", [1, 2, 7, 64, 1000, 4097, 1 << 16, 1 << 24, 999_983])
def test_levels_keep_the_bound(number: int) -> None:
    """The terms that one value passes through, times half an epsilon, stay below the bound."""
    sink = stages(kernels.reduce_all(number), ONE_CORE)[3][2]
    depth = longest_sum(sink.src[0].src[1])
    assert depth / 2 <= 2 * math.log2(max(2, number)) + 1


def longest_sum(node: UOp) -> float:
    """The most roundings that any term passes through in a tree of sums."""
    if node.op is Ops.REDUCE:
        loops = [r for r in node.src[1:] if r.arg.kind is AxisKind.REDUCE]
        copies = [r for r in node.src[1:] if r.arg.kind is not AxisKind.REDUCE]
        steps: float = math.prod(size_of(r) or 1 for r in loops) - 1
        steps += sum(math.log2(size_of(r) or 1) for r in copies)
        return longest_sum(node.src[0]) + steps
    if node.op is Ops.ADD:
        return 1 + max(longest_sum(s) for s in node.src)
    return 0


def test_threads_for_long_kernels_only() -> None:
    kinds_of = [a.arg.kind for a in axes_of(choose(kernels.fused(1 << 20), TARGET).sink)]
    assert AxisKind.THREAD in kinds_of
    kinds_of = [a.arg.kind for a in axes_of(choose(kernels.fused(1 << 10), TARGET).sink)]
    assert AxisKind.THREAD not in kinds_of


def test_an_ordered_kernel_is_left_alone() -> None:
    assert choose(kernels.scatter(), TARGET).actions == []


def test_optimize_off_is_plain_loops() -> None:
    with Context(optimize=False):
        assert stages(kernels.matmul())[3][2].arg.applied == ()


def test_decisions_have_reasons() -> None:
    with observe.record() as seen:
        choose(kernels.matmul(48, 16, 64), TARGET)
    reasons = [d.reason for d in seen.decisions if d.kind == "action"]
    assert "each value loaded is used by several accumulators" in reasons
    assert "accesses are contiguous along it" in reasons


def test_elementwise_stays_small() -> None:
    assert len(lowered(kernels.fused(1024)).toposort()) < 100
    assert len(lowered(kernels.softmax(64, 1000)).toposort()) < 400


@pytest.mark.parametrize("size", range(2, 200))
def test_blocks_cover(size: int) -> None:
    assert 1 <= run_length(size, 16) <= 16
    assert 1 <= balanced(size, 6) <= 6


def float32_sum(values: np.ndarray) -> float:
    """The nesting of the heuristic carried out by numpy, as the interpreter is too slow here."""
    sink = stages(kernels.reduce_all(values.size), ONE_CORE)[3][2]
    return float(evaluate(sink.src[0].src[1], values))


def evaluate(node: UOp, values: np.ndarray) -> np.float32:
    """A tree of sums over one array, in float32, in the order that lowering gives."""
    if node.op is Ops.ADD:
        return np.float32(evaluate(node.src[0], values) + evaluate(node.src[1], values))
    order: list[UOp] = []
    reduces: list[UOp] = []
    while node.op is Ops.REDUCE:
        reduces.append(node)
        order += node.src[1:]
        node = node.src[0]
    index = np.zeros((1,) * len(order), np.int64)
    for place, axis in enumerate(order):
        shape = [1] * len(order)
        shape[place] = size_of(axis) or 1
        index = index + np.arange(size_of(axis) or 1).reshape(shape) * stride(node.src[1], axis)
    data = values[index + offset(node.src[1])]
    for reduce in reversed(reduces):
        count = len(reduce.src) - 1
        for axis in reversed(order[len(order) - count :]):
            del order[-1]
            if axis.arg.kind is AxisKind.REDUCE:
                data = np.cumsum(data, axis=-1, dtype=np.float32)[..., -1]
            else:
                while data.shape[-1] > 1:
                    half = data.shape[-1] // 2
                    data = data[..., :half] + data[..., half:]
                data = data[..., 0]
    return np.float32(data)


def stride(index: UOp, axis: UOp) -> int:
    """The stride of a linear index."""
    return stride_of(index, axis) or 0


def offset(index: UOp) -> int:
    """The literal part of a linear index."""
    return int(index.src[1].arg) if index.op is Ops.ADD and index.src[1].is_const else 0


@pytest.mark.parametrize("number", [1000, 4096, 100_003, 1 << 20, 1 << 24])
def test_a_long_sum_of_a_tenth(number: int) -> None:
    values = np.full(number, 0.1, np.float32)
    exact = number * float(np.float32(0.1))
    assert abs(float32_sum(values) - exact) / exact < 1e-6


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_what_was_chosen_can_be_asked_for(name: str) -> None:
    """Actions of `applied`, given as `actions`, lead to the same kernel."""
    chosen = lowered(kernels.KERNELS[name](), TARGET)
    asked = lowered(with_actions(kernels.KERNELS[name](), *chosen.arg.applied), TARGET)
    assert asked.src == chosen.src


@pytest.mark.parametrize("number", [1, 3, 20])
def test_symbolic_axes_stay_loops_and_others_become_lanes(number: int) -> None:
    size = UOp(Ops.VARIABLE, dtypes.index, (), VariableArg("n", 1, 20))
    i, j = UOp.range(size, 0), kernels.loop(64, 1)
    k = UOp.range(size, 2, AxisKind.REDUCE)
    x = kernels.param(1, 20 * 64)
    value = x.index(i * 64 + j) * kernels.reduce(x.index(k * 64 + j), k)
    sink = kernels.kernel(kernels.param(0, 20 * 64).index(i * 64 + j).store(value).end(i, j))
    after = lowered(sink)
    assert any(action.kind == "lanes" for action in after.arg.applied)
    buffers = kernels.buffers_for(sink)
    wanted = [b.copy() for b in buffers]
    run_kernel(sink, wanted, {"n": number})
    run_kernel(after, buffers, {"n": number})
    np.testing.assert_array_equal(buffers[0], wanted[0])
