"""Compile a schedule: every kernel becomes a PROGRAM.

    LINEAR(CALL(SINK, buffers…), …)   ->   LINEAR(CALL(PROGRAM, buffers…), …)

Equal kernels are one node, so each distinct one is compiled once; the caches in memory and on disk
stand behind `pipeline.to_program`. When it takes long and a terminal is attached, progress is
shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pellucid.core import observe
from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError
from pellucid.engine import promise
from pellucid.engine.choosing import with_chosen_actions
from pellucid.engine.progress import progress
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def compile_linear(linear: UOp) -> UOp:
    """Compile each distinct kernel of a schedule once.

    Errors: CompileError naming the kernel and, when tracing is on, the line of the program it came
    from; nothing has run then.
    """
    chosen = with_chosen_actions(linear)
    kernels = _kernels_by_device(chosen)
    if observe.watching:
        observe.decision("schedule", chosen, f"{len(kernels)} kernels to compile")
    programs: dict[tuple[UOp, str], UOp] = {}
    with _counted(len(kernels)) as advance:
        for name in dict.fromkeys(device for _, device in kernels):
            calls_by_kernel = {k: call for (k, device), call in kernels.items() if device == name}
            for kernel, program in _compiled(calls_by_kernel, name, advance).items():
                programs[kernel, name] = program
    calls = [_with_program(call, programs) for call in chosen.src]
    compiled = UOp(Ops.LINEAR, dtypes.void, tuple(calls), linear.arg)
    promise.hand_on(linear, compiled)
    return compiled


def _kernels_by_device(linear: UOp) -> dict[tuple[UOp, str], UOp]:
    """The distinct kernels that are not compiled yet, each with a CALL that runs it."""
    found: dict[tuple[UOp, str], UOp] = {}
    for call in linear.src:
        if call.src[0].op is Ops.SINK:
            found.setdefault((call.src[0], device_of(call)), call)
    return found


def device_of(call: UOp) -> str:
    """The device on which a CALL runs: that of its first buffer."""
    return str(call.src[1].arg.device)


def _compiled(calls: Mapping[UOp, UOp], device: str, advance: Callable[[], None]) -> dict[UOp, UOp]:
    """Compile the kernels of one device, each with a CALL that runs it, as one module."""
    # here, not above: building graphs should not wait until the whole compiler is read
    from pellucid.pipeline import renderer_for, to_programs

    try:
        programs = to_programs(list(calls), renderer_for(device), advance)
    except CompileError as error:
        for kernel, call in calls.items():
            is_it = kernel.arg is None or kernel.arg.name == error.kernel or len(calls) == 1
            if is_it and call.arg is not None and call.arg.lines:
                problem = error.problem.partition(": ")[2] or error.problem
                raise CompileError(
                    problem,
                    stage=error.stage,
                    kernel=error.kernel,
                    source=error.source,
                    at=call.arg.lines[0],
                ) from error
        raise
    return dict(zip(calls, programs, strict=True))


def _with_program(call: UOp, programs: dict[tuple[UOp, str], UOp]) -> UOp:
    if call.src[0].op is not Ops.SINK:
        return call
    return call.with_sources((programs[call.src[0], device_of(call)], *call.src[1:]))


@contextmanager
def _counted(total: int) -> Iterator[Callable[[], None]]:
    """Give a function that counts and reports one step more."""
    done = itertools.count(1)
    with progress("compile", "compiling kernels", total) as advance:
        yield lambda: advance(next(done))
