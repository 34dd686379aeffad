"""exp, log, sin … as polynomials: largest errors, special values, and the same bits everywhere.

float32 is held against long double on about a million points of each function, float64 against
mpmath. The errors are printed: `pytest -s tests/codegen/test_functions.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.special

from pellucid.codegen.decompose_ops import decompose_ops
from pellucid.core.dtype import DType, dtypes
from pellucid.core.target import Target
from pellucid.ir.accuracy import CLOSER, most_ulps
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.render import CRenderer, LLVMRenderer
from tests.codegen import kernels
from tests.codegen.test_decompose_ops import differing, elementwise, lowered, run_compiled

UNARY = (Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TANH, Ops.ERF)
# where the function does something: samples are uniform here, and random bit patterns elsewhere
RANGES = {
    Ops.EXP: (-104, 89),
    Ops.EXP2: (-150, 129),
    Ops.LOG: (0, 4),
    Ops.LOG2: (0, 4),
    Ops.SIN: (-100, 100),
    Ops.COS: (-100, 100),
    Ops.TANH: (-10, 10),
    Ops.ERF: (-5, 5),
}
LONG: dict[Op, Callable[..., np.ndarray]] = {
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG: np.log,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TANH: np.tanh,
    Ops.ERF: lambda x: scipy.special.erf(x.astype(np.float64)).astype(np.longdouble),
    Ops.POW: np.power,
}
EXACT: dict[Op, Callable[..., mpmath.mpf]] = {
    Ops.EXP: mpmath.exp,
    Ops.EXP2: lambda x: mpmath.power(2, x),
    Ops.LOG: mpmath.log,
    Ops.LOG2: lambda x: mpmath.log(x, 2),
    Ops.SIN: mpmath.sin,
    Ops.COS: mpmath.cos,
    Ops.TANH: mpmath.tanh,
    Ops.ERF: mpmath.erf,
    Ops.POW: mpmath.power,
}
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 0.75, 0.9, 2.0, 1.5]
EDGES32 = [
    *EDGES,
    1e-45,
    -1e-45,
    1.1754944e-38,
    1.1754942e-38,
    3.4028235e38,
    -3.4028235e38,
    89.0,
    -104.0,
    88.72284,
]
EDGES64 = [
    *(*EDGES, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-310, 1.7976931348623157e308),
    *(709.782712893384, -745.1332191019411, -745.2, 2.0**28, 2.0**28 + 0.5, 1e22),
    6381956970095103.0 * 2.0**797,  # the float64 that is closest to a multiple of pi/2
]


def computed(device: str, op: Op, *inputs: np.ndarray, fused: bool = True) -> np.ndarray:
    """The compiled function."""
    dtype = dtypes.float32 if inputs[0].dtype == np.float32 else dtypes.float64
    target = (LLVMRenderer() if device == "CPU:LLVM" else CRenderer()).target
    if not fused:
        target = target.with_changes({"native_ops": target.native_ops - {"MULADD"}})
    lanes = 16 if dtype is dtypes.float32 else 8
    sink = elementwise([dtype] * len(inputs), lambda *x: UOp.make(op, *x), inputs[0].size, lanes)
    result = np.zeros_like(inputs[0])
    run_compiled(device, lowered(sink, target), [result, *inputs])
    return result


def single_samples(op: Op, size: int) -> np.ndarray:
    """Edges, random bit patterns, and points of the range where the function does something."""
    random = np.random.default_rng(1)
    bits = random.integers(0, 2**32, size // 2, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([bits, random.uniform(*RANGES[op], size // 2).astype(np.float32)])
    x[: len(EDGES32)] = EDGES32
    return x


@np.errstate(all="ignore")
def errors(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Distances in units of the last place; infinite where NaN, infinity or a zero is wrong."""
    single = got.dtype == np.float32
    rounded = wanted.astype(got.dtype)
    finite = np.isfinite(rounded)
    exponent = np.frexp(np.abs(np.where(finite, wanted, 1)).astype(np.float64))[1] - 1
    exponent = np.maximum(exponent, -126 if single else -1022)
    unit = np.ldexp(np.longdouble(1), exponent - (23 if single else 52))
    distance = np.abs(got.astype(np.longdouble) - np.where(finite, wanted, 0)) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    same &= (got != 0) | (np.signbit(got) == np.signbit(rounded)) | (wanted != 0)
    special = np.where(same, 0.0, np.inf)
    return np.where(
        finite & (wanted != 0), np.where(np.isfinite(distance), distance, np.inf), special
    )


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_single_precision(op: Op) -> None:
    x = single_samples(op, 1 << 20)
    got = computed("CPU:LLVM", op, x)
    with np.errstate(all="ignore"):
        wanted = LONG[op](x.astype(np.longdouble))
    found = errors(got, wanted)
    worst = int(found.argmax())
    print(
        f"\n{op.name} float32: max {found[worst]:.3f} ulp at {x[worst]!r}, mean {found.mean():.3f}"
    )
    assert found[worst] <= most_ulps(op, dtypes.float32)
    assert not differing(computed("CPU:C", op, x), got).size


