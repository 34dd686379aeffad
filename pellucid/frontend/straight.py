"""The straight way through a replay, for calls like the last one.

    step(x, w)     are the arguments tensors in memory, of the kinds of the last call?  no: go the
                   long way (jit.py)
                   write their addresses and that of a new block into the tape; play it
                   a tensor over the block: it has no node until somebody asks

There is one where a replay does nothing but compute one tensor from its arguments, and from tensors
that are where they were. What is not looked at here cannot make a difference to such a call.

No lock is taken where the tape is quick and reads nothing but arguments: writing addresses and
playing are then one step (tape.py), on a tape that nobody else plays, and what was read before it
is held. A small result stands in one of two blocks that are used in turns, as soon as nobody else
holds them: a block of the allocator's takes as long as all questions.

The questions are written out for the arguments of a capture, as one Python function without loops:
a replay of a small kernel takes as long as the questions. For one argument it begins like this:

    def straight(arguments):
        if len(arguments) != 1 or options() is not OPTIONS or ...:
            return None
        (x0,) = arguments
        if type(x0) is not Tensor or x0._dtype is not DTYPE0 or x0._shape != SHAPE0 or ...:
            return None
"""

from __future__ import annotations

import itertools
import sys
import textwrap
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pellucid.core.dtype import DType
from pellucid.core.options import current_options
from pellucid.engine import capture
from pellucid.engine.prepared import Prepared
from pellucid.engine.replay import Replay
from pellucid.engine.run import engine_lock
from pellucid.engine.storage import Kind, Storage, Version, enlist, strike
from pellucid.frontend.calls import asks_gradient
from pellucid.frontend.tensor import Tensor
from pellucid.frontend.value import DETACHED, Window, grad_enabled
from pellucid.ir.op import Shape

StraightWay = Callable[[tuple[Any, ...]], Tensor | None]
"""Replays, or returns None for a call that is not like the last one."""


class Result(NamedTuple):
    """What kind of tensor comes out."""

    kind: Kind
    device: str
    window: Window | None
    shape: Shape
    dtype: DType


MOST_ARGUMENTS: Final = 8
"""More are not worth a function of their own: the long way takes about 10 us."""
MOST_SPARE_BYTES: Final = 1 << 16
"""Larger results get a block of the allocator's, which takes no time beside computing them."""
_COUNTS_REFERENCES: Final = sys.implementation.name == "cpython" and sys.version_info < (3, 13)
"""Whether nobody can hold a block, or take hold of it, without its being counted."""


def straight_way(replay: Replay, arguments: tuple[Any, ...], result: Result) -> StraightWay | None:
    """Prepare the straight way for calls like the one that was just replayed, if there is one.

    arguments: tensors, and objects that have to be the same ones again.
    """
    prepared = replay.prepared()
    if prepared is None or not replay.is_pure or current_options().debug:
        return None
    if prepared.own or len(prepared.made) != 1 or len(arguments) > MOST_ARGUMENTS:
        return None
    tensors = [value for value in arguments if type(value) is Tensor]
    if any(a is b for a, b in itertools.combinations(tensors, 2)):
        return None
    has_externals = bool(replay.externals)
    is_locked = has_externals or not prepared.tape.is_quick
    text = _text(prepared, arguments, has_externals=has_externals, is_locked=is_locked)
    names = _names(replay, prepared, arguments, result)
    tape = prepared.tape if is_locked else prepared.tape.twin()
    given = prepared.given[: len(tensors)]  # externals stand behind them, where they were
    names["play"] = tape.player_on([*given, prepared.made[0].places])
    exec(compile(text, "<straight way of a jit>", "exec"), names)
    function: StraightWay = names["straight"]
    return function


_HEAD: Final = """\
def straight(arguments):
    if len(arguments) != {count} or options() is not OPTIONS or grad_mode() is not GRAD_MODE:
        return None
    if listener() is not None:
        return None
    ({names}) = arguments"""

_TENSOR: Final = """\
    if type({x}) is not Tensor or {x}._dtype is not {x}_DTYPE or {x}._shape != {x}_SHAPE:
        return None
    {x}_storage = {x}._storage
    {x}_owner = {x}_storage.owner
    asks = {x}_storage.requires_grad if {x}_owner is not None and {x}_owner() is {x} else False
    if asks is not {x}_ASKS or {x}_storage.device != {x}_DEVICE:
        return None
    if {x}._window is not None and {x}._window is not DETACHED:
        return None"""

