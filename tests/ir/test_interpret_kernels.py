"""The interpreter on kernels: every form, every trap, threads, work-groups, schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ExecutionError, InterpretError
from pellucid.ir.arg import (
    AddrSpace,
    AxisKind,
    CallInfo,
    DefineArg,
    KernelInfo,
    ParamArg,
    ReduceArg,
    SpecialArg,
    VariableArg,
)
from pellucid.ir.interpret import run_kernel, run_schedule, value_mapping
from pellucid.ir.interpret.structure import Loop, structure
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp, new_buffer

Array = npt.NDArray[Any]
f32, i32, index = dtypes.float32, dtypes.int32, dtypes.index


def param(slot: int, size: int, dtype: DType = f32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, size))


def number(value: int) -> UOp:
    return UOp.const(index, value)


def kernel(*effects: UOp, ordered: bool = False) -> UOp:
    return UOp.sink(*effects, arg=KernelInfo(ordered=ordered))


def special(name: str, size: int) -> UOp:
    return UOp.make(Ops.SPECIAL, number(size), arg=SpecialArg(name))


def reduce(value: UOp, *ranges: UOp, op: Op = Ops.ADD) -> UOp:
    return UOp.make(Ops.REDUCE, value, *ranges, arg=ReduceArg(op))


def define(space: AddrSpace, size: int, dtype: DType = f32) -> UOp:
    return UOp(Ops.DEFINE, dtype, (), DefineArg(space, 0, size))


def linear(sink: UOp) -> UOp:
    """The nodes in one good order, by hand: a SINK without loops, or with one around everything."""
    return UOp(Ops.LINEAR, dtypes.void, tuple(sink.toposort()))


def run(sink: UOp, *arrays: Array, **options: Any) -> list[Any]:
    """Run both ways, demand that they agree, and give the first buffer."""
    again = [a.copy() for a in arrays]
    run_kernel(sink, again, at_once=False, **options)
    run_kernel(sink, list(arrays), **options)
    for one, other in zip(arrays, again, strict=True):
        assert np.array_equal(one, other)
    return arrays[0].tolist()  # type: ignore[no-any-return]


def zeros(size: int) -> Array:
    return np.zeros(size, np.float32)


def counted(size: int) -> Array:
    return np.arange(size, dtype=np.float32)


def row_sums(rows: int, columns: int) -> UOp:
    i, j = UOp.range(rows, 0), UOp.range(columns, 1, AxisKind.REDUCE)
    value = reduce(param(1, rows * columns).index(i * columns + j), j)
    return kernel(param(0, rows).index(i).store(value).end(i))


# ---- LOOP --------------------------------------------------------------------------------------


def test_a_reduction_inside_a_loop() -> None:
    assert run(row_sums(4, 3), zeros(4), counted(12)) == [3, 12, 21, 30]


def test_reductions_in_sequence_over_one_row() -> None:
    i, j, k = UOp.range(3, 0), UOp.range(4, 1, AxisKind.REDUCE), UOp.range(4, 2, AxisKind.REDUCE)
    x = param(1, 12)
    highest = reduce(x.index(i * 4 + j), j, op=Ops.MAX)
    total = reduce(x.index(i * 4 + k) + highest * -1, k)
    sink = kernel(param(0, 3).index(i).store(total).end(i))
    assert run(sink, zeros(3), counted(12)) == [-6, -6, -6]


@pytest.mark.parametrize(
    ("op", "expected"),
    [(Ops.ADD, 10), (Ops.MUL, 24), (Ops.MAX, 4), (Ops.MIN, 1), (Ops.XOR, 4), (Ops.OR, 7)],
)
def test_every_reduction_op(op: Op, expected: int) -> None:
    j = UOp.range(4, 0, AxisKind.REDUCE)
    value = reduce(param(1, 4, i32).index(j), j, op=op)
    sink = kernel(param(0, 1, i32).index(number(0)).store(value))
    assert run(sink, np.zeros(1, np.int32), np.arange(1, 5, dtype=np.int32)) == [expected]


def test_a_reduction_of_what_does_not_depend_on_its_range() -> None:
    j = UOp.range(5, 0, AxisKind.REDUCE)
    sink = kernel(param(0, 1).index(number(0)).store(reduce(UOp.const(f32, 2.0), j)))
    assert run(sink, zeros(1)) == [10]


def test_empty_ranges() -> None:
    i, j = UOp.range(2, 0), UOp.range(0, 1, AxisKind.REDUCE)
    value = reduce(param(1, 0).index(j), j)
    assert run(kernel(param(0, 2).index(i).store(value).end(i)), counted(2), zeros(0)) == [0, 0]
    none = UOp.range(0, 0)
    untouched = kernel(param(0, 2).index(none).store(UOp.const(f32, 7.0)).end(none))
    assert run(untouched, counted(2)) == [0, 1]


def test_validity_reads_zero_and_touches_nothing() -> None:
    i = UOp.range(6, 0)
    valid = (i >= 1) & (i < 4)
    inside = param(1, 3).index(i + -1, valid)
    sink = kernel(param(0, 6).index(i).store(valid.where(inside, UOp.const(f32, -3.0))).end(i))
    assert run(sink, zeros(6), counted(3) + 7) == [-3, 7, 8, 9, -3, -3]
    bare = kernel(param(0, 6).index(i).store(inside).end(i))
    assert run(bare, zeros(6), counted(3) + 7) == [0, 7, 8, 9, 0, 0]


def test_an_index_from_data() -> None:
    i = UOp.range(3, 0)
    at = param(2, 3, i32).index(i).cast(index)
    sink = kernel(param(0, 3).index(i).store(param(1, 4).index(at)).end(i))
    assert run(sink, zeros(3), counted(4), np.array([3, 0, 3], np.int32)) == [3, 0, 3]
    with pytest.raises(InterpretError, match="index 4 of parameter 1, which has 4 elements"):
        run(sink, zeros(3), counted(4), np.array([3, 4, 0], np.int32))
    huge = at * (1 << 62) * 8
    fine = kernel(param(0, 3).index(i).store(param(1, 4).index(huge, huge < 4)).end(i))
    assert run(fine, zeros(3), counted(4) + 5, np.array([1, 0, 2], np.int32)) == [0, 5, 0]


def test_several_outputs_under_one_end() -> None:
    i = UOp.range(3, 0)
    x = param(2, 3).index(i)
    both = UOp.make(Ops.GROUP, param(0, 3).index(i).store(x * 2), param(1, 3).index(i).store(x + 1))
    arrays = [zeros(3), zeros(3), counted(3)]
    run(kernel(both.end(i)), *arrays)
    assert [a.tolist() for a in arrays[:2]] == [[0, 2, 4], [1, 2, 3]]


def test_large_kernels_are_computed_in_blocks() -> None:
    i, j = UOp.range(3000, 0), UOp.range(3000, 1)
    sink = kernel(
        param(0, 9_000_000, dtypes.int8)
        .index(i * 3000 + j)
        .store((i + j).cast(dtypes.int8))
        .end(i, j)
    )
    out = np.zeros(9_000_000, np.int8)
    run_kernel(sink, [out])
    assert np.array_equal(out.reshape(3000, 3000)[2999], (np.arange(3000) + 2999).astype(np.int8))


def test_symbolic_sizes() -> None:
    size = UOp(Ops.VARIABLE, index, (), VariableArg("n", 1, 4))
    i = UOp.range(size, 0)
    sink = kernel(param(0, 4).index(i).store(i.cast(f32) + 1).end(i))
    assert run(sink, zeros(4), variables={"n": 3}) == [1, 2, 3, 0]
    with pytest.raises(ExecutionError, match="the variable n has no value"):
        run(sink, zeros(4))
    with pytest.raises(ExecutionError, match="the variable n is out of its bounds"):
        run(sink, zeros(4), variables={"n": 5})


def test_bfloat16_parameters_are_bit_patterns() -> None:
    i = UOp.range(2, 0)
    bf16 = dtypes.bfloat16
    sink = kernel(param(0, 2, bf16).index(i).store(param(1, 2, bf16).index(i) * 2).end(i))
    out = np.zeros(2, np.uint16)
    assert run(sink, out, np.array([0x3F80, 0x4000], np.uint16)) == [0x4000, 0x4080]


# ---- ordered kernels, and kernels that read what they write ------------------------------------


def test_ordered_scatter_lets_the_last_win() -> None:
    i = UOp.range(4, 0)
    at = param(2, 4, i32).index(i).cast(index)
    sink = kernel(param(0, 3).index(at).store(param(1, 4).index(i)).end(i), ordered=True)
    assert run(sink, zeros(3), counted(4), np.array([0, 1, 0, 1], np.int32)) == [2, 3, 0]


def test_ordered_accumulation_in_one_place() -> None:
    i = UOp.range(4, 0)
    y = param(0, 1).index(number(0))
    sink = kernel(y.store(y + param(1, 4).index(i)).end(i), ordered=True)
    assert run(sink, zeros(1), counted(4)) == [6]
    loads = kernel(y.store(y.load() + param(1, 4).index(i).load()).end(i), ordered=True)
    assert run(loads, zeros(1), counted(4)) == [6]


def test_in_place_update_of_each_element() -> None:
    i = UOp.range(4, 0)
    y = param(0, 4).index(i)
    assert run(kernel(y.store(y * 2).end(i)), counted(4)) == [0, 2, 4, 6]


def test_a_group_computes_all_values_before_it_stores() -> None:
    first, second = param(0, 2).index(number(0)), param(0, 2).index(number(1))
    swap = UOp.make(Ops.GROUP, first.store(second.load()), second.store(first.load()))
    assert run(kernel(swap), counted(2)) == [1, 0]


# ---- lanes -------------------------------------------------------------------------------------


def test_vector_indices_gather_lane_by_lane() -> None:
    i = UOp.range(2, 0)
    lanes = UOp.const(index.vec(4), (0, 1, 2, 3))
    at = (i * 4).splat(4) + lanes
    backwards = at * UOp.const(index.vec(4), -1) + UOp.const(index.vec(4), 7)
    value = param(1, 8).index(backwards) * UOp.const(f32.vec(4), 2.0)
    sink = kernel(param(0, 8).index(at).store(value).end(i))
    assert run(sink, zeros(8), counted(8)) == [14, 12, 10, 8, 6, 4, 2, 0]


def test_scalar_indices_of_vectors_lie_side_by_side() -> None:
    i = UOp.range(2, 0)
    wide = UOp(Ops.INDEX, f32.vec(4), (param(1, 8), i * 4))
    target = UOp(Ops.INDEX, f32.vec(4), (param(0, 8), i * 4))
    sink = kernel(target.store(wide.load().lane((3, 2, 1, 0))).end(i))
    assert run(sink, zeros(8), counted(8)) == [3, 2, 1, 0, 7, 6, 5, 4]


def test_stack_lane_and_splat() -> None:
    x = param(1, 2)
    a, b = x.index(number(0)).load(), x.index(number(1)).load()
    stacked = UOp(Ops.STACK, f32.vec(4), (a.splat(2), b, a))
    target = UOp(Ops.INDEX, f32.vec(4), (param(0, 4), number(0)))
    sink = kernel(target.store(stacked + stacked.lane(2).splat(4)))
    assert run(sink, zeros(4), counted(2) + 1) == [3, 3, 4, 3]


def test_gates_are_masks_of_lanes() -> None:
    mask = UOp.const(dtypes.bool.vec(4), (True, False, True, False))
    fallback = UOp.const(f32.vec(4), 9.0)
    wide = UOp(Ops.INDEX, f32.vec(4), (param(1, 3), number(0)))
    everywhere = kernel(
        UOp(Ops.INDEX, f32.vec(4), (param(0, 4), number(0))).store(wide.load(fallback, mask))
    )
    assert run(everywhere, zeros(4), counted(3)) == [0, 9, 2, 9]
    target = UOp(Ops.INDEX, f32.vec(4), (param(0, 3), number(0)))
    masked = kernel(target.store(fallback, mask))
    assert run(masked, zeros(3)) == [9, 0, 9]


# ---- SCALAR and LINEAR: accumulators -----------------------------------------------------------


def accumulated(rows: int, columns: int, *, initialise: bool = True) -> UOp:
    """Row sums with an accumulator."""
    i, j = UOp.range(rows, 0), UOp.range(columns, 1, AxisKind.REDUCE)
    acc, zero = define(AddrSpace.REG, 1), number(0)
    init = acc.after(i).index(zero).store(UOp.const(f32, 0.0))
    inside = acc.after(init, j) if initialise else acc.after(j)
    step = inside.index(zero)
    value = param(1, rows * columns).index(i * columns + j).load()
    end = step.store(step.load() + value).end(j)
    result = acc.after(end).index(zero).load()
    return kernel(param(0, rows).index(i).store(result).end(i))


def test_accumulators_start_again_in_each_turn() -> None:
    assert run(accumulated(4, 3), zeros(4), counted(12)) == [3, 12, 21, 30]


def test_an_accumulator_needs_its_first_value() -> None:
    with pytest.raises(InterpretError, match="uninitialised: element 0 of reg storage 0"):
        run_kernel(accumulated(2, 2, initialise=False), [zeros(2), counted(4)])


def test_vector_accumulators() -> None:
    j, acc, zero = UOp.range(3, 0, AxisKind.REDUCE), define(AddrSpace.REG, 1, f32.vec(4)), number(0)
    one = UOp(Ops.INDEX, f32.vec(4), (acc, zero))
    init = one.store(UOp.const(f32.vec(4), 0.0))
    inside = UOp(Ops.INDEX, f32.vec(4), (acc.after(init, j), zero))
    value = UOp(Ops.INDEX, f32.vec(4), (param(1, 12), j * 4)).load()
    end = inside.store(inside.load() + value).end(j)
    result = UOp(Ops.INDEX, f32.vec(4), (acc.after(end), zero)).load()
    sink = kernel(UOp(Ops.INDEX, f32.vec(4), (param(0, 4), zero)).store(result))
    assert run(sink, zeros(4), counted(12)) == [12, 15, 18, 21]


def listed(sink: UOp) -> UOp:
    """The items of the interpreter's own structure, as a LINEAR."""
    items: list[UOp] = []

    def walk(block: list[Any]) -> None:
        for item in block:
            if isinstance(item, Loop):
                items.extend(item.ranges)
                walk(item.body)
                items.append(item.end)
            else:
                items.append(item)

    walk(structure(sink))
    return UOp(Ops.LINEAR, dtypes.void, tuple(items))


