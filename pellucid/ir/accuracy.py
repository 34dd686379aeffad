"""How far functions of floats may be from the exact result: what is promised, and may be relied on.

    sin of float32     within 2 units in the last place: what a program may count on (semantics.md)
    exp of float32     within 1: what the compiler itself counts on, where it scales sums

Whoever spells a function keeps the promise, whatever the target has or lacks: with fused products
or without. `tests/codegen/test_functions.py` holds all spellings against this table. What follows
from it is computed from it, as the number of parts of an online softmax (opt/actions/online.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.op import Op, Ops

SINGLE_ULPS: Final = 2.0
DOUBLE_ULPS: Final = 4.0
"""What semantics.md promises for float32 and float64, over the whole finite range."""

CLOSER: Final[Mapping[tuple[Op, DType], float]] = {(Ops.EXP, dtypes.float32): 1.0}
"""Functions that something in the compiler needs closer than that."""


def most_ulps(op: Op, dtype: DType) -> float:
    """The largest error of a function, in units in the last place.

    >>> most_ulps(Ops.EXP, dtypes.float32), most_ulps(Ops.SIN, dtypes.float64)
    (1.0, 4.0)
    """
    general = DOUBLE_ULPS if dtype.bits == 64 else SINGLE_ULPS
    return CLOSER.get((op, dtype), general)
