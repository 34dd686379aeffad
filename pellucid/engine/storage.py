"""What a tensor's name stands for: storage whose meaning changes when it is written to.

    storage.uop   the value that the storage has now: a lazy expression, or RESHAPE(BUFFER)
    write         storage.uop becomes WRITE(old uop, window, value); other graphs keep the old uop
    realise       storage.uop becomes RESHAPE(BUFFER) of the same value

Windows (see frontend) hold the storage, values computed before a write hold the old uop: that is
all there is to versions. All storages that are alive can be listed, since a write in place must not
change a buffer that another lazy value still wants to read (`readers`).
"""

from __future__ import annotations

import weakref
from typing import Any

from pellucid.engine import capture
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_BUFFER, _RESHAPE = Ops.BUFFER, Ops.RESHAPE
_live: set[weakref.ref[Storage]] = set()

Windows = dict[int, tuple[Any, UOp]]
"""Windows of the frontend, by identity, as nodes."""


class Storage:
    """A place that holds one tensor's elements, in its version of now."""

    __slots__ = ("__weakref__", "current", "device", "leaf_version", "owner", "requires_grad")

    def __init__(self, uop: UOp, device: str) -> None:
        self.current: tuple[UOp, Windows] = (uop, {})
        """The value of now, and the windows on it that were asked for: exchanged together, so
        that a window never belongs to another version."""
        self.device = device
        self.leaf_version = 0
        """Counts writes to a leaf: nodes of older versions do not stand for it any more."""
        self.owner: weakref.ref[Any] | None = None
        """The tensor whose `.grad` is filled, if this is a leaf."""
        self.requires_grad: bool | None = None
        _live.add(weakref.ref(self, _live.discard))
        heard = capture.listener()
        if heard is not None:
            heard.made[id(self)] = weakref.ref(self)

    @property
    def uop(self) -> UOp:
        """The value of now."""
        return self.current[0]

    @uop.setter
    def uop(self, value: UOp) -> None:
        heard = capture.listener()
        if heard is not None and id(self) not in heard.made:
            heard.written[id(self)] = self  # it is older than the capture
        self.current = (value, {})

    @property
    def is_realized(self) -> bool:
        """True when the value stands in memory."""
        return stored_buffer(self.current[0]) is not None


def stored_buffer(node: UOp) -> UOp | None:
    """Return the BUFFER whose whole content is the value of *node*, if there is one."""
    if node.op is _RESHAPE:
        node = node.src[0]
    return node if node.op is _BUFFER else None


def live_storages() -> list[Storage]:
    """List all storages that exist now, in all threads."""
    return [storage for ref in list(_live) if (storage := ref()) is not None]