def test_lists_run_in_order() -> None:
    out = zeros(4)
    run_kernel(listed(accumulated(4, 3)), [out, counted(12)])
    assert out.tolist() == [3, 12, 21, 30]


def test_branches_run_where_their_condition_holds() -> None:
    i = UOp.range(4, 0)
    target = param(0, 4).index(i)
    one, condition = UOp.const(f32, 1.0), i < 2
    branch = UOp.make(Ops.IF, condition)
    store = target.store(one)
    close = UOp.make(Ops.ENDIF, branch)
    end = store.end(i)
    items = (*i.src, i, *condition.src[1:], condition, param(0, 4), target, one, branch)
    program = UOp(Ops.LINEAR, dtypes.void, (*items, store, close, end, kernel(end)))
    out = zeros(4)
    run_kernel(program, [out])
    assert out.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((UOp.range(2, 0),), "a loop or a branch is never closed"),
        ((UOp.make(Ops.GROUP).end(UOp.range(2, 0)),), "END does not close the innermost loop"),
        ((UOp.make(Ops.ENDIF, UOp.make(Ops.IF, UOp.const(dtypes.bool, True))),), "ENDIF does not"),
    ],
)
def test_lists_that_do_not_nest_are_refused(items: tuple[UOp, ...], message: str) -> None:
    with pytest.raises(InterpretError, match=message):
        run_kernel(UOp(Ops.LINEAR, dtypes.void, items), [])


