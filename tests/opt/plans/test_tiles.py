"""Products of matrices: the plan, the shape of the inner loop, and the exactness of the sums."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AddrSpace, AxisKind
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import axes_of, size_of, stride_of
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.plans.plan import Plan
from pellucid.opt.plans.products import Product
from pellucid.opt.plans.runs import longest_run, run_length
from pellucid.opt.plans.tile_sizes import Sizes, choose_sizes
from pellucid.opt.plans.tiles import plan_tiles
from tests.codegen import kernels
from tests.codegen.agreement import assert_plan_keeps_values
from tests.codegen.lowering import TARGET, lowered, stages, with_actions

ONE_CORE = dataclasses.replace(TARGET, cores=1)
SMALL_CACHE = dataclasses.replace(ONE_CORE, l1d_bytes=1024, l2_bytes=2048)
"""With so little cache, matrices that a test can interpret are packed, blocked and streamed."""
AVX2 = dataclasses.replace(
    ONE_CORE,
    features=frozenset({"avx2", "fma"}),
    l1d_bytes=32 << 10,
    l2_bytes=512 << 10,
    l3_bytes=32 << 20,
)
"""16 registers of 8 lanes: panels of 16 columns, several of them side by side."""
SMALL_AVX2 = dataclasses.replace(AVX2, l1d_bytes=1024, l2_bytes=8192, l3_bytes=32 << 10)


def act(sink: UOp, *actions: Action) -> UOp:
    """The kernel after some actions, each checked for its form."""
    for action in actions:
        sink = apply_action(sink, action, TARGET)
        verify(sink, LOOP)
    return sink


def batched(count: int = 3, rows: int = 5, inner: int = 6, columns: int = 16) -> UOp:
    """c[b, i, j] = sum over k of a[b, i, k] * b[b, k, j]"""
    b, i, j = (kernels.loop(n, number) for number, n in enumerate((count, rows, columns)))
    k = kernels.axis(inner, 3)
    left = kernels.param(1, count * rows * inner).index((b * rows + i) * inner + k)
    right = kernels.param(2, count * inner * columns).index((b * inner + k) * columns + j)
    place = kernels.param(0, count * rows * columns).index((b * rows + i) * columns + j)
    return kernels.kernel(place.store(kernels.reduce(left * right, k)).end(b, i, j))


def halves(rows: int, inner: int, columns: int) -> UOp:
    """c[i, j] = sum over k of a[i, k] * b[k, j], of float16, added in float32"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner, dtypes.float16).index(i * inner + k)
    b = kernels.param(2, inner * columns, dtypes.float16).index(k * columns + j)
    value = kernels.reduce(a.cast(dtypes.float32) * b.cast(dtypes.float32), k)
    place = kernels.param(0, rows * columns, dtypes.float16).index(i * columns + j)
    return kernels.kernel(place.store(value.cast(dtypes.float16)).end(i, j))


def over_two_axes(rows: int, heads: int, size: int, columns: int) -> UOp:
    """c[i, j] = sum over h, k of a[h, i, k] * b[j, h * size + k]"""
    i, j = kernels.loop(rows, 0), kernels.loop(columns, 1)
    h, k = kernels.axis(heads, 2), kernels.axis(size, 3)
    a = kernels.param(1, rows * heads * size).index((h * rows + i) * size + k)
    b = kernels.param(2, columns * heads * size).index((j * heads + h) * size + k)
    value = kernels.reduce(a * b, h, k)
    place = kernels.param(0, rows * columns).index(i * columns + j)
    return kernels.kernel(place.store(value).end(i, j))


def two_rows(outer: int, rows: int, inner: int, columns: int) -> UOp:
    """c[b, i, j] = sum over k of a[i, b, k] * b[k, j]"""
    b, i, j = (kernels.loop(n, number) for number, n in enumerate((outer, rows, columns)))
    k = kernels.axis(inner, 3)
    left = kernels.param(1, outer * rows * inner).index((i * outer + b) * inner + k)
    right = kernels.param(2, inner * columns).index(k * columns + j)
    place = kernels.param(0, outer * rows * columns).index((b * rows + i) * columns + j)
    return kernels.kernel(place.store(kernels.reduce(left * right, k)).end(b, i, j))


