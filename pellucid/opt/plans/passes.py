"""Choose how many rows of local memory are made together, and in which blocks.

A kernel with a row of 512 scores in each turn of i over 512, lanes of 8:

    split(i, 32)     32 rows at a time
    block(i, 64)     64 scores of each of them at a time
    each             every nest of loops by the rules for kernels

With rows of 4096 scores, which do not fit the cache:

    block(i, 64, (512,))     the same, and the softmax of 512 of them at a time (online.py)
    block(i, 64, (0,))       where it is no such softmax: rows are made again by each pass

So many rows that they are lanes, a few vectors of them; blocks so long that what is loaded for one
is used by many products, and all that a block needs stays in the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.core.errors import ActionError
from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import buffer_of, buffer_uses
from pellucid.opt.actions.masked import live_blocks
from pellucid.opt.actions.online import Online, most_parts, read_online
from pellucid.opt.actions.values import RowValue, row_values
from pellucid.opt.axes import end_of, size_of
from pellucid.opt.plans.plan import Plan

VECTORS = 4
"""How many vectors of rows are made together."""
LENGTH = 64
"""How long a block of a row is."""
PART = 4
"""What part of the second cache the rows take that an online softmax keeps."""
SPILL = 1.5
"""How many times the second cache rows may take before making them again is cheaper than to read
them from further away. (Rows of a mask that leaves out blocks are half as long, on average.)"""
BLOCKS = "what a block needs stays in cache"
PARTS = "whole rows do not fit the cache, so a softmax is made part by part"
AGAIN = "whole rows do not fit the cache, so each pass makes its own"


def plan_blocks(plan: Plan) -> None:
    """Split the innermost loop around rows of local memory, and make its rows in blocks."""
    axis = _loop_of_rows(plan.sink)
    if axis is None:
        return
    length = min(buffer_of(fill).arg.size for fill in buffer_uses(plan.sink))
    lanes = plan.target.max_lanes(4)
    size = size_of(axis) or 1
    most = even_part(size, VECTORS * lanes)
    parts = [axis.arg.id]
    if most < size:
        reason = f"rows side by side are {VECTORS} vectors"
        pieces = plan.do("split", axis.arg.id, most, reason)
        parts = [number for number in (pieces.inner, pieces.rest) if number is not None]
    block = even_part(length, LENGTH)
    for number in parts:
        extra = _part_of_rows(plan, number, block, length)
        reason = BLOCKS if not extra else PARTS if extra[0] else AGAIN
        plan.do("block", number, block, reason, extra)


def _part_of_rows(plan: Plan, number: int, block: int, length: int) -> tuple[int, ...]:
    """How long the parts of an online softmax are; nothing where rows are kept from end to end.

    0, where they are too long for that and no softmax that can be online: then no row is kept.
    """
    axis, effect = plan.axis(number), plan.sink.src[0]
    action = Action("block", 0, block)
    end = end_of(plan.sink, axis) or effect
    try:
        values = row_values(end.src[0], action, axis)
    except ActionError:
        return ()
    l2_bytes = plan.target.l2_bytes
    kept = sum(v.node.dtype.itemsize for v in values if v.kept) * (size_of(axis) or 1)
    whole = kept * length
    if whole <= l2_bytes // 2:
        return ()
    spill = SPILL if live_blocks(values, axis, block) is None else 2 * SPILL
    online = _online(values, action)
    is_repeated = online is None or any(v.stage > online.stage for v in online.values)
    if is_repeated and whole <= l2_bytes * spill:
        return ()
    if online is None:
        return (0,)
    least = _least_part(length, block, online)
    wanted = max(least, l2_bytes // PART // kept)
    return (min(-(-wanted // block) * block, length),)


def _least_part(length: int, block: int, online: Online) -> int:
    """How long parts are at least, so that there are not too many; what fills no block is one."""
    most = most_parts(length, online.exponentials.node.dtype)
    return -(-length // max(1, most - bool(length % block)))


def _online(values: Sequence[RowValue], action: Action) -> Online | None:
    """The softmax that can be made part by part, if there is one."""
    try:
        return read_online(values, action)
    except ActionError:
        return None


def _loop_of_rows(sink: UOp) -> UOp | None:
    """The loop in each turn of which rows are filled."""
    effect = sink.src[0] if len(sink.src) == 1 else None
    fills = list(buffer_uses(sink))
    if effect is None or effect.op is not Ops.END:
        return None
    axis = effect.src[-1]
    plain = all(len(fill.src) == 2 and fill.src[1].op is Ops.END for fill in fills)
    if not any(_is_of_products(fill, axis) for fill in fills):
        return None  # nothing that is loaded for one row serves another one
    return axis if plain and any(axis in fill.ranges for fill in fills) else None


def _is_of_products(fill: UOp, axis: UOp) -> bool:
    """True where a row is filled with sums of products, of which one factor serves all rows."""
    below = fill.src[1].toposort(lambda n: n.op is not Ops.AFTER)
    sums = (n for n in below if n.op is Ops.REDUCE and n.arg.op is Ops.ADD)
    factors = (factor for n in sums if n.src[0].op is Ops.MUL for factor in n.src[0].src)
    return any(axis not in factor.ranges and not factor.is_const for factor in factors)


def even_part(size: int, most: int) -> int:
    """How long a part is: a divisor of the size that is at most *most* and not much less.

    >>> [even_part(n, 64) for n in (40, 512, 100, 96, 509)]
    [40, 64, 50, 48, 64]
    """
    if size <= most:
        return size
    return next((n for n in range(most, most // 2, -1) if size % n == 0), most)
