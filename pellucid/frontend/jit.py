"""jit: run a function once more as the list of kernels that it came down to.

    @jit
    def step(x): ...

    first call    runs the function as it is
    second call   captures it: the function builds its graph, which becomes one compiled schedule
    later calls   run the kernels on the new inputs; Python is not asked again

A capture belongs to a kind of call: shapes, dtypes and devices of tensors, and the values of all
other arguments. A call of another kind starts at "first" again. Results of successive calls are
separate values, random numbers are drawn anew, and tensors that the function writes to (parameters,
counters) are written to each time.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final, Generic, ParamSpec, TypeVar

from pellucid.core.errors import ArgumentError, JitError
from pellucid.core.records import dataclass
from pellucid.engine import capture, history
from pellucid.engine.capture import Listener
from pellucid.engine.realize import written_buffers
from pellucid.engine.replay import Replay, Stale, make_replay, protect, separate
from pellucid.engine.run import engine_lock
from pellucid.engine.storage import Kind, Storage, Version, live_storages, stored_buffer
from pellucid.frontend.calls import can_change, key_of_call, rebuilt, surroundings, tensors_in
from pellucid.frontend.straight import Result, StraightWay, straight_way
from pellucid.frontend.tensor import Tensor
from pellucid.frontend.value import DETACHED, Window
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, new_buffer

P = ParamSpec("P")
R = TypeVar("R")
MOST_CAPTURES: Final = 32
_MOST_ATTEMPTS: Final = 3


@dataclass
class _Entry:
    """What is known of one kind of call."""

    calls: int = 0
    attempts: int = 0
    replay: Replay | None = None
    captured: _Captured | None = None
    keep: list[Any] = field(default_factory=list)
    straight: list[StraightWay | None] = field(default_factory=list)

    def straight_way(self, args: tuple[Any, ...]) -> StraightWay | None:
        """The straight way for calls of this kind, which is looked for once."""
        if not self.straight:
            assert self.replay is not None, "only a captured call is replayed"
            assert self.captured is not None, "a captured call knows how to finish"
            result = self.captured.only_result()
            way = None
            if result is not None and not any(map(can_change, args)):
                way = straight_way(self.replay, args, result)
            self.straight.append(way)
        return self.straight[0]

    def forget(self) -> None:
        """Forget what was captured."""
        self.replay = self.captured = None
        self.straight.clear()


class Jit(Generic[P, R]):
    """A function that is captured when it is called for the second time."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._entries: dict[Any, _Entry] = {}
        self._straight: StraightWay | None = None
        """The way of the last call, if it is a straight one."""
        self._warned = False
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def num_captures(self) -> int:
        """How many kinds of call are captured now."""
        return sum(entry.replay is not None for entry in self._entries.values())

    def reset(self) -> None:
        """Forget all captures."""
        with engine_lock:
            self._entries.clear()
            self._straight = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or replay what it came down to."""
        straight = self._straight
        if straight is not None and not kwargs:
            result = straight(args)
            if result is not None:
                return result  # type: ignore[return-value]
        return self._called(args, kwargs)

    def _called(self, args: Any, kwargs: Any) -> R:
        """Find out which kind of call it is, and whether it was captured."""
        if capture.listener() is not None:
            return self.function(*args, **kwargs)  # part of an outer capture
        tensors: list[Tensor] = []
        keep: list[Any] = []
        key = (key_of_call(args, kwargs, tensors, keep), surroundings())
        with engine_lock:
            entry = self._entry(key, keep)
            if entry is None:
                return self._plain(args, kwargs)
            entry.calls += 1
            if entry.replay is not None:
                try:
                    result = self._replayed(entry, tensors)
                except Stale:
                    self._straight = None
                    entry.forget()
                    entry.calls = 1
                else:
                    self._straight = None if kwargs else entry.straight_way(args)
                    return result
            if entry.calls == 1 or entry.attempts >= _MOST_ATTEMPTS:
                return self._plain(args, kwargs)
            return self._captured(entry, args, kwargs, tensors)

    def _entry(self, key: Any, keep: list[Any]) -> _Entry | None:
        found = self._entries.get(key)
        if found is None:
            if len(self._entries) >= MOST_CAPTURES:
                self._warn(
                    f"is called in more than {MOST_CAPTURES} different ways; new ones run plainly. "
                    "Numbers that change from call to call are better passed as tensors."
                )
                return None
            found = self._entries[key] = _Entry(keep=keep)
        return found

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            name = getattr(self.function, "__qualname__", "a function")
            warnings.warn(f"jit: {name} {text}", stacklevel=4)

    # ---- one call -------------------------------------------------------------------------------

    def _plain(self, args: Any, kwargs: Any) -> R:
        """Run the function; new results are in memory and carry no gradient, as replayed ones."""
        older = {id(s): s for s in live_storages()}
        result = self.function(*args, **kwargs)
        made = [t for t in tensors_in(result) if id(t._storage) not in older]
        if made:
            made[0].realize(*made[1:])
        return rebuilt(result, lambda t: t if id(t._storage) in older else t.detach())  # type: ignore[no-any-return]

    def _replayed(self, entry: _Entry, tensors: list[Tensor]) -> R:
        assert entry.replay is not None, "only a captured call is replayed"
        assert entry.captured is not None, "a captured call knows how to finish"
        entry.captured.check()
        values = entry.replay.run(_inputs(tensors))
        return entry.captured.finish(values, tensors)  # type: ignore[no-any-return]

    def _captured(self, entry: _Entry, args: Any, kwargs: Any, tensors: list[Tensor]) -> R:
        entry.attempts += 1
        for tensor in tensors:
            tensor.realize()
        separate()
        before = _Snapshot()
        stand_ins = [_stand_in(tensor) for tensor in tensors]
        inputs = [_buffer(s._storage.uop) for s in stand_ins]
        made = _share_aliases(stand_ins, tensors)
        iterator = iter(made)
        inner_args, inner_kwargs = rebuilt((args, kwargs), lambda _: next(iterator))
        iterator = None  # type: ignore[assignment]
        with capture.capturing() as heard:
            try:
                result = self.function(*inner_args, **inner_kwargs)
                inner_args = inner_kwargs = None
                with capture.paused():
                    run = _Captured(before, stand_ins, inputs, tensors, result, heard)
            except BaseException:
                before.restore(heard)
                raise
        entry.replay, entry.captured = run.replay, run
        answer = self._replayed(entry, tensors)
        run.settle_escaped()
        if run.escaped:
            entry.forget()
            if entry.attempts >= _MOST_ATTEMPTS:
                self._warn(
                    "keeps tensors that it makes, besides what it returns, so it runs without jit. "
                    "Return them, or write them to tensors that exist already."
                )
        return answer


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Capture a function of tensors as a list of kernels, and replay that list.

    >>> @jit
    ... def add_one(x):
    ...     return x + 1
    >>> [add_one(Tensor([i])).item() for i in range(4)]
    [1, 2, 3, 4]
    """
    if not callable(function):
        raise ArgumentError("jit captures a function", came=type(function).__name__)
    return Jit(function)


