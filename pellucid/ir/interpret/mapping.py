"""Which input elements each output element reads.

    y[i] = x[2 * i] + x[2 * i + 1]      ->      y[0]: {x[0], x[1]}    y[1]: {x[2], x[3]}

Two kernels that compute the same thing have the same mapping, whatever has been done to their
loops, lanes and gates: that is the check of validity in architecture.md, section 6. A WHERE
reads what decides and the branch that is taken; an element that is not touched, because its
gate or its validity is false, is not read. A value that was read twice counts once. Where an
index depends on data, the data comes from *buffers*.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingOf
from typing import Any

import numpy as np

from pellucid.core.errors import InterpretError
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.interpret.kernels import body_of, launch_points
from pellucid.ir.interpret.machine import Machine, read_early
from pellucid.ir.interpret.memory import Address, Memory, Visitor
from pellucid.ir.interpret.structure import Loop, structure
from pellucid.ir.interpret.values import Array, quiet, storage_dtype
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes

Element = tuple[int, int]
Mapping = dict[Element, frozenset[Element]]
_Reads = list[frozenset[Element]]
_NOTHING: frozenset[Element] = frozenset()


def value_mapping(
    root: UOp,
    buffers: Sequence[Array] | None = None,
    variables: MappingOf[str, int] | None = None,
) -> Mapping:
    """For each (slot, element) that a kernel writes, the elements that it reads for it.

    For small kernels, in any form from LOOP to LINEAR; kernels with barriers have no mapping.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.arg import KernelInfo, ParamArg
    >>> i = UOp.range(2, 0)
    >>> y, x = (UOp(Ops.PARAM, dtypes.int8, (), ParamArg(slot, 2)) for slot in (0, 1))
    >>> sink = UOp.sink(y.index(i).store(x.index(i * -1 + 1)).end(i), arg=KernelInfo())
    >>> for output, inputs in value_mapping(sink).items():
    ...     print(output, sorted(inputs))
    (0, 0) [(1, 1)]
    (0, 1) [(1, 0)]
    """
    root = body_of(root)
    nodes = all_nodes(root.src)
    params = {n.arg.slot: n for n in nodes if n.op is Ops.PARAM}
    memories: dict[UOp, Memory] = {}
    for slot, node in params.items():
        given = None if buffers is None else buffers[slot].copy()
        array = np.zeros(node.arg.size, storage_dtype(node.dtype)) if given is None else given
        memories[node] = Memory.over(f"parameter {slot}", node.dtype, array, node.arg.size)
    contents: dict[str, _Reads] = {
        m.name: [frozenset({(n.arg.slot, i)}) for i in range(n.arg.size)]
        for n, m in memories.items()
    }
    written: Mapping = {}
    items = structure(root)
    with quiet():
        for point in _points(nodes, variables or {}):
            own = {
                n: Memory.new(f"storage {n.arg.id}", n.dtype, n.arg.size)
                for n in nodes
                if n.op is Ops.DEFINE
            }
            contents.update({m.name: [_NOTHING] * m.raw.size for m in own.values()})
            visitor = Visitor(0, 0, 0)
            early = read_early(nodes)
            machine = _Tracer(memories | own, variables or {}, point, visitor, early)
            machine.contents, machine.written = contents, written
            for barrier in machine.run(items):
                raise InterpretError("mapping", "a kernel with barriers has none", node=barrier)
    return dict(sorted(written.items()))


def _points(nodes: list[UOp], variables: MappingOf[str, int]) -> Iterator[dict[str, int]]:
    for group in launch_points(nodes, variables, is_local=False):
        for item in launch_points(nodes, variables, is_local=True):
            yield group | item


class _Tracer(Machine):
    """A machine that knows, for each lane of each value, the elements that went into it."""

    contents: dict[str, _Reads]
    written: Mapping
    reads: dict[UOp, _Reads]

    def __init__(
        self,
        shared: MappingOf[UOp, Memory],
        variables: MappingOf[str, int],
        specials: MappingOf[str, int],
        visitor: Visitor,
        early: frozenset[UOp],
    ) -> None:
        super().__init__(shared, variables, specials, visitor, early)
        self.reads = {}
        self.turns: list[list[_Reads]] = []

    def reads_of(self, node: UOp) -> _Reads:
        """What went into each lane of a source."""
        found = self.reads.get(node)
        return [_NOTHING] * node.dtype.lanes if found is None else found

    def step(self, node: UOp) -> None:
        super().step(node)
        if node.op is Ops.INDEX:
            if node in self.read_early:
                self.reads[node] = self.address_reads(node, None, [])
        elif node.op is Ops.LOAD:
            gate = self.value(node.src[2]) if len(node.src) > 2 else None
            extra = [self.reads_of(s) for s in node.src[2:]]
            taken = self.address_reads(node.src[0], gate, extra)
            if gate is not None:
                other = self.reads_of(node.src[1])
                fresh = np.broadcast_to(gate, (len(taken),))
                for lane in range(len(taken)):
                    taken[lane] |= _NOTHING if fresh[lane] else other[lane % len(other)]
            self.reads[node] = taken
        elif node.op is Ops.STORE:
            self.trace_store(node)
        elif node.op is Ops.WHERE:
            self.reads[node] = self.trace_where(node)
        elif node.op is Ops.STACK:
            self.reads[node] = list(itertools.chain(*map(self.reads_of, node.src)))
        elif node.op is Ops.LANE:
            chosen = node.arg if isinstance(node.arg, tuple) else (node.arg,)
            self.reads[node] = [self.reads_of(node.src[0])[lane] for lane in chosen]
        elif node.op is Ops.MMA:
            self.reads[node] = self.trace_matrices(node)
        elif node.op is Ops.AFTER:
            self.reads[node] = self.reads_of(node.src[0])
        elif node.op.is_elementwise or node.op in (Ops.SPLAT, Ops.PAIR):
            self.reads[node] = self.joined([self.reads_of(s) for s in node.src], node.dtype.lanes)

    def joined(self, sources: list[_Reads], lanes: int) -> _Reads:
        """Lane by lane, all that went into *sources*."""
        return [
            _NOTHING.union(*(reads[lane % len(reads)] for reads in sources))
            for lane in range(lanes)
        ]

    def trace_matrices(self, node: UOp) -> _Reads:
        """A lane of the sum: a row of the left matrix and a column of the right one."""
        unit = MATRIX_UNITS[node.arg]
        operands = (self.joined([self.reads_of(s)], s.dtype.lanes) for s in node.src)
        left, right, total = operands
        sizes = (range(unit.rows), range(unit.columns), range(unit.depth))
        for i, j, k in itertools.product(*sizes):
            lane = i * unit.columns + j
            total[lane] |= left[unit.left_lane(i, k)] | right[unit.right_lane(k, j)]
        return total

    def trace_where(self, node: UOp) -> _Reads:
        chosen = np.broadcast_to(self.value(node.src[0]), (node.dtype.lanes,))
        decides, *branches = (self.joined([self.reads_of(s)], node.dtype.lanes) for s in node.src)
        return [
            decides[lane] | branches[0 if chosen[lane] else 1][lane]
            for lane in range(node.dtype.lanes)
        ]

    def address_reads(self, node: UOp, gate: Array | None, extra: list[_Reads]) -> _Reads:
        """What goes into a read: the elements, what their addresses and validity come from."""
        address: Address = self.values[node]
        lanes = node.dtype.lanes
        index = np.broadcast_to(address.index, (lanes,))
        mask = address.masked(gate)
        open_lanes = np.broadcast_to(True if mask is None else mask, (lanes,))
        contents = self.contents[address.memory.name]
        decides = self.joined([*map(self.reads_of, address.node.src[1:]), *extra], lanes)
        return [
            decides[lane] | (contents[int(index[lane])] if open_lanes[lane] else _NOTHING)
            for lane in range(lanes)
        ]

    def trace_store(self, node: UOp) -> None:
        address: Address = self.values[node.src[0]]
        lanes = node.src[0].dtype.lanes
        gate = self.value(node.src[2]) if len(node.src) > 2 else None
        mask = address.masked(gate)
        open_lanes = np.broadcast_to(True if mask is None else mask, (lanes,))
        index = np.broadcast_to(address.index, (lanes,))
        decides = [*address.node.src[1:], *node.src[1:]]
        value = self.joined([self.reads_of(s) for s in decides], lanes)
        for lane in np.flatnonzero(open_lanes):
            position = int(index[lane])
            self.contents[address.memory.name][position] = value[lane]
            if address.memory.name.startswith("parameter"):
                slot = int(address.memory.name.split()[1])
                self.written[slot, position] = value[lane]

    def part(self, node: UOp) -> Any:
        self.turns[-1].append(self.reads_of(node.src[0]))
        return super().part(node)

    def run_loop(self, loop: Loop) -> Iterator[UOp]:
        self.turns.append([])
        yield from super().run_loop(loop)
        self.turns.pop()

    def reduce(self, node: UOp, parts: list[Array]) -> None:
        super().reduce(node, parts)
        self.reads[node] = self.joined(self.turns[-1], node.dtype.lanes)
