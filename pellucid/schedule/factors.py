"""Factors of matrix products that are converted to a wider type: bfloat16 to float32, say.

    REDUCE(CAST(a) * CAST(b), one axis)   ->   both CASTs, whatever movement stands between

A product copies what it reads to where its loops want it, and converts it on the way (opt/narrow).
To store the converted matrix before would take a kernel and twice the memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def narrow_factors(order: Iterable[UOp]) -> frozenset[UOp]:
    """The conversions whose values are the two factors of a product of different matrices."""
    found: set[UOp] = set()
    for node in order:
        if node.op is Ops.REDUCE and node.arg.op is Ops.ADD and node.src[0].op is Ops.MUL:
            sides = [_below_movement(side) for side in node.src[0].src]
            if len(node.arg.axes) == 1 and all(map(_widens, sides)) and not _are_one(*sides):
                found.update(sides)
    return frozenset(found)


def _below_movement(node: UOp) -> UOp:
    while node.op.is_movement and node.op is not Ops.PAD:
        node = node.src[0]
    return node


def _are_one(left: UOp, right: UOp) -> bool:
    """True where a matrix is multiplied by itself: one copy would have to serve both sides."""
    return _below_movement(left.src[0]) is _below_movement(right.src[0])


def _widens(node: UOp) -> bool:
    """True for a conversion that loses nothing, between floats or between integers."""
    if node.op is not Ops.CAST:
        return False
    narrow, wide = node.src[0].dtype, node.dtype
    if narrow.is_float and wide.is_float:
        return narrow.bits < wide.bits
    both = narrow.is_int and wide.is_int
    return both and wide.min < narrow.min and narrow.max < wide.max


def reads_plainly(use: tuple[tuple[UOp, ...], UOp | None]) -> bool:
    """True where the indices are loops as they stand, as in a matrix product, without validity.

    Windows, as of convolutions, have sums of loops there.
    """
    indices, valid = use
    return valid is None and all(i.op is Ops.RANGE or i.is_const for i in indices)