TinyJit = jit
"""The name under which the idea is known."""


class _Snapshot:
    """All storages that exist before a capture, what they mean, and which are gradients."""

    def __init__(self) -> None:
        self.storages = {id(s): (s, s.uop, s.leaf_version) for s in live_storages()}
        self.nodes = {node: storage for storage, node, _ in self.storages.values()}
        self.finders: dict[int, Callable[[], Storage | None]] = {}
        for storage, _, _ in self.storages.values():
            leaf = storage.owner() if storage.owner is not None else None
            if leaf is not None and isinstance(leaf._grad, Tensor):
                find = functools.partial(_grad_storage, weakref.ref(leaf))
                self.finders[id(leaf._grad._storage)] = find

    def restore(self, heard: Listener) -> None:
        """Undo all that the captured function wrote."""
        for storage in heard.written.values():
            if id(storage) in self.storages:
                _, storage.uop, storage.leaf_version = self.storages[id(storage)]
        for note in heard.gradients.values():
            note.leaf._grad = note.before

    def changed(self, heard: Listener) -> list[tuple[Storage, UOp, UOp]]:
        """The storages that the captured function wrote to: (storage, before, now)."""
        mine = [s for s in heard.written.values() if id(s) in self.storages]
        found = [(s, self.storages[id(s)][1], s.uop) for s in mine]
        return [(s, before, after) for s, before, after in found if after is not before]


