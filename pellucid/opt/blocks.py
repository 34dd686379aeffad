"""Make rows of local memory many at a time, in blocks: the loop structure of attentions.

LOOP form -> LOOP form: the action `block`. A kernel that makes a row in each turn of a loop, and
sums it, makes all rows of that loop together instead, a block of each at a time:

    in each i:  s[j] = sum over k of q[i, k] * x[j, k]                    for all j
                y[i, d] = sum over j of exp(s[j] - m) * v[j, d]           m = largest s[j]

    pass 0, for each block of j:    s[j, i] = sum over k of …             for all i, j of the block
                                    m[i] = max(m[i], largest s[j, i] of the block)
    pass 1, for each block of j:    y[i, d] += sum over j of the block of exp(s[j, i] - m[i]) * v

A *row value* is a row that is filled; a *statistic* is a reduction of rows for each i, a *sum* one
for each i and d. What needs a statistic stands in a later pass than all that the statistic is made
of. A row that no later pass reads is a block only. Each step is a nest of loops with its own
actions (nests.py): products of blocks become tiles. Rows i are neighbours in every buffer, so that
they are lanes; a factor of a product that does not lie like that is copied once for all blocks.

Sums are added block after block; no value changes otherwise.

Source: M. Rabe, C. Staats, "Self-attention does not need O(n^2) memory", 2021; T. Dao,
"FlashAttention-2: faster attention with better parallelism and work partitioning", 2023 (rows in
the outer loop, blocks of keys in the inner one).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import fresh_ranges, next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.axes import end_of, size_of
from pellucid.opt.buffers import new_buffer, position
from pellucid.opt.legal import next_define_id, refuse, require_free_order, require_loop
from pellucid.opt.masked import Live, live_blocks
from pellucid.opt.overlap import require_stored_alone
from pellucid.opt.values import Ranges, RowValue, row_values


def block(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Make the rows of all turns of *axis* together, in blocks as long as the amount."""
    require_free_order(sink, action)
    require_loop(action, axis)
    end = end_of(sink, axis)
    if end is None:
        raise refuse(action, "it is reduced")
    if end.src[-1] is not axis:
        raise refuse(action, "it is not the innermost of its loops")
    require_stored_alone(action, end)  # each output gets loops of its own
    return sink.substitute({end: _Blocks(sink, action, axis, end).rebuilt()})


@dataclass
class _Piece:
    """Some blocks of rows: their loop (None: there is one), the first element, their length."""

    turn: UOp | None
    first: UOp
    length: int

    def place(self, inner: UOp) -> UOp:
        """Where element *inner* of the block is in the row."""
        start = self.first if self.turn is None else self.turn * self.length + self.first
        return simplify(start + inner)


