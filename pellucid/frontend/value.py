"""The core of a tensor: storage, a window on it, and the node that is its value.

    a = Tensor([[1, 2], [3, 4]])     storage S          window: all of S
    v = a[1]                         storage S          window: SHRINK, RESHAPE
    w = v * 2                        storage of its own

Windows share storage, so a write through one shows in all of them; `uop` applies the window to what
the storage means now. A write gives the storage a new meaning, `WRITE(old, window, value)`: values
that were computed before keep the old node and so the old numbers.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Self

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DeviceError, DTypeError, ShapeError, user_location
from pellucid.core.options import current_options
from pellucid.engine import history
from pellucid.engine.realize import realize_storages
from pellucid.engine.storage import Storage, stored_buffer
from pellucid.ir import origin
from pellucid.ir.op import Op, Ops, Shape
from pellucid.ir.uop import UOp

grad_enabled: ContextVar[bool] = ContextVar("pellucid_grad_enabled", default=True)
_leaf_numbers = iter(range(1 << 62))


class Window(NamedTuple):
    """One step of the way from a storage to a window on it, and the steps before."""

    before: Window | None
    op: Op
    arg: Any

    def applied_to(self, node: UOp) -> UOp:
        """The step as a node over *node*."""
        if self.op is Ops.BITCAST:
            return node.bitcast(self.arg)
        if self.op is Ops.DETACH:
            return UOp.make(Ops.DETACH, node)
        if self.op is Ops.PAD:
            return node.pad(self.arg)
        return UOp.make(self.op, node, arg=self.arg)

    def steps(self) -> list[Window]:
        """All steps, from the storage on."""
        found: list[Window] = []
        step: Window | None = self
        while step is not None:
            found.append(step)
            step = step.before
        return found[::-1]


DETACHED: Final = Window(None, Ops.DETACH, None)
"""All of a storage, without its gradient: what calls of captured functions give."""


class Value:
    """A tensor without its methods: shape, dtype, device, and where its elements are."""

    __slots__ = ("__weakref__", "_dtype", "_grad", "_shape", "_storage", "_unread", "_window")

    _storage: Storage
    _window: Window | None
    _shape: Shape
    _dtype: DType
    _grad: Any
    _unread: int

    # ---- building -------------------------------------------------------------------------------

    @classmethod
    def _on(cls, storage: Storage, window: Window | None, shape: Shape, dtype: DType) -> Self:
        made = object.__new__(cls)
        made._storage, made._window = storage, window
        made._shape, made._dtype = shape, dtype
        made._grad, made._unread = None, 0
        return made

    @classmethod
    def _from(cls, node: UOp, device: str, shape: Shape | None = None) -> Self:
        """A tensor of its own with the value of *node*, computed from others.

        shape: that of the node, where it is known: the node need not be asked then.
        """
        if not grad_enabled.get() and node.dtype.is_float:
            node = UOp.make(Ops.DETACH, node)
        if current_options().trace:
            _trace(node)
        known = node.known_shape if shape is None else shape
        return cls._on(Storage(node, device), None, known, node.dtype)

    @classmethod
    def _leaf(cls, node: UOp, device: str, requires_grad: bool | None) -> Self:
        """A tensor that the user created: a leaf of differentiation, if it is float."""
        if requires_grad and not node.dtype.is_float:
            raise DTypeError(
                "only floats can require a gradient",
                came=node.dtype,
                help="create it with dtype=float32, or cast it first",
            )
        if node.dtype.is_float and stored_buffer(node) is None:
            node = UOp.make(Ops.LEAF, node, arg=next(_leaf_numbers))
        if current_options().trace:
            _trace(node)
        made = cls._on(Storage(node, device), None, node.known_shape, node.dtype)
        if node.dtype.is_float:
            made._become_leaf(requires_grad)
        return made

    def _become_leaf(self, requires_grad: bool | None) -> None:
        storage = self._storage
        storage.owner = weakref.ref(self)
        storage.requires_grad = requires_grad
        history.mark_leaf(storage.uop, storage)

    def _window_on(self, op: Op, arg: Any, shape: Shape, dtype: DType | None = None) -> Self:
        """A window on the same storage, one step further."""
        window = Window(self._window, op, arg)
        return self._on(self._storage, window, shape, dtype or self._dtype)

    def _value(self, node: UOp, shape: Shape | None = None) -> Self:
        """A value of its own, on the device of this one; shape: as for `_from`."""
        return self._from(node, self._storage.device, shape)

    # ---- questions ------------------------------------------------------------------------------

    @property
    def uop(self) -> UOp:
        """The node of the graph that is the value of now."""
        version = self._storage.current
        base = version.node or version.named()
        window = self._window
        if window is None:
            return base
        known = version.windows
        if known is None:
            known = version.windows = {}
        todo: list[Window] = []
        while window is not None and id(window) not in known:
            todo.append(window)
            window = window.before
        node = base if window is None else known[id(window)][1]
        for step in reversed(todo):
            node = step.applied_to(node)
            known[id(step)] = step, node
        return node

    @property
    def shape(self) -> Shape:
        """The size of every axis.

        >>> Tensor([[1, 2, 3]]).shape
        (1, 3)
        """
        return self._shape

    @property
    def dtype(self) -> DType:
        """The type of an element.

        >>> Tensor([1.5]).dtype
        dtypes.float32
        """
        return self._dtype

    @property
    def device(self) -> str:
        """Where the elements live."""
        return self._storage.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    def numel(self) -> int:
        """The number of elements.

        >>> Tensor([[1, 2, 3]]).numel()
        3
        """
        return math.prod(self._shape)

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or the size of one axis.

        >>> Tensor([[1, 2, 3]]).size(), Tensor([[1, 2, 3]]).size(1)
        ((1, 3), 3)
        """
        return self._shape if dim is None else self._shape[dim]

    def element_size(self) -> int:
        """The size of an element in bytes."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes.

        >>> Tensor([1.0, 2.0]).nbytes
        8
        """
        return self.numel() * self._dtype.itemsize

    def is_floating_point(self) -> bool:
        """Tell whether the elements are floats."""
        return self._dtype.is_float

    @property
    def is_realized(self) -> bool:
        """Tell whether the elements are in memory."""
        return self._storage.is_realized

    def realize(self, *others: Value) -> Self:
        """Compute the value now, with that of *others*, and keep it in memory.

        It never changes a value and never cuts a gradient.

        >>> x = (Tensor([1, 2]) + 1).realize()
        >>> x.is_realized
        True
        """
        realize_storages([self._storage, *[o._storage for o in others]])
        return self

    def _check_device(self, other: Value, name: str) -> None:
        if other._storage.device != self._storage.device:
            raise DeviceError(
                f"{name} needs both tensors on one device",
                rows=[("left", self.device), ("right", other.device)],
                help=f"copy one of them, as in .to({self.device!r})",
            )

    # ---- writing --------------------------------------------------------------------------------

    def _write(self, value: UOp) -> None:
        """Let the storage mean what it meant, with the elements of this window replaced."""
        storage = self._storage
        base = storage.uop
        steps = self._window.steps() if self._window is not None else []
        steps = [step for step in steps if step.op is not Ops.DETACH]
        if any(step.op is Ops.EXPAND for step in steps):
            raise ShapeError(
                "an expanded tensor cannot be written to: its elements share places in memory",
                help="write to the tensor before expand(), or to .contiguous() of it",
            )
        if self._dtype is not base.dtype:
            value = value.bitcast(base.dtype)
        steps = [step for step in steps if step.op is not Ops.BITCAST]
        if any(step.op is Ops.PAD for step in steps):
            value, window = _spread(base, steps, value), base
        else:
            window = base
            for step in steps:
                window = step.applied_to(window)
        self._store(UOp(Ops.WRITE, base.dtype, (base, window, value)))

    def _store(self, written: UOp) -> None:
        """Make *written* the meaning of the storage; a leaf stays one, as a new version."""
        storage = self._storage
        if not grad_enabled.get() and written.dtype.is_float:
            written = UOp.make(Ops.DETACH, written)
        if storage.owner is None:
            storage.uop = written
            return
        storage.leaf_version += 1
        storage.uop = UOp.make(Ops.LEAF, written, arg=next(_leaf_numbers))
        history.mark_leaf(storage.uop, storage)


