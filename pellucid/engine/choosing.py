"""Who chooses the actions of a kernel: its maker, the user's saved lists, a search, the heuristic.

    CALL(SINK(…, KernelInfo()), …)   ->   CALL(SINK(…, KernelInfo(actions=…)), …)

A kernel that asks for actions already keeps them. Else a list in `Options.actions` with its key is
taken; else, where `Options.beam` is above 0, the result of a search. What is left without actions
is left to the heuristic.
"""

from __future__ import annotations

from dataclasses import replace

from pellucid.core import observe
from pellucid.core.options import current_options
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
        if saved is not None:
            if observe.watching:
                observe.decision("saved actions", ast, f"the list of kernel {key} is taken")
            return saved
    if not options.beam:
        return None
    from pellucid.engine.beam import searched  # few programs need it

    report = searched(ast, device)
    return None if report is None else report.actions