# ---- traps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_accesses_out_of_bounds_are_named(at_once: bool) -> None:
    i = UOp.range(4, 0)
    read = kernel(param(0, 4).index(i).store(param(1, 4).index(i + 1)).end(i))
    with pytest.raises(InterpretError) as caught:
        run_kernel(read, [zeros(4), counted(4)], at_once=at_once)
    assert caught.value.kind == InterpretError.OUT_OF_BOUNDS
    assert "index 4 of parameter 1, which has 4 elements" in str(caught.value)
    write = kernel(param(0, 4).index(i + -1).store(UOp.const(f32, 1.0)).end(i))
    with pytest.raises(InterpretError, match="index -1 of parameter 0, which has 4 elements"):
        run_kernel(write, [zeros(4)], at_once=at_once)


def test_two_iterations_that_write_one_element_are_a_race() -> None:
    i = UOp.range(4, 0)
    sink = kernel(param(0, 4).index(i // 2).store(i.cast(f32)).end(i))
    with pytest.raises(InterpretError, match="race: element 0 of parameter 0 is written by two"):
        run_kernel(sink, [zeros(4)])


def test_parts_that_overlap_may_write_one_element_twice_but_only_the_same_value() -> None:
    o, i = UOp.range(3, 0), UOp.range(4, 1)
    place = (o * 4).minimum(6) + i
    out = zeros(10)
    run_kernel(kernel(param(0, 10).index(place).store(place.cast(f32)).end(o, i)), [out])
    np.testing.assert_array_equal(out, np.arange(10))
    sink = kernel(param(0, 10).index(place).store(o.cast(f32)).end(o, i))
    with pytest.raises(InterpretError, match="element 6 of parameter 0 is written with two values"):
        run_kernel(sink, [zeros(10)])


def overlapping(
    place: Callable[[UOp, UOp, UOp], UOp], third: int = 1, kind: AxisKind = AxisKind.LOOP
) -> UOp:
    """A kernel that stores each place at that place, in parts of 4 of 10 that overlap."""
    o, i, k = UOp.range(3, 0), UOp.range(4, 1), UOp.range(third, 2, kind)
    at = place((o * 4).minimum(6), i, k)
    return kernel(param(0, 60).index(at).store(at.cast(f32)).end(o, i, k))


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        (overlapping(lambda start, i, k: start + i), None),
        (overlapping(lambda start, i, k: start + i + k * 10, 3), None),
        (overlapping(lambda start, i, k: start + i + k * 10, 3, AxisKind.THREAD), None),
        # two iterations of one part
        (overlapping(lambda start, i, k: start + i // 2), "0 of parameter 0 is written by two it"),
        (overlapping(lambda start, i, k: start + i, 3), "0 of parameter 0 is written by two it"),
        # elements 2 and 3 of the second part are 0 and 1 of the third
        (overlapping(lambda start, i, k: start + i + k, 2), "is written by two it"),
        # two threads, though the part and the thread are not the same axis
        (
            overlapping(lambda start, i, k: start + k + i * 12, 4, AxisKind.THREAD),
            "6 of parameter 0 is written by two threads",
        ),
    ],
)
def test_only_parts_that_overlap_may_write_one_element_twice(
    sink: UOp, problem: str | None
) -> None:
    if problem is None:
        run_kernel(sink, [zeros(60)])
        return
    with pytest.raises(InterpretError, match=problem):
        run_kernel(sink, [zeros(60)])


def test_threads_may_not_write_one_element_though_parts_overlap() -> None:
    for outer, inner in ((AxisKind.THREAD, AxisKind.LOOP), (AxisKind.LOOP, AxisKind.THREAD)):
        axes = UOp.range(3, 0, outer), UOp.range(4, 1, inner)
        place = (axes[0] * 4).minimum(6) + axes[1]
        sink = kernel(param(0, 10).index(place).store(place.cast(f32)).end(*axes))
        with pytest.raises(InterpretError, match="race: element 6 of parameter 0 is written by"):
            run_kernel(sink, [zeros(10)])


def test_a_second_nest_may_not_write_what_parts_have_written() -> None:
    parts = overlapping(lambda start, i, k: start + i).src[0]
    i = UOp.range(1, 5)
    other = param(0, 60).index(i + 3).store(UOp.const(f32, 3.0)).end(i)
    for effects in ((parts, other), (other, parts)):
        with pytest.raises(InterpretError, match="element 3 of parameter 0 is written by two it"):
            run_kernel(kernel(*effects), [zeros(60)])


def test_poisoned_outputs_must_be_written_before_they_are_read() -> None:
    i = UOp.range(4, 0)
    y = param(0, 4).index(i)
    sink = kernel(y.store(y + 1).end(i))
    run_kernel(sink, [zeros(4)])
    with pytest.raises(InterpretError, match="uninitialised: element 0 of parameter 0"):
        run_kernel(sink, [zeros(4)], poison=True)


def test_buffers_that_do_not_fit_are_refused() -> None:
    sink = row_sums(2, 2)
    with pytest.raises(ExecutionError, match="parameter 1 has no buffer"):
        run_kernel(sink, [zeros(2)])
    with pytest.raises(ExecutionError, match="parameter 1 is too small"):
        run_kernel(sink, [zeros(2), counted(3)])
    with pytest.raises(ExecutionError, match="parameter 0 holds float32"):
        run_kernel(sink, [np.zeros(2, np.float64), counted(4)])
    with pytest.raises(ExecutionError, match="parameter 0 needs an array without gaps"):
        run_kernel(sink, [np.zeros((4, 4), np.float32)[:2, :2], counted(4)])


# ---- threads and work-groups -------------------------------------------------------------------

ORDERS = ("forward", "reverse", "random")


def threaded(shift: int) -> UOp:
    """Each of four threads writes two elements; *shift* moves where the last one begins."""
    thread, j = special("thread", 4), UOp.range(2, 0)
    at = thread * 2 + j + (thread >= 3).where(number(shift), number(0))
    return kernel(param(0, 8).index(at).store(at.cast(f32)).end(j))


@pytest.mark.parametrize("order", ORDERS)
def test_threads_run_in_any_order(order: str) -> None:
    assert run(threaded(0), zeros(8), order=order) == list(range(8))
    with pytest.raises(InterpretError, match="race: element 5 of parameter 0: item 0 of group"):
        run(threaded(-1), zeros(8), order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_thread_that_reads_what_another_writes_is_a_race(order: str) -> None:
    thread = special("thread", 3)
    y = param(0, 4)
    sink = kernel(y.index(thread).store(y.index(thread + 1).load()))
    with pytest.raises(InterpretError, match="race"):
        run(sink, zeros(4), order=order)


def reversed_in_groups(*, barrier: bool = True) -> UOp:
    """Each group of four turns its four elements round, through a LOCAL tile."""
    group, item = special("group0", 2), special("local0", 4)
    tile = define(AddrSpace.LOCAL, 4)
    fill = tile.index(item).store(param(1, 8).index(group * 4 + item).load())
    wait = UOp.make(Ops.BARRIER, fill) if barrier else fill
    value = tile.after(wait).index(item * -1 + 3).load()
    return kernel(param(0, 8).index(group * 4 + item).store(value))


@pytest.mark.parametrize("order", ORDERS)
def test_work_groups_meet_at_barriers(order: str) -> None:
    assert run(reversed_in_groups(), zeros(8), counted(8), order=order) == [3, 2, 1, 0, 7, 6, 5, 4]


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_is_found(order: str) -> None:
    with pytest.raises(InterpretError, match=r"race|uninitialised"):
        run(reversed_in_groups(barrier=False), zeros(8), counted(8), order=order)


def test_a_barrier_in_a_loop_separates_its_turns() -> None:
    item, j = special("local0", 2), UOp.range(3, 0)
    tile = define(AddrSpace.LOCAL, 2)
    fill = tile.after(j).index(item).store((item + j).cast(f32))
    value = tile.after(UOp.make(Ops.BARRIER, fill)).index(item * -1 + 1).load()
    target = param(0, 6).index(item * 3 + j)
    done = UOp.make(Ops.BARRIER, target.store(value))
    assert run(kernel(done.end(j)), zeros(6)) == [1, 2, 3, 0, 1, 2]
    with pytest.raises(InterpretError, match="race"):
        run(kernel(target.store(value).end(j)), zeros(6))


def test_a_barrier_that_some_items_miss_is_divergent() -> None:
    item = special("local0", 2)
    condition = item < 1
    branch = UOp.make(Ops.IF, condition)
    barrier = UOp.make(Ops.BARRIER)
    close = UOp.make(Ops.ENDIF, branch)
    items = (*item.src, item, *condition.src[1:], condition, branch, barrier, close, kernel())
    with pytest.raises(InterpretError, match="1 of 2 items of a group arrive at a barrier"):
        run_kernel(UOp(Ops.LINEAR, dtypes.void, items), [])


# ---- schedules ---------------------------------------------------------------------------------


def test_schedules_run_their_calls_in_order() -> None:
    a, b, c = (new_buffer(3, f32, "CPU") for _ in range(3))
    i = UOp.range(3, 0)
    twice = kernel(param(0, 3).index(i).store(param(1, 3).index(i) * 2).end(i))
    copy = UOp(Ops.COPY, dtypes.void, (), "CPU")
    calls = [
        UOp.make(Ops.CALL, k, *s, arg=CallInfo()) for k, s in ((twice, (b, a)), (copy, (c, b)))
    ]
    buffers = {a: counted(3)}
    result = run_schedule(UOp(Ops.LINEAR, dtypes.void, tuple(calls)), buffers)
    assert result is buffers
    assert result[c].tolist() == [0, 2, 4]


# ---- what is read for what ---------------------------------------------------------------------


def test_the_mapping_of_a_reduction_is_the_same_with_an_accumulator() -> None:
    expected = {(0, r): frozenset({(1, 2 * r), (1, 2 * r + 1)}) for r in range(3)}
    assert value_mapping(row_sums(3, 2)) == expected
    assert value_mapping(accumulated(3, 2)) == expected
    assert value_mapping(listed(accumulated(3, 2))) == expected
    assert value_mapping(row_sums(3, 3)) != expected


def test_the_mapping_leaves_out_what_is_not_touched() -> None:
    i = UOp.range(3, 0)
    valid = i < 2
    x = param(1, 2)
    fill = UOp.const(f32, 5.0)
    by_index = valid.where(x.index(i, valid), fill)
    by_gate = x.index(i).load(fill, valid)
    expected = {(0, 0): frozenset({(1, 0)}), (0, 1): frozenset({(1, 1)}), (0, 2): frozenset()}
    for value in (by_index, by_gate):
        assert value_mapping(kernel(param(0, 3).index(i).store(value).end(i))) == expected


def test_the_mapping_follows_lanes_and_data() -> None:
    wide = UOp(Ops.INDEX, f32.vec(2), (param(1, 2), number(0)))
    target = UOp(Ops.INDEX, f32.vec(2), (param(0, 2), number(0)))
    swapped = kernel(target.store(wide.load().lane((1, 0))))
    assert value_mapping(swapped) == {(0, 0): {(1, 1)}, (0, 1): {(1, 0)}}
    at = param(2, 1, i32).index(number(0)).cast(index)
    gathered = kernel(param(0, 1).index(number(0)).store(param(1, 3).index(at)))
    data = [zeros(1), zeros(3), np.array([2], np.int32)]
    assert value_mapping(gathered, data) == {(0, 0): {(1, 2), (2, 0)}}


def test_the_mapping_covers_all_threads() -> None:
    assert value_mapping(threaded(0)) == {(0, k): frozenset() for k in range(8)}
    with pytest.raises(InterpretError, match="a kernel with barriers has none"):
        value_mapping(reversed_in_groups())
