"""Intervals and alignment of integer values: what can be known without running the program.

`bounds(node)` is an interval that holds every value that an integer or bool node can take,
`alignment(node)` a number that divides all of them. Both follow from the sources, are computed once
per node and kept on it. `bounds_under` adds what a condition says.

    i over 4, j over 3         bounds(i * 3 + j) == (0, 11)        alignment(i * 12) == 12

`index` never wraps. A fixed-width result that might wrap has the full range of its type. An empty
range counts as if it ran once: nothing below it is ever computed, so any bound is true.

Source: R. E. Moore, "Interval Analysis", 1966, chapter 2; the lattice of strides is that of
P. Granger, "Static analysis of arithmetical congruences", 1989.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, cast

from pellucid.core.dtype import DType, Kind, wrap
from pellucid.ir.op import COMPARISONS, Op, Ops, floor_divide, truncated_divide
from pellucid.ir.uop import UOp, fact, keeper


class Interval(NamedTuple):
    """All integers from *min* to *max*, both included."""

    min: int
    max: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.min <= value <= self.max

    @property
    def is_single(self) -> bool:
        """True when there is one value only."""
        return self.min == self.max

    def meet(self, other: Interval) -> Interval:
        """What lies in both; *other* itself when nothing does (the place is never reached)."""
        low, high = max(self.min, other.min), min(self.max, other.max)
        return Interval(low, high) if low <= high else other

    def join(self, other: Interval) -> Interval:
        """The smallest interval around both."""
        return Interval(min(self.min, other.min), max(self.max, other.max))


UNKNOWN = Interval(cast(int, -math.inf), cast(int, math.inf))
"""The interval of a node that is no integer: every comparison with it is undecided."""
BOTH = Interval(0, 1)
_NO, _YES = Interval(0, 0), Interval(1, 1)


def bounds(node: UOp) -> Interval:
    """The interval of all values of an integer or bool node, over all lanes; UNKNOWN for others.

    >>> from pellucid.core.dtype import dtypes
    >>> bounds(UOp.range(4, 0) * 3 + UOp.range(3, 1))
    Interval(min=0, max=11)
    >>> bounds(UOp.const(dtypes.int8, 100) + UOp.const(dtypes.int8, 100))  # it may wrap
    Interval(min=-128, max=127)
    """
    try:
        return node._bounds  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        return _fill(node)


def full_range(dtype: DType) -> Interval:
    """The interval of all values of a type."""
    if dtype.kind is Kind.BOOL:
        return BOTH
    if dtype.kind in _INTEGERS:
        return Interval(int(dtype.min), int(dtype.max))
    return UNKNOWN


_INTEGERS = (Kind.INT, Kind.UINT, Kind.INDEX)


def combine(node: UOp, given: list[Interval]) -> Interval:
    """The interval of *node* when its sources lie in *given*."""
    dtype = node.dtype
    if dtype.kind not in _INTEGERS and dtype.kind is not Kind.BOOL:
        return UNKNOWN
    rule = _RULES.get(node.op)
    if rule is None:
        return full_range(dtype)
    found = rule(node, given)
    if dtype.kind is Kind.INDEX:
        return found
    full = full_range(dtype)
    return found if full.min <= found.min and found.max <= full.max else full


def _fill(root: UOp) -> Interval:
    """Compute and keep the bounds of *root* and of what they follow from, sources first."""
    stack = [root]
    while stack:
        node = stack[-1]
        if hasattr(node, "_bounds"):
            stack.pop()
            continue
        follows = node.op in _RULES and node.dtype.kind in _COUNTED
        missing = [s for s in node.src if not hasattr(s, "_bounds")] if follows else None
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        given = [s._bounds for s in node.src] if follows else []  # type: ignore[attr-defined]
        _keep_bounds(node, combine(node, given))
    return root._bounds  # type: ignore[attr-defined,no-any-return]


_COUNTED = (Kind.INT, Kind.UINT, Kind.INDEX, Kind.BOOL)
_keep_bounds: Callable[[UOp, Interval], None] = keeper("_bounds")

Rule = Callable[[UOp, "list[Interval]"], Interval]


def _const(node: UOp, given: list[Interval]) -> Interval:
    values = node.arg if isinstance(node.arg, tuple) else (node.arg,)
    return Interval(int(min(values)), int(max(values)))


def _variable(node: UOp, given: list[Interval]) -> Interval:
    return Interval(node.arg.min, node.arg.max)


def _range(node: UOp, given: list[Interval]) -> Interval:
    return Interval(0, max(given[0].max - 1, 0))


def _add(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if node.dtype.kind is Kind.BOOL:
        return _or(node, given)
    return Interval(a.min + b.min, a.max + b.max)


def _sub(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    return Interval(a.min - b.max, a.max - b.min)


def _neg(node: UOp, given: list[Interval]) -> Interval:
    return Interval(-given[0].max, -given[0].min)


def _corners(values: Iterable[int]) -> Interval:
    found = list(values)
    return Interval(min(found), max(found))


def _mul(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    return _corners((a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max))


def _divisor_ends(b: Interval) -> list[int]:
    """Divisors at which a quotient can be extreme: the ends, and those next to zero."""
    return [d for d in {b.min, b.max, -1, 1} if d != 0 and b.min <= d <= b.max]


def _division(function: Callable[[int, int], int]) -> Rule:
    def rule(node: UOp, given: list[Interval]) -> Interval:
        a, b = given
        found = [function(n, d) for n in a for d in _divisor_ends(b)]
        if b.min <= 0 <= b.max:
            found.append(0)
        return _corners(found)

    return rule


def _floormod(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if b.is_single and b.min:
        size = b.min
        if a.min // size == a.max // size:
            return Interval(a.min % size, a.max % size)
    low, high = min(b.min + 1, 0), max(b.max - 1, 0)
    if b.min > a.max >= a.min >= 0:
        return a
    if low == 0 and a.min >= 0:
        high = min(high, a.max)
    return Interval(low, high)


def _truncmod(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    reach = max(abs(b.min), abs(b.max), 1) - 1
    low = -min(reach, -a.min) if a.min < 0 else 0
    high = min(reach, a.max) if a.max > 0 else 0
    return Interval(low, high)


def _max(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    return Interval(max(a.min, b.min), max(a.max, b.max))


def _min(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    return Interval(min(a.min, b.min), min(a.max, b.max))


def _bit_ceiling(value: int) -> int:
    return (1 << value.bit_length()) - 1


def _and(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if a.min >= 0 and b.min >= 0:
        return Interval(1 if a.min == a.max == b.min == b.max == 1 else 0, min(a.max, b.max))
    if a.min >= 0 or b.min >= 0:
        return Interval(0, a.max if a.min >= 0 else b.max)
    return _signed_bits(given)


def _or(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if a.min >= 0 and b.min >= 0:
        return Interval(max(a.min, b.min), _bit_ceiling(max(a.max, b.max)))
    return _signed_bits(given)


def _xor(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if a.is_single and b.is_single:
        return Interval(a.min ^ b.min, a.min ^ b.min)
    if a.min >= 0 and b.min >= 0:
        return Interval(0, _bit_ceiling(max(a.max, b.max)))
    return _signed_bits(given)


def _signed_bits(given: list[Interval]) -> Interval:
    reach = max(max(abs(i.min + 1 if i.min < 0 else i.min), abs(i.max)) for i in given)
    return Interval(-_bit_ceiling(reach) - 1, _bit_ceiling(reach))


def _shl(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if not 0 <= b.min <= b.max < node.dtype.bits:
        return full_range(node.dtype)
    return _corners((a.min << b.min, a.min << b.max, a.max << b.min, a.max << b.max))


def _shr(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    bits = node.dtype.bits
    ends = [c if 0 <= c < bits else bits for c in b]
    if b.min < 0 <= b.max:
        ends.append(0)
    if b.min < bits <= b.max:
        ends.append(bits)
    return _corners(n >> c for n in a for c in ends)


def _cmplt(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    return _YES if a.max < b.min else _NO if a.min >= b.max else BOTH


def _cmple(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    return _YES if a.max <= b.min else _NO if a.min > b.max else BOTH


def _cmpeq(node: UOp, given: list[Interval]) -> Interval:
    a, b = given
    if a.max < b.min or b.max < a.min:
        return _NO
    return _YES if a.is_single and a == b else BOTH


def _cmpne(node: UOp, given: list[Interval]) -> Interval:
    equal = _cmpeq(node, given)
    return Interval(1 - equal.max, 1 - equal.min)


def _where(node: UOp, given: list[Interval]) -> Interval:
    condition, a, b = given
    if condition.min == 1:
        return a
    return b if condition.max == 0 else a.join(b)


def _cast(node: UOp, given: list[Interval]) -> Interval:
    inside = node.src[0].dtype
    dtype = node.dtype
    if inside.kind not in _INTEGERS and inside.kind is not Kind.BOOL:
        return full_range(dtype)
    a = given[0]
    if dtype.kind is Kind.BOOL:
        return _YES if a.min > 0 or a.max < 0 else _NO if a.min == a.max == 0 else BOTH
    if dtype.kind is not Kind.INDEX and a.is_single:
        value = wrap(dtype, a.min)
        return Interval(value, value)
    return a


def _same(node: UOp, given: list[Interval]) -> Interval:
    return given[0]


def _lane(node: UOp, given: list[Interval]) -> Interval:
    source = node.src[0]
    if source.op is not Ops.CONST or not isinstance(source.arg, tuple):
        return given[0]
    lanes = node.arg if isinstance(node.arg, tuple) else (node.arg,)
    return _corners(int(source.arg[lane]) for lane in lanes)


def _join_all(node: UOp, given: list[Interval]) -> Interval:
    return Interval(min(i.min for i in given), max(i.max for i in given))


def _reduce(node: UOp, given: list[Interval]) -> Interval:
    op = node.arg.op
    if op in (Ops.MAX, Ops.MIN, Ops.AND, Ops.OR) and len(given) > 1:
        if all(i.min > 0 for i in given[1:]) and op in (Ops.MAX, Ops.MIN):
            return given[0]
    return full_range(node.dtype)


_RULES: dict[Op, Rule] = {
    Ops.CONST: _const,
    Ops.VARIABLE: _variable,
    Ops.RANGE: _range,
    Ops.SPECIAL: _range,
    Ops.ADD: _add,
    Ops.SUB: _sub,
    Ops.NEG: _neg,
    Ops.MUL: _mul,
    Ops.FLOORDIV: _division(floor_divide),
    Ops.TRUNCDIV: _division(truncated_divide),
    Ops.IDIV: _division(truncated_divide),
    Ops.FLOORMOD: _floormod,
    Ops.TRUNCMOD: _truncmod,
    Ops.IMOD: _truncmod,
    Ops.MAX: _max,
    Ops.MIN: _min,
    Ops.AND: _and,
    Ops.OR: _or,
    Ops.XOR: _xor,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.ISHL: _shl,
    Ops.ISHR: _shr,
    Ops.CMPLT: _cmplt,
    Ops.CMPLE: _cmple,
    Ops.CMPEQ: _cmpeq,
    Ops.CMPNE: _cmpne,
    Ops.WHERE: _where,
    Ops.CAST: _cast,
    Ops.SPLAT: _same,
    Ops.LANE: _lane,
    Ops.STACK: _join_all,
    Ops.AFTER: _same,
    Ops.REDUCE: _reduce,
}


# ---- alignment -----------------------------------------------------------------------------------


def alignment(node: UOp) -> int:
    """The largest known number that divides all values of an integer node (0: all values are 0).

    >>> alignment(UOp.range(4, 0) * 12 + 8)
    4
    """
    try:
        return node._stride  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        return _stride_fact.fill(node)


def _divisor(node: UOp) -> int:
    dtype = node.dtype
    if dtype.kind not in _INTEGERS:
        return 1
    rule = _DIVISORS.get(node.op)
    if rule is None:
        return 1
    found = rule(node, [s._stride for s in node.src])  # type: ignore[attr-defined]
    if dtype.kind is Kind.INDEX or node.op is Ops.CONST:
        return found
    # what wraps keeps only divisors of 2**bits
    return math.gcd(found, 1 << dtype.bits) if node.op in _MAY_WRAP else found


_divisor.__name__ = "stride"
_stride_fact: fact[int] = fact(_divisor)
_MAY_WRAP = (Ops.ADD, Ops.SUB, Ops.NEG, Ops.MUL, Ops.SHL, Ops.ISHL, Ops.CAST)


def _divisor_of_const(node: UOp, given: list[int]) -> int:
    return math.gcd(*(node.arg if isinstance(node.arg, tuple) else (node.arg,)))


def _divisor_of_quotient(node: UOp, given: list[int]) -> int:
    divisor = node.src[1]
    if divisor.is_const and divisor.arg and given[0] % divisor.arg == 0:
        return abs(int(given[0] // divisor.arg))
    return 1


def _divisor_of_where(node: UOp, given: list[int]) -> int:
    return math.gcd(given[1], given[2])


def _divisor_of_shift(node: UOp, given: list[int]) -> int:
    low = bounds(node.src[1]).min
    return given[0] << low if 0 <= low < node.dtype.bits else given[0]


def _divisor_of_cast(node: UOp, given: list[int]) -> int:
    return given[0] if node.src[0].dtype.kind in _INTEGERS else 1


_DIVISORS: dict[Op, Callable[[UOp, list[int]], int]] = {
    Ops.CONST: _divisor_of_const,
    Ops.ADD: lambda node, given: math.gcd(given[0], given[1]),
    Ops.SUB: lambda node, given: math.gcd(given[0], given[1]),
    Ops.NEG: lambda node, given: given[0],
    Ops.MUL: lambda node, given: given[0] * given[1],
    Ops.FLOORDIV: _divisor_of_quotient,
    Ops.FLOORMOD: lambda node, given: math.gcd(given[0], given[1]),
    Ops.TRUNCMOD: lambda node, given: math.gcd(given[0], given[1]),
    Ops.MAX: lambda node, given: math.gcd(given[0], given[1]),
    Ops.MIN: lambda node, given: math.gcd(given[0], given[1]),
    Ops.SHL: _divisor_of_shift,
    Ops.ISHL: _divisor_of_shift,
    Ops.WHERE: _divisor_of_where,
    Ops.CAST: _divisor_of_cast,
    Ops.SPLAT: lambda node, given: given[0],
    Ops.LANE: lambda node, given: given[0],
    Ops.STACK: lambda node, given: math.gcd(*given),
    Ops.AFTER: lambda node, given: given[0],
}


# ---- under a condition ---------------------------------------------------------------------------

Facts: TypeAlias = "dict[UOp, Interval]"
MANY_NODES = 128
MANY_FACTS = 64


def facts_of(condition: UOp, holds: bool = True) -> Facts:
    """What is known of the nodes of a bool *condition* where it is true (or false).

    >>> i = UOp.range(10, 0)
    >>> facts_of(i * 2 < 7)[i]
    Interval(min=0, max=3)
    """
    facts: Facts = {}
    stack = [(condition, holds)]
    while stack and len(facts) < MANY_FACTS:
        node, truth = stack.pop()
        facts[node] = _YES if truth else _NO
        op = node.op
        if op is (Ops.AND if truth else Ops.OR):
            stack += [(s, truth) for s in node.src]
        elif op is Ops.XOR and node.src[1].is_const:
            stack.append((node.src[0], truth != node.src[1].arg))
        elif op in COMPARISONS and node.src[0].dtype.kind in _INTEGERS:
            _note_comparison(node, truth, facts)
    return facts


def _note_comparison(node: UOp, truth: bool, facts: Facts) -> None:
    left, right = node.src
    a, b = bounds(left), bounds(right)
    op = node.op
    if op is Ops.CMPEQ or op is Ops.CMPNE:
        if truth == (op is Ops.CMPEQ):
            _note(left, b, facts)
            _note(right, a, facts)
        return
    gap = 1 if op is Ops.CMPLT else 0
    if not truth:  # not (left < right) is right <= left
        left, right, a, b, gap = right, left, b, a, 1 - gap
    _note(left, Interval(a.min, b.max - gap), facts)
    _note(right, Interval(a.min + gap, b.max), facts)


def _note(node: UOp, interval: Interval, facts: Facts) -> None:
    """Note that *node* lies in *interval*, and what follows for its sources."""
    stack = [(node, interval)]
    while stack:
        node, interval = stack.pop()
        known = facts.get(node, bounds(node))
        interval = interval.meet(known)
        if interval == known or node.op is Ops.CONST:
            continue
        facts[node] = interval
        if node.dtype.kind is not Kind.INDEX or len(node.src) != 2:
            continue
        x, y = node.src
        if node.op is Ops.ADD:
            a, b = bounds(x), bounds(y)
            stack.append((x, Interval(interval.min - b.max, interval.max - b.min)))
            stack.append((y, Interval(interval.min - a.max, interval.max - a.min)))
        elif node.op is Ops.MUL and y.is_const and y.arg:
            low, high = interval if y.arg > 0 else (-interval.max, -interval.min)
            size = abs(y.arg)
            stack.append((x, Interval(-(-low // size), high // size)))
        elif node.op is Ops.FLOORDIV and y.is_const and y.arg > 0:
            stack.append((x, Interval(interval.min * y.arg, interval.max * y.arg + y.arg - 1)))


def bounds_under(node: UOp, facts: Facts, done: Facts | None = None) -> Interval:
    """The interval of *node* where *facts* hold; no wider than `bounds(node)`.

    *done* keeps what was found, for several questions under the same facts.

    >>> i, j = UOp.range(10, 0), UOp.range(4, 1)
    >>> bounds_under(i * 4 + j, facts_of(i < 2))
    Interval(min=0, max=7)
    """
    done = {} if done is None else done
    stack = [node]
    steps = 0
    while stack:
        top = stack[-1]
        if top in done:
            stack.pop()
            continue
        steps += 1
        follows = top.op in _RULES and top.dtype.kind in _COUNTED and steps < MANY_NODES
        missing = [s for s in top.src if s not in done] if follows else []
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        found = bounds(top)
        if follows and top.src:
            found = combine(top, [done[s] for s in top.src]).meet(found)
        noted = facts.get(top)
        done[top] = found if noted is None else noted.meet(found)
    return done[node]
