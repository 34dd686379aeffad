"""Rebuild a graph: every node once, sources first; and substitution that knows what a REDUCE binds.

    transform(root, visit)          visit sees each node over its rebuilt sources
    rebuild(root, visit)            visit sees each node as it was, and its rebuilt sources
    substitute_free(root, {i: 3})   exchange RANGEs where they are free
    substitute_each(root, choices)  the same for several choices of literals at once

A REDUCE binds its ranges: `REDUCE(x[i, k], k)` depends on i alone. When i is replaced and a copy
of the REDUCE must run in a loop of its own, its k must be another RANGE than that of the original:

    substitute_free(REDUCE(x[i, k], k), {i: j}, fresh)  ->  REDUCE(x[j, k'], k')    k' = fresh(k)

and a REDUCE that depends on none of the replaced ranges stays the node it is: both copies share it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from pellucid.ir import origin
from pellucid.ir.arg import RangeArg
from pellucid.ir.laws.terms import Terms, sum_of, terms_of
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp, kept

_RANGE = Ops.RANGE
Visit = Callable[[UOp], UOp]
Rebuild = Callable[[UOp, tuple[UOp, ...]], UOp]
Fresh = Callable[[UOp], UOp]


def transform(root: UOp, visit: Visit, ops: Container[Op] | None = None) -> UOp:
    """Rebuild *root* bottom-up: each node gets its rebuilt sources, then *visit* may exchange it.

    With *ops*, *visit* is asked about nodes of these alone.

    >>> from pellucid.core.dtype import dtypes
    >>> x = UOp.const(dtypes.int32, 2) + 3
    >>> transform(x, lambda n: n.const_like(5) if n.is_const and n.arg == 2 else n).src[0].arg
    5
    """
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        after = node.over(done)
        if ops is None or node.op in ops:
            after = visit(after)
        done[node] = after
        if origin.recording and after is not node:
            origin.inherit(node, after)
    return done[root]


def rebuild(root: UOp, visit: Rebuild) -> UOp:
    """Rebuild *root* bottom-up: *visit* gets each node as it was, and its rebuilt sources.

    What is made for a node inherits the lines of the user's program that the node came from.
    """
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        src = node.src
        after = done[node] = visit(node, tuple([done[s] for s in src]) if src else src)
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


@kept
def next_range_id(root: UOp) -> int:
    """A number that no RANGE below *root* has."""
    return max([n.arg.id for n in root.toposort() if n.op is _RANGE], default=-1) + 1


def substitute_free(root: UOp, mapping: Mapping[UOp, UOp], fresh: Fresh | None = None) -> UOp:
    """Exchange the RANGEs in *mapping* where they are free in *root*.

    With *fresh*, every REDUCE and END that changes binds copies of its ranges.
    """
    return _substitute(root, dict(mapping), fresh, {})


def substitute_each(root: UOp, choices: Sequence[Mapping[UOp, UOp]]) -> list[UOp]:
    """One copy of *root* for each choice of literals for the same RANGEs, as `substitute_free`.

    A node is made as often as the literals differ that it depends on: of 6 x 2 copies, what
    depends on the rows alone is made 6 times, what depends on the columns alone twice.

    >>> i, j = UOp.range(2, 0), UOp.range(2, 1)
    >>> choices = [{i: i.const_like(a), j: j.const_like(b)} for a in (0, 1) for b in (0, 1)]
    >>> [copy.arg for copy in substitute_each(i * 8 + j, choices)]
    [0, 1, 8, 9]
    """
    _ = root.ranges  # from here on, all nodes below have theirs
    axes = choices[0].keys()
    moved: dict[UOp, Terms] = {}

    def is_open(node: UOp) -> bool:
        if not _depends(node, choices[0]):
            return False
        terms = _still_terms(node, choices[0])
        if terms is not None:
            moved[node] = terms
        return terms is None

    nodes = root.toposort(is_open)
    if any(_binds(node) and not axes.isdisjoint(node.src[1:]) for node in nodes):
        return [substitute_free(root, chosen) for chosen in choices]
    copies = _Copies(choices)
    for node in nodes:
        if _depends(node, choices[0]):
            copies.make(node, moved.get(node))
    return copies.all_of(root)


class _Copies:
    """Copies of nodes, by the literals that they depend on: a node's are numbered in a list."""

    def __init__(self, choices: Sequence[Mapping[UOp, UOp]]) -> None:
        self.choices = choices
        self.of: dict[UOp, list[UOp]] = {}
        self.numbers: dict[tuple[UOp, ...], list[int]] = {}
        """For some RANGEs: which copy each choice has, of a node that depends on them."""
        self.firsts: dict[tuple[UOp, ...], list[int]] = {}
        """For some RANGEs: the first choice of each copy."""
        self.axes: dict[tuple[UOp, ...], tuple[UOp, ...]] = {}
        """For the ranges of a node: those among them that are replaced."""

    def axes_of(self, node: UOp) -> tuple[UOp, ...]:
        """The replaced RANGEs that a node depends on."""
        found = self.axes.get(node._ranges)
        if found is None:
            found = tuple([r for r in node._ranges if r in self.choices[0]])
            self.axes[node._ranges] = found
            self.number(found)
        return found

    def number(self, axes: tuple[UOp, ...]) -> None:
        """Number the copies that nodes have which depend on *axes*."""
        if axes in self.numbers:
            return
        seen: dict[tuple[UOp, ...], int] = {}
        keys = [tuple([chosen[r] for r in axes]) for chosen in self.choices]
        self.numbers[axes] = [seen.setdefault(key, len(seen)) for key in keys]
        self.firsts[axes] = [keys.index(key) for key in seen]

    def make(self, node: UOp, terms: Terms | None) -> None:
        """Make the copies of a node, whose sources have theirs; *terms*: as a sum, that stay."""
        firsts = self.firsts[self.axes_of(node)]
        chosen = self.choices
        if node in chosen[0]:
            made = [chosen[first][node] for first in firsts]
        elif terms is not None:
            made = [_moved_to(node, terms, chosen[first]) for first in firsts]
        else:
            sources = [self.at(source, firsts) for source in node.src]
            made = [node.with_sources(src) for src in zip(*sources, strict=True)]
        self.of[node] = made
        if origin.recording:
            for copy in made:
                origin.inherit(node, copy)

    def at(self, node: UOp, choices: Sequence[int]) -> list[UOp]:
        """The copies that a node has for some choices, by their place."""
        copies = self.of.get(node)
        if copies is None:
            return [node] * len(choices)
        numbers = self.numbers[self.axes_of(node)]
        return [copies[numbers[choice]] for choice in choices]

    def all_of(self, node: UOp) -> list[UOp]:
        """The copy that a node has for each choice."""
        return self.at(node, range(len(self.choices)))


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
            done[node] = node.over(done)
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
    still = _still_terms(node, mapping)
    return None if still is None else _moved_to(node, still, mapping)


def _still_terms(node: UOp, mapping: Mapping[UOp, UOp]) -> Terms | None:
    """The terms of an index sum that do not depend on some ranges, where those are terms too."""
    if node.op is not Ops.ADD or not node.dtype.is_index:
        return None
    still: Terms = {}
    for base, factor in _known_terms(node).items():
        axis = base.src[0] if base is not None and base.op is Ops.SPLAT else base
        if axis is None or not _depends(axis, mapping):
            still[base] = factor
        elif axis not in mapping:
            return None
    return still


def _moved_to(node: UOp, still: Terms, mapping: Mapping[UOp, UOp]) -> UOp:
    """The sum *node* where the ranges among its terms have literals."""
    distance = still.get(None, 0)
    for base, factor in _known_terms(node).items():
        if base not in still and base is not None:
            axis = base.src[0] if base.op is Ops.SPLAT else base
            distance += factor * mapping[axis].arg
    return sum_of({**still, None: distance}, node)


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
