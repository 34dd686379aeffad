"""One work-item: it walks a kernel in order and does what each node says.

Every value is a numpy array with one axis, the lanes. Memory comes from outside (parameters,
LOCAL tiles) or is the item's own (REG). `Machine.run` is a generator that yields at each
BARRIER, so that the caller can run the items of a work-group side by side.

    for _ in Machine(kernel, ...).run(items): ...        yields the BARRIER nodes, in order
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from pellucid.core.errors import ExecutionError, InterpretError
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.interpret.arithmetic import meaning, reduce_pairs, reduce_values
from pellucid.ir.interpret.memory import Address, Memory, Visitor, make_address
from pellucid.ir.interpret.structure import Branch, Item, Loop, values_used
from pellucid.ir.interpret.units import multiply_matrices
from pellucid.ir.interpret.values import Array, literal
from pellucid.ir.op import PAIR_OPS, Op, Ops
from pellucid.ir.uop import UOp


class Machine:
    """The state of one work-item.

    shared: memories by PARAM or DEFINE node.  specials: launch indices by name.
    """

    def __init__(
        self,
        shared: Mapping[UOp, Memory],
        variables: Mapping[str, int],
        specials: Mapping[str, int],
        visitor: Visitor,
        read_early: frozenset[UOp],
    ) -> None:
        self.shared = shared
        self.variables = variables
        self.specials = specials
        self.visitor = visitor
        self.read_early = read_early
        self.values: dict[UOp, Any] = {}
        self.early: dict[UOp, Array] = {}
        self.actions: dict[UOp, Callable[[UOp], Any]] = {}

    def run(self, items: list[Item]) -> Iterator[UOp]:
        """Do *items* in order; yield each BARRIER on arrival."""
        for item in items:
            if isinstance(item, Loop):
                yield from self.run_loop(item)
            elif isinstance(item, Branch):
                if self.value(item.node.src[0]).any():
                    yield from self.run(item.body)
            else:
                self.step(item)
                if item.op is Ops.BARRIER:
                    yield item
                    self.visitor = self.visitor._replace(phase=self.visitor.phase + 1)

    def run_loop(self, loop: Loop) -> Iterator[UOp]:
        """Run the body once for each point, first range slowest."""
        sizes = [range(int(self.value(r.src[0])[0])) for r in loop.ranges]
        is_reduce = loop.end.op is Ops.REDUCE
        parts: list[Any] = []
        for point in itertools.product(*sizes):
            for node, at in zip(loop.ranges, point, strict=True):
                self.values[node] = np.array([at], _integer(node))
            yield from self.run(loop.body)
            if is_reduce:
                parts.append(self.part(loop.end))
        if is_reduce:
            self.reduce(loop.end, parts)

    def part(self, node: UOp) -> Any:
        """What one turn gives to a REDUCE."""
        if node.arg.op in PAIR_OPS:
            return self.pair(node.src[0])
        return self.value(node.src[0])

    def pair(self, node: UOp) -> tuple[Array, Array]:
        """The value and the key of a PAIR."""
        value, key = map(self.value, node.src)
        return value, key

    def reduce(self, node: UOp, parts: list[Any]) -> None:
        """Combine what the turns gave."""
        lanes = node.dtype.lanes

        def stacked(of: UOp, turns: list[Array]) -> Array:
            full = np.stack(turns) if turns else literal(of.dtype, 0)[None][:0]
            return np.broadcast_to(full, (len(turns), lanes))

        if node.arg.op in PAIR_OPS:
            values, keys = (
                stacked(source, [part[place] for part in parts])
                for place, source in enumerate(node.src[0].src)
            )
            self.values[node] = reduce_pairs(node.arg.op, node.dtype, (values, keys), (0,))
        else:
            values = stacked(node, parts)
            self.values[node] = reduce_values(node.arg.op, node.dtype, values, (0,))

    # ---- one node ------------------------------------------------------------------------------

    def step(self, node: UOp) -> None:
        """Compute one node and remember its value."""
        action = self.actions.get(node)
        if action is None:
            action = self.actions[node] = self.action(node)
        self.values[node] = action(node)

    def action(self, node: UOp) -> Callable[[UOp], Any]:
        """What computes the node, found once."""
        if node.op.is_elementwise:
            function = meaning(node.op, node.dtype, tuple(s.dtype for s in node.src))
            if any(s.op in (Ops.INDEX, Ops.AFTER) for s in node.src):
                return lambda node: function(*map(self.value, node.src))
            values, sources = self.values, node.src
            return lambda node: function(*[values[s] for s in sources])
        method = _METHODS.get(node.op)
        if method is None:
            problem = f"{node.op.name} cannot run in a kernel"
            raise InterpretError("form", problem, node=node, at=None)
        return getattr(self, method)  # type: ignore[no-any-return]

    def value(self, node: UOp) -> Array:
        """The value of a source; an INDEX is read."""
        value = self.values[node]
        if type(value) is Address:
            early = self.early.get(node)
            return value.read(self.visitor) if early is None else early
        return value  # type: ignore[no-any-return]

    # ---- leaves --------------------------------------------------------------------------------

    def const(self, node: UOp) -> Array:
        known = self.values.get(node)
        return literal(node.dtype, node.arg) if known is None else known

    def variable(self, node: UOp) -> Array:
        arg = node.arg
        if arg.name not in self.variables:
            raise ExecutionError(f"the variable {arg.name} has no value", at=None)
        value = self.variables[arg.name]
        if not arg.min <= value <= arg.max:
            expected = f"a value from {arg.min} to {arg.max}"
            problem = f"the variable {arg.name} is out of its bounds"
            raise ExecutionError(problem, expected=expected, came=value, at=None)
        return np.array([value], _integer(node))

    def special(self, node: UOp) -> Array:
        return np.array([self.specials[node.arg.name]], _integer(node))

    def storage(self, node: UOp) -> Memory:
        return self.shared[node]

    # ---- lanes ---------------------------------------------------------------------------------

    def splat(self, node: UOp) -> Array:
        return np.broadcast_to(self.value(node.src[0]), (node.dtype.lanes,))

    def stack(self, node: UOp) -> Array:
        return np.concatenate([np.broadcast_to(self.value(s), (s.dtype.lanes,)) for s in node.src])

    def lane(self, node: UOp) -> Array:
        full = np.broadcast_to(self.value(node.src[0]), (node.src[0].dtype.lanes,))
        return np.asarray(full[[node.arg] if isinstance(node.arg, int) else list(node.arg)])

    def multiply_matrices(self, node: UOp) -> Array:
        given = (node.src[0].dtype, node.src[1].dtype)
        return multiply_matrices(MATRIX_UNITS[node.arg], given, *map(self.value, node.src))

    # ---- memory --------------------------------------------------------------------------------

    def index(self, node: UOp) -> Address:
        valid = self.value(node.src[2]) if len(node.src) > 2 else None
        memory = self.values[node.src[0]]
        if type(memory) is not Memory:
            raise InterpretError(
                "form", "INDEX into something that is not storage", node=node, at=None
            )
        address = make_address(node, memory, self.value(node.src[1]), valid)
        if node in self.read_early:
            self.early[node] = self.load_from(address, None, None)
        return address

    def load_from(self, address: Address, gate: Array | None, fallback: Array | None) -> Array:
        """Read where *gate* is true."""
        return address.read(self.visitor, gate, fallback)

    def load(self, node: UOp) -> Array:
        gated = [self.value(s) for s in node.src[1:]]
        fallback, gate = gated or (None, None)
        return self.load_from(self.values[node.src[0]], gate, fallback)

    def store(self, node: UOp) -> None:
        address: Address = self.values[node.src[0]]
        gate = self.value(node.src[2]) if len(node.src) > 2 else None
        value = self.value(node.src[1])
        address.memory.write(node, address.index, value, address.masked(gate), self.visitor)

    def first(self, node: UOp) -> Any:
        return self.values[node.src[0]]

    def nothing(self, node: UOp) -> None:
        return None

    def first_value(self, node: UOp) -> Array:
        """A REDUCE without ranges is its source, and a PAIR by itself means its value."""
        return self.value(node.src[0])


def _integer(node: UOp) -> Any:
    return np.int64 if node.dtype.is_index else np.dtype(node.dtype.scalar.name)


def read_early(nodes: list[UOp]) -> frozenset[UOp]:
    """The INDEX nodes that some other node uses as a value: they are read where they stand."""
    return frozenset(s for n in nodes for s in values_used(n) if s.op is Ops.INDEX)


_METHODS: Final[dict[Op, str]] = {
    Ops.CONST: "const",
    Ops.VARIABLE: "variable",
    Ops.SPECIAL: "special",
    Ops.PARAM: "storage",
    Ops.DEFINE: "storage",
    Ops.SPLAT: "splat",
    Ops.STACK: "stack",
    Ops.LANE: "lane",
    Ops.MMA: "multiply_matrices",
    Ops.INDEX: "index",
    Ops.LOAD: "load",
    Ops.STORE: "store",
    Ops.AFTER: "first",
    Ops.REDUCE: "first_value",
    Ops.PAIR: "first_value",
    Ops.GROUP: "nothing",
    Ops.BARRIER: "nothing",
    Ops.PREFETCH: "nothing",
    Ops.IF: "nothing",
    Ops.END: "nothing",
    Ops.SINK: "nothing",
}
