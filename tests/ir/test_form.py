"""Forms: for every check a graph that breaks it, with the exact message, and sound graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import (
    AddrSpace,
    AxisKind,
    CallInfo,
    CheckArg,
    DefineArg,
    KernelInfo,
    ParamArg,
    ProgramInfo,
    ReduceArg,
    SpecialArg,
)
from pellucid.ir.checks import accesses, args, every, kernels, lists, lowered, schedules, tensors
from pellucid.ir.form import (
    FORMS,
    LINEAR,
    LOOP,
    NATIVE,
    PROGRAM,
    SCALAR,
    SCHEDULE,
    TENSOR,
    VECTOR,
    Form,
    forms_table,
)
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp, new_buffer
from pellucid.ir.verify import find_problem, is_in_form

f32, i32, i64, index, boolean = (
    dtypes.float32,
    dtypes.int32,
    dtypes.int64,
    dtypes.index,
    dtypes.bool,
)
void = dtypes.void


def const(dtype: DType, value: Any) -> UOp:
    return UOp(Ops.CONST, dtype, (), value)


def param(slot: int, size: int = 4, dtype: DType = f32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, size))


def node(op: Op, dtype: DType, *src: UOp, arg: Any = None) -> UOp:
    """A node that nobody checks."""
    return UOp(op, dtype, src, arg)


def kernel(*effects: UOp) -> UOp:
    return UOp.sink(*effects, arg=KernelInfo())


def listed(*items: UOp) -> UOp:
    return UOp(Ops.LINEAR, void, items)


def tensor(*shape: int, dtype: DType = f32) -> UOp:
    return UOp.const(dtype, 0).expand(shape)


i, j = UOp.range(4, 0), UOp.range(3, 1, AxisKind.REDUCE)
one, two = const(f32, 1.0), const(i32, 2)
x = param(1).index(i)
store = param(0).index(i).store(x)
loop = store.end(i)
total = UOp.make(Ops.REDUCE, param(1).index(j), j, arg=ReduceArg(Ops.ADD))
lanes_range = UOp.range(4, 2, AxisKind.LANES)
thread_range = UOp.range(4, 3, AxisKind.THREAD)
shorts = const(i32, 4)
narrow = UOp(Ops.RANGE, i32, (shorts,), i.arg)
vector_index = param(1).index(const(index.vec(2), (0, 2)))
condition = const(boolean, True)
branch = UOp.make(Ops.IF, condition)
buffer = new_buffer(4, f32, "CPU")
doubles = new_buffer(4, dtypes.float64, "CPU")
target = replace(
    Target(arch="generic"), native_ops=frozenset(["ADD"]), native_dtypes=frozenset(["float32"])
)
native_store = param(0).index(narrow).store(param(1).index(narrow).load())

Broken = tuple[Callable[..., str | None], Form, UOp, str]
BROKEN: list[Broken] = [
    # -- every form
    (
        every.sources_fit_the_row,
        TENSOR,
        node(Ops.ADD, f32, one),
        "ADD has 1 sources; its row names left right",
    ),
    (
        every.sources_fit_the_row,
        LOOP,
        node(Ops.INDEX, f32, param(1), i, condition, condition),
        "INDEX has 4 sources; its row names buffer index valid?",
    ),
    (
        args.arg_fits_the_op,
        TENSOR,
        node(Ops.ADD, f32, one, one, arg=3),
        "ADD takes no arg, not 3",
    ),
    (
        args.arg_fits_the_op,
        LOOP,
        node(Ops.RANGE, index, const(index, 4), arg=0),
        "RANGE takes a RangeArg, not 0",
    ),
    (
        args.arg_fits_the_op,
        TENSOR,
        node(Ops.REDUCE, f32, tensor(2), arg=ReduceArg(Ops.FDIV, (0,))),
        "REDUCE takes a ReduceArg with an associative op, not ReduceArg(op=Ops.FDIV, axes=(0,))",
    ),
    (every.literals_are_of_their_type, TENSOR, const(f32, 1), "CONST of float32 cannot be 1"),
    (every.literals_are_of_their_type, TENSOR, const(f32, 0.1), "CONST of float32 cannot be 0.1"),
    (
        every.literals_are_of_their_type,
        LOOP,
        const(dtypes.uint8, 256),
        "CONST of uint8 cannot be 256",
    ),
    (
        every.literals_are_of_their_type,
        VECTOR,
        const(f32.vec(4), (1.0, 2.0)),
        "CONST of float32x4 has 2 values",
    ),
    (
        every.elementwise_sources_agree,
        TENSOR,
        node(Ops.ADD, f32, one, two),
        "ADD of float32, int32",
    ),
    (
        every.elementwise_sources_agree,
        VECTOR,
        node(Ops.WHERE, f32.vec(2), condition, const(f32.vec(2), 1.0), const(f32.vec(2), 2.0)),
        "WHERE of 1, 2, 2 lanes",
    ),
    (
        every.conditions_are_bool,
        TENSOR,
        node(Ops.WHERE, f32, two, one, one),
        "WHERE decides by int32",
    ),
    (
        every.conditions_are_bool,
        LOOP,
        node(Ops.INDEX, f32, param(1), i, i),
        "INDEX decides by index",
    ),
    (every.conditions_are_bool, LINEAR, node(Ops.IF, void, two), "IF decides by int32"),
    (
        every.result_types_follow,
        TENSOR,
        node(Ops.ADD, i32, one, one),
        "ADD gives float32, not int32",
    ),
    (
        every.result_types_follow,
        TENSOR,
        node(Ops.CMPLT, f32, one, one),
        "CMPLT gives bool, not float32",
    ),
    (
        every.result_types_follow,
        LOOP,
        node(Ops.INDEX, i32, param(1), i),
        "INDEX gives float32, not int32",
    ),
    (
        every.result_types_follow,
        VECTOR,
        node(Ops.CAST, i32.vec(2), one),
        "CAST gives int32, not int32x2",
    ),
    (
        every.ops_fit_their_types,
        TENSOR,
        node(Ops.SQRT, i32, two),
        "SQRT of int32, which is not a float",
    ),
    (
        every.ops_fit_their_types,
        TENSOR,
        node(Ops.FLOORDIV, f32, one, one),
        "FLOORDIV of float32, which is not an integer",
    ),
    (
        every.ops_fit_their_types,
        TENSOR,
        node(Ops.AND, f32, one, one),
        "AND of float32, which is not an integer or bool",
    ),
    (every.ops_fit_their_types, TENSOR, node(Ops.THREEFRY, i32, two, two), "THREEFRY of int32"),
    (every.ops_fit_their_types, LOOP, node(Ops.ADD, void, store, store), "ADD of an effect"),
    (
        every.bitcasts_keep_the_width,
        TENSOR,
        node(Ops.BITCAST, i64, one),
        "BITCAST from float32 to int64",
    ),
    (every.casts_change_the_type, TENSOR, node(Ops.CAST, f32, one), "CAST from float32 to itself"),
    # -- TENSOR
    (tensors.tensors_have_a_shape, TENSOR, node(Ops.CONTIGUOUS, f32, i), "CONTIGUOUS has no shape"),
    (
        tensors.shapes_agree,
        TENSOR,
        node(Ops.ADD, f32, tensor(2), tensor(3)),
        "ADD of shapes (2,), (3,)",
    ),
    (tensors.one_lane_each, TENSOR, const(f32.vec(2), 1.0), "CONST has 2 lanes"),
    (
        tensors.reduce_has_no_ranges_yet,
        TENSOR,
        node(Ops.REDUCE, f32, x, j, arg=ReduceArg(Ops.ADD)),
        "REDUCE over ranges in TENSOR form",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.RESHAPE, f32, tensor(2, 3), arg=(5,)),
        "RESHAPE of shape (2, 3) by (5,)",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.PERMUTE, f32, tensor(2, 3), arg=(0, 0)),
        "PERMUTE of shape (2, 3) by (0, 0)",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.EXPAND, f32, tensor(2, 3), arg=(4, 3)),
        "EXPAND of shape (2, 3) by (4, 3)",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.EXPAND, f32, tensor(2, 3), arg=(3,)),
        "EXPAND of shape (2, 3) by (3,)",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.SHRINK, f32, tensor(2), arg=((1, 3),)),
        "SHRINK of shape (2,) by ((1, 3),)",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.SHRINK, f32, tensor(2), arg=()),
        "SHRINK of shape (2,) by ()",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.FLIP, f32, tensor(2), arg=(1,)),
        "FLIP of shape (2,) by (1,)",
    ),
    (
        tensors.movement_fits_its_source,
        TENSOR,
        node(Ops.PAD, f32, tensor(2), one, arg=()),
        "PAD of shape (2,) by ()",
    ),
    (
        tensors.pad_fill_is_a_scalar,
        TENSOR,
        node(Ops.PAD, f32, tensor(2), two, arg=((1, 1),)),
        "PAD of float32 with a fill of int32, shape ()",
    ),
    (
        tensors.reduce_names_an_axis,
        TENSOR,
        node(Ops.REDUCE, f32, tensor(2), arg=ReduceArg(Ops.ADD)),
        "REDUCE without an axis",
    ),
    (
        tensors.reduce_names_an_axis,
        TENSOR,
        node(Ops.REDUCE, f32, tensor(2), arg=ReduceArg(Ops.ADD, (1,))),
        "REDUCE of shape (2,) over axes (1,)",
    ),
    (
        tensors.indices_fit_their_tensor,
        TENSOR,
        node(Ops.GATHER, f32, tensor(2)),
        "GATHER of shape (2,) by 0 indices",
    ),
    (
        tensors.indices_fit_their_tensor,
        TENSOR,
        node(Ops.GATHER, f32, tensor(2), tensor(3)),
        "GATHER by float32",
    ),
    (
        tensors.indices_fit_their_tensor,
        TENSOR,
        node(Ops.GATHER, f32, tensor(2, 2), tensor(3, dtype=i32), tensor(4, dtype=i32)),
        "GATHER by indices of shapes (3,), (4,)",
    ),
    (
        tensors.window_ends_at_its_base,
        TENSOR,
        node(Ops.WRITE, f32, tensor(2), tensor(2) + tensor(2), tensor(2)),
        "the window of WRITE goes through ADD",
    ),
    (
        tensors.written_values_fit,
        TENSOR,
        node(Ops.WRITE, f32, tensor(2), tensor(2), tensor(2, dtype=i32)),
        "WRITE of int32 into float32",
    ),
    (
        tensors.written_values_fit,
        TENSOR,
        node(Ops.SCATTER, f32, tensor(5, 2), tensor(3), tensor(3, dtype=i32)),
        "SCATTER of shape (3,) where (3, 2) is replaced",
    ),
    (
        tensors.flag_is_a_scalar_int64,
        TENSOR,
        node(Ops.CHECK, f32, tensor(2), tensor(2, dtype=i64), arg=CheckArg("gather", 0, 2)),
        "the flag of CHECK is int64 of shape (2,)",
    ),
    # -- SCHEDULE
    (schedules.schedule_lists_calls, SCHEDULE, listed(buffer), "a schedule lists BUFFER"),
    (
        schedules.calls_name_storage,
        SCHEDULE,
        node(Ops.CALL, void, buffer, arg=CallInfo()),
        "CALL of BUFFER",
    ),
    (
        schedules.calls_name_storage,
        SCHEDULE,
        node(Ops.CALL, void, kernel(loop), kernel(), arg=CallInfo()),
        "CALL on SINK, which is not storage",
    ),
    (
        schedules.calls_fit_their_kernel,
        SCHEDULE,
        node(Ops.CALL, void, kernel(loop), buffer, arg=CallInfo()),
        "CALL on 1 buffers of a kernel with parameter 1",
    ),
    (
        schedules.calls_fit_their_kernel,
        SCHEDULE,
        node(Ops.CALL, void, kernel(loop), buffer, doubles, arg=CallInfo()),
        "parameter 1 is 4 float32; its buffer has 4 float64",
    ),
    # -- kernels
    (kernels.kernel_has_its_info, LOOP, UOp.sink(loop), "the SINK of a kernel carries None"),
    (kernels.sink_holds_effects, LOOP, kernel(x), "SINK holds INDEX, which is a value"),
    (
        kernels.sink_holds_effects,
        LOOP,
        node(Ops.END, f32, x, i),
        "END holds INDEX, which is a value",
    ),
    (kernels.loops_close_ranges, LOOP, node(Ops.END, void, store, one), "END closes CONST"),
    (
        kernels.loops_close_ranges,
        LOOP,
        node(Ops.END, void, store, i, i),
        "END closes a RANGE twice",
    ),
    (
        kernels.stores_close_their_ranges,
        LOOP,
        kernel(store),
        "STORE depends on i0, which no END closes",
    ),
    (
        kernels.no_open_ranges_at_the_sink,
        LOOP,
        kernel(store.end(j)),
        "i0 is still open at the SINK",
    ),
    (
        kernels.range_ids_differ,
        LOOP,
        kernel(loop, param(0).index(UOp.range(3, 0)).store(one).end(UOp.range(3, 0))),
        "two RANGEs have number 0",
    ),
    (
        kernels.params_have_one_slot_each,
        LOOP,
        kernel(loop, param(1, 5).index(const(index, 0)).store(one)),
        "two PARAMs have slot 1",
    ),
    (accesses.indices_are_integers, LOOP, node(Ops.INDEX, f32, param(1), one), "INDEX by float32"),
    (accesses.index_is_into_storage, LOOP, node(Ops.INDEX, f32, one, i), "INDEX into CONST"),
    (
        accesses.accesses_go_through_an_index,
        LOOP,
        node(Ops.STORE, void, param(0), one),
        "STORE at PARAM",
    ),
    (
        accesses.accesses_fit_their_index,
        LOOP,
        node(Ops.STORE, void, x, two),
        "STORE of int32 at an INDEX of float32",
    ),
    (
        accesses.accesses_fit_their_index,
        VECTOR,
        node(Ops.STORE, void, vector_index, const(f32.vec(2), 1.0), condition),
        "STORE with a gate of 1 lanes for 2",
    ),
    (
        accesses.streamed_stores_are_whole_vectors,
        LOOP,
        node(Ops.STORE, void, x, x, arg="stream"),
        "STORE 'stream' of float32",
    ),
    (
        accesses.loads_have_fallback_and_gate,
        NATIVE,
        node(Ops.LOAD, f32, x, one),
        "LOAD with a fallback and no gate",
    ),
    (
        kernels.reduce_has_no_axes_left,
        LOOP,
        node(Ops.REDUCE, f32, x, j, arg=ReduceArg(Ops.ADD, (0,))),
        "REDUCE still names axes (0,)",
    ),
    # -- LOOP
    (lowered.no_lanes_yet, LOOP, const(f32.vec(4), 1.0), "CONST has 4 lanes"),
    (
        accesses.index_is_unbounded,
        LOOP,
        param(1).index(two),
        "INDEX by int32, before widths are chosen",
    ),
    (
        kernels.reduce_names_a_range,
        LOOP,
        node(Ops.REDUCE, f32, x, arg=ReduceArg(Ops.ADD)),
        "REDUCE without a range",
    ),
    (
        every.pairs_are_reduced_as_pairs,
        TENSOR,
        node(Ops.REDUCE, f32, tensor(2), arg=ReduceArg(Ops.ARGMAX, (0,))),
        "REDUCE of EXPAND by ARGMAX",
    ),
    (
        kernels.reduces_have_ranges_of_their_own,
        LOOP,
        kernel(
            param(0)
            .index(const(index, 0))
            .store(total + UOp.make(Ops.REDUCE, param(2).index(j), j, arg=ReduceArg(Ops.ADD)))
        ),
        "REDUCE and REDUCE both close i1",
    ),
    # -- lanes
    (
        lowered.matrices_fit_their_unit,
        VECTOR,
        node(Ops.MMA, f32, one, one, one, arg="vdpbf16ps_512"),
        "vdpbf16ps_512 of float32, float32, float32",
    ),
    (lowered.lane_ops_fit, VECTOR, node(Ops.SPLAT, i32.vec(4), one), "SPLAT of float32 to int32x4"),
    (lowered.lane_ops_fit, VECTOR, node(Ops.SPLAT, f32.vec(2), vector_index), "SPLAT of float32x2"),
    (
        lowered.lane_ops_fit,
        VECTOR,
        node(Ops.STACK, f32.vec(4), one, one),
        "STACK of float32, float32 to float32x4",
    ),
    (
        lowered.lane_ops_fit,
        VECTOR,
        node(Ops.LANE, f32, vector_index, arg=2),
        "LANE 2 of float32x2 to float32",
    ),
    (lowered.no_lanes_ranges_left, VECTOR, lanes_range, "i2 is still a RANGE of kind LANES"),
    # -- SCALAR
    (lowered.no_launch_ranges_left, SCALAR, thread_range, "i3 is still a RANGE of kind THREAD"),
    (lowered.index_width_is_chosen, SCALAR, i, "RANGE is of type index"),
    (accesses.reads_are_loads, SCALAR, x + 1.0, "ADD reads an INDEX without a LOAD"),
    (accesses.reads_are_loads, SCALAR, store, "STORE reads an INDEX without a LOAD"),
    (accesses.no_vector_indices, SCALAR, vector_index, "INDEX by 2 lanes"),
    # -- NATIVE
    (
        accesses.validity_is_gates,
        NATIVE,
        param(1).index(narrow, condition),
        "INDEX with a third source",
    ),
    (lowered.no_functions_left, NATIVE, UOp.make(Ops.EXP, one), "EXP is not exact"),
    (lowered.only_native_ops, NATIVE, one * one, "MUL is not native to the target"),
    (
        lowered.only_native_ops,
        NATIVE,
        node(Ops.MMA, f32, one, one, one, arg="vdpbf16ps_512"),
        "vdpbf16ps_512 is not native to the target",
    ),
    (
        lowered.only_native_dtypes,
        NATIVE,
        two + two,
        "ADD of int32, which is not native to the target",
    ),
    # -- LINEAR
    (
        lists.each_source_comes_first,
        LINEAR,
        listed(one, one + one + one),
        "item 1 (ADD) comes before its source ADD",
    ),
    (lists.each_source_comes_first, LINEAR, listed(one, one), "item 1 (CONST) is listed twice"),
    (
        lists.loops_nest,
        LINEAR,
        listed(branch, i, UOp.make(Ops.ENDIF, branch)),
        "item 2 (ENDIF) does not close the innermost block",
    ),
    (lists.loops_nest, LINEAR, listed(narrow), "RANGE is never closed"),
    (
        lists.values_stay_in_their_loop,
        LINEAR,
        listed(narrow, native_store.end(narrow), param(1).index(narrow)),
        "item 2 (INDEX) stands outside of the loop of i0",
    ),
    (lists.sink_is_last, LINEAR, listed(one), "SINK is not the last item"),
    # -- PROGRAM
    (
        schedules.program_has_its_parts,
        PROGRAM,
        node(Ops.PROGRAM, void, listed(), kernel(), arg=ProgramInfo("add")),
        "PROGRAM holds LINEAR, SINK",
    ),
    (
        schedules.program_has_its_parts,
        PROGRAM,
        node(Ops.PROGRAM, void, arg=ProgramInfo("add")),
        "PROGRAM holds nothing",
    ),
]


@pytest.mark.parametrize(
    ("check", "form", "graph", "message"), BROKEN, ids=lambda part: getattr(part, "__name__", "")
)
def test_every_check_refuses_what_breaks_it(
    check: Callable[..., str | None], form: Form, graph: UOp, message: str
) -> None:
    needs_target = check in form.target_checks
    assert check in (*form.checks, *form.target_checks)
    assert (check(graph, target) if needs_target else check(graph)) == message
    alone = form.without(*(name for name in form.check_names() if name != check.__name__))
    assert alone.problem(graph, target) == (
        message if graph.op in form.ops else alone.problem(graph)
    )
    assert form.problem(graph, target) is not None


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_every_check_of_every_form_is_broken_above(form: Form) -> None:
    broken = {check for check, *_ in BROKEN}
    assert not {c.__name__ for c in (*form.checks, *form.target_checks) if c not in broken}


def program_of(sink: UOp) -> UOp:
    return listed(*sink.toposort())


def native_kernel() -> UOp:
    return kernel(native_store.end(narrow))


def native_list() -> UOp:
    """The native kernel, in order."""
    nodes = native_kernel().toposort()
    leaves = [n for n in nodes if not n.src]
    rest = [n for n in nodes if n.src and n is not narrow]
    return listed(*leaves, narrow, *rest)


def accumulated() -> UOp:
    """A sum with an accumulator, widths chosen."""
    zero, four = const(i32, 0), const(i32, 4)
    k = UOp(Ops.RANGE, i32, (four,), j.arg)
    acc = UOp(Ops.DEFINE, f32, (), DefineArg(AddrSpace.REG, 0, 1))
    init = acc.index(zero).store(const(f32, 0.0))
    step = acc.after(init, k).index(zero)
    end = step.store(step.load() + param(1).index(k).load()).end(k)
    return kernel(param(0).index(zero).store(acc.after(end).index(zero).load()))


def call(*buffers: UOp) -> UOp:
    return UOp.make(Ops.CALL, kernel(loop), *buffers, arg=CallInfo("elementwise"))


def whole_program() -> UOp:
    source, binary = UOp(Ops.SOURCE, void, (), "text"), UOp(Ops.BINARY, void, (), b"\0")
    return node(
        Ops.PROGRAM, void, native_kernel(), native_list(), source, binary, arg=ProgramInfo("add")
    )


GOOD: list[tuple[Form, UOp]] = [
    (TENSOR, tensor(2, 3).permute((1, 0)).pad(((1, 0), (0, 2))) + tensor(4, 4)),
    (TENSOR, node(Ops.SCATTER, f32, tensor(5, 2), tensor(3, 2), tensor(3, dtype=i32))),
    (TENSOR, UOp.sink(tensor(2), tensor(3, dtype=i32))),
    (SCHEDULE, listed(call(new_buffer(4, f32, "CPU"), buffer))),
    (
        SCHEDULE,
        listed(
            node(Ops.CALL, void, node(Ops.COPY, void, arg="CPU"), buffer, buffer, arg=CallInfo())
        ),
    ),
    (LOOP, kernel(loop)),
    (LOOP, kernel(param(0).index(const(index, 0)).store(total))),
    (VECTOR, kernel(param(0).index(const(index.vec(2), (0, 2))).store(vector_index))),
    (SCALAR, accumulated()),
    (NATIVE, accumulated()),
    (NATIVE, native_kernel()),
    (LINEAR, native_list()),
    (PROGRAM, whole_program()),
]


@pytest.mark.parametrize(
    ("form", "graph"), GOOD, ids=lambda part: repr(part) if isinstance(part, Form) else ""
)
def test_good_graphs_pass(form: Form, graph: UOp) -> None:
    assert find_problem(graph, form) is None
    assert is_in_form(graph, form)


def test_special_indices_are_scalar() -> None:
    thread = UOp.make(Ops.SPECIAL, const(i32, 4), arg=SpecialArg("thread"))
    assert SCALAR.problem(thread) is None
    assert LOOP.problem(thread) == "SPECIAL does not stand in form LOOP"


def test_the_root_has_its_op() -> None:
    assert find_problem(loop, LOOP) == (loop, "the root is END, not SINK")
    assert find_problem(kernel(), LINEAR) == (kernel(), "the root is SINK, not LINEAR")


def test_every_check_is_one_sentence() -> None:
    for form in FORMS:
        for check in (*form.checks, *form.target_checks):
            text = " ".join((check.__doc__ or "").split())
            assert text.endswith("."), check.__name__
            assert ". " not in text, check.__name__


def test_the_table_names_every_form_and_check() -> None:
    table = forms_table()
    for form in FORMS:
        assert f"## {form.name}\n" in table
        assert all(f"| `{name}` |" in table for name in form.check_names())
