"""What users read when they make a mistake: in the call that is wrong, with the exact text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pellucid import Tensor, dtypes
from pellucid.core.errors import (
    AllocationError,
    AxisError,
    DeviceError,
    DTypeError,
    IndexOutOfRangeError,
    PellucidError,
    RaggedListError,
    ShapeError,
)


def text_of(error: type[PellucidError], call: Callable[[], Any]) -> str:
    """The message of the error that *call* raises, without the line that says where."""
    with pytest.raises(error) as caught:
        call()
    lines = str(caught.value).split("\n")
    assert lines[-1].split()[0] == "at", "the message names the user's line"
    assert "test_errors.py" in lines[-1]
    return "\n".join(lines[:-1])


def a(*shape: int) -> Tensor:
    return Tensor.ones(*shape)


TEXTS: list[tuple[type[PellucidError], Callable[[], Any], str]] = [
    (
        ShapeError,
        lambda: a(64, 128) @ a(64, 10),
        "matmul joins the last axis of left with the second-to-last axis of right\n"
        "    left   (64, 128)   128\n"
        "    right  (64, 10)     64\n"
        "    help:  transpose left, or check which tensor is the weight",
    ),
    (
        ShapeError,
        lambda: a(2, 3) + a(4),
        "add needs shapes that broadcast: sizes equal or 1, from the last axis on\n"
        "    left   (2, 3)\n"
        "    right  (4,)\n"
        "    help:  reshape or expand one of them",
    ),
    (
        ShapeError,
        lambda: a(2, 3).reshape(4, -1),
        "reshape keeps the number of elements\n"
        "    from   (2, 3)    6\n"
        "    to     (4, -1)   ?\n"
        "    help:  at most one size may be -1, and the others must divide the number of elements",
    ),
    (
        AxisError,
        lambda: a(2, 3).sum(2),
        "sum has no axis 2 to work on\n"
        "    expected  an axis from -2 to 1, as the tensor has 2\n"
        "    came      2",
    ),
    (AxisError, lambda: a(2, 3).sum((0, 0)), "sum names an axis twice\n    came  (0, 0)"),
    (
        RaggedListError,
        lambda: Tensor([[1, 2], [3]]),
        "nested lists need the same length at the same depth\n"
        "    at        [1]\n"
        "    expected  a list of 2\n"
        "    came      a list of 1\n"
        "    help:     pad the shorter lists, or make one tensor for each",
    ),
    (
        DTypeError,
        lambda: Tensor([300], dtype=dtypes.uint8),
        "a number does not fit uint8\n"
        "    expected  0 to 255\n"
        "    came      300\n"
        "    help:     choose a wider dtype, or cast a tensor to let it wrap",
    ),
    (
        DTypeError,
        lambda: Tensor([1.0]) & 1,
        "bitwise_and works on integers and bools\n"
        "    came   float32\n"
        "    help:  bitcast to an integer type first",
    ),
    (
        DTypeError,
        lambda: Tensor([1], dtype=dtypes.int8) + 1000,
        "add: the number 1000 does not fit int8\n"
        "    expected  -128 to 127\n"
        "    help:     cast the tensor to a wider type first, as in .cast('int64')",
    ),
    (
        DTypeError,
        lambda: Tensor([2]) ** -1,
        "an integer tensor cannot be raised to a negative integer power\n"
        "    came   -1\n"
        "    help:  cast it to float first, as in x.float() ** -1",
    ),
    (
        DTypeError,
        lambda: Tensor(["a"]),
        "a tensor is made of numbers\n    came  str 'a'",
    ),
    (
        DTypeError,
        lambda: Tensor(np.array([1j])),
        "a tensor cannot be made of numpy's complex128\n"
        "    expected  bool, integers up to 64 bits or floats up to 64 bits\n"
        "    help:     convert it first, as in array.astype(np.float32)",
    ),
    (
        IndexOutOfRangeError,
        lambda: a(3)[3],
        "index 3 is outside of axis 0, which has size 3\n    expected  -3 to 2\n    came      3",
    ),
    (
        IndexOutOfRangeError,
        lambda: a(3)[0, 0],
        "there are more indices than axes\n    shape    (3,)\n    indices  2",
    ),
    (
        ShapeError,
        lambda: a(0).max(),
        "max of nothing has no value\n"
        "    shape  (0,)\n"
        "    axes   (0,)\n"
        "    help:  max needs at least one element along the axes it reduces",
    ),
    (
        ShapeError,
        lambda: a(1, 3, 8, 8).conv2d(a(4, 2, 3, 3)),
        "a convolution takes (batch, in, …) and a weight (out, in / groups, …)\n"
        "    tensor  (1, 3, 8, 8)\n"
        "    weight  (4, 2, 3, 3)\n"
        "    groups  1\n"
        "    help:   check the order of the axes, and that groups divides both channels",
    ),
    (
        ShapeError,
        lambda: a(3).expand(2, 3).assign(1),
        "an expanded tensor cannot be written to: its elements share places in memory\n"
        "    help:  write to the tensor before expand(), or to .contiguous() of it",
    ),
    (
        ShapeError,
        lambda: a(3).assign(a(4)),
        "the value does not fit the place it is written to\n    place  (3,)\n    value  (4,)",
    ),
    (
        DTypeError,
        lambda: Tensor([1]).__iadd__(0.5),
        "+= in place would make floats of a tensor of int64\n"
        "    help:  write x = x … instead, which makes a new tensor",
    ),
    (
        ShapeError,
        lambda: a(3).item(),
        "item() reads the only element of a tensor\n"
        "    came   shape (3,), 3 elements\n"
        "    help:  index first, or use tolist()",
    ),
    (
        ShapeError,
        lambda: bool(a(2)),
        "the truth of a tensor with several elements is not defined\n"
        "    came   (2,)\n"
        "    help:  use any() or all()",
    ),
    (
        DTypeError,
        lambda: Tensor([1], dtype="float31"),
        "Tensor: there is no such type\n"
        "    expected  one of bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
        "float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64\n"
        "    came      'float31'",
    ),
    (
        DTypeError,
        lambda: a(2) + "1",  # type: ignore[operator]
        "add works on tensors and numbers\n"
        "    came   str\n"
        "    help:  make it a tensor first, as in Tensor(...)",
    ),
    (
        ShapeError,
        lambda: Tensor.cat([a(2, 3), a(2, 4)]),
        "cat along axis 0 needs tensors that are alike in all other axes\n"
        "    first    (2, 3)\n"
        "    another  (2, 4)\n"
        "    help:    stack() joins scalars and adds a new axis",
    ),
]


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_text_of_a_mistake(number: int) -> None:
    error, call, expected = TEXTS[number]
    assert text_of(error, call) == expected


def test_bad_index_in_a_tensor_is_found_when_realized() -> None:
    x = Tensor.arange(4)[Tensor([0, 1, 9])]
    assert text_of(IndexOutOfRangeError, x.realize) == (
        "index: an index is outside of axis 0, which has size 4\n"
        "    first bad index  element 2 of the index tensor\n"
        "    expected         -4 to 3"
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
