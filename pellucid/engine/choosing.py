"""Who chooses the actions of a kernel: its maker, the user's saved lists, a search, the heuristic.

    CALL(SINK(…, KernelInfo()), …)   ->   CALL(SINK(…, KernelInfo(actions=…)), …)

A kernel that asks for actions already keeps them. Else a list in `Options.actions` with its key is
taken; else, where `Options.beam` is above 0, the result of a search. What is left without actions
is left to the heuristic.

A key belongs to one kernel, and changes with the program. So a list that no kernel took is worth a
warning: at the end of a block whose lists were all left, and of the process for each other one.
"""

from __future__ import annotations

import atexit
import warnings
from dataclasses import field, replace

from pellucid.core import observe
from pellucid.core.options import current_options, when_left
from pellucid.core.records import dataclass
from pellucid.ir.arg import KernelInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.saved import Actions, kernel_key, plans_in


def with_chosen_actions(linear: UOp, device: str | None = None) -> UOp:
    """Let the kernels of a schedule ask for the actions that the options give them.

    device: where the kernels run; None: each where its first buffer is.
    Errors: ParseError for saved lists that cannot be read.
    """
    options = current_options()
    if not (options.beam or options.actions):
        return linear
    known: dict[tuple[UOp, str], UOp] = {}
    calls = []
    for call in linear.src:
        kernel = call.src[0]
        if kernel.op is Ops.SINK:
            where = device or str(call.src[1].arg.device)
            if (kernel, where) not in known:
                known[kernel, where] = with_actions(kernel, where)
            call = call.with_sources((known[kernel, where], *call.src[1:]))
        calls.append(call)
    return linear.with_sources(tuple(calls))


def with_actions(ast: UOp, device: str) -> UOp:
    """A kernel, asking for the actions that a list or a search has for it."""
    info: KernelInfo = ast.arg
    if info.actions is not None:
        return ast
    actions = _chosen(ast, device)
    return ast if actions is None else ast.replace(arg=replace(info, actions=actions))


def _chosen(ast: UOp, device: str) -> Actions | None:
    options = current_options()
    if options.actions:
        key = kernel_key(ast)
        saved = plans_in(options.actions).get(key)
        use = _uses.setdefault(options.actions, _Use())
        (use.others if saved is None else use.taken)[key] = None
        if saved is not None:
            if observe.watching:
                observe.decision("saved actions", ast, f"the list of kernel {key} is taken")
            return saved
    if not options.beam:
        return None
    from pellucid.engine.beam import searched  # few programs need it

    report = searched(ast, device)
    return None if report is None else report.actions


# ---- lists that no kernel took -----------------------------------------------------------------

SHOWN = 4
"""How many keys a warning names."""


@dataclass
class _Use:
    """The keys of the kernels that met a text of lists: those it has a list for, and others."""

    taken: dict[str, None] = field(default_factory=dict)
    others: dict[str, None] = field(default_factory=dict)
    is_told: bool = False


_uses: dict[str, _Use] = {}


def _at_the_end_of_a_block(text: object) -> None:
    """Warn where kernels met the lists of a Context, and took none."""
    use = _uses.get(str(text))
    if use is not None and not use.taken:
        _warn(str(text), use, stacklevel=4)


def _at_the_end_of_the_process() -> None:
    """Warn of each list that was never taken."""
    for text, use in _uses.items():
        _warn(text, use, stacklevel=2)


def _warn(text: str, use: _Use, stacklevel: int) -> None:
    unused = [key for key in plans_in(text) if key not in use.taken]
    if unused and not use.is_told:
        use.is_told = True
        warnings.warn(unused_text(unused, list(use.others)), stacklevel=stacklevel)


def unused_text(unused: list[str], others: list[str]) -> str:
    """What is wrong with lists that no kernel took, and what to try.

    >>> unused_text(["00ff"], []).partition(";")[0]
    'saved actions for kernel 00ff were not used: no kernel has that key'
    """
    met = f" (kernels without a list: {_listed(others)})" if others else ""
    no_kernel = "no kernel has that key" if len(unused) == 1 else "no kernels have those keys"
    return (
        f"saved actions for kernel {_listed(unused)} were not used: {no_kernel}{met}; keys change "
        "with the program: `pellucid explain PROGRAM --save-actions FILE` writes those of now"
    )


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more


when_left["actions"] = _at_the_end_of_a_block
atexit.register(_at_the_end_of_the_process)
