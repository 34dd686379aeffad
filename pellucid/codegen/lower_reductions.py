"""Turn each REDUCE into a loop around an accumulator.

VECTOR form -> VECTOR form without REDUCE.

    before    REDUCE(x[i, k], k, ADD)
    after     start = AFTER(acc, i)            the accumulator, inside of the loops around
              init  = STORE(start[0], 0.0)
              a     = AFTER(acc, init, k)      the accumulator, inside of the loop over k
              step  = STORE(a[0], LOAD(a[0]) + x[i, k])
              LOAD(AFTER(acc, END(step, k))[0])

All reductions of equal sizes in the same loops, that do not need one another, share one loop: the
copies that upcasting and unrolling made are its independent accumulators. Where a target has
MULADD, `acc + a * b` in float32 and float64 is rounded once: semantics.md, "Floats", allows this in
reductions alone.
"""

from __future__ import annotations

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import AddrSpace, DefineArg
from pellucid.ir.op import Op, Ops
from pellucid.ir.transform import fresh_ranges, substitute_free
from pellucid.ir.uop import UOp

GroupKey = tuple[int, tuple[UOp, ...], tuple[UOp, ...]]


def lower_reductions(sink: UOp, target: Target) -> UOp:
    """Replace every REDUCE by the value of an accumulator after a loop."""
    sink = _separate_loops(_share_loops(sink))
    fused = "MULADD" in target.native_ops
    number = sum(node.op is Ops.DEFINE for node in sink.toposort())
    while groups := _innermost_groups(sink):
        results: dict[UOp, UOp] = {}
        for (_, closed, _), members in groups.items():
            ranges = closed
            results |= _loop(members, ranges, number, fused)
            number += len(members)
        sink = sink.substitute(results)
    return sink


def _innermost_groups(sink: UOp) -> dict[GroupKey, list[UOp]]:
    """The REDUCEs that stand on no other REDUCE, those that can share a loop together."""
    groups: dict[GroupKey, list[UOp]] = {}
    for node, level in _levels(sink).items():
        if level == 1:
            groups.setdefault((level, node.src[1:], node.ranges), []).append(node)
    return groups


def _levels(sink: UOp) -> dict[UOp, int]:
    """For each REDUCE, one more than the largest number of REDUCEs on a way down from it."""
    nodes = sink.toposort()
    found: dict[UOp, int] = {node: 1 for node in nodes if node.op is Ops.REDUCE}
    if len(found) < 2:
        return found
    below: dict[UOp, int] = {}  # nodes without a REDUCE at or below them are left out
    for node in nodes:
        level = 0
        for source in node.src:
            if source in below and below[source] > level:
                level = below[source]
        if node.op is Ops.REDUCE:
            level += 1
            found[node] = level
        if level:
            below[node] = level
    return found


def _share_loops(sink: UOp) -> UOp:
    """Let independent reductions of equal sizes in the same loops close the same ranges."""
    levels = _levels(sink)
    for level in range(max(levels.values(), default=0) if len(levels) > 1 else 0, 0, -1):
        found: dict[tuple[object, ...], tuple[UOp, ...]] = {}
        exchanged: dict[UOp, UOp] = {}
        for node, own in levels.items():
            if own == level:
                key = (node.ranges, tuple([r.src[0] for r in node.src[1:]]))
                first = found.setdefault(key, node.src[1:])
                pairs = zip(node.src[1:], first, strict=True)
                exchanged |= {a: b for a, b in pairs if a is not b}
        if exchanged:
            sink = sink.substitute(exchanged)
            levels = _levels(sink)
    return sink


def _separate_loops(sink: UOp) -> UOp:
    """Give REDUCEs that cannot share a loop ranges of their own."""
    levels = _levels(sink)
    owner: dict[UOp, GroupKey] = {}
    keys = {node: (level, node.src[1:], node.ranges) for node, level in levels.items()}
    if all(owner.setdefault(axis, key) == key for key in keys.values() for axis in key[1]):
        return sink
    owner.clear()
    fresh = fresh_ranges(sink)
    clones: dict[tuple[UOp, GroupKey], UOp] = {}
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        new = node.with_sources(tuple([done[s] for s in node.src]))
        if node.op is Ops.REDUCE:
            key = keys[node]
            renamed: dict[UOp, UOp] = {}
            for axis in node.src[1:]:
                if owner.setdefault(axis, key) != key:
                    clone = clones.get((axis, key))
                    if clone is None:
                        clone = clones[axis, key] = fresh(axis)
                        fresh = fresh_ranges(sink, *clones.values())
                    renamed[axis] = clone
            if renamed:
                value = substitute_free(new.src[0], renamed)
                new = new.with_sources((value, *(renamed.get(r, r) for r in new.src[1:])))
        done[node] = new
    return done[sink]


def _loop(members: list[UOp], ranges: tuple[UOp, ...], number: int, fused: bool) -> dict[UOp, UOp]:
    """One loop with an accumulator for each of *members*: the value of each after it."""
    zero = UOp.const(dtypes.index, 0)
    accumulators: list[UOp] = []
    steps: list[UOp] = []
    for position, node in enumerate(members):
        arg = DefineArg(AddrSpace.REG, number + position, 1)
        accumulator = UOp(Ops.DEFINE, node.dtype, (), arg)
        op: Op = node.arg.op
        identity = UOp.const(node.dtype, op.identity_for(node.dtype))
        start = _element(accumulator.after(*node.ranges), zero).store(identity)
        current = _element(accumulator.after(start, *ranges), zero)
        steps.append(current.store(_combine(op, current.load(), node.src[0], fused)))
        accumulators.append(accumulator)
    body = steps[0] if len(steps) == 1 else UOp.make(Ops.GROUP, *steps)
    end = body.end(*ranges)
    return {
        node: _element(accumulator.after(end), zero).load()
        for node, accumulator in zip(members, accumulators, strict=True)
    }


def _element(storage: UOp, zero: UOp) -> UOp:
    """The one element of an accumulator, all lanes of it."""
    return UOp(Ops.INDEX, storage.dtype, (storage, zero))


def _combine(op: Op, current: UOp, value: UOp, fused: bool) -> UOp:
    is_product = op is Ops.ADD and value.op is Ops.MUL
    if fused and is_product and value.dtype.scalar in (dtypes.float32, dtypes.float64):
        return UOp.make(Ops.MULADD, *value.src, current)
    return current.alu(op, value)
