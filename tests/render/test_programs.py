"""Loops, accumulators, gates, threads and storage: built by hand, run on both renderers."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.codegen.transpose import transposed
from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError
from pellucid.core.target import Target
from pellucid.ir.arg import (
    AddrSpace,
    DefineArg,
    ProgramInfo,
    SpecialArg,
    VariableArg,
)
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render import CRenderer, LLVMRenderer
from tests.render.conftest import RENDERERS, Kernel

INT = dtypes.int32
FLOAT = dtypes.float32


def number(value: int) -> UOp:
    """An int32 literal."""
    return UOp.const(INT, value)


def loop(size: int | UOp, id: int = 0) -> UOp:
    """A RANGE of int32."""
    return UOp.range(number(size) if isinstance(size, int) else size, id)


def at(storage: UOp, index: UOp | int, lanes: int = 1) -> UOp:
    """An INDEX with so many lanes."""
    position = number(index) if isinstance(index, int) else index
    return UOp(Ops.INDEX, storage.dtype.scalar.vec(lanes), (storage, position))


def accumulator(id: int = 0, lanes: int = 1) -> UOp:
    """A register."""
    return UOp(Ops.DEFINE, FLOAT.vec(lanes), (), DefineArg(AddrSpace.REG, id, 1))


def register(acc: UOp) -> UOp:
    """The place of a register, also below an AFTER."""
    return UOp(Ops.INDEX, acc.dtype, (acc, number(0)))


def summed(acc: UOp, value: UOp, inner: UOp, *outer: UOp) -> UOp:
    """acc = 0; for inner: acc += value; the value of acc afterwards."""
    start = register(acc.after(*outer)).store(value.const_like(0.0))
    before = acc.after(start, inner)
    step = register(before).store(register(before).load() + value)
    return register(acc.after(step.end(inner))).load()


def row_sums(kernel: Kernel, rows: int, columns: int | UOp, lanes: int = 1) -> None:
    """out[r] = sum of x[r, :], in lanes, then over the lanes."""
    width = columns if isinstance(columns, int) else 64
    out, x = kernel.param(FLOAT, rows), kernel.param(FLOAT, rows * width)
    r = loop(rows, 0)
    c = loop(columns // lanes if isinstance(columns, int) else columns, 1)
    value = at(x, r * width + c * lanes, lanes).load()
    total = summed(accumulator(0, lanes), value, c, r)
    while total.dtype.lanes > 1:
        half = total.dtype.lanes // 2
        total = total.lane(tuple(range(half))) + total.lane(tuple(range(half, 2 * half)))
        if half == 1:
            break
    kernel.effects.append(at(out, r).store(total).end(r))


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_sum_of_rows(kernel: Kernel, device: str, lanes: int) -> None:
    row_sums(kernel, 5, 32, lanes)
    x = np.arange(160, dtype=np.float32)
    out = np.zeros(5, np.float32)
    kernel.run(device, [out, x])
    assert out.tolist() == x.reshape(5, 32).sum(1).tolist()


@pytest.mark.parametrize("size", [0, 1, 7])
def test_loop_over_a_variable_may_have_no_turn(kernel: Kernel, device: str, size: int) -> None:
    n = UOp(Ops.VARIABLE, INT, (), VariableArg("n", 0, 64))
    row_sums(kernel, 3, n)
    x = np.arange(192, dtype=np.float32)
    out = np.full(3, -1, np.float32)
    kernel.run(device, [out, x], [size])
    assert out.tolist() == x.reshape(3, 64)[:, :size].sum(1).tolist()


def test_addresses_of_64_bits(kernel: Kernel, device: str) -> None:
    """int64 index arithmetic, from a cast int32 too; one result is also used as a value."""
    long = dtypes.int64
    out, x = kernel.param(long, 12), kernel.param(FLOAT, 24)
    i = UOp.range(UOp.const(long, 3), 0)
    j = UOp.range(number(4), 1)
    place = i * 4 + j.cast(long)
    value = at(x, place * 2).load().cast(dtypes.float64)
    kernel.effects.append(at(out, place).store(UOp(Ops.FTOI, long, (value,)) + place).end(i, j))
    result = np.zeros(12, np.int64)
    kernel.run(device, [result, np.arange(24, dtype=np.float32)])
    assert result.tolist() == [3 * k for k in range(12)]


def test_two_accumulators_in_one_loop(kernel: Kernel, device: str) -> None:
    out, x = kernel.param(FLOAT, 2), kernel.param(FLOAT, 10)
    i = loop(10)
    value = at(x, i).load()
    first, second = accumulator(0), accumulator(1)
    starts = [register(a).store(UOp.const(FLOAT, v)) for a, v in ((first, 0.0), (second, 1.0))]
    steps = []
    for acc, start, op in zip((first, second), starts, (Ops.ADD, Ops.MUL), strict=True):
        before = register(acc.after(start, i))
        steps.append(before.store(UOp.make(op, before.load(), value)))
    end = UOp.make(Ops.GROUP, *steps).end(i)
    kernel.effects = [
        at(out, k).store(register(acc.after(end)).load()) for k, acc in enumerate((first, second))
    ]
    result = np.zeros(2, np.float32)
    kernel.run(device, [result, np.full(10, 2, np.float32)])
    assert result.tolist() == [20.0, 1024.0]


def test_one_end_closes_two_loops(kernel: Kernel, device: str) -> None:
    out = kernel.param(INT, 12)
    i, j = loop(3, 0), loop(4, 1)
    kernel.effects.append(at(out, i * 4 + j).store(i * 10 + j).end(i, j))
    result = np.zeros(12, np.int32)
    kernel.run(device, [result])
    assert result.tolist() == [i * 10 + j for i in range(3) for j in range(4)]


def test_gated_scalars_touch_nothing_outside(kernel: Kernel, device: str) -> None:
    """x[i - 1000000] is far away for i below 3; stores beyond 6 are dropped."""
    out, x = kernel.param(FLOAT, 8), kernel.param(FLOAT, 8)
    i = loop(8)
    inside = number(2) < i
    far = inside.where(number(0), number(-(10**9)))
    value = at(x, i + far).load(UOp.const(FLOAT, -1.0), inside)
    beyond = (i < number(6)).where(number(0), number(10**9))
    kernel.effects.append(at(out, i + beyond).store(value, i < number(6)).end(i))
    result = np.full(8, 9, np.float32)
    kernel.run(device, [result, np.arange(8, dtype=np.float32)])
    assert result.tolist() == [-1, -1, -1, 3, 4, 5, 9, 9]


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.int8, dtypes.float64, dtypes.bool], ids=str
)
@pytest.mark.parametrize("lanes", [4, 16])
def test_masked_lanes(kernel: Kernel, device: str, dtype, lanes: int) -> None:
    """The last 3 elements go through a mask."""
    size = 2 * lanes + 3
    out, x = kernel.param(dtype, size), kernel.param(dtype, size)
    i = loop(3)
    first = i * lanes
    lane_numbers = UOp.const(INT.vec(lanes), tuple(range(lanes)))
    gate = UOp.make(Ops.CMPLT, first.splat(lanes) + lane_numbers, number(size).splat(lanes))
    value = at(x, first, lanes).load(UOp.const(dtype.vec(lanes), 1), gate)
    changed = value.logical_not() if dtype.is_bool else value + value.const_like(1)
    kernel.effects.append(at(out, first, lanes).store(changed, gate).end(i))
    storage = "bool" if dtype.is_bool else dtype.name
    values = (np.arange(size) % 2).astype(storage)
    result = np.zeros(size, storage)
    kernel.run(device, [result, values])
    expected = ~values if dtype.is_bool else values + 1
    assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.int8, dtypes.uint16, FLOAT], ids=str)
@pytest.mark.parametrize(("lanes", "size"), [(4, 4), (4, 11), (8, 8), (8, 23), (16, 37), (32, 5)])
def test_lanes_outside_of_storage_without_masks(
    kernel: Kernel, device: str, dtype, lanes: int, size: int
) -> None:
    """Vectors start before, in and behind the storage, on a machine that masks nothing."""
    starts = size + 4 * lanes
    out, x = kernel.param(dtype, starts * lanes), kernel.param(dtype, size)
    i = loop(starts)
    first = i + number(-2 * lanes)
    place = first.splat(lanes) + UOp.const(INT.vec(lanes), tuple(range(lanes)))
    gate = UOp.make(Ops.CMPLT, place, number(size).splat(lanes))
    gate = gate & UOp.make(Ops.CMPLT, number(-1).splat(lanes), place)
    value = at(x, first, lanes).load(UOp.const(dtype.vec(lanes), 1), gate)
    kernel.effects.append(at(out, i * lanes, lanes).store(value).end(i))
    storage = "bool" if dtype.is_bool else dtype.name
    values = (np.arange(size) * 5 % 3).astype(storage)
    result = np.zeros(starts * lanes, storage)
    kernel.run(device, [result, values], target=Target(arch="generic"))
    padded = np.concatenate([np.ones(2 * lanes), values, np.ones(3 * lanes)]).astype(storage)
    expected = np.lib.stride_tricks.sliding_window_view(padded, lanes)[:starts]
    assert result.reshape(starts, lanes).tolist() == expected.tolist()


def test_lanes_are_taken_and_stacked(kernel: Kernel, device: str) -> None:
    out, x = kernel.param(FLOAT, 8), kernel.param(FLOAT, 4)
    v = at(x, 0, 4).load()
    reverse = v.lane((3, 2, 1, 0))
    pair = UOp(Ops.STACK, FLOAT.vec(4), (v.lane((0, 1)), v.lane(3), v.lane(2)))
    both = UOp(Ops.STACK, FLOAT.vec(8), (reverse, pair))
    kernel.effects.append(at(out, 0, 8).store(both))
    result = np.zeros(8, np.float32)
    kernel.run(device, [result, np.array([1, 2, 3, 4], np.float32)])
    assert result.tolist() == [4, 3, 2, 1, 1, 2, 4, 3]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_lanes_of_two_vectors(kernel: Kernel, device: str, one_by_one: bool) -> None:
    """Lanes that are taken of both at once, also where one of them is a scalar."""
    out, x = kernel.param(FLOAT, 10), kernel.param(FLOAT, 8)
    left, right = (at(x, n, 4).load() for n in (0, 4))
    both = UOp(Ops.STACK, FLOAT.vec(8), (left, right))
    for n, lanes in ((0, (0, 4, 1, 5)), (4, (7, 6, 3, 2))):
        kernel.effects.append(at(out, n, 4).store(both.lane(lanes)))
    if one_by_one:
        kernel.effects.append(at(out, 8).store(both.lane(6)))
        kernel.effects.append(at(out, 9).store(both.lane((1,))))
    result = np.zeros(10, np.float32)
    kernel.run(device, [result, np.arange(1, 9, dtype=np.float32)])
    assert result.tolist() == [1, 5, 2, 6, 8, 7, 4, 3, *([7, 2] if one_by_one else [0, 0])]


def test_lanes_of_two_vectors_are_taken_by_one_instruction(kernel: Kernel) -> None:
    """Code generation would take a vector as wide as both apart again."""
    out, x = kernel.param(FLOAT, 16), kernel.param(FLOAT, 16)
    rows = [at(x, 4 * n, 4).load() for n in range(4)]
    for n, column in enumerate(transposed(rows)):
        kernel.effects.append(at(out, 4 * n, 4).store(column))
    linear = kernel.linear()
    text = LLVMRenderer().render(linear, kernel.info(linear))
    assert text.count("shufflevector") == 8
    assert "<8 x float>" not in text


def test_bool_lanes_are_taken_and_stacked(kernel: Kernel, device: str) -> None:
    out, x = kernel.param(dtypes.bool, 4), kernel.param(FLOAT, 4)
    negative = at(x, 0, 4).load() < UOp.const(FLOAT.vec(4), 0.0)
    mixed = UOp(
        Ops.STACK,
        dtypes.bool.vec(4),
        (negative.lane(3), negative.lane(0), negative.lane((1, 2))),
    )
    kernel.effects.append(at(out, 0, 4).store(mixed))
    result = np.zeros(4, bool)
    kernel.run(device, [result, np.array([-1, 2, -3, 4], np.float32)])
    assert result.tolist() == [False, True, False, True]


@pytest.mark.parametrize("space", list(AddrSpace)[1:], ids=lambda s: s.name)
def test_storage_of_a_kernel(kernel: Kernel, device: str, space: AddrSpace) -> None:
    """Values go through an array of the kernel's own, backwards."""
    out = kernel.param(FLOAT, 8)
    tile = UOp(Ops.DEFINE, FLOAT, (), DefineArg(space, 0, 8))
    i, j = loop(8, 0), loop(8, 1)
    filled = at(tile, i).store(i.cast(FLOAT)).end(i)
    back = at(tile.after(filled), number(7) + j * -1).load()
    kernel.effects.append(at(out, j).store(back).end(j))
    result = np.zeros(8, np.float32)
    kernel.run(device, [result])
    assert result.tolist() == list(range(7, -1, -1))


