"""Make rows again in each pass that reads them, in place of keeping them from one pass to the next.

    pass 1    s[j], e[j] = exp(s[j] - m)      l = sum of e[j]
    pass 2    reads e[j]                      ->    s[j], e[j] again, and then what reads them

A row that is kept is as long as all there is to attend to, and what does not fit the cache is read
from further away, pass after pass. A block of products of few terms costs no more than that. No
value changes: each is computed as before, from the same values.

Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with
IO-awareness", 2022, section 3.1 (scores are made again where gradients need them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pellucid.core.dtype import dtypes
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.values import RowValue, note_later_reads


def made_again(values: Sequence[RowValue], last: int) -> list[RowValue]:
    """The same, where no pass after *last* reads a row of an earlier one; those others need first.

    Up to *last*, nothing changes.
    """
    by_node = {node: value for value in values for node in value.uses}
    found = [value for value in values if value.stage <= last]
    for stage in range(last + 1, 1 + max(value.stage for value in values)):
        found += _Pass(stage, by_node).of([value for value in values if value.stage == stage])
    note_later_reads(found)
    return found


class _Pass:
    """The values of one pass: its own, and the rows of earlier passes that they need."""

    def __init__(self, stage: int, by_node: Mapping[UOp, RowValue]) -> None:
        self.stage, self.by_node = stage, by_node
        self.rows: dict[UOp, RowValue] = {}  # as they were -> as this pass makes them
        self.made: list[RowValue] = []

    def of(self, own: Iterable[RowValue]) -> list[RowValue]:
        """Everything that the pass makes: of rows those that something else reads."""
        for value in own:
            if not value.is_row:
                body = self.over_own_rows(value.body)
                self.made.append(replace(value, body=body))
        return self.made

    def over_own_rows(self, body: UOp) -> UOp:
        """A body that reads the rows of this pass, and statistics as they are."""
        read = _values_in(body, self.by_node)
        rows = {n: self.row(self.by_node[n]).node for n in read if self.by_node[n].is_row}
        return body.substitute({node: rows.get(node, node) for node in read})

    def row(self, value: RowValue) -> RowValue:
        """A row as this pass makes it; a node of its own stands for one of another pass."""
        if value.node not in self.rows:
            body, node = self.over_own_rows(value.body), value.node
            if value.stage != self.stage:
                node = node.with_sources((*node.src, UOp.const(dtypes.index, self.stage)))
            again = replace(value, node=node, body=body, stage=self.stage, uses={})
            self.rows[value.node] = again
            self.made.append(again)
        return self.rows[value.node]


def without_links(values: Sequence[RowValue]) -> list[RowValue]:
    """Make rows that one other row of the same pass reads, and nothing else, in the loop of that.

        e[j] = exp(s[j] - m)    w[j] = e[j] / l      ->      w[j] = exp(s[j] - m) / l

    Sums of products stay by themselves: as nests of their own they become tiles.
    """
    by_node = {node: value for value in values for node in value.uses}
    readers: dict[RowValue, set[RowValue]] = {value: set() for value in values}
    for value in values:
        for node in _values_in(value.body, by_node):
            readers[by_node[node]].add(value)
    links = {value for value in values if _is_link(value, readers[value], by_node)}
    for value in values:  # those that others need first
        value.body = _with_links(value.body, links, by_node)
    return [value for value in values if value not in links]


def _values_in(body: UOp, by_node: Mapping[UOp, RowValue]) -> list[UOp]:
    """What an element reads of other values."""
    return [node for node in body.toposort(lambda n: n not in by_node) if node in by_node]


def _is_link(value: RowValue, readers: set[RowValue], by_node: Mapping[UOp, RowValue]) -> bool:
    if not value.is_row or len(readers) != 1:
        return False
    (reader,) = readers
    own = value.body.toposort(lambda n: n not in by_node)
    is_sum = any(n.op is Ops.REDUCE and n not in by_node for n in own)
    return reader.is_row and reader.stage == value.stage and not is_sum


def _with_links(body: UOp, links: set[RowValue], by_node: Mapping[UOp, RowValue]) -> UOp:
    """A body in which what links compute stands for what was read of them."""
    exchange = {node: node for node in _values_in(body, by_node)}
    for node in body.toposort(lambda n: n not in by_node):
        link = by_node.get(node.src[0]) if node.op is Ops.INDEX else None
        if link in links:
            below = {n: n for n in _values_in(link.body, by_node)}
            exchange[node] = link.body.substitute({**below, link.axis: node.src[1]})
    return body.substitute(exchange)
