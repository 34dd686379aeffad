"""Leave out the blocks of rows that a mask makes the same for all: the later keys of an attention.

    s[j, i] = where(j <= i, sum over k of …, -inf)      32 rows i from a on, blocks of 64 j

Blocks whose first j is above a + 31 hold -inf alone. They are *dead*: what later values are there
follows without any product. A maximum over them changes nothing. What they add to a sum over rows,
0 * v[j, d] for the softmax above, is the same for all i, so it is added once for all of them: it is
0, or NaN where some v is no number, as in the program that computes every block.

    live blocks     those before (limit - E) // step + 1, if the mask is E + step * block <= limit

The values follow from laws (`laws/masked.py`): the maximum of x and -inf is x; exp(-inf - m) is 0,
or NaN where all scores of the row are -inf or one is NaN, and then all that is summed is NaN too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp
from pellucid.opt.actions.values import RowValue
from pellucid.opt.axes import size_of, stride_of


@dataclass(frozen=True)
class Live:
    """The blocks that are computed: how many, from which on, of how many.

    added: what each dead element adds to a sum, by its node; the same for all rows.
    """

    start: UOp
    count: UOp
    total: int
    added: dict[UOp, UOp]

    @property
    def dead(self) -> tuple[UOp, UOp]:
        """The first dead block, and how many there are: at one end of the row."""
        rest = UOp.const(dtypes.index, self.total) + self.count * -1
        first = UOp.const(dtypes.index, 0) if _is_not_zero(self.start) else self.count
        return first, rest


def _is_not_zero(start: UOp) -> bool:
    return not (start.is_const and start.arg == 0)


def live_blocks(values: Sequence[RowValue], axis: UOp, length: int) -> Live | None:
    """The blocks of rows of *length* that are not dead for any turn of *axis*; None for all."""
    (total, *_) = {(size_of(v.axis) or 1) // length for v in values if not v.is_total}
    if total < 2:
        return None
    for mask in dict.fromkeys(m for value in values for m in _masks_of(value)):
        value, condition = mask
        added = _Dead(values, value, condition).added(axis)
        part = None if added is None else _part(condition, value.axis, axis, length, total)
        if added is not None and part is not None:
            return Live(*part, total, added)
    return None


def _masks_of(value: RowValue) -> list[tuple[RowValue, UOp]]:
    """The conditions that choose between an element of a row value and a literal."""
    if not value.is_row:
        return []
    nodes = value.body.toposort(lambda n: n.op not in (Ops.AFTER, Ops.REDUCE))
    choices = (n for n in nodes if n.op is Ops.WHERE and n.src[2].is_const)
    parts = (part for n in choices for part in _parts_of(n.src[0]))
    return [(value, part) for part in parts if value.axis in part.ranges]


def _parts_of(condition: UOp) -> list[UOp]:
    """The conditions that must all hold: each of them hides what it does not keep."""
    if condition.op is not Ops.AND:
        return [condition]
    return [part for source in condition.src for part in _parts_of(source)]


# ---- which blocks --------------------------------------------------------------------------------


def _part(condition: UOp, along: UOp, axis: UOp, length: int, total: int) -> tuple[UOp, UOp] | None:
    """The first of the live blocks, and how many there are."""
    read = _as_limit(condition)
    if read is None:
        return None
    value, limit = read
    step, slope = stride_of(value, along), stride_of(value, axis)
    if not step or slope is None:
        return None
    least = axis.const_like(0 if slope >= 0 else (size_of(axis) or 1) - 1)
    zero = along.const_like(0)
    # value is at least `rest` + step * (place in the row): dead where that is above the limit
    rest = simplify(value.substitute({along: zero, axis: least}))
    if step > 0:
        count = (rest * -1 + limit) // (step * length) + 1
        return zero, simplify(count.maximum(1).minimum(total))
    # at its last element, a block from `start` on is not above the limit
    start = (rest + (-limit + step * (length - 1) - 1)) // (-step * length) + 1
    start = simplify(start.maximum(0).minimum(total - 1))
    return start, simplify(start * -1 + total)


def _as_limit(condition: UOp) -> tuple[UOp, int] | None:
    """Read a comparison of places as (value, limit): it holds where the value is not above."""
    if condition.op is Ops.WHERE and [s.arg for s in condition.src[1:]] == [True, False]:
        condition = condition.src[0]
    if condition.op not in (Ops.CMPLT, Ops.CMPLE):
        return None
    left, right = (_as_index(s) for s in condition.src)
    if left is None or right is None:
        return None
    return simplify(left + right * -1), -1 if condition.op is Ops.CMPLT else 0


def _as_index(node: UOp) -> UOp | None:
    """An integer that is computed from RANGEs alone, as an index, which never wraps."""
    if node.op is Ops.CAST and node.src[0].dtype.is_index:
        return node.src[0]
    if node.is_const and node.dtype.is_int:
        return UOp.const(dtypes.index, int(node.arg))
    if node.dtype.is_index:
        return node
    if node.op in (Ops.ADD, Ops.MUL) and node.dtype in (dtypes.int32, dtypes.int64):
        sources = [_as_index(s) for s in node.src]
        if all(s is not None for s in sources):
            return sources[0].alu(node.op, sources[1])  # type: ignore[union-attr,arg-type]
    return None


# ---- what dead elements are ----------------------------------------------------------------------


class _Dead:
    """What every value is where a condition is false."""

    def __init__(self, values: Sequence[RowValue], masked: RowValue, condition: UOp) -> None:
        self.values = values
        self.by_node = {node: value for value in values for node in value.uses}
        self.condition = condition
        self.masked = masked
        self.known: dict[UOp, UOp] = {}  # row -> what an element of it is
        for value in values:
            if value.is_row:
                self.known[value.node] = self.element(value)

    def element(self, value: RowValue) -> UOp:
        """An element of a value, with what is known of others put in."""
        exchange: dict[UOp, UOp] = {}
        inside = value.body.toposort(lambda n: n not in self.by_node)
        for node in inside:
            if node.op is Ops.INDEX and node.src[0] in self.known:
                row = self.by_node[node.src[0]]
                exchange[node] = self.known[row.node].substitute({row.axis: node.src[1]})
        same = self.masked.axis
        condition = self.condition.substitute({same: value.axis})
        exchange[condition] = condition.const_like(False)
        return self.fold(value.body.substitute(exchange))

    def fold(self, body: UOp) -> UOp:
        """Simplify, with the laws of a softmax of masked scores."""
        done: dict[UOp, UOp] = {}
        for node in body.toposort(lambda n: n not in self.by_node):
            made = node if node in self.by_node else node.over(done)
            done[node] = self.fold_node(made)
        return done[body]

    def fold_node(self, node: UOp) -> UOp:
        if node.op is Ops.WHERE and node.src[0].is_const:
            return node.src[1 if node.src[0].arg else 2]
        if node.op is Ops.CAST and node.src[0].is_const:
            return simplify(node)
        if node.op is Ops.AND and any(s.is_const and s.arg is False for s in node.src):
            return node.const_like(False)
        if node.op is Ops.MUL and _is_minus_infinity(node.src[0]) and _is_positive(node.src[1]):
            return node.src[0]
        if node.op is Ops.ADD and self.is_below_maximum(node):
            return UOp.const(node.dtype, -math.inf)
        if node.op is Ops.EXP and _is_minus_infinity(node.src[0]):
            return UOp.const(node.dtype, 0.0)
        if node.op is Ops.FDIV and _is_zero(node.src[0]) and self.is_sum_of_row(node.src[1]):
            return node.src[0]
        return node

    def is_below_maximum(self, node: UOp) -> bool:
        """True for -inf - m, where m is the maximum of scores that are -inf here."""
        first, second = node.src if _is_minus_infinity(node.src[0]) else node.src[::-1]
        if not _is_minus_infinity(first) or second.op is not Ops.MUL:
            return False
        value, minus = second.src
        largest = self.by_node.get(_below_casts(value))
        if largest is None or largest.node.arg.op is not Ops.MAX:
            return False
        return minus.is_const and minus.arg == -1 and self.is_row_of(largest, -math.inf)

    def is_sum_of_row(self, node: UOp) -> bool:
        """True for the sum of a row that is 0 here: at least 1, as its largest element is 1."""
        total = self.by_node.get(_below_casts(node))
        return total is not None and not total.is_row and self.is_row_of(total, 0.0)

    def is_row_of(self, statistic: RowValue | None, value: float) -> bool:
        """True for a statistic of nothing but a row whose dead elements are *value*."""
        if statistic is None or statistic.is_row or statistic.inner:
            return False
        read = _below_casts(statistic.body)
        known = self.known.get(read.src[0]) if read.op is Ops.INDEX else None
        return known is not None and known.is_const and known.arg == value

    def added(self, axis: UOp) -> dict[UOp, UOp] | None:
        """What a dead element adds to each sum; None where dead elements cannot be left out."""
        found: dict[UOp, UOp] = {}
        for value in self.values:
            if value.is_row or value.is_total:
                continue
            element, op = self.element(value), value.node.arg.op
            if element.is_const and element.arg == op.identity_for(element.dtype):
                continue
            reads_rows = any(n in self.by_node for n in element.toposort())
            if op is not Ops.ADD or axis in element.ranges or reads_rows or not value.inner:
                return None
            found[value.node] = element
        return found


def _below_casts(node: UOp) -> UOp:
    while node.op is Ops.CAST:
        node = node.src[0]
    return node


def _is_minus_infinity(node: UOp) -> bool:
    return node.is_const and node.dtype.is_float and node.arg == -math.inf


def _is_zero(node: UOp) -> bool:
    return node.is_const and node.dtype.is_float and node.arg == 0


def _is_positive(node: UOp) -> bool:
    return node.is_const and 0 < node.arg < math.inf
