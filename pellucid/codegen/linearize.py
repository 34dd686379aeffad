"""Put the nodes of a lowered kernel in order.

NATIVE form -> LINEAR form.

    before    SINK(END(STORE(y[i], LOAD(x[i]) * k), i))
    after     LINEAR: x, y, k, RANGE i, x[i], LOAD, MUL, y[i], STORE, END, SINK

Loops form a tree: the loop that an END closes stands in the innermost of the loops that the END is
still open to. Each node stands in the innermost loop that it depends on, so what does not depend on
a loop is computed outside of it. A dependence between nodes of different loops is one between the
two things that hold them, at the level where their ways part. At each level, what a thing needs is
put right in front of it, the hungriest source first, so that few values are alive at any point.
What one turn of a loop reads of storage that it also writes is read first.

Source: the order of sources is that of R. Sethi, J. D. Ullman, "The Generation of Optimal Code for
Arithmetic Expressions", 1970, applied to the tree of first uses.
"""

from __future__ import annotations

from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompilerError
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

Loop = UOp | None  # a RANGE, or None: outside of all loops


def linearize(sink: UOp) -> UOp:
    """Return the LINEAR of a lowered kernel: each node after its sources, loops properly nested."""
    return UOp(Ops.LINEAR, dtypes.void, tuple(_Order(sink).items()))


