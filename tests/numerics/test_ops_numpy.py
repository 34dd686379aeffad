"""Every method against numpy, compiled, over dtypes and awkward shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from pellucid import Tensor, dtypes, where
from pellucid.core.dtype import DType

Array = np.ndarray[Any, Any]
FLOATS = (dtypes.float32, dtypes.float64)
INTEGERS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint32)
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.25,
    1e-3,
    -700.0,
    88.0,
    1e30,
    math.inf,
    -math.inf,
    math.nan,
]


def ulps(got: Array, expected: Array) -> float:
    """The largest distance in units of the last place, NaN equal to NaN."""
    bad = np.isnan(got) != np.isnan(expected)
    assert not bad.any(), f"NaN in other places: {got[bad]} against {expected[bad]}"
    both = np.isfinite(got) & np.isfinite(expected)
    np.testing.assert_array_equal(got[~both], expected[~both].astype(got.dtype))
    unit = np.spacing(np.abs(expected[both]).astype(got.dtype))
    return float(np.max(np.abs(got[both].astype(np.float64) - expected[both]) / unit, initial=0))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Any], float]] = {
    "exp": (Tensor.exp, np.exp, 2),
    "exp2": (Tensor.exp2, np.exp2, 2),
    "log": (Tensor.log, np.log, 2),
    "log2": (Tensor.log2, np.log2, 2),
    "log10": (Tensor.log10, np.log10, 4),
    "log1p": (Tensor.log1p, np.log1p, 4),
    "expm1": (Tensor.expm1, np.expm1, 6),
    "sqrt": (Tensor.sqrt, np.sqrt, 0.5),
    "rsqrt": (Tensor.rsqrt, lambda x: 1 / np.sqrt(x), 2),
    "sin": (Tensor.sin, np.sin, 2),
    "cos": (Tensor.cos, np.cos, 2),
    "tan": (Tensor.tan, np.tan, 6),
    "tanh": (Tensor.tanh, np.tanh, 2),
    "erf": (Tensor.erf, special.erf, 2),
    "sigmoid": (Tensor.sigmoid, special.expit, 4),
    "silu": (Tensor.silu, lambda x: x * special.expit(x), 6),
    "softplus": (Tensor.softplus, lambda x: np.logaddexp(x, 0), 6),
    "abs": (Tensor.abs, np.abs, 0),
    "floor": (Tensor.floor, np.floor, 0),
    "ceil": (Tensor.ceil, np.ceil, 0),
    "trunc": (Tensor.trunc, np.trunc, 0),
    "round": (Tensor.round, np.round, 0),
    "neg": (Tensor.neg, np.negative, 0),
    "square": (Tensor.square, np.square, 0.5),
    "reciprocal": (Tensor.reciprocal, np.reciprocal, 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_floats(name: str) -> None:
    ours, reference, bound = FUNCTIONS[name]
    values = np.concatenate([np.array(SPECIAL), np.random.default_rng(0).normal(0, 8, 51)])
    for dtype in FLOATS:
        x = values.astype(dtype.name)
        with np.errstate(all="ignore"):
            expected = np.asarray(
                reference(
                    x.astype(
                        np.longdouble
                        if name != "erf" and name not in ("sigmoid", "silu")
                        else np.float64
                    )
                )
            )
            got = ours(Tensor(x)).numpy()
            with np.errstate(all="ignore"):
                rounded = expected.astype(dtype.name).astype(np.float64)
        assert got.dtype == x.dtype
        finite = np.isfinite(rounded)
        wide = np.where(finite, expected, rounded).astype(np.float64)
        assert ulps(got, wide) <= bound * (1 if dtype is dtypes.float32 else 2) + 0.01


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "maximum": (lambda a, b: a.maximum(b), np.maximum),
    "minimum": (lambda a, b: a.minimum(b), np.minimum),
    "lt": (lambda a, b: a < b, lambda a, b: a < b),
    "le": (lambda a, b: a <= b, lambda a, b: a <= b),
    "gt": (lambda a, b: a > b, lambda a, b: a > b),
    "ge": (lambda a, b: a >= b, lambda a, b: a >= b),
    "eq": (lambda a, b: a == b, lambda a, b: a == b),
    "ne": (lambda a, b: a != b, lambda a, b: a != b),
    "where": (lambda a, b: where(a > b, a, b), lambda a, b: np.where(a > b, a, b)),
}
WHOLE: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "floordiv": (
        lambda a, b: a // b,
        lambda a, b: np.where(b == 0, 0, a // np.where(b == 0, 1, b)),
    ),
    "mod": (lambda a, b: a % b, lambda a, b: np.where(b == 0, 0, a % np.where(b == 0, 1, b))),
    "fmod": (
        lambda a, b: a.fmod(b),
        lambda a, b: np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))),
    ),
    "and": (lambda a, b: a & b, lambda a, b: a & b),
    "or": (lambda a, b: a | b, lambda a, b: a | b),
    "xor": (lambda a, b: a ^ b, lambda a, b: a ^ b),
}


def random_integers(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers over the whole width, with the ends and small ones among them."""
    rng = np.random.default_rng(seed)
    low, high = int(dtype.min), int(dtype.max)
    x = rng.integers(low, high, shape, dtype=dtype.name, endpoint=True)
    small = rng.integers(0, 7, shape).astype(dtype.name)
    ends = np.where(rng.integers(0, 2, shape) == 0, low, high).astype(dtype.name)
    return np.select(
        [rng.integers(0, 3, shape) == 0, rng.integers(0, 4, shape) == 0], [small, ends], x
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_binary_ops_of_integers(dtype: DType) -> None:
    a, b = random_integers(dtype, (7, 1), 1), random_integers(dtype, (1, 9), 2)
    with np.errstate(all="ignore"):
        for name, (ours, reference) in {**BINARY, **WHOLE}.items():
            got = ours(Tensor(a), Tensor(b)).numpy()
            expected = np.asarray(reference(*np.broadcast_arrays(a, b)))
            np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_ops_of_floats(dtype: DType) -> None:
    x = np.array(SPECIAL, dtype.name)
    a, b = x[:, None], x[None, :]
    with np.errstate(all="ignore"):
        for name, (ours, reference) in BINARY.items():
            got = ours(Tensor(a), Tensor(b)).numpy()
            np.testing.assert_array_equal(got, reference(*np.broadcast_arrays(a, b)), err_msg=name)
        np.testing.assert_array_equal((Tensor(a) / Tensor(b)).numpy(), a / b)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (5, 3), (2, 0, 3), (33, 31)])
