"""Actions that put something into memory of the kernel's own.

LOOP form -> LOOP form. As all actions, they never change a value, but for the order of a sum.

    pack(axis, slot)     what the loops inside of *axis* read of a parameter is copied first, side
                         by side in the order of those loops (reduced ones before the last output),
                         in the type that it is converted to; what fills buffers is left alone;
                         operands of a matrix unit in its type and lanes (units.py); with the name
                         of a type as a third thing, in that type and with the sum innermost; with
                         the number of a loop as a third thing, only what moves along that loop
    hoist(axis, n)       a reduced axis moves outside of all output loops but the first n, whose
                         sums wait in memory from one turn to the next

Before and after `pack(0, 2)` of `c[p * 8 + i] = sum over k of a[k] * b[k * 16 + p * 8 + i]`:

    END(STORE(c[p * 8 + i], REDUCE(a[k] * b[k * 16 + p * 8 + i], k)), p, i)

    fill = END(STORE(t[k' * 8 + i'], b[k' * 16 + p * 8 + i']), k', i')      t: LOCAL, in each p
    END(STORE(c[p * 8 + i], REDUCE(a[k] * AFTER(t, fill)[k * 8 + i], k)), p, i)

Before and after `hoist(2, 1)` of the same kernel, whose axis 2 is k:

    start = END(STORE(AFTER(s, p)[i'], 0), i')                              s: LOCAL, one for each i
    now   = AFTER(s, start, k)[i'']
    steps = END(STORE(now, now + a[k] * b[k * 16 + p * 8 + i'']), k, i'')
    END(STORE(c[p * 8 + i], AFTER(s, steps)[i]), p, i)

A copy or a sum stands where what it depends on puts it: outside of every loop that it does not
need. The loops that are made here are axes of the kernel as all others, and take actions too.

Source: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pellucid.core.dtype import DType, dtypes, parse_dtype
from pellucid.core.target import Target
from pellucid.core.units import keeps_values
from pellucid.ir.arg import Action, AddrSpace, AxisKind, DefineArg, RangeArg
from pellucid.ir.op import Ops
from pellucid.ir.pairs import is_of_pairs
from pellucid.ir.transform import fresh_ranges, next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.ir.walk import users
from pellucid.opt.actions.legal import (
    KIND_NAMES,
    known_size,
    next_define_id,
    refuse,
    require_free_order,
    require_loop,
)
from pellucid.opt.actions.units import Operand, factor_below, operand_of, side_of
from pellucid.opt.axes import (
    all_ends,
    axes_of,
    end_of,
    reduces_over,
    reductions,
    size_of,
    stride_of,
)

MAX_BUFFER_BYTES = 1 << 24
"""The most memory that one buffer of a kernel may take."""


# ---- pack --------------------------------------------------------------------------------------


def pack(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Copy what the loops inside of *axis* read of a parameter; the amount is its slot."""
    require_free_order(sink, action)
    end = end_of(sink, axis)
    if end is None:
        raise refuse(action, "it is reduced; hoist it first")
    outside = {*end.ranges, *end.src[1 : end.src.index(axis) + 1]}
    _require_loops_around(action, outside)
    reads = _reads_inside(sink, action, end, outside)
    return sink.substitute(_Copies(sink, action, outside).of(reads))


def _require_loops_around(action: Action, outside: Iterable[UOp]) -> None:
    """All lanes or copies would share the buffer."""
    for other in outside:
        if other.arg.kind not in (AxisKind.LOOP, AxisKind.REDUCE, AxisKind.THREAD):
            kind = KIND_NAMES[other.arg.kind]
            raise refuse(action, f"the buffer would be filled inside of an axis that is {kind}")


def _reads_inside(sink: UOp, action: Action, end: UOp, outside: set[UOp]) -> list[UOp]:
    slot = action.amount
    # what fills a buffer, behind an AFTER, is another nest
    nest = end.src[0].toposort(lambda n: n.op is not Ops.AFTER)
    inside = [n for n in nest if _is_read(n, slot)]
    if not inside:
        raise refuse(action, f"parameter {slot} is not read inside of it")
    if any(n.op is Ops.STORE and _is_read(n.src[0], slot) for n in sink.toposort()):
        raise refuse(action, f"parameter {slot} is written by the kernel")
    reads = [n for n in inside if not outside.issuperset(n.ranges)]
    if not reads:
        raise refuse(action, f"no loop inside of it moves along parameter {slot}")
    if action.extra and isinstance(action.extra[0], int):
        reads = _moving_along(sink, action, reads)
    return reads


def _moving_along(sink: UOp, action: Action, reads: list[UOp]) -> list[UOp]:
    axes, number = axes_of(sink), action.extra[0]
    found = [r for r in reads if 0 <= number < len(axes) and axes[number] in r.ranges]
    if not found:
        raise refuse(action, f"none of what is read moves along a loop {number}")
    return found


