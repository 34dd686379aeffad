"""Plan each nest of loops of a kernel that fills local memory as a kernel of its own.

LOOP form -> LOOP form: the action `each`. A kernel that makes rows or blocks in local memory and
uses them has several nests of loops inside of its outer ones:

    fill = END(STORE(s[j], sum of q k), j)                                    in each (b, h, i)
    END(END(STORE(out[b, h, i, d], sum of AFTER(s, fill) v), d), b, h, i)

Each innermost nest is taken out: the loops around it become VARIABLEs, local memory becomes a
PARAM. It is then a kernel like any other, and takes actions like any other. What comes of it is put
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pellucid.core.target import Target
from pellucid.ir.arg import Action, DefineArg, Hint, KernelInfo, ParamArg, RangeArg, VariableArg
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import (
    buffer_of,
    is_local,
    next_define_id,
    refuse,
    require_free_order,
)

Planner = Callable[[int, UOp], UOp]
"""What makes of a nest, by its number, a better one."""

_FIRST_SLOT = 1000


def has_nests(sink: UOp) -> bool:
    """True when a kernel fills local memory in some of its loops and uses it in others."""
    return any(is_local(node) for node in sink.toposort() if node.op is Ops.DEFINE)


def with_each(sink: UOp, planner: Planner) -> UOp:
    """The kernel, with each nest as *planner* makes it; those that others need come first."""
    nests = _Nests(sink, planner)
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        made = node.over(done)
        done[node] = nests.planned_inside(made) if _is_nest(node) else made
    info = replace(sink.arg, hints=(*sink.arg.hints, *nests.hints.values()))
    return done[sink].replace(arg=info)


def _is_nest(node: UOp) -> bool:
    """True for an END that holds no other END."""
    body = node.src[0] if node.op is Ops.END else node
    parts = body.src if body.op is Ops.GROUP else (body,)
    return node.op is Ops.END and all(part.op is Ops.STORE for part in parts)


class _Nests:
    """Nests taken out and put back: which numbers are free, and how many nests there were."""

    def __init__(self, sink: UOp, planner: Planner) -> None:
        self.planner = planner
        self.count = 0
        self.hints: dict[tuple[str, int], Hint] = {}
        self.number = next_range_id(sink)
        self.define = next_define_id(sink)

    def planned_inside(self, end: UOp) -> UOp:
        """One nest, but for those of its loops that local memory is filled in: they stay outside.

        (A sum that waits in memory is added to in each turn of such a loop, one after the other.)
        """
        filled = {r for after in _memory_of(end) for r in after.ranges}
        ranges = end.src[1:]
        outer = next((at for at, r in enumerate(ranges) if r not in filled), len(ranges))
        if not outer:
            return end if filled.intersection(ranges) else self.planned(end)
        if outer == len(ranges) or filled.intersection(ranges[outer:]):
            return end
        return self.planned(end.src[0].end(*ranges[outer:])).end(*ranges[:outer])

    def planned(self, end: UOp) -> UOp:
        """One nest, after the planner has seen it."""
        away = _taken_out(end)
        kernel = UOp.sink(end.substitute(away), arg=KernelInfo())
        known = set(kernel.toposort())
        kernel = self.planner(self.count, kernel)
        self.count += 1
        for hint in kernel.arg.hints:
            if hint.slot < _FIRST_SLOT:
                self.hints.setdefault((hint.kind, hint.slot), hint)
        back = {stands: node for node, stands in away.items()}
        for node in kernel.toposort():
            if node.op is Ops.RANGE and node not in known:
                back[node] = node.replace(arg=RangeArg(self.number, node.arg.kind))
                self.number += 1
            elif node.op is Ops.DEFINE and node not in known:
                arg: DefineArg = replace(node.arg, id=self.define)
                back[node] = node.replace(arg=arg)
                self.define += 1
        (effect,) = kernel.src
        return effect.substitute(back)


def _taken_out(end: UOp) -> dict[UOp, UOp]:
    """What stands for the loops around a nest, and for local memory in it."""
    away: dict[UOp, UOp] = {}
    for axis in end.ranges:
        arg = VariableArg(f"outer{axis.arg.id}", 0, bounds(axis).max)
        away[axis] = UOp(Ops.VARIABLE, axis.dtype, (), arg)
    slot = _FIRST_SLOT
    for node in _memory_of(end):
        storage = buffer_of(node)
        away[node] = UOp(Ops.PARAM, node.dtype, (), ParamArg(slot, storage.arg.size))
        slot += 1
    return away


def _memory_of(end: UOp) -> list[UOp]:
    """The local memory that a nest touches, as it stands in it."""
    nodes = end.toposort(lambda n: n.op is not Ops.AFTER)
    return [n for n in nodes if n.op in (Ops.AFTER, Ops.DEFINE)]


def each(sink: UOp, action: Action, axis: UOp, target: Target, apply: Callable[..., UOp]) -> UOp:
    """Apply to each nest the actions that the action carries for it."""
    require_free_order(sink, action)
    if not has_nests(sink):
        raise refuse(action, "the kernel has no local memory")
    lists: tuple[Any, ...] = action.extra

    def planner(number: int, kernel: UOp) -> UOp:
        for step in lists[number] if number < len(lists) else ():
            kernel = apply(kernel, step, target)
        return kernel

    return with_each(sink, planner)