def test_reductions(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-5, 6, shape)
    f = x.astype(np.float64) / 4
    for dims in (None, *range(len(shape))):
        for keepdim in (False, True):
            kept = {"axis": dims, "keepdims": keepdim}
            np.testing.assert_array_equal(Tensor(x).sum(dims, keepdim).numpy(), x.sum(**kept))
            np.testing.assert_array_equal(Tensor(f).sum(dims, keepdim).numpy(), f.sum(**kept))
            np.testing.assert_array_equal(Tensor(x).any(dims, keepdim).numpy(), x.any(**kept))
            np.testing.assert_array_equal(Tensor(x).all(dims, keepdim).numpy(), x.all(**kept))
            np.testing.assert_allclose(Tensor(f).prod(dims, keepdim).numpy(), f.prod(**kept))
            size = x.size if dims is None else shape[dims]
            if size:
                np.testing.assert_array_equal(Tensor(x).amax(dims, keepdim).numpy(), x.max(**kept))
                np.testing.assert_array_equal(Tensor(f).amin(dims, keepdim).numpy(), f.min(**kept))
                np.testing.assert_allclose(Tensor(f).mean(dims, keepdim).numpy(), f.mean(**kept))
                np.testing.assert_allclose(
                    Tensor(f).var(dims, 0, keepdim).numpy(), f.var(**kept), atol=1e-12
                )
                np.testing.assert_array_equal(Tensor(x).argmax(dims).numpy(), x.argmax(axis=dims))
                np.testing.assert_array_equal(Tensor(f).argmin(dims).numpy(), f.argmin(axis=dims))


def test_types_of_sums() -> None:
    for dtype, expected in (
        (dtypes.int8, dtypes.int64),
        (dtypes.uint8, dtypes.uint64),
        (dtypes.bool, dtypes.int64),
    ):
        assert Tensor([1], dtype=dtype).sum().dtype is expected
        assert Tensor([1], dtype=dtype).cumsum(0).dtype is expected
        assert Tensor([1], dtype=dtype).sum(dtype=dtypes.int32).dtype is dtypes.int32
        assert Tensor([1], dtype=dtype).mean().dtype is dtypes.float32
    assert Tensor([1], dtype=dtypes.float16).sum().dtype is dtypes.float16


def test_running_results() -> None:
    rng = np.random.default_rng(4)
    for size in (0, 1, 2, 7, 16, 17, 256, 257, 1000):
        x = rng.integers(-3, 4, (2, size))
        np.testing.assert_array_equal(Tensor(x).cumsum(1).numpy(), x.cumsum(1))
        np.testing.assert_array_equal(Tensor(x).cumprod(1).numpy(), x.cumprod(1))
        expected = np.maximum.accumulate(x, 1)
        np.testing.assert_array_equal(Tensor(x).cummax(1).numpy(), expected)
    np.testing.assert_array_equal(Tensor([[1, 2], [3, 4]]).cumsum(0).numpy(), [[1, 2], [4, 6]])
    x = rng.integers(-3, 4, (33, 5))
    np.testing.assert_array_equal(Tensor(x).cumsum(0).numpy(), x.cumsum(0))


