"""Run a compiled schedule: call each program with its buffers, in order.

    CALL(PROGRAM, BUFFER 4, BUFFER 1)  ->  load the BINARY once; program(memory of 4, memory of 1)

Flags of CHECKs are read after the last kernel: a bad index raises, and no tensor has changed its
meaning.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping

from pellucid.core.errors import DTypeError, ExecutionError, IndexOutOfRangeError
from pellucid.core.options import current_options
from pellucid.engine import promise
from pellucid.engine.compile import compile_linear, device_of
from pellucid.engine.memory import block_of, buffer_of, int64_in
from pellucid.ir.arg import CheckArg, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.runtime.allocator import Block
from pellucid.runtime.device import Device
from pellucid.runtime.program import Program

Variables = Mapping[str, int]

engine_lock = threading.RLock()
"""Held while a schedule is made and run, and while storages change because of it."""

# A child has only the thread that forked: the lock must not be with another one at that moment.
os.register_at_fork(
    before=engine_lock.acquire,
    after_in_parent=engine_lock.release,
    after_in_child=engine_lock.release,
)

_loaded: weakref.WeakKeyDictionary[UOp, dict[str, Program]] = weakref.WeakKeyDictionary()


def run_linear(linear: UOp, var_vals: Variables | None = None) -> None:
    """Run a schedule, compiling first what is not compiled yet.

    Tensors whose `schedule_linear` made it are in memory afterwards.
    Errors: IndexOutOfRangeError for a bad index in a tensor; ExecutionError for a variable without
    a value.
    """
    with engine_lock:
        if any(call.src[0].op is Ops.SINK for call in linear.src):
            linear = compile_linear(linear)
        for call in linear.src:
            run_call(call, var_vals or {})
        promised = promise.of(linear)
        if promised is not None:
            raise_failed_checks(promised.checks)
            promised.keep()


def run_call(call: UOp, var_vals: Variables) -> None:
    """Run one CALL."""
    callee, *nodes = call.src
    buffers = [buffer_of(node) for node in nodes]
    if callee.op is Ops.COPY:
        if nodes[0].arg.device != "NULL" and nodes[1].arg.device != "NULL":
            buffers[0].copy_from_buffer(buffers[1])
        return
    info: ProgramInfo = callee.arg
    program = loaded_program(callee, device_of(call))
    values = [_value_of(variable.name, var_vals) for variable in info.variables]
    debug = current_options().debug
    start = time.perf_counter()
    program(buffers, values, info.num_threads, info.scratch_bytes)
    if debug:
        _report(call, time.perf_counter() - start, debug)


def loaded_program(program: UOp, device: str) -> Program:
    """A PROGRAM in memory, loaded once for each device."""
    by_device = _loaded.setdefault(program, {})
    if device not in by_device:
        by_device[device] = Device[device].load(program.src[3].arg, program.arg.name)
    return by_device[device]


def _value_of(name: str, var_vals: Variables) -> int:
    if name not in var_vals:
        raise ExecutionError(
            f"the variable {name} has no value", help=f"give one, as in var_vals={{{name!r}: 4}}"
        )
    return var_vals[name]


def raise_failed_checks(checks: Iterable[tuple[UOp | Block, CheckArg]]) -> None:
    """Raise the error of the first check whose flag is set: a BUFFER, or the block of one."""
    for flag, check in checks:
        if isinstance(flag, UOp):
            if flag.arg.device == "NULL":
                continue
            flag = block_of(flag)
        position = int64_in(flag)
        if position >= 0:
            raise_failed(check, position)


def raise_failed(check: CheckArg, position: int) -> None:
    """Raise the error of a check that failed at a *position*."""
    where = check.line or "here"
    if check.op_name.startswith("pow"):
        raise DTypeError(
            "an integer tensor cannot be raised to a negative integer power",
            rows=[("at element", position)],
            help="cast it to float first",
            at=where,
        )
    if check.op_name == "nll_loss":
        raise IndexOutOfRangeError(
            f"nll_loss: a class is outside of axis {check.axis}, which has size {check.size}",
            rows=[("first bad class", f"element {position} of the target")],
            expected=f"0 to {check.size - 1}, or ignore_index",
            at=where,
        )
    raise IndexOutOfRangeError(
        f"{check.op_name}: an index is outside of axis {check.axis}, which has size {check.size}",
        rows=[("first bad index", f"element {position} of the index tensor")],
        expected=f"{-check.size} to {check.size - 1}",
        at=where,
    )


def _report(call: UOp, seconds: float, debug: int) -> None:
    """Say what ran: 1 the kernel, 2 sizes and times too, 3 the optimisation, 4 the source."""
    program = call.src[0]
    info: ProgramInfo = program.arg
    text = f"{info.name}"
    if debug >= 2:
        moved = sum(buffer_of(node).nbytes for node in call.src[1:])
        rate = info.flops / max(seconds, 1e-9) / 1e9
        text += f"  {seconds * 1e6:9.1f} us  {moved / 1e6:8.3f} MB  {rate:7.2f} GFLOPS"
    if debug >= 3:
        text += f"  {' '.join(map(repr, info.applied))}"
    if debug >= 4:
        text += f"\n{program.src[2].arg}"
    sys.stderr.write(text + "\n")
