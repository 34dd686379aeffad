"""Vectors: what is equal in all lanes is computed once, and what is taken out was put in.

    SPLAT(x) + SPLAT(y)           ->  SPLAT(x + y)
    LANE(STACK(a, b, c), 1)       ->  b
    STACK(x, x, x, x)             ->  SPLAT(x)

A vector index becomes the splat of a scalar plus literal lanes, which memory passes look for.
"""

from __future__ import annotations

from pellucid.ir.law import rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import P, X
from pellucid.ir.uop import UOp

_LANEWISE = tuple(op for op in Ops.all() if op.is_elementwise)


@rule(*_LANEWISE)
def splat_last(node: UOp) -> UOp | None:
    """An op of splats is the splat of the op."""
    lanes = node.dtype.lanes
    if lanes == 1:
        return None
    found = False
    for source in node.src:
        if source.op is Ops.SPLAT:
            found = True
        elif not source.is_const:
            return None
    if not found:
        return None
    scalars = tuple(
        s.src[0] if s.op is Ops.SPLAT else s.replace(dtype=s.dtype.scalar) for s in node.src
    )
    return UOp(node.op, node.dtype.scalar, scalars, node.arg).splat(lanes)


@rule(P(Ops.LANE, P(Ops.SPLAT, X)))
def lane_of_splat(node: UOp, x: UOp) -> UOp | None:
    """Every lane of a splat is its source."""
    return x.splat(node.dtype.lanes)


@rule(P(Ops.LANE, P(Ops.STACK, name="stack")))
def lane_of_stack(node: UOp, stack: UOp) -> UOp | None:
    """A lane of a stack of scalars is the scalar."""
    if any(part.dtype.lanes != 1 for part in stack.src):
        return None
    if isinstance(node.arg, tuple):
        return UOp(Ops.STACK, node.dtype, tuple(stack.src[lane] for lane in node.arg))
    return stack.src[int(node.arg)]


@rule(P(Ops.LANE, P(Ops.LANE, X, name="inner")))
def lane_of_lane(node: UOp, x: UOp, inner: UOp) -> UOp | None:
    """Lanes of lanes are lanes."""
    if not isinstance(inner.arg, tuple):
        return None
    chosen = node.arg if isinstance(node.arg, tuple) else (node.arg,)
    lanes = tuple(inner.arg[lane] for lane in chosen)
    return x.lane(lanes if isinstance(node.arg, tuple) else lanes[0])


@rule(P(Ops.LANE, X))
def all_lanes(node: UOp, x: UOp) -> UOp | None:
    """All lanes in order are the vector; the one lane of a scalar is the scalar."""
    if x.dtype.lanes == 1:
        return x.splat(node.dtype.lanes)
    return x if node.arg == tuple(range(x.dtype.lanes)) else None


@rule(Ops.STACK)
def stack_of_same(node: UOp) -> UOp | None:
    """Equal scalars are a splat, literals are a literal, one part is itself."""
    first = node.src[0]
    if len(node.src) == 1:
        return first
    if all(s is first for s in node.src) and first.dtype.lanes == 1:
        return first.splat(node.dtype.lanes)
    if any(s.op is not Ops.CONST for s in node.src):
        return None
    values: list[bool | int | float] = []
    for part in node.src:
        values += part.arg if isinstance(part.arg, tuple) else [part.arg] * part.dtype.lanes
    return UOp.const(node.dtype, tuple(values))


@rule(P(Ops.SPLAT, P(Ops.SPLAT, X)))
def splat_of_splat(node: UOp, x: UOp) -> UOp | None:
    """A splat of a splat is a splat."""
    return x.splat(node.dtype.lanes)


RULES = (
    splat_last,
    lane_of_splat,
    lane_of_stack,
    lane_of_lane,
    all_lanes,
    stack_of_same,
    splat_of_splat,
)
