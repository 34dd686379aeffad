"""Every native op of every dtype and number of lanes, on both renderers, against the op table."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from pellucid.core.dtype import (
    INTEGERS,
    DType,
    Scalar,
    bits_of,
    dtypes,
    round_to,
    to_scalar,
    value_of_bits,
    wrap,
)
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from tests.render.conftest import Kernel

LANES = (1, 4, 8, 16)
SIZE = 48
COMPUTED = (dtypes.bool, *INTEGERS, dtypes.float32, dtypes.float64)
COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
FLOAT_UNARY = (Ops.NEG, Ops.SQRT, Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND)


def storage(dtype: DType) -> np.dtype:
    """The numpy type of a buffer."""
    return np.dtype("bool" if dtype.is_bool else dtype.name)


def samples(dtype: DType, seed: int) -> list[Scalar]:
    """Edges first, then random bit patterns and small values."""
    random = np.random.default_rng(seed)
    if dtype.is_bool:
        return [bool(v) for v in random.integers(0, 2, SIZE)]
    if dtype.is_float:
        tiny = value_of_bits(dtype, 1)
        edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, tiny, dtype.finite_max]
        edges += [0.5, 1.5, 2.5, -0.5, -2.5, 3.0000002, 1e7, -1e9, 2.0**23 + 1, 4503599627370497.5]
        bits = [int(v) for v in random.integers(0, 2**63, SIZE)]
        values = edges + [float(v) for v in random.normal(0, 10, 10)]
        values += [value_of_bits(dtype, b * 2 % 2**dtype.bits) for b in bits]
        values = [round_to(dtype, v) for v in values[:SIZE]]
    else:
        low, high = int(dtype.min), int(dtype.max)
        values = [low, high, 0, 1, wrap(dtype, -1), low + 1, high - 1, 2, 3, 7]
        values += [int(v) for v in random.integers(low, high, SIZE - len(values), dtype.name)]
    order = random.permutation(SIZE)
    return [values[i] for i in order]


def to_array(dtype: DType, values: list[Scalar]) -> np.ndarray:
    """Exactly these values."""
    if dtype.is_float:
        return np.array([bits_of(dtype, v) for v in values], f"uint{dtype.bits}").view(dtype.name)
    return np.array(values, storage(dtype))


def same(dtype: DType, got: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits, or both NaN."""
    if not dtype.is_float:
        return bool((got.view(np.uint8) == expected.view(np.uint8)).all())
    bits = f"uint{dtype.bits}"
    nans = np.isnan(got) & np.isnan(expected)
    return bool(((got.view(bits) == expected.view(bits)) | nans).all())


