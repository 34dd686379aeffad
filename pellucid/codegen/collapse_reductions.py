"""Give sums over comparisons with the summed range their closed form.

LOOP form -> LOOP form.

    REDUCE(WHERE(e == k, x[k], 0), k over n)  ->  WHERE(0 <= e < n, x[e], 0)    one-hot: a gather
    REDUCE(WHERE(k < e, 1, 0), k over n)      ->  MAX(MIN(e, n), 0)             a triangle: a count
    REDUCE(WHERE(k < 3, x[k], 0), k over 4)   ->  REDUCE(x[k], k over 3)        padding is left out
    REDUCE(7, k over n)                       ->  7 * n                         integers only

Conditions may be joined by AND, negated, and linear in the range: each is read as A * k + B < 0 or
A * k + B == 0 with a literal A and a B that does not depend on k. Integers that might wrap are left
alone. Floats change only where the sum is exact in any order: one term and zeros, or whole numbers
too small to round. A sum starts from 0.0, so one term x becomes x + 0.0.
"""

from __future__ import annotations

from dataclasses import field

from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import RangeArg
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import next_range_id, transform
from pellucid.ir.uop import UOp


def collapse_reductions(sink: UOp, target: Target) -> UOp:
    """Replace reductions that have a closed form."""
    if not any(node.op is Ops.REDUCE for node in sink.toposort()):
        return sink
    numbers = _Numbers(next_range_id(sink))
    after = transform(sink, lambda node: _collapse(node, numbers), (Ops.REDUCE,))
    return sink if after is sink else simplify(after)


@dataclass
class _Numbers:
    """The next free number of a RANGE."""

    next: int

    def resized(self, axis: UOp, size: int) -> UOp:
        """A new RANGE like *axis* of another size."""
        self.next += 1
        return axis.replace(
            src=(axis.const_like(size),), arg=RangeArg(self.next - 1, axis.arg.kind)
        )


def _collapse(node: UOp, numbers: _Numbers) -> UOp:
    """Take away as many ranges of a REDUCE as have a closed form."""
    for axis in node.src[1:]:
        others = tuple(r for r in node.src[1:] if r is not axis)
        closed = _closed_form(node, axis)
        if closed is not None:
            if not others:
                # a sum starts from 0.0, so one term -0.0 sums to 0.0
                is_term = closed.op is Ops.WHERE and closed.dtype.is_float
                return closed + 0.0 if is_term and node.arg.op is Ops.ADD else closed
            return _collapse(node.with_sources((closed, *others)), numbers)
        clipped = _clipped(node, axis, numbers)
        if clipped is not None:
            return _collapse(clipped, numbers)
    return node


def _closed_form(node: UOp, axis: UOp) -> UOp | None:
    """REDUCE(node's value, axis) without the axis."""
    op, value = node.arg.op, node.src[0]
    if axis not in value.ranges:
        return _sum_of_equals(node, axis)
    if op is not Ops.ADD or value.dtype.is_bool:
        return None
    selection = _selection(value)
    conditions = _Conditions(axis)
    if not selection.conditions or not all(map(conditions.add, selection.conditions)):
        return None
    if conditions.equal is not None:
        return _one_term(axis, selection.value, conditions)
    if axis not in selection.value.ranges:
        return _count(axis, selection.value, conditions)
    return None


def _sum_of_equals(node: UOp, axis: UOp) -> UOp | None:
    op, value, size = node.arg.op, node.src[0], axis.src[0]
    if op.idempotent and bounds(size).min > 0:
        return value
    if op is Ops.ADD and value.dtype.is_int:
        return value * size.cast(value.dtype)
    if op is Ops.ADD and size.is_const and (whole := _exact_whole(value, size.arg)) is not None:
        return UOp.const(value.dtype, float(whole * size.arg))
    return None


