"""A captured schedule that runs again and again with other buffers.

    capture:  outputs over placeholder BUFFERs   ->  schedule, compile once
    run:      placeholders -> the caller's buffers; outputs -> new buffers; state -> its own storage

A replay never changes what an earlier one returned: outputs get new memory in each run. State, that
is storages that existed before and are written to, is updated where it is. Lazy values that still
read the state as it was are computed before it changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.core.options import current_options
from pellucid.core.records import dataclass
from pellucid.engine import history
from pellucid.engine.capture import Draw
from pellucid.engine.compile import compile_linear
from pellucid.engine.memory import buffer_of
from pellucid.engine.prepared import Prepared, prepare
from pellucid.engine.realize import realize, realize_storages, schedule, written_buffers
from pellucid.engine.run import raise_failed_checks, run_call
from pellucid.engine.storage import Kind, Storage, Version, live_nodes, stored_buffer
from pellucid.ir.arg import CallInfo, CheckArg
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp, all_nodes, new_buffer
from pellucid.runtime.allocator import Block

Finder = Callable[[], Storage | None]


class Stale(Exception):  # noqa: N818  (no error: it asks for a new capture)
    """Something that the capture relied on is gone."""


@dataclass
class State:
    """A storage that existed before the capture and is written by it."""

    find: Finder
    home: UOp
    """The BUFFER that it has, and keeps."""
    result: UOp
    """The BUFFER that holds the new value: `home` itself where the write is in place."""


@dataclass
class Replay:
    """What to run, and which of its buffers stand for what."""

    calls: tuple[UOp, ...]
    inputs: tuple[UOp, ...]
    outputs: tuple[tuple[UOp, Shape], ...]
    externals: list[tuple[Finder, UOp]]
    states: list[State]
    draws: list[Draw]
    checks: tuple[tuple[UOp, CheckArg], ...]
    has_run: bool = field(default=False)

    def __post_init__(self) -> None:
        kept = {buffer for _, buffer in self.externals} | set(self.inputs)
        made = {node for call in self.calls for node in call.src[1:]} - kept
        self.kinds: list[Kind] = []
        """For each output a BUFFER in whose place a new one comes in each run, and its shape."""
        copies = []
        for output, shape in self.outputs:
            like = output
            if output in made:
                made.remove(output)
            else:  # no kernel writes it, or it stands for an output already: it is copied
                like = new_buffer(output.arg.size, output.dtype, output.arg.device)
                copies.append(_copy(like, output))
            self.kinds.append(Kind(like, shape))
        numbers = {kind.like: number for number, kind in enumerate(self.kinds)}
        self._flags = [(node, numbers.get(node), check) for node, check in self.checks]
        copies += [_copy(s.home, s.result) for s in self.states if s.result is not s.home]
        self.calls = (*self.calls, *copies)
        self._given = (*self.inputs, *(buffer for _, buffer in self.externals))
        self._now: list[Version] = []
        """What each external storage meant in the last run."""
        self._homes: list[UOp] = []
        """For each state the BUFFER where it lives now."""
        self._written_buffers: frozenset[UOp] = frozenset()
        self._is_settled = False
        """The states have meant what stands in their homes since the last run."""
        self._written: set[Block] = set()
        self._owners: set[int] = set()
        places = {buffer: number for number, (_, buffer) in enumerate(self.externals)}
        self._home_numbers = [places[state.home] for state in self.states]
        homes = {len(self.inputs) + number for number in self._home_numbers}
        self._read_only = [n for n in range(len(self._given)) if n not in homes]
        """The given buffers that are no state's."""
        self._prepared: Prepared | None = None
        self._is_prepared = False

    def run(self, inputs: Sequence[Version]) -> list[Version]:
        """Run with other values as inputs, which are in memory; return those of the outputs.

        Raises Stale if a tensor that was used by the captured function does not exist any more.
        """
        if not self.is_current():
            self._find()
        given = [*inputs, *self._now]
        if self.states:
            given = self._apart(given)
        if self.draws:
            self._draw()
        fresh = self._play(given)
        if not self._is_settled:
            for state, home in zip(self.states, self._homes, strict=True):
                _settle(state, home)
            self._is_settled = self.is_current()  # nothing moved: later runs change memory alone
        raise_failed_checks(
            (node if number is None else _flag(fresh[number]), check)
            for node, number, check in self._flags
        )
        return fresh

    @property
    def is_pure(self) -> bool:
        """Tell whether a run does nothing but make outputs."""
        return not (self.states or self.draws or self.checks)

    def is_current(self) -> bool:
        """Tell whether all that a run reads besides its inputs is where it was in the last run."""
        if len(self._now) != len(self.externals):
            return False
        for (find, _), version in zip(self.externals, self._now, strict=True):
            storage = find()
            if storage is None or storage.current is not version:
                return False
        return True

    def prepared(self) -> Prepared | None:
        """The schedule as a tape, if it can be one; its outputs come in the order of `kinds`."""
        if not self._is_prepared:
            likes = [kind.like for kind in self.kinds]
            self._prepared = prepare(self.calls, self._given, likes, keep=True)
            self._is_prepared = True
        return self._prepared

    def _play(self, given: Sequence[Version]) -> list[Version]:
        """Run all kernels; return the values of the outputs."""
        prepared = self.prepared()
        if prepared is not None and not current_options().debug:
            blocks = prepared.run([version.block or _block(version) for version in given])
            return [Version(None, b, kind) for b, kind in zip(blocks, self.kinds, strict=True)]
        likes = [kind.like for kind in self.kinds]
        fresh = [new_buffer(like.arg.size, like.dtype, like.arg.device) for like in likes]
        exchange = dict(zip(self._given, map(_buffer, given), strict=True))
        exchange.update(zip(likes, fresh, strict=True))
        for call in self.calls:
            run_call(call.with_sources(tuple([exchange.get(n, n) for n in call.src])), {})
        return [Version(b.reshape(k.shape)) for b, k in zip(fresh, self.kinds, strict=True)]

    def _find(self) -> None:
        """Bring the external storages into memory, and note where they are."""
        storages = []
        for find, _ in self.externals:
            storage = find()
            if storage is None:
                raise Stale
            storages.append(storage)
        realize_storages(storages)
        now = [storage.current for storage in storages]
        if any(stored_buffer(version.named()) is None for version in now):
            raise Stale
        self._now = now
        self._is_settled = False
        self._homes = [_buffer(now[number]) for number in self._home_numbers]
        self._written_buffers = frozenset(self._homes)
        blocks = [version.in_memory() for version in now]
        self._written = {b for n in self._home_numbers if (b := blocks[n]) is not None}
        self._owners = {id(storages[number]) for number in self._home_numbers}

    def _apart(self, given: list[Version]) -> list[Version]:
        """See to it that nobody else reads the memory that will be written: not the values of
        others, nor another place of the captured function (a tensor passed as an argument that is
        written to as a state), which was captured as memory of its own.
        """
        protect(self._written_buffers, self._owners)
        shared = [n for n in self._read_only if given[n].block in self._written]
        return [_copied(v) if n in shared else v for n, v in enumerate(given)] if shared else given

    def _draw(self) -> None:
        """Take new random numbers, from the second run on."""
        if self.has_run:
            for draw in self.draws:
                start = draw.generator.advance(draw.count)
                buffer_of(draw.buffer).copy_from(np.array([start, draw.generator.key], np.uint64))
        self.has_run = True


