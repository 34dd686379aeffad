"""Movement as index arithmetic: which element of the source an element of the result is.

Form before: a movement op of a TENSOR graph and one index for each axis of its result.
Form after: one index for each axis of its source and, for PAD, the condition under which there is
such an element.

    PERMUTE (1, 0)  of (4, 3)  at (i, j)   ->  (j, i)
    PAD ((1, 2),)   of (5,)    at (i,)     ->  (i - 1,)   valid where 1 <= i < 6
    RESHAPE (4, 3)  of (12,)   at (i, j)   ->  (i * 3 + j,)
    RESHAPE (12,)   of (4, 3)  at (i,)     ->  (i // 3, i % 3)

No view algebra is needed: a RESHAPE is a linear index taken apart by `//` and `%`, and `simplify`
recombines what belongs together from the bounds of the ranges. A RESHAPE is handled in the smallest
groups of neighbouring axes whose sizes multiply to the same number, so that axes it does not touch
pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pellucid.core.dtype import dtypes
from pellucid.ir.op import Op, Ops, Shape
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp

Index = tuple[UOp, ...]
Use = tuple[Index, UOp | None]
"""Where a value is read, and under which condition (None: always)."""

ZERO = UOp.const(dtypes.index, 0)
_UNCHANGED = (Ops.RANGE, Ops.CONST, Ops.VARIABLE)


def literal(value: int) -> UOp:
    """An index that is known.

    >>> literal(3).arg
    3
    """
    return UOp.const(dtypes.index, value)


def tidy(expression: UOp) -> UOp:
    """Simplify an index or a condition; leaves stay as they are."""
    return expression if expression.op in _UNCHANGED else _simplified(expression)


@lru_cache(maxsize=4096)
def _simplified(expression: UOp) -> UOp:
    return simplify(expression)


def forget_expressions() -> None:
    """Let go of the expressions that were simplified so far (the end of a schedule)."""
    _simplified.cache_clear()


def offset_by(index: UOp, amount: int) -> UOp:
    """index + amount, without the sum where the amount is 0."""
    if amount == 0:
        return index
    return literal(index.arg + amount) if index.is_const else index + amount


def flat_index(shape: Shape, index: Index) -> UOp:
    """The position of an element in row-major order.

    >>> i, j = UOp.range(4, 0), UOp.range(3, 1)
    >>> flat_index((4, 3), (i, j)) is i * 3 + j
    True
    """
    terms: list[UOp] = []
    constant, stride = 0, 1
    for size, position in zip(reversed(shape), reversed(index), strict=True):
        if position.is_const:
            constant += position.arg * stride
        else:
            terms.append(position if stride == 1 else position * stride)
        stride *= size
    if not terms:
        return literal(constant)
    total = terms.pop()
    while terms:
        total = total + terms.pop()
    return tidy(offset_by(total, constant))


def reshape_groups(source: Shape, result: Shape) -> list[tuple[range, range]]:
    """Runs of axes of both shapes that hold the same elements, as short as possible.

    >>> reshape_groups((2, 6, 5), (2, 2, 3, 5))
    [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 3)), (range(2, 3), range(3, 4))]
    """
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(source) or j < len(result):
        first_i, first_j = i, j
        left = right = 1
        if i < len(source):
            left, i = source[i], i + 1
        if j < len(result):
            right, j = result[j], j + 1
        while left != right:
            if left < right:
                left, i = left * source[i], i + 1
            else:
                right, j = right * result[j], j + 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def _reshape(node: UOp, index: Index) -> Use:
    source, result = node.src[0].known_shape, node.known_shape
    found: list[UOp] = []
    for ins, outs in reshape_groups(source, result):
        if len(ins) == len(outs) == 1:
            found.append(index[outs[0]])
            continue
        sizes = tuple(result[axis] for axis in outs)
        flat = flat_index(sizes, tuple(index[axis] for axis in outs))
        found.extend(_take_apart(flat, tuple(source[axis] for axis in ins)))
    return tuple(found), None


def _take_apart(flat: UOp, sizes: Shape) -> list[UOp]:
    """The index of each axis, given the position in row-major order."""
    found: list[UOp] = []
    stride = 1
    remaining = 1
    for size in sizes:
        remaining *= size
    for size in sizes:
        stride = remaining // size
        if size == 1:
            found.append(ZERO)
            continue
        part = flat
        if remaining != _product(sizes):
            part = part % remaining
        if stride != 1:
            part = part // stride
        found.append(tidy(part))
        remaining = stride
    return found


def _product(sizes: Shape) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _permute(node: UOp, index: Index) -> Use:
    found: list[UOp] = [ZERO] * len(index)
    for position, axis in enumerate(node.arg):
        found[axis] = index[position]
    return tuple(found), None


def _expand(node: UOp, index: Index) -> Use:
    source = node.src[0].known_shape
    kept = index[len(index) - len(source) :]
    repeated = node.known_shape[len(index) - len(source) :]
    return tuple(
        ZERO if size == 1 and wide != 1 else position
        for size, wide, position in zip(source, repeated, kept, strict=True)
    ), None


def _shrink(node: UOp, index: Index) -> Use:
    boxes = zip(index, node.arg, strict=True)
    return tuple(tidy(offset_by(position, start)) for position, (start, _) in boxes), None


def _flip(node: UOp, index: Index) -> Use:
    shape = node.known_shape
    return tuple(
        tidy(position * -1 + (shape[axis] - 1)) if axis in node.arg else position
        for axis, position in enumerate(index)
    ), None


def _pad(node: UOp, index: Index) -> Use:
    source = node.src[0].known_shape
    valid: UOp | None = None
    found: list[UOp] = []
    for position, size, (low, high) in zip(index, source, node.arg, strict=True):
        inside = tidy(offset_by(position, -low))
        found.append(inside)
        if low > 0:
            valid = both(valid, tidy(literal(low) <= position))
        if high > 0:
            valid = both(valid, tidy(position < literal(size + low)))
    return tuple(found), valid


def both(left: UOp | None, right: UOp | None) -> UOp | None:
    """The conjunction of two conditions, where None is always true.

    >>> both(None, UOp.const(dtypes.bool, True)) is None
    True
    """
    if left is None or (left.is_const and left.arg):
        left, right = right, None
    if left is not None and left.is_const and left.arg:
        left = None
    if right is None or (right.is_const and right.arg):
        return left
    if left is None or left is right:
        return right
    return tidy(left & right)


_RULES: dict[Op, Callable[[UOp, Index], Use]] = {
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.PAD: _pad,
}


def source_index(node: UOp, index: Index) -> Use:
    """The element of the source of a movement *node* that its element at *index* is.

    >>> i, j = UOp.range(4, 0), UOp.range(3, 1)
    >>> x = UOp(Ops.IOTA, dtypes.int32, (), 12).reshape((3, 4)).permute((1, 0))
    >>> source_index(x, (i, j)) == ((j, i), None)
    True
    """
    return _RULES[node.op](node, index)


def window_index(window: UOp, base: UOp, index: Index) -> Index:
    """The element of *base* that the element of *window* at *index* shows.

    Both are ends of a chain of movement ops without PAD and EXPAND (the window of a WRITE).
    """
    while window is not base:
        index, _ = source_index(window, index)
        window = window.src[0]
    return index
