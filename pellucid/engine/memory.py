"""Which memory stands behind a BUFFER of the graph.

    BUFFER uop  --buffer_of-->  runtime Buffer      (allocated when it is first used)
    the last graph forgets the BUFFER  ->  the memory goes back to the allocator

A BUFFER is only a number in the graph; the memory hangs on the node, so it lives exactly as long as
some tensor, lazy graph or captured schedule can still read it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid.core.dtype import DType
from pellucid.ir.arg import BufferArg
from pellucid.ir.uop import UOp, keeper, new_buffer
from pellucid.runtime.allocator import Block
from pellucid.runtime.buffer import Buffer, buffer_on

Array = np.ndarray[Any, Any]

_lock = threading.Lock()


def _restart_after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_restart_after_fork)
_keep_memory: Callable[[UOp, Buffer], None] = keeper("_memory")
_keep_past: Callable[[UOp, Any], None] = keeper("_past")


def buffer_of(node: UOp) -> Buffer:
    """Return the memory of a BUFFER node, the same object every time.

    >>> from pellucid.core.dtype import dtypes
    >>> node = new_buffer(4, dtypes.float32, "CPU")
    >>> buffer_of(node) is buffer_of(node), buffer_of(node).nbytes
    (True, 16)
    """
    found: Buffer | None = getattr(node, "_memory", None)
    return _made_for(node) if found is None else found


def _made_for(node: UOp) -> Buffer:
    with _lock:
        found: Buffer | None = getattr(node, "_memory", None)
        if found is None:
            arg: BufferArg = node.arg
            found = Buffer(arg.device, arg.size, node.dtype)
            _keep_memory(node, found)
        return found


def block_of(node: UOp) -> Block:
    """Return the block in which a BUFFER node's elements stand."""
    return buffer_of(node).block


def int64_in(block: Block) -> int:
    """Return the int64 at the start of a block: what the flag of a check is."""
    return ctypes.c_int64.from_address(block.address).value


def node_on(block: Block, like: UOp, past: Any = None) -> UOp:
    """Return a new BUFFER of the kind of another, whose elements stand in *block*.

    past: how they were computed (engine/history.py), where differentiation has to know it.
    """
    arg: BufferArg = like.arg
    node = new_buffer(arg.size, like.dtype, arg.device)
    _keep_memory(node, buffer_on(block, arg.device, arg.size, like.dtype))
    if past is not None:
        _keep_past(node, past)
    return node


def buffer_with(data: Array, dtype: DType, device: str) -> UOp:
    """Return a new BUFFER that holds a copy of the bytes of *data*, in row-major order.

    A device that only compiles has nowhere to keep them: they are dropped there.
    """
    node = new_buffer(data.nbytes // dtype.itemsize, dtype, device)
    if device != "NULL":
        buffer_of(node).copy_from(data)
    return node


def filled_by(size: int, dtype: DType, device: str, fill: Callable[[Array], None]) -> UOp:
    """Return a new BUFFER whose memory *fill* writes, through a numpy array of its elements."""
    node = new_buffer(size, dtype, device)
    if device != "NULL":
        fill(buffer_of(node).as_numpy())
    return node