def _settle(state: State, home: UOp) -> None:
    """Let a storage mean the new value, which stands where the state lives."""
    storage = state.find()
    if storage is None:
        raise Stale
    history.forget(home)
    node = storage.uop
    if stored_buffer(node) is not home:
        storage.uop = node = home.reshape(node.known_shape)
    if storage.owner is not None:
        storage.leaf_version += 1
        history.mark_leaf(node, storage)


def _buffer(version: Version) -> UOp:
    buffer = stored_buffer(version.named())
    assert buffer is not None, "what a replay is given is in memory"
    return buffer


def _flag(version: Version) -> UOp | Block:
    """Where the flag of a check stands."""
    return version.block or _buffer(version)


def _block(version: Version) -> Block:
    block = version.in_memory()
    assert block is not None, "what a replay is given is in memory"
    return block


def _copied(version: Version) -> Version:
    """The same value in memory of its own."""
    node = version.named()
    stored = realize([UOp.make(Ops.CONTIGUOUS, node)])
    return Version(next(iter(stored.values())))


def _copy(target: UOp, source: UOp) -> UOp:
    """A CALL that copies a BUFFER."""
    marker = UOp(Ops.COPY, dtypes.void, (), target.arg.device)
    return UOp(Ops.CALL, dtypes.void, (marker, target, source), CallInfo("a copy that jit needs"))


def protect(written: Set[UOp], owners: set[int]) -> None:
    """Compute what still reads buffers that are about to be overwritten, but for their *owners*.

    The way from a realised value to its leaves may lead through such a buffer too: it is cut.
    """
    if not written:
        return
    lazy: list[Storage] = []
    stored: list[UOp] = []
    for storage, node in live_nodes():
        buffer = stored_buffer(node)
        if buffer is not None:
            stored.append(buffer)
            if buffer in written and id(storage) not in owners:  # it shares it: it gets a copy
                storage.uop = UOp.make(Ops.CONTIGUOUS, node)
                lazy.append(storage)
        elif id(storage) not in owners and not written.isdisjoint(_buffers_below(node)):
            lazy.append(storage)
    if lazy:
        realize_storages(lazy)
        stored += [b for s in lazy if (b := stored_buffer(s.uop)) is not None]
    for buffer, past in history.pasts_of(stored):
        if past.expression is not None and history.readers([past.expression]) & written:
            history.cut(buffer)


