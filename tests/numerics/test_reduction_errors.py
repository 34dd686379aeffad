"""The error of sums, means and dot products, against the bound that semantics.md states.

    |computed - exact| <= 2 eps log2(n) sum |x|  +  one rounding of the result

The order of accumulation is free, so the inputs are chosen to be hard on any order: one sign, where
errors add up; random signs; large terms that cancel and leave a small one; magnitudes far apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pellucid import Context, Tensor, dtypes
from pellucid.core.dtype import DType

Array = np.ndarray[Any, Any]


def constant(rng: np.random.Generator, shape: Any) -> Array:
    return np.full(shape, 0.1)


def random_signs(rng: np.random.Generator, shape: Any) -> Array:
    return rng.standard_normal(shape)


def one_sign(rng: np.random.Generator, shape: Any) -> Array:
    return rng.uniform(0.0, 1.0, shape)


def cancelling(rng: np.random.Generator, shape: Any) -> Array:
    x = rng.standard_normal(shape) * 1e4
    flat = x.reshape(-1)
    half = flat.size // 2
    flat[half : 2 * half] = -flat[:half]
    return x


def far_apart(rng: np.random.Generator, shape: Any) -> Array:
    return np.exp2(rng.uniform(-12, 12, shape)) * rng.choice([-1.0, 1.0], shape)


KINDS = [constant, random_signs, one_sign, cancelling, far_apart]
LLVM_SIZES = [1, 2, 7, 33, 1000, 4097, 65536 + 3, 2**20, 2**22]
C_SIZES = [7, 4097, 2**20]
PLACES = [("CPU:LLVM", n) for n in LLVM_SIZES] + [("CPU:C", n) for n in C_SIZES]
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half the distance from 1 to the next number: what one rounding may cost."""


def rounded(x: Array, dtype: DType) -> Array:
    """Values as they are in *dtype*, in float64."""
    kind = ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else np.dtype(dtype.name)
    return x.astype(kind).astype(np.float64)


def tensor(x: Array, dtype: DType) -> Tensor:
    """Exact values of *dtype*, given in float64."""
    return Tensor(x).cast(dtype)


def allowed(total: Array, sizes: Array, n: int, dtype: DType) -> Array:
    """How far a reduction of n terms may be from *total*; *sizes* is the sum of their sizes."""
    wide = 2.0**-52 if dtype is dtypes.float64 else 2.0**-23
    return 2 * wide * max(math.log2(max(n, 1)), 1) * sizes + EPSILON[dtype.name] * abs(total)


def check(got: Tensor, exact: Array, sizes: Array, n: int, dtype: DType) -> None:
    """Assert that a result is within the bound."""
    error = np.abs(got.cast(dtypes.float64).numpy() - exact)
    bound = allowed(exact, sizes, n, dtype) + 1e-45
    assert np.all(error <= bound), f"{np.max(error / bound):.3g} times what is allowed"


def exact_sum(x: Array, axis: Any = None) -> Array:
    """The sum in more than float64: the error of a reference must not count."""
    return x.astype(np.longdouble).sum(axis).astype(np.float64)


@pytest.mark.parametrize(("device", "n"), PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_means_of_a_vector(kind: Callable[..., Array], device: str, n: int) -> None:
    rng = np.random.default_rng(n)
    few = n > 70000
    with Context(device=device):
        for dtype in [dtypes.float32] if few else [dtypes.float32, dtypes.float64]:
            x = rounded(kind(rng, n), dtype)
            t = tensor(x, dtype)
            sizes = exact_sum(abs(x))
            check(t.sum(), exact_sum(x), sizes, n, dtype)
            check(t.mean(), exact_sum(x) / n, sizes / n, n, dtype)
            check((t * t).sum(), exact_sum(x * x), exact_sum(x * x), n, dtype)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize(("device", "n"), [("CPU:LLVM", 33), ("CPU:LLVM", 5000), ("CPU:C", 5000)])
@pytest.mark.parametrize("kind", [constant, random_signs, one_sign])
def test_narrow_floats_round_once(
    kind: Callable[..., Array], device: str, n: int, dtype: DType
) -> None:
    rng = np.random.default_rng(n)
    with Context(device=device):
        x = rounded(kind(rng, n), dtype)
        t = tensor(x, dtype)
        assert t.sum().dtype is dtype
        check(t.sum(), exact_sum(x), exact_sum(abs(x)), n, dtype)
        check(t.mean(), exact_sum(x) / n, exact_sum(abs(x)) / n, n, dtype)


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2), None])
@pytest.mark.parametrize("order", ["straight", "transposed", "every second", "flipped", "padded"])
def test_axes_and_orders_in_memory(order: str, axis: Any, device: str) -> None:
    rng = np.random.default_rng(5)
    with Context(device=device):
        for kind in (one_sign, cancelling):
            x = rounded(kind(rng, (24, 37, 50)), dtypes.float32)
            t = tensor(x, dtypes.float32).realize()
            if order == "transposed":
                x, t = x.transpose(2, 0, 1), t.permute(2, 0, 1)
            elif order == "every second":
                x, t = x[::2, :, 1::3], t[::2, :, 1::3]
            elif order == "flipped":
                x, t = x[::-1, :, ::-1], t.flip((0, 2))
            elif order == "padded":
                x, t = np.pad(x, [(0, 0), (1, 2), (3, 0)]), t.pad(((0, 0), (1, 2), (3, 0)))
            exact = exact_sum(x, axis)
            n = x.size // max(exact.size, 1)
            check(t.sum(axis), exact, exact_sum(abs(x), axis), n, dtypes.float32)
            check(t.mean(axis), exact / n, exact_sum(abs(x), axis) / n, n, dtypes.float32)


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
@pytest.mark.parametrize("n", [1, 3, 64, 1000, 4099])
@pytest.mark.parametrize("kind", KINDS)
def test_dot_products_and_matmuls(kind: Callable[..., Array], n: int, device: str) -> None:
    rng = np.random.default_rng(n)
    with Context(device=device):
        a = rounded(kind(rng, (5, n)), dtypes.float32)
        b = rounded(kind(rng, (n, 7)), dtypes.float32)
        s, t = tensor(a, dtypes.float32), tensor(b, dtypes.float32)
        exact = (a.astype(np.longdouble) @ b.astype(np.longdouble)).astype(np.float64)
        check(s @ t, exact, abs(a) @ abs(b), n, dtypes.float32)
        check(s[0].dot(t[:, 0]), exact[0, 0], abs(a[0]) @ abs(b[:, 0]), n, dtypes.float32)


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
@pytest.mark.parametrize("n", [16, 17, 300, 70000])
def test_running_sums(n: int, device: str) -> None:
    rng = np.random.default_rng(n)
    with Context(device=device):
        for kind in (one_sign, random_signs):
            x = rounded(kind(rng, n), dtypes.float32)
            exact = np.cumsum(x.astype(np.longdouble)).astype(np.float64)
            sizes = np.cumsum(abs(x))
            check(tensor(x, dtypes.float32).cumsum(0), exact, sizes, n, dtypes.float32)


def test_a_single_running_total_would_fail() -> None:
    """The bound means something: adding one after the other does not keep it."""
    x = np.full(2**20, 0.1, np.float32)
    total = float(np.cumsum(x, dtype=np.float32)[-1])  # numpy's cumsum has one accumulator
    exact = exact_sum(x.astype(np.float64))
    assert abs(total - exact) > allowed(exact, exact, x.size, dtypes.float32)
