"""Rebuild a graph: every node once, sources first; and substitution that knows what a REDUCE binds.

    transform(root, visit)          visit sees each node over its rebuilt sources
    rebuild(root, visit)            visit sees each node as it was, and its rebuilt sources
    substitute_free(root, {i: 3})   exchange RANGEs where they are free

A REDUCE binds its ranges: `REDUCE(x[i, k], k)` depends on i alone. When i is replaced and a copy
of the REDUCE must run in a loop of its own, its k must be another RANGE than that of the original:

    substitute_free(REDUCE(x[i, k], k), {i: j}, fresh)  ->  REDUCE(x[j, k'], k')    k' = fresh(k)

and a REDUCE that depends on none of the replaced ranges stays the node it is: both copies share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pellucid.core.dtype import Kind
from pellucid.ir import origin
from pellucid.ir.arg import RangeArg
from pellucid.ir.laws.terms import Terms, sum_of, terms_of
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, kept

Visit = Callable[[UOp], UOp]
Rebuild = Callable[[UOp, tuple[UOp, ...]], UOp]
Fresh = Callable[[UOp], UOp]


def transform(root: UOp, visit: Visit) -> UOp:
    """Rebuild *root* bottom-up: each node gets its rebuilt sources, then *visit* may exchange it.

    >>> from pellucid.core.dtype import dtypes
    >>> x = UOp.const(dtypes.int32, 2) + 3
    >>> transform(x, lambda n: n.const_like(5) if n.is_const and n.arg == 2 else n).src[0].arg
    5
    """
    return rebuild(root, lambda node, sources: visit(node.with_sources(sources)))


def rebuild(root: UOp, visit: Rebuild) -> UOp:
    """Rebuild *root* bottom-up: *visit* gets each node as it was, and its rebuilt sources.

    What is made for a node inherits the lines of the user's program that the node came from.
    """
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        after = done[node] = visit(node, tuple([done[s] for s in node.src]))
        if origin.recording and after is not node:
            origin.inherit(node, after)
    return done[root]


def fresh_ranges(*roots: UOp) -> Fresh:
    """A maker of copies of RANGEs, with ids that no *root* uses; one copy for each RANGE."""
    number = max(map(next_range_id, roots))
    copies: dict[UOp, UOp] = {}

    def fresh(axis: UOp) -> UOp:
        nonlocal number
        if axis not in copies:
            copies[axis] = axis.replace(arg=RangeArg(number, axis.arg.kind))
            number += 1
        return copies[axis]

    return fresh


def next_range_id(root: UOp) -> int:
    """A number that no RANGE below *root* has."""
    return max((n.arg.id for n in root.toposort() if n.op is Ops.RANGE), default=-1) + 1


def substitute_free(root: UOp, mapping: Mapping[UOp, UOp], fresh: Fresh | None = None) -> UOp:
    """Exchange the RANGEs in *mapping* where they are free in *root*.

    With *fresh*, every REDUCE and END that changes binds copies of its ranges.
    """
    return _substitute(root, dict(mapping), fresh, {})


Memo = dict[tuple[UOp, ...], dict[UOp, UOp]]


def _substitute(root: UOp, mapping: dict[UOp, UOp], fresh: Fresh | None, memo: Memo) -> UOp:
    done = memo.setdefault(tuple(mapping), dict(mapping))
    _ = root.ranges  # from here on, all nodes below have theirs

    all_known = all(value.is_const for value in mapping.values())

    def is_open(node: UOp) -> bool:
        if node in done or not _depends(node, mapping) or _binds(node):
            return False
        moved = _moved(node, mapping) if all_known else None
        if moved is not None:
            done[node] = moved
        return moved is None

    for node in root.toposort(is_open):
        if node in done:
            continue
        if not _depends(node, mapping):
            done[node] = node
        elif not _binds(node):
            done[node] = node.with_sources(tuple([done[s] for s in node.src]))
        else:
            done[node] = _rebind(node, mapping, fresh, memo)
        if origin.recording and done[node] is not node:
            origin.inherit(node, done[node])
    return done[root]


def _binds(node: UOp) -> bool:
    return (node.op is Ops.REDUCE or node.op is Ops.END) and len(node.src) > 1


def _depends(node: UOp, mapping: Mapping[UOp, UOp]) -> bool:
    return not mapping.keys().isdisjoint(node._ranges)


def _moved(node: UOp, mapping: Mapping[UOp, UOp]) -> UOp | None:
    """An index sum whose ranges get literals, in which those ranges are terms: a literal changes.

    (i * 64 + u * 8) with u = 3  ->  i * 64 + 24, in normal order at once
    """
    if node.op is not Ops.ADD or node.dtype.kind is not Kind.INDEX:
        return None
    rest: Terms = {}
    distance = 0
    for base, factor in _known_terms(node).items():
        axis = base.src[0] if base is not None and base.op is Ops.SPLAT else base
        if axis is None or not _depends(axis, mapping):
            rest[base] = factor
        elif axis in mapping:
            distance += factor * mapping[axis].arg
        else:
            return None
    rest[None] = rest.get(None, 0) + distance
    return sum_of(rest, node)


_known_terms = kept(terms_of)


def _rebind(node: UOp, mapping: dict[UOp, UOp], fresh: Fresh | None, memo: Memo) -> UOp:
    body, *bound = node.src
    inner = {k: v for k, v in mapping.items() if k not in bound}
    if fresh is not None:
        inner |= {r: fresh(r) for r in bound}
    ranges = tuple(inner.get(r, r) for r in bound)
    return node.with_sources((_substitute(body, inner, fresh, memo), *ranges))


def free_ranges(nodes: Iterable[UOp]) -> tuple[UOp, ...]:
    """The RANGEs that any of *nodes* depends on, by id."""
    found = {r for node in nodes for r in node.ranges}
    return tuple(sorted(found, key=lambda r: (r.arg.id, r.arg.kind.value)))
