"""Gradients: backward(), gradient(), no_grad.

    w = Tensor([1.0, 2.0]); loss = (w * w).sum(); loss.backward(); w.grad     -> [2.0, 4.0]

A leaf is a float tensor that the user created. Every leaf in the graph gets a `.grad`, unless it
was made with requires_grad=False. Gradients are lazy tensors: one that nobody reads costs nothing.
Values that were realised are differentiated through the expressions that computed them
(engine/history.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from pellucid.core.errors import DTypeError, GradientError, ShapeError
from pellucid.engine import capture, history
from pellucid.engine.storage import Storage
from pellucid.frontend.sorting import Sorting
from pellucid.frontend.value import grad_enabled
from pellucid.ir import gradient as rules
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_MOST_UNREAD: Final = 8
_DROPPED: Final = object()


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """In this block, results carry no gradient, and writing to a leaf leaves it one.

    >>> with no_grad():
    ...     y = Tensor([1.0]) * 2
    >>> y.requires_grad
    False
    """
    token = grad_enabled.set(False)
    try:
        yield
    finally:
        grad_enabled.reset(token)


@contextlib.contextmanager
def enable_grad() -> Iterator[None]:
    """In this block, results carry gradients again."""
    token = grad_enabled.set(True)
    try:
        yield
    finally:
        grad_enabled.reset(token)


class Autograd(Sorting):
    """Methods that differentiate."""

    __slots__ = ()

    @property
    def is_leaf(self) -> bool:
        """True for a float tensor that the user created.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.is_leaf, (x * 2).is_leaf
        (True, False)
        """
        owner = self._storage.owner
        return owner is not None and owner() is self

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient can flow to this tensor or through it."""
        if self.is_leaf:
            return self._storage.requires_grad is not False
        if not self._dtype.is_float:
            return False
        expanded, _ = history.expand(self.uop)
        return bool(_leaves_in(expanded))

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for a gradient, or refuse one; a computed tensor becomes a leaf that passes it on."""
        if requires_grad and not self._dtype.is_float:
            raise GradientError("only floats can require a gradient", help="cast it to float first")
        if not self.is_leaf:
            if self._window is not None:
                raise GradientError(
                    "a window cannot become a leaf", help="call .contiguous() first"
                )
            self._become_leaf(requires_grad)
        self._storage.requires_grad = requires_grad
        return self

    def retain_grad(self) -> Self:
        """Keep the gradient of a computed tensor too."""
        return self.requires_grad_()

    @property
    def grad(self) -> Self | None:
        """The gradient that backward() has added up here.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> _ = (x * x).backward()
        >>> x.grad.tolist()
        [6.0]
        """
        if self._grad is _DROPPED:
            raise GradientError(
                "this gradient was not kept: backward() ran again before anyone read it",
                help="create the tensor with requires_grad=True to add up, or False to have none",
            )
        self._unread = 0
        return self._grad  # type: ignore[no-any-return]

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not isinstance(value, Autograd):
            raise DTypeError("a gradient is a tensor, or None", came=type(value).__name__)
        if value is not None and value.shape != self._shape:
            raise ShapeError(
                "a gradient has the shape of its tensor", expected=self._shape, came=value.shape
            )
        capture.note_gradient(self, self._grad, is_replaced=True)
        self._grad, self._unread = value, 0

    def backward(
        self,
        gradient: Self | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> Self:
        """Add d(self)/d(leaf) to the `.grad` of every leaf below.

        gradient: what to multiply it by, of the shape of self; 1 if self is a scalar.
        retain_graph, create_graph: PyTorch's; graphs stay and gradients are graphs, always.

        >>> x = Tensor([1.0, 2.0])
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        root, back = history.expand(self.uop)
        leaves = _leaves_in(root)
        if not leaves or not all(storage.requires_grad for storage in leaves.values()):
            _refuse_cuts(root)
        if not leaves:
            raise GradientError(
                "this value depends on no tensor that wants a gradient",
                help="create the parameters with requires_grad=True, outside of no_grad()",
            )
        nodes = list(leaves)
        found = _differentiate(root, back, self._seed(gradient), nodes)
        grads: dict[Storage, UOp] = {}
        for node, part in zip(nodes, found, strict=True):
            if part is not None:
                known = grads.get(leaves[node])
                grads[leaves[node]] = part if known is None else known + part
        some_asked = any(storage.requires_grad for storage in grads)
        for storage, node in grads.items():
            leaf = storage.owner() if storage.owner is not None else None
            if leaf is not None:
                leaf._add_gradient(node, some_asked=some_asked)
        return self

    def gradient(self, *targets: Self, gradient: Self | None = None) -> tuple[Self, ...]:
        """d(self)/d(target) for each of *targets*, which may be any tensors that self was
        computed from.

        >>> x = Tensor([3.0])
        >>> [g.tolist() for g in (x * x).sum().gradient(x)]
        [[6.0]]
        """
        root, back = history.expand(self.uop)
        wanted: list[list[UOp]] = []
        leaves = _leaves_in(root)
        _refuse_cuts(root)
        for target in targets:
            same = [n for n, s in leaves.items() if s is target._storage and target._window is None]
            wanted.append(same or [history.expand(target.uop)[0]])
        flat = [node for nodes in wanted for node in nodes]
        found = dict(zip(flat, _differentiate(root, back, self._seed(gradient), flat), strict=True))
        results = []
        for target, nodes in zip(targets, wanted, strict=True):
            parts = [part for node in nodes if (part := found[node]) is not None]
            if not parts:
                raise GradientError(
                    "the value does not depend on a target",
                    rows=[("target", target.shape, target.dtype)],
                    help="differentiate with respect to a float tensor that it was computed from",
                )
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            results.append(self._value(total))
        return tuple(results)

    def _seed(self, gradient: Self | None) -> UOp:
        if gradient is None:
            if self.numel() != 1:
                raise GradientError(
                    "backward() of many values needs to know how to weigh them",
                    rows=[("shape", self._shape)],
                    help="reduce to a scalar, as in loss.mean(), or give gradient=",
                )
            return UOp.const(self._dtype, 1).expand(self._shape)
        if gradient.shape != self._shape:
            raise GradientError(
                "gradient= has the shape of the value",
                rows=[("value", self._shape), ("gradient", gradient.shape)],
            )
        return gradient.uop.cast(self._dtype)

    def _add_gradient(self, node: UOp, *, some_asked: bool) -> None:
        """Add to `.grad`; one that nobody reads must not keep all of the past alive."""
        is_asked = bool(self._storage.requires_grad)
        capture.note_gradient(self, self._grad, is_replaced=False)
        if some_asked and not is_asked and capture.listener() is not None:
            self._grad = _DROPPED
            return
        with no_grad():
            if self._grad is None:
                self._grad, self._unread = self._value(node), 1
                return
            if some_asked and not is_asked and self._unread:
                self._grad = _DROPPED
            if self._grad is _DROPPED:
                return
            if not is_asked and self._unread >= _MOST_UNREAD:
                self._grad.realize()
                self._unread = 0
            self._grad = self._grad + self._value(node)
            self._unread += 1


def _leaves_in(root: UOp) -> dict[UOp, Storage]:
    """The nodes below an expanded graph that stand for leaves, reachable by gradients."""
    found: dict[UOp, Storage] = {}
    for node in root.toposort(lambda n: n.op is not Ops.DETACH and (n.dtype.is_float)):
        storage = history.leaf_at(node)
        if storage is not None:
            found[node] = storage
    return found


def _differentiate(
    root: UOp, back: dict[UOp, UOp], seed: UOp, targets: Sequence[UOp]
) -> list[UOp | None]:
    """Gradients of an expanded graph, which read realised values where there are some."""
    found: list[Any] = list(rules.gradient(root, seed, targets))
    return [None if node is None else node.substitute(back) for node in found]


def _refuse_cuts(root: UOp) -> None:
    """Raise if a way to a leaf was given up; none that leads to a leaf which asked ever is."""
    for node in root.toposort(lambda n: n.op is not Ops.DETACH):
        if node.op is Ops.BUFFER and history.is_cut(node):
            raise GradientError(
                f"the way to the leaves is longer than {history.LONGEST} realised steps",
                help="create the leaves with requires_grad=True to keep it, or detach() on purpose",
            )
