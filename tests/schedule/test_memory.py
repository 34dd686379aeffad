"""The memory plan: intermediates share storage by lifetime."""

from __future__ import annotations

from pellucid.core.dtype import dtypes
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule import Scheduled
from pellucid.schedule.kernels import Call, Cut, Storage
from pellucid.schedule.memory import plan_memory
from tests.schedule.graphs import buffer_of, check, matmul, reduce, tensor


def made_buffers(result: Scheduled, *given: UOp) -> set[UOp]:
    """BUFFERs of a schedule that are neither given nor outputs."""
    known = {buffer_of(g) for g in given} | {buffer_of(s) for s in result.stored.values()}
    return {b for call in result.linear.src for b in call.src[1:]} - known


def test_chain_of_matmuls_needs_two_buffers() -> None:
    weights = [tensor((4, 4)) for _ in range(6)]
    x = start = tensor((4, 4))
    for w in weights:
        x = matmul(x, w) * 0.125
    result = check([x])
    assert len(result.linear.src) == 6
    assert len(made_buffers(result, start, *weights)) == 2


def test_storage_is_not_reused_while_it_is_needed() -> None:
    x = tensor((4, 4))
    first = matmul(x, x)
    second = matmul(first, first)
    third = matmul(second, second)
    result = check([matmul(third, first)])
    assert len(made_buffers(result, x)) == 3


def test_other_dtypes_and_devices_take_other_storage() -> None:
    x, y = tensor((4, 4)), tensor((4, 4), dtypes.int32)
    whole = matmul(matmul(x, x).cast(dtypes.int32), y)
    result = check([matmul(whole.cast(dtypes.float32), x)])
    made = made_buffers(result, x, y)
    assert {b.dtype for b in made} == {dtypes.float32, dtypes.int32}


def cut_of(sizes: list[int], calls: list[tuple[int, ...]]) -> Cut:
    """Calls on storages of these sizes; the first storage is a given buffer."""
    storages = [
        Storage(dtypes.float32, n, "CPU", 0 if k == 0 else None) for k, n in enumerate(sizes)
    ]
    kernel = UOp.sink()
    return Cut([Call(kernel, c, None) for c in calls], storages, {})  # type: ignore[arg-type]


def test_smallest_free_storage_that_fits_is_taken() -> None:
    cut = cut_of([9, 50, 20, 10, 15, 9], [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)])
    planned = plan_memory(cut, {5})
    assert sorted(s.size for s in planned.storages[2:]) == [20, 50]


def test_a_free_storage_grows_rather_than_another_is_made() -> None:
    cut = cut_of([9, 10, 20, 30, 9], [(1, 0), (2, 1), (3, 2), (4, 3)])
    planned = plan_memory(cut, {4})
    assert sorted(s.size for s in planned.storages[2:]) == [20, 30]


def test_kept_storages_stay() -> None:
    cut = cut_of([9, 10, 10, 10], [(1, 0), (2, 1), (3, 2)])
    planned = plan_memory(cut, {1, 2, 3})
    assert len(planned.storages) == 4


def test_reuse_is_right_under_writes() -> None:
    x = tensor((4, 4))
    base = matmul(x, x)
    part = base.shrink(((1, 3), (0, 4)))
    changed = UOp.make(Ops.WRITE, base, part, matmul(x, x + 1.0).shrink(((0, 2), (0, 4))))
    after = matmul(changed, base)
    check([matmul(after, after), reduce(changed, 0)])
