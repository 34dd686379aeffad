"""Which iterations may write an element twice: those of parts of a loop that overlap.

    y[min(o * 4, 6) + i] = x[min(o * 4, 6) + i]     o over 3, i over 4: parts 0-3, 4-7 and 6-9

Elements 6 and 7 are written in two turns of o. That is no race where both write the same value,
one thread does both, and the turns belong to parts that start at different places. Anything else
is one: two turns that start at one place, two threads, two values, or two nests of loops.

The action `overlap` makes such loops; the least of two places is how they are known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pellucid.ir.arg import AxisKind
from pellucid.ir.bounds import bounds
from pellucid.ir.interpret.memory import Memory
from pellucid.ir.interpret.values import Array, to_storage
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_PARALLEL = (AxisKind.THREAD, AxisKind.GLOBAL, AxisKind.LOCAL)


def starts_of(store: UOp) -> list[UOp]:
    """Where the parts start that a STORE writes: the lesser of two places, one of which moves.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.arg import ParamArg
    >>> y, o = UOp(Ops.PARAM, dtypes.int32, (), ParamArg(0, 10)), UOp.range(3, 0)
    >>> place = y.index((o * 4).minimum(6) + UOp.range(4, 1))
    >>> len(starts_of(place.store(UOp.const(dtypes.int32, 1))))
    1
    """
    return [n for n in store.src[0].src[1].toposort() if n.op is Ops.MIN and n.ranges]


def threads_of(store: UOp) -> list[UOp]:
    """The RANGEs whose turns run side by side, of all that a STORE depends on."""
    return [r for r in store.ranges if r.arg.kind in _PARALLEL]


class Parts:
    """What one nest of loops has written to one memory, part by part.

    others: which elements are taken by what ran before the nest.
    """

    def __init__(self, memory: Memory, others: Array) -> None:
        self.memory, self.others = memory, others.copy()
        self.written = np.zeros(others.size, np.bool_)
        self.threads = np.zeros(others.size, np.int64)
        self.pairs = np.zeros(0, np.int64)

    def problem(self, at: Array, part: Array, thread: Array) -> tuple[int, str] | None:
        """Note that elements *at* were written, by which part and thread each; what is wrong.

        The element and the problem are given, or None.
        """
        count = int(part.max(initial=0)) + 1
        pairs, times = np.unique(at * count + part, return_counts=True)
        known = pairs[np.isin(pairs, self.pairs)]
        for found in (at[self.others[at]], pairs[times > 1] // count, known // count):
            if found.size:
                return int(found[0]), "is written by two iterations"
        order = np.argsort(at, kind="stable")
        same = (at[order][1:] == at[order][:-1]) & (thread[order][1:] != thread[order][:-1])
        before = self.written[at] & (self.threads[at] != thread)
        for found in (at[order][1:][same], at[before]):
            if found.size:
                return int(found[0]), "is written by two threads"
        self.threads[at] = thread
        self.pairs = np.concatenate([self.pairs, pairs])
        return None

    def value_problem(self, at: Array, wanted: Array, before: Array) -> tuple[int, str] | None:
        """Say which element got two values: *before* is what memory held before this write."""
        lost = at[_differs(self.memory.raw[at], to_storage(self.memory.dtype.scalar, wanted))]
        changed = np.flatnonzero(self.written & _differs(before, self.memory.raw))
        self.written[at] = True
        found = (*lost[:1], *changed[:1])
        return (int(found[0]), "is written with two values") if found else None


def code_of(nodes: list[UOp], value: Callable[[UOp], Array]) -> Array:
    """One number for the values of several nodes, another one for other values."""
    code = np.zeros(1, np.int64)
    for node in nodes:
        low, high = bounds(node).min, bounds(node).max
        code = code * (high - low + 1) + (value(node).astype(np.int64) - low)
    return code


def _differs(left: Array, right: Array) -> Array:
    """Where two arrays do not hold the same; NaN is NaN."""
    return np.asarray((left != right) & ((left == left) | (right == right)))
