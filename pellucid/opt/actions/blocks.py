"""Make rows of local memory many at a time, in blocks: the loop structure of attentions.

LOOP form -> LOOP form: the action `block`. A kernel that makes a row in each turn of a loop, and
sums it, makes all rows of that loop together instead, a block of each at a time:

    in each i:  s[j] = sum over k of q[i, k] * x[j, k]                    for all j
                y[i, d] = sum over j of exp(s[j] - m) * v[j, d]           m = largest s[j]

    pass 0, for each block of j:    s[j, i] = sum over k of …             for all i, j of the block
                                    m[i] = max(m[i], largest s[j, i] of the block)
    pass 1, for each block of j:    y[i, d] += sum over j of the block of exp(s[j, i] - m[i]) * v

A *row value* is a row that is filled; a *statistic* is a reduction of rows for each i, a *sum* one
for each i and d, a *total* a reduction of sums. What needs a statistic stands in a later pass than
all that the statistic is made of. A row that no later pass reads is a block only. Each step is a
nest of loops with its own actions (nests.py): products of blocks become tiles. Rows i are
neighbours in every buffer, so that they are lanes; a factor of a product that does not lie like
that is copied once for all blocks.

Sums are added block after block; no value changes otherwise.

`block(i, n, (part,))` makes a softmax of rows online (online.py): all passes are run for one part
of the rows after the other, and statistics and sums are brought to each new maximum (rescaled.py).
Rows that later passes read are then as long as a part. What follows the softmax, and all passes of
`block(i, n, (0,))`, make rows again, a block at a time (remade.py).

Source: M. Rabe, C. Staats, "Self-attention does not need O(n^2) memory", 2021; T. Dao,
"FlashAttention-2: faster attention with better parallelism and work partitioning", 2023 (rows in
the outer loop, blocks of keys in the inner one).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import Action, AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.transform import fresh_ranges, next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.actions.buffers import new_buffer, position
from pellucid.opt.actions.legal import next_define_id, refuse, require_free_order, require_loop
from pellucid.opt.actions.masked import Live, live_blocks
from pellucid.opt.actions.online import Online, read_online
from pellucid.opt.actions.overlap import require_stored_alone
from pellucid.opt.actions.remade import made_again, without_links
from pellucid.opt.actions.rescaled import Stream
from pellucid.opt.actions.values import Ranges, RowValue, row_values
from pellucid.opt.axes import end_of, size_of


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
    return sink.substitute({end: Blocks(sink, action, axis, end).rebuilt()})


@dataclass
class _Piece:
    """Some blocks of rows: their loop (None: there is one), the first element, their length.

    part: where in the row the memory of a kept row begins.
    """

    turn: UOp | None
    first: UOp
    length: int
    part: UOp

    def place(self, inner: UOp) -> UOp:
        """Where element *inner* of the block is in the row."""
        start = self.first if self.turn is None else self.turn * self.length + self.first
        return simplify(start + inner)

    def kept_place(self, inner: UOp) -> UOp:
        """Where it lies in memory, in a row that is kept."""
        return simplify(self.place(inner) + self.part * -1)


@dataclass
class _Part:
    """A part of the rows, for which all passes are run: its loop (None: there is one), its blocks.

    first, count: the first block, and how many there are.  rest: elements that fill no block.
    """

    turn: UOp | None
    first: UOp
    count: UOp
    rest: int = 0


class Blocks:
    """One `block`: values become buffers, and the passes that fill them."""

    def __init__(self, sink: UOp, action: Action, axis: UOp, end: UOp) -> None:
        self.action, self.axis, self.end = action, axis, end
        self.outer: Ranges = (*end.ranges, *end.src[1:-1])
        self.values = row_values(end.src[0], action, axis)
        self.fresh_from = next_range_id(sink)
        self.define = next_define_id(sink)
        self.copies: dict[UOp, UOp] = {}
        if not any(value.is_row for value in self.values):
            raise refuse(action, "no row is filled in its turns")
        sizes = {size_of(value.axis) for value in self.values if not value.is_total}
        if len(sizes) != 1 or None in sizes:
            raise refuse(action, "its rows differ in length")
        self.length = next(size for size in sizes if size is not None)
        if not 1 <= action.amount <= self.length:
            raise refuse(action, f"a block of {action.amount} is not a part of {self.length}")
        self.live: Live | None = live_blocks(self.values, axis, action.amount)
        self.online: Online | None = None
        self.reference: RowValue | None = None  # what is read in passes instead of the largest
        self.part: _Part | None = None
        self.last = max(value.stage for value in self.values)  # the last pass of each part
        if action.extra:
            self.use_less_memory()
        self.values = without_links(self.values)
        self.by_node = {node: value for value in self.values for node in value.uses}

    def use_less_memory(self) -> None:
        """Keep parts of rows at most, of one softmax; or no row, where parts have no elements."""
        if self.action.extra[0]:
            self.online = read_online(self.values, self.action)
            self.values, self.last = self.online.values, self.online.stage
        else:
            self.values = made_again(self.values, 0)

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
        stream = None if self.online is None else Stream(self, self.online)
        for part in self.parts():
            self.part = part
            effects = stream.begin() if stream is not None else []
            for stage in range(1 + self.last):
                if stream is not None and stage == stream.stage:
                    effects += stream.scale_again()
                effects += self.run_stage(stage)
            if part.turn is not None:
                done = UOp.make(Ops.GROUP, *effects).end(part.turn)
                for value in self.values:
                    value.done = done if value.stage <= self.last else value.done
        self.part = None
        if stream is not None:
            stream.finish()
            self.part = self.whole()
            for stage in range(1 + self.last, 1 + max(value.stage for value in self.values)):
                self.run_stage(stage)
            self.part = None
        body = self.outputs(self.end.src[0], ())
        return body.end(*self.end.src[1:-1])

    def run_stage(self, stage: int) -> list[UOp]:
        """Make the values of a pass, of all blocks of a part: totals of sums first."""
        values = [v for v in self.values if v.stage == stage]
        effects = [self.close(v) for v in values if v.is_total]
        return effects + self.run_pass([v for v in values if not v.is_total])

    def parts(self) -> Iterator[_Part]:
        """The parts of the rows: one, or as many as an online softmax is made of."""
        whole = self.whole()
        if self.online is None:
            yield whole
            return
        each, blocks = self.blocks_of_part, whole.count
        turn = self.loop(simplify((blocks + (each - 1)) // each))
        left = simplify(blocks + turn * -each)
        is_even = blocks.is_const and blocks.arg % each == 0
        size = blocks.const_like(each) if is_even else left.minimum(each)
        yield _Part(turn, simplify(whole.first + turn * each), simplify(size))
        if whole.rest:
            zero = blocks.const_like(0)
            yield _Part(None, zero, zero, whole.rest)

    def whole(self) -> _Part:
        """The rows from end to end, but for dead blocks."""
        count, rest = divmod(self.length, self.action.amount)
        zero = UOp.const(dtypes.index, 0)
        if self.live is not None:
            return _Part(None, self.live.start, self.live.count, rest)
        return _Part(None, zero, zero.const_like(count), rest)

    @property
    def blocks_of_part(self) -> int:
        """How many blocks a part has at most."""
        return max(1, int(self.action.extra[0]) // self.action.amount)

    @property
    def turns(self) -> Ranges:
        """The loop over parts, where there is one."""
        return () if self.part is None or self.part.turn is None else (self.part.turn,)

    def prepare(self, value: RowValue) -> None:
        """Make the buffer of a value; statistics and sums start from the identity."""
        if value.is_row:
            length = self.action.amount
            if value.kept:
                parts = self.blocks_of_part * length if self.online is not None else self.length
                length = min(self.length, parts)
            whole = (self.loop_like(value.axis, length), self.loop_like(self.axis))
            value.buffer = self.buffer_like(value.body, whole)
            return
        loops = tuple(self.loop_like(r) for r in (self.axis, *value.inner))
        value.buffer = self.buffer_like(value.node, loops)
        if value.is_total:
            return
        first = UOp.const(value.node.dtype, value.node.arg.op.identity_for(value.node.dtype))
        if self.live is not None and value.node in self.live.added:
            first = self.sum_of_dead(value, self.live, loops[1:])
        place = value.buffer.after(*self.outer).index(position(loops))
        value.done = place.store(first).end(*loops)

    def sum_of_dead(self, value: RowValue, live: Live, loops: Ranges) -> UOp:
        """What dead blocks add to a sum, the same for all rows."""
        by_block = self.sums_of_blocks(value, live)
        first, count = live.dead
        turn = self.loop(count)
        cleared, added = (tuple(self.loop_like(r) for r in loops) for _ in range(2))
        buffer = self.buffer_like(value.node, cleared)
        zero = UOp.const(value.node.dtype, 0)
        start = buffer.after(*self.outer).index(position(cleared)).store(zero).end(*cleared)
        size = math.prod(size_of(r) or 1 for r in added)
        part = by_block.index(simplify((turn + first) * size + position(added)))
        now = buffer.after(start, turn).index(position(added))
        done = now.store(now + part).end(*added).end(turn)
        return buffer.after(done).index(position(loops))

    def sums_of_blocks(self, value: RowValue, live: Live) -> UOp:
        """What each block would add if it were dead: once for all turns of the axis."""
        length, element = self.action.amount, live.added[value.node]
        block = self.loop(UOp.const(dtypes.index, live.total))
        loops = (block, *(self.loop_like(r) for r in value.inner))
        inner = self.loop_like(value.axis, length, AxisKind.REDUCE)
        places = dict(zip(value.inner, loops[1:], strict=True))
        added = substitute_free(element, {value.axis: block * length + inner, **places})
        buffer = self.buffer_like(value.node, loops)
        place = buffer.after(*(r for r in self.outer if r in added.ranges)).index(position(loops))
        return buffer.after(place.store(value.node.with_sources((added, inner))).end(*loops))

    def run_pass(self, values: list[RowValue]) -> list[UOp]:
        """Make *values*, for all blocks of a part of the rows; the effects that do."""
        done: list[UOp] = []
        for piece in self.pieces() if values else ():
            effects = [self.step(value, piece) for value in values]
            body = effects[0] if len(effects) == 1 else UOp.make(Ops.GROUP, *effects)
            done.append(body if piece.turn is None else body.end(piece.turn))
            for value in values:
                value.done = done[-1]
        return done

    def close(self, value: RowValue) -> UOp:
        """Make a total of sums that are complete."""
        row = self.loop_like(self.axis)
        read = [n for n in self.open_nodes(value.body) if n in self.by_node]
        sums = {n: self.final(self.by_node[n], self.axis, self.by_node[n].uses[n]) for n in read}
        body = value.node.with_sources((value.body.substitute(sums), *value.node.src[1:]))
        fresh = fresh_ranges(UOp.range(1, self.fresh_from + 1))
        made = substitute_free(body, {self.axis: row}, fresh)
        self.fresh_from = max(self.fresh_from, next_range_id(made))
        assert value.buffer is not None, "rows lie in a buffer"
        place = value.buffer.after(*self.outer, *self.turns).index(row)
        value.done = place.store(made).end(row)
        return value.done

    def pieces(self) -> Iterator[_Piece]:
        """The blocks of a part, and what is left of the row."""
        assert self.part is not None, "a part is open"
        part, length = self.part, self.action.amount
        start = simplify(part.first * length)
        # rows that are kept whole lie as they are; of a part, from its first element on
        kept = start if self.online is not None else start.const_like(0)
        if not part.count.is_const or part.count.arg > 1:
            yield _Piece(self.loop(part.count), start, length, kept)
        elif part.count.arg == 1:
            yield _Piece(None, start, length, kept)
        if part.rest:
            count = self.length // length
            first = start.const_like(count * length)
            yield _Piece(None, first, part.rest, kept if self.online is None else first)

    def loop(self, count: UOp) -> UOp:
        """A loop of so many turns."""
        self.fresh_from += 1
        return UOp.range(simplify(count), self.fresh_from - 1)

    def step(self, value: RowValue, piece: _Piece) -> UOp:
        """Make one block of a value, and note where it can be read in this turn."""
        row = self.loop_like(self.axis)
        turn = self.turns if piece.turn is None else (*self.turns, piece.turn)
        assert value.buffer is not None, "rows lie in a buffer"
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
        assert value.done is not None, "rows are filled before they are read"
        now = value.buffer.after(value.done, *turn).index(position((row, *loops)))
        part = value.node.with_sources((body, inner))
        return now.store(now.alu(value.node.arg.op, part)).end(row, *loops)

    def place_in(self, value: RowValue, piece: _Piece, inner: UOp, row: UOp) -> UOp:
        """Where an element of a row value lies in its buffer."""
        at = piece.kept_place(inner) if value.kept else inner
        return at * (size_of(self.axis) or 1) + row

    # ---- expressions -----------------------------------------------------------------------------

    def at(self, body: UOp, axis: UOp, piece: _Piece, inner: UOp, renamed: dict[UOp, UOp]) -> UOp:
        """*body*, an element at *axis* of a row, at element *inner* of a block."""
        row = renamed[self.axis]
        exchange: dict[UOp, UOp] = {}
        for node in self.open_nodes(body):
            if node in self.by_node and not self.by_node[node].is_row:
                exchange[node] = self.final(self.standing_for(node), row, ())
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

    def standing_for(self, node: UOp) -> RowValue:
        """The value that is read for a statistic in a pass."""
        value = self.by_node[node]
        is_largest = self.online is not None and value is self.online.largest
        return self.reference if is_largest and self.reference is not None else value

    def final(self, value: RowValue, row: UOp, loops: Sequence[UOp]) -> UOp:
        """A statistic or sum when all passes that make it are done."""
        return self.filled(value).index(position((row, *loops)))

    def filled(self, value: RowValue) -> UOp:
        """The buffer of a value, after the last effect on it."""
        assert value.buffer is not None, "rows lie in a buffer"
        assert value.done is not None, "rows are filled before they are read"
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
                exchange[node] = self.final(value, self.axis, value.uses[node])
        changed = substitute_free(effect.substitute(exchange), renamed)
        return changed.end(*(renamed[axis] for axis in own))
