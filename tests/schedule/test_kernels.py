"""How graphs are cut into kernels: known patterns, their counts, their reasons, their text."""

from __future__ import annotations

import math

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DeviceError
from pellucid.ir.arg import CheckArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule import schedule, schedule_cache
from pellucid.schedule.fuse import MAX_BUFFERS, MAX_NODES
from tests.counting import lines_in
from tests.schedule.graphs import (
    buffer_of,
    check,
    exp,
    gather,
    keep,
    kernels,
    matmul,
    num_calls,
    reasons,
    reduce,
    scatter,
    spread,
    tensor,
)


def softmax(x: UOp) -> UOp:
    size = x.known_shape[1]
    e = exp(x - keep(reduce(x, 1, op=Ops.MAX), 1, size))
    return e / keep(reduce(e, 1), 1, size)


def test_elementwise_chain_is_one_kernel() -> None:
    x, y = tensor((4, 3)), tensor((4, 3))
    assert num_calls(((x + y) * 2.0).maximum(x)) == 1


def test_matmul_bias_relu_is_one_kernel() -> None:
    x, w, b = tensor((4, 3)), tensor((3, 5)), tensor((5,))
    assert num_calls((matmul(x, w) + spread(b, (4, 5))).maximum(0.0)) == 1


def test_softmax_is_one_kernel() -> None:
    """Maximum and sum run once for each row, exp twice for each element."""
    for rows, size in ((64, 8), (64, 4096), (64, 1), (3, 0), (1, 3)):
        assert len(schedule([softmax(tensor((rows, size)))]).linear.src) <= 1
    check([softmax(tensor((4, 8)))])


def test_softmax_of_softmax_is_no_kernel_more_than_one_each() -> None:
    """A row of the first one is kept in local memory where the second one uses it."""
    result = schedule([softmax(softmax(softmax(tensor((64, 512)))))])
    assert 1 <= len(result.linear.src) <= 3
    check([softmax(softmax(tensor((4, 8))))])


def centred_squares(x: UOp) -> tuple[UOp, UOp]:
    """The mean of each row, and the sum of squares around it."""
    size = x.known_shape[1]
    mean = reduce(x, 1) * (1.0 / size)
    centred = x - keep(mean, 1, size)
    return mean, reduce(centred * centred, 1)


def test_variance_is_one_kernel() -> None:
    for size in (1, 3, 8):
        assert num_calls(centred_squares(tensor((4, size)))[1]) == 1


def test_layernorm_is_one_kernel() -> None:
    x = tensor((4, 8))
    mean, squares = centred_squares(x)
    result = check([(x - keep(mean, 1, 8)) / keep(squares + 1e-5, 1, 8)])
    assert reasons(result) == ["output asked for"]


def test_softmax_along_a_column_that_stays_in_cache_is_one_kernel() -> None:
    x = softmax(tensor((8, 4)).permute((1, 0))).permute((1, 0))
    (kernel,) = kernels(check([x]))
    assert [r.src[0].arg for r in kernel.src[0].src[1:]] == [4, 8]  # columns stand outermost


def test_large_row_or_few_large_rows_are_reduced_apart() -> None:
    x = tensor((4096, 4096))
    centred = x - spread(reduce(x, 0, 1), (4096, 4096))
    result = schedule([centred])
    assert reasons(result)[0] == "partial results of a long reduction, for threads to share"
    assert len(result.linear.src) == 3
    result = schedule([softmax(tensor((4096, 2_000_000)))])
    assert any("a row does not stay in cache" in reason for reason in reasons(result))


def test_long_reductions_to_few_values_have_two_stages() -> None:
    for shape, axes in (((1 << 18,), (0,)), ((3, 65, 4099), (1, 2)), ((2, 70, 5000), (0, 2))):
        total = schedule([reduce(tensor(shape), *axes)])
        is_long = math.prod(shape[axis] for axis in axes) >= 1 << 18
        assert (len(total.linear.src) > 1) == is_long
    check([reduce(tensor((65, 4099)), 0, 1)])
    check([reduce(tensor((1, 1 << 18, 2)), 1)])
    assert len(schedule([reduce(tensor((64, 1 << 18)), 1)]).linear.src) == 1


