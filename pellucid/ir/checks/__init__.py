"""What the forms promise, one function a promise.

A check looks at one node and gives None, or the sentence that says what is wrong with it.

    every       sources, types and literals of any node        args       what may be its arg
    tensors     shapes and movement
    schedules   calls, and the parts of a PROGRAM
    kernels     effects, loops and reductions of one kernel    accesses   its indices and memory
    lowered     lanes, widths, only what the target has        lists      the order of a program

Checks about a whole kernel look at its SINK, those about a program's order at its LINEAR. form.py
says which checks belong to which form, verify.py runs them, and the docs print the docstrings.

    kernels.reduce_names_a_range(REDUCE(x))  ->  "REDUCE without a range"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pellucid.core.target import Target
from pellucid.ir.uop import UOp

Message = str | None
Check = Callable[[UOp], Message]
TargetCheck = Callable[[UOp, Target], Message]


def names_of(things: Iterable[object]) -> str:
    """The names of *things*, for a sentence."""
    return ", ".join(map(str, things))
