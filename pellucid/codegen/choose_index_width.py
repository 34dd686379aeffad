"""Give every `index` a width: 32 bits where bounds prove that this is enough, else 64.

VECTOR form -> SCALAR form.

    before    x[i * 70000 + j]     index, i < 70000
    after     x[CAST(i, int64) * 70000 + CAST(j, int64)]

    before    x[i * 4 + j]         index, i < 100          after    the same in int32

A width is a property of one node: it holds the node's own values and is no narrower than its
sources'. A value cast to `index` keeps its type when that is one of the two.
"""

from __future__ import annotations

from pellucid.core.dtype import DType, Kind, dtypes
from pellucid.core.target import Target
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.transform import rebuild
from pellucid.ir.uop import UOp


def choose_index_width(sink: UOp, target: Target) -> UOp:
    """Replace the type `index` by int32 or int64 everywhere."""
    return rebuild(sink, _with_width)


def _own_width(node: UOp) -> DType:
    """The narrowest type that holds all values of an index."""
    low, high = bounds(node)
    return dtypes.int32 if low >= -(2**31) and high < 2**31 else dtypes.int64


def _with_width(node: UOp, sources: tuple[UOp, ...]) -> UOp:
    was_index = [s.dtype.kind is Kind.INDEX for s in node.src]
    if True not in was_index and node.dtype.kind is not Kind.INDEX:
        return node.with_sources(sources)
    if node.op is Ops.CAST and node.dtype.is_index:
        return _from_value(node, sources[0])
    if node.op is Ops.RANGE or node.op is Ops.SPECIAL:
        width = _wider(_own_width(node), sources[0].dtype)
        return UOp(node.op, width, (sources[0].cast(width),), node.arg)
    if node.op is Ops.CAST:
        return sources[0].cast(node.dtype.scalar)  # to the width it has now: no cast at all
    if not node.dtype.is_index and not node.op.is_elementwise:
        return node.with_sources(sources)
    widths = [s.dtype for s, was in zip(sources, was_index, strict=True) if was]
    width = _wider(_own_width(node) if node.dtype.is_index else dtypes.int32, *widths)
    pairs = zip(sources, was_index, strict=True)
    sources = tuple([_cast_index(s, width) if was else s for s, was in pairs])
    dtype = width.vec(node.dtype.lanes) if node.dtype.is_index else node.dtype
    return UOp(node.op, dtype, sources, node.arg)


def _wider(*given: DType) -> DType:
    for dtype in given:
        if dtype.scalar is dtypes.int64:
            return dtypes.int64
    return dtypes.int32


def _cast_index(node: UOp, width: DType) -> UOp:
    if node.op is Ops.CONST:
        return UOp.const(width.vec(node.dtype.lanes), node.arg)
    return node.cast(width)


def _from_value(node: UOp, value: UOp) -> UOp:
    """An integer used as an index: kept if it is int32 or int64, else cast."""
    if value.dtype.scalar in (dtypes.int32, dtypes.int64):
        return value
    return value.cast(_own_width(node.src[0]))