def _exact_whole(value: UOp, times: int) -> int | None:
    """A float literal as an integer, when *times* as much is exact in its type."""
    if not value.is_const or not value.dtype.is_float or value.arg != value.arg:
        return None
    limit = 2.0 ** (value.dtype.mantissa_bits + 1)
    if abs(value.arg) > limit or value.arg != int(value.arg):
        return None
    return int(value.arg) if abs(value.arg) * times <= limit else None


# ---- what is selected --------------------------------------------------------------------------


@dataclass
class _Selection:
    """A value that is *value* where all conditions hold, and 0 elsewhere."""

    conditions: list[UOp]
    value: UOp


def _selection(value: UOp) -> _Selection:
    if value.op is Ops.WHERE:
        condition, yes, no = value.src
        if _is_zero(no):
            inner = _selection(yes)
            return _Selection([*_conjuncts(condition), *inner.conditions], inner.value)
        if _is_zero(yes):
            inner = _selection(no)
            return _Selection([condition.logical_not(), *inner.conditions], inner.value)
    if value.dtype.is_int and value.op is Ops.CAST and value.src[0].dtype.is_bool:
        return _Selection(_conjuncts(value.src[0]), UOp.const(value.dtype, 1))
    if value.dtype.is_int and value.op is Ops.MUL:
        left, right = (_selection(s) for s in value.src)
        if left.conditions or right.conditions:
            return _Selection(left.conditions + right.conditions, left.value * right.value)
    return _Selection([], value)


def _is_zero(node: UOp) -> bool:
    return node.is_const and node.arg == 0  # -0.0 too: it changes no sum that starts from 0.0


def _conjuncts(condition: UOp) -> list[UOp]:
    if condition.op is Ops.AND:
        return [part for source in condition.src for part in _conjuncts(source)]
    return [condition]


# ---- conditions on the range -------------------------------------------------------------------


