"""What a matrix unit computes, on numpy arrays whose last axis is the lanes.

    sum[i, j] = addend[i, j] + left[i, 0] * right[0, j] + left[i, 1] * right[1, j] + …

Products are added one after the other: integers wrap at the width of the sum; floats are multiplied
and added as by MULADD, each step rounded once. Where the elements stand says core/units.py.
"""

from __future__ import annotations

import numpy as np

from pellucid.core.dtype import DType
from pellucid.core.units import MatrixUnit
from pellucid.ir.interpret.arithmetic import meaning
from pellucid.ir.interpret.values import Array, from_storage, value_dtype
from pellucid.ir.op import Ops


def multiply_matrices(
    unit: MatrixUnit, given: tuple[DType, DType], left: Array, right: Array, addend: Array
) -> Array:
    """The sum that a unit leaves; operands may be the bits of the unit's types.

    >>> from pellucid.core.units import MATRIX_UNITS
    >>> from pellucid.core.dtype import dtypes
    >>> a, b = np.int16([2, 3]), np.int16([1, 10] * 4)
    >>> words = (dtypes.int16.vec(2), dtypes.int16.vec(8))
    >>> unit = MATRIX_UNITS["pmaddwd_128"]
    >>> multiply_matrices(unit, words, a, b, np.int32([0, 0, 0, 1])).tolist()
    [32, 32, 32, 33]
    """
    rows, columns, depth, group = unit.rows, unit.columns, unit.depth, unit.group
    total = meaning(Ops.MULADD, unit.sum, (unit.sum,) * 3)
    a = _values(unit.left, given[0], left).astype(value_dtype(unit.sum))
    b = _values(unit.right, given[1], right).astype(value_dtype(unit.sum))
    a = np.broadcast_to(a, (*a.shape[:-1], rows * depth))
    b = np.broadcast_to(b, (*b.shape[:-1], depth * columns))
    a = a.reshape(*a.shape[:-1], rows, depth)
    b = b.reshape(*b.shape[:-1], depth // group, columns, group)
    c = np.broadcast_to(addend, (*addend.shape[:-1], rows * columns))
    c = c.reshape(*c.shape[:-1], rows, columns)
    for k in range(depth):
        c = total(a[..., :, k, None], b[..., k // group, None, :, k % group], c)
    return np.asarray(c.reshape(*c.shape[:-2], rows * columns))


def _values(wanted: DType, given: DType, operand: Array) -> Array:
    """The numbers of an operand, which may have come as bits."""
    return operand if given.scalar is wanted else from_storage(wanted, operand)
