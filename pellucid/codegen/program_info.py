"""Read from a lowered kernel what launching it needs: `ProgramInfo`.

program_info(sink, target).reads        slots of the params that are read
program_info(sink, target).num_threads  how many thread indices to launch
"""

from __future__ import annotations

import math

from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.arg import AddrSpace, ProgramInfo
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp


def program_info(sink: UOp, target: Target) -> ProgramInfo:
    """Derive the facts of a program from its lowered SINK."""
    nodes = sink.toposort()
    params = {n.arg.slot: n for n in nodes if n.op is Ops.PARAM}
    slots = range(max(params, default=-1) + 1)
    threads = [bounds(n).max + 1 for n in nodes if n.op is Ops.SPECIAL and n.arg.name == "thread"]
    variables = sorted({n.arg for n in nodes if n.op is Ops.VARIABLE}, key=lambda v: v.name)
    times = _run_counts(nodes)
    return ProgramInfo(
        name=sink.arg.name,
        num_threads=max(threads, default=1),
        reads=_slots(nodes, Ops.LOAD),
        writes=_slots(nodes, Ops.STORE),
        param_sizes=tuple(params[s].arg.size if s in params else 0 for s in slots),
        param_dtypes=tuple(params[s].dtype.name if s in params else "void" for s in slots),
        variables=tuple(variables),
        scratch_bytes=_scratch_bytes(nodes),
        flops=sum(_flops(n) * times[n] for n in nodes if n.op in _FLOPS) * max(threads, default=1),
        bytes=sum(_bytes(n) * times[n] for n in nodes if n.op in _ACCESSES)
        * max(threads, default=1),
        applied=sink.arg.applied,
        units=tuple(sorted({n.arg for n in nodes if n.op is Ops.MMA})),
        unit_ops=sum(_unit_ops(n) * times[n] for n in nodes if n.op is Ops.MMA)
        * max(threads, default=1),
    )


def _slots(nodes: list[UOp], op: Op) -> tuple[int, ...]:
    storages = {_storage(n.src[0]) for n in nodes if n.op is op}
    return tuple(sorted(s.arg.slot for s in storages if s.op is Ops.PARAM))


def _storage(node: UOp) -> UOp:
    while node.op is Ops.INDEX or node.op is Ops.AFTER:
        node = node.src[0]
    return node


def _scratch_bytes(nodes: list[UOp]) -> int:
    defines = [n for n in nodes if n.op is Ops.DEFINE and n.arg.space is AddrSpace.LOCAL]
    return sum(-(-n.dtype.itemsize * n.arg.size // 64) * 64 for n in defines)


def _run_counts(nodes: list[UOp]) -> dict[UOp, int]:
    """How often each node is computed: the product of the sizes of its loops."""
    counts: dict[tuple[UOp, ...], int] = {}
    times: dict[UOp, int] = {}
    for node in nodes:
        ranges = node.ranges
        count = counts.get(ranges)
        if count is None:
            count = counts[ranges] = math.prod(max(0, bounds(r).max + 1) for r in ranges)
        times[node] = count
    return times


def _unit_ops(node: UOp) -> int:
    """Multiplications and additions of integers by a matrix unit; of floats, they are flops."""
    return 0 if node.dtype.is_float else 2 * MATRIX_UNITS[node.arg].products


def _flops(node: UOp) -> int:
    if node.op is Ops.MMA:
        return 2 * MATRIX_UNITS[node.arg].products if node.dtype.is_float else 0
    return node.dtype.lanes * _FLOPS[node.op] if node.dtype.is_float else 0


_FLOPS = {
    op: 2 if op is Ops.MULADD else 1
    for op in Ops.all()
    if op is Ops.MMA or (op.is_elementwise and op not in (Ops.CAST, Ops.BITCAST, Ops.WHERE))
}
_ACCESSES = (Ops.LOAD, Ops.STORE)


def _bytes(node: UOp) -> int:
    if node.op is Ops.LOAD and _storage(node.src[0]).op is Ops.PARAM:
        return node.dtype.itemsize
    if node.op is Ops.STORE and _storage(node.src[0]).op is Ops.PARAM:
        return node.src[1].dtype.itemsize
    return 0