def floats_between(low: float, high: float, step: int) -> np.ndarray:
    """Every so-manieth float32 of one sign, from *low* to *high* away from 0."""
    first, last = np.array([low, high], np.float32).view(np.uint32)
    return np.arange(first, last, step, np.uint32).view(np.float32)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("op", "dtype"), CLOSER, ids=lambda x: getattr(x, "name", ""))
def test_what_the_compiler_relies_on(op: Op, dtype: DType, fused: bool) -> None:
    """A dense sample of all that are not 1 or beyond all bounds, with each way to spell products.

    All were tried once, with a step of 1: 0.986 units at most, 0.989 without fused products.
    """
    tiny, (low, high) = 2.0**-25, RANGES[op]
    halves = [floats_between(tiny, size, 1543) for size in (-low, high)]
    x = np.concatenate([-halves[0], halves[1]])
    x = x[: x.size // 16 * 16]
    with np.errstate(all="ignore"):  # float64 is exact enough: within 2**-28 units
        wanted = LONG[op](x.astype(np.float64))
    found = errors(computed("CPU:LLVM", op, x, fused=fused), wanted)
    assert found.max() <= most_ulps(op, dtype)


def exact_error(op: Op, got: float, *given: float) -> float:
    """Units in the last place of a float64, against mpmath."""
    with mpmath.workprec(1400 if op in (Ops.SIN, Ops.COS) and abs(given[0]) > 1e6 else 160):
        if op in (Ops.EXP, Ops.EXP2) and abs(given[0]) > 2000:
            return 0.0 if got == (0.0 if given[0] < 0 else np.inf) else np.inf
        wanted = EXACT[op](*map(mpmath.mpf, given))
        if wanted == 0 or not np.isfinite(got):
            return 0.0 if float(wanted) == got else np.inf
        exponent = max(mpmath.frexp(abs(wanted))[1] - 1, -1022)
        return float(abs(mpmath.mpf(got) - wanted) / mpmath.mpf(2) ** (exponent - 52))


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_double_precision(op: Op) -> None:
    random = np.random.default_rng(2)
    low, high = RANGES[op]
    low, high = (low * 8, high * 8) if op in (Ops.EXP, Ops.EXP2) else (low, high)
    bits = random.integers(0, 2**64, 2048, np.uint64).view(np.float64)
    x = np.concatenate([random.uniform(low, high, 2048), bits])
    x[: len(EDGES64)] = EDGES64
    got = computed("CPU:LLVM", op, x)
    with np.errstate(all="ignore"):
        special = ~np.isfinite(x) | (x == 0) | ((x < 0) & (op in (Ops.LOG, Ops.LOG2)))
        assert not differing(got[special], np.asarray(LONG[op](x[special]), np.float64)).size
    found = [
        0.0 if s else exact_error(op, float(g), float(v))
        for s, g, v in zip(special, got, x, strict=True)
    ]
    worst = int(np.argmax(found))
    print(f"\n{op.name} float64: max {found[worst]:.3f} ulp at {x[worst]!r}")
    assert found[worst] <= most_ulps(op, dtypes.float64)
    assert not differing(computed("CPU:C", op, x), got).size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power(dtype: type) -> None:
    random = np.random.default_rng(3)
    largest = 700 if dtype is np.float64 else 87
    x = np.exp(random.uniform(-largest, largest, 4096))
    x[:2048] = random.uniform(0.9, 1.1, 2048)
    x = x.astype(dtype)
    y = (random.uniform(-largest, largest, 4096) / np.log(x.astype(np.float64))).astype(dtype)
    got = computed("CPU:LLVM", Ops.POW, x, y)
    if dtype is np.float64:
        found = np.array(
            [exact_error(Ops.POW, *map(float, row)) for row in zip(got, x, y, strict=True)]
        )
    else:
        found = errors(got, np.power(x.astype(np.longdouble), y.astype(np.longdouble)))
    worst = int(found.argmax())
    print(f"\nPOW {dtype.__name__}: max {found[worst]:.3f} ulp at {x[worst]!r} ** {y[worst]!r}")
    assert found[worst] <= most_ulps(
        Ops.POW, dtypes.float64 if dtype is np.float64 else dtypes.float32
    )
    assert not differing(computed("CPU:C", Ops.POW, x, y), got).size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
def test_special_powers(dtype: type) -> None:
    """IEEE 754-2019, 9.2.1, as numpy's pow has it; powers of 2 are exact."""
    values = np.array(
        [0, -0.0, 1, -1, 2, -2, 4, -0.5, 3, -3, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30], dtype
    )
    x, y = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    got, wanted = computed("CPU:LLVM", Ops.POW, x, y), np.power(x, y)
    assert (np.isnan(got) == np.isnan(wanted)).all()
    exact = ~np.isfinite(wanted) | (wanted == 0) | (np.abs(x) == 1)
    assert not differing(got[exact], wanted[exact]).size
    close = np.isfinite(wanted)
    assert np.allclose(got[close], wanted[close], rtol=4 * np.finfo(dtype).eps, atol=0)
    assert got[(x == -2) & (y == 3)] == -8
    assert np.isnan(got[(x == -2) & (y == 2.5)]).all()


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5])
def test_literal_exponents_are_spelled_out(exponent: float) -> None:
    random = np.random.default_rng(6)
    x = np.exp(random.uniform(-80, 80, 1024)).astype(np.float32) * np.resize([1, -1], 1024)
    x = x.astype(np.float32)
    x[: len(EDGES32)] = EDGES32
    make = lambda v: UOp.make(Ops.POW, v, v.const_like(exponent))  # noqa: E731
    got = np.zeros_like(x)
    linear = lowered(elementwise([dtypes.float32], make, x.size, 16), LLVMRenderer().target)
    assert len(linear.src) < 40
    run_compiled("CPU:LLVM", linear, [got, x])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.longdouble), np.longdouble(exponent))
    assert errors(got, wanted).max() <= most_ulps(Ops.POW, dtypes.float32)