def test_matrix_product_is_not_computed_inside_of_rows() -> None:
    scores = matmul(tensor((64, 32)), tensor((32, 48)))
    assert num_calls(softmax(scores)) == 2
    x = tensor((64, 32))
    assert len(schedule([matmul(softmax(x), tensor((32, 512)))]).linear.src) == 2


def test_small_loss_over_rows_is_one_kernel_and_a_large_one_two() -> None:
    """The mean over rows of what each row sums up to: cross-entropy."""

    def loss(rows: int, size: int) -> UOp:
        return reduce(UOp.make(Ops.LOG, reduce(exp(tensor((rows, size))), 1)), 0)

    check([loss(4, 10)])
    assert len(schedule([loss(128, 10)]).linear.src) == 1
    assert len(schedule([loss(8192, 1000)]).linear.src) == 2


def test_mean_and_variance_are_one_kernel() -> None:
    x = tensor((4, 8))
    mean, squares = centred_squares(x)
    assert num_calls(squares, mean) == 1


def test_what_is_reduced_and_used_for_a_row_is_stored_on_the_way() -> None:
    """Backward passes want the mean and the scale again: stored in the loop over rows."""
    x = tensor((4, 8))
    mean, squares = centred_squares(x)
    rows = (x - keep(mean, 1, 8)) / keep(squares + 1e-5, 1, 8)
    (kernel,) = kernels(check([mean, squares, rows]))
    (end,) = kernel.src
    assert [store.op for store in end.src[0].src] == [Ops.STORE, Ops.STORE, Ops.END]


def test_rows_that_are_not_connected_stay_apart() -> None:
    x, y = tensor((64, 100)), tensor((64, 100))
    assert num_calls(reduce(x, 1), y + 1.0) == 2
    product = matmul(tensor((64, 32)), tensor((32, 8)))
    assert num_calls(product, reduce(product, 1)) == 2


def test_two_reductions_of_one_input_share_a_kernel() -> None:
    """Each has a range of its own; that the loops become one is up to lower_reductions."""
    x = tensor((4, 8))
    (kernel,) = kernels(check([reduce(x, 1), reduce(x * x, 1)]))
    assert sum(n.op is Ops.RANGE for n in kernel.toposort()) == 3


def test_scale_that_several_kernels_use_is_stored_not_the_sum() -> None:
    """What follows a reduction elementwise is stored with it."""
    x = tensor((4, 8))
    scale = keep(UOp.make(Ops.SQRT, reduce(x * x, 1) + 1.0), 1, 8)
    result = check([x / scale, reduce(x * scale, 0)])
    assert any(n.op is Ops.SQRT for n in kernels(result)[0].toposort())


def conv2d(x: UOp, w: UOp) -> UOp:
    """Windows of a padded image as views only: (c, h, w) and (o, c, 3, 3) to (o, h, w)."""
    (c, h, width), o = x.known_shape, w.known_shape[0]
    padded = x.pad(((0, 0), (1, 1), (1, 1)))
    ph, pw = h + 2, width + 2
    tall = padded.reshape((c, 1, ph, pw)).expand((c, 3, ph, pw)).reshape((c, 3 * ph, pw))
    tall = tall.pad(((0, 0), (0, 3), (0, 0))).shrink(((0, c), (0, 3 * (ph + 1)), (0, pw)))
    rows = tall.reshape((c, 3, ph + 1, pw)).shrink(((0, c), (0, 3), (0, h), (0, pw)))
    wide = rows.reshape((c, 3, h, 1, pw)).expand((c, 3, h, 3, pw)).reshape((c, 3, h, 3 * pw))
    wide = wide.pad(((0, 0), (0, 0), (0, 0), (0, 3)))
    windows = wide.reshape((c, 3, h, 3, pw + 1)).shrink(
        ((0, c), (0, 3), (0, h), (0, 3), (0, width))
    )
    shape = (o, c, 3, h, 3, width)
    weights = w.reshape((o, c, 3, 1, 3, 1)).expand(shape)
    return reduce(spread(windows, shape) * weights, 1, 2, 4)


