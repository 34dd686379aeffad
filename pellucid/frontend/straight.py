"""The straight way through a replay, for calls like the last one.

    step(x, w)     are the arguments tensors in memory, of the kinds of the last call?  no: go the
                   long way (jit.py)
                   write their addresses and that of a new block into the tape; play it
                   a tensor over the block: it has no node until somebody asks

There is one where a replay does nothing but compute one tensor from its arguments, and from tensors
that are where they were. What is not looked at here cannot make a difference to such a call.

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
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pellucid.core.dtype import DType
from pellucid.core.options import current_options
from pellucid.engine import capture
from pellucid.engine.prepared import Prepared
from pellucid.engine.replay import Replay
from pellucid.engine.run import engine_lock
from pellucid.engine.storage import Kind, Storage, Version
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
    text = _text(prepared, arguments, has_externals=bool(replay.externals))
    names = _names(replay, prepared, arguments, result)
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

_PLACE: Final = """\
        words[{place}] = {block}.address"""

_ALLOCATE: Final = """\
        block = allocate(NBYTES)"""

_TAIL: Final = """\
        play()
    return tensor_on(Storage(Version(None, block, KIND), DEVICE), WINDOW, SHAPE, DTYPE)"""


def _text(prepared: Prepared, arguments: tuple[Any, ...], *, has_externals: bool) -> str:
    """Write the function out."""
    names = [f"x{n}" for n in range(len(arguments))]
    tensors = [x for x, value in zip(names, arguments, strict=True) if type(value) is Tensor]
    lines = [_HEAD.format(count=len(names), names="".join(f"{x}, " for x in names))]
    lines += [(_TENSOR if x in tensors else _SAME).format(x=x) for x in names]
    if len(tensors) > 1:
        twice = " or ".join(f"{a} is {b}" for a, b in itertools.combinations(tensors, 2))
        lines.append(_OTHERS.format(twice=twice))
    lines.append(_LOCK)
    if has_externals:
        lines.append(_EXTERNALS)
    lines += [_BLOCK.format(x=x) for x in tensors]
    for x, places in zip(tensors, prepared.given, strict=False):  # externals stand behind them
        lines += [_PLACE.format(place=place, block=f"{x}_block") for place in places]
    lines.append(_ALLOCATE)
    lines += [_PLACE.format(place=place, block="block") for place in prepared.made[0].places]
    lines.append(_TAIL)
    return "\n".join(lines)


def _names(
    replay: Replay, prepared: Prepared, arguments: tuple[Any, ...], result: Result
) -> dict[str, Any]:
    """What the names in the function stand for."""
    given: dict[str, Any] = {
        **{name.upper(): value for name, value in result._asdict().items()},
        "OPTIONS": current_options(),
        "GRAD_MODE": grad_enabled.get(),
        "NBYTES": prepared.made[0].nbytes,
        "DETACHED": DETACHED,
        "Storage": Storage,
        "Tensor": Tensor,
        "Version": Version,
        "allocate": prepared.made[0].allocate,
        "engine_lock": engine_lock,
        "grad_mode": grad_enabled.get,
        "is_current": replay.is_current,
        "listener": capture.listener,
        "options": current_options,
        "play": prepared.tape.run,
        "tensor_on": Tensor._on,
        "words": prepared.tape.words,
    }
    for n, value in enumerate(arguments):
        if type(value) is Tensor:
            given[f"x{n}_DTYPE"], given[f"x{n}_SHAPE"] = value._dtype, value._shape
            given[f"x{n}_ASKS"], given[f"x{n}_DEVICE"] = asks_gradient(value), value.device
        else:
            given[f"x{n}_VALUE"] = value
    return given