class _Blocks:
    """One `block`: values become buffers, and the passes that fill them."""

    def __init__(self, sink: UOp, action: Action, axis: UOp, end: UOp) -> None:
        self.action, self.axis, self.end = action, axis, end
        self.outer: Ranges = (*end.ranges, *end.src[1:-1])
        self.values = row_values(end.src[0], action, axis)
        self.by_node = {value.node: value for value in self.values}
        self.fresh_from = next_range_id(sink)
        self.define = next_define_id(sink)
        self.copies: dict[UOp, UOp] = {}
        if not any(value.is_row for value in self.values):
            raise refuse(action, "no row is filled in its turns")
        sizes = {size_of(value.axis) for value in self.values}
        if len(sizes) != 1 or None in sizes:
            raise refuse(action, "its rows differ in length")
        self.length = next(size for size in sizes if size is not None)
        if not 1 <= action.amount <= self.length:
            raise refuse(action, f"a block of {action.amount} is not a part of {self.length}")
        self.live: Live | None = live_blocks(self.values, axis, action.amount)

    # ---- ranges and buffers ----------------------------------------------------------------------

    def loop_like(self, axis: UOp, size: int | None = None, kind: AxisKind = AxisKind.LOOP) -> UOp:
        """A loop with a number of its own."""
        self.fresh_from += 1
        return UOp.range(axis.src[0] if size is None else size, self.fresh_from - 1, kind)

    def buffer_like(self, value: UOp, loops: Sequence[UOp]) -> UOp:
        """Local memory with an element for each turn of *loops*."""
        self.define += 1
        return new_buffer(self.action, value.dtype, loops, self.define - 1)

    # ---- passes ----------------------------------------------------------------------------------

    def rebuilt(self) -> UOp:
        """The effect of all turns of the axis."""
        for value in self.values:
            self.prepare(value)
        for stage in range(1 + max(value.stage for value in self.values)):
            self.run_pass([value for value in self.values if value.stage == stage])
        body = self.outputs(self.end.src[0], ())
        return body.end(*self.end.src[1:-1])

    def prepare(self, value: RowValue) -> None:
        """Make the buffer of a value; statistics and sums start from the identity."""
        if value.is_row:
            length = self.length if value.kept else self.action.amount
            whole = (self.loop_like(value.axis, length), self.loop_like(self.axis))
            value.buffer = self.buffer_like(value.body, whole)
            return
        loops = tuple(self.loop_like(r) for r in (self.axis, *value.inner))
        value.buffer = self.buffer_like(value.node, loops)
        first = UOp.const(value.node.dtype, value.node.arg.op.identity_for(value.node.dtype))
        if self.live is not None and value.node in self.live.added:
            first = self.sum_of_dead(value, self.live, loops[1:])
        place = value.buffer.after(*self.outer).index(position(loops))
        value.done = place.store(first).end(*loops)

    def sum_of_dead(self, value: RowValue, live: Live, loops: Ranges) -> UOp:
        """What dead blocks add to a sum, the same for all rows."""
        piece = self.blocks(*live.dead)
        assert piece.turn is not None
        cleared, added = (tuple(self.loop_like(r) for r in loops) for _ in range(2))
        buffer = self.buffer_like(value.node, cleared)
        zero = UOp.const(value.node.dtype, 0)
        start = buffer.after(*self.outer).index(position(cleared)).store(zero).end(*cleared)
        inner = self.loop_like(value.axis, piece.length, AxisKind.REDUCE)
        renamed = {value.axis: piece.place(inner), **dict(zip(value.inner, added, strict=True))}
        part = value.node.with_sources((substitute_free(live.added[value.node], renamed), inner))
        now = buffer.after(start, piece.turn).index(position(added))
        done = now.store(now + part).end(*added).end(piece.turn)
        return buffer.after(done).index(position(loops))

    def run_pass(self, values: list[RowValue]) -> None:
        """Make *values*, for all blocks of the rows."""
        for piece in self.pieces():
            effects = [self.step(value, piece) for value in values]
            body = effects[0] if len(effects) == 1 else UOp.make(Ops.GROUP, *effects)
            done = body if piece.turn is None else body.end(piece.turn)
            for value in values:
                value.done = done

    def pieces(self) -> Iterator[_Piece]:
        """The blocks, and what is left of the row."""
        length = self.action.amount
        count, rest = divmod(self.length, length)
        zero = UOp.const(dtypes.index, 0)
        if self.live is not None:
            yield self.blocks(self.live.start, self.live.count)
        elif count > 1:
            yield self.blocks(zero, zero.const_like(count))
        else:
            yield _Piece(None, zero, length)
        if rest:
            yield _Piece(None, zero.const_like(count * length), rest)

    def blocks(self, first: UOp, count: UOp) -> _Piece:
        """So many whole blocks."""
        self.fresh_from += 1
        length = self.action.amount
        turn = UOp.range(simplify(count), self.fresh_from - 1)
        return _Piece(turn, simplify(first * length), length)

    def step(self, value: RowValue, piece: _Piece) -> UOp:
        """Make one block of a value, and note where it can be read in this turn."""
        row = self.loop_like(self.axis)
        turn = () if piece.turn is None else (piece.turn,)
        assert value.buffer is not None
        if value.is_row:
            inner = self.loop_like(value.axis, piece.length)
            place = self.place_in(value, piece, inner, row)
            # in each turn anew: blocks share the buffer, also those that depend on no loop
            before = (*self.outer, *turn, *(() if value.done is None else (value.done,)))
            body = self.at(value.body, value.axis, piece, inner, {self.axis: row})
            store = value.buffer.after(*before).index(place).store(body).end(inner, row)
            value.done = store
            return store
        inner = self.loop_like(value.axis, piece.length, AxisKind.REDUCE)
        loops = tuple(self.loop_like(r) for r in value.inner)
        renamed = {self.axis: row, **dict(zip(value.inner, loops, strict=True))}
        body = self.at(value.body, value.axis, piece, inner, renamed)
        assert value.done is not None
        now = value.buffer.after(value.done, *turn).index(position((row, *loops)))
        part = value.node.with_sources((body, inner))
        return now.store(now.alu(value.node.arg.op, part)).end(row, *loops)

    def place_in(self, value: RowValue, piece: _Piece, inner: UOp, row: UOp) -> UOp:
        """Where an element of a row value lies in its buffer."""
        at = piece.place(inner) if value.kept else inner
        return at * (size_of(self.axis) or 1) + row

    # ---- expressions -----------------------------------------------------------------------------

    def at(self, body: UOp, axis: UOp, piece: _Piece, inner: UOp, renamed: dict[UOp, UOp]) -> UOp:
        """*body*, an element at *axis* of a row, at element *inner* of a block."""
        row = renamed[self.axis]
        exchange: dict[UOp, UOp] = {}
        for node in self.open_nodes(body):
            if node in self.by_node and not self.by_node[node].is_row:
                exchange[node] = self.final(self.by_node[node], row, ())
            elif node.op is Ops.INDEX and node.src[0] in self.by_node:
                value = self.by_node[node.src[0]]
                if node.src[1] is not axis:
                    raise refuse(self.action, "a row is read elsewhere than where it is used")
                place = self.place_in(value, piece, inner, row)
                exchange[node] = self.filled(value).index(place)
            elif node.op is Ops.REDUCE:
                exchange |= self.copied_factors(node, axis, row)
        changed = body.substitute(exchange)
        fresh = fresh_ranges(UOp.range(1, self.fresh_from + 1))
        moved = substitute_free(changed, {**renamed, axis: piece.place(inner)}, fresh)
        self.fresh_from = max(self.fresh_from, next_range_id(moved))
        return moved

    def open_nodes(self, body: UOp) -> list[UOp]:
        """What an element is computed from, without what other values are made of."""
        return body.toposort(lambda n: n not in self.by_node)

    def final(self, value: RowValue, row: UOp, loops: Sequence[UOp]) -> UOp:
        """A statistic or sum when all passes that make it are done."""
        return self.filled(value).index(position((row, *loops)))

    def filled(self, value: RowValue) -> UOp:
        """The buffer of a value, after the last effect on it."""
        assert value.buffer is not None
        assert value.done is not None
        return value.buffer.after(value.done)

    def copied_factors(self, node: UOp, axis: UOp, row: UOp) -> dict[UOp, UOp]:
        """Factors of a product that depend on the axis alone, as reads of a copy."""
        product = node.src[0]
        if product.op is not Ops.MUL or node.arg.op is not Ops.ADD:
            return {}
        for factor in product.src:
            if self.axis in factor.ranges and axis not in factor.ranges:
                return {factor: self.copy_of(factor, node.src[1:], row)}
        return {}

    def copy_of(self, factor: UOp, summed: Ranges, row: UOp) -> UOp:
        """A factor side by side for all turns of the axis; made once for all blocks."""
        if factor not in self.copies:
            loops = tuple(self.loop_like(r) for r in (*summed, self.axis))
            renamed = dict(zip((*summed, self.axis), loops, strict=True))
            buffer = self.buffer_like(factor, loops)
            store = buffer.index(position(loops)).store(substitute_free(factor, renamed))
            self.copies[factor] = buffer.after(store.end(*loops))
        return self.copies[factor].index(position((*summed, row)))

    # ---- outputs ---------------------------------------------------------------------------------

    def outputs(self, effect: UOp, loops: Ranges) -> UOp:
        """What the kernel stores, from the buffers; each output in loops of its own."""
        if effect.op is Ops.GROUP:
            return UOp.make(Ops.GROUP, *(self.outputs(part, loops) for part in effect.src))
        if effect.op is Ops.END:
            return self.outputs(effect.src[0], (*loops, *effect.src[1:]))
        own = (self.axis, *loops)
        renamed = {axis: self.loop_like(axis) for axis in own}
        exchange: dict[UOp, UOp] = {}
        for node in self.open_nodes(effect):
            value = self.by_node.get(node)
            if value is not None and value.is_row:
                raise refuse(self.action, "a row is read by an output, and not by a reduction")
            if value is not None:
                exchange[node] = self.final(value, self.axis, value.inner)
        changed = substitute_free(effect.substitute(exchange), renamed)
        return changed.end(*(renamed[axis] for axis in own))