def test_convolution_is_one_kernel_without_movement() -> None:
    x, w = tensor((2, 5, 6)), tensor((3, 2, 3, 3))
    result = check([conv2d(x, w)])
    (kernel,) = kernels(result)
    assert not any(n.op.is_movement for n in kernel.toposort())


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16])
def test_of_a_reduction_that_is_shrunk_only_the_part_that_is_left_is_computed(dtype: DType) -> None:
    """As the gradient of a padded picture, which is stored because several windows use it."""
    x = tensor((6, 40, 6), dtype)
    part = reduce(x, 1).shrink(((1, 5), (2, 6)))
    first, _ = check([matmul(part, part)], rtol=1e-2).linear.src
    assert first.src[1].known_shape == (16,)


def test_a_reduction_that_is_also_used_whole_is_not_done_again_for_its_part() -> None:
    whole = reduce(tensor((6, 40, 6)), 1)
    part = whole.shrink(((1, 5), (2, 6)))
    assert num_calls(matmul(part, part), whole) == 2


def test_pool_is_one_kernel_and_a_sum_after_it_too() -> None:
    x = tensor((4, 6)).reshape((2, 2, 3, 2))
    pooled = reduce(x, 1, 3, op=Ops.MAX)
    assert num_calls(pooled) == 1
    assert num_calls(reduce(pooled, 0, 1)) == 1  # a small reduction inside another one


def test_sum_after_matmul_is_two_kernels() -> None:
    a, b = tensor((4, 16)), tensor((16, 4))
    result = check([reduce(matmul(a, b), 0, 1, op=Ops.MAX)])
    assert reasons(result) == ["another reduction follows", "output asked for"]


def test_reduction_of_a_reduction_with_one_op_is_one() -> None:
    x = tensor((4, 16, 3))
    result = check([reduce(reduce(x, 1), 0, 1)])
    (kernel,) = kernels(result)
    assert sum(n.op is Ops.REDUCE for n in kernel.toposort()) == 1


def test_small_floats_are_summed_in_float32() -> None:
    x = tensor((300,), dtypes.float16)
    (kernel,) = kernels(check([reduce(x + 1.0, 0)]))
    (found,) = [n for n in kernel.toposort() if n.op is Ops.REDUCE]
    assert found.dtype is dtypes.float32


def test_expensive_value_with_several_users_is_stored() -> None:
    x, y = tensor((1000,)), tensor((1000,))
    value = x
    for _ in range(4):
        value = UOp.make(Ops.SIN, value * y)
    rows = spread(value, (50, 1000))
    result = schedule([rows + tensor((50, 1000))])
    assert len(result.linear.src) == 2
    assert reasons(result)[0].startswith("wanted 50 times")


def test_cheap_value_with_several_users_is_computed_again() -> None:
    x = tensor((100,))
    result = schedule([spread(x * 2.0, (50, 100)) + tensor((50, 100))])
    assert len(result.linear.src) == 1


def test_outputs_that_need_each_other_elementwise_share_a_kernel() -> None:
    x = tensor((70, 100))
    y = (x + 1.0).maximum(0.0)
    assert num_calls(y, y * 3.0, y + x) == 1


def test_small_independent_outputs_share_a_kernel_and_large_ones_do_not() -> None:
    small = [tensor((10,)) + 1.0, tensor((10,)) * 2.0]
    large = [tensor((10_000,)) + 1.0, tensor((10_000,)) * 2.0]
    assert num_calls(*small) == 1
    assert num_calls(*large) == 2


