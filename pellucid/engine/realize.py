"""Realise: turn lazy expressions into values in memory.

    storage.uop = ADD(RESHAPE(BUFFER 1), CONST)      before
    storage.uop = RESHAPE(BUFFER 2)                   after, and BUFFER 2 holds the sum

One call realises any number of expressions as one schedule, so that what they share is computed
once. Storages change only after everything has run: a failure leaves every tensor as it was. A
write to a realised buffer happens in place, unless another lazy value still reads the version
before it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np

from pellucid.core.collector import no_collection
from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError
from pellucid.core.options import current_options
from pellucid.engine import capture, history, known, promise
from pellucid.engine.compile import compile_linear
from pellucid.engine.memory import buffer_of
from pellucid.engine.promise import Change, Promise
from pellucid.engine.readers import computed_before
from pellucid.engine.run import engine_lock, raise_failed_checks, run_linear
from pellucid.engine.storage import Storage, live_nodes, stored_buffer
from pellucid.engine.structure import structure_of
from pellucid.engine.undo import take_back
from pellucid.ir import origin
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes

if TYPE_CHECKING:
    from pellucid.schedule.api import Scheduled


def schedule(
    outputs: Sequence[UOp], *, pending: frozenset[UOp] = frozenset(), device: str | None = None
) -> Scheduled:
    """Cut a graph into kernels, in order. What reads no buffer is computed on *device*."""
    # here, not above: building graphs should not wait until the whole compiler is read
    from pellucid.schedule import api

    options = current_options()
    if device is not None and device != options.device:
        options = options.with_changes(device=device)
    tracing = origin.recording_origins() if options.trace else nullcontext()
    with no_collection(), tracing:
        return api.schedule(outputs, pending=pending, options=options)


def realize(outputs: Sequence[UOp], *, pending: frozenset[UOp] = frozenset()) -> dict[UOp, UOp]:
    """Compute *outputs*; return for each the node over a BUFFER that has its value.

    *pending*: buffers that must keep their content, because others read it later.
    """
    todo = [node for node in dict.fromkeys(outputs) if stored_buffer(node) is None]
    if not todo:
        return {}
    with engine_lock:
        scheduled = schedule(todo, pending=pending)
        compiled = compile_linear(scheduled.linear)
        run_linear(compiled)
        raise_failed_checks(scheduled.checks)
        return scheduled.stored


def realize_storages(storages: Iterable[Storage]) -> None:
    """Bring the values of *storages* into memory, as one schedule."""
    if capture.listener() is not None:
        _mark_wanted(storages)
        return
    with engine_lock:
        todo = [s for s in dict.fromkeys(storages) if not s.is_realized]
        if not todo:
            return
        structure = structure_of([s.uop for s in todo])
        if structure.has_writes:
            todo += computed_before(todo, written_buffers(s.uop for s in todo))
            structure = structure_of([s.uop for s in todo])
        request = known.request_for(todo, structure, lambda: _pending_for(todo))
        if request is not None and known.answer(request):
            return
        linear = schedule_storages(todo)
        if not linear.src:
            return
        if request is not None and _learnt(request, linear):
            return
        expected = _expected(linear) if current_options().verify else {}
        run_linear(linear)
        for node, values in expected.items():
            _compare(node, values)


def _learnt(request: known.Request, linear: UOp) -> bool:
    """Run a new schedule in the way in which it will run from now on, if that is possible."""
    promised = promise.of(linear)
    compiled = compile_linear(linear)
    return promised is not None and known.learn(request, compiled, promised)


def schedule_storages(storages: Iterable[Storage]) -> UOp:
    """Make, without running it, the LINEAR that brings the values of *storages* into memory.

    What it will bring about is noted (engine/promise.py), and done by `run_linear`.
    """
    with engine_lock:
        by_device: dict[str, list[Storage]] = {}
        for storage in dict.fromkeys(storages):
            if not storage.is_realized:
                by_device.setdefault(storage.device, []).append(storage)
        whole = Promise([], ())
        calls: list[UOp] = []
        for device, todo in by_device.items():
            linear, part = _schedule_on(device, todo)
            calls += linear.src
            whole = Promise(whole.changes + part.changes, whole.checks + part.checks)
        linear = UOp(Ops.LINEAR, dtypes.void, tuple(calls))
        promise.make(linear, whole)
        if not calls:  # nothing to run: values of no elements, or plain buffers
            whole.keep()
        return linear


def _schedule_on(device: str, storages: Sequence[Storage]) -> tuple[UOp, Promise]:
    """Schedule storages of one device."""
    before = {storage: storage.uop for storage in storages}
    order = all_nodes(before.values())
    checks = [node for node in order if node.op is Ops.CHECK]
    if checks and device != "NULL" and any(node.op is Ops.WRITE for node in order):
        _check_before_writing(checks)
    written = written_buffers(before.values())
    pending = _pending(before, written)
    scheduled = schedule(list(before.values()), pending=pending, device=device)
    read = {node for node in order if node.op is Ops.BUFFER}
    changes = [_change(s, node, scheduled.stored[node], read) for s, node in before.items()]
    return scheduled.linear, Promise(changes, scheduled.checks)


def _change(storage: Storage, before: UOp, after: UOp, read: set[UOp]) -> Change:
    return Change(weakref.ref(storage), before, after, stored_buffer(after) in read)


def _mark_wanted(storages: Iterable[Storage]) -> None:
    """During a capture nothing runs: the value is computed when the captured function is."""
    heard = capture.listener()
    for storage in storages:
        is_mine = heard is not None and id(storage) in heard.made
        if (
            is_mine
            and not storage.is_realized
            and storage.uop.op not in (Ops.CONTIGUOUS, Ops.LEAF, Ops.WRITE)
        ):
            storage.uop = UOp.make(Ops.CONTIGUOUS, storage.uop)


def _check_before_writing(checks: Sequence[UOp]) -> None:
    """Find bad indices before anything is written; take back the writes that they belong to."""
    flags = [check.src[1] for check in checks]
    stored = realize(flags)
    found = [stored_buffer(stored.get(flag, flag)) for flag in flags]
    pairs = [(b, c) for b, c in zip(found, checks, strict=True) if b is not None]
    failed = {check for buffer, check in pairs if buffer_of(buffer).as_numpy()[0] >= 0}
    if failed:
        take_back(failed)
    raise_failed_checks((buffer, check.arg) for buffer, check in pairs)


def _pending_for(storages: Sequence[Storage]) -> frozenset[UOp]:
    before = {storage: storage.uop for storage in storages}
    return _pending(before, written_buffers(before.values()))


def _pending(before: dict[Storage, UOp], written: set[UOp]) -> frozenset[UOp]:
    """The written buffers that keep their content, since a lazy value or a gradient reads it."""
    if not written:
        return frozenset()
    others = [node for storage, node in live_nodes() if storage not in before]
    read = history.readers(others)
    read |= history.readers(node for node in before.values() if history.has_past(node))
    return frozenset(written & read)


def written_buffers(nodes: Iterable[UOp]) -> set[UOp]:
    """The BUFFERs that WRITEs below *nodes* would change in place."""
    found = set()
    for node in all_nodes(nodes):
        if node.op is Ops.WRITE:
            base = node.src[0]
            while base.op in (Ops.WRITE, Ops.RESHAPE, Ops.LEAF, Ops.DETACH):
                base = base.src[0]
            if base.op is Ops.BUFFER:
                found.add(base)
    return found


# ---- beside the interpreter ---------------------------------------------------------------------


def _expected(linear: UOp) -> dict[UOp, np.ndarray]:
    """What the reference interpreter finds for the values that a schedule will store."""
    from pellucid.ir.interpret import evaluate_all

    promised = promise.of(linear)
    assert promised is not None, "a schedule of storages has a promise"
    nodes = [change.before for change in promised.changes]
    buffers = {n: buffer_of(n).as_numpy().copy() for n in all_nodes(nodes) if n.op is Ops.BUFFER}
    values = evaluate_all(nodes, buffers)
    after = [change.after for change in promised.changes]
    return dict(zip(after, values, strict=True))


def _compare(node: UOp, expected: np.ndarray) -> None:
    from pellucid.ir.interpret.values import from_storage

    buffer = stored_buffer(node)
    assert buffer is not None, "a realised value stands in a buffer"
    got = from_storage(node.dtype, buffer_of(buffer).as_numpy()).reshape(expected.shape)
    if node.dtype.is_float:  # narrow floats would overflow while they are compared
        got, expected = got.astype(np.float64), expected.astype(np.float64)
    tolerance = 4096 * node.dtype.epsilon if node.dtype.is_float else 0
    if not np.allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
        worst = np.argmax(np.abs(np.nan_to_num(got - expected)))
        raise CompileError(
            f"element {worst} is {got.flat[worst]}, the interpreter finds {expected.flat[worst]}",
            stage="verify",
            kernel="schedule",
        )