@dataclass
class _Conditions:
    """What conditions say of a range: low <= k, k < high, one value it must have, and the rest."""

    axis: UOp
    lows: list[UOp] = field(default_factory=list)
    highs: list[UOp] = field(default_factory=list)
    equal: UOp | None = None
    others: list[UOp] = field(default_factory=list)  # free of the range

    def add(self, condition: UOp) -> bool:
        """Take in one condition; False when it says something that has no place here."""
        if self.axis not in condition.ranges:
            self.others.append(condition)
            return True
        negated = condition.op is Ops.XOR and condition.src[1].is_const
        if negated and condition.src[1].arg:
            condition = condition.src[0]
        if condition.op not in (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE):
            return False
        if condition.src[0].dtype.is_float or condition.src[0].dtype.is_bool:
            return False
        left, right = (_linear(s, self.axis) for s in condition.src)
        if left is None or right is None:
            return False
        factor, rest = left[0] - right[0], left[1] - right[1]
        if condition.op in (Ops.CMPEQ, Ops.CMPNE):
            return (condition.op is Ops.CMPNE) == negated and self._add_equal(factor, rest)
        if condition.op is Ops.CMPLE:
            rest = rest - 1
        if negated:
            factor, rest = -factor, -rest - 1
        return self._add_less(factor, rest)

    def _add_equal(self, factor: int, rest: UOp) -> bool:
        """factor * k + rest == 0."""
        if factor == 0 or self.equal is not None:
            return False
        if factor > 0:
            factor, rest = -factor, -rest
        self.equal = rest // -factor
        if factor != -1:
            self.others.append((rest % -factor).eq(0))
        return True

    def _add_less(self, factor: int, rest: UOp) -> bool:
        """factor * k + rest < 0."""
        if factor == 0:
            return False
        if factor > 0:
            self.highs.append((-rest + (factor - 1)) // factor)
        else:
            self.lows.append(rest // -factor + 1)
        return True


def _linear(node: UOp, axis: UOp) -> tuple[int, UOp] | None:
    """An integer as factor * axis + rest, rest an index; None when it is not so, or may wrap."""
    if axis not in node.ranges:
        return 0, node if node.dtype.is_index else node.cast(dtypes.index)
    if node is axis:
        return 1, axis.const_like(0)
    if node.op is Ops.CAST and node.src[0].dtype.is_int:
        inner = _linear(node.src[0], axis)
    elif node.op is Ops.ADD:
        left, right = (_linear(s, axis) for s in node.src)
        inner = None if left is None or right is None else (left[0] + right[0], left[1] + right[1])
    elif node.op is Ops.MUL and node.src[1].is_const:
        inner = _linear(node.src[0], axis)
        if inner is not None:
            inner = (inner[0] * node.src[1].arg, inner[1] * node.src[1].arg)
    else:
        return None
    if inner is None or node.dtype.is_index:
        return inner
    reach = bounds(axis * inner[0] + inner[1])
    return inner if reach.min >= node.dtype.min and reach.max <= node.dtype.max else None


# ---- closed forms ------------------------------------------------------------------------------


def _one_term(axis: UOp, value: UOp, conditions: _Conditions) -> UOp:
    """The only term of a sum: the value at the one place, if that is in the range."""
    place = conditions.equal
    assert place is not None, "a sum of one term knows which"
    valid = (place >= 0) & (place < axis.src[0])
    for low in conditions.lows:
        valid = valid & (low <= place)
    for high in conditions.highs:
        valid = valid & (place < high)
    for other in conditions.others:
        valid = valid & other
    return valid.where(_guarded(value, axis, place, valid), 0)


def _guarded(value: UOp, axis: UOp, place: UOp, valid: UOp) -> UOp:
    """*value* at the place, reading memory only where the place is valid."""
    done: dict[UOp, UOp] = {axis: place}
    for node in value.toposort(lambda n: axis in n.ranges):
        if node in done:
            continue
        if axis not in node.ranges:
            done[node] = node
            continue
        new = node.with_sources(tuple(done[s] for s in node.src))
        if node.op is Ops.INDEX:
            both = valid if len(new.src) < 3 else new.src[2] & valid
            new = new.with_sources((*new.src[:2], both))
        done[node] = new
    return done[value]


def _count(axis: UOp, value: UOp, conditions: _Conditions) -> UOp | None:
    """How many times the value is added, times the value."""
    low, high = axis.const_like(0), axis.src[0]
    for other in conditions.lows:
        low = low.maximum(other)
    for other in conditions.highs:
        high = high.minimum(other)
    count = (high - low).maximum(0)
    if value.dtype.is_int:
        total = value * count.cast(value.dtype)
    else:
        whole = _exact_whole(value, bounds(axis.src[0]).max)
        if whole is None:
            return None
        total = (count * whole).cast(value.dtype)
    for other in conditions.others:
        total = other.where(total, 0)
    return total


def _clipped(node: UOp, axis: UOp, numbers: _Numbers) -> UOp | None:
    """A sum over a range whose ends add nothing: the range without them."""
    if node.arg.op is not Ops.ADD or not axis.src[0].is_const or node.dtype.is_bool:
        return None
    low, high = 0, int(axis.src[0].arg)
    kept: list[UOp] = []
    selection = _selection(node.src[0])
    for condition in selection.conditions:
        found = _Conditions(axis)
        if axis in condition.ranges and found.add(condition) and found.equal is None:
            ends = [*found.lows, *found.highs]
            if all(bounds(end).is_single for end in ends):
                low = max([low, *(bounds(end).min for end in found.lows)])
                high = min([high, *(bounds(end).min for end in found.highs)])
                continue
        kept.append(condition)
    if low <= 0 and high >= axis.src[0].arg:
        return None
    part = numbers.resized(axis, max(high - low, 0))
    ranges = tuple(part if r is axis else r for r in node.src[1:])
    value = node.src[0].substitute({axis: part + low if low else part})
    return node.with_sources((simplify(value), *ranges))