def _spread(base: UOp, steps: Sequence[Window], value: UOp) -> UOp:
    """*base* with a window replaced, where the window cannot be named without padding.

    The steps are undone on the value and on a mask, which then select between value and base.
    """
    mask = UOp.const(dtypes.bool, True).expand(value.known_shape)
    shapes = [base.known_shape]
    node = base
    for step in steps:
        node = step.applied_to(node)
        shapes.append(node.known_shape)
    for step, shape in zip(reversed(steps), reversed(shapes[:-1]), strict=True):
        value, mask = _undo(step, shape, value), _undo(step, shape, mask)
    return mask.where(value, base)


def _undo(step: Window, shape: Shape, node: UOp) -> UOp:
    """Put the elements of *node* back to where *step* took them from in a tensor of *shape*."""
    if step.op is Ops.RESHAPE:
        return node.reshape(shape)
    if step.op is Ops.PERMUTE:
        return node.permute(tuple(sorted(range(len(step.arg)), key=step.arg.__getitem__)))
    if step.op is Ops.FLIP:
        return node.flip(step.arg)
    if step.op is Ops.SHRINK:
        around = tuple((start, n - end) for (start, end), n in zip(step.arg, shape, strict=True))
        return node.pad(around)
    return node.shrink(tuple((low, low + n) for (low, _), n in zip(step.arg, shape, strict=True)))


def _trace(node: UOp) -> None:
    place = user_location()
    if place is not None:
        origin.record_new(node, str(place))