def test_an_array_of_vectors(kernel: Kernel, device: str) -> None:
    """Elements of the array are vectors: element 1 starts behind all lanes of element 0."""
    out, x = kernel.param(FLOAT, 8), kernel.param(FLOAT, 8)
    tile = UOp(Ops.DEFINE, FLOAT.vec(4), (), DefineArg(AddrSpace.REG, 0, 2))
    i, j = loop(2, 0), loop(2, 1)
    filled = at(tile, i, 4).store(at(x, i * 4, 4).load()).end(i)
    back = at(tile.after(filled), number(1) + j * -1, 4).load()
    kernel.effects.append(at(out, j * 4, 4).store(back).end(j))
    result = np.zeros(8, np.float32)
    kernel.run(device, [result, np.arange(8, dtype=np.float32)])
    assert result.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


def test_threads_write_their_parts(device: str) -> None:
    kernel = Kernel()
    out = kernel.param(INT, 12)
    thread = UOp(Ops.SPECIAL, INT, (number(3),), SpecialArg("thread"))
    i = loop(4)
    kernel.effects.append(at(out, thread * 4 + i).store(thread).end(i))
    from pellucid.runtime import Buffer, Device

    linear = kernel.linear()
    source = RENDERERS[device]().render(linear, ProgramInfo("kernel", num_threads=3))
    program = Device[device].load(Device[device].compile(source, "kernel"), "kernel")
    buffer = Buffer(device, 12, INT)
    program([buffer], [], 3, 0)
    assert buffer.as_numpy().tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_if_guards_effects_and_registers(kernel: Kernel, device: str) -> None:
    out = kernel.param(FLOAT, 4)
    i = loop(4)
    acc = accumulator()
    place = register(acc)
    start = place.store(UOp.const(FLOAT, 5.0))
    condition = number(1) < i
    branch = UOp.make(Ops.IF, condition)
    inside = place.store(i.cast(FLOAT))
    result = register(acc.after(inside)).load()
    final = at(out, i).store(result)
    order = UOp.sink(i, start, condition, branch).toposort()[:-1]
    order += [i.cast(FLOAT), inside, UOp.make(Ops.ENDIF, branch), result, final, final.end(i)]
    values = np.zeros(4, np.float32)
    kernel.run(device, [values], items=order)
    assert values.tolist() == [5, 5, 2, 3]


