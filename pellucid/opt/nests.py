"""Plan the parts of a kernel that computes a value in blocks, each part as a kernel of its own.

LOOP form -> LOOP form: the action `each`. A kernel that fills blocks of local memory and uses them
has several nests of loops inside of its outermost ones:

    fill = END(STORE(s[i * 512 + j], sum of q k), i, j)                       in each (b, h)
    END(STORE(out[b, h, i, d], sum of AFTER(s, fill) v), b, h, i, d)

Each nest is taken out: the loops around it become VARIABLEs, memory that other nests have filled
becomes a PARAM. It is then a kernel like any other, and takes actions like any other. What comes of
it is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pellucid.core.target import Target
from pellucid.ir.arg import (
    Action,
    AxisKind,
    DefineArg,
    Hint,
    KernelInfo,
    ParamArg,
    RangeArg,
    VariableArg,
)
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id
from pellucid.ir.uop import UOp
from pellucid.opt.legal import buffer_uses, next_define_id, refuse, require_free_order

Planner = Callable[[int, UOp], UOp]
"""What makes of a nest, by its number, a better one."""

_FIRST_SLOT = 1000


def has_blocks(sink: UOp) -> bool:
    """True when a kernel fills local memory, and the rest of it stands in the same outer loops."""
    return _outer_loops(sink) is not None


def _fills(sink: UOp) -> list[UOp]:
    """Each AFTER that stands for a block that has been filled, those that it needs first."""
    return list(buffer_uses(sink))


def _outer_loops(sink: UOp) -> tuple[UOp, ...] | None:
    """The loops around all blocks."""
    effect = sink.src[0] if len(sink.src) == 1 else None
    fills = _fills(sink)
    if not fills or effect is None or effect.op is not Ops.END:
        return None
    around = {r for fill in fills for r in fill.ranges}
    outer = effect.src[1 : 1 + len(around)]
    is_plain = all(len(f.src) == 2 and f.src[0].op is Ops.DEFINE for f in fills)
    kinds = {r.arg.kind for r in outer}
    good = is_plain and set(outer) == around and kinds <= {AxisKind.LOOP}
    inner = effect.src[1 + len(outer) :] or effect.src[0].op is Ops.END
    return outer if good and inner else None


def with_each(sink: UOp, planner: Planner) -> UOp:
    """The kernel, with each nest as *planner* makes it."""
    outer = _outer_loops(sink)
    assert outer is not None
    (end,) = sink.src
    parts = _Parts(sink, outer)
    for number, fill in enumerate(_fills(sink)):
        storage, effect = fill.src
        parts.filled[fill] = storage.after(parts.planned(number, effect, planner))
    inner = end.src[0].end(*end.src[1 + len(outer) :])
    main = parts.planned(len(parts.filled), inner, planner)
    info = replace(sink.arg, hints=(*sink.arg.hints, *parts.hints))
    return sink.with_sources((main.end(*outer),)).replace(arg=info)


class _Parts:
    """Nests taken out and put back: what stands for what."""

    def __init__(self, sink: UOp, outer: Sequence[UOp]) -> None:
        self.number = next_range_id(sink)
        self.define = next_define_id(sink)
        self.filled: dict[UOp, UOp] = {}
        self.hints: list[Hint] = []
        self.away: dict[UOp, UOp] = {}
        for place, axis in enumerate(outer):
            arg = VariableArg(f"outer{place}", 0, int(axis.src[0].arg) - 1)
            self.away[axis] = UOp(Ops.VARIABLE, axis.dtype, (), arg)
        for storage in sink.toposort():
            if storage.op is Ops.DEFINE:
                slot = _FIRST_SLOT + 2 * storage.arg.id
                self.away[storage] = _parameter(storage, slot)

    def planned(self, number: int, effect: UOp, planner: Planner) -> UOp:
        """One nest, after the planner has seen it."""
        away = dict(self.away)
        for fill in self.filled:
            away[fill] = _parameter(fill.src[0], _FIRST_SLOT + 1 + 2 * fill.src[0].arg.id)
        kernel = UOp.sink(effect.substitute(away), arg=KernelInfo())
        known = set(kernel.toposort())
        kernel = planner(number, kernel)
        self.hints += [h for h in kernel.arg.hints if h.slot < _FIRST_SLOT]
        back = {self.away[n]: n for n in self.away}
        back |= {away[fill]: new for fill, new in self.filled.items()}
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


def _parameter(storage: UOp, slot: int) -> UOp:
    return UOp(Ops.PARAM, storage.dtype, (), ParamArg(slot, storage.arg.size))


def each(sink: UOp, action: Action, axis: UOp, target: Target, apply: Callable[..., UOp]) -> UOp:
    """Apply to each nest the actions that the action carries for it."""
    require_free_order(sink, action)
    if not has_blocks(sink):
        raise refuse(action, "the kernel has no blocks in local memory")
    lists: tuple[Any, ...] = action.extra

    def planner(number: int, kernel: UOp) -> UOp:
        for step in lists[number] if number < len(lists) else ():
            kernel = apply(kernel, step, target)
        return kernel

    return with_each(sink, planner)