_SAME: Final = """\
    if {x} is not {x}_VALUE:
        return None"""

_OTHERS: Final = """\
    if {twice}:
        return None"""

_LOCK: Final = """\
    with engine_lock:"""

_EXTERNALS: Final = """\
    if not is_current():
        return None"""

_BLOCK: Final = """\
    {x}_block = {x}_storage.current.block
    if {x}_block is None:
        return None"""

_ALLOCATE: Final = """\
    block = allocate(NBYTES)"""

_REUSE: Final = """\
    block = spare[0]
    if references(block) != ALONE:
        block = spare[1]
        if references(block) != ALONE:
            spare[1] = spare[0]
            spare[0] = block = allocate(NBYTES)"""

_PLAY: Final = """\
    if not play({addresses}block.address):
        return None"""

# What `Tensor._on(Storage(Version(None, block, KIND), DEVICE), WINDOW, SHAPE, DTYPE)` does, but for
# telling a listener, as there is none: three calls take longer than all of it.
_TAIL: Final = """\
    version = new(Version)
    version.node = version.past = version.windows = None
    version.block, version.kind = block, KIND
    storage = new(Storage)
    storage.current, storage.device, storage.leaf_version = version, DEVICE, 0
    storage.owner = storage.requires_grad = None
    enlist(weakref(storage, strike))
    made = new(Tensor)
    made._storage, made._window, made._shape, made._dtype = storage, WINDOW, SHAPE, DTYPE
    made._grad, made._unread = None, 0
    return made"""


def _text(
    prepared: Prepared, arguments: tuple[Any, ...], *, has_externals: bool, is_locked: bool
) -> str:
    """Write the function out."""
    names = [f"x{n}" for n in range(len(arguments))]
    tensors = [x for x, value in zip(names, arguments, strict=True) if type(value) is Tensor]
    lines = [_HEAD.format(count=len(names), names="".join(f"{x}, " for x in names))]
    lines += [(_TENSOR if x in tensors else _SAME).format(x=x) for x in names]
    if len(tensors) > 1:
        twice = " or ".join(f"{a} is {b}" for a, b in itertools.combinations(tensors, 2))
        lines.append(_OTHERS.format(twice=twice))
    inner = [_EXTERNALS] if has_externals else []
    inner += [_BLOCK.format(x=x) for x in tensors]
    inner.append(_REUSE if _is_reused(prepared) else _ALLOCATE)
    inner.append(_PLAY.format(addresses="".join(f"{x}_block.address, " for x in tensors)))
    lines += [_LOCK, textwrap.indent("\n".join(inner), "    ")] if is_locked else inner
    lines.append(_TAIL)
    return "\n".join(lines)


def _is_reused(prepared: Prepared) -> bool:
    """True for a small result, where it can be told whether somebody holds a block."""
    return _COUNTS_REFERENCES and prepared.made[0].nbytes <= MOST_SPARE_BYTES


def _references_of_a_spare() -> int:
    """How many references to a block are counted that only the list of spare ones holds."""
    spare = [object()]
    block = spare[0]
    return sys.getrefcount(block)


def _names(
    replay: Replay, prepared: Prepared, arguments: tuple[Any, ...], result: Result
) -> dict[str, Any]:
    """What the names in the function stand for."""
    given: dict[str, Any] = {
        **{name.upper(): value for name, value in result._asdict().items()},
        "OPTIONS": current_options(),
        "GRAD_MODE": grad_enabled.get(),
        "NBYTES": prepared.made[0].nbytes,
        "ALONE": _references_of_a_spare(),
        "DETACHED": DETACHED,
        "Storage": Storage,
        "Tensor": Tensor,
        "Version": Version,
        "allocate": prepared.made[0].allocate,
        "engine_lock": engine_lock,
        "enlist": enlist,
        "grad_mode": grad_enabled.get,
        "is_current": replay.is_current,
        "listener": capture.listener,
        "new": object.__new__,
        "options": current_options,
        "references": sys.getrefcount,
        "spare": [None, None],
        "strike": strike,
        "weakref": weakref.ref,
    }
    for n, value in enumerate(arguments):
        if type(value) is Tensor:
            given[f"x{n}_DTYPE"], given[f"x{n}_SHAPE"] = value._dtype, value._shape
            given[f"x{n}_ASKS"], given[f"x{n}_DEVICE"] = asks_gradient(value), value.device
        else:
            given[f"x{n}_VALUE"] = value
    return given
