"""Small TENSOR graphs, and the check that a schedule computes what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import ReduceArg
from pellucid.ir.form import SCHEDULE
from pellucid.ir.interpret import evaluate_all, run_schedule
from pellucid.ir.interpret.values import storage_dtype
from pellucid.ir.op import Op, Ops, Shape
from pellucid.ir.uop import UOp, new_buffer
from pellucid.ir.verify import verify
from pellucid.schedule import Scheduled, schedule


def tensor(shape: Shape, dtype: DType = dtypes.float32, device: str = "CPU") -> UOp:
    """A whole buffer, seen in *shape*."""
    return new_buffer(int(np.prod(shape, dtype=np.int64)), dtype, device).reshape(shape)


def buffer_of(node: UOp) -> UOp:
    """The BUFFER below RESHAPEs."""
    while node.op is not Ops.BUFFER:
        assert node.op is Ops.RESHAPE, node
        node = node.src[0]
    return node


def reduce(x: UOp, *axes: int, op: Op = Ops.ADD) -> UOp:
    """REDUCE over *axes*, which go away."""
    return UOp.make(Ops.REDUCE, x, arg=ReduceArg(op, axes))


def spread(x: UOp, shape: Shape) -> UOp:
    """Broadcast as numpy does."""
    lead = len(shape) - len(x.known_shape)
    return x.reshape((1,) * lead + x.known_shape).expand(shape)


def keep(x: UOp, axis: int, size: int) -> UOp:
    """Put back an axis that a reduction took, *size* times."""
    shape = x.known_shape
    wide = (*shape[:axis], 1, *shape[axis:])
    return x.reshape(wide).expand((*shape[:axis], size, *shape[axis:]))


def matmul(a: UOp, b: UOp) -> UOp:
    """(n, k) @ (k, m)."""
    (n, k), m = a.known_shape, b.known_shape[1]
    left = a.reshape((n, k, 1)).expand((n, k, m))
    return reduce(left * b.reshape((1, k, m)).expand((n, k, m)), 1)


def exp(x: UOp) -> UOp:
    """e to the x."""
    return UOp.make(Ops.EXP, x)


def write(base: UOp, window: UOp, value: UOp) -> UOp:
    """base with window replaced by value."""
    return UOp.make(Ops.WRITE, base, window, value)


def gather(x: UOp, *indices: UOp) -> UOp:
    """x[i0, i1, …]."""
    return UOp.make(Ops.GATHER, x, *indices)


def scatter(base: UOp, value: UOp, *indices: UOp, op: Op | None = None) -> UOp:
    """base with value at base[i0, …]."""
    return UOp.make(Ops.SCATTER, base, value, *indices, arg=op)


def contents(outputs: Iterable[UOp], seed: int = 0) -> dict[UOp, np.ndarray]:
    """Small whole numbers for each BUFFER: sums and products of them are exact."""
    numbers = np.random.default_rng(seed)
    order = UOp.sink(*outputs).toposort()
    return {
        node: numbers.integers(-4, 5, node.arg.size).astype(storage_dtype(node.dtype))
        for node in order
        if node.op is Ops.BUFFER
    }


def check(
    outputs: Sequence[UOp],
    *,
    pending: frozenset[UOp] = frozenset(),
    memory: dict[UOp, np.ndarray] | None = None,
    rtol: float = 1e-5,
) -> Scheduled:
    """Schedule, run with the interpreter, and compare with what the graph means."""
    before = contents(outputs)
    before.update(memory or {})
    wanted = evaluate_all(list(outputs), before)
    result = schedule(outputs, pending=pending)
    verify(result.linear, SCHEDULE)
    after = {node: values.copy() for node, values in before.items()}
    run_schedule(result.linear, after)
    for output, want in zip(outputs, wanted, strict=True):
        assert result.stored[output].known_shape == output.known_shape
        buffer = buffer_of(result.stored[output])
        got = after[buffer] if output.num_elems else np.zeros(0)
        got = evaluate_all([result.stored[output]], {**after, buffer: got})[0]
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)
    for node in pending & before.keys():
        np.testing.assert_array_equal(after[node], before[node])
    return result


def reasons(result: Scheduled) -> list[str]:
    """Why each CALL is one of its own."""
    return [call.arg.reason for call in result.linear.src]


def kernels(result: Scheduled) -> list[UOp]:
    """The kernel of each CALL."""
    return [call.src[0] for call in result.linear.src]


def num_calls(*outputs: UOp) -> int:
    """How many CALLs a graph takes, after checking that they are right."""
    return len(check(outputs).linear.src)
