"""Reads and writes: dependences, windows, versions (cases 29 to 32 of the list)."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.dtype import dtypes
from pellucid.ir.interpret import evaluate_all, run_schedule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, new_buffer
from pellucid.schedule import Scheduled, schedule
from tests.counting import calls_in
from tests.schedule.graphs import (
    buffer_of,
    check,
    kernels,
    reasons,
    reduce,
    scatter,
    spread,
    tensor,
    write,
)


def is_in_place(result: Scheduled, written: UOp, base: UOp) -> bool:
    return buffer_of(result.stored[written]) is buffer_of(base)


def test_write_of_a_whole_buffer_is_one_kernel_in_place() -> None:
    a = tensor((4,))
    after = write(a, a, a * 2.0 + 1.0)
    result = check([after])
    assert len(result.linear.src) == 1
    assert is_in_place(result, after, a)


def test_reader_of_the_old_value_runs_first() -> None:
    """y = a * 10; a += 4; both are realised."""
    a = tensor((4,))
    y = reduce(a * 10.0, 0)
    after = write(a, a, a + 4.0)
    for outputs in ([y, after], [after, y]):
        result = check(outputs)
        assert is_in_place(result, after, a)
        assert len(result.linear.src) == 2


def test_reader_of_the_new_value_runs_second() -> None:
    a = tensor((4,))
    after = write(a, a, spread(UOp.const(dtypes.float32, 2.0), (4,)))
    result = check([after, reduce(after, 0)])
    assert is_in_place(result, after, a)


def test_old_and_new_in_one_value_need_new_storage() -> None:
    """a + (t - 1) where t = 3 * old a (case 30)."""
    a = tensor((40, 100))
    old = a * 3.0
    after = write(a, a, spread(UOp.const(dtypes.float32, 2.0), (40, 100)))
    check([after, after + (old - 1.0)])
    rows = spread(reduce(after, 0), (40, 100)) + old
    result = check([after, rows])
    assert not is_in_place(result, after, a)


def test_pending_buffer_keeps_its_value() -> None:
    a = tensor((4,))
    part = a.shrink(((1, 3),))
    after = write(a, part, part + 1.0)
    result = check([after], pending=frozenset([buffer_of(a)]))
    assert not is_in_place(result, after, a)
    assert reasons(result)[0] == "the old value is still needed, so output asked for goes to a copy"


def test_write_that_covers_needs_no_copy() -> None:
    a = tensor((4, 2))
    window = a.permute((1, 0))
    after = write(a, window, tensor((2, 4)))
    assert len(check([after], pending=frozenset([buffer_of(a)])).linear.src) == 1
    zeros = spread(UOp.const(dtypes.float32, 0.0), (4, 2))
    assert len(check([write(zeros, zeros.flip((0,)), tensor((4, 2)))]).linear.src) == 1


def test_overlapping_write_copies_the_right_side_first() -> None:
    """a[1:] = a[:-1], and a[2:] = 1 + a[:-2] (case 31)."""
    a = tensor((8,))
    after = write(a, a.shrink(((1, 8),)), a.shrink(((0, 7),)))
    result = check([after])
    assert is_in_place(result, after, a)
    assert reasons(result) == ["a write overwrites what its value reads", "output asked for"]
    check([write(a, a.shrink(((2, 8),)), a.shrink(((0, 6),)) + 1.0)])


def test_transposed_write_of_itself() -> None:
    a = tensor((4, 4))
    result = check([write(a, a.permute((1, 0)), a)])
    assert len(result.linear.src) == 2


def test_write_of_what_it_reads_at_the_same_place_is_one_kernel() -> None:
    a = tensor((4, 4))
    window = a.shrink(((1, 3), (0, 2)))
    assert len(check([write(a, window, window * 2.0 + tensor((2, 2)))]).linear.src) == 1


def test_write_of_a_sum_of_itself() -> None:
    a = tensor((8,))
    total = spread(reduce(a, 0), (8,))
    assert len(check([write(a, a, total)]).linear.src) == 2


def test_nine_writes_one_after_another() -> None:
    """N[i][j] += 1 in two loops (case 32)."""
    base = tensor((3, 3))
    a = base
    for row in range(3):
        for column in range(3):
            window = a.shrink(((row, row + 1), (column, column + 1)))
            a = write(a, window, window + 1.0)
    result = check([a])
    assert is_in_place(result, a, base)
    assert len(result.linear.src) == 9


def test_swap_of_halves() -> None:
    """b[:3], b[3:] = b[3:], b[:3], with contiguous copies (case 32)."""
    b = tensor((6,))
    left = UOp.make(Ops.CONTIGUOUS, b.shrink(((0, 3),)))
    right = UOp.make(Ops.CONTIGUOUS, b.shrink(((3, 6),)))
    first = write(b, b.shrink(((0, 3),)), right)
    second = write(first, first.shrink(((3, 6),)), left)
    result = check([second])
    assert is_in_place(result, second, b)


def test_value_computed_before_a_write_through_a_window() -> None:
    a = tensor((4,))
    before = a.shrink(((1, 3),)) * 1.0
    after = write(a, a.shrink(((1, 2),)), spread(UOp.const(dtypes.float32, 50.0), (1,)))
    check([after, before, after.shrink(((1, 3),))])


def test_window_of_a_reshape() -> None:
    a = tensor((4,))
    window = a.reshape((2, 2)).shrink(((0, 1), (0, 2)))
    result = check([write(a, window, spread(UOp.const(dtypes.float32, 9.0), (1, 2)))])
    assert len(result.linear.src) == 1


def test_two_writes_of_one_version() -> None:
    a = tensor((4,))
    one = write(a, a, a + 1.0)
    two = write(a, a, a + 2.0)
    result = check([one, two])
    assert [is_in_place(result, w, a) for w in (one, two)].count(True) == 1


def test_an_output_is_not_overwritten() -> None:
    a = tensor((4,))
    one = write(a, a, a + 1.0)
    two = write(one, one, one * 2.0)
    result = check([one, two, a])
    assert not is_in_place(result, one, a)
    assert not is_in_place(result, two, a)


def test_a_write_that_nobody_asked_for_leaves_the_buffer_alone() -> None:
    """Only its effect on y is wanted: the buffer must not change behind its owner's back."""
    a = tensor((4,))
    after = write(a, a.shrink(((0, 2),)), tensor((2,)))
    outputs = [reduce(after, 0)]
    result = check(outputs)
    assert all(call.src[1] is not buffer_of(a) for call in result.linear.src)