class _Order:
    """The loop tree of a kernel, where each node stands in it, and what must come before what."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.nodes = sink.toposort()
        self.end_of: dict[UOp, UOp] = {}  # RANGE -> the END that closes it
        self.parent: dict[UOp, Loop] = {}  # RANGE -> the loop around its loop
        self.depth: dict[Loop, int] = {None: 0}
        self.place: dict[UOp, Loop] = {}  # node -> the loop whose body it belongs to
        self._find_loops()
        self._place_nodes()
        # item -> items of the same level that must come first, in the order of their use
        self.needs: dict[UOp, dict[UOp, None]] = {}
        self._find_needs()
        self._read_before_writing()
        self.hunger = self._count_registers()

    def _find_loops(self) -> None:
        inside: dict[UOp, Loop] = {self.sink: None}
        for node in reversed(self.nodes):
            around = inside.get(node)
            if node.op in (Ops.SINK, Ops.GROUP, Ops.END) and node in inside:
                # an effect stands in the loop that its structure gives it, whatever it depends on
                within = node.src[1] if node.op is Ops.END else around
                effects = node.src[:1] if node.op is Ops.END else node.src
                for effect in effects:
                    if effect.op in (Ops.GROUP, Ops.END, Ops.STORE, Ops.PREFETCH):
                        inside.setdefault(effect, within)
            if node.op is Ops.END:
                axis = node.src[1]
                if axis in self.end_of:
                    raise CompilerError(f"two ENDs close the loop over {axis!r}")
                self.end_of[axis] = node
                self.parent[axis] = self._innermost((*node.ranges, *((around,) if around else ())))
                self.depth[axis] = self.depth[self.parent[axis]] + 1
        self.inside = inside

    def _innermost(self, ranges: tuple[UOp, ...]) -> Loop:
        best: Loop = None
        for axis in ranges:
            if axis not in self.depth:
                raise CompilerError(f"no END closes the loop over {axis!r}")
            if self.depth[axis] > self.depth[best]:
                best = axis
        return best

    def _place_nodes(self) -> None:
        innermost: dict[tuple[UOp, ...], Loop] = {}
        for node in self.nodes:
            if node.op is Ops.RANGE:
                self.place[node] = self.parent.get(node)
                continue
            around = self.inside.get(node)
            if around is not None:
                self.place[node] = self._innermost((*node.ranges, around))
                continue
            ranges = node.ranges
            if ranges not in innermost:
                innermost[ranges] = self._innermost(ranges)
            self.place[node] = innermost[ranges]

    def _lift(self, item: UOp, loop: Loop, level: Loop) -> UOp:
        """What holds *item*, of the body of *loop*, at a *level* around it: it, or an END."""
        while loop is not level:
            if loop is None:
                raise CompilerError(f"loops do not nest around {item!r}")
            item, loop = self.end_of[loop], self.parent[loop]
        return item

    def _find_needs(self) -> None:
        place = self.place
        for node in self.nodes:
            is_range = node.op is _RANGE
            needs = self.needs.setdefault(self.end_of[node] if is_range else node, {})
            level = place[node]
            for source in node.src:
                if source.op is _RANGE:
                    continue  # it is open wherever it is used
                if place[source] is level and not is_range:
                    needs[source] = None
                else:
                    self._add_need(node, self.end_of[node] if is_range else node, source)

    def _add_need(self, node: UOp, item: UOp, source: UOp) -> None:
        loop, other = self.place[node], self.place[source]
        if node.op is Ops.END and self._is_within(other, node.src[1]):
            return  # the body of the loop itself
        level = self._common(loop, other)
        before, after = self._lift(source, other, level), self._lift(item, loop, level)
        if before is not after:
            self.needs.setdefault(after, {})[before] = None

    def _read_before_writing(self) -> None:
        """In one turn of a loop, storage is read before it is written: values are those of before.

        A read that waits for an earlier effect goes through an AFTER, and is left alone.
        """
        loads: dict[UOp, list[UOp]] = {}
        for node in self.nodes:
            if node.op is Ops.LOAD and (storage := _storage(node)).op is Ops.PARAM:
                loads.setdefault(storage, []).append(node)
        for node in self.nodes:
            if node.op is Ops.STORE:
                level = self.place[node]
                for load in loads.get(_storage(node), ()):
                    if self._common(level, self.place[load]) is level:
                        item = self._lift(load, self.place[load], level)
                        self.needs[node][item] = None

    def _is_within(self, loop: Loop, axis: UOp) -> bool:
        while loop is not None and loop is not axis:
            loop = self.parent[loop]
        return loop is axis

    def _common(self, a: Loop, b: Loop) -> Loop:
        while a is not b:
            if self.depth[a] >= self.depth[b]:
                a = self.parent[a] if a is not None else None
            else:
                b = self.parent[b] if b is not None else None
        return a

    def _count_registers(self) -> dict[UOp, int]:
        """About how many values are alive while an item is computed (Sethi and Ullman's number)."""
        hunger: dict[UOp, int] = {}
        for node in self.nodes:
            most = 0 if node.op in _FREE else 1
            own = [hunger[s] for s in node.src]
            if len(own) > 1:
                own.sort(reverse=True)
                own = [h + i for i, h in enumerate(own[:4])]
            hunger[node] = max(most, *own) if own else most
        return hunger

    def items(self) -> list[UOp]:
        """All nodes in order."""
        result: list[UOp] = []
        self._emit(self.sink, None, result, set())
        return result

    def _emit(self, root: UOp, level: Loop, result: list[UOp], done: set[UOp]) -> None:
        """Append *root* and all that it needs at *level*, innermost needs first."""
        stack: list[UOp | None] = [root]
        opened: list[UOp] = []
        all_needs, hunger = self.needs, self.hunger.__getitem__
        while stack:
            item = stack.pop()
            if item is None:  # all needs of the item that was opened last have been emitted
                item = opened.pop()
                done.add(item)
                if item.op is _END:
                    self._append(item, result, done)
                else:
                    result.append(item)
            elif item not in done:
                needs = [n for n in all_needs[item] if n not in done]
                opened.append(item)
                stack.append(None)
                # the hungriest first, in the order of use where equal; the stack reverses
                if len(needs) > 1:
                    needs.reverse()
                    needs.sort(key=hunger)
                stack += needs

    def _append(self, item: UOp, result: list[UOp], done: set[UOp]) -> None:
        body, axis = item.src
        result.append(axis)
        if self._is_within(self.place[body], axis):
            self._emit(self._lift(body, self.place[body], axis), axis, result, done)
        result.append(item)


def _storage(access: UOp) -> UOp:
    """What a LOAD or a STORE is about; an AFTER that only names loops waits for nothing."""
    storage = access.src[0].src[0]
    while storage.op is Ops.AFTER and all(s.op is Ops.RANGE for s in storage.src[1:]):
        storage = storage.src[0]
    return storage


_END, _RANGE = Ops.END, Ops.RANGE
_FREE = (Ops.CONST, Ops.PARAM, Ops.DEFINE, Ops.SPECIAL, Ops.RANGE, Ops.VARIABLE)