def vector_times_matrix(inner: int, columns: int, dtype: DType = dtypes.float32) -> UOp:
    """y[j] = sum over k of x[k] * m[k, j]"""
    j, k = kernels.loop(columns, 0), kernels.axis(inner, 1)
    x = kernels.param(1, inner, dtype).index(k)
    m = kernels.param(2, inner * columns, dtype).index(k * columns + j)
    y = kernels.param(0, columns, dtype).index(j)
    return kernels.kernel(y.store(kernels.reduce(x * m, k)).end(j))


def transposed_left(rows: int, inner: int, columns: int) -> UOp:
    """c[i, j] = sum over k of a[k, i] * b[k, j]"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner).index(k * rows + i)
    b = kernels.param(2, inner * columns).index(k * columns + j)
    place = kernels.param(0, rows * columns).index(i * columns + j)
    return kernels.kernel(place.store(kernels.reduce(a * b, k)).end(i, j))


def by_itself(size: int, form: str) -> UOp:
    """c = a @ a, a @ a.T or a.T @ a, of one parameter."""
    i, j, k = kernels.loop(size, 0), kernels.loop(size, 1), kernels.axis(size, 2)
    a = kernels.param(1, size * size)
    left = a.index(k * size + i) if form == "transposed first" else a.index(i * size + k)
    right = a.index(j * size + k) if form == "transposed second" else a.index(k * size + j)
    place = kernels.param(0, size * size).index(i * size + j)
    return kernels.kernel(place.store(kernels.reduce(left * right, k)).end(i, j))


def with_epilogue(rows: int, inner: int, columns: int) -> UOp:
    """c[i, j] = max(sum over k of a[i, k] * b[k, j] + bias[j], 0)"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner).index(i * inner + k)
    b = kernels.param(2, inner * columns).index(k * columns + j)
    value = kernels.reduce(a * b, k) + kernels.param(3, columns).index(j)
    place = kernels.param(0, rows * columns).index(i * columns + j)
    return kernels.kernel(place.store(value.maximum(0.0)).end(i, j))


def sum_of_columns(rows: int, columns: int) -> UOp:
    """y[j] = sum over i of x[i, j]"""
    j, k = kernels.loop(columns, 0), kernels.axis(rows, 1)
    value = kernels.reduce(kernels.param(1, rows * columns).index(k * columns + j), k)
    return kernels.kernel(kernels.param(0, columns).index(j).store(value).end(j))


def outputs(sink: UOp, buffers: list[kernels.Array]) -> kernels.Array:
    """What a kernel writes to its first buffer."""
    copies = [b.copy() for b in buffers]
    run_kernel(sink, copies)
    return copies[0]


def check_value(sink: UOp, after: UOp) -> None:
    """Both kernels give the same, as inputs are small integers."""
    buffers = kernels.buffers_for(sink)
    np.testing.assert_array_equal(outputs(after, buffers), outputs(sink, buffers))


# ---- pack, hoist, pad ----------------------------------------------------------------------------


def test_pack_copies_what_inner_loops_read() -> None:
    after = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("split", 0, 16))
    after = act(after, Action("pack", 0, 2))
    (buffer,) = [n for n in after.toposort() if n.op is Ops.DEFINE]
    assert (buffer.arg.space, buffer.arg.size) == (AddrSpace.LOCAL, 5 * 16)
    (use,) = [n for n in after.toposort() if n.op is Ops.AFTER]
    assert use.ranges == (axes_of(after)[0],)
    check_value(kernels.matmul(6, 5, 32), after)


def test_a_copy_floats_outside_of_loops_it_does_not_need() -> None:
    after = act(kernels.matmul(6, 5, 32), Action("pack", 0, 2))
    (use,) = [n for n in after.toposort() if n.op is Ops.AFTER]
    assert use.ranges == ()


def test_what_is_packed_is_converted_once() -> None:
    sink = halves(20, 5, 32)
    packed = act(sink, Action("pack", 0, 2))
    (buffer,) = [n for n in packed.toposort() if n.op is Ops.DEFINE]
    assert buffer.dtype is dtypes.float32
    check_value(sink, packed)
    kinds = [a.kind for a in choose(halves(64, 64, 64), ONE_CORE).actions]
    assert "pack" in kinds


def test_a_rest_fills_a_buffer_of_its_own() -> None:
    packed = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("pack", 0, 2))
    after = act(packed, Action("split", 0, 12))
    assert sum(n.op is Ops.DEFINE for n in after.toposort()) == 2
    check_value(kernels.matmul(6, 5, 32), lowered(with_actions(after)))


