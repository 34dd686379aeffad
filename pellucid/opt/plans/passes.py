"""Choose how many rows of local memory are made together, and in which blocks.

A kernel with a row of 512 scores in each turn of i over 512, lanes of 8:

    split(i, 32)     32 rows at a time
    block(i, 64)     64 scores of each of them at a time
    each             every nest of loops by the rules for kernels

With rows of 4096 scores, which do not fit the cache:

    block(i, 64, (512,))     the same, and the softmax of 512 of them at a time (online.py)

So many rows that they are lanes, a few vectors of them; blocks so long that what is loaded for one
is used by many products, and all that a block needs stays in the first cache.
"""

from __future__ import annotations

from pellucid.core.errors import ActionError
from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import buffer_of, buffer_uses
from pellucid.opt.actions.online import most_parts, read_online
from pellucid.opt.actions.values import row_values
from pellucid.opt.axes import end_of, size_of
from pellucid.opt.plans.plan import Plan

VECTORS = 4
"""How many vectors of rows are made together."""
LENGTH = 64
"""How long a block of a row is."""
PART = 4
"""What part of the second cache the rows take that an online softmax keeps."""
BLOCKS = "what a block needs stays in cache"
PARTS = "whole rows do not fit the cache, so a softmax is made part by part"


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
        reason = PARTS if extra else BLOCKS
        plan.do("block", number, block, reason, extra)


def _part_of_rows(plan: Plan, number: int, block: int, length: int) -> tuple[int, ...]:
    """How long the parts of an online softmax are; nothing where rows fit the cache as they are."""
    axis, effect = plan.axis(number), plan.sink.src[0]
    action = Action("block", 0, block)
    end = end_of(plan.sink, axis) or effect
    try:
        values = row_values(end.src[0], action, axis)
        rows = sum(v.node.dtype.itemsize for v in values if v.kept) * (size_of(axis) or 1)
        if rows * length <= plan.target.l2_bytes // 2:
            return ()
        read_online(values, action)
    except ActionError:
        return ()
    least = -(-length // most_parts(length))
    wanted = max(least, plan.target.l2_bytes // PART // rows)
    return (min(-(-wanted // block) * block, length),)


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
