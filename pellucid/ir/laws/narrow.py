"""What a condition says about the values it guards.

    WHERE(i < 3, i % 3, 0)         ->  WHERE(i < 3, i, 0)
    (i < 3) & (i < 5)              ->  i < 3
    INDEX(p, i % 8, i < 8)         ->  INDEX(p, i, i < 8)

A branch of a WHERE is changed as a value only: the index of a memory access inside of it stays as
it is, because the access happens whatever the condition; only an access's own `valid` may change
its index.
"""

from __future__ import annotations

from pellucid.core.dtype import Kind
from pellucid.ir.bounds import Facts, bounds_under, facts_of
from pellucid.ir.law import rule
from pellucid.ir.op import COMPARISONS, Ops
from pellucid.ir.pattern import P, X, Y, Z
from pellucid.ir.uop import UOp

MANY_NODES = 48
_WHOLE = (Kind.INDEX, Kind.INT, Kind.UINT, Kind.BOOL)


def is_about_integers(condition: UOp) -> bool:
    """True when *condition* compares integers somewhere, near its root."""
    stack, steps = [condition], 0
    while stack and steps < MANY_NODES:
        node = stack.pop()
        steps += 1
        if node.op in COMPARISONS:
            if node.src[0].dtype.is_int:
                return True
        elif node.dtype.kind is Kind.BOOL and node.op.is_elementwise:
            stack += node.src
    return False


def narrowed(root: UOp, facts: Facts) -> UOp:
    """*root*, simplified by what holds where *facts* hold. Looks at a few nodes below it only."""
    done: dict[UOp, UOp] = {}
    known: Facts = {}
    stack = [root]
    steps = 0
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        enter = node.op.is_elementwise and not node.op.native_only and steps < MANY_NODES
        if not enter:
            done[node] = _narrowed_node(node, facts, known)
            continue
        steps += 1
        if node not in done:
            short = _narrowed_node(node, facts, known)
            if short is not node:
                done[node] = short
                continue
        missing = [s for s in node.src if s not in done]
        if missing:
            stack.extend(missing)
            continue
        done[node] = node.over(done)
    return done[root]


def _narrowed_node(node: UOp, facts: Facts, known: Facts) -> UOp:
    """*node* itself, where the facts decide it, its remainder or its extreme."""
    if node.dtype.kind not in _WHOLE or node.op is Ops.CONST:
        return node
    low, high = bounds_under(node, facts, known)
    if low == high:
        return node.const_like(low)
    if node.dtype.kind is not Kind.INDEX or len(node.src) != 2:
        return node
    x, y = node.src
    if node.op is Ops.FLOORMOD and y.is_const and y.arg > 0:
        first, last = (v // y.arg for v in bounds_under(x, facts, known))
        return x + -first * y.arg if first == last else node
    if node.op is Ops.MAX or node.op is Ops.MIN:
        a, b = bounds_under(x, facts, known), bounds_under(y, facts, known)
        if a.min >= b.max:
            return x if node.op is Ops.MAX else y
        if b.min >= a.max:
            return y if node.op is Ops.MAX else x
    return node


@rule(P(Ops.WHERE, P(name="c"), X, Y))
def narrow_branches(node: UOp, c: UOp, x: UOp, y: UOp) -> UOp | None:
    """In the first branch the condition holds, in the second it does not."""
    if not (x.op.is_elementwise or y.op.is_elementwise) or not is_about_integers(c):
        return None
    first = narrowed(x, facts_of(c, True)) if x.op.is_elementwise else x
    second = narrowed(y, facts_of(c, False)) if y.op.is_elementwise else y
    return node.with_sources((c, first, second))


@rule(P((Ops.AND, Ops.OR), kinds=(Kind.BOOL,)))
def narrow_conditions(node: UOp) -> UOp | None:
    """One side of an `and` counts only where the other holds; of an `or`, where it does not."""
    x, y = node.src
    if not (is_about_integers(x) and is_about_integers(y)):
        return None
    holds = node.op is Ops.AND
    second = narrowed(y, facts_of(x, holds))
    if second is not y:
        return node.with_sources((x, second))
    return node.with_sources((narrowed(x, facts_of(y, holds)), y))


@rule(P(Ops.INDEX, X, Y, Z))
def narrow_index(node: UOp, x: UOp, y: UOp, z: UOp) -> UOp | None:
    """An index matters only where the access is valid."""
    if z.is_const:
        return node.with_sources((x, y)) if z.arg else None
    if not is_about_integers(z):
        return None
    return node.with_sources((x, narrowed(y, facts_of(z)), z))


@rule(P(Ops.LOAD, X, Y, Z))
def open_load(node: UOp, x: UOp, y: UOp, z: UOp) -> UOp | None:
    """A gate that is always open is no gate; one that never is gives the fallback."""
    if not z.is_const:
        return None
    return node.with_sources((x,)) if z.arg else y


@rule(P(Ops.STORE, X, Y, Z))
def open_store(node: UOp, x: UOp, y: UOp, z: UOp) -> UOp | None:
    """A gate that is always open is no gate."""
    return node.with_sources((x, y)) if z.is_const and z.arg else None


RULES = (narrow_branches, narrow_conditions, narrow_index, open_load, open_store)
