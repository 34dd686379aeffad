"""The whole kind of each case in test_cases.py: other sizes, types and axes, on both renderers.

Each test collects many small tensors, computes them as one schedule and compares them with numpy. A
tensor is made twice: from data, and from literals that constant folding sees.

Cases that wait for the tensor library: 34 with LAMB and Muon (no such optimisers yet), 38 with a
bound symbol (sizes are numbers; tests/engine/test_jit.py has the jit of many sizes), and complex
numbers of case 23 (refused with a clear error).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pellucid import Context, Tensor, dtypes, jit, nn
from pellucid.core.dtype import DType

SIZES = (0, 1, 2, 3, 7, 8, 9, 31, 33)
INTEGERS = (
    dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64,
    dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64,
)  # fmt: skip
nan, inf = float("nan"), float("inf")


@pytest.fixture(params=["CPU:LLVM", "CPU:C"])
def sizes(request: pytest.FixtureRequest) -> Iterator[tuple[int, ...]]:
    """The sizes that are tried on a renderer; fewer where the compiler takes its time."""
    with Context(device=request.param):
        yield SIZES if request.param == "CPU:LLVM" else (0, 1, 3, 8, 33)


class Claims:
    """Tensors and what they should be, computed together at the end."""

    def __init__(self) -> None:
        self.all: list[tuple[Tensor, Any, str]] = []

    def add(self, tensor: Tensor, expected: Any, *what: object) -> None:
        """Claim that a tensor will have the elements of *expected*, NaN and signs of 0 included."""
        self.all.append((tensor, np.asarray(expected), " ".join(map(str, what))))

    def check(self) -> None:
        """Compute all, and compare."""
        assert self.all
        first, *others = [tensor for tensor, _, _ in self.all]
        first.realize(*others)
        for tensor, expected, what in self.all:
            got = tensor.numpy()
            assert got.shape == expected.shape, what
            np.testing.assert_array_equal(got, expected, err_msg=what)
            if got.dtype.kind == "f":
                kept = ~np.isnan(got)
                signs = np.signbit(got)[kept], np.signbit(expected)[kept]
                np.testing.assert_array_equal(*signs, err_msg=f"{what}: signs")


@pytest.fixture
def claims() -> Iterator[Claims]:
    """Claims that are checked when the test ends."""
    made = Claims()
    yield made
    made.check()


def numbers(dtype: DType) -> list[int]:
    """The integers of a type where something may go wrong."""
    low, high = int(dtype.min), int(dtype.max)
    near = [low, low + 1, low // 2, high // 2 + 1, high - 1, high, -7, -6, -3, -1, 0, 1, 2, 3, 6, 7]
    return [n for n in dict.fromkeys(near) if low <= n <= high]


def wrapped(value: int, dtype: DType) -> int:
    """An integer as it is kept in a type."""
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if not dtype.is_unsigned and low >> (dtype.bits - 1) else low


def test_every_case_has_a_test() -> None:
    """The numbered cases are in test_cases.py, those of the jit in tests/engine/test_jit.py."""
    tests = Path(__file__).parents[1]
    text = (tests / "frontend/test_cases.py").read_text(encoding="utf-8")
    text += (tests / "engine/test_jit.py").read_text(encoding="utf-8")
    found = {
        int(number) for number in re.findall(r"^def test_(?:case_)?(\d\d)_", text, re.MULTILINE)
    }
    assert found == set(range(1, 46))


# ---- padding, views, indexing -------------------------------------------------------------------


def test_cases_1_to_5_padding(sizes: tuple[int, ...], claims: Claims) -> None:
    for n, (before, after) in itertools.product(sizes, [(0, 1), (1, 2), (4, 0), (3, 5)]):
        values = np.arange(1, n + 1)
        for x in (Tensor(values), Tensor.arange(1, n + 1)):
            for fill in (0, -3):
                wide = np.pad(values, (before, after), constant_values=fill)
                padded = x.pad((before, after), value=fill)
                claims.add(padded, wide, "pad", n, before, after, fill)
                claims.add(padded.flip(0).sum(), wide.sum(), "flip sum", n, before, after, fill)
                claims.add(padded.max(), wide.max(), "max", n, before, after, fill)
                claims.add((padded * 2).min(), wide.min() * 2, "min", n, before, after, fill)
                claims.add(padded[1:-1], wide[1:-1], "cut", n, before, after, fill)
        claims.add(Tensor.zeros(n).exp().sum(), np.float32(n), "sum of exp", n)
        claims.add(Tensor.full((n % 30,), 2).prod(), 2 ** (n % 30), "prod", n)


def test_sums_over_flipped_axes(sizes: tuple[int, ...], claims: Claims) -> None:
    """GCC's own vectoriser loses elements where copies of a loop read backwards."""
    for n, kind in itertools.product((4, 8, 16, 32, 33, 64), ("int64", "int32", "float64")):
        values = (np.arange(n) + 100).astype(kind)
        total = np.array(values.sum(), "int64" if kind != "float64" else kind)
        claims.add(Tensor(values).flip(0).sum(), total, n, kind)
        claims.add(Tensor(values)[::-1].max(), values.max(), n, kind)


