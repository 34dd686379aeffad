"""Movement ops (TENSOR form): two of a kind are one, and what moves nothing goes.

    RESHAPE(RESHAPE(x))            ->  RESHAPE(x)
    PERMUTE(PERMUTE(x, p), q)      ->  PERMUTE(x, p after q)
    SHRINK(PAD(x))                 ->  SHRINK(x)      where the box lies inside of x
    FLIP(EXPAND(scalar))           ->  EXPAND(scalar)

They are a rule set of their own, as no other law looks at shapes.
"""

from __future__ import annotations

from pellucid.ir.law import RuleSet, rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import P, X
from pellucid.ir.uop import UOp


@rule(Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP)
def drop_idle_movement(node: UOp) -> UOp | None:
    """What moves nothing is its source."""
    x = node.src[0]
    if node.op is Ops.RESHAPE or node.op is Ops.EXPAND:
        idle = node.arg == x.shape
    elif node.op is Ops.PERMUTE:
        idle = node.arg == tuple(range(len(node.arg)))
    elif node.op is Ops.PAD:
        idle = not any(low or high for low, high in node.arg)
    elif node.op is Ops.SHRINK:
        idle = node.shape == x.shape
    else:
        idle = not any(size > 1 for size in (x.known_shape[axis] for axis in node.arg))
    return x if idle else None


@rule(P(Ops.RESHAPE, P(Ops.RESHAPE, X)))
def reshape_twice(node: UOp, x: UOp) -> UOp | None:
    """Only the last shape counts."""
    return x.reshape(node.arg)


@rule(P(Ops.PERMUTE, P(Ops.PERMUTE, X, name="inner")))
def permute_twice(node: UOp, inner: UOp, x: UOp) -> UOp | None:
    """An order of an order is an order."""
    return x.permute(tuple(inner.arg[axis] for axis in node.arg))


@rule(P(Ops.EXPAND, P(Ops.EXPAND, X)))
def expand_twice(node: UOp, x: UOp) -> UOp | None:
    """Only the last shape counts."""
    return x.expand(node.arg)


@rule(P(Ops.SHRINK, P(Ops.SHRINK, X, name="inner")))
def shrink_twice(node: UOp, inner: UOp, x: UOp) -> UOp | None:
    """A box in a box is a box."""
    box = tuple(
        (start + s, start + e) for (start, _), (s, e) in zip(inner.arg, node.arg, strict=True)
    )
    return x.shrink(box)


@rule(P(Ops.PAD, P(Ops.PAD, X, P(name="fill")), P(name="fill")))
def pad_twice(node: UOp, x: UOp, fill: UOp) -> UOp | None:
    """Two rims of one fill are one rim."""
    inner = node.src[0]
    amounts = tuple(
        (low + more_low, high + more_high)
        for (low, high), (more_low, more_high) in zip(inner.arg, node.arg, strict=True)
    )
    return UOp(Ops.PAD, node.dtype, (x, fill), amounts)


@rule(P(Ops.SHRINK, P(Ops.PAD, X, ..., name="padded")))
def shrink_inside_pad(node: UOp, padded: UOp, x: UOp) -> UOp | None:
    """A box that shows nothing of the rim does not need the rim."""
    box = tuple(
        (start - low, end - low)
        for (start, end), (low, _) in zip(node.arg, padded.arg, strict=True)
    )
    inside = all(
        0 <= start <= end <= size for (start, end), size in zip(box, x.known_shape, strict=True)
    )
    return x.shrink(box) if inside else None


@rule(P(Ops.FLIP, P(Ops.FLIP, X, name="inner")))
def flip_twice(node: UOp, inner: UOp, x: UOp) -> UOp | None:
    """An axis that is reversed twice is not reversed."""
    return x.flip(tuple(set(inner.arg) ^ set(node.arg)))


@rule(P((Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP), P(Ops.EXPAND, X)))
def move_scalar(node: UOp, x: UOp) -> UOp | None:
    """A scalar that is repeated looks the same from everywhere."""
    return x.expand(node.known_shape) if x.shape == () and node.shape else None


RULES = (
    drop_idle_movement,
    reshape_twice,
    permute_twice,
    expand_twice,
    shrink_twice,
    shrink_inside_pad,
    pad_twice,
    flip_twice,
    move_scalar,
)
MOVEMENT = RuleSet("movement", RULES, any_order=True, remember=True)
