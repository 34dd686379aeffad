"""Find what a running maximum and sums that are scaled again can be made of: softmaxes in one pass.

    s[j]                                        a row of scores          pass 0
    m    = largest s[j]                         its maximum              pass 0
    e[j] = exp(s[j] - m)                        exponentials             pass 1
    l    = sum over j of e[j]                   their sum                pass 1
    w[j] = e[j] / l                             weights                  pass 2
    y[d] = sum over j of w[j] * v[j, d]         what they weigh          pass 2

Three passes over all scores become one over parts of them, each of which is short enough to stay in
the first caches, however long the row is. M is the maximum so far:

    for each part:      old = M;  M = max(M, largest s[j] of the part)
                        l, y[d] = l * exp(old - M), y[d] * exp(old - M)
                        e[j] = exp(s[j] - M) * c                           for j of the part
                        l += sum of e[j];  y[d] += sum of e[j] * v[j, d]
    at the end:         y[d] = y[d] / l;  l = l / c

What needs the weights themselves, or a sum of what they weigh, stands in later passes, which make
rows again (remade.py): gradients, and weights that are rounded to fewer bits before they weigh.

Laws (`laws/rescaling.py`): exp(s - M) = exp(s - m) * exp(m - M), and (a / l) * v + (b / l) * u is
(a * v + b * u) / l. Both hold for real numbers, and floats round otherwise: that is an error of a
sum, which semantics.md bounds by 2 log2(n) epsilons of the sum of sizes. One scaling costs as many
of them as an exponential is promised to be off (ir/accuracy.py), and half a one for the product;
`most_parts` spends three quarters of the bound on scalings. (How far a score is from a maximum is
rounded too, in one step or in several, which add up to the same distance: half an epsilon of it.)

What is no number is what it was. As long as all scores are -inf, so is M, and 0 stands in its place
(-inf - -inf would be NaN, and the row is not over); at the end l is multiplied by exp(M - M), which
is 1, or NaN where M is infinite. c is a power of two, 1 / n or less: sums of e[j] * v[j, d] are no
larger than the largest v, as those of w[j] * v[j, d]. What does change: an infinite v whose weight
is below 1e-37 or so may give NaN for an infinity, or the other way round, as that weight rounds to
zero in one order and not in the other. It never gives a finite number.

Sources: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et
al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pellucid.core.dtype import DType, dtypes
from pellucid.core.records import dataclass
from pellucid.ir.accuracy import most_ulps
from pellucid.ir.arg import Action
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import refuse
from pellucid.opt.actions.remade import made_again
from pellucid.opt.actions.values import RowValue
from pellucid.opt.axes import size_of


@dataclass(frozen=True)
class Online:
    """A softmax that is made part by part, and values of later passes.

    largest, exponentials, total: m, e and l of above.  sums: all that is scaled again, l included.
    shared: those of the sums that are divided by the total at the end.  scale: c.
    formula: an exponential, of *score* and the largest.
    """

    values: list[RowValue]
    largest: RowValue
    exponentials: RowValue
    total: RowValue
    sums: list[RowValue]
    shared: list[RowValue]
    scale: float
    formula: UOp
    score: UOp

    @property
    def stage(self) -> int:
        """The last pass that each part goes through."""
        return self.exponentials.stage

    def away(self, value: UOp, largest: UOp) -> UOp:
        """What the exponential is of *value* in place of a score."""
        return self.formula.substitute({self.score: value, self.largest.node: largest})


SCALINGS = 0.75
"""What part of the error of a sum scalings may make; the rest is for adding."""


def most_parts(length: int, dtype: DType = dtypes.float32) -> int:
    """In how many parts a row may be summed: so many scalings stay within the error of a sum.

    >>> most_parts(2048), most_parts(2048, dtypes.float64)
    (11, 3)
    """
    allowed = 2 * math.log2(max(2, length))  # epsilons
    of_one = most_ulps(Ops.EXP, dtype) + 0.5
    return max(1, int(SCALINGS * allowed / of_one))


def read_online(values: Sequence[RowValue], action: Action) -> Online:
    """Read a softmax and what it weighs; what weights weigh becomes that of exponentials.

    Errors: ActionError where the rows are something else, or are used in other ways.
    """
    found = [v for v in values if v.is_row and _largest_of(v, values) is not None]
    if len(found) != 1:
        raise refuse(action, "its rows are not the exponentials of one softmax")
    (exponentials,) = found
    largest = _largest_of(exponentials, values)
    assert largest is not None, "it was looked for above"
    total = _total_of(exponentials, values)
    if total is None:
        raise refuse(action, "its exponentials are not summed")
    weights = [v for v in values if v.is_row and _is_share(v, exponentials, total)]
    known = _Known(values, exponentials, largest)
    shared = [v for v in values if known.weighs(v, weights)]
    own = [v for v in values if v is total or known.weighs(v, [exponentials])]
    sums = [v for v in values if v in shared or v in own]
    known.require_complete(action, sums)
    for value in shared:
        _weigh_exponentials(value, exponentials, weights)
    for value in values:
        if value in sums:
            value.stage = exponentials.stage
        elif value.is_total and value.stage <= exponentials.stage:
            value.stage = exponentials.stage + 1
    left = made_again(values, exponentials.stage)
    length = size_of(exponentials.axis) or 1
    scale = 2.0 ** -math.ceil(math.log2(length) + 1) if shared else 1.0
    formula = exponentials.body
    (score,) = (n for n in _difference(formula) if n.op is Ops.INDEX)
    exponentials.body = formula * scale
    return Online(left, largest, exponentials, total, sums, shared, scale, formula, score)


class _Known:
    """Which values are complete in each part, and what the others read."""

    def __init__(
        self, values: Sequence[RowValue], exponentials: RowValue, largest: RowValue
    ) -> None:
        self.values, self.exponentials, self.largest = values, exponentials, largest
        self.by_node = {node: value for value in values for node in value.uses}

    def reads(self, body: UOp) -> list[RowValue]:
        """The values that an element is computed from."""
        nodes = body.toposort(lambda n: n not in self.by_node)
        return [self.by_node[n] for n in nodes if n in self.by_node]

    def weighs(self, value: RowValue, rows: Sequence[RowValue]) -> bool:
        """True for a sum of what *rows* weigh, of which a part is known where exponentials are."""
        for row in rows:
            other = _other_factor(value, row)
            if other is not None:
                return all(self.is_given(v) for v in self.reads(other))
        return False

    def is_given(self, value: RowValue) -> bool:
        """True for a row that is the same for every maximum."""
        if not value.is_row or value.stage > self.exponentials.stage:
            return False
        below = self.reads(value.body)
        return value is not self.exponentials and all(self.is_given(v) for v in below)

    def require_complete(self, action: Action, sums: Sequence[RowValue]) -> None:
        """Nothing but sums that are scaled may read, in a part, what is not complete."""
        last = self.exponentials.stage
        if self.largest.stage:
            raise refuse(action, "its rows depend on other statistics")
        for value in self.values:
            if value.stage > last or value.is_total or value in sums:
                continue
            read = self.reads(value.body)
            if value is self.exponentials:
                read = [v for v in read if v is not self.largest]
            if self.exponentials in read or self.largest in read:
                raise refuse(action, "its softmax is used before it is complete")
            if any(not v.is_row for v in read):
                raise refuse(action, "its rows depend on other statistics")


# ---- the values of a softmax ---------------------------------------------------------------------


def _difference(body: UOp) -> tuple[UOp, ...]:
    """The terms of what an exponential is of, below a positive factor."""
    if body.op is not Ops.EXP:
        return ()
    inside = body.src[0]
    if inside.op is Ops.MUL and inside.src[1].is_const and 0 < inside.src[1].arg < math.inf:
        inside = inside.src[0]
    return inside.src if inside.op is Ops.ADD else ()


def _largest_of(row: RowValue, values: Sequence[RowValue]) -> RowValue | None:
    """The maximum that is taken from the scores, in a row of exponentials."""
    terms = _difference(row.body)
    scores = [n.src[0] for n in terms if n.op is Ops.INDEX and n.src[1] is row.axis]
    negated = (n for n in terms if n.op is Ops.MUL and n.src[1].is_const)
    minus = [n.src[0] for n in negated if n.src[1].arg == -1]
    for value in values:
        is_maximum = not value.is_row and value.node.arg.op is Ops.MAX and not value.inner
        if is_maximum and [value.node] == minus and _is_read(value.body, scores, value.axis):
            return value
    return None


def _is_read(node: UOp, rows: Sequence[UOp], axis: UOp) -> bool:
    return node.op is Ops.INDEX and node.src[0] in rows and node.src[1] is axis


def _total_of(row: RowValue, values: Sequence[RowValue]) -> RowValue | None:
    """The sum of a row."""
    for value in values:
        is_sum = not value.is_row and value.node.arg.op is Ops.ADD and not value.inner
        if is_sum and _is_read(value.body, [row.node], value.axis):
            return value
    return None


def _is_share(row: RowValue, exponentials: RowValue, total: RowValue) -> bool:
    """True for exponentials divided by their sum."""
    if row.body.op is not Ops.FDIV:
        return False
    part, whole = row.body.src
    return whole is total.node and _is_read(part, [exponentials.node], row.axis)


def _other_factor(value: RowValue, row: RowValue) -> UOp | None:
    """What a row is multiplied with in a sum over such products; None for other values."""
    if value.is_row or value.node.arg.op is not Ops.ADD or value.body.op is not Ops.MUL:
        return None
    read, other = value.body.src
    if not _is_read(read, [row.node], value.axis):
        read, other = other, read
    return other if _is_read(read, [row.node], value.axis) else None


def _weigh_exponentials(
    value: RowValue, exponentials: RowValue, weights: Sequence[RowValue]
) -> None:
    nodes = [row.node for row in weights]
    reads = (n for n in value.body.toposort() if n.op is Ops.INDEX and n.src[0] in nodes)
    value.body = value.body.substitute({n: exponentials.node.index(*n.src[1:]) for n in reads})