class _Captured:
    """What a captured function did, made ready to be replayed."""

    def __init__(
        self,
        before: _Snapshot,
        stand_ins: list[Tensor],
        inputs: list[UOp],
        tensors: list[Tensor],
        result: Any,
        heard: Listener,
    ) -> None:
        self.result = _Plan(result, before, stand_ins)
        self.grads = _GradPlan(heard, stand_ins, tensors)
        own = {id(s._storage) for s in stand_ins}
        changed = before.changed(heard)
        self.writes = [i for i, s in enumerate(stand_ins) if stored_buffer(s._storage.uop) is None]
        _refuse_shared_writes(self.writes, tensors)
        known = {id(s) for s in self.result.storages} | self.grads.storage_ids | own
        made = [s for ref in heard.made.values() if (s := ref()) is not None]
        self.escaped = [s for s in made if id(s) not in known and stored_buffer(s.uop) is None]
        outputs = [s.uop for s in self.result.storages]
        outputs += [g.uop for g in self.grads.values]
        outputs += [stand_ins[i].uop for i in self.writes]
        outputs += [s.uop for s in self.escaped]
        written = written_buffers([*outputs, *(after for _, _, after in changed)])
        owners = {id(s) for s, _, _ in changed} | {id(s) for s in self.escaped} | own
        owners |= known
        protect(written, owners)
        self.replay = make_replay(
            outputs, changed, inputs, before.nodes, before.finders, heard.draws
        )
        self.kept: list[Version] = []
        """What the tensors that the function kept mean after the last run."""
        self._forget_graphs()

    def _forget_graphs(self) -> None:
        """Let what was captured mean blank storage: its graphs read stand-ins."""
        for storage in (*self.result.storages, *(g._storage for g in self.grads.values)):
            node = storage.uop
            blank = new_buffer(node.num_elems, node.dtype, storage.device)
            storage.uop = blank.reshape(node.known_shape)

    def check(self) -> None:
        """Raise Stale where a gradient would now be added to one that did not exist before."""
        self.grads.check()

    def only_result(self) -> Result | None:
        """What kind of tensor a call gives, if that is one tensor, and all that it does."""
        if self.writes or self.escaped or self.grads.is_asked:
            return None
        return self.result.only_tensor(self.replay.kinds)

    def finish(self, values: list[Version], tensors: list[Tensor]) -> Any:
        """Make the results of one run."""
        parts = iter(values)
        result = self.result.build(parts)
        self.grads.give(parts, tensors)
        for index in self.writes:
            tensors[index].assign(_tensor_on(next(parts), tensors[index]))
        self.kept = list(parts)
        return result

    def settle_escaped(self) -> None:
        """Let tensors that the function kept mean what this run found."""
        for storage, version in zip(self.escaped, self.kept, strict=True):
            storage.current = version
            if storage.owner is not None:
                history.mark_leaf(storage.uop, storage)
        self.kept = []


class _Plan:
    """How to build the result of a call from output buffers."""

    def __init__(self, result: Any, before: _Snapshot, stand_ins: list[Tensor]) -> None:
        self.shape = result
        self.storages: list[Storage] = []
        places: dict[int, int] = {}
        self.recipes: dict[int, tuple[int, Window]] = {}
        for tensor in tensors_in(result):
            storage = tensor._storage
            if id(storage) in before.storages:
                continue  # a tensor that exists outside is returned as it is
            place = places.setdefault(id(storage), len(self.storages))
            if place == len(self.storages):
                self.storages.append(storage)
            window = tensor._window
            detached = DETACHED if window is None else Window(window, Ops.DETACH, None)
            self.recipes[id(tensor)] = place, detached
        self.devices = [storage.device for storage in self.storages]

    def only_tensor(self, kinds: list[Kind]) -> Result | None:
        """What kind of tensor the result is, if it is one that is computed."""
        tensor = self.shape
        if not (isinstance(tensor, Tensor) and self.recipes and len(kinds) == 1):
            return None
        _, window = self.recipes[id(tensor)]
        return Result(kinds[0], self.devices[0], window, tensor._shape, tensor._dtype)

    def build(self, parts: Iterator[Version]) -> Any:
        """Put new tensors in the places of those that were captured."""
        made = [Storage(next(parts), device) for device in self.devices]

        def exchange(tensor: Tensor) -> Tensor:
            recipe = self.recipes.get(id(tensor))
            if recipe is None:
                return tensor
            place, window = recipe
            return Tensor._on(made[place], window, tensor._shape, tensor._dtype)

        shape = self.shape
        return exchange(shape) if isinstance(shape, Tensor) else rebuilt(shape, exchange)