class Case:
    """Kernels of many rows: each is an expression of loaded values, and what it must give."""

    def __init__(self, kernel: Kernel, inputs: list[tuple[DType, list[Scalar]]]) -> None:
        self.kernel = kernel
        self.arrays = [to_array(dtype, values) for dtype, values in inputs]
        self.inputs = [kernel.param(dtype, SIZE) for dtype, _ in inputs]
        self.expected: list[tuple[str, DType, np.ndarray]] = []
        self.stores: dict[int, list[UOp]] = {lanes: [] for lanes in LANES}
        self.places: dict[int, tuple[UOp, UOp]] = {}
        for lanes in LANES:
            loop = UOp.range(UOp.const(dtypes.int32, SIZE // lanes), lanes)
            self.places[lanes] = loop, UOp.make(Ops.MUL, loop, loop.const_like(lanes))

    def add(
        self, label: str, dtype: DType, make: Callable[..., UOp], expected: list[Scalar]
    ) -> None:
        """A row, in every number of lanes."""
        for lanes in LANES:
            out = self.kernel.param(dtype, SIZE)
            _, at = self.places[lanes]
            sources = [UOp(Ops.INDEX, p.dtype.vec(lanes), (p, at)).load() for p in self.inputs]
            place = UOp(Ops.INDEX, dtype.vec(lanes), (out, at))
            self.stores[lanes].append(place.store(make(*sources)))
            self.arrays.append(np.zeros(SIZE, storage(dtype)))
            self.expected.append((f"{label} x{lanes}", dtype, to_array(dtype, expected)))

    def run(self, device: str) -> None:
        """Run, and compare every row."""
        for lanes, stores in self.stores.items():
            group = UOp.make(Ops.GROUP, *stores)
            self.kernel.effects.append(group.end(self.places[lanes][0]))
        self.kernel.run(device, self.arrays)
        wrong = [
            label
            for (label, dtype, expected), got in zip(
                self.expected, self.arrays[len(self.inputs) :], strict=True
            )
            if not same(dtype, got, expected)
        ]
        assert wrong == []


def apply(op: Op, dtype: DType, *columns: list[Scalar]) -> list[Scalar]:
    """The meaning that the op table gives."""
    assert op.python is not None
    return [to_scalar(dtype, op.python(*row)) for row in zip(*columns, strict=True)]


def made(op: Op, result: DType | None = None) -> Callable[..., UOp]:
    """The node over the given sources."""

    def make(*src: UOp) -> UOp:
        if result is not None:
            return UOp(op, result.vec(src[0].dtype.lanes), src)
        return UOp.make(op, *src[: len(op.sources)])

    return make


@pytest.mark.parametrize("dtype", [d for d in COMPUTED if d.is_int], ids=str)
def test_integers(kernel: Kernel, device: str, dtype: DType) -> None:
    a, b = samples(dtype, 1), samples(dtype, 2)
    divisor = [v if v not in (0, wrap(dtype, -1)) else 3 for v in b]
    count = [int(v) % dtype.bits for v in b]
    case = Case(kernel, [(dtype, a), (dtype, b), (dtype, divisor), (dtype, count)])
    for op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.MIN):
        case.add(op.name, dtype, made(op), apply(op, dtype, a, b))
    for op in COMPARISONS:
        case.add(op.name, dtypes.bool, made(op), apply(op, dtypes.bool, a, b))
    case.add("NEG", dtype, made(Ops.NEG), apply(Ops.NEG, dtype, a))
    for op in (Ops.IDIV, Ops.IMOD):
        case.add(
            op.name,
            dtype,
            lambda x, y, d, c, op=op: UOp.make(op, x, d),
            apply(op, dtype, a, divisor),
        )
    for op in (Ops.ISHL, Ops.ISHR):
        case.add(
            op.name, dtype, lambda x, y, d, c, op=op: UOp.make(op, x, c), apply(op, dtype, a, count)
        )
    case.run(device)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_floats(kernel: Kernel, device: str, dtype: DType) -> None:
    a, b, c = samples(dtype, 1), samples(dtype, 2), samples(dtype, 3)
    case = Case(kernel, [(dtype, a), (dtype, b), (dtype, c)])
    for op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV):
        case.add(op.name, dtype, made(op), apply(op, dtype, a, b))
    for op in COMPARISONS:
        case.add(op.name, dtypes.bool, made(op), apply(op, dtypes.bool, a, b))
    for op in FLOAT_UNARY:
        case.add(op.name, dtype, made(op), apply(op, dtype, a))
    fused = [fused_multiply_add(dtype, *row) for row in zip(a, b, c, strict=True)]
    case.add("MULADD", dtype, made(Ops.MULADD), fused)
    chosen = [x if x < y else z for x, y, z in zip(a, b, c, strict=True)]
    case.add("WHERE", dtype, lambda x, y, z: (x < y).where(x, z), chosen)
    case.run(device)


