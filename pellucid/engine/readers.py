"""Who reads a buffer that a write is about to change, and what becomes of them.

    loss = f(w, x); loss.backward(); optimizer.step()      step writes to w, loss still reads w

A lazy value sees its sources as they were when it was built. So a reader of a written buffer either
keeps that buffer as it is, and the write goes to a new one, or it is computed by the schedule that
writes, before the write. The second is chosen where that schedule does most of the reader's work
anyway: a loss shares everything up to the last layer with its gradient. Else the same forward pass
would be compiled and run again when the loss is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pellucid.engine.storage import Storage, live_storages
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes

MOST_NEW_WORK: Final = 0.1
"""The part of a reader's work that may be new where it is computed although nobody asked yet: that
of a loss is, that of a gradient of the input is not."""


def computed_before(writers: Sequence[Storage], written: set[UOp]) -> list[Storage]:
    """The lazy values that are computed along with *writers*, as those overwrite what they read.

    written: the buffers that change. Each value is no larger than those of them that would have to
    be kept for it, and little of its work is new.
    """
    device = writers[0].device
    nodes = all_nodes(storage.uop for storage in writers)
    if not written:
        return []
    shared, asked = set(nodes), set(writers)
    others = [s for s in live_storages() if s not in asked and s.device == device]
    return [s for s in others if not s.is_realized and _is_mostly_shared(s.uop, shared, written)]


def _is_mostly_shared(value: UOp, shared: set[UOp], written: set[UOp]) -> bool:
    """Tell whether *value* reads a written buffer and costs little where *shared* is computed."""
    order = value.toposort()
    new = [node for node in order if node not in shared]
    if any(node.op is Ops.WRITE or node.op is Ops.CHECK for node in new):
        return False
    kept_bytes = sum(n.num_elems * n.dtype.itemsize for n in order if n in written)
    if value.num_elems * value.dtype.itemsize > kept_bytes:
        return False
    return sum(map(_work_of, new)) <= MOST_NEW_WORK * sum(map(_work_of, order))


def _work_of(node: UOp) -> int:
    """About how many elements an op works on; movement is free."""
    if node.op is Ops.REDUCE:
        return node.src[0].num_elems
    return node.num_elems if node.op.is_elementwise and node.shape is not None else 0
