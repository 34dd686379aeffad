"""Schedules that ran before, found by the structure of what is asked for.

    request   structure of the graph (engine/structure.py), device, options that change code
    known     a tape that lacks only addresses (engine/prepared.py), and what its results mean

Realising an expression for the second time reads its graph once, writes a few addresses and makes
one native call. What needs more thought goes the long way through `schedule` and `compile_linear`,
which then leaves an entry here: observers, verification, several devices, writes whose indices have
to be checked first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pellucid.core import observe
from pellucid.core.options import code_key, current_options
from pellucid.engine import promise
from pellucid.engine.memory import block_of, node_on
from pellucid.engine.prepared import Prepared, prepare
from pellucid.engine.run import raise_failed_checks
from pellucid.engine.storage import Kind, Storage, stored_buffer
from pellucid.engine.structure import Structure
from pellucid.ir import origin
from pellucid.ir.arg import CheckArg
from pellucid.ir.uop import UOp
from pellucid.runtime.allocator import Block

MOST_KNOWN: Final = 1024


class Request(NamedTuple):
    """What is asked for: storages, what they mean, and the key under which that is known."""

    storages: Sequence[Storage]
    nodes: Sequence[UOp]
    structure: Structure
    key: tuple[Any, ...]


class Known(NamedTuple):
    """How to answer a request."""

    prepared: Prepared
    results: tuple[int, ...]
    """For each storage: a buffer that is made, or -1 - a buffer that is given (done in place)."""
    kinds: tuple[Kind | None, ...]
    """For each storage: what the buffer is that is made for it."""
    checks: tuple[tuple[int, CheckArg], ...]
    """Flags, by the number of the buffer that is made."""
    named: tuple[int, ...]
    """Made buffers that need a node at once: those that several storages share."""


_known: OrderedDict[tuple[Any, ...], Known] = OrderedDict()


def request_for(
    storages: Sequence[Storage],
    structure: Structure,
    pending: Callable[[], frozenset[UOp]],
) -> Request | None:
    """Say what is asked for, if it may be answered from here. Called with the engine's lock.

    structure: that of the storages' nodes.  pending: finds the written buffers that must keep their
    content, where there are any.
    """
    options = current_options()
    if options.debug or options.verify or options.trace or observe.watching or origin.recording:
        return None
    device = storages[0].device
    if len(storages) > 1 and any(storage.device != device for storage in storages):
        return None
    kept: frozenset[int] = frozenset()
    if structure.has_writes:
        if structure.has_checks:  # bad indices have to be found before anything is written
            return None
        kept = frozenset([structure.buffers.index(buffer) for buffer in pending()])
    nodes = [storage.uop for storage in storages]
    return Request(storages, nodes, structure, (structure.key, device, kept, code_key(options)))


def answer(request: Request) -> bool:
    """Bring the storages of a request into memory, if a schedule for it is known."""
    known = _known.get(request.key)
    if known is None:
        return False
    if len(_known) > MOST_KNOWN // 2:  # before that, nobody asks which was used last
        _known.move_to_end(request.key)
    _run(known, request)
    return True


def learn(request: Request, compiled: UOp, promised: promise.Promise) -> bool:
    """Keep a compiled schedule, and run it; False for one that has to be run call by call."""
    given = request.structure.buffers
    after = {id(change.storage()): stored_buffer(change.after) for change in promised.changes}
    stored = [after.get(id(storage)) for storage in request.storages]
    flags = [node for node, _ in promised.checks]
    made = [n for n in dict.fromkeys([*stored, *flags]) if n is not None and n not in given]
    numbers: Mapping[UOp, int] = {node: number for number, node in enumerate(made)}
    numbers = {**numbers, **{node: -1 - number for number, node in enumerate(given)}}
    if None in stored:
        return False
    prepared = prepare(compiled.src, given, made)
    if prepared is None:
        return False
    results = tuple([numbers[node] for node in stored if node is not None])
    checks = tuple([(numbers[node], check) for node, check in promised.checks])
    shared = [n for n in dict.fromkeys(results) if n >= 0 and results.count(n) > 1]
    kinds = tuple(
        [
            Kind(prepared.made[number].like, node.known_shape) if number >= 0 else None
            for number, node in zip(results, request.nodes, strict=True)
        ]
    )
    known = Known(prepared, results, kinds, checks, tuple(shared))
    _known[request.key] = known
    if len(_known) > MOST_KNOWN:
        _known.popitem(last=False)
    _run(known, request)
    return True


def forget() -> None:
    """Know nothing (for tests, and for measuring a first call)."""
    _known.clear()


def _run(known: Known, request: Request) -> None:
    given = request.structure.buffers
    made = known.prepared.run([block_of(buffer) for buffer in given])
    if known.checks:
        raise_failed_checks((made[number], check) for number, check in known.checks)
    named = _named(known, made) if known.named else {}
    for storage, node, number, kind in zip(
        request.storages, request.nodes, known.results, known.kinds, strict=True
    ):
        buffer = named.get(number) if kind is not None else given[-1 - number]
        if buffer is not None:
            after = buffer.reshape(node.known_shape)
            promise.replace(storage, node, after, is_in_place=kind is None)
        elif kind is not None:
            promise.settle(storage, node, given, made[number], kind)


def _named(known: Known, made: Sequence[Block]) -> dict[int, UOp]:
    """Make the nodes that are needed at once."""
    likes = known.prepared.made
    return {number: node_on(made[number], likes[number].like) for number in known.named}