_below: weakref.WeakKeyDictionary[UOp, frozenset[UOp]] = weakref.WeakKeyDictionary()


def _buffers_below(node: UOp) -> frozenset[UOp]:
    """The BUFFERs that a lazy value reads; kept, since each replay asks for the same values."""
    found = _below.get(node)
    if found is None:
        found = frozenset([n for n in node.toposort() if n.op is Ops.BUFFER])
        _below[node] = found
    return found


def separate() -> None:
    """Give each storage that exists a value of its own, in memory where it shared one.

    A captured graph names values, not storages: where two mean one value, nobody could tell later
    which of them the function read or wrote.
    """
    seen: set[UOp] = set()
    for storage, node in live_nodes():
        if node in seen:
            storage.uop = _of_its_own(node)
            realize_storages([storage])
        seen.add(node)


def make_replay(
    outputs: Sequence[UOp],
    states: Sequence[tuple[Storage, UOp, UOp]],
    inputs: Sequence[UOp],
    known: Mapping[UOp, Storage],
    finders: Mapping[int, Finder],
    draws: list[Draw],
) -> Replay:
    """Schedule and compile what a function computed while it was captured.

    states: (storage, node that it meant before, node that it means now).  known: for each node that
    a storage meant before the capture, that storage.  finders: how to find a storage again in a
    later run, by its id, where that is not simply the storage itself.
    """
    wanted = [*outputs, *(after for _, _, after in states)]
    external, exchange = _settled_before(wanted, [before for _, before, _ in states], known)
    wanted = [UOp.sink(node).substitute(exchange).src[0] for node in wanted]
    wanted = [_of_its_own(node) for node in wanted]
    scheduled = schedule(list(dict.fromkeys(wanted)))
    compiled = compile_linear(scheduled.linear)
    stored = [stored_buffer(scheduled.stored[node]) for node in wanted]
    buffers = [b for b in stored if b is not None]
    assert len(buffers) == len(wanted), "every scheduled value stands in a buffer"

    def finder(storage: Storage) -> Finder:
        return finders.get(id(storage)) or weakref.ref(storage)

    used = {n for n in all_nodes(compiled.src) if n.op is Ops.BUFFER} | set(buffers)
    externals = [(finder(s), b) for b, s in external.items() if b in used]
    homes = [stored_buffer(exchange.get(before, before)) for _, before, _ in states]
    made = [
        State(finder(storage), home, result)
        for (storage, _, _), home, result in zip(
            states, homes, buffers[len(outputs) :], strict=True
        )
        if home is not None
    ]
    known_homes = {b for _, b in externals}
    for (storage, _, _), home in zip(states, homes, strict=True):
        if home is None:
            continue
        if home not in known_homes:
            externals.append((finder(storage), home))
        storage.uop = home.reshape(storage.uop.known_shape)  # until the first run writes to it
    return Replay(
        compiled.src,
        tuple(inputs),
        tuple([(b, node.known_shape) for b, node in zip(buffers, outputs, strict=False)]),
        externals,
        made,
        draws,
        scheduled.checks,
    )


def _of_its_own(node: UOp) -> UOp:
    """A node to schedule: what is a buffer already is asked for as a copy."""
    return UOp.make(Ops.CONTIGUOUS, node) if stored_buffer(node) is not None else node


def _settled_before(
    wanted: Sequence[UOp], before: Sequence[UOp], known: Mapping[UOp, Storage]
) -> tuple[dict[UOp, Storage], dict[UOp, UOp]]:
    """Bring into memory what the captured graph uses of storages that are older than the capture.

    Returns their BUFFERs, and for each lazy node the realised one that takes its place.
    """
    found: dict[UOp, Storage] = {node: known[node] for node in before if node in known}
    for node in UOp.sink(*wanted).toposort(lambda n: n not in known):
        if node in known:
            found[node] = known[node]
    others = [node for _, node in live_nodes() if node not in found]
    pending = written_buffers(found) & history.readers(others)
    stored = realize(list(found), pending=frozenset(pending))
    exchange = {node: stored[node] for node in found if node in stored}
    external: dict[UOp, Storage] = {}
    for node, storage in found.items():
        after = exchange.get(node, node)
        buffer = stored_buffer(after)
        assert buffer is not None, "what is realised stands in a buffer"
        external[buffer] = storage
        if storage.uop is node and after is not node:
            storage.uop = after
            history.remember(buffer, node)
            if storage.owner is not None and history.past_of(buffer) is None:
                history.mark_leaf(after, storage)
    return external, exchange
