"""Make the ranges of a kernel fit its index arithmetic: drop, split and merge them.

LOOP form -> LOOP form.

    drop     i over 1, and ranges of reductions and stores over nothing
    split    x[i % 8 * 6 + i // 8], i over 48   ->   x[b * 6 + a], a over 6, b over 8: i = a * 8 + b
    merge    y[i * 33 + j] = x[i * 33 + j]      ->   y[r] = x[r], r over 12 * 33
    clear    x[k, k < 4], k over 4              ->   x[k]

A range is split where it is divided by a literal that divides its size; the quotient and the
remainder are then ranges. Two ranges of one nest merge when every index grows by the size of the
inner one times as much along the outer one as along the inner one.
"""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import next_range_id, rebuild, transform
from pellucid.ir.uop import UOp


def simplify_ranges(sink: UOp, target: Target) -> UOp:
    """Drop, split and merge ranges, and simplify what is computed from them."""
    sink = simplify(
        transform(simplify(sink), _without_small_ranges, (Ops.RANGE, Ops.END, Ops.REDUCE))
    )
    if not sink.arg.ordered:
        sink = _merge_ranges(_split_ranges(sink))
    return simplify(transform(sink, _without_true_validity, (Ops.INDEX,)))


# ---- drop --------------------------------------------------------------------------------------


def _without_small_ranges(node: UOp) -> UOp:
    """Ranges of size one are 0; a loop over nothing does nothing."""
    if node.op is Ops.RANGE and _size(node) == 1:
        return node.const_like(0)
    if node.op is Ops.END or node.op is Ops.REDUCE:
        sizes = [0 if r.op is Ops.RANGE and _size(r) == 0 else 1 for r in node.src[1:]]
        if 0 in sizes:
            return _over_nothing(node)
        ranges = tuple(r for r in node.src[1:] if r.op is Ops.RANGE)
        if len(ranges) != len(node.src) - 1:
            return node.with_sources((node.src[0], *ranges)) if ranges else _once(node)
    return node


def _over_nothing(node: UOp) -> UOp:
    if node.op is Ops.END:
        return UOp.make(Ops.GROUP)
    return UOp.const(node.dtype, node.arg.op.identity_for(node.dtype))


def _once(node: UOp) -> UOp:
    value = node.src[0]
    if node.op is Ops.REDUCE and node.arg.op is Ops.ADD and node.dtype.is_float:
        return value + 0.0  # a sum starts from 0.0, so it is never -0.0
    return value


def _without_true_validity(node: UOp) -> UOp:
    if node.op is Ops.INDEX and len(node.src) == 3 and node.src[2].is_const and node.src[2].arg:
        return node.with_sources(node.src[:2])
    return node


def _size(axis: UOp) -> int | None:
    return int(axis.src[0].arg) if axis.src[0].is_const else None


# ---- split -------------------------------------------------------------------------------------


