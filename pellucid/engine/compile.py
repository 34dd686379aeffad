"""Compile a schedule: every kernel becomes a PROGRAM.

    LINEAR(CALL(SINK, buffers…), …)   ->   LINEAR(CALL(PROGRAM, buffers…), …)

Equal kernels are one node, so each distinct one is compiled once; the caches in memory and on
disk stand
behind `pipeline.to_program`. When it takes long and a terminal is attached, progress is shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pellucid.core import observe
from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError
from pellucid.core.options import current_options
from pellucid.engine import promise
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_PATIENCE_SECONDS: Final = 0.7
"""How long a compilation may take before its progress is shown."""


def compile_linear(linear: UOp) -> UOp:
    """Compile each distinct kernel of a schedule once.

    Errors: CompileError naming the kernel and, when tracing is on, the line of the program it came
    from; nothing has run then.
    """
    kernels = _kernels_by_device(linear)
    if observe.watching:
        observe.decision("schedule", linear, f"{len(kernels)} kernels to compile")
    programs: dict[tuple[UOp, str], UOp] = {}
    with _progress(len(kernels)) as advance:
        for name in dict.fromkeys(device for _, device in kernels):
            calls_by_kernel = {k: call for (k, device), call in kernels.items() if device == name}
            for kernel, program in _compiled(calls_by_kernel, name, advance).items():
                programs[kernel, name] = program
    calls = [_with_program(call, programs) for call in linear.src]
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
def _progress(total: int) -> Iterator[Any]:
    """Report each finished step to observers, and on a terminal once the work has taken a while."""
    start, done = time.perf_counter(), 0
    bar: list[Any] = []
    wanted = current_options().progress
    is_shown = wanted == "on" or (wanted == "auto" and sys.stderr.isatty())

    def advance() -> None:
        nonlocal done
        done += 1
        if observe.watching:
            observe.progress("compile", done, total)
        if (
            is_shown
            and not bar
            and done < total
            and time.perf_counter() - start > _PATIENCE_SECONDS
        ):
            bar.extend(_start_bar(total))
        if bar:
            bar[0].update(bar[1], completed=done)

    try:
        yield advance
    finally:
        if bar:
            bar[0].stop()


def _start_bar(total: int) -> Sequence[Any]:
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(console=Console(stderr=True), transient=True)
    progress.start()
    return progress, progress.add_task("compiling kernels", total=total)
