"""Running a kernel on numpy arrays, in any form from LOOP to LINEAR, and running a schedule.

    run_kernel(SINK(END(STORE(INDEX(PARAM 0, i), INDEX(PARAM 1, i) * 2), i)), [out, [1, 2, 3]])
    out == [2, 4, 6]

A kernel in LOOP or VECTOR form whose iterations do not touch each other's outputs is computed
over all its ranges at once (loops.py); every other kernel is walked, one node at a time
(machine.py). A launch has work-groups of work-items: indices named `local…` number the items of
a group, all others (`group…`, `thread`) number the groups. The items of a group run side by
side from barrier to barrier.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import numpy as np

from pellucid.core.errors import ExecutionError, InterpretError
from pellucid.ir.arg import AddrSpace
from pellucid.ir.interpret.loops import can_run_at_once, run_at_once
from pellucid.ir.interpret.machine import Machine, read_early
from pellucid.ir.interpret.memory import Memory, Visitor
from pellucid.ir.interpret.structure import Item, storage_of, structure
from pellucid.ir.interpret.values import Array, quiet, storage_dtype
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes

Order = Literal["forward", "reverse", "random"]
Point = dict[str, int]


def run_kernel(
    root: UOp,
    buffers: Sequence[Array],
    variables: Mapping[str, int] | None = None,
    *,
    order: Order = "forward",
    seed: int = 0,
    poison: bool = False,
    at_once: bool = True,
) -> None:
    """Run a SINK, a program's LINEAR, or a PROGRAM on *buffers*, by slot, in place.

    order: in which order work-groups and items run; the result of a right kernel does not depend
        on it, and a race is found in any order.
    poison: reading an element of an output that the kernel has not written yet is an error.
    at_once: use whole arrays where the kernel allows it.

    Errors: InterpretError for an access out of bounds, a race, a read of uninitialised memory.
    """
    with quiet():
        _Launch(root, buffers, variables or {}, poison).run(order, random.Random(seed), at_once)


interpret = run_kernel


class _Launch:
    """One run of one kernel."""

    def __init__(
        self, root: UOp, buffers: Sequence[Array], variables: Mapping[str, int], poison: bool
    ) -> None:
        self.root = body_of(root)
        self.variables = variables
        self.nodes = _nodes_of(self.root)
        self.params = {n: _param(n, buffers) for n in self.nodes if n.op is Ops.PARAM}
        self.defines = [n for n in self.nodes if n.op is Ops.DEFINE]
        if poison:
            for node in {storage_of(n) for n in self.nodes if n.op is Ops.STORE}:
                if node.op is Ops.PARAM:
                    self.params[node].forget_contents()

    def run(self, order: Order, numbers: random.Random, at_once: bool) -> None:
        if at_once and can_run_at_once(self.root, self.nodes):
            run_at_once(self.root, self.params, self.variables)
            return
        items = structure(self.root)
        groups, locals_ = (launch_points(self.nodes, self.variables, k) for k in (False, True))
        if len(groups) * len(locals_) > 1:
            for memory in self.params.values():
                memory.track_races()
        early = read_early(self.nodes)
        for group in _ordered(groups, order, numbers):
            shared = self.shared_memory(len(locals_) > 1)
            machines = []
            for item in range(len(locals_)):
                memories = {**shared, **self.own_memory()}
                specials = {**groups[group], **locals_[item]}
                visitor = Visitor(group, 0, item)
                machines.append(Machine(memories, self.variables, specials, visitor, early))
            _run_group(machines, items, order, numbers)

    def shared_memory(self, tracked: bool) -> dict[UOp, Memory]:
        memories = dict(self.params)
        for node in self.defines:
            if node.arg.space is not AddrSpace.REG:
                memories[node] = _new_memory(node)
                if tracked:
                    memories[node].track_races()
        return memories

    def own_memory(self) -> dict[UOp, Memory]:
        return {n: _new_memory(n) for n in self.defines if n.arg.space is AddrSpace.REG}


def launch_points(nodes: list[UOp], variables: Mapping[str, int], is_local: bool) -> list[Point]:
    """All values of the launch indices of one kind, in order: groups, or items of a group."""
    sizes: dict[str, int] = {}
    for node in nodes:
        if node.op is Ops.SPECIAL and node.arg.name.startswith("local") == is_local:
            sizes[node.arg.name] = _size_of(node, variables)
    names = sorted(sizes)
    counts = [range(sizes[name]) for name in names]
    return [dict(zip(names, point, strict=True)) for point in itertools.product(*counts)]


def _size_of(special: UOp, variables: Mapping[str, int]) -> int:
    machine = Machine({}, variables, {}, Visitor(0, 0, 0), frozenset())
    for node in special.src[0].toposort():
        machine.step(node)
    return int(machine.value(special.src[0])[0])


def body_of(root: UOp) -> UOp:
    """What there is to run: a SINK or a LINEAR, itself or inside of a PROGRAM."""
    if root.op is not Ops.PROGRAM:
        return root
    linears = [s for s in root.src if s.op is Ops.LINEAR]
    return linears[0] if linears else root.src[0]


def _nodes_of(root: UOp) -> list[UOp]:
    return all_nodes(root.src)


def _param(node: UOp, buffers: Sequence[Array]) -> Memory:
    if node.arg.slot >= len(buffers):
        problem = f"parameter {node.arg.slot} has no buffer"
        raise ExecutionError(
            problem, expected=f"at least {node.arg.slot + 1} buffers", came=len(buffers)
        )
    name = f"parameter {node.arg.slot}"
    return Memory.over(name, node.dtype, buffers[node.arg.slot], node.arg.size)


def _new_memory(node: UOp) -> Memory:
    return Memory.new(f"{node.arg.space.value} storage {node.arg.id}", node.dtype, node.arg.size)


def _ordered(points: Sequence[Point], order: Order, numbers: random.Random) -> list[int]:
    places = list(range(len(points)))
    if order == "reverse":
        places.reverse()
    elif order == "random":
        numbers.shuffle(places)
    return places


def _run_group(
    machines: list[Machine], items: list[Item], order: Order, numbers: random.Random
) -> None:
    """Run the items of one group, all up to the next barrier, until all are done."""
    running: dict[int, Iterator[UOp]] = {i: m.run(items) for i, m in enumerate(machines)}
    while running:
        arrived: dict[int, UOp] = {}
        for place in _ordered([{}] * len(machines), order, numbers):
            barrier = next(running[place], None)
            if barrier is not None:
                arrived[place] = barrier
        if arrived and (len(arrived) < len(machines) or len(set(arrived.values())) > 1):
            _refuse_divergence(arrived, len(machines))
        if not arrived:
            return


def _refuse_divergence(arrived: Mapping[int, UOp], count: int) -> None:
    node = next(iter(arrived.values()))
    if len(arrived) < count:
        problem = f"{len(arrived)} of {count} items of a group arrive at a barrier"
    else:
        problem = "the items of a group wait at different barriers"
    raise InterpretError("divergent barrier", problem, node=node, at=None)


# ---- schedules ---------------------------------------------------------------------------------

_UNWRITTEN: Final = 0xA5


def run_schedule(
    linear: UOp, buffers: dict[UOp, Array], variables: Mapping[str, int] | None = None
) -> dict[UOp, Array]:
    """Run the CALLs of a schedule in order; *buffers* maps BUFFER nodes to storage.

    A BUFFER that is missing is added, full of a pattern that no right program reads.
    Gives *buffers* back.
    """
    for call in linear.src:
        callee, *nodes = call.src
        for node in nodes:
            if node not in buffers:
                buffers[node] = _unwritten(node)
        arrays = [buffers[n] for n in nodes]
        if callee.op is Ops.COPY:
            arrays[0].reshape(-1)[:] = arrays[1].reshape(-1)
        else:
            run_kernel(callee, arrays, variables)
    return buffers


def _unwritten(node: UOp) -> Array:
    dtype = storage_dtype(node.dtype)
    filled = np.full(node.arg.size * dtype.itemsize, _UNWRITTEN, np.uint8)
    return filled.view(dtype)