def test_a_long_running_sum_is_exact_enough() -> None:
    x = np.full(100_003, 0.1, np.float32)
    expected = np.cumsum(x, dtype=np.float64)
    away = np.abs(Tensor(x).cumsum(0).numpy() - expected) / expected
    assert away.max() < 1e-6


def test_what_is_not_finite_stays_behind_in_running_results() -> None:
    x = np.zeros((2, 40), np.float32)
    x[0, 20], x[1, 20] = np.nan, np.inf
    for running, expected in (
        (Tensor(x).cumsum(1), np.cumsum(x, 1)),
        (Tensor(x).cummax(1), np.maximum.accumulate(x, 1)),
    ):
        np.testing.assert_array_equal(running.numpy(), expected)


def test_movement() -> None:
    n = np.arange(24).reshape(2, 3, 4)
    x = Tensor(n)
    pairs: list[tuple[Tensor, Any]] = [
        (x.permute(2, 0, 1), n.transpose(2, 0, 1)),
        (x.transpose(0, 2), n.swapaxes(0, 2)),
        (x.T, n.T),
        (x.reshape(4, -1), n.reshape(4, 6)),
        (x.unsqueeze(1).squeeze(1), n),
        (x.flatten(1), n.reshape(2, 12)),
        (x.unflatten(2, (2, 2)), n.reshape(2, 3, 2, 2)),
        (x.flip((0, 2)), n[::-1, :, ::-1]),
        (x.roll((1, -1), (0, 2)), np.roll(n, (1, -1), (0, 2))),
        (x.roll(5), np.roll(n, 5)),
        (x.repeat(2, 1, 1, 3), np.tile(n, (2, 1, 1, 3))),
        (x.repeat_interleave(3, 1), n.repeat(3, 1)),
        (x.movedim(0, -1), np.moveaxis(n, 0, -1)),
        (Tensor.stack([x, x + 1], 1), np.stack([n, n + 1], 1)),
        (Tensor.cat([x, x[:, :1]], 1), np.concatenate([n, n[:, :1]], 1)),
        (x.pad((1, 2, 0, 1), mode="reflect"), np.pad(n, ((0, 0), (0, 1), (1, 2)), "reflect")),
        (x.pad((1, 2), mode="replicate"), np.pad(n, ((0, 0), (0, 0), (1, 2)), "edge")),
        (x.pad((1, 2), mode="circular"), np.pad(n, ((0, 0), (0, 0), (1, 2)), "wrap")),
        (x.pad((-1, 2), value=7), np.pad(n[..., 1:], ((0, 0), (0, 0), (0, 2)), constant_values=7)),
        (x.diagonal(1, 1, 2), n.diagonal(1, 1, 2)),
        (x.diagonal(-1, 0, 1), n.diagonal(-1, 0, 1)),
        (x.tril(-1), np.tril(n, -1)),
        (x.triu(1), np.triu(n, 1)),
        (x.unfold(2, 3, 1), np.lib.stride_tricks.sliding_window_view(n, 3, 2)),
        (x[0].one_hot(12), np.eye(12, dtype=int)[n[0]]),
        (x.split(2, 1)[1], n[:, 2:]),
        (x.chunk(3, 2)[1], n[..., 2:]),
    ]
    for i, (got, expected) in enumerate(pairs):
        np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(i))


def test_indexing_like_numpy() -> None:
    n = np.arange(60).reshape(3, 4, 5)
    x = Tensor(n)
    rows, columns = np.array([2, 0, 1]), np.array([[1], [2]])
    indices: list[Any] = [
        rows,
        (slice(None), rows),
        (rows, rows),
        (columns, rows),
        (slice(None), rows, rows),
        (rows, slice(1, 3), rows),
        (Ellipsis, rows),
        (None, rows, Ellipsis, None),
        ([0, 2], slice(None), [1, 4]),
        n > 30,
        (n[:, :, 0] > 20),
        (slice(None), np.array([True, False, True, False])),
        (slice(None, None, 2), rows - 3),
        np.zeros((0,), int),
    ]
    for index in indices:
        items = index if isinstance(index, tuple) else (index,)
        mine = tuple(Tensor(i) if isinstance(i, np.ndarray) else i for i in items)
        np.testing.assert_array_equal(x[mine].numpy(), n[index], err_msg=str(index))
        written, expected = Tensor(n), n.copy()
        written[mine] = -1
        expected[index] = -1
        np.testing.assert_array_equal(written.numpy(), expected, err_msg=str(index))
        if np.size(n[index]) > 1:
            value = np.arange(n[index].size).reshape(n[index].shape)
            written[mine] = Tensor(value)
            expected[index] = value
            np.testing.assert_array_equal(written.numpy(), expected, err_msg=str(index))