def test_write_to_a_computed_value() -> None:
    x = tensor((4,)) * 2.0
    result = check([write(x, x.shrink(((1, 2),)), tensor((1,)))])
    assert reasons(result) == ["written to in place", "output asked for"]


def test_write_to_a_computed_value_that_others_use() -> None:
    x = tensor((4,)) * 2.0
    after = write(x, x.shrink(((1, 2),)), tensor((1,)))
    check([after, x, reduce(after * x, 0)])
    check([after, reduce(x, 0), x + 1.0])


def test_updates_of_several_buffers_share_a_kernel() -> None:
    """m = 0.5 m + g; p = p - m: one kernel with two outputs, both in place."""
    p, m, g = tensor((70, 100)), tensor((70, 100)), tensor((70, 100))
    new_m = write(m, m, m * 0.5 + g)
    new_p = write(p, p, p - new_m)
    result = check([new_m, new_p])
    assert len(result.linear.src) == 1
    assert is_in_place(result, new_m, m)
    assert is_in_place(result, new_p, p)


def test_old_value_beside_a_write_that_does_not_read_it() -> None:
    """The store must not come before the load of what it replaces."""
    a, g = tensor((7,)), tensor((7,))
    check([a * 2.0, write(a, a, g)])
    check([write(a, a, g), a * 2.0])


def test_scatter_through_a_write_is_in_place() -> None:
    """a[i] += v: one ordered kernel, no copy."""
    a, v, i = tensor((5, 2)), tensor((9, 2)), tensor((9,), dtypes.int32)
    after = write(a, a, scatter(a, v, i, op=Ops.ADD))
    result = check([after])
    (kernel,) = kernels(result)
    assert kernel.arg.ordered
    assert is_in_place(result, after, a)
    part = a.shrink(((1, 4), (1, 2)))
    after = write(a, part, scatter(part, tensor((9, 1)), i))
    assert len(check([after]).linear.src) == 1


def test_scatter_that_reads_what_it_overwrites() -> None:
    a, i = tensor((5,)), tensor((5,), dtypes.int32)
    check([write(a, a, scatter(a, a * 2.0, i, op=Ops.ADD))])
    b = tensor((5,), dtypes.int32)
    check([write(b, b, scatter(b, b + 1, b))])


def test_scatter_of_a_buffer_leaves_it_alone() -> None:
    a, v, i = tensor((5,)), tensor((3,)), tensor((3,), dtypes.int64)
    check([scatter(a, v, i), a + 1.0], pending=frozenset([buffer_of(a)]))