def test_rows_that_share_a_panel_share_the_copy() -> None:
    packed = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("split", 0, 16))
    packed = act(packed, Action("swap", 1, 2), Action("pack", 0, 2), Action("split", 1, 4))
    assert sum(n.op is Ops.DEFINE for n in packed.toposort()) == 1
    check_value(kernels.matmul(6, 5, 32), lowered(with_actions(packed)))


def test_panels_that_are_packed_together_follow_each_other() -> None:
    split = act(kernels.matmul(6, 5, 32), Action("split", 1, 8))
    after = act(split, Action("pack", 0, 2))
    (fill,) = [n.src[1] for n in after.toposort() if n.op is Ops.AFTER]
    assert [size_of(r) for r in fill.src[1:]] == [4, 5, 8]
    place = fill.src[0].src[0].src[1]
    assert [stride_of(place, r) for r in fill.src[1:]] == [40, 8, 1]
    check_value(kernels.matmul(6, 5, 32), after)


def test_columns_of_less_than_a_panel_are_packed_too() -> None:
    sink = kernels.matmul(20, 160, 8)
    actions = choose(sink, SMALL_AVX2).actions
    assert "pack" in [action.kind for action in actions]
    check_value(sink, act(sink, *actions))


def test_hoist_takes_a_sum_outside_of_output_loops() -> None:
    after = act(kernels.matmul(6, 8, 16), Action("split", 2, 4), Action("hoist", 2, 0))
    assert [(a.arg.kind.value, size_of(a)) for a in axes_of(after)] == [
        ("loop", 6),
        ("loop", 16),
        ("loop", 6),
        ("loop", 16),
        ("reduce", 4),
        ("loop", 2),
        ("loop", 6),
        ("loop", 16),
    ]
    check_value(kernels.matmul(6, 8, 16), after)
    check_value(kernels.matmul(6, 8, 16), lowered(with_actions(after)))


def test_hoisted_sums_start_again_in_each_outer_turn() -> None:
    sink = batched(2, 3, 4, 4)
    after = act(sink, Action("split", 3, 2), Action("hoist", 3, 1))
    check_value(sink, after)
    check_value(sink, lowered(with_actions(after)))


def test_hoist_of_a_maximum_starts_from_its_identity() -> None:
    after = act(kernels.reduce_columns(9, 35), Action("hoist", 1, 0))
    check_value(kernels.reduce_columns(9, 35), after)


def test_pad_masks_what_is_too_much() -> None:
    after = act(kernels.elementwise(10), Action("pad", 0, 4))
    assert size_of(axes_of(after)[0]) == 12
    check_value(kernels.elementwise(10), after)


def test_no_mask_is_left_where_bounds_prove() -> None:
    padded = with_actions(kernels.elementwise(100), Action("pad", 0, 16), Action("lanes", 0, 16))
    loads = [n for n in lowered(padded).toposort() if n.op is Ops.LOAD]
    assert all(len(n.src) == 3 for n in loads)
    exact = with_actions(kernels.elementwise(100), Action("pad", 0, 16), Action("split", 0, 96))
    loads = [n for n in lowered(exact).toposort() if n.op is Ops.LOAD]
    assert sorted(len(n.src) for n in loads) == [1, 1, 3, 3]


