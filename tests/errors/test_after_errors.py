"""After an error everything is as before: no value is lost, and none is half written."""

from __future__ import annotations

import pytest

from pellucid import Tensor
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
