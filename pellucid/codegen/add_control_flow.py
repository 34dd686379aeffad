"""Fix the order of loops that data alone leaves open, and give each END one loop to close.

NATIVE form -> NATIVE form.

    before    SINK(END(STORE(y[i], …), i, j), STORE(z[0], y[3]))
    after     first = END(END(STORE(y[i], …), j), i)
              SINK(first, STORE(z[0], LOAD(AFTER(y, first)[3])))

Effects of a SINK stand in order. One that touches storage which an earlier one wrote, or writes
what an earlier one read, waits for it: its PARAM becomes AFTER(PARAM, earlier effect). All other
order is data dependence, which `linearize` reads from the graph.
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.transform import rebuild, transform
from pellucid.ir.uop import UOp


def add_control_flow(sink: UOp, target: Target) -> UOp:
    """Order the effects of a kernel and nest its loops."""
    sink = transform(sink, _nested, (Ops.END,))
    return sink.with_sources(tuple(_in_order(sink.src))) if len(sink.src) > 1 else sink


def _nested(node: UOp) -> UOp:
    """An END for each loop, the last range innermost."""
    if node.op is not Ops.END:
        return node
    body, *ranges = node.src
    for axis in reversed(ranges):
        body = body.end(axis)
    return body


def _in_order(effects: tuple[UOp, ...]) -> list[UOp]:
    ordered: list[UOp] = []
    reads: dict[UOp, list[UOp]] = {}
    writes: dict[UOp, list[UOp]] = {}
    for effect in effects:
        stored, loaded = _accesses(effect)
        before_read = {p: p.after(*writes[p]) for p in loaded if p in writes}
        before_write = {
            p: p.after(*dict.fromkeys(writes.get(p, []) + reads.get(p, [])))
            for p in stored
            if p in writes or p in reads
        }
        if before_read or before_write:
            effect = _wait(effect, before_read, before_write)
        for param in stored:
            writes.setdefault(param, []).append(effect)
        for param in loaded:
            reads.setdefault(param, []).append(effect)
        ordered.append(effect)
    return ordered


def _wait(effect: UOp, before_read: dict[UOp, UOp], before_write: dict[UOp, UOp]) -> UOp:
    """Let the reads and the writes of *effect* wait for what stands in front of them."""
    places: dict[UOp, UOp] = {}  # what a STORE goes to

    def waiting(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        if node.op is Ops.STORE:
            return node.with_sources((places[node.src[0]], *sources[1:]))
        after = node.with_sources(sources)
        if node.op is Ops.INDEX:
            places[node] = _redirected(after, before_write)
            return _redirected(after, before_read)
        return after

    return rebuild(effect, waiting)


def _redirected(index: UOp, waits: dict[UOp, UOp]) -> UOp:
    storage = _storage(index)
    if storage not in waits:
        return index
    return index.with_sources((index.src[0].substitute({storage: waits[storage]}), *index.src[1:]))


def _accesses(effect: UOp) -> tuple[list[UOp], list[UOp]]:
    """The PARAMs that an effect writes and those that it reads, by slot."""
    nodes = effect.toposort()
    found = []
    for op in (Ops.STORE, Ops.LOAD):
        params = {_storage(n.src[0]) for n in nodes if n.op is op}
        found.append(sorted((p for p in params if p.op is Ops.PARAM), key=lambda p: p.arg.slot))
    return found[0], found[1]


def _storage(index: UOp) -> UOp:
    while index.op is Ops.AFTER or index.op is Ops.INDEX:
        index = index.src[0]
    return index