def quotients() -> UOp:
    """y[i] = x[i] // z[i]"""
    i = kernels.loop(10, 0)
    x, z, y = (kernels.param(slot, 10, dtypes.int32).index(i) for slot in (1, 2, 0))
    return kernels.kernel(y.store(x // z).end(i))


def last_of_all() -> UOp:
    """y[0] = the last of x"""
    i = kernels.loop(10, 0)
    value = kernels.param(1, 10).index(i)
    return kernels.kernel(kernels.param(0, 1).index(kernels.const(0)).store(value).end(i))


PACKED = act(kernels.matmul(6, 5, 32), Action("swap", 0, 1), Action("split", 0, 16))
PACKED = act(PACKED, Action("pack", 0, 2))
UPCAST = act(kernels.matmul(6, 5, 32), Action("upcast", 0, 2))


@pytest.mark.parametrize(
    ("sink", "action", "message"),
    [
        (kernels.matmul(), Action("pack", 2, 2), "it is reduced; hoist it first"),
        (kernels.matmul(), Action("pack", 0, 5), "parameter 5 is not read inside of it"),
        (kernels.matmul(), Action("pack", 0, 0), "parameter 0 is written by the kernel"),
        (
            kernels.elementwise(),
            Action("pack", 0, 1),
            "no loop inside of it moves along parameter 1",
        ),
        (
            UPCAST,
            Action("pack", 1, 2),
            "the buffer would be filled inside of an axis that is upcast",
        ),
        (
            kernels.matmul(2, 4096, 4096),
            Action("pack", 0, 2),
            "a buffer of 67108864 bytes is larger than 16777216",
        ),
        (PACKED, Action("upcast", 0), "a buffer is filled in each of its turns"),
        (PACKED, Action("lanes", 0), "a buffer is filled in each of its turns"),
        (
            kernels.scatter(),
            Action("pack", 0, 1),
            "the iterations of this kernel must run in order",
        ),
        (
            kernels.matmul(),
            Action("pack", 0, 2, (0,)),
            "none of what is read moves along a loop 0",
        ),
        (
            kernels.matmul(),
            Action("pack", 0, 2, (9,)),
            "none of what is read moves along a loop 9",
        ),
        (kernels.matmul(), Action("hoist", 0, 0), "it is an output axis"),
        (
            kernels.matmul(),
            Action("hoist", 2, 2),
            "2 loops cannot stay outside of a nest of 2",
        ),
        (
            kernels.reduce_all(),
            Action("hoist", 0, 0),
            "its reduction stands in 0 nests of output loops",
        ),
        (UPCAST, Action("hoist", 3, 0), "it would cross a loop that is upcast"),
        (
            UPCAST,
            Action("hoist", 3, 2),
            "the buffer would be filled inside of an axis that is upcast",
        ),
        (
            kernels.softmax(3, 37),
            Action("hoist", 2, 1),
            "its reduction does not depend on the loops that it would cross",
        ),
        (quotients(), Action("pad", 0, 4), "a division by what is read beyond the edge would fail"),
        (last_of_all(), Action("pad", 0, 4), "an output does not move along it"),
        (
            kernels.reduce_all(),
            Action("pad", 0, 16),
            "it is reduced, and not to a sum of products of what is read along it",
        ),
        (kernels.matmul(), Action("pad", 0, 1), "the amount is less than 2"),
        (kernels.matmul(), Action("pad", 0, 3), "its size 3 is a multiple of 3 already"),
    ],
)
def test_refusals(sink: UOp, action: Action, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, TARGET)
    wanted = f"{action.kind} of axis {action.axis} is refused: {message}"
    assert str(caught.value).splitlines()[0] == wanted


# ---- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [ONE_CORE, SMALL_CACHE, dataclasses.replace(SMALL_CACHE, cores=3), AVX2, SMALL_AVX2],
    ids=["one core", "small cache", "three cores", "avx2", "avx2 small cache"],
)
@pytest.mark.parametrize(
    "sink",
    [
        kernels.matmul(18, 7, 70),
        kernels.matmul(9, 300, 33),
        kernels.matmul(64, 16, 64),
        kernels.matmul(67, 31, 83),
        kernels.matmul(5, 90, 9),
        kernels.matmul_transposed(256, 3, 17),
        kernels.matmul(9, 65, 17),
        kernels.matmul(3, 260, 10),
        kernels.matmul(5, 131, 33),
        batched(3, 9, 10, 40),
        batched(2, 5, 65, 9),
        with_epilogue(21, 12, 37),
        kernels.matmul_and_step(24, 3, 66),
        kernels.matmul_and_step(33, 3, 40),
        over_two_axes(96, 5, 9, 16),
        over_two_axes(96, 5, 4, 64),
        two_rows(3, 9, 5, 37),
        two_rows(2, 9, 300, 70),
        kernels.matmul(16, 509, 16),
        kernels.matmul(95, 12, 33),
        kernels.matmul(7, 515, 33),
        vector_times_matrix(40, 300),
        vector_times_matrix(1100, 256),
        sum_of_columns(35, 257),
    ],
    ids=lambda sink: "_".join(str(size_of(a)) for a in axes_of(sink)),
)
def test_plans_keep_the_value(sink: UOp, target: object) -> None:
    after = lowered(sink, target)  # type: ignore[arg-type]
    verify(after, NATIVE)
    check_value(sink, after)


@pytest.mark.parametrize("size", [40, 65, 95, 128])
@pytest.mark.parametrize("form", ["plain", "transposed first", "transposed second"])
def test_a_product_of_a_matrix_with_itself(size: int, form: str) -> None:
    for target in (AVX2, SMALL_AVX2, ONE_CORE, SMALL_CACHE):
        verify(choose(by_itself(size, form), target).sink, LOOP)
    sink = by_itself(size, form)
    if size < 70:
        check_value(sink, lowered(sink, SMALL_AVX2))


def test_a_column_that_fills_no_vector_is_summed_along_the_sum() -> None:
    actions = choose(kernels.matmul(65, 65, 65), AVX2).actions
    assert not any(action.kind == "pad" for action in actions)
    after = lowered(kernels.matmul(65, 65, 65), AVX2)
    masked = [n for n in after.toposort() if n.op is Ops.LOAD and len(n.src) > 1]
    assert not masked, "nothing is masked"
    kinds = [action.kind for action in choose(kernels.matmul(65, 65, 68), AVX2).actions]
    assert "pad" in kinds, "four columns are better masked"


def plan_of(sink: UOp, target: object = ONE_CORE) -> UOp:
    """The kernel after the plan of tiles alone."""
    plan = Plan(sink, target)  # type: ignore[arg-type]
    assert plan_tiles(plan)
    return plan.sink


def innermost(sink: UOp) -> list[UOp]:
    """The REDUCEs that nothing is reduced in."""
    found = [n for n in sink.toposort() if n.op is Ops.REDUCE]
    return [n for n in found if not any(b.op is Ops.REDUCE for b in n.src[0].toposort())]


def test_the_inner_loop_of_a_packed_product_reads_side_by_side() -> None:
    sink = stages(kernels.matmul(1024, 1024, 1024), ONE_CORE)[3][2]
    (inner,) = innermost(sink)
    loop = inner.src[1]
    reads = [n for n in inner.src[0].toposort() if n.op is Ops.INDEX and loop in n.ranges]
    wide = [n for n in reads if any(r.arg.kind is AxisKind.LANES for r in n.ranges)]
    assert len(wide) == 1
    storage = wide[0].src[0].src[0]
    assert storage.op is Ops.DEFINE
    assert stride_of(wide[0].src[1], loop) == 64
    assert storage.arg.size == 1024 * 64


@pytest.mark.parametrize(
    ("rows", "columns", "sums"), [(1024, 1024, 24), (512, 48, 24), (64, 64, 16)]
)
def test_with_32_registers_a_tile_is_six_rows_of_four_vectors(
    rows: int, columns: int, sums: int
) -> None:
    """Or eight of three; four where they leave no rest."""
    sink = stages(kernels.matmul(rows, 1024, columns), ONE_CORE)[4][2]
    (loop,) = {n.src[1:] for n in innermost(sink)}
    inner = [n for n in innermost(sink) if n.src[1:] == loop]
    assert len(inner) == sums
    assert {n.dtype.lanes for n in inner} == {16}


@pytest.mark.parametrize(
    ("shape", "threads", "sizes"),
    [
        ((1024, 1024, 1024), 1, Sizes(8, 2, 1024, 32, is_packed=True)),
        ((1024, 1024, 1024), 2, Sizes(8, 2, 1024, 32, is_packed=True)),
        ((2048, 2048, 2048), 2, Sizes(8, 2, 2048, 16, is_packed=True)),
        ((512, 512, 512), 1, Sizes(8, 2, 512, 8, is_packed=True)),
        ((1000, 768, 3072), 1, Sizes(8, 2, 768, 32, is_packed=True)),
        ((128, 768, 3072), 1, Sizes(8, 2, 768, 4, is_packed=True)),
        ((128, 3072, 768), 1, Sizes(8, 2, 1024, 4, is_packed=True)),
        ((512, 8192, 512), 1, Sizes(8, 2, 1024, 32, is_packed=True)),
        ((100_000, 3000, 768), 1, Sizes(8, 2, 1000, 2, is_packed=True)),
        ((400_000, 9000, 768), 1, Sizes(8, 2, 9000, 1, is_packed=True)),
        ((64, 1201, 512), 1, Sizes(8, 2, 600, 4, is_packed=True)),
        ((784, 128, 512), 1, Sizes(8, 2, 128, 32, is_packed=True)),
        ((64, 64, 64), 1, Sizes(8, 2, 64, 1, is_packed=False)),
        ((32, 128, 512), 1, Sizes(8, 2, 128, 1, is_packed=False)),
    ],
)
def test_sizes_with_16_registers(shape: tuple[int, int, int], threads: int, sizes: Sizes) -> None:
    assert sizes_of(shape, AVX2, threads) == sizes


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((1024, 1024, 1024), Sizes(16, 4, 1024, 1, is_packed=True)),
        ((512, 8192, 512), Sizes(16, 4, 1024, 1, is_packed=True)),
        ((784, 128, 512), Sizes(16, 4, 128, 1, is_packed=False)),
        ((512, 512, 48), Sizes(16, 3, 512, 1, is_packed=False)),
    ],
)
def test_sizes_with_32_registers(shape: tuple[int, int, int], sizes: Sizes) -> None:
    assert sizes_of(shape, ONE_CORE, 1) == sizes


