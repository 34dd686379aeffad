"""Questions that several actions ask before they do anything, and how they say no.

refuse(action, "its size is 1")   ->   ActionError: split of axis 0 is refused: its size is 1
"""

from __future__ import annotations

from collections.abc import Iterator

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError
from pellucid.ir.arg import Action, AddrSpace, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import end_of, size_of


def refuse(action: Action, reason: str) -> ActionError:
    """The error that says why an action is not legal."""
    return ActionError(action.kind, f"axis {action.axis}", reason)


def known_size(action: Action, axis: UOp) -> int:
    """The size of an axis, which must be a number above 1."""
    size = size_of(axis)
    if size is None:
        raise refuse(action, "its size is a variable")
    if size < 2:
        raise refuse(action, f"its size is {size}")
    return size


def require_loop(action: Action, axis: UOp) -> None:
    """The axis has not become anything else than a loop."""
    if axis.arg.kind not in (AxisKind.LOOP, AxisKind.REDUCE):
        raise refuse(action, f"it is {KIND_NAMES[axis.arg.kind]} already")


KIND_NAMES = {
    AxisKind.THREAD: "shared out among threads",
    AxisKind.LANES: "lanes",
    AxisKind.UPCAST: "upcast",
    AxisKind.UNROLL: "unrolled",
    AxisKind.ROW: "rows of a matrix unit",
    AxisKind.COLUMN: "columns of a matrix unit",
    AxisKind.DEPTH: "summed by a matrix unit",
    AxisKind.GLOBAL: "a launch dimension",
    AxisKind.LOCAL: "an index inside a work-group",
}


def require_free_order(sink: UOp, action: Action) -> None:
    """The iterations of the kernel may run in any order."""
    if sink.arg.ordered:
        raise refuse(action, "the iterations of this kernel must run in order")


def require_output_at_top(sink: UOp, action: Action, axis: UOp) -> UOp:
    """The axis is an output axis of a nest that no other stands around; the END of that nest."""
    end = end_of(sink, axis)
    if end is None:
        raise refuse(action, "it is reduced")
    if size_of(axis) in (0, 1):
        raise refuse(action, f"its size is {size_of(axis)}")
    if not any(end is part for effect in sink.src for part in _top_level(effect)):
        raise refuse(action, "it stands inside of another axis")
    return end


def _top_level(effect: UOp) -> tuple[UOp, ...]:
    if effect.op is Ops.GROUP:
        return tuple(p for part in effect.src for p in _top_level(part))
    return (effect,)


def require_no_buffer_inside(sink: UOp, action: Action, axis: UOp) -> None:
    """Copies and lanes of a loop would share a buffer that each turn of it fills."""
    if any(axis in node.ranges for node in buffer_uses(sink)):
        raise refuse(action, "a buffer is filled in each of its turns")


def buffer_uses(root: UOp) -> Iterator[UOp]:
    """The AFTERs that say when LOCAL storage may be touched."""
    return (n for n in root.toposort() if n.op is Ops.AFTER and is_local(buffer_of(n)))


def filled_along(root: UOp, axis: UOp) -> list[UOp]:
    """The LOCAL storage that is filled anew in each turn of *axis*."""
    found = {
        buffer_of(node): None
        for node in buffer_uses(root)
        if any(s.dtype is dtypes.void and axis in s.ranges for s in node.src[1:])
    }
    return list(found)


def buffer_of(node: UOp) -> UOp:
    """The storage below AFTERs."""
    while node.op is Ops.AFTER:
        node = node.src[0]
    return node


def is_local(storage: UOp) -> bool:
    """True for memory that a kernel makes for itself."""
    return storage.op is Ops.DEFINE and storage.arg.space is AddrSpace.LOCAL


def next_define_id(root: UOp) -> int:
    """A number that no storage made below *root* has."""
    return max((n.arg.id for n in root.toposort() if n.op is Ops.DEFINE), default=-1) + 1
