"""Make a failing graph smaller while it keeps failing: the start of every bug report.

    before   STORE(INDEX(p0, i0*8 + i1), ADD(MUL(INDEX(p1, …), 3), MAX(INDEX(p2, …), 0)))
    after    STORE(INDEX(p0, i0), INDEX(p1, i0))

    small = shrink(graph, fails)        fails(candidate) -> True while the failure is there

Steps are tried from large to small: leave out an effect, replace a node by a source of the same
type, replace it by a literal, make a range shorter. Each step that still fails is kept, and
the search starts again there, until no step is left. A candidate for which *fails* raises does not
count as failing: most candidates are no valid graphs.

Source: A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pellucid.core.errors import PellucidError
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

Fails = Callable[[UOp], bool]


def shrink(graph: UOp, fails: Fails, *, most_tries: int = 5000) -> UOp:
    """Return a smaller graph for which *fails* is still true; *graph* itself if it is not.

    >>> from pellucid.core.dtype import dtypes
    >>> i = UOp.range(64, 0)
    >>> graph = UOp.sink((i * 3 + 7) // 2)
    >>> def fails(candidate: UOp) -> bool:
    ...     return any(node.op is Ops.FLOORDIV for node in candidate.toposort())
    >>> from pellucid.ir.text import to_text
    >>> print(to_text(shrink(graph, fails)))
    %0 = CONST index 0
    %1 = FLOORDIV index %0 %0
    %2 = SINK %1
    """
    if not _still(fails, graph):
        return graph
    tried: set[UOp] = {graph}
    is_shrinking = True
    while is_shrinking:
        is_shrinking = False
        for candidate in candidates(graph):
            if candidate in tried:
                continue
            tried.add(candidate)
            if len(tried) > most_tries:
                return graph
            if _still(fails, candidate):
                graph, is_shrinking = candidate, True
                break
    return graph


def _still(fails: Fails, candidate: UOp) -> bool:
    try:
        return fails(candidate)
    except (PellucidError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return False


def candidates(graph: UOp) -> Iterator[UOp]:
    """Smaller graphs, one step away, the boldest steps first."""
    return (candidate for candidate in _steps(graph) if not _has_empty_range(candidate))


def _has_empty_range(graph: UOp) -> bool:
    """True where a loop has become one that never runs: nothing would be computed at all."""
    sizes = (node.src[0] for node in graph.toposort() if node.op is Ops.RANGE)
    return any(size.is_const and size.arg < 1 for size in sizes)


def _steps(graph: UOp) -> Iterator[UOp]:
    order = graph.toposort()[::-1]
    yield from _without_effects(graph, order)
    for node in order:
        for simpler in _simpler(node):
            yield graph.substitute({node: simpler})
    for node in order:
        if node.op is Ops.RANGE:
            yield from (graph.substitute({node: r}) for r in _shorter(node))


def _without_effects(graph: UOp, order: list[UOp]) -> Iterator[UOp]:
    """Leave out an effect of a SINK, a GROUP or a LINEAR, or a range that nothing depends on."""
    for node in order:
        if node.op in (Ops.SINK, Ops.GROUP, Ops.LINEAR) and len(node.src) > 1:
            for place in range(len(node.src)):
                rest = node.src[:place] + node.src[place + 1 :]
                yield graph.substitute({node: node.with_sources(rest)})
        elif node.op in (Ops.END, Ops.REDUCE):
            body, *ranges = node.src
            used = tuple(r for r in ranges if r in body.ranges)
            if len(used) < len(ranges):
                yield graph.substitute({node: node.with_sources((body, *used)) if used else body})


def _simpler(node: UOp) -> Iterator[UOp]:
    """What may stand in the place of a value: one of its sources, then literals."""
    if node.op is Ops.CONST:
        yield from (c for c in _literals(node) if _is_before(c, node))
        return
    if not _is_value(node):
        return
    yield from (s for s in node.src if _is_value(s) and _fits(s, node))
    yield from _literals(node)


def _is_value(node: UOp) -> bool:
    return node.op.is_elementwise or node.op.is_movement or node.op in _VALUES


_VALUES = (Ops.CONST, Ops.INDEX, Ops.LOAD, Ops.REDUCE, Ops.RANGE, Ops.SPLAT, Ops.LANE, Ops.GATHER)


def _fits(source: UOp, node: UOp) -> bool:
    return source.dtype is node.dtype and source.shape == node.shape


def _literals(node: UOp) -> Iterator[UOp]:
    if node.op is Ops.RANGE:
        return  # an END or a REDUCE closes it: its size shrinks instead
    for value in (0, 1):
        literal = UOp.const(node.dtype, value)
        yield literal.expand(node.shape) if node.shape else literal


def _is_before(literal: UOp, node: UOp) -> bool:
    """Order literals, so that shrinking ends: 0, then 1, then all others."""
    if node.arg in (0, 1) and not isinstance(node.arg, tuple):
        return bool(literal.arg < node.arg)
    return True


def _shorter(node: UOp) -> Iterator[UOp]:
    size = node.src[0]
    if not size.is_const:
        return
    for smaller in dict.fromkeys((1, size.arg // 2, size.arg - 1)):
        if 1 <= smaller < size.arg:
            yield node.with_sources((UOp.const(size.dtype, smaller),))