def test_rows_that_lie_across_are_copied_where_their_lines_do_not_stay_in_cache() -> None:
    def packed(rows: int, inner: int, columns: int, target: Target = AVX2) -> list[int]:
        actions = choose(transposed_left(rows, inner, columns), target).actions
        return [action.amount for action in actions if action.kind == "pack"]

    assert packed(1024, 1024, 1024) == [2, 1]
    assert packed(768, 600, 768) == [2, 1]
    assert packed(784, 128, 512) == [2], "128 lines stay, which lie in all sets"
    assert packed(512, 128, 512) == [2, 1], "128 lines meet in two sets"
    assert packed(768, 600, 32) == [2], "two panels use them"
    small = dataclasses.replace(AVX2, l1d_bytes=1024)
    assert packed(67, 40, 70, small) == [2, 1, 2], "columns that are left are one panel"
    check_value(transposed_left(67, 40, 70), lowered(transposed_left(67, 40, 70), small))


@pytest.mark.parametrize("target", [ONE_CORE, AVX2])
def test_sums_of_many_rows_wait_only_where_a_buffer_holds_them(target: Target) -> None:
    kinds = [a.kind for a in choose(kernels.matmul(400_000, 9000, 768), target).actions]
    assert "pack" in kinds
    assert "hoist" not in kinds


