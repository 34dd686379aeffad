"""Do what the hints of a kernel advise: ask for memory ahead of its use, write past the caches.

NATIVE form -> NATIVE form. With the hints `prefetch` of slot 1, 1024 elements ahead, and `stream`
of slot 0, before and after:

    END(STORE(y[i * 8], LOAD(x[i * 8]) * k), i)

    END(GROUP(STORE(y[i * 8], LOAD(x[i * 8]) * k, arg='stream'), PREFETCH(x[i * 8 + 1024])), i)

A parameter that several loops touch is asked for in one of them: the one that touches most of it,
and of equals the last, which leaves the lines most time to arrive before they are needed. One
PREFETCH is made for each line that a turn of the loop touches. What lies ahead of the last turn is
outside of the storage; a PREFETCH of it does nothing. With `seek` instead of `prefetch`, the index
that says which row is touched is read for a later turn, and that row is asked for.

Only whole vectors that lie on their alignment within the parameter are written past the caches;
whether the parameter itself is aligned is asked where the program runs.

Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter "Optimizing Cache
Usage" (prefetching by software, non-temporal stores).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pellucid.core.target import Target
from pellucid.ir.arg import Hint
from pellucid.ir.bounds import alignment, bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.transform import rebuild
from pellucid.ir.uop import UOp

LEAST_STREAMED_BYTES = 16
"""The smallest vector that a processor writes past its caches."""


def follow_hints(sink: UOp, target: Target) -> UOp:
    """Add the PREFETCHes, and mark the STOREs, that the hints of a kernel ask for."""
    hints: tuple[Hint, ...] = sink.arg.hints
    streamed = {h.slot for h in hints if h.kind == "stream"}
    ahead = [h for h in hints if h.kind in ("prefetch", "seek")]
    if not hints:
        return sink
    requests: dict[UOp, list[UOp]] = {}
    for hint in ahead:
        for end, prefetch in _prefetches(sink, hint, target.line_bytes):
            requests.setdefault(end, []).append(prefetch)

    def followed(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        if node in requests:
            body = UOp.make(Ops.GROUP, sources[0], *requests[node])
            return node.with_sources((body, *sources[1:]))
        after = node.with_sources(sources)
        return after.replace(arg="stream") if _is_streamed(node, streamed) else after

    return rebuild(sink, followed)


def _is_streamed(node: UOp, slots: set[int]) -> bool:
    """True for a STORE of a whole, aligned vector to one of the parameters at *slots*."""
    if node.op is not Ops.STORE or len(node.src) > 2:
        return False
    index, value = node.src
    storage = _storage(index)
    if storage.op is not Ops.PARAM or storage.arg.slot not in slots:
        return False
    is_wide = value.dtype.itemsize >= LEAST_STREAMED_BYTES
    return is_wide and alignment(index.src[1]) % value.dtype.lanes == 0


def _storage(index: UOp) -> UOp:
    while index.op is Ops.INDEX or index.op is Ops.AFTER:
        index = index.src[0]
    return index


# ---- prefetching -------------------------------------------------------------------------------


def _prefetches(sink: UOp, hint: Hint, line_bytes: int) -> Iterable[tuple[UOp, UOp]]:
    """The PREFETCHes for one hint, each with the END of the loop that it belongs to."""
    nodes = sink.toposort()
    found = _accesses(nodes, hint.slot, Ops.LOAD)
    is_read = bool(found)
    found = found or _accesses(nodes, hint.slot, Ops.STORE)
    ends = [n for n in nodes if n.op is Ops.END]
    loops: dict[UOp, list[UOp]] = {}
    for index in found:
        end = next((e for e in ends if e.src[1] in index.src[1].ranges), None)
        if end is not None:
            loops.setdefault(end, []).append(index)
    if not loops:
        return []
    end = max(loops, key=lambda e: (_bytes_touched(loops[e]), ends.index(e)))
    if hint.kind == "seek":
        places = _lines(_later(loops[end], ends, hint.ahead), 0, line_bytes)
    else:
        places = _lines(loops[end], hint.ahead, line_bytes)
    arg = None if is_read else "write"
    return [(end, UOp.make(Ops.PREFETCH, place, arg=arg)) for place in places]


def _accesses(nodes: list[UOp], slot: int, op: Op) -> list[UOp]:
    """The INDEXes at which the parameter at *slot* is read or written."""
    indices = dict.fromkeys(n.src[0] for n in nodes if n.op is op)
    storages = {i: _storage(i) for i in indices}
    return [i for i, s in storages.items() if s.op is Ops.PARAM and s.arg.slot == slot]


def _bytes_touched(indices: list[UOp]) -> int:
    """How much all turns of the loops around some accesses touch."""
    return sum(
        i.dtype.itemsize * math.prod(bounds(r).max + 1 for r in i.src[1].ranges) for i in indices
    )


def _later(indices: list[UOp], ends: list[UOp], turns: int) -> list[UOp]:
    """The INDEXes of later turns of the loop in which the places are read; those of the last one
    ask for the last turn again.
    """
    found: list[UOp] = []
    for index in indices:
        below = index.src[1].toposort()
        read_in = {r for n in below if n.op is Ops.LOAD for r in n.ranges}
        axis = next((e.src[1] for e in ends if e.src[1] in read_in), None)
        if axis is not None and axis.src[0].is_const and not any(n.op is Ops.AFTER for n in below):
            later = (axis + turns).minimum(int(axis.src[0].arg) - 1)
            found.append(_storage(index).index(index.src[1].substitute({axis: later})))
    return found


def _lines(indices: list[UOp], ahead: int, line_bytes: int) -> list[UOp]:
    """An INDEX *ahead* of each line that the accesses touch, as far as one can see from literals.

    Where the integer that holds the place could overflow, there is none.
    """
    found: dict[tuple[UOp, int], UOp] = {}
    for index in indices:
        storage, place = _storage(index), index.src[1]
        base, step = place, 0
        if place.op is Ops.ADD and place.src[1].is_const:
            base, step = place.src[0], int(place.src[1].arg)
        if bounds(place).max + ahead > int(place.dtype.max):
            continue
        line = step * storage.dtype.itemsize // line_bytes
        found.setdefault((base, line), storage.index(place + ahead))
    return list(found.values())