def test_a_chain_of_writes_twice_as_long_takes_twice_as_much() -> None:
    def calls(count: int) -> int:
        version = tensor((1000,))
        for place in range(count):
            window = version.shrink(((place, place + 1),))
            version = write(version, window, window + 1.0)
        return calls_in(lambda: schedule([version]))

    assert calls(800) < 2.2 * calls(400)


def read_and_written(count: int) -> tuple[list[UOp], list[UOp], UOp]:
    """Buffers, what is written to each, and the sum of all that the writes depend on."""
    buffers = [tensor((3,)) for _ in range(count)]
    loss = functools.reduce(UOp.__add__, (reduce(x * x, 0) for x in buffers))
    steps = [write(x, x, x - x * spread(loss, (3,)) * 0.5) for x in buffers]
    return buffers, steps, loss


def test_many_buffers_each_read_and_written() -> None:
    buffers, steps, loss = read_and_written(300)
    result = schedule([loss, *steps])
    assert all(is_in_place(result, s, x) for s, x in zip(steps, buffers, strict=True))


def test_twice_as_many_buffers_take_twice_as_much() -> None:
    def calls(count: int) -> int:
        _, steps, loss = read_and_written(count)
        return calls_in(lambda: schedule([loss, *steps]))

    few, many = calls(150), calls(300)
    assert many < 2.5 * few


# ---- random programs -----------------------------------------------------------------------------

SIZE = 6


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[UOp], frozenset[UOp]]:
    """Two buffers; statements that read and write windows of them; some values realised."""
    storage = [new_buffer(SIZE, dtypes.float32, "CPU") for _ in range(2)]
    current: list[UOp] = list(storage)
    values: list[UOp] = []

    def window(version: UOp) -> UOp:
        start = draw(st.integers(0, SIZE - 3))
        shown = version.shrink(((start, start + 3),))
        return shown.flip((0,)) if draw(st.booleans()) else shown

    def value() -> UOp:
        kind = draw(st.integers(0, 4))
        if kind == 0 or not values:
            return window(current[draw(st.integers(0, 1))])
        if kind == 1:
            return spread(reduce(window(current[draw(st.integers(0, 1))]), 0), (3,))
        if kind == 2:
            return values[draw(st.integers(0, len(values) - 1))] + window(current[0])
        if kind == 3:
            return values[draw(st.integers(0, len(values) - 1))].flip((0,))
        return values[draw(st.integers(0, len(values) - 1))] * 2.0

    for _ in range(draw(st.integers(1, 7))):
        if draw(st.booleans()):
            which = draw(st.integers(0, 1))
            base = current[which]
            if draw(st.integers(0, 3)) == 0:
                pair = value().reshape((1, 3)).expand((2, 3)).reshape((6,))
                current[which] = write(base, base, pair)
            else:
                current[which] = write(base, window(base), value())
        else:
            values.append(value())
    outputs = [v for v in values if draw(st.booleans())]
    outputs += [c for c in current if draw(st.booleans())]
    pending = frozenset(b for b in storage if draw(st.integers(0, 3)) == 0)
    return outputs, pending


@settings(max_examples=200, deadline=None)
@given(programs())
def test_random_reads_and_writes(program: tuple[list[UOp], frozenset[UOp]]) -> None:
    outputs, pending = program
    if outputs:
        result = check(outputs, pending=pending)
        named = {buffer_of(result.stored[o]) for o in outputs}
        given_buffers = [n for n in UOp.sink(*outputs).toposort() if n.op is Ops.BUFFER]
        for buffer in given_buffers:
            if buffer not in named:
                check_unchanged(result, outputs, buffer)


def check_unchanged(result: Scheduled, outputs: list[UOp], buffer: UOp) -> None:
    """A given buffer that no output names keeps its value."""
    memory = {
        n: np.arange(n.arg.size, dtype=np.float32)
        for n in UOp.sink(*outputs).toposort()
        if n.op is Ops.BUFFER
    }
    run_schedule(result.linear, memory)
    np.testing.assert_array_equal(memory[buffer], np.arange(buffer.arg.size))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_cumulative_loop(size: int) -> None:
    """a[i + 1] = a[i] + 1 in a loop reads what was just written."""
    a = tensor((size + 1,))
    version = a
    for place in range(size):
        value = version.shrink(((place, place + 1),)) + 1.0
        version = write(version, version.shrink(((place + 1, place + 2),)), value)
    (want,) = evaluate_all([version], {buffer_of(a): np.zeros(size + 1, np.float32)})
    assert want.tolist() == list(range(size + 1))
    check([version])