def sizes_of(shape: tuple[int, int, int], target: Target, threads: int) -> Sizes:
    """What is chosen for a product of rows, products in a sum, columns."""
    product = Product.of(Plan(kernels.matmul(*shape), target))
    assert product is not None
    return choose_sizes(product, target, threads)


def test_with_16_registers_a_tile_is_six_rows_of_two_vectors() -> None:
    sink = stages(kernels.matmul(1020, 1024, 1024), AVX2)[4][2]
    inner = innermost(sink)
    assert len(inner) == 12
    assert {n.dtype.lanes for n in inner} == {8}


def test_what_the_next_tile_writes_is_asked_for_while_one_is_summed() -> None:
    """Each of its lines once, outside of the sum."""
    sink = stages(kernels.matmul(512, 128, 512), ONE_CORE)[-1][2]
    asked = [n for n in sink.toposort() if n.op is Ops.PREFETCH]
    stored = [n for n in sink.toposort() if n.op is Ops.STORE and n.src[0].src[0].op is Ops.PARAM]
    assert len(asked) == len(stored) == 24
    assert {n.src[0].src[0].arg.slot for n in asked} == {0}
    assert {n.src[0].src[1].ranges for n in asked} == {n.src[0].src[1].ranges for n in stored}


@pytest.mark.parametrize(
    ("rows", "columns", "target"), [(64, 64, ONE_CORE), (512, 512, AVX2), (512, 544, ONE_CORE)]
)
def test_small_results_and_those_of_narrow_panels_are_not_asked_for(
    rows: int, columns: int, target: Target
) -> None:
    """Nor those of two nests, which lie elsewhere."""
    actions = choose(kernels.matmul(rows, 128, columns), target).actions
    assert all(action.kind != "prefetch" for action in actions)