def _is_read(node: UOp, slot: int) -> bool:
    return node.op is Ops.INDEX and node.src[0].op is Ops.PARAM and node.src[0].arg.slot == slot


class _Copies:
    """The buffers of one `pack`: reads that see the same elements share one."""

    def __init__(self, sink: UOp, action: Action, outside: set[UOp]) -> None:
        self.sink, self.action, self.outside = sink, action, outside
        self.reduced = {r for node in reductions(sink) for r in node.src[1:]}
        nests = reversed(all_ends(sink))  # outer ones first
        self.order = [r for end in nests for r in end.src[1:]]
        self.number = next_range_id(sink)
        self.define = next_define_id(sink)
        self.users = users(sink)
        self.made: list[tuple[UOp, list[UOp], UOp]] = []

    def of(self, reads: list[UOp]) -> dict[UOp, UOp]:
        """What each of the *reads* becomes."""
        found: dict[UOp, UOp] = {}
        for read in reads:
            operand = operand_of(read, self.users)
            if operand is not None:
                found[operand.side] = self._for_unit(operand)
            elif self.action.extra and isinstance(self.action.extra[0], str):
                side = side_of(read, self.users)
                found[side] = self._as_asked(read, side)
            else:
                value = self._converted(read)
                found[value] = self._instead_of(value)
        return found

    def _for_unit(self, operand: Operand) -> UOp:
        """What an operand of a matrix unit becomes: a copy in its type, lane after lane."""
        inside = operand.order(self._inside(operand.read), self.reduced)
        outer = new_loops(inside, self.number)
        first = self.number + len(outer)
        inner = [UOp.range(size, first + place) for place, size in enumerate(operand.loops)]
        loops = [*outer, *inner]
        self.number += len(loops)
        buffer = new_buffer(self.action, operand.dtype, loops, self.define)
        self.define += 1
        places = dict(zip(inside, outer, strict=True)) | operand.places(inner)
        value = substitute_free(operand.value, places)
        value = value if value.dtype is operand.dtype else value.cast(operand.dtype)
        filled = buffer.after(buffer.index(position(loops)).store(value).end(*loops))
        lanes = math.prod(operand.loops)
        place = position(inside) * lanes + operand.lane()
        read = filled.index(place)
        return read if operand.side.dtype is read.dtype else read.cast(operand.side.dtype)

    def _as_asked(self, read: UOp, side: UOp) -> UOp:
        """A copy in the type that the action names, which must lose nothing, along the sum."""
        dtype, found = parse_dtype(self.action.extra[0]), factor_below(side)
        value = found[0] if found is not None else read
        if found is None or not keeps_values(value.dtype, dtype):
            raise refuse(self.action, f"{dtype} does not keep the values of {value.dtype}")
        value = value if value.dtype is dtype else value.cast(dtype)
        strides = {r: stride_of(read.src[1], r) or 0 for r in read.ranges}
        inside = sorted(self._inside(read), key=lambda r: (r in self.reduced, -strides[r]))
        copy = self._fill(value, inside).index(position(inside))
        return copy if copy.dtype is side.dtype else copy.cast(side.dtype)

    def _converted(self, read: UOp) -> UOp:
        """The CAST of a read, where nothing else uses it."""
        (user, *others) = self.users[read]
        is_float = user.op is Ops.CAST and user.dtype.is_float
        return user if is_float and not others else read

    def _instead_of(self, read: UOp) -> UOp:
        inside = self._inside(read)
        for first, ranges, filled in self.made:
            same = [size_of(r) for r in ranges] == [size_of(r) for r in inside]
            if same and substitute_free(read, dict(zip(inside, ranges, strict=True))) is first:
                return filled.index(position(inside))
        filled = self._fill(read, inside)
        self.made.append((read, inside, filled))
        return filled.index(position(inside))

    def _inside(self, read: UOp) -> list[UOp]:
        """The loops that the copy runs over: outputs in order, and reduced ones before the last."""
        inside = [r for r in read.ranges if r not in self.outside]
        if any(size_of(r) is None for r in inside):
            raise refuse(self.action, "a loop inside of it has a variable size")
        reduced = [r for r in inside if r in self.reduced]
        index = read if read.op is Ops.INDEX else read.src[0]
        reduced.sort(key=lambda r: -(stride_of(index.src[1], r) or 0))
        outputs = sorted((r for r in inside if r not in self.reduced), key=self.order.index)
        return [*outputs[:-1], *reduced, *outputs[-1:]]

    def _fill(self, read: UOp, inside: list[UOp]) -> UOp:
        copies = new_loops(inside, self.number)
        self.number += len(copies)
        buffer = new_buffer(self.action, read.dtype, inside, self.define)
        self.define += 1
        value = substitute_free(read, dict(zip(inside, copies, strict=True)))
        return buffer.after(buffer.index(position(copies)).store(value).end(*copies))