def test_duplicates_in_writes() -> None:
    a = Tensor([0, 0, 0])
    a[[1, 1, 2]] = Tensor([5, 6, 7])
    assert a.tolist() == [0, 6, 7]
    a[[1, 1]] += 1
    assert a.tolist() == [0, 7, 7]
    assert a.index_add(0, Tensor([1, 1]), Tensor([1, 1])).tolist() == [0, 9, 7]
    base = Tensor([1.0, 2.0, 3.0])
    index, src = Tensor([0, 0, 2]), Tensor([5.0, 7.0, 1.0])
    for reduce, expected in (
        ("sum", [13, 2, 4]),
        ("prod", [35, 2, 3]),
        ("amax", [7, 2, 3]),
        ("amin", [1, 2, 1]),
    ):
        assert base.scatter_reduce(0, index, src, reduce).tolist() == expected
    assert base.scatter_reduce(0, index, src, "mean", include_self=False).tolist() == [6, 2, 1]
    mean = base.scatter_reduce(0, index, src, "mean").numpy()
    np.testing.assert_allclose(mean, [13 / 3, 2, 2], rtol=1e-6)


def test_products_of_matrices() -> None:
    rng = np.random.default_rng(5)
    shapes = [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((33, 31), (31, 9)),
    ]
    for left, right in shapes:
        a, b = rng.normal(size=left), rng.normal(size=right)
        np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-12, atol=1e-12)
        i, j = rng.integers(-9, 9, left), rng.integers(-9, 9, right)
        np.testing.assert_array_equal((Tensor(i) @ Tensor(j)).numpy(), i @ j)
    x = rng.normal(size=(4, 5))
    got = Tensor.einsum("ij,kj->ik", Tensor(x), Tensor(x)).numpy()
    np.testing.assert_allclose(got, np.einsum("ij,kj->ik", x, x))
    np.testing.assert_allclose(
        Tensor.einsum("ii->i", Tensor(x[:, :4])).numpy(), np.einsum("ii->i", x[:, :4])
    )
    np.testing.assert_allclose(Tensor.einsum("ij->ji", Tensor(x)).numpy(), x.T)


def reference_conv(
    x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int
) -> Array:
    """A convolution by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    out, inner, kh, kw = w.shape
    oh = (x.shape[2] - dilation * (kh - 1) - 1) // stride + 1
    ow = (x.shape[3] - dilation * (kw - 1) - 1) // stride + 1
    result = np.zeros((x.shape[0], out, oh, ow))
    for o in range(out):
        first = o // (out // groups) * inner
        for i, j in np.ndindex(oh, ow):
            rows = slice(i * stride, i * stride + dilation * (kh - 1) + 1, dilation)
            columns = slice(j * stride, j * stride + dilation * (kw - 1) + 1, dilation)
            box = x[:, first : first + inner, rows, columns]
            result[:, o, i, j] = (box * w[o]).sum((1, 2, 3))
    return result


@pytest.mark.parametrize(
    "options", [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (3, 1, 1, 2), (2, 0, 3, 2)]
)
def test_convolution(options: tuple[int, int, int, int]) -> None:
    stride, padding, dilation, groups = options
    rng = np.random.default_rng(6)
    x, w = rng.normal(size=(2, 4, 9, 8)), rng.normal(size=(6, 4 // groups, 3, 2))
    got = Tensor(x).conv2d(Tensor(w), None, stride, padding, dilation, groups).numpy()
    np.testing.assert_allclose(got, reference_conv(x, w, *options), rtol=1e-10, atol=1e-10)


def test_random_numbers_have_their_distribution() -> None:
    Tensor.manual_seed(11)
    uniform, normal = Tensor.rand(20000).numpy(), Tensor.randn(20000).numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.005
    assert abs(normal.mean()) < 0.03
    assert abs(normal.var() - 1) < 0.05
    assert np.isfinite(normal).all()
    dice = Tensor.randint(1, 7, (6000,)).numpy()
    assert set(dice) == {1, 2, 3, 4, 5, 6}
    assert np.bincount(dice)[1:].min() > 800
    assert Tensor.rand(3, dtype=dtypes.float16).dtype is dtypes.float16
    assert Tensor.rand(0).tolist() == []


def test_casts_between_all_types() -> None:
    values = [0, 1, 2, 100, 127]
    every = [dtypes.bool, *INTEGERS, dtypes.float16, dtypes.bfloat16, *FLOATS]
    for source in every:
        for target in every:
            got = Tensor(values, dtype=source).cast(target).tolist()
            expected = [bool(v) for v in values] if dtypes.bool in (source, target) else values
            assert got == [
                float(v) if target.is_float else bool(v) if target.is_bool else int(v)
                for v in expected
            ]
