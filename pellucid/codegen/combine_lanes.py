"""Sums of several vectors are made together: lanes of two vectors are added at once.

VECTOR form -> VECTOR form: a part of lower_reductions.py. Where one loop leaves several vectors,
and each of them is added up to one number, before and after, for two vectors of four lanes:

    s = LANE(a, (0, 1)) + LANE(a, (2, 3))         u = (a0, a1, b0, b1) + (a2, a3, b2, b3)
    t = LANE(b, (0, 1)) + LANE(b, (2, 3))         v = (u0, u2, …) + (u1, u3, …)
    LANE(s, 0) + LANE(s, 1)                       LANE(v, 0)
    LANE(t, 0) + LANE(t, 1)                       LANE(v, 1)

Each number is added up in the same order as before. For 16 vectors of 16 lanes, that is 15
additions of vectors and 30 exchanges, of one instruction each, in place of 64 and 128.

Source: the rounds of transpose.py, with an addition after each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

_JOINED = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
_QUAD = 4
"""Lanes of a vector that instructions exchange at once, in pairs of vectors."""

Part = tuple[UOp, list[Hashable]]
"""A vector, and for each lane of it the sum that it is a part of; parts of one stand in order."""


def combine_lanes_together(sink: UOp) -> UOp:
    """Add up the vectors that a loop leaves together, where there are several."""
    groups: dict[tuple[object, ...], dict[UOp, UOp]] = {}
    nodes = sink.toposort()
    for node in nodes:
        vector = _vector_below(node)
        if vector is not None:
            loop = vector.src[0].src[0].src[1:]
            groups.setdefault((node.op, vector.dtype, loop), {})[node] = vector
    group_of = {node: group for group in groups.values() if len(group) > 1 for node in group}
    if not group_of:
        return sink
    done: dict[UOp, UOp] = {}
    for node in nodes:
        if node in done:
            continue
        group = group_of.get(node)
        if group is None:
            done[node] = node.with_sources(tuple([done[s] for s in node.src]))
        else:
            vectors = [_rebuilt(vector, done) for vector in group.values()]
            done.update(zip(group, combined(node.op, vectors), strict=True))
    return done[sink]


def _rebuilt(vector: UOp, done: dict[UOp, UOp]) -> UOp:
    """What an accumulator holds after a loop that is rebuilt already."""
    if vector not in done:
        done[vector] = vector.with_sources(tuple([_rebuilt(s, done) for s in vector.src]))
    return done[vector]


def _vector_below(node: UOp) -> UOp | None:
    """The accumulator that *node* adds up, halves at a time, as `expand_ranges` writes it."""
    op, half = node.op, 1
    if op not in _JOINED or node.dtype.lanes > 1:
        return None
    while node.op is op:
        low, high = node.src
        if low.op is not Ops.LANE or high.op is not Ops.LANE or low.src[0] is not high.src[0]:
            return None
        halves = {tuple(range(half)), tuple(range(half, 2 * half))} if half > 1 else {0, 1}
        node = low.src[0]
        if {low.arg, high.arg} != halves or node.dtype.lanes != 2 * half:
            return None
        half *= 2
    is_left = node.op is Ops.LOAD and len(node.src) == 1 and node.src[0].src[0].op is Ops.AFTER
    return node if half >= _QUAD and is_left else None


def combined(op: Op, vectors: Sequence[UOp]) -> list[UOp]:
    """What each of some vectors adds up to.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.simplify import simplify
    >>> rows = [UOp.const(dtypes.int32.vec(4), tuple(range(n, n + 4))) for n in (0, 4, 8)]
    >>> [simplify(total).arg for total in combined(Ops.ADD, rows)]
    [6, 22, 38]
    """
    half = vectors[0].dtype.lanes // 2
    parts: list[Part] = [(v, [number] * v.dtype.lanes) for number, v in enumerate(vectors)]
    while half:
        if len(parts) % 2:
            vector, sums = parts[-1]
            parts.append((vector, [("again", which) for which in sums]))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_halved(op, left, right, half) for left, right in pairs]
        half //= 2
    totals = {sums[lane]: v.lane(lane) for v, sums in parts for lane in range(len(sums))}
    return [totals[number] for number in range(len(vectors))]


def _halved(op: Op, left: Part, right: Part, half: int) -> Part:
    """Add the second half of each sum's parts to the first; what is left of two vectors is one."""
    lanes = len(left[1])
    width = lanes if half >= _QUAD else _QUAD
    first: list[int] = []
    second: list[int] = []
    sums: list[Hashable] = []
    for start in range(0, lanes, width):
        for offset, (_, of_lane) in ((0, left), (lanes, right)):
            block = range(start, start + width)
            for which in dict.fromkeys([of_lane[n] for n in block]):
                own = [offset + n for n in block if of_lane[n] == which]
                first += own[:half]
                second += own[half:]
                sums += [which] * half
    both = UOp(Ops.STACK, left[0].dtype.scalar.vec(2 * lanes), (left[0], right[0]))
    return both.lane(tuple(first)).alu(op, both.lane(tuple(second))), sums
