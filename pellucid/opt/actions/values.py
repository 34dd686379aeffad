"""The rows of local memory that a kernel makes in each turn of a loop, and what is made of them.

    in each i:  s[j] = sum over k of q[i, k] * x[j, k]         a row            pass 0
                m    = largest s[j]                            a statistic      pass 0
                e[j] = exp(s[j] - m)                           a row            pass 1
                y[d] = sum over j of e[j] * v[j, d], for all d a sum            pass 1

What needs a statistic is known one pass over the row later than what the statistic is made of. A
sum may be summed itself: `sum over d of g[d] * y[d]` is a *total*, known as soon as the sum is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field

from pellucid.core.records import dataclass
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import refuse

Ranges = tuple[UOp, ...]


@dataclass(eq=False)
class RowValue:
    """A row value, statistic or sum: what it is made of, and where it will lie.

    node: what reads of it show in the kernel as it was: the AFTER of a row, or a REDUCE.
    body, axis: an element, and the RANGE along the row.  inner: further loops of a sum.
    stage: the pass that makes it; that of a total begins with it.  kept: later passes read the row.
    done: the last effect on its buffer so far.  uses: all nodes that are this sum, each with the
    RANGEs that are its further loops there.
    """

    node: UOp
    body: UOp
    axis: UOp
    inner: Ranges
    stage: int
    kept: bool = False
    buffer: UOp | None = None
    done: UOp | None = None
    uses: dict[UOp, Ranges] = field(default_factory=dict)
    is_total: bool = False

    def __post_init__(self) -> None:
        self.uses = self.uses or {self.node: self.inner}

    @property
    def is_row(self) -> bool:
        """True for a row value."""
        return self.node.op is Ops.AFTER


def row_values(body: UOp, action: Action, axis: UOp) -> list[RowValue]:
    """All rows, statistics, sums and totals of one turn of *axis*, those that others need first."""
    found: dict[UOp, RowValue] = {}
    stages: dict[UOp, int] = {}  # node -> the first pass in which it is known
    rows: dict[UOp, set[UOp]] = {}  # node -> the RANGEs at which it reads rows
    sums: dict[UOp, set[UOp]] = {}  # node -> the reduced RANGEs at which it reads sums
    loops = _loops(body)
    for node in body.toposort():
        stages[node] = max((stages[s] for s in node.src), default=0)
        rows[node] = set().union(*(rows[s] for s in node.src))
        sums[node] = set().union(*(sums[s] for s in node.src))
        if node.op is Ops.AFTER:
            found[node] = _row(node, action, stages[node])
            rows[node], sums[node] = set(), set()
        elif node.op is Ops.INDEX and node.src[0].op is Ops.AFTER:
            rows[node] = {node.src[1]}
        elif node.op is Ops.REDUCE and rows[node].intersection(node.src[1:]):
            if len(node.src) != 2 or sums[node]:
                raise refuse(action, "a reduction of rows has further loops")
            reduced = {r for r in node.ranges if r.arg.kind is AxisKind.REDUCE}
            inner = tuple(r for r in node.ranges if r is not axis and r in reduced.union(loops))
            same = next((v for v in found.values() if _is_same(v, node, inner)), None)
            if same is None:
                found[node] = RowValue(node, node.src[0], node.src[1], inner, stages[node])
            else:
                same.uses[node] = inner
            stages[node] += 1
            rows[node], sums[node] = set(), reduced
        elif node.op is Ops.REDUCE and sums[node]:
            if not sums[node].issubset(node.src[1:]):
                raise refuse(action, "a sum is read in several loops")
            total = RowValue(node, node.src[0], node.src[1], (), stages[node], is_total=True)
            found[node] = total
            sums[node] = set()
    _delay(found.values())
    note_later_reads(found.values())
    return list(found.values())


def _is_same(value: RowValue, node: UOp, inner: Ranges) -> bool:
    """True for a sum that is another one, but for the names of its further loops."""
    if value.is_row or value.is_total or len(inner) != len(value.inner):
        return False
    if node.arg != value.node.arg:
        return False
    renamed = dict(zip((*inner, node.src[1]), (*value.inner, value.axis), strict=True))
    same_size = all(a.src == b.src for a, b in renamed.items())
    if not same_size:
        return False
    # the order of terms depends on the numbers of RANGEs
    return simplify(substitute_free(node.src[0], renamed)) is simplify(value.body)


def _delay(values: Collection[RowValue]) -> None:
    """Make rows that need no others in the first pass that reads them."""
    nodes = {node for value in values for node in value.uses}
    below = {
        v: [n for n in v.body.toposort(lambda n: n not in nodes) if n in nodes] for v in values
    }
    for value in values:
        readers = [v.stage for v in values if value.node in below[v]]
        if value.is_row and not below[value] and readers:
            value.stage = min(readers)


def _row(node: UOp, action: Action, stage: int) -> RowValue:
    """Read what fills a row."""
    buffer, fill = node.src[0], node.src[1]
    plain = buffer.op is Ops.DEFINE and len(node.src) == 2 and fill.op is Ops.END
    if not plain or len(fill.src) != 2 or fill.src[0].op is not Ops.STORE:
        raise refuse(action, "its buffers are not rows")
    place, value = fill.src[0].src
    if place.src[1] is not fill.src[1] or len(place.src) > 2:
        raise refuse(action, "its buffers are not filled from end to end")
    return RowValue(node, value, fill.src[1], (), stage)


def _loops(effect: UOp) -> Ranges:
    """The loops of the outputs below an effect."""
    if effect.op is Ops.END:
        return (*effect.src[1:], *_loops(effect.src[0]))
    return tuple(r for part in effect.src for r in _loops(part)) if effect.op is Ops.GROUP else ()


def note_later_reads(values: Iterable[RowValue]) -> None:
    """Note which rows are read in a later pass than the one that makes them."""
    found = {node: value for value in values for node in value.uses}
    for value in found.values():
        value.kept = False
    for value in found.values():
        for node in value.body.toposort(lambda n: n.op is not Ops.AFTER and n not in found):
            if node.op is Ops.AFTER and found[node].stage < value.stage:
                found[node].kept = True