def test_sharing_makes_no_cycle() -> None:
    """first -> total -> last: first and last have the same ranges, but total is between them."""
    x = tensor((8,))
    first = x + 1.0
    total = reduce(first, 0)
    last = first * spread(total, (8,))
    assert num_calls(first, total, last) == 3


def test_equal_kernels_are_one_node() -> None:
    result = check([exp(tensor((10_000,)) + 1.0), exp(tensor((10_000,)) + 1.0)])
    first, second = kernels(result)
    assert first is second


def test_kernels_of_equal_graphs_are_one_node_whatever_the_buffers() -> None:
    first = schedule([softmax(tensor((5, 7)))])
    schedule_cache.clear()
    second = schedule([softmax(tensor((5, 7)))])
    assert kernels(first) == kernels(second)


def test_constants_and_counters_need_no_buffer() -> None:
    iota = UOp(Ops.IOTA, dtypes.int32, (), 6).reshape((2, 3))
    result = check([iota * 2 + 1])
    (call,) = result.linear.src
    assert len(call.src) == 2


def test_output_that_is_a_buffer_needs_no_kernel() -> None:
    x = tensor((4, 3))
    result = check([x, x.reshape((12,))])
    assert result.linear.src == ()
    assert result.stored[x] is x


def test_output_that_is_a_view_is_copied() -> None:
    x = tensor((4, 3))
    assert num_calls(x.permute((1, 0))) == 1


def test_contiguous_is_a_value_of_its_own() -> None:
    x = tensor((4, 3))
    output = UOp.make(Ops.CONTIGUOUS, x)
    result = check([output])
    assert buffer_of(result.stored[output]) is not buffer_of(x)
    assert reasons(result) == ["output asked for"]


def test_leaves_and_detach_vanish() -> None:
    x = tensor((4,))
    leaf = UOp.make(Ops.LEAF, x, arg=1)
    result = check([leaf, UOp.make(Ops.DETACH, leaf) + 1.0])
    assert result.stored[leaf] is x


def test_empty_tensors_need_no_kernel() -> None:
    x = tensor((0, 3))
    result = check([x + 1.0, reduce(x, 0), x.pad(((2, 0), (0, 1)), 7.0)])
    assert len(result.linear.src) == 2
    identities = [check([reduce(x, 0, op=op)]) for op in (Ops.MUL, Ops.MAX)]
    assert all(len(r.linear.src) == 1 for r in identities)


def test_scalar_output_has_no_loop() -> None:
    (kernel,) = kernels(check([tensor(()) + 1.0]))
    assert kernel.src[0].op is Ops.STORE


def test_copy_to_another_device() -> None:
    x = tensor((4, 3))
    there = UOp.make(Ops.COPY, x * 2.0, arg="NULL")
    result = schedule([there + 1.0])
    assert [c.src[0].op for c in result.linear.src] == [Ops.SINK, Ops.COPY, Ops.SINK]
    assert [c.src[1].arg.device for c in result.linear.src] == ["CPU", "NULL", "NULL"]
    assert reasons(result)[:2] == [
        "read by a copy to another device",
        "a copy to another device",
    ]


def test_copy_to_the_same_device_is_nothing() -> None:
    x = tensor((4, 3))
    assert num_calls(UOp.make(Ops.COPY, x * 2.0, arg="CPU") + 1.0) == 1


def test_values_of_two_devices_do_not_meet() -> None:
    x, y = tensor((4,), device="CPU"), tensor((4,), device="NULL")
    with pytest.raises(DeviceError, match=r"add takes values on CPU and on NULL"):
        schedule([x + y])


def test_check_flags_come_back() -> None:
    x, i = tensor((4,)), tensor((3,), dtypes.int64)
    arg = CheckArg("getitem", 0, 4)
    flag = reduce(i, 0, op=Ops.MIN)
    value = UOp.make(Ops.CHECK, gather(x, i), flag, arg=arg)
    result = schedule([value + 1.0])
    ((buffer, found),) = result.checks
    assert found == arg
    assert buffer.arg.size == 1
    assert len(result.linear.src) == 2


