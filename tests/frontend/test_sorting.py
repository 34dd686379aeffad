"""sort, argsort and topk against numpy: ties, NaN, all types, all axes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from pellucid import Ops, Tensor, compile_linear, dtypes
from pellucid.core.dtype import DType
from pellucid.core.target import host_target

nan, inf = float("nan"), float("inf")
EVERY = (
    *(dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint32, dtypes.uint64, dtypes.float16, dtypes.float32, dtypes.float64),
)


@pytest.mark.parametrize("dtype", EVERY)
def test_order_in_every_type(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2, 9 * dtype.itemsize), np.uint8).view(
        dtype.name.replace("bool", "u1")
    )
    x = (x % 2).astype(bool) if dtype is dtypes.bool else x
    with np.errstate(all="ignore"):
        x = np.concatenate([x, x[:, :3], np.zeros((2, 1), x.dtype)], 1)
    values, places = Tensor(x).sort(1)
    np.testing.assert_array_equal(values.numpy(), np.sort(x, 1))
    np.testing.assert_array_equal(places.numpy(), np.argsort(x, 1, kind="stable"))


def test_nan_and_signed_zeros() -> None:
    x = Tensor([nan, 1.0, -inf, nan, inf, 0.0, -0.0])
    assert x.argsort().tolist() == [2, 5, 6, 1, 4, 0, 3]
    assert x.argsort(descending=True).tolist() == [0, 3, 4, 1, 5, 6, 2]


def test_case_27_an_axis_of_length_1() -> None:
    values, places = Tensor([[3], [1]]).sort(1)
    assert values.tolist() == [[3], [1]]
    assert places.tolist() == [[0], [0]]
    assert Tensor([[3], [1]]).sort(0)[0].tolist() == [[1], [3]]
    assert Tensor.zeros(0).sort()[0].shape == (0,)
    assert Tensor(5).sort()[0].item() == 5


def test_stable_both_ways() -> None:
    x = Tensor([2, 1, 2, 1, 2])
    assert x.argsort().tolist() == [1, 3, 0, 2, 4]
    assert x.argsort(descending=True).tolist() == [0, 2, 4, 1, 3]


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint32, dtypes.int32, dtypes.float32])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [2, 7, 32, 33])
def test_topk_is_the_start_of_the_order(dtype: DType, largest: bool, k: int) -> None:
    low = 0 if dtype.is_unsigned else -3
    numbers = np.random.default_rng(k).integers(low, 4, (3, 40)).astype(dtype.name)
    numbers[:, 5] = dtype.min
    x = Tensor(numbers)
    for dim, turned in ((1, x), (0, x.permute(1, 0)), (-1, x)):
        places = turned.topk(k, dim, largest).indices
        ordered = turned.argsort(dim, descending=largest).numpy()
        np.testing.assert_array_equal(places.numpy(), ordered.take(range(k), dim))


def test_topk_of_what_is_not_a_number() -> None:
    x = Tensor([1.0, nan, -inf, -0.0, nan, inf, 0.0])
    assert x.topk(6).indices.tolist() == [1, 4, 5, 0, 3, 6]
    assert x.topk(6, largest=False).indices.tolist() == [2, 3, 6, 0, 5, 1]


def test_the_gradient_of_topk_goes_to_what_was_found() -> None:
    x = Tensor([[1.0, 5.0, 3.0]], requires_grad=True)
    (x.topk(2).values * Tensor([[2.0, 3.0]])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 2.0, 3.0]]


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("count", [1, 2, 255])
def test_median_in_every_type(dtype: DType, count: int) -> None:
    x: Any = np.random.default_rng(count).integers(0, 256, count * dtype.itemsize, np.uint8)
    x = (x % 2).astype(bool) if dtype is dtypes.bool else x.view(dtype.name)
    with np.errstate(all="ignore"):
        x = x[~np.isnan(x)] if dtype.is_float else x
    got = Tensor(x).median()
    assert got.dtype is dtype
    assert got.numpy() == np.sort(x)[(len(x) - 1) // 2]


def test_the_gradient_of_a_median_goes_to_the_middle() -> None:
    x = Tensor([[4.0, 1.0], [2.0, 3.0]], requires_grad=True)
    (x.median() * 5.0).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 0.0], [5.0, 0.0]]


def test_topk_and_median() -> None:
    x = np.random.default_rng(1).permutation(20).reshape(4, 5)
    values, places = Tensor(x).topk(2, 1)
    np.testing.assert_array_equal(values.numpy(), -np.sort(-x, 1)[:, :2])
    np.testing.assert_array_equal(places.numpy(), np.argsort(-x, 1)[:, :2])
    assert Tensor(x).topk(1, 0, largest=False)[0].tolist() == [x.min(0).tolist()]
    assert Tensor([3.0, 1.0, 2.0, 5.0]).median().item() == 2.0
    assert np.isnan(Tensor([3.0, nan, 2.0]).median().item())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint8, bool])
def test_the_first_of_an_order_is_that_of_all(dtype: type[Any]) -> None:
    x = np.random.default_rng(3).integers(0, 2 if dtype is bool else 4, (6, 9)).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        x[1, [2, 5]], x[2], x[3, ::2] = np.nan, np.nan, -0.0
    for largest in (True, False):
        all_of_them = Tensor(x).topk(9, 1, largest)
        values, places = Tensor(x).topk(1, 1, largest)
        np.testing.assert_array_equal(places.numpy(), all_of_them.indices.numpy()[:, :1])
        np.testing.assert_array_equal(values.numpy(), all_of_them.values.numpy()[:, :1])


def test_gradients_follow_the_elements() -> None:
    x = Tensor([3.0, 1.0, 2.0])
    (x.sort()[0] * Tensor([1.0, 10.0, 100.0]).detach()).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [100.0, 1.0, 10.0]


def test_random_permutation() -> None:
    Tensor.manual_seed(2)
    drawn = Tensor.randperm(50).tolist()
    assert sorted(drawn) == list(range(50))
    assert drawn != sorted(drawn)


def test_case_45_work_grows_slowly() -> None:
    """As n log(n)**2: twice the elements are less than three times the work, not four times."""

    def size_bytes(count: int) -> int:
        x = Tensor(np.arange(count, 0, -1, np.int32)).realize()
        y = x.sort()[0]
        calls = compile_linear(y.schedule_linear()).src
        np.testing.assert_array_equal(y.numpy(), np.arange(1, count + 1))
        return sum(call.src[0].arg.bytes for call in calls if call.src[0].op is Ops.PROGRAM)

    few = size_bytes(128)
    assert 0 < size_bytes(256) < 2.7 * few


INTEGERS = tuple(dtype for dtype in EVERY if not dtype.is_float)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("is_descending", [False, True])
def test_integers_are_sorted_without_their_places(
    dtype: DType, axis: int, *, is_descending: bool
) -> None:
    ends = [0, 1] if dtype is dtypes.bool else [int(dtype.min), int(dtype.max), 0, 1]
    drawn = np.random.default_rng(0).choice(np.array(ends, dtype=object), (5, 9))
    x = drawn.astype(dtype.name)
    found = Tensor(x).sort(axis, is_descending)
    want = np.flip(np.sort(x, axis), axis) if is_descending else np.sort(x, axis)
    assert found.values.dtype is dtype
    np.testing.assert_array_equal(found.values.numpy(), want)
    np.testing.assert_array_equal(found[0].numpy(), want)
    assert not any(n.op is Ops.GATHER for n in found.values.uop.toposort())


def test_floats_are_fetched_from_their_places() -> None:
    """So that zeros of both signs, which are equal, stay in their order, and gradients flow."""
    found = Tensor([0.0, -0.0, -1.0, 0.0, -0.0]).sort()
    np.testing.assert_array_equal(
        np.signbit(found.values.numpy()), [True, False, True, False, True]
    )
    assert found.values is found[0]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1)])
def test_few_integers_are_in_order(shape: tuple[int, ...]) -> None:
    assert Tensor(np.zeros(shape, np.int64)).sort().values.shape == shape


def test_long_rows_are_sorted_in_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of a million are about rows of 64 KB; few steps are left that go through memory."""
    machine = dataclasses.replace(host_target(), l2_bytes=512 << 10, cores=2)
    monkeypatch.setenv("PELLUCID_TARGET", machine.key.partition(";")[0])
    x = Tensor.zeros(1 << 20, dtype=dtypes.int64).contiguous().realize()
    assert len(x.sort().values.schedule_linear().src) < 32
