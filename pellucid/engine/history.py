"""How realised values were computed: what differentiation sees in place of a buffer.

    y = x * 2; y.realize()       storage of y: RESHAPE(BUFFER 7)       history[BUFFER 7] = MUL(x, 2)
    expand(ADD(BUFFER 7, 1))  -> ADD(MUL(x, 2), 1)                     so the gradient goes on to x

An entry exists only while a leaf that can receive a gradient is below it, and dies with its buffer.
A loop that feeds realised values back into itself would keep all of its past that way; where no
leaf asked for gradients explicitly, the past is cut after `LONGEST` realised steps, and
differentiation through the cut is an error, never a wrong number.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from pellucid.engine.storage import Storage, stored_buffer
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp, keeper

LONGEST: Final = 256


class Past(NamedTuple):
    """The expression a buffer was computed by (None: cut), and how many realised steps deep."""

    expression: UOp | None
    steps: int


# Both hang on the nodes themselves, as they are asked for at every node.
_keep_past: Callable[[UOp, Past | None], None] = keeper("_past")
_keep_leaf: Callable[[UOp, tuple[weakref.ref[Storage], int]], None] = keeper("_leaf")
_leaf_ops: set[Op] = set()
"""The ops of all nodes that ever stood for a leaf: others need not be asked."""


def mark_leaf(node: UOp, storage: Storage) -> None:
    """Say that *node* stands for the present version of *storage* in differentiation.

    Several nodes may: the lazy value that older graphs hold, and the realised one.
    """
    _leaf_ops.add(node.op)
    _keep_leaf(node, (weakref.ref(storage), storage.leaf_version))


def leaf_at(node: UOp) -> Storage | None:
    """Return the storage that *node* stands for, if it still does and wants a gradient."""
    found: tuple[weakref.ref[Storage], int] | None = getattr(node, "_leaf", None)
    if found is None:
        return None
    storage = found[0]()
    if storage is None or storage.requires_grad is False:
        return None
    if storage.leaf_version != found[1]:
        return None
    owner = storage.owner
    return storage if owner is not None and owner() is not None else None


def _same_leaf(rebuilt: UOp, node: UOp) -> None:
    """Let a LEAF over other sources stand for what the LEAF that it was made from stands for."""
    storage = leaf_at(node)
    if storage is not None:
        mark_leaf(rebuilt, storage)


def past_of(buffer: UOp) -> Past | None:
    """Return how a buffer was computed, if that is known and can matter."""
    return getattr(buffer, "_past", None)


def pasts_of(buffers: Iterable[UOp]) -> list[tuple[UOp, Past]]:
    """List those of *buffers* of which it is known how they were computed."""
    return [(b, past) for b in buffers if (past := getattr(b, "_past", None)) is not None]


def forget(buffer: UOp) -> None:
    """Drop what is known of a buffer: it holds another value now."""
    _keep_past(buffer, None)


def cut(buffer: UOp) -> None:
    """Give up the way from a buffer to its leaves: differentiation through it is an error now."""
    past = past_of(buffer)
    if past is not None:
        _keep_past(buffer, Past(None, past.steps))


def has_past(expression: UOp) -> bool:
    """Tell whether a gradient flows through *expression* to a leaf below it that is alive."""
    if expression.op is Ops.LEAF:
        expression = expression.src[0]
    return _has_leaf(expression)


def _has_leaf(expression: UOp) -> bool:
    """Tell whether *expression*, or something below it, stands for a leaf that is alive."""
    return any(True for _ in _leaves_below(expression))


def remember(buffer: UOp, expression: UOp) -> None:
    """Record that *buffer* holds the value of *expression*, if differentiation can need it."""
    past = past_for(expression)
    if past is not None:
        _keep_past(buffer, past)


def past_for(expression: UOp, buffers: Iterable[UOp] | None = None) -> Past | None:
    """The past of a buffer that holds the value of *expression*, if differentiation can need it.

    buffers: all that *expression* reads, where that is known.
    """
    root = expression.src[0] if expression.op is Ops.LEAF else expression
    if buffers is not None and not pasts_of(buffers):  # the first leaf decides
        return Past(expression, 1) if _reaches_leaf(root) else None
    has_leaf, pasts = _directly_below(root)
    if not (has_leaf or any(past.expression and _has_leaf(past.expression) for past in pasts)):
        return None
    steps = 1 + max([past.steps for past in pasts], default=0)
    is_kept = steps <= LONGEST or any(s.requires_grad for s in _leaves_below(expression))
    return Past(expression if is_kept else None, steps)


def expand(root: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """Replace realised values below *root* by the expressions that computed them.

    Also returns the way back: expression -> the realised node that has its value.
    """
    done: dict[UOp, UOp] = {}
    back: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node.op is Ops.DETACH:  # no gradient goes on: what is below may stay as it is
            done[node] = node
            continue
        below, expression = _below(node)
        missing = [source for source in below if source not in done]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if expression is None:
            done[node] = node.with_sources(tuple([done[source] for source in below]))
            if node.op is Ops.LEAF and done[node] is not node:
                _same_leaf(done[node], node)
        else:
            done[node] = done[expression]
            back[done[node]] = node
    return done[root], back


def is_cut(node: UOp) -> bool:
    """Tell whether the past of a realised node was dropped because it grew too long."""
    past = past_of(node)
    return past is not None and past.expression is None


def readers(nodes: Iterable[UOp]) -> set[UOp]:
    """All BUFFERs that the graphs below *nodes* read, and those that differentiation would."""
    found: set[UOp] = set()
    seen: set[UOp] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is Ops.BUFFER:
            found.add(node)
            past = past_of(node)
            if past is not None and past.expression is not None:
                stack.append(past.expression)
        stack.extend(node.src)
    return found


def _below(node: UOp) -> tuple[tuple[UOp, ...], UOp | None]:
    """The nodes to visit before *node*, and the expression that takes its place, if one does."""
    buffer = stored_buffer(node)
    past = past_of(buffer) if buffer is not None else None
    if past is None or past.expression is None:
        return node.src, None
    if past.expression.shape == node.shape:
        return (past.expression,), past.expression
    if node is buffer:
        flat = past.expression.reshape((node.arg.size,))
        return (flat,), flat
    return node.src, None


def _leaves_below(root: UOp) -> Iterator[Storage]:
    for node in _floats_below(root, through_pasts=True):
        storage = leaf_at(node)
        if storage is not None:
            yield storage


def _reaches_leaf(root: UOp) -> bool:
    """Whether a leaf is below *root*, where no buffer has a past."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen or not node.dtype.is_float:
            continue
        seen.add(node)
        op = node.op
        if op in _leaf_ops and leaf_at(node) is not None:
            return True
        if op is not Ops.DETACH:
            stack += node.src[::-1]
    return False


def _directly_below(root: UOp) -> tuple[bool, list[Past]]:
    """Whether a leaf is below *root*, and the pasts of buffers there; not through these pasts."""
    has_leaf = False
    pasts: list[Past] = []
    for node in _floats_below(root, through_pasts=False):
        has_leaf = has_leaf or leaf_at(node) is not None
        if node.op is Ops.BUFFER:
            past = past_of(node)
            if past is not None:
                pasts.append(past)
    return has_leaf, pasts


def _floats_below(root: UOp, *, through_pasts: bool) -> Iterator[UOp]:
    """The nodes that gradients of *root* would reach, each once."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        op = node.op
        if node in seen or not (node.dtype.is_float or op is Ops.SINK):
            continue
        seen.add(node)
        yield node
        if op is Ops.BUFFER:
            past = past_of(node) if through_pasts else None
            if past is not None and past.expression is not None:
                stack.append(past.expression)
        elif op is not Ops.DETACH:
            stack += node.src[::-1]