def fused_multiply_add(dtype: DType, a: float, b: float, c: float) -> float:
    """a * b + c, rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c if math.isfinite(a) and math.isfinite(b) else float(np.float64(a) * b + c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # the sign of a zero: exact, as nothing is rounded
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    if dtype is dtypes.float32 and Fraction(nearest) != exact and math.isfinite(nearest):
        # round to odd first, so that the second rounding sees that bits were lost
        bits = struct.unpack("<q", struct.pack("<d", nearest))[0]
        if bits & 1 == 0:
            away = abs(exact) > abs(Fraction(nearest))
            nearest = struct.unpack("<d", struct.pack("<q", bits + (1 if away else -1)))[0]
    return round_to(dtype, nearest)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_bools(kernel: Kernel, device: str) -> None:
    a, b, c = (samples(dtypes.bool, seed) for seed in (1, 2, 3))
    case = Case(kernel, [(dtypes.bool, a), (dtypes.bool, b), (dtypes.bool, c)])
    for op in (Ops.AND, Ops.OR, Ops.XOR, *COMPARISONS):
        case.add(op.name, dtypes.bool, made(op), apply(op, dtypes.bool, a, b))
    case.add("not", dtypes.bool, lambda x, y, z: x.logical_not(), [not x for x in a])
    case.add(
        "WHERE", dtypes.bool, lambda x, y, z: x.where(y, z), apply(Ops.WHERE, dtypes.bool, a, b, c)
    )
    case.run(device)


@pytest.mark.parametrize("source", COMPUTED, ids=str)
def test_casts(kernel: Kernel, device: str, source: DType) -> None:
    a = samples(source, 4)
    case = Case(kernel, [(source, a)])
    for result in COMPUTED:
        if result is source or (source.is_float and result.is_int):
            continue
        case.add(f"to {result}", result, made(Ops.CAST, result), [int_to(result, v) for v in a])
    same_width = [d for d in COMPUTED if max(8, d.bits) == max(8, source.bits) and not d.is_bool]
    if not source.is_float:
        for result in same_width:
            values = [value_of_bits(result, bits_of(source, v)) for v in a]
            if not any(v != v for v in values):
                case.add(f"bits to {result}", result, made(Ops.BITCAST, result), values)
    else:
        integer = next(d for d in same_width if d.is_unsigned)
        no_nan = [v if v == v else 1.0 for v in a]
        case.add(
            f"bits to {integer}",
            integer,
            lambda x: UOp(Ops.BITCAST, integer.vec(x.dtype.lanes), (x.eq(x).where(x, 1.0),)),
            [bits_of(source, v) for v in no_nan],
        )
    case.run(device)


def int_to(result: DType, value: Scalar) -> Scalar:
    """A cast that rounds once, also where Python's int to float to float32 would round twice."""
    if result is dtypes.float32 and isinstance(value, int):
        return float(np.float32(np.uint64(value) if value >= 2**63 else np.int64(value)))
    return to_scalar(result, value)


@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=str)
def test_float_to_integer(kernel: Kernel, device: str, source: DType) -> None:
    a = [round_to(source, v) for v in np.random.default_rng(5).uniform(-127, 127, SIZE)]
    case = Case(kernel, [(source, a)])
    for result in INTEGERS:
        make = made(Ops.FTOI, result)
        if result.is_unsigned:
            case.add(
                f"to {result}",
                result,
                lambda x, m=make: m((x < x.const_like(0.0)).where(UOp.make(Ops.NEG, x), x)),
                [int(abs(v)) for v in a],
            )
        else:
            case.add(f"to {result}", result, make, [int(v) for v in a])
    case.run(device)


def test_choices_across_widths(kernel: Kernel, device: str) -> None:
    """A mask made by comparing one type selects values of another."""
    a, b = samples(dtypes.int32, 6), samples(dtypes.float64, 7)
    small, flag = samples(dtypes.int8, 8), samples(dtypes.bool, 9)
    case = Case(
        kernel,
        [(dtypes.int32, a), (dtypes.float64, b), (dtypes.int8, small), (dtypes.bool, flag)],
    )
    zero = [x < 0 for x in a]
    case.add(
        "int32 chooses float64",
        dtypes.float64,
        lambda x, y, s, f: (x < x.const_like(0)).where(y, y.const_like(-0.0)),
        [y if z else -0.0 for z, y in zip(zero, b, strict=True)],
    )
    case.add(
        "bool and float64 choose int8",
        dtypes.int8,
        lambda x, y, s, f: (f & (y < y.const_like(0.0))).where(s, s.const_like(5)),
        [s if f and y < 0 else 5 for f, y, s in zip(flag, b, small, strict=True)],
    )
    case.add(
        "comparisons of three widths meet",
        dtypes.bool,
        lambda x, y, s, f: (
            ((x < x.const_like(0)) ^ (y < y.const_like(0.0))) | (s < s.const_like(0)) & f
        ),
        [(z != (y < 0)) or (s < 0 and f) for z, y, s, f in zip(zero, b, small, flag, strict=True)],
    )
    case.run(device)
