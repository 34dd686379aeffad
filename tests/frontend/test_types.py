"""Types: promotion, weak Python numbers, defaults, names, and ways to copy a tensor."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from pellucid import Context, Tensor, dtypes, nn, where
from pellucid.core.dtype import DType
from pellucid.core.errors import DTypeError


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (dtypes.uint8, dtypes.int8, dtypes.int16),
        (dtypes.bool, dtypes.uint8, dtypes.uint8),
        (dtypes.int64, dtypes.float16, dtypes.float16),
        (dtypes.uint64, dtypes.int8, dtypes.float32),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.int32, dtypes.float64, dtypes.float64),
    ],
)
def test_promotion(left: DType, right: DType, expected: DType) -> None:
    a, b = Tensor([1], dtype=left), Tensor([1], dtype=right)
    for result in (a + b, b + a, a * b, a.maximum(b), where(a == b, a, b), Tensor.cat([a, b])):
        assert result.dtype is expected
        assert set(result.tolist()) <= {1, 2}


def test_python_numbers_are_weak() -> None:
    assert (Tensor([1], dtype=dtypes.int8) + 1).dtype is dtypes.int8
    assert (Tensor([1], dtype=dtypes.int8) + 1.5).dtype is dtypes.float32
    assert (Tensor([1.0], dtype=dtypes.float16) * 2.5).dtype is dtypes.float16
    assert (Tensor([True]) + 1).dtype is dtypes.int64
    assert (Tensor([True]) + True).dtype is dtypes.bool
    assert (Tensor([1]) / 2).dtype is dtypes.float32
    assert (Tensor([1]) / Tensor([2])).dtype is dtypes.float32
    assert (Tensor([1.0]) + np.float64(1)).dtype is dtypes.float32
    assert (1 - Tensor([1], dtype=dtypes.uint8)).dtype is dtypes.uint8
    assert (Tensor([200], dtype=dtypes.uint8) > -1).tolist() == [True]
    assert (Tensor([200], dtype=dtypes.uint8) < 1000).tolist() == [True]
    assert (Tensor([200], dtype=dtypes.uint8) == 456).tolist() == [False]


def test_defaults_are_options() -> None:
    with Context(default_float="float64", default_int="int32"):
        assert Tensor([1.0]).dtype is dtypes.float64
        assert Tensor([1]).dtype is dtypes.int32
        assert Tensor.zeros(2).dtype is dtypes.float64
        assert (Tensor([1]) / 2).dtype is dtypes.float64
        assert Tensor.arange(3).dtype is dtypes.int32
        with pytest.raises(DTypeError, match="does not fit int32"):
            Tensor([2**40])
    assert Tensor([1.0]).dtype is dtypes.float32


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("float16", dtypes.float16),
        (np.int8, dtypes.int8),
        (bool, dtypes.bool),
        (float, dtypes.float32),
    ],
)
def test_names_of_types(name: Any, expected: DType) -> None:
    assert Tensor([1]).cast(name).dtype is expected
    assert Tensor([1]).to(name).dtype is expected


def test_bitcast_is_a_window() -> None:
    x = Tensor([1.0, 2.0])
    bits = x.bitcast(dtypes.int32)
    assert bits.tolist() == [0x3F800000, 0x40000000]
    bits[0] = 0x40400000
    assert x.tolist() == [3.0, 2.0]
    with pytest.raises(DTypeError, match="equal width"):
        x.bitcast(dtypes.int64)


def test_copies_of_tensors() -> None:
    layer = nn.Linear(2, 2)
    other = copy.deepcopy(layer)
    other.weight.assign(0)
    assert layer.weight.numpy().any()
    assert other.weight.is_leaf
    for dtype in (dtypes.bfloat16, dtypes.int8, dtypes.bool, dtypes.float64):
        x = Tensor([1, 0, 1], dtype=dtype)
        again = pickle.loads(pickle.dumps(x))
        assert again.dtype is dtype
        assert again.tolist() == x.tolist()


def test_windows_through_all_kinds_of_steps() -> None:
    n, x = np.arange(24), Tensor.arange(24)
    pairs = [
        (x.reshape(2, 3, 4)[1, ::2, ::-1], n.reshape(2, 3, 4)[1, ::2, ::-1]),
        (x.reshape(4, 6).T[1::2][:, 1:], n.reshape(4, 6).T[1::2][:, 1:]),
        (x[5::7], n[5::7]),
        (x.reshape(4, 6).diagonal(1), n[1::7]),
    ]
    for i, (window, view) in enumerate(pairs):
        window[...] = -i - 1
        view[...] = -i - 1
        np.testing.assert_array_equal(x.numpy(), n)
        np.testing.assert_array_equal(window.numpy(), view)
