"""What the forms of kernels promise of indices, and of what is read and written there.

    index_is_into_storage(INDEX(CONST, i0))  ->  "INDEX into CONST"

Down to VECTOR an INDEX reads by itself; below, LOAD, STORE and PREFETCH do, through it.
"""

from __future__ import annotations

from pellucid.ir.bounds import alignment
from pellucid.ir.checks import Message
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def indices_are_integers(node: UOp) -> Message:
    """INDEX takes integers, and so do the sizes of RANGE and SPECIAL."""
    place = {Ops.INDEX: 1, Ops.RANGE: 0, Ops.SPECIAL: 0}.get(node.op)
    if place is None or node.src[place].dtype.is_int:
        return None
    return f"{node.op.name} by {node.src[place].dtype}"


def index_is_unbounded(node: UOp) -> Message:
    """Addresses and RANGEs are of type index until a width is chosen."""
    place = {Ops.INDEX: 1, Ops.RANGE: 0}.get(node.op)
    if place is None or node.src[place].dtype.is_index:
        return None
    return f"{node.op.name} by {node.src[place].dtype}, before widths are chosen"


def index_is_into_storage(node: UOp) -> Message:
    """INDEX goes into a PARAM or a DEFINE, itself or AFTER something."""
    if node.op is not Ops.INDEX:
        return None
    storage = node.src[0]
    while storage.op is Ops.AFTER:
        storage = storage.src[0]
    return None if storage.op in (Ops.PARAM, Ops.DEFINE) else f"INDEX into {storage.op.name}"


def accesses_go_through_an_index(node: UOp) -> Message:
    """LOAD, STORE and PREFETCH take an INDEX."""
    if node.op not in (Ops.LOAD, Ops.STORE, Ops.PREFETCH) or node.src[0].op is Ops.INDEX:
        return None
    return f"{node.op.name} at {node.src[0].op.name}"


def accesses_fit_their_index(node: UOp) -> Message:
    """What is stored, or taken as fallback, has the type of the INDEX; a gate has its lanes."""
    if node.op not in (Ops.LOAD, Ops.STORE):
        return None
    if len(node.src) > 1 and node.src[1].dtype is not node.src[0].dtype:
        return f"{node.op.name} of {node.src[1].dtype} at an INDEX of {node.src[0].dtype}"
    if len(node.src) > 2 and node.src[2].dtype.lanes != node.src[0].dtype.lanes:
        lanes = node.src[2].dtype.lanes, node.src[0].dtype.lanes
        return f"{node.op.name} with a gate of {lanes[0]} lanes for {lanes[1]}"
    return None


def streamed_stores_are_whole_vectors(node: UOp) -> Message:
    """A streamed STORE goes to a PARAM, ungated, by aligned vectors of 16 bytes or more."""
    if node.op is not Ops.STORE or node.arg is None:
        return None
    index, value = node.src[:2]
    if len(node.src) > 2 or value.dtype.itemsize < 16:
        return f"STORE 'stream' of {value.dtype}" + (" with a gate" if len(node.src) > 2 else "")
    storage = index.src[0]
    while storage.op is Ops.AFTER:
        storage = storage.src[0]
    is_aligned = alignment(index.src[1]) % value.dtype.lanes == 0
    return None if storage.op is Ops.PARAM and is_aligned else "STORE 'stream' off its alignment"


def loads_have_fallback_and_gate(node: UOp) -> Message:
    """A LOAD has a fallback and a gate, or neither."""
    return (
        "LOAD with a fallback and no gate" if node.op is Ops.LOAD and len(node.src) == 2 else None
    )


def reads_are_loads(node: UOp) -> Message:
    """An INDEX is an address: its value is read by a LOAD."""
    if node.op in (Ops.AFTER, Ops.GROUP):
        return None
    used = node.src[1:] if node.op in (Ops.LOAD, Ops.STORE, Ops.PREFETCH) else node.src
    if any(s.op is Ops.INDEX for s in used) and node.op is not Ops.LINEAR:
        return f"{node.op.name} reads an INDEX without a LOAD"
    return None


def no_vector_indices(node: UOp) -> Message:
    """An access of several lanes is side by side in memory, at a scalar index."""
    if node.op is Ops.INDEX and node.src[1].dtype.lanes > 1:
        return f"INDEX by {node.src[1].dtype.lanes} lanes"
    return None


def validity_is_gates(node: UOp) -> Message:
    """INDEX has two sources; what must not be touched is gated at the LOAD and the STORE."""
    return "INDEX with a third source" if node.op is Ops.INDEX and len(node.src) > 2 else None