def _split_ranges(sink: UOp) -> UOp:
    """Split ranges at the literals that they are divided by, until none is left."""
    while True:
        divisors = _divisors(sink)
        chosen = {axis: min(found) for axis, found in divisors.items() if _nest(axis, found)}
        if not chosen:
            return sink
        number = next_range_id(sink)
        pairs: dict[UOp, tuple[UOp, UOp]] = {}
        for axis, divisor in chosen.items():
            outer = UOp.range(axis.src[0].arg // divisor, axis.arg.id, axis.arg.kind)
            pairs[axis] = (outer, UOp.range(divisor, number, axis.arg.kind))
            number += 1
        sink = simplify(_exchange(sink, pairs))


def _divisors(sink: UOp) -> dict[UOp, set[int]]:
    """The literals that RANGEs are divided by."""
    found: dict[UOp, set[int]] = {}
    for node in sink.toposort():
        if node.op is Ops.FLOORDIV or node.op is Ops.FLOORMOD:
            dividend, divisor = node.src
            if dividend.op is Ops.RANGE and divisor.is_const:
                found.setdefault(dividend, set()).add(int(divisor.arg))
    return found


def _nest(axis: UOp, divisors: set[int]) -> bool:
    """True when the smallest divisor divides all others and the size."""
    least, size = min(divisors), _size(axis)
    return size is not None and 1 < least < size and not any(n % least for n in (size, *divisors))


def _exchange(sink: UOp, pairs: dict[UOp, tuple[UOp, UOp]]) -> UOp:
    """Put (outer, inner) in the place of each RANGE."""

    def exchanged(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        if node in pairs:
            outer, inner = pairs[node]
            return outer * int(inner.src[0].arg) + inner
        if node.op is Ops.END or node.op is Ops.REDUCE:
            ranges = (p for r in node.src[1:] for p in pairs.get(r, (r,)))
            sources = (sources[0], *ranges)
        return node.with_sources(sources)

    return rebuild(sink, exchanged)


# ---- merge -------------------------------------------------------------------------------------


def _merge_ranges(sink: UOp) -> UOp:
    """Merge pairs of ranges until no pair is left that may."""
    roots = _index_roots(sink)
    while (pair := _mergeable(sink, roots)) is not None:
        outer, inner, strides = pair
        size = outer.src[0].arg * inner.src[0].arg
        merged = UOp.range(size, min(outer.arg.id, inner.arg.id), outer.arg.kind)
        zeros = {outer: outer.const_like(0), inner: inner.const_like(0)}
        exchanged = {
            root: root.substitute(zeros) + merged * stride for root, stride in strides.items()
        }
        sink = _replace_roots(sink, exchanged, outer, inner, merged)
        roots = _index_roots(sink)
    return sink


def _index_roots(sink: UOp) -> list[UOp]:
    """Index arithmetic where it ends: what an access, a comparison or a cast takes."""
    roots: dict[UOp, None] = {}
    for node in sink.toposort():
        if node.op in (Ops.END, Ops.REDUCE, Ops.RANGE):
            continue
        is_index = node.dtype.is_index and node.op.is_elementwise and node.op is not Ops.CAST
        for source in node.src:
            if source.dtype.is_index and not (is_index and node.op in (Ops.ADD, Ops.MUL)):
                roots[source] = None
    return [root for root in roots if root.ranges]


def _mergeable(sink: UOp, roots: list[UOp]) -> tuple[UOp, UOp, dict[UOp, int]] | None:
    """Two ranges of one nest and the stride of the merged one in each root, if there are such."""
    closers: dict[tuple[UOp, ...], None] = {}
    owners: dict[UOp, set[tuple[UOp, ...]]] = {}
    for node in sink.toposort():
        if node.op in (Ops.END, Ops.REDUCE) and len(node.src) > 1:
            closers[node.src[1:]] = None
            for axis in node.src[1:]:
                owners.setdefault(axis, set()).add(node.src[1:])
    table: dict[UOp, list[tuple[UOp, int | None]]] = {}
    for root in roots:
        for axis, stride in linear_strides(root).items():
            table.setdefault(axis, []).append((root, stride))
    for ranges in closers:
        if len(ranges) < 2:
            continue
        for outer in ranges:
            for inner in ranges:
                if outer is not inner and owners[outer] == owners[inner]:
                    strides = _joint_strides(outer, inner, table)
                    if strides is not None:
                        return outer, inner, strides
    return None


def _joint_strides(
    outer: UOp, inner: UOp, table: dict[UOp, list[tuple[UOp, int | None]]]
) -> dict[UOp, int] | None:
    size = _size(inner)
    if size is None or _size(outer) is None:
        return None
    along_outer, along_inner = dict(table.get(outer, ())), dict(table.get(inner, ()))
    if along_outer.keys() != along_inner.keys() or not along_outer:
        return None
    for root, stride in along_inner.items():
        if stride is None or along_outer[root] != stride * size:
            return None
    return {root: stride for root, stride in along_inner.items() if stride is not None}


def linear_strides(index: UOp) -> dict[UOp, int | None]:
    """How fast an index grows along each RANGE it depends on; None where that varies.

    >>> i, j = UOp.range(4, 0), UOp.range(8, 1)
    >>> linear_strides(i * 8 + j % 3) == {i: 8, j: None}
    True
    """
    found: dict[UOp, int | None] = {}
    stack = [(index, 1)]
    while stack:
        node, factor = stack.pop()
        if node.op is Ops.RANGE:
            before = found.get(node, 0)
            found[node] = None if before is None else before + factor
        elif node.op is Ops.ADD:
            stack += [(s, factor) for s in node.src]
        elif node.op is Ops.MUL and node.src[1].is_const:
            stack.append((node.src[0], factor * node.src[1].arg))
        else:
            found.update(dict.fromkeys(node.ranges))
    return found


def _replace_roots(
    sink: UOp, exchanged: dict[UOp, UOp], outer: UOp, inner: UOp, merged: UOp
) -> UOp:
    def replaced(node: UOp, sources: tuple[UOp, ...]) -> UOp:
        if node in exchanged:
            return exchanged[node]
        if (node.op is Ops.END or node.op is Ops.REDUCE) and inner in node.src[1:]:
            ranges = (merged if r is inner else r for r in node.src[1:] if r is not outer)
            sources = (sources[0], *ranges)
        return node.with_sources(sources)

    return simplify(rebuild(sink, replaced))
