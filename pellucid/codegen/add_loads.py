"""Make every read explicit.

    before    x[i] + 1                          after    LOAD(x[i]) + 1
              STORE(y[i], x[i])                          STORE(y[i], LOAD(x[i]))

An INDEX that a STORE writes to stays as it is. In an ordered kernel (see KernelInfo) a read of storage that the same
loop writes is pinned inside of that loop, as it may not be moved over the writes:

    before    END(STORE(y[0], y[0] + x[i]), i)     after    END(STORE(y[0], LOAD(AFTER(y, i)[0]) + LOAD(x[i])), i)
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def add_loads(sink: UOp, target: Target) -> UOp:
    """Put a LOAD on every INDEX that is used as a value."""
    if sink.arg is not None and sink.arg.ordered:
        sink = _pin_reads(sink)
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        sources = [done[s] for s in node.src]
        reads = node.op is not Ops.LOAD
        first = 1 if node.op is Ops.STORE or not reads else 0
        for position in range(first, len(sources)):
            if sources[position].op is Ops.INDEX:
                sources[position] = sources[position].load()
        done[node] = node.with_sources(tuple(sources))
    return done[sink]


def _pin_reads(sink: UOp) -> UOp:
    """Hold reads of what a loop writes inside of that loop."""
    return sink.with_sources(tuple(_pin_effect(effect) for effect in sink.src))


def _pin_effect(effect: UOp) -> UOp:
    if effect.op is not Ops.END:
        return effect
    stores = [n for n in effect.toposort() if n.op is Ops.STORE]
    written = {n.src[0].src[0] for n in stores}
    targets = {n.src[0] for n in stores}
    ranges = tuple(r for r in effect.src[1:] if r.op is Ops.RANGE)
    done: dict[UOp, UOp] = {}
    for node in effect.src[0].toposort():
        new = node.with_sources(tuple(done[s] for s in node.src))
        if node.op is Ops.INDEX and node.src[0] in written:
            new = new.with_sources((new.src[0].after(*ranges), *new.src[1:]))
        if node.op is Ops.STORE and node.src[0] in targets:
            plain = new.src[0].with_sources((node.src[0].src[0], *new.src[0].src[1:]))
            new = new.with_sources((plain, *new.src[1:]))
        done[node] = new
    return effect.with_sources((done[effect.src[0]], *effect.src[1:]))
