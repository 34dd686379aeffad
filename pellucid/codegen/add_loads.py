"""Make every read explicit.

    before    x[i] + 1                          after    LOAD(x[i]) + 1
              STORE(y[i], x[i])                          STORE(y[i], LOAD(x[i]))

An INDEX that a STORE writes to stays as it is. In an ordered kernel (see KernelInfo) a read of
storage that the same loop writes is pinned inside of that loop, and never moved over the writes:

    before    END(STORE(y[0], y[0] + x[i]), i)
    after     END(STORE(y[0], LOAD(AFTER(y, i)[0]) + LOAD(x[i])), i)
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.transform import rebuild
from pellucid.ir.uop import UOp


def add_loads(sink: UOp, target: Target) -> UOp:
    """Put a LOAD on every INDEX that is used as a value."""
    if sink.arg is not None and sink.arg.ordered:
        sink = _pin_reads(sink)
    return rebuild(sink, _with_loads)


def _with_loads(node: UOp, sources: tuple[UOp, ...]) -> UOp:
    first = 1 if node.op is Ops.STORE or node.op is Ops.LOAD else 0
    read = [s.load() if s.op is Ops.INDEX else s for s in sources[first:]]
    return node.with_sources((*sources[:first], *read))


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

    def pinned(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        if node.op is Ops.INDEX and node.src[0] in written:
            sources = (sources[0].after(*ranges), *sources[1:])
        if node.op is Ops.STORE and node.src[0] in targets:
            place = sources[0].with_sources((node.src[0].src[0], *sources[0].src[1:]))
            sources = (place, *sources[1:])
        return node.with_sources(sources)

    return effect.with_sources((rebuild(effect.src[0], pinned), *effect.src[1:]))
