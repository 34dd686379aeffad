"""Count what compiling costs: `python -m tests.perf.compilation` prints JSON, for the tests.

    {"matmul": {"tried": 312, "fired": 20, "nodes": 1044}, …, "chain of 1000 adds": …}

tried: nodes that the rules of a set were tried on.  fired: rules that fired.  nodes: nodes made.
lines: of kernels as large as models have them, the lines of LLVM IR: code generation takes 25 to
50 us for each.
A process of its own counts, so that no node that an earlier test left behind hides any work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np

from pellucid import Tensor
from pellucid.codegen.linearize import linearize
from pellucid.codegen.program_info import program_info
from pellucid.ir import uop
from pellucid.ir.law import Statistics
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render import LLVMRenderer
from tests.codegen import kernels
from tests.codegen.kernels import KERNELS
from tests.codegen.lowering import TARGET, lowered
from tests.opt.plans.test_channels import convolution

Counts = dict[str, int]

LARGE: dict[str, Callable[[], UOp]] = {
    "large product": lambda: kernels.matmul(128, 768, 2304),
    "large product and step": lambda: kernels.matmul_and_step(512, 128, 784),
    "large product, transposed": lambda: kernels.matmul_transposed(128, 784, 512),
    "convolution 3 x 3": lambda: convolution(64, 64, 3, 56),
    "convolution 3 x 3, short lines": lambda: convolution(256, 256, 3, 14),
    "convolution 1 x 1, steps of two": lambda: convolution(128, 64, 1, 28, 2),
    "convolution of pictures": lambda: convolution(64, 32, 3, 16, batch=64),
}
"""Kernels as models have them, whose lines are counted too."""


class CountedReference(uop._Reference):
    """What the table of nodes holds: one is made for each new node."""

    __slots__ = ()
    made = 0

    def __init__(self, *given: object) -> None:
        CountedReference.made += 1


def counted(function: Callable[[], object]) -> Counts:
    """Count what one call of *function* does."""
    before = Statistics.tried, Statistics.fired, CountedReference.made
    function()
    after = Statistics.tried, Statistics.fired, CountedReference.made
    names = ("tried", "fired", "nodes")
    return {name: b - a for name, a, b in zip(names, before, after, strict=True)}


def lines_of(make: Callable[[], UOp]) -> int:
    """How many lines of LLVM IR a kernel comes to."""
    low = lowered(make(), TARGET)
    return LLVMRenderer(TARGET).render(linearize(low), program_info(low, TARGET)).count("\n")


def chain(length: int) -> None:
    """Schedule, lower and order a chain of sums."""
    first = Tensor(np.ones(4, np.float32))
    x = first
    for _ in range(length):
        x = x + first
    for call in x.schedule_linear().src:
        if call.src[0].op is Ops.SINK:
            linearize(lowered(call.src[0]))


def main() -> None:
    """Count for the kernels of tests/codegen, and for chains that double."""
    uop._Reference = CountedReference  # type: ignore[misc]
    found = {name: counted(lambda make=make: lowered(make())) for name, make in KERNELS.items()}
    for name, make in LARGE.items():
        found[name] = {**counted(lambda make=make: lowered(make())), "lines": lines_of(make)}
    for length in (1000, 2000, 4000):
        found[f"chain of {length} adds"] = counted(lambda length=length: chain(length))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