def test_the_vectors_of_a_row_are_multiplied_one_after_the_other() -> None:
    """Then all sums of a tile, one row's number, and a vector of each column fit in registers."""
    linear = stages(kernels.matmul(64, 64, 64), AVX2)[-1][2]
    products = [n for n in linear.toposort() if n.op is Ops.MULADD]
    numbers = [next(s for s in n.src[:2] if s.op is Ops.SPLAT) for n in products]
    tiles = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert tiles
    assert all(first is second for first, second in tiles)


@pytest.mark.parametrize("inner", [1025, 1201, 2003, 3001])
@pytest.mark.parametrize("target", [ONE_CORE, AVX2], ids=["avx512", "avx2"])
def test_a_sum_that_nothing_divides_is_cut_in_even_blocks(inner: int, target: Target) -> None:
    depth = sizes_of((64, inner, 512), target, 1).depth
    assert depth < inner
    assert inner // depth >= 2
    assert inner % depth < inner // depth
    assert "hoist" in [a.kind for a in choose(kernels.matmul(64, inner, 512), target).actions]


def test_panels_of_a_group_are_read_from_one_copy() -> None:
    actions = choose(kernels.matmul(1020, 1024, 1024), AVX2).actions
    assert [a for a in actions if a.kind in ("split", "pack", "upcast", "lanes")] == [
        Action("split", 0, 512),
        Action("split", 1, 16),
        Action("pack", 0, 2),
        Action("lanes", 6, 8),
        Action("upcast", 6),
        Action("upcast", 1, 6),
        Action("lanes", 4, 8),
        Action("upcast", 4),
    ]
    sink = stages(kernels.matmul(1020, 1024, 1024), AVX2)[3][2]
    (inner,) = innermost(sink)
    reads = [n for n in inner.src[0].toposort() if n.op is Ops.INDEX]
    (wide,) = [n for n in reads if n.src[0].op is Ops.AFTER]
    assert wide.src[0].src[0].arg.size == 512 * 1024
    assert stride_of(wide.src[1], inner.src[1]) == 16


def test_groups_of_panels_are_shared_out_evenly_among_threads() -> None:
    two = dataclasses.replace(AVX2, cores=2)
    axes = axes_of(stages(kernels.matmul(256, 256, 480), two)[3][2])
    assert (axes[0].arg.kind, size_of(axes[0])) == (AxisKind.THREAD, 2)


def test_rows_are_shared_out_where_there_is_one_panel() -> None:
    two = dataclasses.replace(AVX2, cores=2)
    actions = choose(kernels.matmul(100_000, 64, 16), two).actions
    assert actions[-1].kind == "thread"


def test_the_text_of_the_inner_loop_loads_and_multiplies_only() -> None:
    linear = stages(kernels.matmul(64, 64, 64), ONE_CORE)[-1][2]
    counts = {op: sum(n.op is op for n in linear.toposort()) for op in (Ops.MULADD, Ops.SPLAT)}
    assert counts == {Ops.MULADD: 16, Ops.SPLAT: 4}


def test_a_small_matrix_is_not_packed() -> None:
    assert all(a.kind != "pack" for a in choose(kernels.matmul(64, 64, 64), ONE_CORE).actions)


def test_a_long_sum_is_cut_in_blocks_outside_of_the_rows() -> None:
    kinds = [a.kind for a in choose(kernels.matmul(512, 8192, 512), ONE_CORE).actions]
    assert "hoist" in kinds
    assert kinds.index("hoist") < kinds.index("pack")


@pytest.mark.parametrize(
    ("target", "rows", "vectors"), [(ONE_CORE, 16, 1), (AVX2, 8, 2)], ids=["avx512", "avx2"]
)
def test_one_row_reads_the_matrix_along_memory(target: Target, rows: int, vectors: int) -> None:
    """Half of the registers hold a factor each; a turn reads a vector of 16 rows, or two of 8."""
    sink = choose(vector_times_matrix(4096, 4096), target).sink
    (inner,) = innermost(sink)
    assert [(r.arg.kind, size_of(r)) for r in inner.src[1:]] == [(AxisKind.UNROLL, rows)]
    assert sum(n.op is Ops.DEFINE for n in sink.toposort()) == 2
    copies = [size_of(a) for a in axes_of(sink) if a.arg.kind is AxisKind.UPCAST]
    assert set(copies) == ({vectors} - {1})


