"""Save which actions kernels were optimised by, to ask for them again, or for changed ones.

    text = actions_of(x @ w)                  kernel 3f9c2a11d04be7aa  # r_64_4_4_16_64
                                              Action('lanes', 1, 16)
                                              …
    with Context(actions=text):
        (x @ w).realize()                     no heuristic, no search: these actions

    pellucid explain train.py --save-actions plans.txt
    PELLUCID_ACTIONS=plans.txt python train.py

`steps_of` gives the same lists with the axes that each action finds: what its numbers mean.

A list belongs to one kernel, which its key names: the content of the kernel as the schedule made
it. An action of a list that is not legal there ends compilation with an ActionError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.engine.choosing import with_chosen_actions
from pellucid.ir.arg import KernelInfo
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import describe_axes
from pellucid.opt.saved import Actions, actions_to_text, kernel_key
from pellucid.pipeline import KERNEL_PIPELINE, renderer_for, run_stages
from pellucid.tools.kernels import kernels_of

if TYPE_CHECKING:
    from pellucid.frontend import Tensor

_NAMES = [stage.name for stage in KERNEL_PIPELINE]
_UNTIL_CHOSEN = KERNEL_PIPELINE[: _NAMES.index("apply_actions") + 1]
_BEFORE = _UNTIL_CHOSEN[:-1]


def actions_of(tensor: Tensor) -> str:
    """Write the actions of the kernels that would compute *tensor*, without computing it.

    >>> from pellucid.core.options import Context
    >>> text = actions_of(Tensor([1.0, 2.0]) * 3)
    >>> with Context(actions=text):
    ...     (Tensor([1.0, 2.0]) * 3).tolist()
    [3.0, 6.0]
    """
    return actions_text([tensor.schedule_linear()], tensor.device)


def actions_text(linears: Sequence[UOp], device: str) -> str:
    """Write the actions of the kernels of schedules, each kernel once."""
    plans: dict[str, Actions] = {}
    names: dict[str, str] = {}
    for kernel in kernels_of([with_chosen_actions(linear, device) for linear in linears]):
        info: KernelInfo = run_stages(_UNTIL_CHOSEN, kernel.ast, renderer_for(device).target).arg
        key = kernel_key(kernel.ast)
        plans[key], names[key] = info.applied, info.name
    return actions_to_text(plans, names)


def steps_of(tensor: Tensor) -> str:
    """Write the actions of the kernels that would compute *tensor*, and the axes that each finds.

    >>> from pellucid.core.options import Context
    >>> text = steps_of(Tensor([1.0, 2.0]) * 3)
    >>> text.splitlines()[1]
    '    axis 0: output, over 2, loop'
    """
    lines: list[str] = []
    linear = with_chosen_actions(tensor.schedule_linear(), tensor.device)
    target = renderer_for(tensor.device).target
    for kernel in kernels_of([linear]):
        info: KernelInfo = run_stages(_UNTIL_CHOSEN, kernel.ast, target).arg
        lines.append(f"kernel {kernel_key(kernel.ast)}  # {info.name}")
        sink = run_stages(_BEFORE, kernel.ast, target)
        lines += _axes_lines(sink)
        for action in info.applied:
            sink = apply_action(sink, action, target)
            lines += [repr(action), *_axes_lines(sink)]
    return "".join(f"{line}\n" for line in lines)


def _axes_lines(sink: UOp) -> list[str]:
    return [f"    {axis}" for axis in describe_axes(sink)]
