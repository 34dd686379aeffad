"""After an error everything is as before: no value is lost, and none is half written."""

from __future__ import annotations

import pytest

from pellucid import Context, Tensor, dtypes, jit
from pellucid.core.errors import (
    AllocationError,
    DeviceError,
    IndexOutOfRangeError,
)


@pytest.mark.parametrize("is_realized", [False, True])
def test_a_failed_write_is_as_if_it_had_not_been_made(is_realized: bool) -> None:
    x = Tensor([0.0, 1.0, 2.0, 3.0])
    if is_realized:
        x.realize()
    before = x + 0
    x[1] = 7
    x[Tensor([0, 7])] = 9
    x[2] = 8
    window = x[1:]
    with pytest.raises(IndexOutOfRangeError):
        x.realize()
    assert before.tolist() == [0, 1, 2, 3]
    assert x.tolist() == [0, 7, 8, 3]
    assert window.tolist() == [7, 8, 3]
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2, 2]


def test_what_was_read_at_a_bad_index_has_no_value() -> None:
    x = Tensor.arange(4)
    y = x[Tensor([9])] + 1
    for _ in range(2):
        with pytest.raises(IndexOutOfRangeError):
            y.tolist()
    x[0] = y[0]
    with pytest.raises(IndexOutOfRangeError):
        x.tolist()
    assert x.tolist() == [0, 1, 2, 3]


def test_huge_allocations_are_refused() -> None:
    x = Tensor.ones(1).expand(1 << 50).contiguous()
    with pytest.raises(AllocationError):
        x.realize()
    assert Tensor([1]).tolist() == [1]


def test_devices_that_do_not_exist_or_do_not_match() -> None:
    with pytest.raises(DeviceError, match="there is no device 'gpu'"):
        Tensor([1], device="gpu")
    with pytest.raises(DeviceError, match="needs both tensors on one device"):
        Tensor([1], device="CPU") + Tensor.ones(1, device="NULL")


def test_names_are_shown_without_computing() -> None:
    x = Tensor([1.0]) + 1
    assert repr(x) == "<Tensor (1,) float32 on CPU, lazy>"
    assert not x.is_realized
    assert repr(x.realize()) == "<Tensor (1,) float32 on CPU, in memory>"


def test_printing_shows_values_but_not_those_of_a_capture() -> None:
    seen: list[str] = []

    @jit
    def step(x: Tensor) -> Tensor:
        seen.append(f"{x + 1}")
        return x * 2

    x = Tensor([1.5, float("nan")])
    for _ in range(3):
        step(x)
    assert str(x) == "Tensor([1.5, nan])"
    assert "Tensor([2.5, nan])" in seen
    assert "<Tensor (2,) float32 on CPU, lazy>" in seen
    assert str(Tensor.zeros(2, device="NULL")) == "<Tensor (2,) float32 on NULL, lazy>"
    long = str(Tensor.arange(5000))
    assert len(long) < 100
    assert "..." in long


def test_a_huge_allocation_beside_a_write_undoes_nothing_and_does_nothing_twice() -> None:
    x = Tensor([1.0, 2.0]).realize()
    before = x * 10
    x += 1
    huge = Tensor.ones(1).expand(1 << 50).contiguous()
    for _ in range(2):
        with pytest.raises(AllocationError):
            x.realize(huge)
    assert x.tolist() == [2.0, 3.0]
    assert before.tolist() == [10.0, 20.0]


def test_a_huge_allocation_inside_jit_leaves_state_as_it_was() -> None:
    state = Tensor([1.0]).realize()

    @jit
    def step(x: Tensor, size: int) -> Tensor:
        state.assign(state + 1)
        return x.expand(size).contiguous()

    for _ in range(3):
        step(Tensor([1.0]), 4)
    counted = state.item()
    with pytest.raises(AllocationError):
        step(Tensor([1.0]), 1 << 50).realize()
    assert state.item() in (counted, counted + 1)
    assert step(Tensor([5.0]), 4).tolist() == [5.0] * 4


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
def test_nothing_that_is_divided_ends_the_process(device: str) -> None:
    with Context(device=device):
        for dtype in (dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint64):
            low = Tensor([int(dtype.min), 5, 0, 7] * 9, dtype=dtype)
            zero = Tensor([0] * 36, dtype=dtype)
            assert (low // zero).tolist() == [0] * 36
            assert (low % zero).tolist() == [0] * 36
            assert low.div(zero, rounding_mode="trunc").tolist() == [0] * 36
            assert low.fmod(zero).tolist() == [0] * 36
            if not dtype.is_unsigned:
                minus = Tensor([-1] * 36, dtype=dtype)
                assert (low // minus).tolist() == [int(dtype.min), -5, 0, -7] * 9
                assert (low % minus).tolist() == [0] * 36
        x = Tensor([1.0, -1.0, 0.0])
        assert str((x / 0).tolist()) == "[inf, -inf, nan]"
        assert str((x % 0).tolist()) == "[nan, nan, nan]"
