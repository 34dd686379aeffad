"""A few rows times a large matrix: the matrix is read once, as streams."""

from __future__ import annotations

import dataclasses

import pytest

from pellucid.core.target import Target
from pellucid.ir.uop import UOp
from pellucid.opt.plans import products
from pellucid.opt.plans.plan import Plan
from pellucid.opt.plans.products import FAR_BYTES, FEW_ROWS, Product
from pellucid.opt.plans.tiles import plan_tiles
from tests.codegen import kernels
from tests.codegen.agreement import assert_plan_keeps_values
from tests.opt.products import AVX2, ONE_CORE, SMALL_AVX2, SMALL_CACHE, batched, with_epilogue


@pytest.fixture
def near_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices that a test can interpret count as large."""
    monkeypatch.setattr(products, "FAR_BYTES", 1 << 14)


@pytest.mark.usefixtures("near_memory")
@pytest.mark.parametrize(
    "target",
    [SMALL_CACHE, dataclasses.replace(SMALL_CACHE, cores=3), SMALL_AVX2],
    ids=["small cache", "three cores", "avx2"],
)
@pytest.mark.parametrize(
    "sink",
    [
        kernels.matmul(2, 33, 256),
        kernels.matmul(8, 16, 270),
        kernels.matmul(12, 41, 257),
        kernels.matmul(3, 150, 256),
        with_epilogue(5, 19, 300),
        batched(2, 3, 20, 256),
    ],
    ids=["two rows", "few terms", "most rows", "long sums", "epilogue", "batched"],
)
def test_streams_keep_the_values(sink: UOp, target: Target) -> None:
    plan = Plan(sink, target)
    assert plan_tiles(plan)
    assert "hoist" in {action.kind for action in plan.actions}
    assert_plan_keeps_values(sink, target)


@pytest.mark.parametrize("target", [ONE_CORE, AVX2], ids=["32 registers", "16 registers"])
def test_few_rows_of_a_matrix_that_is_in_memory_are_streams(target: Target) -> None:
    inner, columns = 1024, FAR_BYTES // 4096 + 256
    assert is_stream(kernels.matmul(FEW_ROWS, inner, columns), target)
    assert not is_stream(kernels.matmul(FEW_ROWS + 1, inner, columns), target)
    assert not is_stream(kernels.matmul(FEW_ROWS, inner // 2, columns), target)


def test_all_rows_use_each_vector_of_the_matrix() -> None:
    plan = Plan(kernels.matmul(8, 1024, 4096), ONE_CORE)
    assert plan_tiles(plan)
    kinds = [action.kind for action in plan.actions]
    assert "pack" not in kinds
    assert kinds.count("lanes") == kinds.count("upcast") == 3  # cleared, summed, stored
    streams = next(action for action in plan.actions if action.kind == "unroll")
    assert streams.amount == 0  # eight parts of the sum, 64 products of vectors in a turn
    assert next(a.amount for a in plan.actions if a.kind == "split" and a.axis == 3) == 1024 // 8


def is_stream(sink: UOp, target: Target) -> bool:
    plan = Plan(sink, target)
    product = Product.of(plan)
    assert product is not None
    return product.is_stream(plan)
