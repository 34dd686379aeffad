"""The rows of local memory that a kernel makes in each turn of a loop, and what is made of them.

    in each i:  s[j] = sum over k of q[i, k] * x[j, k]         a row            pass 0
                m    = largest s[j]                            a statistic      pass 0
                e[j] = exp(s[j] - m)                           a row            pass 1
                y[d] = sum over j of e[j] * v[j, d], for all d a sum            pass 1

What needs a statistic is known one pass over the row later than what the statistic is made of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.legal import refuse

Ranges = tuple[UOp, ...]


@dataclass(eq=False)
class RowValue:
    """A row value, statistic or sum: what it is made of, and where it will lie.

    node: what reads of it show in the kernel as it was: the AFTER of a row, or a REDUCE.
    body, axis: an element, and the RANGE along the row.  inner: further loops of a sum.
    stage: the pass that makes it.  kept: later passes read the row.  done: the last effect on its
    buffer so far.
    """

    node: UOp
    body: UOp
    axis: UOp
    inner: Ranges
    stage: int
    kept: bool = False
    buffer: UOp | None = None
    done: UOp | None = None

    @property
    def is_row(self) -> bool:
        """True for a row value."""
        return self.node.op is Ops.AFTER


def row_values(body: UOp, action: Action, axis: UOp) -> list[RowValue]:
    """All rows, statistics and sums of one turn of *axis*, those that others need first."""
    found: dict[UOp, RowValue] = {}
    stages: dict[UOp, int] = {}  # node -> the first pass in which it is known
    rows: dict[UOp, set[UOp]] = {}  # node -> the RANGEs at which it reads rows
    for node in body.toposort():
        stages[node] = max((stages[s] for s in node.src), default=0)
        rows[node] = set().union(*(rows[s] for s in node.src))
        if node.op is Ops.AFTER:
            found[node] = _row(node, action, stages[node])
            rows[node] = set()
        elif node.op is Ops.INDEX and node.src[0].op is Ops.AFTER:
            rows[node] = {node.src[1]}
        elif node.op is Ops.REDUCE and rows[node].intersection(node.src[1:]):
            if len(node.src) != 2:
                raise refuse(action, "a reduction of rows has further loops")
            inner = tuple(r for r in node.ranges if r is not axis and r in _loops(body))
            found[node] = RowValue(node, node.src[0], node.src[1], inner, stages[node])
            stages[node] += 1
            rows[node] = set()
    note_later_reads(found.values())
    return list(found.values())


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
    found = {value.node: value for value in values}
    for value in found.values():
        value.kept = False
    for value in found.values():
        for node in value.body.toposort(lambda n: n.op is not Ops.AFTER and n not in found):
            if node.op is Ops.AFTER and found[node].stage < value.stage:
                found[node].kept = True
