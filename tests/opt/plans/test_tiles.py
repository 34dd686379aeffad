"""Products of matrices: the plan, the shape of the inner loop, and the exactness of the sums."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.axes import axes_of, size_of, stride_of
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.plans.plan import Plan
from pellucid.opt.plans.products import Product
from pellucid.opt.plans.runs import longest_run, run_length
from pellucid.opt.plans.tile_sizes import Sizes, choose_sizes
from pellucid.opt.plans.tiles import plan_tiles
from tests.codegen import kernels
from tests.codegen.agreement import assert_plan_keeps_values
from tests.codegen.lowering import TARGET, lowered, stages
from tests.opt.products import (
    AVX2,
    ONE_CORE,
    SMALL_AVX2,
    SMALL_CACHE,
    batched,
    by_itself,
    check_value,
    over_two_axes,
    sum_of_columns,
    transposed_left,
    two_rows,
    vector_times_matrix,
    with_epilogue,
)

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


def test_panels_that_stay_in_the_first_cache_stand_inside_of_rows() -> None:
    target = dataclasses.replace(ONE_CORE, l1d_bytes=48 << 10)
    assert sizes_of((96, 8, 512), target, 1).panels == 8
    assert sizes_of((96, 80, 512), target, 1).panels == 1
    check_value(kernels.matmul(13, 8, 150), lowered(kernels.matmul(13, 8, 150), target))


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


@pytest.mark.parametrize(("inner", "rows"), [(16, 8), (20, 10), (31, 15)])
def test_half_of_few_rows_are_read_side_by_side(inner: int, rows: int) -> None:
    sink = choose(vector_times_matrix(inner, 1 << 16), ONE_CORE).sink
    copies = [size_of(a) for a in axes_of(sink) if a.arg.kind is AxisKind.UNROLL]
    assert copies[0] == rows


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
