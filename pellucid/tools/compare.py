"""Run a kernel in any form, and its machine code, on the same inputs, and compare what they write.

    arrays = inputs(ast, seed=0)              one array a parameter, the same in every process
    interpreted(stage.after, arrays)          what the interpreter makes of them
    executed(program, arrays, "CPU")          what the machine code makes of them
    difference(ast, expected, got)            None, or a sentence about what differs first

Whole numbers have to agree in every bit. Floats may differ by a few roundings: stages that lower
reductions are free to change the order of a sum, and functions such as exp are spelled with exact
ops at some stage, within the bounds of semantics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ExecutionError
from pellucid.ir.arg import ProgramInfo
from pellucid.ir.interpret import from_storage, run_kernel, to_storage
from pellucid.ir.interpret.values import storage_dtype
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device
from pellucid.tools.kernels import params_of

Array = np.ndarray[Any, Any]

_ROUNDINGS: Final = 64
_SMALL: Final = (-4, 12)
_SHARE_OF_EXTREMES: Final = 0.02


def inputs(ast: UOp, seed: int) -> list[Array]:
    """Values for every parameter of a kernel, as they lie in memory.

    Whole numbers are mostly small, as indices and divisors are; some stand at the ends of a type.
    """
    numbers = np.random.default_rng(seed)
    return [_values(param.dtype, param.size, numbers) for param in params_of(ast)]


def _values(dtype: DType, size: int, numbers: np.random.Generator) -> Array:
    if dtype.is_bool:
        return numbers.integers(0, 2, size).astype(np.bool_)
    if dtype.is_float:
        return to_storage(dtype, numbers.standard_normal(size))
    low, high = int(dtype.min), int(dtype.max)
    small = numbers.integers(max(low, _SMALL[0]), _SMALL[1], size)
    values = small.astype(storage_dtype(dtype))
    extreme = numbers.random(size) < _SHARE_OF_EXTREMES
    values[extreme] = np.where(numbers.random(int(extreme.sum())) < 0.5, low, high)
    return values


def interpreted(root: UOp, arrays: Sequence[Array]) -> list[Array]:
    """What the interpreter leaves in a copy of *arrays* after running a kernel in any form."""
    copies = [array.copy() for array in arrays]
    run_kernel(root, copies)
    return copies


def executed(program: UOp, arrays: Sequence[Array], device: str) -> list[Array]:
    """What the machine code of a PROGRAM leaves in a copy of *arrays*."""
    info: ProgramInfo = program.arg
    if info.variables:
        raise ExecutionError(f"kernel {info.name} needs values for its variables", at=None)
    binary = next(source.arg for source in program.src if source.op is Ops.BINARY)
    # as plain bytes: a parameter that was folded away has no type in the program any more
    buffers = [Buffer(device, array.nbytes, dtypes.uint8) for array in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        if array.size:
            buffer.copy_from(array.view(np.uint8))
    loaded = Device[device].load(binary, info.name)
    used = buffers[: len(info.param_sizes)]
    loaded(used, num_threads=info.num_threads, scratch_bytes=info.scratch_bytes)
    pairs = zip(buffers, arrays, strict=True)
    return [b.as_numpy().copy().view(a.dtype) if a.size else a for b, a in pairs]


def difference(ast: UOp, expected: Sequence[Array], got: Sequence[Array]) -> str | None:
    """Say where two results of a kernel differ more than they may; None where they agree."""
    for slot, param in enumerate(params_of(ast)):
        text = value_difference(param.dtype, expected[slot], got[slot])
        if text is not None:
            return f"parameter {slot}, {text}"
    return None


def value_difference(dtype: DType, expected: Array, got: Array) -> str | None:
    """Say which element of a parameter differs first.

    >>> value_difference(dtypes.int8, np.array([1, 2], np.int8), np.array([1, 3], np.int8))
    'element 1: expected 2, got 3 (1 of 2 elements differ)'
    """
    left, right = from_storage(dtype, expected), from_storage(dtype, got)
    wrong = _differs(dtype, left, right)
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"element {first}: expected {left[first]}, got {right[first]} ({count})"


def _differs(dtype: DType, left: Array, right: Array) -> Array:
    if not dtype.is_float:
        return np.asarray(left != right)
    left, right = left.astype(np.float64), right.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    finite = np.abs(left[np.isfinite(left)])
    scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        close = np.abs(left - right) <= _ROUNDINGS * dtype.epsilon * np.maximum(np.abs(left), scale)
    wrong: Array = np.logical_not(same | close)
    return wrong