# ---- gather and scatter --------------------------------------------------------------------------


def test_gather_is_one_kernel_and_reads_zero_outside() -> None:
    x, i = tensor((3, 4)), tensor((5,), dtypes.int32)
    result = check([gather(x * 2.0, i) + 1.0])  # the indices are -4 … 4
    assert len(result.linear.src) == 1


def test_gather_of_gathered_indices() -> None:
    x, i, j = tensor((9,)), tensor((5,), dtypes.int64), tensor((6, 2), dtypes.int32)
    assert num_calls(gather(x, gather(i, j)) * 2.0) == 1
    both = gather(tensor((5, 5, 2)), j, j + 1)
    assert num_calls(both) == 1


def test_gather_from_a_reduction_stores_it() -> None:
    """… unless so few rows are taken that no row could be computed twice on average."""
    x = tensor((3, 40))
    assert num_calls(gather(reduce(x, 1), tensor((5,), dtypes.int32))) == 2
    assert num_calls(gather(reduce(x, 1), tensor((2,), dtypes.int32))) == 1


@pytest.mark.parametrize("op", [None, Ops.ADD, Ops.MAX])
def test_scatter_copies_its_base_and_runs_in_order(op: object) -> None:
    base, value, i = tensor((5, 2)), tensor((9, 2)), tensor((9,), dtypes.int32)
    result = check([scatter(base, value * 2.0, i, op=op)])
    first, second = kernels(result)
    assert not first.arg.ordered
    assert second.arg.ordered


def test_scatter_into_zeros_fills_and_scatters() -> None:
    zeros = UOp.const(dtypes.float32, 0.0).expand((5,))
    value, i = tensor((9,)), tensor((9,), dtypes.int32)
    result = check([scatter(zeros, exp(value), i, op=Ops.ADD)], rtol=1e-4)
    assert len(result.linear.src) == 2


# ---- limits --------------------------------------------------------------------------------------


def longest(result_kernels: list[UOp]) -> int:
    return max(sum(n.op.is_elementwise for n in k.toposort()) for k in result_kernels)


def test_long_chain_is_cut_and_takes_no_longer_than_it_should() -> None:
    def chain(length: int) -> UOp:
        x = tensor((16,))
        for step in range(length):
            x = x + float(step % 7)
        return x

    short, long = chain(1_000), chain(2_000)
    lines = lines_in(lambda: schedule([short]))
    assert lines_in(lambda: schedule([long])) < 2.2 * lines
    result = schedule([chain(10_000)])
    assert len(result.linear.src) == 25
    assert reasons(result)[0] == f"over the limit of {MAX_NODES} operations in a kernel"
    assert longest(kernels(result)) <= MAX_NODES + 10


def test_many_inputs_are_cut() -> None:
    parts = [tensor((2,)) for _ in range(300)]
    whole = None
    for place, part in enumerate(parts):
        padded = part.pad(((2 * place, 2 * (299 - place)),))
        whole = padded if whole is None else whole + padded
    assert whole is not None
    result = check([whole])
    assert max(len(call.src) for call in result.linear.src) <= MAX_BUFFERS + 2
    assert len(result.linear.src) <= 10


def test_diamonds_stay_small() -> None:
    values = [tensor((4,)), tensor((4,))]
    for _ in range(13):
        values += [values[-1] + values[-2], values[-1] * values[-2]]
    result = schedule([values[-1] + values[-2]])
    assert len(result.linear.src) == 1
    assert longest(kernels(result)) < 60