def test_case_8_slices(sizes: tuple[int, ...], claims: Claims) -> None:
    steps = (-7, -3, -2, -1, 1, 2, 3)
    for n, step, start, stop in itertools.product(sizes, steps, (None, 0, 2, -1), (None, 5, -2)):
        values = np.arange(n, dtype=np.float32)
        claims.add(Tensor(values)[start:stop:step], values[start:stop:step], n, start, stop, step)


def test_case_9_masks_and_indices(sizes: tuple[int, ...], claims: Claims) -> None:
    for n in (n for n in sizes if n):
        values = np.arange(n) * 3 - n
        x = Tensor(values)
        claims.add(x[x > 0], values[values > 0], "mask", n)
        places = np.array([0, n - 1, -1, -n, n // 2])
        claims.add(x[Tensor(places)], values[places], "index", n)
        claims.add(x.gather(0, Tensor(places)), values[places], "gather", n)
        y, changed = Tensor(values), values.copy()
        y[y > 0] = 99
        changed[changed > 0] = 99
        y[Tensor(places)] = Tensor(np.arange(5))
        changed[places] = np.arange(5)
        claims.add(y, changed, "writes", n)


# ---- types and numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_cases_6_10_11_quotients(dtype: DType, sizes: tuple[int, ...], claims: Claims) -> None:
    def quotient(a: int, b: int) -> int:
        return wrapped(a // b, dtype) if b else 0

    def remainder(a: int, b: int) -> int:
        return wrapped(a % b, dtype) if b else 0

    values = numbers(dtype)
    x, column = Tensor(values, dtype=dtype), Tensor(values, dtype=dtype).reshape(-1, 1)
    kind = np.dtype(dtype.name)
    table = [[quotient(a, b) for b in values] for a in values]
    claims.add(column // x, np.array(table, kind), "tensor // tensor")
    table = [[remainder(a, b) for b in values] for a in values]
    claims.add(column % x, np.array(table, kind), "tensor % tensor")
    for b in values:
        claims.add(x // b, np.array([quotient(a, b) for a in values], kind), "// ", b)
        claims.add(x % b, np.array([remainder(a, b) for a in values], kind), "% ", b)
        folded = Tensor.full((3,), b, dtype=dtype)
        claims.add(folded // b, np.array([quotient(b, b)] * 3, kind), "folded //", b)
        claims.add(folded % 3, np.array([remainder(b, 3)] * 3, kind), "folded %", b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_cases_14_15_22_wrapping(dtype: DType, sizes: tuple[int, ...], claims: Claims) -> None:
    values = numbers(dtype)
    kind = np.dtype(dtype.name)

    def array(function: Any, result: Any = kind) -> Any:
        return np.array([function(v) for v in values], result)

    def w(value: int) -> int:
        return wrapped(value, dtype)

    top = int(dtype.max)
    many = [Tensor.full((1,), v, dtype=dtype) for v in values]
    for x in (Tensor(values, dtype=dtype), Tensor.cat(many)):
        claims.add(x + 1 > x, array(lambda v: w(v + 1) > v, bool), "x + 1 > x")
        claims.add((x * 2) // 2, array(lambda v: w(v * 2) // 2), "(x * 2) // 2")
        claims.add((x + top) - top, array(lambda v: v), "(x + top) - top")
        claims.add((-x).cast(dtypes.int64), array(lambda v: wrapped(w(-v), dtypes.int64), "i8"))
        claims.add(
            (x + x).cast(dtypes.int32), array(lambda v: wrapped(w(v + v), dtypes.int32), "i4")
        )
        claims.add(x * x, array(lambda v: w(v * v)), "x * x")
        claims.add(x.abs(), array(lambda v: w(abs(v))), "abs")
        claims.add((x ^ -1 if not dtype.is_unsigned else x ^ top), array(lambda v: w(~v)), "not")
        claims.add(x >> 1, array(lambda v: v >> 1), "x >> 1")
        claims.add(x << dtype.bits, array(lambda v: 0), "shifted out")
        claims.add(x.cast(dtypes.int8), array(lambda v: wrapped(v, dtypes.int8), "i1"), "narrow")


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_case_21_integer_powers(dtype: DType, sizes: tuple[int, ...], claims: Claims) -> None:
    values = numbers(dtype)
    kind = np.dtype(dtype.name)
    for exponent in (0, 1, 2, 3, 5, 20):
        expected = np.array([wrapped(v**exponent, dtype) for v in values], kind)
        x = Tensor(values, dtype=dtype)
        claims.add(x**exponent, expected, "power", exponent)
        claims.add(x ** Tensor.full((1,), exponent, dtype=dtype), expected, "tensor", exponent)


def test_case_12_nan(sizes: tuple[int, ...], claims: Claims) -> None:
    for n, kind in itertools.product((n for n in sizes if n), ("float32", "float64", "float16")):
        for place in {0, n // 2, n - 1}:
            values = np.linspace(-2, 2, n).astype(kind)
            values[place] = nan
            x = Tensor(values)
            claims.add(x.max(), np.array(nan, kind), "max", n, place)
            claims.add(x.min(), np.array(nan, kind), "min", n, place)
            claims.add(x.argmax(), place, "argmax", n, place)
            claims.add(x.argmin(), place, "argmin", n, place)
            claims.add(x.relu(), np.where(values <= 0, 0, values).astype(kind), "relu", n)
            claims.add(x.maximum(0.5), np.maximum(values, np.array(0.5, kind)), "maximum", n)
            claims.add(x.clamp(-1, 1), np.clip(values, -1, 1).astype(kind), "clamp", n)
            if n < 8 and kind == "float32":
                claims.add(x.sort().values, np.sort(values), "sort", n, place)


def test_case_13_special_values(sizes: tuple[int, ...], claims: Claims) -> None:
    special = np.array([inf, -inf, nan, 0.0, -0.0, 1.0, -1.0, 1e-45], np.float32)
    for n in sizes:
        values = np.resize(special, n)
        computed, stored = Tensor(values), Tensor(values) * 1.0
        stored.realize()
        with np.errstate(all="ignore"):
            for x in (computed, stored):
                claims.add(x * 0, values * np.float32(0), "x * 0", n)
                claims.add(x / x, values / values, "x / x", n)
                claims.add(x - x, values - values, "x - x", n)
                claims.add(x + 0.0, values + np.float32(0), "x + 0.0", n)
                claims.add(0.0 - x, np.float32(0) - values, "0.0 - x", n)
                claims.add(1 / (x + -0.0), np.float32(1) / values, "1 / (x + -0.0)", n)
                claims.add(x.neg().neg(), values, "-(-x)", n)
                claims.add(x / 4, values / np.float32(4), "x / 4", n)


def test_case_16_floats_to_integers(sizes: tuple[int, ...], claims: Claims) -> None:
    values = [nan, inf, -inf, 0.0, -0.5, 0.99, 3.9, -3.9, 255.5, 256.0, -266.0, 3e9, -3e9, 1e20]

    def kept(value: float, dtype: DType) -> int:
        if value != value:
            return 0
        low, high = int(dtype.min), int(dtype.max)
        return low if value <= low else high if value >= high else int(value)

    for dtype in INTEGERS:
        exact = [float(np.float32(v)) for v in values]
        expected = np.array([kept(v, dtype) for v in exact], dtype.name)
        claims.add(Tensor(values).cast(dtype), expected, "computed", dtype)
        folded = [Tensor.full((1,), v, dtype=dtypes.float32).cast(dtype) for v in values]
        claims.add(Tensor.cat(folded), expected, "folded", dtype)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_case_17_each_step_rounds(dtype: DType, sizes: tuple[int, ...], claims: Claims) -> None:
    kind = np.dtype(np.float16 if dtype is dtypes.float16 else ml_dtypes.bfloat16)
    rng = np.random.default_rng(17)
    for n in sizes:
        values = rng.uniform(-6e4, 6e4, n).astype(np.float32).astype(kind)
        x = Tensor(values.astype(np.float32)).cast(dtype)

        def k(number: float) -> Any:
            return kind.type(number)

        with np.errstate(all="ignore"):
            results = [
                ((x * 2) / 2, (values * k(2)) / k(2)),
                ((x + 1) + 1, (values + k(1)) + k(1)),
                (x * x - x, values * values - values),
                ((x / 3) * 3, (values / k(3)) * k(3)),
            ]
        for got, expected in results:
            claims.add(got.cast(dtypes.float32), expected.astype(np.float32), "rounds", n)


def test_case_20_zeros(sizes: tuple[int, ...], claims: Claims) -> None:
    for n in sizes:
        low, high = np.full(n, -0.0, np.float32), np.zeros(n, np.float32)
        claims.add(Tensor(low).minimum(Tensor(high)), low, "minimum", n)
        claims.add(Tensor(high).minimum(Tensor(low)), low, "minimum turned", n)
        claims.add(Tensor(low).maximum(Tensor(high)), high, "maximum", n)
        claims.add(Tensor(high).maximum(-0.0), high, "maximum of a number", n)
        halves = np.arange(n, dtype=np.float32) - n / 2 + 0.5
        claims.add(Tensor(halves).round(), np.round(halves), "round", n)


def test_case_25_26_windows(sizes: tuple[int, ...], claims: Claims) -> None:
    rng = np.random.default_rng(26)
    for _ in range(len(sizes) * 3):
        size, kernel, stride, padding, dilation = rng.integers(1, [9, 4, 4, 3, 3])
        groups = int(rng.integers(1, 3))
        if size + 2 * padding < dilation * (kernel - 1) + 1:
            continue
        x = rng.integers(-9, 9, (2, 2 * groups, size, size + 1))
        w = rng.integers(-9, 9, (2 * groups, 2, kernel, kernel))
        numbers = map(int, (stride, padding, dilation))
        options = dict(zip(("stride", "padding", "dilation"), numbers, strict=True))
        got = Tensor(x).conv2d(Tensor(w), groups=groups, **options)
        claims.add(got, convolved(x, w, groups, **options), "conv", x.shape, w.shape, options)
        if padding <= kernel // 2:
            pooled = Tensor(x).max_pool2d(int(kernel), int(stride), int(padding), int(dilation))
            low = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2, constant_values=-99)
            expected = windows(low, kernel, stride, dilation).max((-1, -2))
            claims.add(pooled, expected, "pool", x.shape, kernel, options)


def windows(x: Any, kernel: int, stride: int, dilation: int) -> Any:
    """All windows of the last two axes, as two more axes."""
    reach = dilation * (kernel - 1) + 1
    view = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), (-2, -1))
    return view[..., ::stride, ::stride, ::dilation, ::dilation]


def convolved(x: Any, w: Any, groups: int, stride: int, padding: int, dilation: int) -> Any:
    """A convolution by its definition."""
    wide = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2)
    parts = zip(np.split(wide, groups, 1), np.split(w, groups, 0), strict=True)
    seen = [
        np.einsum("bcijkl,ockl->boij", windows(part, w.shape[-1], stride, dilation), weight)
        for part, weight in parts
    ]
    return np.concatenate(seen, 1)


def test_case_28_reductions_of_nothing(sizes: tuple[int, ...], claims: Claims) -> None:
    for shape, axis in itertools.product([(0,), (0, 3), (3, 0), (2, 0, 3)], (None, 0, -1)):
        x, values = Tensor.zeros(shape), np.zeros(shape, np.float32)
        claims.add(x.sum(axis), values.sum(axis), "sum", shape, axis)
        claims.add(x.prod(axis), values.prod(axis), "prod", shape, axis)
        claims.add(x.all(axis), values.all(axis), "all", shape, axis)
        claims.add(x.any(axis), values.any(axis), "any", shape, axis)
    claims.add(Tensor.zeros(2, 0) @ Tensor.zeros(0, 3), np.zeros((2, 3), np.float32), "matmul")


# ---- reads and writes ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_realized", [False, True])
def test_cases_29_to_32_writes(is_realized: bool, sizes: tuple[int, ...], claims: Claims) -> None:
    for n in (n for n in sizes if n > 1):
        for step in {1, 2, n - 1}:
            values = np.arange(n, dtype=np.float32)
            a = Tensor(values) if is_realized else Tensor.arange(float(n))
            if is_realized:
                a.realize()
            seen, window = a * 10, a[step:]
            a[step:] = a[:-step] + 1
            shifted = values.copy()
            shifted[step:] = values[:-step] + 1
            after = a + seen
            a[::2] = -1
            final = shifted.copy()
            final[::2] = -1
            claims.add(after, shifted + values * 10, "between", n, step)
            claims.add(a, final, "a", n, step)
            claims.add(window, final[step:], "window", n, step)
            claims.add(seen, values * 10, "before", n, step)


def test_case_34_parameters_and_other_draws() -> None:
    results = []
    for between in (False, True):
        Tensor.manual_seed(3)
        model = nn.Linear(3, 2)
        other = Tensor.rand(4)
        if between:
            other.realize()
        optimizer = nn.optim.Adam(model.parameters(), lr=0.1)
        model(Tensor.ones(1, 3)).sum().backward()
        optimizer.step()
        results.append((model.weight.tolist(), other.tolist()))
    assert results[0] == results[1]


# ---- jit, and sizes in time ---------------------------------------------------------------------


@pytest.mark.parametrize("is_kept", [False, True])
def test_cases_36_37_calls_of_a_jit(is_kept: bool, sizes: tuple[int, ...]) -> None:
    @jit
    def f(x: Tensor, scale: float) -> Tensor:
        return (x * scale).pad((1, 0)).cumsum(0)

    kept, expected = [], []
    for call, n in enumerate([n for n in sizes for _ in range(4)]):
        scale = float(n % 2 + 1)
        values = np.arange(n, dtype=np.float32) + call
        result = f(Tensor(values), scale)
        expected.append(np.cumsum(np.pad(values * scale, (1, 0))).tolist())
        kept.append(result if is_kept else result.tolist())
    assert [r.tolist() if isinstance(r, Tensor) else r for r in kept] == expected


@pytest.mark.parametrize("n", [0, 1, 2, 3, 15, 16, 17, 33, 255, 256, 257])
def test_case_45_order_and_running_sums(n: int, claims: Claims) -> None:
    values = np.random.default_rng(n).integers(-9, 9, n)
    x = Tensor(values)
    claims.add(x.sort().values, np.sort(values), "sort")
    claims.add(x.argsort(), np.argsort(values, kind="stable"), "argsort")
    claims.add(x.cumsum(0), np.cumsum(values), "cumsum")
    if n:
        claims.add(x.topk(min(n, 5)).values, -np.sort(-values)[:5], "topk")
    claims.add(x.reshape(-1, 1).sort(1).values, values.reshape(-1, 1), "along an axis of one")
