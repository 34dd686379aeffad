"""What form SCHEDULE promises of its calls, and form PROGRAM of its parts.

    schedule_lists_calls(LINEAR of a BUFFER)  ->  "a schedule lists BUFFER"

The kernels that are called have a form of their own, and are checked by themselves.
"""

from __future__ import annotations

from pellucid.ir.checks import Message, names_of
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def schedule_lists_calls(node: UOp) -> Message:
    """The LINEAR of a schedule holds CALLs only."""
    if node.op is Ops.LINEAR:
        return next(
            (f"a schedule lists {i.op.name}" for i in node.src if i.op is not Ops.CALL), None
        )
    return None


def calls_name_storage(node: UOp) -> Message:
    """A CALL runs a SINK, a PROGRAM or a COPY on BUFFERs and PARAMs."""
    if node.op is not Ops.CALL:
        return None
    callee, *buffers = node.src
    if callee.op not in (Ops.SINK, Ops.PROGRAM, Ops.COPY):
        return f"CALL of {callee.op.name}"
    bad = next((b for b in buffers if b.op not in (Ops.BUFFER, Ops.PARAM)), None)
    return None if bad is None else f"CALL on {bad.op.name}, which is not storage"


def calls_fit_their_kernel(node: UOp) -> Message:
    """The buffers of a CALL are those that the kernel's PARAMs describe: number, type and size."""
    if node.op is not Ops.CALL or node.src[0].op not in (Ops.SINK, Ops.PROGRAM):
        return None
    buffers = node.src[1:]
    for param in node.src[0].toposort():
        if param.op is not Ops.PARAM:
            continue
        slot = param.arg.slot
        if slot >= len(buffers):
            return f"CALL on {len(buffers)} buffers of a kernel with parameter {slot}"
        given = buffers[slot]
        same_type = given.dtype is param.dtype or node.src[0].op is Ops.PROGRAM
        if not same_type or given.arg.size < param.arg.size:
            what = f"{given.arg.size} {given.dtype}"
            return f"parameter {slot} is {param.arg.size} {param.dtype}; its buffer has {what}"
    return None


def program_has_its_parts(node: UOp) -> Message:
    """A PROGRAM holds SINK, LINEAR, SOURCE and BINARY, in this order, as far as it has got."""
    if node.op is not Ops.PROGRAM:
        return None
    parts = tuple(s.op for s in node.src)
    whole = (Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY)
    good = parts and parts == whole[: len(parts)]
    return None if good else f"PROGRAM holds {names_of(p.name for p in parts) or 'nothing'}"
