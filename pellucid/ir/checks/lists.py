"""What form LINEAR promises of the order of a program's list.

    loops_nest(LINEAR(RANGE, SINK))  ->  "RANGE is never closed"

All of it is said of the LINEAR.
"""

from __future__ import annotations

from pellucid.ir.checks import Message
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def each_source_comes_first(node: UOp) -> Message:
    """In a list, each item comes after its sources, and once."""
    if node.op is not Ops.LINEAR:
        return None
    seen: set[UOp] = set()
    for place, item in enumerate(node.src):
        missing = next((s for s in item.src if s not in seen), None)
        if missing is not None:
            return f"item {place} ({item.op.name}) comes before its source {missing.op.name}"
        if item in seen:
            return f"item {place} ({item.op.name}) is listed twice"
        seen.add(item)
    return None


def loops_nest(node: UOp) -> Message:
    """Each RANGE is closed by its END and each IF by its ENDIF, innermost first."""
    if node.op is not Ops.LINEAR:
        return None
    open_blocks: list[UOp] = []
    for place, item in enumerate(node.src):
        if item.op in (Ops.RANGE, Ops.IF):
            open_blocks.append(item)
        elif item.op in (Ops.END, Ops.ENDIF):
            closed = set(item.src[1:] if item.op is Ops.END else item.src)
            if not closed or set(open_blocks[-len(closed) :]) != closed:
                return f"item {place} ({item.op.name}) does not close the innermost block"
            del open_blocks[-len(closed) :]
    return f"{open_blocks[-1].op.name} is never closed" if open_blocks else None


def values_stay_in_their_loop(node: UOp) -> Message:
    """An item stands inside the loops of the RANGEs that it depends on."""
    if node.op is not Ops.LINEAR:
        return None
    open_ranges: set[UOp] = set()
    for place, item in enumerate(node.src):
        needed = {r for s in item.src for r in s.ranges}
        outside = needed - open_ranges
        if outside:
            names = ", ".join(sorted(f"i{r.arg.id}" for r in outside))
            return f"item {place} ({item.op.name}) stands outside of the loop of {names}"
        if item.op is Ops.RANGE:
            open_ranges.add(item)
        elif item.op is Ops.END:
            open_ranges -= set(item.src[1:])
    return None


def sink_is_last(node: UOp) -> Message:
    """The last item of a program's list is its SINK, the only one."""
    if node.op is not Ops.LINEAR:
        return None
    sinks = [place for place, item in enumerate(node.src) if item.op is Ops.SINK]
    return None if sinks == [len(node.src) - 1] else "SINK is not the last item"