def test_wrapping_int32_stays_int32_in_addresses(kernel: Kernel, device: str) -> None:
    """(2**31 - 1 + x) wraps to a negative number before 2**31 is added back by a mask."""
    out, x = kernel.param(INT, 4), kernel.param(INT, 1)
    wrapped = at(x, 0).load() + number(2**31 - 1)
    kernel.effects.append(at(out, wrapped & number(3)).store(wrapped))
    result = np.zeros(4, np.int32)
    kernel.run(device, [result, np.array([3], np.int32)])
    assert result.tolist() == [0, 0, -(2**31) + 2, 0]


def test_target_says_what_can_be_spelled() -> None:
    plain = Target(arch="x86-64")
    fused = Target(arch="x86-64", features=frozenset(["fma", "f16c"]))
    for make in (LLVMRenderer, CRenderer):
        assert "MULADD" not in make(plain).target.native_ops
        assert {"MULADD", "ADD", "FTOI"} <= make(fused).target.native_ops
        assert {"EXP", "FLOORDIV"}.isdisjoint(make(fused).target.native_ops)
        assert make(plain).key != make(fused).key
        assert make(plain).key == make(plain).key
    assert "float16" in LLVMRenderer(fused).target.native_dtypes
    assert "float16" not in LLVMRenderer(plain).target.native_dtypes


