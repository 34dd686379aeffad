"""The order in which a kernel runs: a graph, or a list, as nested loops.

A SINK says what depends on what; this file finds one order that is right, without using the
passes that the compiler uses for it, as it serves to check them.

    SINK(END(STORE(INDEX(P, i), REDUCE(x, j)), i))  ->  Loop i: [..., Loop j: [x], STORE]

A node runs in the innermost loop whose RANGE it depends on, so what depends on no range of a
loop is computed before it. Two things are tied to a loop without naming its range: the effects
that are the body of its END, and reads of memory that these effects write. In a GROUP all
values are computed before anything is stored.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import field

from pellucid.core.errors import InterpretError
from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


@dataclass
class Loop:
    """*body* for every value of *ranges*, first range outermost; *end* is the END or REDUCE."""

    ranges: tuple[UOp, ...]
    end: UOp
    body: list[Item] = field(default_factory=list)


@dataclass
class Branch:
    """*body*, where the condition of the IF node holds."""

    node: UOp
    body: list[Item] = field(default_factory=list)


Item = UOp | Loop | Branch


def structure(root: UOp) -> list[Item]:
    """Nested loops for a SINK, or for the LINEAR of a program."""
    if root.op is Ops.PROGRAM:
        linears = [s for s in root.src if s.op is Ops.LINEAR]
        root = linears[0] if linears else root.src[0]
    return _structure_of_list(root.src) if root.op is Ops.LINEAR else _region(root, None)[0]


# ---- lists -------------------------------------------------------------------------------------


def _structure_of_list(nodes: Iterable[UOp]) -> list[Item]:
    top: list[Item] = []
    blocks: list[tuple[UOp | None, list[Item]]] = [(None, top)]
    for node in nodes:
        if node.op is Ops.RANGE:
            blocks.append((node, []))
        elif node.op is Ops.IF:
            blocks[-1][1].append(node)
            blocks.append((node, []))
        elif node.op is Ops.ENDIF:
            opener, body = blocks.pop()
            if opener is None or node.src[0] is not opener:
                raise InterpretError("form", "ENDIF does not close the innermost IF", node=node)
            blocks[-1][1].append(Branch(opener, body))
        elif node.op is Ops.END:
            _close(node, blocks)
        else:
            blocks[-1][1].append(node)
    if len(blocks) > 1:
        raise InterpretError("form", "a loop or a branch is never closed", node=blocks[-1][0])
    return top


def _close(end: UOp, blocks: list[tuple[UOp | None, list[Item]]]) -> None:
    remaining = set(end.src[1:])
    while remaining:
        opener, body = blocks.pop()
        if opener is None or opener not in remaining:
            raise InterpretError("form", "END does not close the innermost loop", node=end)
        remaining.discard(opener)
        blocks[-1][1].append(Loop((opener,), end, body))


# ---- graphs ------------------------------------------------------------------------------------


def is_loop(node: UOp) -> bool:
    """True for the nodes that run their first source over ranges."""
    return node.op is Ops.END or (node.op is Ops.REDUCE and len(node.src) > 1)


def _region(root: UOp, live: set[UOp] | None) -> tuple[list[Item], list[UOp]]:
    """Items that compute *root* from nodes in *live* (None: all), and the other nodes needed."""
    items: list[Item] = []
    inputs: dict[UOp, None] = {}
    loops: dict[UOp, Loop] = {}
    seen: set[UOp] = set()
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            items.append(loops.get(node, node))
        elif live is not None and node not in live:
            inputs[node] = None
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((s, False) for s in reversed(_needs(node, loops)))
    return items, list(inputs)


def _needs(node: UOp, loops: dict[UOp, Loop]) -> list[UOp]:
    if node.op is Ops.RANGE:
        return []
    if not is_loop(node):
        return [*_values_below(node), *node.src]
    ranges = node.src[1:]
    body, inputs = _region(node.src[0], _live_nodes(node))
    loops[node] = Loop(ranges, node, [item for item in body if item not in ranges])
    sizes = [s for r in ranges for s in r.src]
    return [*sizes, *(n for n in inputs if n not in ranges)]


def _values_below(node: UOp) -> Iterator[UOp]:
    """What the effects of a GROUP need, so that it is all computed before the first effect."""
    if node.op is Ops.GROUP:
        for effect in node.src:
            if effect.op is Ops.GROUP:
                yield from _values_below(effect)
            elif effect.op is Ops.STORE:
                yield from effect.src


def _direct_effects(body: UOp) -> Iterator[UOp]:
    yield body
    if body.op is Ops.GROUP or body.op is Ops.AFTER:
        for source in body.src if body.op is Ops.GROUP else body.src[:1]:
            yield from _direct_effects(source)


def storage_of(node: UOp) -> UOp:
    """The PARAM or DEFINE that an INDEX, LOAD, STORE or AFTER is about."""
    while node.op in (Ops.AFTER, Ops.INDEX, Ops.LOAD, Ops.STORE):
        node = node.src[0]
    return node


def values_used(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values *node* uses; an INDEX that is only an address is not among them."""
    if node.op in (Ops.LOAD, Ops.STORE, Ops.INDEX, Ops.PREFETCH):
        return node.src[1:]
    return () if node.op in (Ops.AFTER, Ops.GROUP, Ops.END) else node.src


def _reads(node: UOp, storages: set[UOp]) -> list[UOp]:
    """The nodes at which *node* reads from *storages*: itself, or INDEX sources used as values."""
    if node.op is Ops.LOAD:
        return [node] if storage_of(node) in storages else []
    return [s for s in values_used(node) if s.op is Ops.INDEX and storage_of(s) in storages]


def _is_own(node: UOp, effects: Container[UOp]) -> bool:
    """False for effects of others: what these read, they have read before the loop begins."""
    return node.op is not Ops.END and (node.op is not Ops.STORE or node in effects)


def _live_nodes(loop: UOp) -> set[UOp]:
    """The nodes that run again in each turn of *loop*."""
    body, ranges = loop.src[0], set(loop.src[1:])
    effects = set(_direct_effects(body)) if loop.op is Ops.END else {body}
    written = {storage_of(e) for e in effects if e.op is Ops.STORE}
    live = {n for n in body.toposort() if not ranges.isdisjoint(n.ranges)}
    live |= effects
    if written:
        turned: set[UOp] = set()
        for node in body.toposort(lambda n: _is_own(n, effects)):
            reads = _reads(node, written)
            turned.update(reads)
            if reads or not turned.isdisjoint(node.src):
                turned.add(node)
        live |= turned
    return live
