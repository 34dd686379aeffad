"""What a schedule will bring about once it has run: which storages it puts into memory.

    linear = y.schedule_linear()        promise: y's storage will be RESHAPE(BUFFER 4)
    run_linear(compile_linear(linear))  kept: y is in memory

Until the schedule has run, every storage keeps its lazy value, so that looking at a schedule
changes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from pellucid.core.records import dataclass
from pellucid.engine import history
from pellucid.engine.storage import Kind, Storage, Version, stored_buffer
from pellucid.ir.arg import CheckArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.allocator import Block


class Change(NamedTuple):
    """A value that a schedule stores."""

    storage: weakref.ref[Storage]
    before: UOp
    """The lazy value."""
    after: UOp
    """The realised value."""
    is_in_place: bool
    """Whether that stands in a buffer which the lazy value reads."""


@dataclass
class Promise:
    """Values that a schedule stores, and flags that say whether it went well."""

    changes: list[Change]
    checks: tuple[tuple[UOp, CheckArg], ...]

    def keep(self) -> None:
        """Let the storages mean what stands in memory now."""
        for change in self.changes:
            storage = change.storage()
            if storage is not None:
                replace(storage, change.before, change.after, is_in_place=change.is_in_place)


_promises: weakref.WeakKeyDictionary[UOp, Promise] = weakref.WeakKeyDictionary()


def make(linear: UOp, promise: Promise) -> None:
    """Say what *linear* will bring about."""
    if linear.src:
        _promises[linear] = promise


def of(linear: UOp) -> Promise | None:
    """What *linear* will bring about, if it was made by a tensor."""
    return _promises.get(linear)


def hand_on(linear: UOp, compiled: UOp) -> None:
    """The compiled schedule keeps the promise of the one it was made from."""
    promise = _promises.get(linear)
    if promise is not None:
        _promises[compiled] = promise


def replace(storage: Storage, before: UOp, after: UOp, *, is_in_place: bool) -> None:
    """Let *storage* mean the realised node, and keep what differentiation needs."""
    if storage.uop is not before:
        return  # written to meanwhile: its lazy value stands
    buffer = stored_buffer(after)
    assert buffer is not None, "a realised value stands in a buffer"
    if is_in_place:
        history.forget(buffer)
    elif before.op is not Ops.BUFFER:
        history.remember(buffer, before)
    storage.uop = after
    if storage.owner is not None and history.past_of(buffer) is None:
        history.mark_leaf(after, storage)


def settle(storage: Storage, before: UOp, buffers: Sequence[UOp], block: Block, kind: Kind) -> None:
    """Let *storage* mean what stands in a block that was made for it, as `replace` does.

    buffers: all that its value so far reads.
    """
    if storage.uop is not before:
        return
    past = history.past_for(before, buffers)
    storage.current = Version(None, block, kind, past)
    if storage.owner is not None and past is None:
        history.mark_leaf(storage.uop, storage)