@pytest.mark.parametrize("op", [*UNARY, Ops.POW], ids=lambda op: op.name)
def test_the_interpreter_computes_the_same_bits(op: Op) -> None:
    random = np.random.default_rng(4)
    for dtype, edges, size in ((dtypes.float32, EDGES32, 512), (dtypes.float64, EDGES64, 64)):
        low, high = RANGES.get(op, (0, 4))
        x = [
            np.resize([*edges, *random.uniform(low, high, size - len(edges))], size).astype(
                dtype.name
            )
        ]
        if op is Ops.POW:
            x.append(random.uniform(-4, 4, size).astype(dtype.name))
        sink = elementwise([dtype] * len(x), lambda *v: UOp.make(op, *v), size, 8)
        linear = lowered(sink, LLVMRenderer().target)
        compiled, interpreted = np.zeros_like(x[0]), np.zeros_like(x[0])
        run_compiled("CPU:LLVM", linear, [compiled, *x])
        run_kernel(linear, [interpreted, *x])
        assert not differing(compiled, interpreted).size


@pytest.mark.parametrize("op", [*UNARY, Ops.POW], ids=lambda op: op.name)
def test_without_fused_multiply_add(op: Op) -> None:
    """A target without FMA gets plain products, and results that are as exact."""
    target = LLVMRenderer(Target(arch="x86-64", features=frozenset(["sse4.2"]))).target
    random = np.random.default_rng(5)
    for dtype, edges in ((dtypes.float32, EDGES32), (dtypes.float64, EDGES64)):
        low, high = RANGES.get(op, (0.5, 4))
        x = [random.uniform(low, high, 2048).astype(dtype.name)]
        x[0][: len(edges)] = edges
        if op is Ops.POW:
            x = [np.abs(x[0]), random.uniform(-4, 4, 2048).astype(dtype.name)]
        linear = lowered(
            elementwise([dtype] * len(x), lambda *v: UOp.make(op, *v), 2048, 8), target
        )
        got = np.zeros_like(x[0])
        run_compiled("CPU:LLVM", linear, [got, *x])
        if dtype is dtypes.float32:
            with np.errstate(all="ignore"):
                found = errors(got, LONG[op](*(v.astype(np.longdouble) for v in x)))
        else:
            rows = [row for row in zip(got, *x, strict=True) if np.isfinite(row[1]) and row[1] > 0][
                :200
            ]
            found = np.array([exact_error(op, *map(float, row)) for row in rows])
        assert found.max() <= most_ulps(op, dtype)


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_functions_of_half_precision_round_once(op: Op) -> None:
    """All 65536 float16 values, against the exact result rounded; float32 may round twice."""
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    sink = elementwise([dtypes.float16], lambda v: UOp.make(op, v), x.size, 16)
    results = []
    for device, renderer in (("CPU:LLVM", LLVMRenderer()), ("CPU:C", CRenderer())):
        results.append(np.zeros_like(x))
        run_compiled(device, lowered(sink, renderer.target), [results[-1], x])
    assert not differing(*results).size
    with np.errstate(all="ignore"):
        wanted = LONG[op](x.astype(np.longdouble)).astype(np.float64).astype(np.float16)
    apart = differing(results[0], wanted)
    steps = np.abs(results[0].view(np.int16).astype(int) - wanted.view(np.int16).astype(int))
    assert apart.size <= 20
    assert (steps[apart] <= 1).all()


def test_decomposed_functions_are_native() -> None:
    target = LLVMRenderer().target
    for op in (*UNARY, Ops.POW):
        for dtype in (dtypes.float32, dtypes.float64):
            x = UOp(Ops.VARIABLE, dtype, (), None)
            node = decompose_ops(UOp.make(op, *[x] * len(op.sources)), target)
            names = {n.op.name for n in node.toposort()}
            assert names <= target.native_ops | {"CONST", "VARIABLE"}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_exp_is_scaled_where_one_is_added(dtype: DType) -> None:
    """Fused: the power of 2, what is left of x, the polynomial, and the first factor."""
    target = Target(arch="x86-64", native_ops=frozenset({"MULADD", "SUB"}))
    x = kernels.param(0, 1, dtype).index(kernels.const(0)).load()
    graph = decompose_ops(UOp.make(Ops.EXP, x), target)
    ops = Counter(n.op for n in graph.toposort() if n.dtype.is_float)
    degree = 4 if dtype is dtypes.float32 else 9
    assert ops[Ops.MULADD] == 1 + 2 + degree + 1
    assert (ops[Ops.ADD], ops[Ops.SUB], ops[Ops.MUL]) == (1, 1, 3)