class _GradPlan:
    """The gradients that a captured function leaves in leaves outside, and in its arguments."""

    def __init__(self, heard: Listener, stand_ins: list[Tensor], tensors: list[Tensor]) -> None:
        self.values: list[Tensor] = []
        self.targets: list[weakref.ref[Tensor]] = []
        self.marked: list[tuple[weakref.ref[Tensor], Any]] = []
        self.must_be_none: list[weakref.ref[Tensor]] = []
        self.of_arguments: list[tuple[int, bool]] = []
        self.cleared: list[int] = []
        own = {id(s) for s in stand_ins}
        replaced = {id(n.leaf) for n in heard.gradients.values() if n.is_replaced}
        for note in heard.gradients.values():
            leaf: Tensor = note.leaf
            if id(leaf) in own or id(leaf._storage) in heard.made:
                continue
            ref, new = weakref.ref(leaf), leaf._grad
            leaf._grad = note.before  # nothing ran yet: the first replay starts from here
            if note.before is None and not note.is_replaced:
                self.must_be_none.append(ref)
            if isinstance(new, Tensor):
                self.values.append(new)
                self.targets.append(ref)
            else:
                self.marked.append((ref, new))
        for i, (stand_in, tensor) in enumerate(zip(stand_ins, tensors, strict=True)):
            asked = tensor.is_leaf and tensor._storage.requires_grad
            is_replaced = id(stand_in) in replaced
            if asked and isinstance(stand_in._grad, Tensor):
                self.values.append(stand_in._grad)
                self.of_arguments.append((i, is_replaced))
            elif is_replaced:
                self.cleared.append(i)
            stand_in._grad = None
        self.storage_ids = {id(v._storage) for v in self.values}

    def check(self) -> None:
        """Raise Stale where a gradient would now be added to one that did not exist before."""
        for ref in self.must_be_none:
            leaf = ref()
            if leaf is not None and leaf._grad is not None:
                raise Stale

    @property
    def is_asked(self) -> bool:
        """Tell whether gradients change at all."""
        return bool(self.values or self.marked or self.must_be_none or self.cleared)

    def give(self, parts: Iterator[Version], tensors: list[Tensor]) -> None:
        """Set the gradients of one run."""
        for index in self.cleared:
            tensors[index]._grad = None
        if not (self.values or self.marked):
            return
        made = [_tensor_on(next(parts), v) for v in self.values]
        for ref, grad in zip(self.targets, made, strict=False):
            leaf = ref()
            if leaf is not None:
                leaf._grad, leaf._unread = grad, 0
        for (index, is_replaced), grad in zip(
            self.of_arguments, made[len(self.targets) :], strict=True
        ):
            leaf = tensors[index]
            if is_replaced or not isinstance(leaf._grad, Tensor):
                leaf._grad = grad
            else:  # in memory at once: a sum of sums would keep every run's gradient alive
                leaf._grad = (leaf._grad + grad).realize()
        for ref, mark in self.marked:
            leaf = ref()
            if leaf is not None:
                leaf._grad = mark


def _grad_storage(ref: weakref.ref[Tensor]) -> Storage | None:
    leaf = ref()
    grad = leaf._grad if leaf is not None else None
    return grad._storage if isinstance(grad, Tensor) else None


# ---- arguments ----------------------------------------------------------------------------------


def _stand_in(tensor: Tensor) -> Tensor:
    """A tensor of the same kind over a buffer of its own, for the function to see."""
    node = new_buffer(tensor.numel(), tensor.dtype, tensor.device).reshape(tensor.shape)
    requires_grad = tensor._storage.requires_grad if tensor.is_leaf else False
    return Tensor._leaf(node, tensor.device, requires_grad if tensor.dtype.is_float else None)


def _share_aliases(stand_ins: list[Tensor], tensors: list[Tensor]) -> list[Tensor]:
    """One stand-in for a tensor that is passed twice."""
    first: dict[int, Tensor] = {}
    return [first.setdefault(id(t), s) for s, t in zip(stand_ins, tensors, strict=True)]


def _refuse_shared_writes(written: list[int], tensors: list[Tensor]) -> None:
    """A write to an argument that shows in another one cannot be captured."""
    for index in written:
        mine = tensors[index]
        if any(t is not mine and t._storage is mine._storage for t in tensors):
            raise JitError(
                f"the function writes to its tensor argument number {index}, "
                "which shares storage with another argument",
                help="pass only one of them, and take the window inside of the function",
            )


def _buffer(node: UOp) -> UOp:
    found = stored_buffer(node)
    assert found is not None, "a stand-in is a buffer"
    return found


def _inputs(tensors: list[Tensor]) -> list[Version]:
    """The values of arguments, in memory; a window is copied out."""
    ready = []
    for tensor in tensors:
        version = tensor._storage.current
        if version.in_memory() is None or not (tensor._window is None or _is_whole(tensor)):
            break
        ready.append(version)
    else:
        return ready
    wholes = [t if _is_whole(t) else t.contiguous() for t in tensors]
    wholes[0].realize(*wholes[1:])
    return [t._storage.current for t in wholes]


def _is_whole(tensor: Tensor) -> bool:
    """Tell whether a tensor shows all of its storage as it lies there."""
    window = tensor._window
    while window is not None:
        if window.op is not Ops.DETACH:
            return False
        window = window.before
    return True


def _tensor_on(value: Version, like: Tensor) -> Tensor:
    storage = Storage(value, like._storage.device)
    return Tensor._on(storage, None, like._shape, like._dtype)
