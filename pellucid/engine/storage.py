"""What a tensor's name stands for: storage whose meaning changes when it is written to.

    storage.uop   the value that the storage has now: a lazy expression, or RESHAPE(BUFFER)
    write         storage.uop becomes WRITE(old uop, window, value); other graphs keep the old uop
    realise       storage.uop becomes RESHAPE(BUFFER) of the same value

Windows (see frontend) hold the storage, values computed before a write hold the old uop: that is
all there is to versions. A version that a schedule has computed begins as a block of memory; its
node is made when somebody asks for it, which for most results of a replay is never.

All storages that are alive can be listed, since a write in place must not change a buffer that
another lazy value still wants to read (`readers`).
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, NamedTuple

from pellucid.engine.capture import listener
from pellucid.engine.memory import block_of, node_on
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.runtime.allocator import Block

_BUFFER, _RESHAPE = Ops.BUFFER, Ops.RESHAPE
_live: set[weakref.ref[Storage]] = set()
enlist, strike = _live.add, _live.discard
_naming = threading.RLock()

Windows = dict[int, tuple[Any, UOp]]
"""Windows of the frontend, by identity, as nodes."""


class Kind(NamedTuple):
    """What a computed value is, besides the block where it stands."""

    like: UOp
    """A BUFFER of the same size, dtype and device."""
    shape: Shape


class Version:
    """One value of a storage: its node, its memory if it stands in memory, windows on it.

    They are exchanged together, so that a window or a block never belongs to another version.
    """

    __slots__ = ("block", "kind", "node", "past", "windows")

    def __init__(
        self,
        node: UOp | None,
        block: Block | None = None,
        kind: Kind | None = None,
        past: Any = None,
    ) -> None:
        self.node = node
        """The value as a node; None as long as nobody asked."""
        self.block = block
        """Where the value stands, if that is known."""
        self.kind = kind
        self.past = past
        """What differentiation has to know of the node that will be made."""
        self.windows: Windows | None = None
        """Windows on the value that were asked for, if any were."""

    def named(self) -> UOp:
        """The value as a node, which is made now if there was none."""
        if self.node is None:
            with _naming:
                if self.node is None:
                    assert self.kind is not None, "a value has a node, or it is known what it is"
                    assert self.block is not None, "a value has a node, or it stands in memory"
                    buffer = node_on(self.block, self.kind.like, self.past)
                    self.node = buffer.reshape(self.kind.shape)
        return self.node

    def in_memory(self) -> Block | None:
        """The memory in which the value stands, if it does."""
        if self.block is None:
            buffer = stored_buffer(self.named())
            if buffer is not None and buffer.arg.device != "NULL":
                self.block = block_of(buffer)
        return self.block


class Storage:
    """A place that holds one tensor's elements, in its version of now."""

    __slots__ = ("__weakref__", "current", "device", "leaf_version", "owner", "requires_grad")

    def __init__(self, value: UOp | Version, device: str) -> None:
        self.current: Version = value if type(value) is Version else Version(value)  # type: ignore[arg-type]
        """The value of now."""
        self.device = device
        self.leaf_version = 0
        """Counts writes to a leaf: nodes of older versions do not stand for it any more."""
        self.owner: weakref.ref[Any] | None = None
        """The tensor whose `.grad` is filled, if this is a leaf."""
        self.requires_grad: bool | None = None
        enlist(weakref.ref(self, strike))
        heard = listener()
        if heard is not None:
            heard.made[id(self)] = weakref.ref(self)

    @property
    def uop(self) -> UOp:
        """The value of now as a node."""
        version = self.current
        return version.node or version.named()

    @uop.setter
    def uop(self, value: UOp) -> None:
        heard = listener()
        if heard is not None and id(self) not in heard.made:
            heard.written[id(self)] = self  # it is older than the capture
        self.current = Version(value)

    @property
    def is_realized(self) -> bool:
        """True when the value stands in memory."""
        node = self.current.node
        return node is None or stored_buffer(node) is not None


def stored_buffer(node: UOp) -> UOp | None:
    """Return the BUFFER whose whole content is the value of *node*, if there is one."""
    if node.op is _RESHAPE:
        node = node.src[0]
    return node if node.op is _BUFFER else None


def live_storages() -> list[Storage]:
    """List all storages that exist now, in all threads."""
    return [storage for ref in list(_live) if (storage := ref()) is not None]


def live_nodes() -> list[tuple[Storage, UOp]]:
    """List all storages that exist now, with their nodes.

    A value without a node is left out: it reads no other, unless differentiation would.
    """
    found = []
    for storage in live_storages():
        version = storage.current
        node = version.node
        if node is None and version.past is not None:
            node = version.named()
        if node is not None:
            found.append((storage, node))
    return found


def _restart_after_fork() -> None:
    global _naming
    _naming = threading.RLock()


os.register_at_fork(after_in_child=_restart_after_fork)