def test_diamonds_through_views_stay_small() -> None:
    def diamonds(height: int) -> UOp:
        x = tensor((8, 8))
        for _ in range(height):
            x = x + x.permute((1, 0))
        for _ in range(2 * height):
            x = x + x.pad(((1, 0), (0, 0))).shrink(((0, 8), (0, 8)))
        return x

    low, high = diamonds(15), diamonds(30)
    lines = lines_in(lambda: schedule([low]))
    assert lines_in(lambda: schedule([high])) < 2.5 * lines
    assert longest(kernels(schedule([high]))) <= 2 * MAX_NODES


def test_stack_of_many() -> None:
    def stack(height: int) -> UOp:
        total = None
        for place in range(height):
            row = UOp.const(dtypes.int64, place).expand((1, 2))
            padded = row.pad(((place, height - 1 - place), (0, 0)))
            total = padded if total is None else total + padded
        assert total is not None
        return reduce(total, 0, 1)

    low, high = stack(200), stack(400)
    lines = lines_in(lambda: schedule([low]))
    assert lines_in(lambda: schedule([high])) < 2.2 * lines
    assert longest(kernels(schedule([high]))) <= 5 * MAX_NODES  # a PAD is up to five operations


def counter(size: int) -> UOp:
    return UOp(Ops.IOTA, dtypes.int64, (), size)


def test_scatter_of_one_element_into_each_row_is_a_comparison() -> None:
    """The gradient of picking the target's score; a place out of range is dropped."""
    rows, size = 4, 3
    place, value = tensor((rows,), dtypes.int64), tensor((rows,))
    for op in (None, Ops.ADD, Ops.MUL):
        zeros = spread(UOp.const(dtypes.float32, 1.5), (rows, size))
        picked = UOp.make(Ops.SCATTER, zeros, value, counter(rows), place, arg=op)
        result = check([picked * 2.0])
        assert len(result.linear.src) == 1
        assert not any(kernel.arg.ordered for kernel in kernels(result))


def test_scatter_into_each_row_along_other_axes() -> None:
    base, places = (2, 5, 3, 4), (3, 2)  # place and counters over (third axis, first axis)
    value, place = tensor((*places, 4)), tensor(places, dtypes.int32)
    zeros = spread(UOp.const(dtypes.float32, 0.0), base)
    ones = UOp(Ops.IOTA, dtypes.int32, (), 2).reshape((1, 2)).expand(places)
    threes = UOp(Ops.IOTA, dtypes.int32, (), 3).reshape((3, 1)).expand(places)
    result = check([UOp.make(Ops.SCATTER, zeros, value, ones, place, threes)])
    assert not any(kernel.arg.ordered for kernel in kernels(result))


def test_scatter_where_elements_may_meet_stays_one() -> None:
    place, value = tensor((4,), dtypes.int64), tensor((4,))
    zeros = spread(UOp.const(dtypes.float32, 0.0), (3, 4))
    other = UOp.make(Ops.SCATTER, zeros, value, place, counter(4), arg=Ops.ADD)
    assert not any(kernel.arg.ordered for kernel in kernels(check([other])))
    twice = UOp.make(Ops.SCATTER, zeros, value, place, place, arg=Ops.ADD)
    assert any(kernel.arg.ordered for kernel in kernels(check([twice])))
    fewer = UOp.make(
        Ops.SCATTER, spread(zeros, (2, 3, 4)).reshape((6, 4)), value, counter(4), place
    )
    assert any(kernel.arg.ordered for kernel in kernels(check([fewer])))


def test_row_of_a_comparison_is_reduced_with_its_use() -> None:
    """A sum that reads memory once for each row is no matrix product."""
    place, value = tensor((4,), dtypes.int64), tensor((4, 8))
    hit = UOp.make(Ops.CMPEQ, keep(place, 1, 8), counter(8).reshape((1, 8)).expand((4, 8)))
    picked = UOp.make(Ops.WHERE, hit, value * 2.0, spread(UOp.const(dtypes.float32, 0.0), (4, 8)))
    assert num_calls(value - keep(reduce(picked, 1), 1, 8)) == 1
