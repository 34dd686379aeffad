"""Realise: turn lazy expressions into values in memory.

    storage.uop = ADD(RESHAPE(BUFFER 1), CONST)      before
    storage.uop = RESHAPE(BUFFER 2)                   after, and BUFFER 2 holds the sum

One call realises any number of expressions as one schedule, so that what they share is computed once.
Storages change only after everything has run: a failure leaves every tensor as it was. A write to a
realised buffer happens in place, unless another lazy value still reads the version before it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np

from pellucid.engine import history
from pellucid.engine.memory import buffer_of
from pellucid.engine.storage import Storage, live_storages, stored_buffer
from pellucid.ir.interpret.tensors import evaluate_all
from pellucid.ir.interpret.values import to_storage
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes, new_buffer

engine_lock = threading.RLock()
"""Held while a schedule is made and run, and while storages change because of it."""


def realize(
    outputs: Sequence[UOp], *, device: str = "CPU", pending: frozenset[UOp] = frozenset()
) -> dict[UOp, UOp]:
    """Compute *outputs*; return for each the node over a BUFFER that has its value.

    *pending*: buffers that must keep their content, because others read it later.
    """
    todo = [node for node in dict.fromkeys(outputs) if stored_buffer(node) is None]
    if not todo:
        return {}
    with engine_lock:
        buffers = {
            node: buffer_of(node).as_numpy() for node in all_nodes(todo) if node.op is Ops.BUFFER
        }
        values = evaluate_all(todo, buffers)
        stored: dict[UOp, UOp] = {}
        for node, value in zip(todo, values, strict=True):
            made = new_buffer(node.num_elems, node.dtype, device)
            buffer_of(made).copy_from(np.asarray(to_storage(node.dtype, value)))
            stored[node] = made.reshape(node.known_shape)
        return stored


def realize_storages(storages: Iterable[Storage]) -> None:
    """Bring the values of *storages* into memory, as one schedule."""
    with engine_lock:
        todo = [s for s in dict.fromkeys(storages) if not s.is_realized]
        if not todo:
            return
        before = {storage: storage.uop for storage in todo}
        tracked = {node for node in before.values() if history.has_past(node)}
        pending = _pending(before, tracked)
        device = todo[0].device
        stored = realize(list(before.values()), device=device, pending=pending)
        for storage, node in before.items():
            _replace(storage, node, stored[node], is_tracked=node in tracked)


def _pending(before: dict[Storage, UOp], tracked: set[UOp]) -> frozenset[UOp]:
    """The written buffers that keep their content, since a lazy value or a gradient reads it."""
    written = _written_buffers(before.values())
    if not written:
        return frozenset()
    others = [s.uop for s in live_storages() if s not in before]
    read = history.readers(others)
    for node in tracked:
        read |= history.readers([node])
    return frozenset(written & read)


def _written_buffers(nodes: Iterable[UOp]) -> set[UOp]:
    """The BUFFERs that WRITEs below *nodes* would change in place."""
    found = set()
    for node in all_nodes(nodes):
        if node.op is Ops.WRITE:
            base = node.src[0]
            while base.op in (Ops.WRITE, Ops.RESHAPE, Ops.LEAF, Ops.DETACH):
                base = base.src[0]
            if base.op is Ops.BUFFER:
                found.add(base)
    return found


def _replace(storage: Storage, before: UOp, after: UOp, *, is_tracked: bool) -> None:
    """Let *storage* mean the realised node, and keep what differentiation needs."""
    if storage.uop is not before:
        return  # another thread wrote to it meanwhile: its lazy value stands
    storage.uop = after
    buffer = stored_buffer(after)
    if buffer is None:
        return
    in_place = buffer in history.readers([before])
    if in_place:
        history.forget(buffer)
    elif is_tracked:
        history.remember(buffer, before)
    if storage.owner is not None and history.past_of(buffer) is None:
        history.mark_leaf(after, storage)


def schedule_storages(storages: Iterable[Storage]) -> UOp:
    """Make, without running it, the LINEAR that brings the values of *storages* into memory."""
    raise NotImplementedError
