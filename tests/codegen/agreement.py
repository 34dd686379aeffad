"""Hold a plan against the kernel that it is for: the interpreter runs both."""

from __future__ import annotations

import numpy as np

from pellucid.core.target import Target
from pellucid.ir.interpret import run_kernel
from pellucid.ir.uop import UOp
from pellucid.opt.plans.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import lowered, with_actions


def assert_plan_keeps_values(sink: UOp, target: Target) -> None:
    """What is chosen for a kernel computes what the kernel does, whole numbers exactly."""
    buffers = kernels.buffers_for(sink)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(lowered(with_actions(sink, *choose(sink, target).actions), target), got)
    for want, came in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(came, want)