def test_panels_are_shared_out_among_threads() -> None:
    actions = choose(kernels.matmul(1024, 1024, 1024), dataclasses.replace(TARGET, cores=2)).actions
    assert actions[-1] == Action("thread", 0)
    axes = axes_of(stages(kernels.matmul(1024, 1024, 1024), TARGET)[3][2])
    assert (axes[0].arg.kind, size_of(axes[0])) == (AxisKind.THREAD, 16)


# ---- rounding ------------------------------------------------------------------------------------


def levels_of(sink: UOp) -> list[int]:
    """How many terms each accumulator of a kernel adds."""
    found = [
        math.prod(size_of(r) or 1 for r in n.src[1:] if r.arg.kind is AxisKind.REDUCE)
        for n in sink.toposort()
        if n.op is Ops.REDUCE
    ]
    hoisted = [
        size_of(n.src[1]) or 1
        for n in sink.toposort()
        if n.op is Ops.END and n.src[0].op is Ops.STORE and _adds(n.src[0])
    ]
    return [n for n in (*found, *hoisted) if n > 1]


def _adds(store: UOp) -> bool:
    return store.src[1].op is Ops.ADD and store.src[1].src[0] is store.src[0]


@pytest.mark.parametrize("target", [ONE_CORE, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("inner", [16, 65, 131, 512, 1000, 1024, 4093, 8192, 30_000])
@pytest.mark.parametrize(
    "make", [lambda k: kernels.matmul(64, k, 512), lambda k: sum_of_columns(k, 4096)]
)
def test_no_accumulator_adds_more_than_its_run(inner: int, make: object, target: Target) -> None:
    plan = Plan(make(inner), target)  # type: ignore[operator]
    if not plan_tiles(plan):
        return
    assert max(levels_of(plan.sink), default=1) <= longest_run(inner)


@pytest.mark.parametrize("count", [65, 96, 131, 512, 1024, 2048, 8192])
def test_runs_of_equal_numbers_keep_the_bound(count: int) -> None:
    """Measured on numbers of all kinds, with levels as the plan makes them."""
    numbers = np.random.default_rng(1).uniform(1, 2, 4000).astype(np.float32)
    values, size = numbers, count
    while size > longest_run(count):
        length = run_length(size, longest_run(count))
        values, size = one_by_one(values, length), -(-size // length)
    values = one_by_one(values, size)
    exact = numbers.astype(np.float64)
    terms = np.round(values.astype(np.float64) / exact)
    error = np.abs(values - terms * exact) / (terms * exact)
    assert error.max() <= 2 * 2.0**-23 * math.log2(count)


def one_by_one(values: kernels.Array, length: int) -> kernels.Array:
    """Each number added to itself *length* times, in float32."""
    total = np.zeros_like(values)
    for _ in range(length):
        total = (total + values).astype(np.float32)
    return total


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, 1000, 1 << 24])
def test_runs_are_never_empty(count: int) -> None:
    assert 1 <= run_length(max(1, count), longest_run(count)) <= 128


@pytest.mark.parametrize(
    ("target", "rows", "vectors"), [(TARGET, 512, 4), (AVX2, 128, 2), (SMALL_AVX2, 110, 2)]
)
def test_much_that_follows_a_sum_is_copied_for_the_vectors_of_a_row_alone(
    target: Target, rows: int, vectors: int
) -> None:
    """Copies for all rows of a tile were more code than all the rest of the kernel."""
    sink = kernels.matmul_and_step(rows, 16, 128)
    roots = [n for n in lowered(sink, target).toposort() if n.op is Ops.SQRT]
    assert len(roots) == vectors


def test_little_that_follows_a_sum_stays_in_registers() -> None:
    sink = with_epilogue(128, 64, 128)
    for target in (TARGET, AVX2):
        assert "compute" not in [a.kind for a in choose(sink, target).actions]


@pytest.mark.parametrize("target", [ONE_CORE, AVX2, SMALL_AVX2])
@pytest.mark.parametrize(
    "sink",
    [
        with_epilogue(128, 3, 34),
        with_epilogue(22, 6, 36),  # blocks of 11 rows
        batched(2, 12, 5, 40),
        transposed_left(24, 3, 66),
    ],
    ids=["even", "uneven", "batched", "transposed"],
)
def test_sums_that_wait_keep_their_value(
    sink: UOp, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.opt.plans.tiles.MOST_AFTER", -1)
    assert "compute" in [a.kind for a in choose(sink, target).actions]
    assert_plan_keeps_values(sink, target)