@pytest.mark.parametrize("make", [LLVMRenderer, CRenderer])
def test_an_op_without_emitter_is_named(kernel: Kernel, make) -> None:
    out = kernel.param(FLOAT, 1)
    kernel.effects.append(at(out, 0).store(UOp.make(Ops.EXP, UOp.const(FLOAT, 1.0))))
    with pytest.raises(CompileError, match=r"no emitter for this op: EXP \(float32\) -> float32"):
        make().render(kernel.linear(), ProgramInfo("kernel"))


@pytest.mark.parametrize(
    ("count", "lanes", "is_aligned"), [(15, 8, True), (14, 8, False), (15, 4, False), (8, 16, True)]
)
def test_the_stack_is_aligned_where_wide_accumulators_wait_there(
    kernel: Kernel, count: int, lanes: int, is_aligned: bool
) -> None:
    """With 16 registers of 8 lanes; one vector and one number are loaded besides the sums."""
    out, x = kernel.param(FLOAT, count * lanes), kernel.param(FLOAT, 4 * lanes)
    for k in range(count):
        value = at(x, loop(4, k) * lanes, lanes).load()
        kernel.effects.append(
            at(out, k * lanes, lanes).store(summed(accumulator(k, lanes), value, loop(4, k)))
        )
    linear = kernel.linear()
    avx2 = Target(arch="x86-64", features=frozenset({"avx2", "fma"}))
    text = LLVMRenderer(avx2).render(linear, kernel.info(linear))
    assert ('"stackrealign"' in text) == is_aligned
