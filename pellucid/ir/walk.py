"""Walks over a graph: who uses whom, and what is below.

users(sink)[x]  ->  the nodes that have x as a source, each once, in order of the walk
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from pellucid.ir.op import Op
from pellucid.ir.uop import UOp


def users(root: UOp) -> dict[UOp, list[UOp]]:
    """For each node below *root*, the nodes that use it, each once.

    >>> x = UOp.range(4, 0)
    >>> [u.op for u in users(x * x)[x]]
    [Ops.MUL]
    """
    found: dict[UOp, list[UOp]] = {}
    for node in root.toposort():
        found.setdefault(node, [])
        for source in dict.fromkeys(node.src):
            found[source].append(node)
    return found


def count_users(root: UOp) -> Counter[UOp]:
    """For each node below *root*, how many times it is a source (twice in x * x)."""
    counts: Counter[UOp] = Counter()
    for node in root.toposort():
        counts.update(node.src)
    return counts


def nodes_of(root: UOp, *ops: Op) -> list[UOp]:
    """All nodes of *ops* below *root*, sources first."""
    return [node for node in root.toposort() if node.op in ops]


def ranges_of(root: UOp) -> list[UOp]:
    """All RANGEs below *root*, by id."""
    from_below = [n for n in root.toposort() if n.op.name == "RANGE"]
    return sorted(from_below, key=lambda r: (r.arg.id, r.arg.kind.value))


def depends_on(node: UOp, others: Iterable[UOp]) -> bool:
    """True when one of *others* is *node* or below it."""
    wanted = set(others)
    return any(n in wanted for n in node.toposort())


def map_nodes(root: UOp, change: Callable[[UOp], UOp | None]) -> UOp:
    """Rebuild the graph, sources first; *change* sees each rebuilt node and may replace it."""
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        made = node.over(done)
        done[node] = change(made) or made
    return done[root]
