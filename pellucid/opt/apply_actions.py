"""Apply the optimisation of a kernel: the actions it asks for, else those the heuristic chooses.

LOOP form -> LOOP form. What was applied stands in `KernelInfo.applied`, in the spelling that asks
for it again.

    before    SINK(END(STORE(y[i], …), i over 1024), arg=KernelInfo())
    after     SINK(END(STORE(y[o * 16 + l], …), o over 64, l LANES over 16),
                   arg=KernelInfo("e_64_16", applied=(Action('lanes', 0, 16),)))

A kernel without a name gets one from its kind (e: elementwise, r: with a reduction) and its sizes.
"""

from __future__ import annotations

import dataclasses

from pellucid.core.errors import ActionError
from pellucid.core.options import current_options
from pellucid.core.target import Target
from pellucid.ir.arg import KernelInfo
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action, has_reduction
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.suggest import explained

DEFAULT_NAME = KernelInfo().name
MAX_SIZES_IN_NAME = 8


def apply_actions(sink: UOp, target: Target) -> UOp:
    """Apply the actions asked for, or those chosen, and name the kernel.

    Errors: ActionError when an action that was asked for is not legal; it says what would be.
    """
    info: KernelInfo = sink.arg
    if info.actions is not None:
        actions = info.actions
        for place, action in enumerate(actions):
            try:
                sink = apply_action(sink, action, target)
            except ActionError as problem:
                raise explained(problem, sink, actions, place, target) from None
    elif current_options().optimize:
        plan = choose(sink, target)
        sink, actions = plan.sink, tuple(plan.actions)
    else:
        actions = ()
    name = kernel_name(sink) if info.name == DEFAULT_NAME else info.name
    sink = sink.replace(arg=dataclasses.replace(sink.arg, name=name, applied=actions))
    return simplify(sink) if actions else sink


def kernel_name(sink: UOp) -> str:
    """A readable name: `e_64_16` elementwise, `r_32_8` with a reduction."""
    sizes = ["n" if size is None else str(size) for size in map(size_of, axes_of(sink))]
    shown = sizes[:MAX_SIZES_IN_NAME]
    return "_".join(["r" if has_reduction(sink) else "e", *shown])
