"""A schedule in the making as graphs, for people: what observers and `explain` are shown.

    insert_stages    the TENSOR graph, with a STAGE on all that is stored, and the reason
    as_linear        the calls that are cut so far, as a LINEAR over numbered PARAMs

    ADD(x, EXPAND(REDUCE(x)))
        ->  STAGE(ADD(x, EXPAND(STAGE(REDUCE(x), "… wider range …"))), "output asked for")

A STAGE in GLOBAL memory is the boundary of a kernel; one in LOCAL memory is made inside of each
kernel that uses it.
"""

from __future__ import annotations

from pellucid.core.dtype import dtypes
from pellucid.ir.arg import AddrSpace, ParamArg, StageArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Plan
from pellucid.schedule.kernels import Cut


def insert_stages(sink: UOp, plan: Plan) -> UOp:
    """Mark every value that *plan* stores by a STAGE that says why."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        fresh = node.over(done)
        draft = plan.stored.get(node)
        if draft is not None and node.op is not Ops.STAGE:
            space = AddrSpace.GLOBAL if draft in plan.drafts else AddrSpace.LOCAL
            why = StageArg(space, draft.reason)
            fresh = UOp(Ops.STAGE, node.dtype, (fresh,), why)
        done[node] = fresh
    return done[sink]


def as_linear(cut: Cut) -> UOp:
    """The calls of *cut*, where PARAMs stand for storages."""
    storages = [
        UOp(Ops.PARAM, s.dtype, (), ParamArg(number, s.size))
        for number, s in enumerate(cut.storages)
    ]
    calls = tuple(
        UOp(Ops.CALL, dtypes.void, (c.callee, *(storages[n] for n in c.storages)), c.info)
        for c in cut.calls
    )
    return UOp(Ops.LINEAR, dtypes.void, calls)
