"""Turn validity of an INDEX into the gate of its LOAD or STORE, and drop gates that always hold.

SCALAR form -> NATIVE form.

    before    WHERE(v, LOAD(x[i, v]), 7)            after    LOAD(x[i], 7, v)
              STORE(y[i, v], a)                              STORE(y[i], a, v)
              LOAD(x[i, v])     v proved true                LOAD(x[i])

A gate has as many lanes as the value: one for all becomes a SPLAT. `WHERE(v, load, fill)` takes
its fill into the load when the load has the same validity.
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.transform import transform
from pellucid.ir.uop import UOp


def move_validity_into_gates(sink: UOp, target: Target) -> UOp:
    """Make every INDEX one of two sources, with gates on the accesses."""
    if not any(n.op is _WHERE or (n.op is _INDEX and len(n.src) == 3) for n in sink.toposort()):
        return sink
    return transform(sink, _visit, (Ops.LOAD, Ops.STORE, Ops.WHERE))


_INDEX, _WHERE = Ops.INDEX, Ops.WHERE


def _visit(node: UOp) -> UOp:
    if node.op is Ops.LOAD and len(node.src) == 1 and len(node.src[0].src) == 3:
        return _gated_load(node.src[0])
    if node.op is Ops.STORE and len(node.src[0].src) == 3:
        return _gated_store(node)
    if node.op is Ops.WHERE:
        return _take_fill(node)
    return node


def _gated_load(index: UOp) -> UOp:
    storage, position, valid = index.src
    place = index.with_sources((storage, position))
    if always(valid):
        return place.load()
    zero = UOp.const(index.dtype, 0)
    if never(valid):
        return zero
    return place.load(zero, _gate(valid, index.dtype.lanes))


def _gated_store(node: UOp) -> UOp:
    storage, position, valid = node.src[0].src
    place = node.src[0].with_sources((storage, position))
    value = node.src[1]
    if always(valid):
        return place.store(value)
    if never(valid):
        return UOp.make(Ops.GROUP)
    return place.store(value, _gate(valid, value.dtype.lanes))


def _gate(valid: UOp, lanes: int) -> UOp:
    return valid if valid.dtype.lanes == lanes else valid.splat(lanes)


def _take_fill(node: UOp) -> UOp:
    """WHERE(v, LOAD(p, 0, v), fill) is LOAD(p, fill, v)."""
    condition, value, fill = node.src
    if value.op is Ops.LOAD and len(value.src) == 3 and value.src[2] is condition:
        return value.with_sources((value.src[0], fill, condition))
    if always(condition):
        return value
    return fill if never(condition) else node


def always(condition: UOp) -> bool:
    """True where bounds prove the condition."""
    return bounds(condition).min == 1


def never(condition: UOp) -> bool:
    """True where bounds disprove the condition."""
    return bounds(condition).max == 0
