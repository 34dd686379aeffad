"""Products of narrow numbers: the unit that is chosen, the plan, values, and one kernel for all."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.core import target as target_module
from pellucid.core.dtype import DType, dtypes
from pellucid.core.options import Context
from pellucid.core.target import Target, may_use, parse_target
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.arg import Action, AddrSpace
from pellucid.ir.form import LOOP
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.axes import axes_of, reductions, size_of
from pellucid.opt.plans.heuristic import choose
from pellucid.pipeline import render_kernel
from pellucid.render import LLVMRenderer
from tests.codegen.lowering import stages
from tests.opt.actions.test_units import buffers_of, interpreted, product

BYTES, WORDS, HALVES = ((d, d) for d in (dtypes.int8, dtypes.int16, dtypes.bfloat16))
MIXED, UNSIGNED = (dtypes.uint8, dtypes.int8), (dtypes.uint8, dtypes.uint8)
AVX2 = "x86-64:avx2,fma"
VNNI = "x86-64:avx512vnni,avx512bw,avx512bf16"
AMX = "x86-64:amx-int8,amx-bf16,avx512bw"


def target(spec: str, cores: int = 1) -> Target:
    """What LLVM can spell on a machine; with so little cache, matrices are copied in groups."""
    machine = parse_target(spec).with_changes({"cores": cores, "l2_bytes": 8192, "l3_bytes": 0})
    return LLVMRenderer(machine).target


def of(types: tuple[DType, DType], rows: int, inner: int, columns: int) -> UOp:
    """A product, added in the type that is wide enough."""
    total = dtypes.float32 if types[0].is_float else dtypes.int32
    return product(rows, inner, columns, *types, total)


def chosen(sink: UOp, spec: str) -> str:
    """The unit that the heuristic chooses; empty for none."""
    actions = choose(sink, target(spec)).actions
    return next((a.extra[0] for a in actions if a.kind == "unit"), "")


CHOICES = {
    (AVX2, BYTES): "pmaddwd_256",
    (AVX2, WORDS): "pmaddwd_256",
    (AVX2, HALVES): "",
    ("x86-64:sse2", BYTES): "pmaddwd_128",
    ("x86-64:avxvnni", MIXED): "vpdpbusd_256",
    ("x86-64:avxvnni", BYTES): "vpdpbusd_256",
    ("x86-64:avxvnniint8", BYTES): "vpdpbssd_256",
    (VNNI, MIXED): "vpdpbusd_512",
    (VNNI, BYTES): "vpdpbusd_512",
    (VNNI, UNSIGNED): "vpdpbusd_512",
    (VNNI, HALVES): "vdpbf16ps_512",
    (AMX, BYTES): "tdpbssd",
    (AMX, MIXED): "tdpbusd",
    (AMX, UNSIGNED): "tdpbuud",
    (AMX, HALVES): "tdpbf16ps",
    ("aarch64:dotprod", BYTES): "sdot_128",
    ("generic", BYTES): "",
}


@pytest.mark.parametrize(("spec", "types"), CHOICES, ids=str)
def test_the_best_unit_of_the_target_is_chosen(spec: str, types: tuple[DType, DType]) -> None:
    with Context(relaxed_float=True):
        assert chosen(of(types, 32, 128, 64), spec) == CHOICES[spec, types]


def test_denormals_are_kept_unless_floats_may_be_relaxed() -> None:
    assert chosen(of(HALVES, 32, 128, 64), AMX) == ""


def test_tiles_are_for_sizes_that_fill_half_of_them() -> None:
    assert chosen(of(BYTES, 8, 100, 24), AMX) == "tdpbssd"
    assert chosen(of(BYTES, 7, 100, 24), AMX) == "pmaddwd_512"
    assert chosen(of(BYTES, 8, 31, 24), AMX) == "pmaddwd_512"


def test_few_rows_or_columns_are_not_offset() -> None:
    assert chosen(of(BYTES, 16, 64, 64), VNNI) == "vpdpwssd_512"
    assert chosen(of(UNSIGNED, 64, 64, 16), VNNI) == "vpdpwssd_512"
    assert chosen(of(MIXED, 16, 64, 64), VNNI) == "vpdpbusd_512"


@pytest.mark.parametrize("granted", [True, False])
def test_tiles_are_used_where_the_system_grants_them(
    granted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = parse_target(AMX)
    monkeypatch.setattr(target_module, "_machine_target", lambda: machine)
    monkeypatch.setattr(target_module, "request_amx", lambda: granted)
    assert may_use(MATRIX_UNITS["tdpbssd"]) is granted
    expected = "tdpbssd" if granted else "pmaddwd_512"
    assert chosen(of(BYTES, 32, 128, 64), AMX) == expected


def test_nobody_asks_for_tiles_for_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = parse_target(AMX)
    monkeypatch.setattr(target_module, "_machine_target", lambda: machine)
    monkeypatch.setattr(target_module, "request_amx", lambda: pytest.fail("it was asked"))
    assert chosen(of(WORDS, 32, 128, 64), AMX) == "pmaddwd_512"
    assert chosen(of(HALVES, 32, 128, 64), AMX) == ""


# ---- the plan ----------------------------------------------------------------------------------


def test_both_matrices_are_copied_in_the_order_of_the_unit() -> None:
    plan = choose(of(BYTES, 32, 64, 64), target(AVX2))
    copies = [n for n in plan.sink.toposort() if n.op is Ops.DEFINE]
    assert {n.arg.space for n in copies} == {AddrSpace.LOCAL}
    assert [(n.dtype, n.arg.size) for n in copies] == [
        (dtypes.int16, 6 * 64),
        (dtypes.int16, 64 * 32),
    ]
    loops = [(a.arg.kind.value, size_of(a)) for a in axes_of(plan.sink)]
    outputs = [("loop", 2), ("loop", 6), ("loop", 2), ("upcast", 6), ("upcast", 2), ("column", 8)]
    assert loops[: len(outputs)] == outputs  # groups, tiles of rows, panels, then the body
    assert loops[-2:] == [("reduce", 32), ("depth", 2)]


@pytest.mark.parametrize(("spec", "columns"), [(AVX2, 256), (VNNI, 64), (AMX, 32)])
def test_a_group_of_narrow_panels_may_lie_in_the_third_cache(spec: str, columns: int) -> None:
    large = target(spec).with_changes({"l3_bytes": 32 << 20})
    after = choose(of(BYTES, 64, 1024, 256), large).sink
    inside = [n.arg.size // 1024 for n in after.toposort() if n.op is Ops.DEFINE]
    assert max(inside) == columns


def test_groups_are_as_large_when_the_count_of_panels_is_prime() -> None:
    large = target(AVX2).with_changes({"l3_bytes": 8 << 20})
    after = choose(of(HALVES, 64, 1024, 67 * 16), large).sink
    inside = [n.arg.size // 1024 for n in after.toposort() if n.op is Ops.DEFINE]
    assert max(inside) == 7 * 16
    verify(after, LOOP)


def test_groups_of_columns_are_shared_out_among_threads() -> None:
    plan = choose(of(BYTES, 128, 128, 512), target(AVX2, cores=4))
    threads = [size_of(a) for a in axes_of(plan.sink) if a.arg.kind.value == "thread"]
    assert threads == [32]


def test_the_sums_of_an_offset_are_made_once_for_a_group() -> None:
    plan = choose(of(BYTES, 64, 64, 64), target(VNNI))
    fills = [n.src[1] for n in plan.sink.toposort() if n.op is Ops.AFTER]
    (sums,) = (f for f in fills if f.op is Ops.END and f.src[0].src[0].dtype.scalar is dtypes.int32)
    assert [a.kind for a in plan.actions if a.kind in ("offset", "compute")] == [
        "offset",
        "compute",
    ]
    assert not set(sums.ranges) & {r for r in axes_of(plan.sink) if size_of(r) == 11}  # of rows


def test_copies_are_made_in_the_order_of_memory() -> None:
    def outermost(sink: UOp) -> int | None:
        large = target(VNNI).with_changes({"l2_bytes": 1 << 20})
        after = choose(sink, large).sink
        (fill,) = (
            n.src[1]
            for n in after.toposort()
            if n.op is Ops.AFTER and n.src[0].dtype is dtypes.int8
        )
        return size_of(fill.src[1])

    plain = of(MIXED, 32, 40, 128)
    assert outermost(plain) == 10  # groups of four rows, of all panels


def test_a_sum_that_is_no_multiple_of_the_unit_is_padded_in_the_copies() -> None:
    plan = choose(of(BYTES, 64, 37, 64), target(VNNI))
    assert Action("pad", 2, 4) in plan.actions
    (total,) = (n for n in reductions(plan.sink) if n.arg.unit)
    assert [size_of(r) for r in total.src[1:]] == [10, 4]
    reads = total.src[0].toposort(lambda n: n.op is not Ops.AFTER)
    assert not any(n.op is Ops.INDEX and len(n.src) > 2 for n in reads)


SHAPES = {
    "even": (8, 16, 32),
    "odd": (5, 9, 19),
    "one panel": (5, 18, 16),
    "one tile": (4, 34, 16),
}


OFFSET = {
    "even": (24, 8, 32),
    "odd": (25, 9, 27),
    "one panel": (26, 7, 24),
}


@pytest.mark.parametrize("shape", OFFSET)
@pytest.mark.parametrize("types", [BYTES, UNSIGNED, MIXED[::-1]], ids=str)
def test_offset_values_are_those_of_the_loops(types: tuple[DType, DType], shape: str) -> None:
    sink = of(types, *OFFSET[shape])
    assert "offset" in [action.kind for action in choose(sink, target(VNNI)).actions]
    _check_values(sink, VNNI)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("spec", "types"), [(AVX2, BYTES), (AVX2, HALVES), (VNNI, MIXED), (VNNI, HALVES)], ids=str
)
def test_values_are_those_of_the_loops(spec: str, types: tuple[DType, DType], shape: str) -> None:
    _check_values(of(types, *SHAPES[shape]), spec)


def _check_values(sink: UOp, spec: str) -> None:
    """The interpreter gets the same from each form as from the plain loops."""
    arrays = buffers_of(sink)
    expected = interpreted(sink, arrays)
    with Context(relaxed_float=True):
        for name, form, graph in stages(sink, target(spec)):
            verify(graph, form)
            if name in ("lower_reductions", "add_control_flow"):
                assert np.array_equal(interpreted(graph, arrays), expected), name


@pytest.mark.parametrize("shape", [(32, 64, 48), (9, 40, 21)])
def test_values_of_tiles_are_those_of_the_loops(shape: tuple[int, int, int]) -> None:
    sink = of(BYTES, *shape)
    arrays = buffers_of(sink)
    graph = stages(sink, target(AMX))[-1][2]
    assert any(n.op is Ops.MMA and n.arg == "tdpbssd" for n in graph.toposort())
    assert np.array_equal(interpreted(graph, arrays), interpreted(sink, arrays))


def test_what_a_unit_does_is_counted() -> None:
    made = render_kernel(of(MIXED, 24, 64, 64), LLVMRenderer(parse_target(VNNI)))
    assert (made.info.units, made.info.unit_ops) == (("vpdpbusd_512",), 2 * 24 * 64 * 64)


# ---- from user code ----------------------------------------------------------------------------


def integers(shape: tuple[int, ...], kind: str, seed: int) -> np.ndarray:
    """Any values of an integer type."""
    info = np.iinfo(kind)
    numbers = np.random.default_rng(seed).integers(info.min, info.max + 1, shape)
    return numbers.astype(kind)


PAIRS = [(a, b) for a in ("int8", "uint8") for b in ("int8", "uint8")]


@pytest.mark.parametrize("kinds", [*PAIRS, ("int16", "int16")])
@pytest.mark.parametrize("shape", [(64, 64, 64), (33, 65, 47), (5, 100, 16), (30, 3, 9)])
def test_integer_matrices_add_up_in_int32(
    kinds: tuple[str, str], shape: tuple[int, int, int]
) -> None:
    rows, inner, columns = shape
    a, b = integers((rows, inner), kinds[0], 1), integers((inner, columns), kinds[1], 2)
    expected = a.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(Tensor(a).matmul(Tensor(b), dtype="int32").numpy(), expected)
    turned = Tensor(np.ascontiguousarray(b.T)).T
    assert np.array_equal(Tensor(a).matmul(turned, dtype="int32").numpy(), expected)


@pytest.mark.parametrize("kinds", PAIRS)
def test_extreme_integers_add_up_in_int32(kinds: tuple[str, str]) -> None:
    for left in (np.iinfo(kinds[0]).min, np.iinfo(kinds[0]).max):
        for right in (np.iinfo(kinds[1]).min, np.iinfo(kinds[1]).max):
            a, b = np.full((25, 259), left, kinds[0]), np.full((259, 33), right, kinds[1])
            got = Tensor(a).matmul(Tensor(b), dtype="int32").numpy()
            assert (got == 259 * int(left) * int(right)).all()


def test_sums_of_offset_factors_wrap_in_int32() -> None:
    a, b = np.full((24, 140_001), -128, np.int8), np.full((140_001, 16), -128, np.int8)
    got = Tensor(a).matmul(Tensor(b), dtype="int32").numpy()
    assert (got == 140_001 * 128 * 128 - 2**32).all()


def test_a_quantised_layer_is_one_kernel() -> None:
    x, w = integers((40, 70), "int8", 1), integers((70, 50), "int8", 2)
    scale, bias = (np.random.default_rng(i).standard_normal(50).astype(np.float32) for i in (3, 4))
    tensors = [Tensor(array).realize() for array in (x, w, scale, bias)]
    left, right, factor, added = tensors
    result = (left.matmul(right, dtype="int32").cast("float32") * factor + added).relu()
    assert len(result.schedule_linear().src) == 1
    total = x.astype(np.int32) @ w.astype(np.int32)
    expected = np.maximum(total.astype(np.float32) * scale + bias, 0)
    assert np.array_equal(result.numpy(), expected)


def test_a_matrix_times_itself() -> None:
    a = integers((20, 36), "int8", 1)
    got = Tensor(a).matmul(Tensor(a).realize().T, dtype="int32").numpy()
    x = Tensor(a).realize()
    assert np.array_equal(got, a.astype(np.int32) @ a.T.astype(np.int32))
    assert np.array_equal(x.matmul(x.T, dtype="int32").numpy(), got)


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_a_left_matrix_that_lies_the_other_way(kind: str) -> None:
    a, b = (np.random.default_rng(i).integers(-9, 10, (36, 40)).astype(np.float32) for i in (1, 2))
    left, right = (Tensor(x).cast(kind).realize() for x in (a, b))
    wide = "int32" if kind == "int8" else "float32"
    product = left.T.cast(wide) @ right.cast(wide)
    assert len(product.schedule_linear().src) == 1
    assert np.array_equal(product.numpy(), (a.T @ b).astype(wide))


def test_batches_of_integer_matrices() -> None:
    a, b = integers((3, 17, 40), "int8", 1), integers((3, 40, 32), "int8", 2)
    got = Tensor(a).matmul(Tensor(b), dtype="int32").numpy()
    assert np.array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


def test_a_product_of_bfloat16_is_one_kernel() -> None:
    a, b = (Tensor.randn(48, 48).cast("bfloat16").realize() for _ in range(2))
    assert len((a @ b).schedule_linear().src) == 1
    assert len((a @ b).relu().schedule_linear().src) == 1


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_small_floats_are_rounded_once_at_the_end(kind: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, (40, 40)).astype(np.float32) for _ in range(2))
    left, right = (Tensor(x).cast(kind).realize() for x in (a, b))
    expected = Tensor(a @ b).cast(kind).cast("float32").numpy()
    assert np.array_equal((left @ right).cast("float32").numpy(), expected)


def test_denormals_of_bfloat16_count() -> None:
    a = Tensor(np.full((8, 16), 2.0**-130, np.float32)).cast("bfloat16").realize()
    b = Tensor(np.full((16, 16), 2.0**120, np.float32)).cast("bfloat16").realize()
    assert ((a @ b).cast("float32").numpy() == 16 * 2.0**-10).all()