# ---- hoist -------------------------------------------------------------------------------------


def hoist(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Move a reduced axis outside of output loops; the amount says how many stay around it."""
    require_free_order(sink, action)
    require_loop(action, axis)
    known_size(action, axis)
    nodes = reduces_over(sink, axis)
    if not nodes:
        raise refuse(action, "it is an output axis")
    if len(nodes) > 1:
        raise refuse(action, "several reductions share it")
    node = nodes[0]
    if is_of_pairs(node):
        raise refuse(action, "its reduction is of pairs, whose keys would have to wait too")
    inner = _loops_to_cross(sink, action, node)
    number = next_range_id(sink)
    cleared, summed = new_loops(inner, number), new_loops(inner, number + len(inner))
    buffer = new_buffer(action, node.dtype, inner, next_define_id(sink))
    outer = tuple(r for r in node.ranges if r not in inner)
    _require_loops_around(action, outer)
    zero = UOp.const(node.dtype, node.arg.op.identity_for(node.dtype))
    start = buffer.after(*outer).index(position(cleared)).store(zero).end(*cleared)
    turn = axis.replace(arg=RangeArg(axis.arg.id, AxisKind.LOOP))
    now = buffer.after(start, turn).index(position(summed))
    value = _one_turn(sink, node, axis, dict(zip(inner, summed, strict=True)), turn)
    steps = now.store(now.alu(node.arg.op, value)).end(turn, *summed)
    return sink.substitute({node: buffer.after(steps).index(position(inner))})


def _loops_to_cross(sink: UOp, action: Action, node: UOp) -> list[UOp]:
    """The output loops that the axis moves outside of."""
    around = [e for e in all_ends(sink) if node in e.src[0].toposort(lambda n: n.op is not Ops.END)]
    if len(around) != 1:
        raise refuse(action, f"its reduction stands in {len(around)} nests of output loops")
    end, kept = around[0], action.amount
    if not 0 <= kept < len(end.src) - 1:
        raise refuse(action, f"{kept} loops cannot stay outside of a nest of {len(end.src) - 1}")
    if not set(node.ranges) <= {*end.src[1:], *end.ranges}:
        raise refuse(action, "its reduction stands inside of another one")
    inner = [r for r in end.src[1 + kept :] if r in node.ranges]
    if not inner:
        raise refuse(action, "its reduction does not depend on the loops that it would cross")
    for other in inner:
        if size_of(other) is None:
            raise refuse(action, "it would cross a loop of a variable size")
        if other.arg.kind is not AxisKind.LOOP:
            raise refuse(action, f"it would cross a loop that is {KIND_NAMES[other.arg.kind]}")
    return inner


def _one_turn(sink: UOp, node: UOp, axis: UOp, renamed: dict[UOp, UOp], turn: UOp) -> UOp:
    """What one turn of the axis adds."""
    others = tuple(r for r in node.src[1:] if r is not axis)
    fresh = fresh_ranges(UOp.sink(sink, *renamed.values()))
    value = substitute_free(node.src[0], {**renamed, axis: turn}, fresh)
    return node.with_sources((value, *others)) if others else value


# ---- what both need ------------------------------------------------------------------------------


def new_loops(like: Sequence[UOp], number: int) -> list[UOp]:
    """Loops of the same sizes, numbered from *number*."""
    return [UOp.range(r.src[0], number + place) for place, r in enumerate(like)]


def new_buffer(action: Action, dtype: DType, loops: Sequence[UOp], number: int) -> UOp:
    """Storage with an element for every turn of *loops*.

    Errors: ActionError when it would be too large.
    """
    size = math.prod(size_of(r) or 1 for r in loops)
    if size * dtype.itemsize > MAX_BUFFER_BYTES:
        bytes_ = size * dtype.itemsize
        raise refuse(action, f"a buffer of {bytes_} bytes is larger than {MAX_BUFFER_BYTES}")
    return UOp(Ops.DEFINE, dtype, (), DefineArg(AddrSpace.LOCAL, number, size))


def position(loops: Sequence[UOp]) -> UOp:
    """The place of an element, the last loop running fastest.

    >>> position([UOp.range(4, 0), UOp.range(8, 1)]).src[0].src[1].arg
    8
    """
    place: UOp | None = None
    for loop in loops:
        place = loop if place is None else place * (size_of(loop) or 1) + loop
    return UOp.const(dtypes.index, 0) if place is None else place
