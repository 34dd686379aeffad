"""Spelled-out ops mean what the op table says: interpreted, and compiled by both renderers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pellucid.codegen.add_control_flow import add_control_flow
from pellucid.codegen.decompose_ops import decompose_ops
from pellucid.codegen.emulate_dtypes import emulate_dtypes
from pellucid.codegen.linearize import linearize
from pellucid.core.dtype import INTEGERS, DType, dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import ParamArg, ProgramInfo
from pellucid.ir.interpret import from_storage, run_kernel
from pellucid.ir.op import COMPARISONS, Op, Ops
from pellucid.ir.uop import UOp
from pellucid.render import CRenderer, LLVMRenderer
from pellucid.runtime import Buffer, Device

INT = dtypes.int32


def elementwise(types: Sequence[DType], make, size: int, lanes: int) -> UOp:
    """A kernel out[i] = make(in0[i], in1[i] …), in lanes; *make* may give several values."""
    loop = UOp.range(UOp.const(INT, size // lanes), 0)
    at = UOp.make(Ops.MUL, loop, UOp.const(INT, lanes)) if lanes > 1 else loop
    inputs = [UOp(Ops.PARAM, dtype, (), ParamArg(-1 - k, size)) for k, dtype in enumerate(types)]
    loads = [UOp(Ops.INDEX, p.dtype.vec(lanes), (p, at)).load() for p in inputs]
    made = make(*loads)
    values = made if isinstance(made, list) else [made]
    stores = []
    for slot, value in enumerate(values):
        out = UOp(Ops.PARAM, value.dtype.scalar, (), ParamArg(slot, size))
        stores.append(UOp(Ops.INDEX, value.dtype, (out, at)).store(value))
    effect = UOp.make(Ops.GROUP, *stores) if len(stores) > 1 else stores[0]
    # outputs come first
    slots = {p: p.replace(arg=ParamArg(len(values) + k, size)) for k, p in enumerate(inputs)}
    return UOp.sink(effect.end(loop)).substitute(slots)


def lowered(sink: UOp, target: Target) -> UOp:
    """The two passes, and an order."""
    sink = emulate_dtypes(decompose_ops(sink, target), target)
    left = {n.op.name for n in sink.toposort() if n.op.is_elementwise} - target.native_ops
    assert not left
    return linearize(add_control_flow(sink, target))


def run_compiled(device: str, linear: UOp, arrays: list[np.ndarray]) -> None:
    """Compile a program and run it in place."""
    renderer = LLVMRenderer() if device == "CPU:LLVM" else CRenderer()
    source = renderer.render(linear, ProgramInfo("kernel"))
    program = Device[device].load(Device[device].compile(source, "kernel"), "kernel")
    buffers = []
    for array in arrays:
        buffer = Buffer(device, max(1, array.nbytes), dtypes.uint8)
        buffer.as_numpy()[: array.nbytes] = array.view(np.uint8).reshape(-1)
        buffers.append(buffer)
    program(buffers, [], 1, 0)
    for buffer, array in zip(buffers, arrays, strict=True):
        array.view(np.uint8).reshape(-1)[:] = buffer.as_numpy()[: array.nbytes]


def storage(dtype: DType) -> str:
    """The numpy type of a buffer."""
    if dtype.is_float and dtype.bits < 32 and dtype.name != "float16":
        return f"uint{dtype.bits}"
    return dtype.name


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two results are not the same bits, all NaNs being one."""
    if a.dtype.kind == "f":
        nans = np.isnan(a) & np.isnan(b)
        return np.flatnonzero((a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")) & ~nans)
    return np.flatnonzero(a.view(np.uint8) != b.view(np.uint8))


def differing_values(dtype: DType, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two buffers hold different values; small floats are compared as float32."""
    if dtype.is_float and dtype.bits < 32:
        a, b = (np.asarray(from_storage(dtype, x), np.float32) for x in (a, b))
    return differing(a, b)


def check(device: str, make, inputs: list[np.ndarray], types: list[DType], lanes: int) -> None:
    """Interpreter before the pass, interpreter after it, and the compiled program agree."""
    size = inputs[0].size
    sink = elementwise(types, make, size, lanes)
    params = {n.arg.slot: n for n in sink.toposort() if n.op is Ops.PARAM}
    results = [params[slot].dtype for slot in range(len(params) - len(inputs))]

    def empty(count: int) -> list[np.ndarray]:
        return [np.zeros(count, storage(dtype)) for dtype in results]

    expected, compiled = empty(size), empty(size)
    run_kernel(sink, [*expected, *inputs])
    target = (LLVMRenderer() if device == "CPU:LLVM" else CRenderer()).target
    run_compiled(device, lowered(sink, target), [*compiled, *inputs])
    for k, (dtype, got, wanted) in enumerate(zip(results, compiled, expected, strict=True)):
        wrong = differing_values(dtype, got, wanted)
        assert not wrong.size, (k, wrong[:5], [x[wrong[:5]] for x in (*inputs, got, wanted)])
    if lanes == 1:
        few = min(size, 64)
        interpreted = empty(few)
        linear = lowered(elementwise(types, make, few, 1), target)
        run_kernel(linear, [*interpreted, *(x[:few] for x in inputs)])
        for dtype, got, wanted in zip(results, interpreted, expected, strict=True):
            assert not differing_values(dtype, got, wanted[:few]).size


def each(*ops: Op):
    """All of *ops* on the same sources."""
    return lambda *x: [UOp.make(op, *x) for op in ops]


@pytest.fixture(params=["CPU:LLVM", "CPU:C"])
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn."""
    return str(request.param)


def integer_pairs(dtype: DType, size: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Edges against edges, then random numbers of all sizes."""
    random = np.random.default_rng(0)
    low, high = int(dtype.min), int(dtype.max)
    edges = sorted(
        {low, low + 1, 0, 1, 2, 3, 7, high - 1, high, *((-1, -2, -3, -7) if low else ())}
    )
    pairs = list(itertools.product(edges, edges))[: size // 2]
    values = [
        random.integers(low, high, size - len(pairs), dtype.name, endpoint=True) for _ in "ab"
    ]
    values[1] >>= random.integers(0, dtype.bits, values[1].size).astype(dtype.name)
    return tuple(
        np.concatenate([np.array([p[k] for p in pairs], dtype.name), values[k]]) for k in (0, 1)
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_division_of_integers(device: str, dtype: DType, lanes: int) -> None:
    a, b = integer_pairs(dtype)
    make = each(Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
    check(device, make, [a, b], [dtype, dtype], lanes)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.uint32, dtypes.int64], ids=str)
def test_division_by_literals(device: str, dtype: DType) -> None:
    a, _ = integer_pairs(dtype)
    divisors = (0, 1, 2, 3, 7, 10, 64, int(dtype.max), int(dtype.min), -1, -3, -8)

    def make(x: UOp) -> list[UOp]:
        return [
            UOp.make(op, x, x.const_like(divisor))
            for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
            for divisor in divisors
            if divisor >= dtype.min
        ]

    check(device, make, [a], [dtype], 8)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_shifts_of_any_count(device: str, dtype: DType, lanes: int) -> None:
    a, _ = integer_pairs(dtype)
    counts = np.resize(np.arange(-3 if int(dtype.min) else 0, dtype.bits + 4), a.size).astype(
        dtype.name
    )
    check(device, each(Ops.SHL, Ops.SHR), [a, counts], [dtype, dtype], lanes)


def test_bounds_leave_plain_instructions() -> None:
    target = replace(LLVMRenderer().target)
    i = UOp.range(UOp.const(INT, 1000), 0)
    assert decompose_ops(i // 8, target).op is Ops.ISHR
    assert decompose_ops(i % 8, target).op is Ops.AND
    assert decompose_ops(i // 10, target).op is Ops.IDIV
    assert decompose_ops(i % 10, target).op is Ops.IMOD
    j = UOp.range(UOp.const(INT, 31), 1)
    assert decompose_ops(i << j, target).op is Ops.ISHL
    assert decompose_ops(i - j, target).op is Ops.SUB
    assert decompose_ops(-i, target).op is Ops.NEG


def test_logic_of_bools(device: str) -> None:
    a = np.array([0, 0, 1, 1] * 4, bool)
    b = np.array([0, 1] * 8, bool)
    make = each(Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, *COMPARISONS)
    check(device, make, [a, b], [dtypes.bool] * 2, 8)


def float_pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Edges against edges, repeated to a multiple of 16."""
    tiny, huge = np.finfo(dtype.name).smallest_subnormal, np.finfo(dtype.name).max
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, tiny, -tiny, huge, -huge, 1.5]
    pairs = np.array(list(itertools.product(edges, edges)), dtype.name)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("lanes", [1, 16])
def test_extremes_of_floats(device: str, dtype: DType, lanes: int) -> None:
    a, b = float_pairs(dtype)
    literals = (0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"))

    def make(x: UOp, y: UOp) -> list[UOp]:
        values = [UOp.make(op, x, y) for op in (Ops.MAX, Ops.MIN)]
        for op, value in itertools.product((Ops.MAX, Ops.MIN), literals):
            values.append(UOp.make(op, x, x.const_like(value)))
            values.append(UOp.make(op, x.const_like(value), x))
        return values

    check(device, make, [a, b], [dtype] * 2, lanes)


@pytest.mark.parametrize(
    "source", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=str
)
@pytest.mark.parametrize("lanes", [1, 8])
def test_floats_to_integers(device: str, source: DType, lanes: int) -> None:
    if source.bits == 16:
        a = np.arange(65536, dtype=np.uint16)
        a = a.view(np.float16) if source is dtypes.float16 else a
    else:
        powers = 2.0 ** np.arange(0, 66)
        near = np.concatenate(
            [np.nextafter(powers.astype(source.name), np.array(s, source.name)) for s in (0, 1e30)]
        )
        edges = np.concatenate(
            [powers, powers + 0.5, powers - 0.5, near, [0.0, 0.99, np.inf, np.nan, 1e30]]
        )
        a = np.concatenate([edges, -edges]).astype(source.name)
        a = np.resize(a, -(-a.size // 8) * 8)
    check(device, lambda x: [x.cast(result) for result in INTEGERS], [a], [source], lanes)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=str)
def test_quotients_by_powers_of_two(device: str, dtype: DType) -> None:
    a = float_pairs(dtype)[0] if dtype.bits > 16 else np.arange(65536, dtype=np.uint16)
    a = a.view(dtype.name)
    divisors = (1.0, -2.0, 0.5, 2.0**-14, 2.0**14, 2.0**15, 3.0)
    check(device, lambda x: [x / x.const_like(d) for d in divisors], [a], [dtype], 16)
    x = UOp(Ops.VARIABLE, dtypes.float32, (), None)
    assert decompose_ops(x / 4, LLVMRenderer().target).op is Ops.MUL
    assert decompose_ops(x / 3, LLVMRenderer().target).op is Ops.FDIV


def test_threefry_gives_the_published_answers(device: str) -> None:
    """kat_vectors of Random123, threefry2x32, 20 rounds: words of counter, key and result."""
    ones = 0xFFFFFFFF
    known = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ones, ones), (ones, ones), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    words = np.array(known, np.uint64)
    packed = words[:, :, 0] | (words[:, :, 1] << np.uint64(32))
    counter, key, expected = (np.resize(packed[:, k], 12) for k in range(3))
    sink = elementwise([dtypes.uint64] * 2, lambda x, y: UOp.make(Ops.THREEFRY, x, y), 12, 4)
    target = (LLVMRenderer() if device == "CPU:LLVM" else CRenderer()).target
    got = np.zeros(12, np.uint64)
    run_compiled(device, lowered(sink, target), [got, counter, key])
    assert got.tolist() == expected.tolist()
