"""Save which actions kernels were optimised by, to ask for them again, or for changed ones.

    text = actions_of(x @ w)                  kernel 3f9c2a11d04be7aa  # r_64_4_4_16_64
                                              Action('lanes', 1, 16)
                                              …
    with Context(actions=text):
        (x @ w).realize()                     no heuristic, no search: these actions

    pellucid explain train.py --save-actions plans.txt
    PELLUCID_ACTIONS=plans.txt python train.py

A list belongs to one kernel, which its key names: the content of the kernel as the schedule made
it. An action of a list that is not legal there ends compilation with an ActionError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.engine.choosing import with_chosen_actions
from pellucid.ir.arg import KernelInfo
from pellucid.ir.uop import UOp
from pellucid.opt.saved import Actions, actions_to_text, kernel_key
from pellucid.pipeline import KERNEL_PIPELINE, renderer_for, run_stages
from pellucid.tools.kernels import kernels_of

if TYPE_CHECKING:
    from pellucid.frontend import Tensor

_NAMES = [stage.name for stage in KERNEL_PIPELINE]
_UNTIL_CHOSEN = KERNEL_PIPELINE[: _NAMES.index("apply_actions") + 1]


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
