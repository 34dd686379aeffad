"""THREEFRY: the counter-based random block Threefry-2x32 with 20 rounds, in 32-bit adds,
rotations and xors.

    THREEFRY(counter, key): uint64, uint64 -> uint64; of each, word 0 is the low half

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011, section 3.3; known answers from the authors' Random123 package, file
kat_vectors.
"""

from __future__ import annotations

from pellucid.codegen.decompositions.building import literal, shift_left, shift_right
from pellucid.core.dtype import dtypes
from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@rule(Ops.THREEFRY)
def threefry_block(node: UOp) -> UOp:
    """Five groups of four rounds, a piece of the key added after each."""
    (x0, x1), (key0, key1) = (_halves(source) for source in node.src)
    keys = (key0, key1, key0 ^ key1 ^ literal(key0, _PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for count in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (shift_left(x1, count) | shift_right(x1, 32 - count)) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + literal(x1, group + 1)
    return x0.cast(dtypes.uint64) | shift_left(x1.cast(dtypes.uint64), 32)


def _halves(x: UOp) -> tuple[UOp, UOp]:
    return x.cast(dtypes.uint32), shift_right(x, 32).cast(dtypes.uint32)


RULES = [threefry_block]
