"""In which loops of a kernel a value is computed, before the kernel exists.

A value is computed in the innermost loop that it depends on, so in a kernel over (i, j)

    x[i, j] - REDUCE(x[i, k], k)      the REDUCE runs once for each i, though j wants it again
    at (i,)    ->  executions = size of i
    at (i, k)  ->  k is a loop of a reduction that stands in i: executions = size of i * size of k

The ranges of the output nest in the order in which the draft lists them; those of a reduction stand
in all that the reduction depends on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft
from pellucid.schedule.views import Use

Around = Mapping[UOp, tuple[UOp, ...]]
"""For each RANGE of a reduction, those that its loop stands in."""


def ranges_of(use: Use) -> tuple[UOp, ...]:
    """The RANGEs that an index and its condition depend on."""
    index, valid = use
    found = (r for part in (*index, valid) if part is not None for r in part.ranges)
    return tuple(dict.fromkeys(found))


def loops_around(kernel: Draft, use: Use, around: Around) -> set[UOp]:
    """All loops of *kernel* that a value at *use* is computed in."""
    found: set[UOp] = set()
    stack = list(ranges_of(use))
    while stack:
        axis = stack.pop()
        if axis not in found:
            found.add(axis)
            stack.extend(around.get(axis, ()))
    outer = [place for place, axis in enumerate(kernel.ranges) if axis in found]
    return found.union(kernel.ranges[: outer[-1]] if outer else ())


def executions(kernel: Draft, use: Use, around: Around) -> int:
    """How often *kernel* computes a value at *use*."""
    return math.prod(int(axis.src[0].arg) for axis in loops_around(kernel, use, around))


def outermost(kernel: Draft, use: Use, around: Around) -> frozenset[UOp]:
    """The ranges of the output that a value at *use* is computed in."""
    return frozenset(loops_around(kernel, use, around).intersection(kernel.ranges))
