"""Kernels for the tests of lowering: one of each kind, with its buffers.

Each maker gives a SINK in LOOP form; `KERNELS` names them, `buffers_for` makes inputs for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import AxisKind, KernelInfo, ParamArg, ReduceArg
from pellucid.ir.op import Op, Ops
from pellucid.ir.pairs import paired
from pellucid.ir.uop import UOp

Array = npt.NDArray[np.generic]


def param(slot: int, size: int, dtype: DType = dtypes.float32) -> UOp:
    """Storage of *size* elements at position *slot*."""
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, size))


def loop(size: int, number: int) -> UOp:
    """An output axis."""
    return UOp.range(size, number, AxisKind.LOOP)


def axis(size: int, number: int) -> UOp:
    """A reduced axis."""
    return UOp.range(size, number, AxisKind.REDUCE)


def reduce(value: UOp, *ranges: UOp, op: Op = Ops.ADD) -> UOp:
    """A REDUCE over *ranges*."""
    return UOp.make(Ops.REDUCE, value, *ranges, arg=ReduceArg(op))


def kernel(*effects: UOp, **info: object) -> UOp:
    """A SINK with a KernelInfo."""
    return UOp.sink(*effects, arg=KernelInfo(**info))  # type: ignore[arg-type]


def const(value: int) -> UOp:
    """An index literal."""
    return UOp.const(dtypes.index, value)


def elementwise(n: int = 100) -> UOp:
    """y = x * 2 + z"""
    i = loop(n, 0)
    value = param(1, n).index(i) * 2.0 + param(2, n).index(i)
    return kernel(param(0, n).index(i).store(value).end(i))


def running_sums(blocks: int = 8, size: int = 16) -> UOp:
    """y[b, i] = the sum of x[b, j] over j <= i"""
    b, i, j = loop(blocks, 0), loop(size, 1), axis(size, 2)
    count = blocks * size
    x = param(1, count).index(b * size + j)
    total = reduce((j < i + 1).where(x, x.const_like(0.0)), j)
    return kernel(param(0, count).index(b * size + i).store(total).end(b, i))


def two_axes(rows: int = 3, columns: int = 33) -> UOp:
    """y[i, j] = x[i, j] * w[j] over rows and columns"""
    i, j = loop(rows, 0), loop(columns, 1)
    place = i * columns + j
    value = param(1, rows * columns).index(place) * param(2, columns).index(j)
    return kernel(param(0, rows * columns).index(place).store(value).end(i, j))


def fused(n: int = 130) -> UOp:
    """y = max(a * b + c, 0) * c - a, as in the measurements of cpu.md"""
    i = loop(n, 0)
    a, b, c = (param(slot, n).index(i) for slot in (1, 2, 3))
    zero = UOp.const(dtypes.float32, 0.0)
    value = zero.alu(Ops.CMPLT, a * b + c).where(a * b + c, 0.0) * c - a
    return kernel(param(0, n).index(i).store(value).end(i))


def scalar() -> UOp:
    """y[0] = x[0] + 1"""
    return kernel(param(0, 1).index(const(0)).store(param(1, 1).index(const(0)) + 1.0))


def one_sized() -> UOp:
    """A range of size one."""
    i, j = loop(1, 0), loop(5, 1)
    return kernel(param(0, 5).index(i * 5 + j).store(param(1, 5).index(j) * 3.0).end(i, j))


def empty() -> UOp:
    """A range of size zero."""
    i = loop(0, 0)
    return kernel(param(0, 0).index(i).store(param(1, 0).index(i) * 3.0).end(i))


def reduce_all(n: int = 333) -> UOp:
    """y = sum(x)"""
    k = axis(n, 0)
    return kernel(param(0, 1).index(const(0)).store(reduce(param(1, n).index(k), k)))


def reduce_rows(rows: int = 2, columns: int = 37) -> UOp:
    """y[i] = sum over j of x[i, j]"""
    i, k = loop(rows, 0), axis(columns, 1)
    value = reduce(param(1, rows * columns).index(i * columns + k), k)
    return kernel(param(0, rows).index(i).store(value).end(i))


def places(rows: int = 4, columns: int = 75, op: Op = Ops.ARGMAX) -> UOp:
    """y[i] = the first place of the largest x[i, j]"""
    i, k = loop(rows, 0), axis(columns, 1)
    x = param(1, rows * columns).index(i * columns + k)
    value = reduce(paired(k.cast(dtypes.int32), x), k, op=op)
    return kernel(param(0, rows, dtypes.int32).index(i).store(value).end(i))


def places_in_columns(rows: int = 13, columns: int = 35) -> UOp:
    """y[j] = the first place of the smallest x[i, j]"""
    j, k = loop(columns, 0), axis(rows, 1)
    x = param(1, rows * columns).index(k * columns + j)
    value = reduce(paired(k.cast(dtypes.int32), x), k, op=Ops.ARGMIN)
    return kernel(param(0, columns, dtypes.int32).index(j).store(value).end(j))


def reduce_columns(rows: int = 9, columns: int = 35) -> UOp:
    """y[j] = max over i of x[i, j]"""
    j, k = loop(columns, 0), axis(rows, 1)
    value = reduce(param(1, rows * columns).index(k * columns + j), k, op=Ops.MAX)
    return kernel(param(0, columns).index(j).store(value).end(j))


def reduce_empty() -> UOp:
    """y[i] = sum over nothing"""
    i, k = loop(3, 0), axis(0, 1)
    return kernel(param(0, 3).index(i).store(reduce(param(1, 0).index(i + k), k)).end(i))


def matmul(rows: int = 3, inner: int = 7, columns: int = 37) -> UOp:
    """c[i, j] = sum over k of a[i, k] * b[k, j]"""
    i, j, k = loop(rows, 0), loop(columns, 1), axis(inner, 2)
    a = param(1, rows * inner).index(i * inner + k)
    b = param(2, inner * columns).index(k * columns + j)
    value = reduce(a * b, k)
    return kernel(param(0, rows * columns).index(i * columns + j).store(value).end(i, j))


def matmul_and_step(rows: int = 9, inner: int = 7, columns: int = 37) -> UOp:
    """p -= m / (sqrt(v) + e), where m and v are of g[i, j] = sum over k of a[i, k] * b[k, j]"""
    i, j, k = loop(rows, 0), loop(columns, 1), axis(inner, 2)
    a = param(3, rows * inner).index(i * inner + k)
    b = param(4, inner * columns).index(k * columns + j)
    g = reduce(a * b, k)
    p, m, v = (param(slot, rows * columns).index(i * columns + j) for slot in (0, 1, 2))
    mean, square = m * 0.5 + g * 0.5, v * 0.75 + g * g * 0.25
    step = mean * 0.125 / (UOp.make(Ops.SQRT, square * square) + 0.5)
    stores = p.store(p + step * -1.0), m.store(mean), v.store(square)
    return kernel(UOp.make(Ops.GROUP, *stores).end(i, j))


def matmul_transposed(rows: int = 5, inner: int = 20, columns: int = 3) -> UOp:
    """c[i, j] = sum over k of a[i, k] * b[j, k]"""
    i, j, k = loop(rows, 0), loop(columns, 1), axis(inner, 2)
    a = param(1, rows * inner).index(i * inner + k)
    b = param(2, inner * columns).index(j * inner + k)
    value = reduce(a * b, k)
    return kernel(param(0, rows * columns).index(i * columns + j).store(value).end(i, j))


def convolution(channels: int = 2, size: int = 5, outputs: int = 3) -> UOp:
    """A 3x3 convolution with a border of zeros."""
    o, y, x = loop(outputs, 0), loop(size, 1), loop(size, 2)
    c, v, u = axis(channels, 3), axis(3, 4), axis(3, 5)
    row, column = y + v + -1, x + u + -1
    valid = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    image = param(1, channels * size * size)
    pixel = valid.where(image.index((c * size + row) * size + column, valid), 0.0)
    weight = param(2, outputs * channels * 9).index(((o * channels + c) * 3 + v) * 3 + u)
    place = (o * size + y) * size + x
    value = reduce(pixel * weight, c, v, u)
    return kernel(param(0, outputs * size * size).index(place).store(value).end(o, y, x))


def transpose(rows: int = 18, columns: int = 7) -> UOp:
    """y[j, i] = x[i, j]"""
    j, i = loop(columns, 0), loop(rows, 1)
    value = param(1, rows * columns).index(i * columns + j)
    return kernel(param(0, rows * columns).index(j * rows + i).store(value).end(j, i))


def flip(n: int = 50) -> UOp:
    """y[i] = x[n - 1 - i]"""
    i = loop(n, 0)
    return kernel(param(0, n).index(i).store(param(1, n).index(i * -1 + (n - 1))).end(i))


def gather(n: int = 40, size: int = 11) -> UOp:
    """y[i] = x[index[i]]"""
    i = loop(n, 0)
    position = param(2, n, dtypes.int64).index(i).cast(dtypes.index)
    valid = (position >= 0) & (position < size)
    value = param(1, size).index(position, valid)
    return kernel(param(0, n).index(i).store(value).end(i))


def scatter(n: int = 40, size: int = 11) -> UOp:
    """y[index[i]] += x[i], in order"""
    i = loop(n, 0)
    position = param(2, n, dtypes.int64).index(i).cast(dtypes.index)
    y = param(0, size).index(position)
    return kernel(y.store(y + param(1, n).index(i)).end(i), ordered=True)


def scatter_one_place(n: int = 9) -> UOp:
    """y[3] += x[i], in order: a place that does not depend on the loop"""
    i = loop(n, 0)
    y = param(0, 11).index(const(3))
    return kernel(y.store(y + param(1, n).index(i)).end(i), ordered=True)


def copy_then_scatter(n: int = 10, size: int = 11) -> UOp:
    """y = base; y[index[i]] = x[i], in order"""
    i, j = loop(size, 0), loop(n, 1)
    copied = param(0, size).index(i).store(param(1, size).index(i)).end(i)
    position = param(2, n, dtypes.int64).index(j).cast(dtypes.index)
    written = param(0, size).index(position).store(param(3, n).index(j)).end(j)
    return kernel(copied, written, ordered=True)


def several_outputs(n: int = 70) -> UOp:
    """y = x + 1, z = x * 2 (int32)"""
    i = loop(n, 0)
    x = param(2, n).index(i)
    stores = (
        param(0, n).index(i).store(x + 1.0),
        param(1, n, dtypes.int32).index(i).store((x * 2.0).cast(dtypes.int32)),
    )
    return kernel(UOp.make(Ops.GROUP, *stores).end(i))


def pad_and_sum(rows: int = 4, columns: int = 3) -> UOp:
    """A 4x3 tensor padded to 4x4, summed along the padded axis."""
    i, k = loop(rows, 0), axis(4, 1)
    valid = k < columns
    value = param(1, rows * columns).index(i * columns + k, valid)
    padded = valid.where(value, 0.0)
    return kernel(param(0, rows).index(i).store(reduce(padded, k)).end(i))


def softmax(rows: int = 2, columns: int = 37) -> UOp:
    """x - max + sum along rows: two reductions in sequence, then an elementwise row"""
    i, j = loop(rows, 0), loop(columns, 1)
    k, m = axis(columns, 2), axis(columns, 3)
    x = param(1, rows * columns)
    largest = reduce(x.index(i * columns + k), k, op=Ops.MAX)
    total = reduce(x.index(i * columns + m) - largest, m)
    value = (x.index(i * columns + j) - largest) + total
    return kernel(param(0, rows * columns).index(i * columns + j).store(value).end(i, j))


def dear_rows(rows: int = 3, columns: int = 37) -> UOp:
    """v * (sum of v) + (largest v) along rows, v = |x| by two roots: as softmax, but exact"""
    i, j = loop(rows, 0), loop(columns, 1)
    k, m = axis(columns, 2), axis(columns, 3)

    def value(column: UOp) -> UOp:
        x = param(1, rows * columns).index(i * columns + column)
        return UOp.make(Ops.SQRT, UOp.make(Ops.SQRT, (x * x) * (x * x)))

    total = reduce(value(k), k)
    largest = reduce(value(m), m, op=Ops.MAX)
    result = value(j) * total + largest
    return kernel(param(0, rows * columns).index(i * columns + j).store(result).end(i, j))


def one_hot_matmul(n: int = 3, size: int = 11, columns: int = 9) -> UOp:
    """y[i, j] = sum over k of (index[i] == k) * w[k, j]: a gather in disguise"""
    i, j, k = loop(n, 0), loop(columns, 1), axis(size, 2)
    position = param(2, n, dtypes.int64).index(i)
    hit = position.eq(k.cast(dtypes.int64))
    value = hit.where(param(1, size * columns).index(k * columns + j), 0.0)
    return kernel(param(0, n * columns).index(i * columns + j).store(reduce(value, k)).end(i, j))


def arange(n: int = 13) -> UOp:
    """y[i] = sum over k of (k < i): the numbers from 0 to n - 1"""
    i, k = loop(n, 0), axis(n, 1)
    one = UOp.const(dtypes.int64, 1)
    value = reduce((k < i).where(one, 0), k)
    return kernel(param(0, n, dtypes.int64).index(i).store(value).end(i))


def reshape_split(n: int = 6, m: int = 8) -> UOp:
    """y[i] = x[i % m, i // m]: a flat range taken apart"""
    i = loop(n * m, 0)
    return kernel(param(0, n * m).index(i).store(param(1, n * m).index(i % m * n + i // m)).end(i))


def bytes_sum(n: int = 100) -> UOp:
    """y = sum of x (uint8) as int64"""
    k = axis(n, 0)
    x = param(1, n, dtypes.uint8).index(k).cast(dtypes.int64)
    return kernel(param(0, 1, dtypes.int64).index(const(0)).store(reduce(x, k)))


def in_place(n: int = 50) -> UOp:
    """y = y * 2"""
    i = loop(n, 0)
    y = param(0, n).index(i)
    return kernel(y.store(y * 2.0).end(i))


def old_value(n: int = 37) -> UOp:
    """y = x * 2 and z = y + 1, where z wants the y of before"""
    i = loop(n, 0)
    y = param(0, n).index(i)
    stores = (y.store(param(2, n).index(i) * 2.0), param(1, n).index(i).store(y + 1.0))
    return kernel(UOp.make(Ops.GROUP, *stores).end(i))


def dot(n: int = 200) -> UOp:
    """y = sum of a * b"""
    k = axis(n, 0)
    value = reduce(param(1, n).index(k) * param(2, n).index(k), k)
    return kernel(param(0, 1).index(const(0)).store(value))


def running_count(n: int = 12) -> UOp:
    """y[i] = sum over k <= i of x[k]: a cumulative sum, whose mask depends on both"""
    i, k = loop(n, 0), axis(n, 1)
    value = (k <= i).where(param(1, n).index(k, k <= i), 0.0)
    return kernel(param(0, n).index(i).store(reduce(value, k)).end(i))


def halves(n: int = 70) -> UOp:
    """y = concat(a, b): two masks that part a range"""
    i = loop(2 * n, 0)
    first = i < n
    a = first.where(param(1, n).index(i, first), 0.0)
    second = first.logical_not()
    b = second.where(param(2, n).index(i + -n, second), 0.0)
    return kernel(param(0, 2 * n).index(i).store(a + b).end(i))


MAKERS: tuple[Callable[[], UOp], ...] = (
    elementwise,
    two_axes,
    fused,
    scalar,
    one_sized,
    empty,
    reduce_all,
    reduce_rows,
    places,
    places_in_columns,
    reduce_columns,
    reduce_empty,
    matmul,
    matmul_transposed,
    convolution,
    transpose,
    flip,
    gather,
    scatter,
    scatter_one_place,
    copy_then_scatter,
    several_outputs,
    pad_and_sum,
    softmax,
    dear_rows,
    one_hot_matmul,
    arange,
    reshape_split,
    bytes_sum,
    in_place,
    old_value,
    dot,
    running_count,
    halves,
)
KERNELS: dict[str, Callable[[], UOp]] = {maker.__name__: maker for maker in MAKERS}

_NUMPY: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float64": np.float64,
    "int32": np.int32,
    "int64": np.int64,
}
_NUMPY |= {"float16": np.float16, "uint8": np.uint8, "bool": np.bool_, "int8": np.int8}


def buffers_for(sink: UOp, seed: int = 0) -> list[Array]:
    """Buffers for all params of a kernel: small whole numbers, so that float sums are exact."""
    random = np.random.default_rng(seed)
    params = {n.arg.slot: n for n in sink.toposort() if n.op is Ops.PARAM}
    result: list[Array] = []
    for slot in range(max(params) + 1):
        node = params.get(slot)
        size, dtype = (node.arg.size, node.dtype.name) if node is not None else (0, "float32")
        low, high = (0, 11) if dtype in ("int64", "uint8") else (-8, 9)
        result.append(random.integers(low, high, size).astype(_NUMPY[dtype]))
    return result
