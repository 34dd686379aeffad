"""Products of matrices as kernels, as they are written, and machines that they are planned for."""

from __future__ import annotations

import dataclasses

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.interpret import run_kernel
from pellucid.ir.uop import UOp
from tests.codegen import kernels
from tests.codegen.lowering import TARGET

ONE_CORE = dataclasses.replace(TARGET, cores=1)
SMALL_CACHE = dataclasses.replace(ONE_CORE, l1d_bytes=1024, l2_bytes=2048)
"""With so little cache, matrices that a test can interpret are packed, blocked and streamed."""
AVX2 = dataclasses.replace(
    ONE_CORE,
    features=frozenset({"avx2", "fma"}),
    l1d_bytes=32 << 10,
    l2_bytes=512 << 10,
    l3_bytes=32 << 20,
)
"""16 registers of 8 lanes: panels of 16 columns, several of them side by side."""
SMALL_AVX2 = dataclasses.replace(AVX2, l1d_bytes=1024, l2_bytes=8192, l3_bytes=32 << 10)


def batched(count: int = 3, rows: int = 5, inner: int = 6, columns: int = 16) -> UOp:
    """c[b, i, j] = sum over k of a[b, i, k] * b[b, k, j]"""
    b, i, j = (kernels.loop(n, number) for number, n in enumerate((count, rows, columns)))
    k = kernels.axis(inner, 3)
    left = kernels.param(1, count * rows * inner).index((b * rows + i) * inner + k)
    right = kernels.param(2, count * inner * columns).index((b * inner + k) * columns + j)
    place = kernels.param(0, count * rows * columns).index((b * rows + i) * columns + j)
    return kernels.kernel(place.store(kernels.reduce(left * right, k)).end(b, i, j))


def halves(rows: int, inner: int, columns: int) -> UOp:
    """c[i, j] = sum over k of a[i, k] * b[k, j], of float16, added in float32"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner, dtypes.float16).index(i * inner + k)
    b = kernels.param(2, inner * columns, dtypes.float16).index(k * columns + j)
    value = kernels.reduce(a.cast(dtypes.float32) * b.cast(dtypes.float32), k)
    place = kernels.param(0, rows * columns, dtypes.float16).index(i * columns + j)
    return kernels.kernel(place.store(value.cast(dtypes.float16)).end(i, j))


def over_two_axes(rows: int, heads: int, size: int, columns: int) -> UOp:
    """c[i, j] = sum over h, k of a[h, i, k] * b[j, h * size + k]"""
    i, j = kernels.loop(rows, 0), kernels.loop(columns, 1)
    h, k = kernels.axis(heads, 2), kernels.axis(size, 3)
    a = kernels.param(1, rows * heads * size).index((h * rows + i) * size + k)
    b = kernels.param(2, columns * heads * size).index((j * heads + h) * size + k)
    value = kernels.reduce(a * b, h, k)
    place = kernels.param(0, rows * columns).index(i * columns + j)
    return kernels.kernel(place.store(value).end(i, j))


def two_rows(outer: int, rows: int, inner: int, columns: int) -> UOp:
    """c[b, i, j] = sum over k of a[i, b, k] * b[k, j]"""
    b, i, j = (kernels.loop(n, number) for number, n in enumerate((outer, rows, columns)))
    k = kernels.axis(inner, 3)
    left = kernels.param(1, outer * rows * inner).index((i * outer + b) * inner + k)
    right = kernels.param(2, inner * columns).index(k * columns + j)
    place = kernels.param(0, outer * rows * columns).index((b * rows + i) * columns + j)
    return kernels.kernel(place.store(kernels.reduce(left * right, k)).end(b, i, j))


def vector_times_matrix(inner: int, columns: int, dtype: DType = dtypes.float32) -> UOp:
    """y[j] = sum over k of x[k] * m[k, j]"""
    j, k = kernels.loop(columns, 0), kernels.axis(inner, 1)
    x = kernels.param(1, inner, dtype).index(k)
    m = kernels.param(2, inner * columns, dtype).index(k * columns + j)
    y = kernels.param(0, columns, dtype).index(j)
    return kernels.kernel(y.store(kernels.reduce(x * m, k)).end(j))


def transposed_left(rows: int, inner: int, columns: int) -> UOp:
    """c[i, j] = sum over k of a[k, i] * b[k, j]"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner).index(k * rows + i)
    b = kernels.param(2, inner * columns).index(k * columns + j)
    place = kernels.param(0, rows * columns).index(i * columns + j)
    return kernels.kernel(place.store(kernels.reduce(a * b, k)).end(i, j))


def by_itself(size: int, form: str) -> UOp:
    """c = a @ a, a @ a.T or a.T @ a, of one parameter."""
    i, j, k = kernels.loop(size, 0), kernels.loop(size, 1), kernels.axis(size, 2)
    a = kernels.param(1, size * size)
    left = a.index(k * size + i) if form == "transposed first" else a.index(i * size + k)
    right = a.index(j * size + k) if form == "transposed second" else a.index(k * size + j)
    place = kernels.param(0, size * size).index(i * size + j)
    return kernels.kernel(place.store(kernels.reduce(left * right, k)).end(i, j))


def with_epilogue(rows: int, inner: int, columns: int) -> UOp:
    """c[i, j] = max(sum over k of a[i, k] * b[k, j] + bias[j], 0)"""
    i, j, k = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.axis(inner, 2)
    a = kernels.param(1, rows * inner).index(i * inner + k)
    b = kernels.param(2, inner * columns).index(k * columns + j)
    value = kernels.reduce(a * b, k) + kernels.param(3, columns).index(j)
    place = kernels.param(0, rows * columns).index(i * columns + j)
    return kernels.kernel(place.store(value.maximum(0.0)).end(i, j))


def sum_of_columns(rows: int, columns: int) -> UOp:
    """y[j] = sum over i of x[i, j]"""
    j, k = kernels.loop(columns, 0), kernels.axis(rows, 1)
    value = kernels.reduce(kernels.param(1, rows * columns).index(k * columns + j), k)
    return kernels.kernel(kernels.param(0, columns).index(j).store(value).end(j))


def outputs(sink: UOp, buffers: list[kernels.Array]) -> kernels.Array:
    """What a kernel writes to its first buffer."""
    copies = [b.copy() for b in buffers]
    run_kernel(sink, copies)
    return copies[0]


def check_value(sink: UOp, after: UOp) -> None:
    """Both kernels give the same, as inputs are small integers."""
    buffers = kernels.buffers_for(sink)
    np.testing.assert_array_equal(outputs(after, buffers), outputs(sink, buffers))
