"""Keep a row of a dear value in local memory, where several loops over one row compute it.

LOOP form -> LOOP form: the action `stage`. Softmax of rows, m and s reductions of row i, before:

    END(STORE(y[i, j], exp(x[i, j] - m) * (1 / s)), i, j)        s = REDUCE(exp(x[i, k] - m), k)

and after, with `row` in local memory, one for each thread:

    END(STORE(y[i, j], filled[j] * (1 / s)), i, j)               s = REDUCE(filled[k], k)
    filled = AFTER(row, END(STORE(row[c], exp(x[i, c] - m)), c))

Two loops compute the same value when their bodies are the same once the RANGEs of each are renamed
to those of the new loop; as equal nodes are one object, a set of nodes finds what is shared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind, RangeArg
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.actions.buffers import new_buffer, position
from pellucid.opt.actions.legal import (
    KIND_NAMES,
    next_define_id,
    refuse,
    require_free_order,
    require_loop,
)
from pellucid.opt.axes import axes_of, reduces_over, reductions, size_of
from pellucid.opt.cost import price

Ranges = tuple[UOp, ...]


@dataclass(frozen=True)
class Shared:
    """A value that several loops compute.

    value: over *ranges*, the loop that will fill the row.  copies: what it is in each of the loops,
    with the RANGEs there.  outer: what the row depends on.  cost: that of computing it once.
    """

    value: UOp
    ranges: Ranges
    copies: dict[UOp, Ranges]
    outer: frozenset[UOp]
    cost: float

    @property
    def num_bytes(self) -> int:
        """Memory that the row takes."""
        return self.value.dtype.itemsize * math.prod(size_of(r) or 1 for r in self.ranges)


def shared_values(sink: UOp, axis: UOp) -> list[Shared]:
    """What the reductions over *axis* compute that other loops of the same row compute too."""
    nest = _Nest.of(sink)
    own = [n for n in reductions(sink) if axis in n.src[1:]]
    if nest is None or not own:
        return []
    outer, ranges = frozenset(own[0].ranges), own[0].src[1:]
    sizes = tuple(size_of(r) for r in ranges)
    if None in sizes or not nest.starts_with(outer):
        return []
    first = next_range_id(sink)
    fresh = tuple(
        r.replace(arg=RangeArg(first + place, AxisKind.LOOP)) for place, r in enumerate(ranges)
    )
    loops = [(n.src[1:], n.src[0]) for n in reductions(sink) if frozenset(n.ranges) == outer]
    tables: dict[Ranges, dict[UOp, UOp]] = {}
    for inner, body in (*loops, *nest.inside(outer)):
        if tuple(size_of(r) for r in inner) == sizes:
            tables.setdefault(inner, {}).update(_renamed(body, inner, fresh))
    found = []
    for value in (n for n in tables[ranges] if _is_whole(n, fresh)):
        copies = {table[value]: inner for inner, table in tables.items() if value in table}
        if len(copies) > 1:
            found.append(Shared(value, fresh, copies, outer, _cost_in(value, fresh)))
    return found


def dearest(found: list[Shared]) -> Shared | None:
    """The value that costs most; of several the last, which stands on the others."""
    return max(reversed(found), key=lambda s: s.cost, default=None)


def stage(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Put what a reduction over *axis* shares with other loops into memory, once for each row."""
    require_free_order(sink, action)
    require_loop(action, axis)
    if not reduces_over(sink, axis):
        raise refuse(action, "it is an output axis; name that of a reduction")
    kinds = (AxisKind.LOOP, AxisKind.REDUCE, AxisKind.THREAD)
    other = next((r for r in axes_of(sink) if r.arg.kind not in kinds), None)
    if other is not None:
        kind = KIND_NAMES[other.arg.kind]
        raise refuse(action, f"the row would be filled beside an axis that is {kind}")
    shared = dearest(shared_values(sink, axis))
    if shared is None:
        raise refuse(action, "no other loop over the same row computes what its reduction does")
    row = new_buffer(action, shared.value.dtype, shared.ranges, next_define_id(sink))
    fill = row.index(position(shared.ranges)).store(shared.value).end(*shared.ranges)
    filled = row.after(fill)
    reads = {copy: filled.index(position(inner)) for copy, inner in shared.copies.items()}
    return sink.substitute(reads)


def _renamed(body: UOp, ranges: Ranges, fresh: Ranges) -> dict[UOp, UOp]:
    """What *body* computes in its loop, with its RANGEs renamed: renamed node -> node."""
    done: dict[UOp, UOp] = dict(zip(ranges, fresh, strict=True))

    def is_inside(node: UOp) -> bool:
        return node.op is not Ops.REDUCE and any(r in ranges for r in node.ranges)

    for node in body.toposort(is_inside):
        if node not in done:
            inside = is_inside(node)
            done[node] = node.over(done) if inside else node
    return {renamed: node for node, renamed in done.items() if renamed is not node}


def _is_whole(node: UOp, ranges: Ranges) -> bool:
    """True for a value that has an element of its own in every iteration, in a plain type."""
    dtype = node.dtype
    plain = not dtype.is_index and not dtype.is_bool and dtype.itemsize >= 4
    return node.op.is_elementwise and plain and all(r in node.ranges for r in ranges)


def _cost_in(value: UOp, ranges: Ranges) -> float:
    """What one element costs: the ops and loads that depend on the row's own loop."""
    nodes = value.toposort(lambda n: any(r in ranges for r in n.ranges))
    return sum(
        1.0 if n.op is Ops.INDEX else price(n)
        for n in nodes
        if any(r in ranges for r in n.ranges)
        and (n.op is Ops.INDEX or (n.op.is_elementwise and not n.dtype.is_index))
    )


@dataclass(frozen=True)
class _Nest:
    """The loops of the outputs: END(body, ranges), where body may hold further ENDs."""

    end: UOp

    @staticmethod
    def of(sink: UOp) -> _Nest | None:
        effect = sink.src[0] if len(sink.src) == 1 else None
        return _Nest(effect) if effect is not None and effect.op is Ops.END else None

    def starts_with(self, outer: frozenset[UOp]) -> bool:
        """True when exactly *outer* are the outermost loops."""
        return bool(outer) and frozenset(self.end.src[1 : 1 + len(outer)]) == outer

    def inside(self, outer: frozenset[UOp]) -> Iterator[tuple[Ranges, UOp]]:
        """The loops inside of *outer*, each with its body."""
        body, inner = self.end.src[0], self.end.src[1 + len(outer) :]
        if inner:
            yield inner, body
            return
        for part in body.src if body.op is Ops.GROUP else (body,):
            if part.op is Ops.END:
                yield part.src[1:], part.src[0]
