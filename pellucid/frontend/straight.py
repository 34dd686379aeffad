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


def straight_way(replay: Replay, arguments: tuple[Any, ...], result: Result) -> StraightWay | None:
    """Prepare the straight way for calls like the one that was just replayed, if there is one.

    arguments: tensors, and objects that have to be the same ones again.
    """
    prepared = replay.prepared()
    if prepared is None or not replay.is_pure or current_options().debug:
        return None
    if prepared.own or len(prepared.made) != 1 or len(arguments) > MOST_ARGUMENTS:
        return None
    if any(
        a is b for a, b in itertools.combinations([a for a in arguments if type(a) is Tensor], 2)
    ):
        return None
    return _function(replay, prepared, arguments, result)


def asks_gradient(tensor: Tensor) -> bool | None:
    """What an argument says of gradients, as a part of the kind of its call."""
    storage = tensor._storage
    owner = storage.owner
    return storage.requires_grad if owner is not None and owner() is tensor else False


MOST_ARGUMENTS: Final = 8
"""More are not worth a function of their own: the long way takes about 10 us."""

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

_TAIL: Final = """\
        play()
    return tensor_on(Storage(Version(None, block, KIND), DEVICE), WINDOW, SHAPE, DTYPE)"""


def _function(
    replay: Replay, prepared: Prepared, arguments: tuple[Any, ...], result: Result
) -> StraightWay:
    """Write the function and compile it."""
    made = prepared.made[0]
    given: dict[str, Any] = {
        **{name.upper(): value for name, value in result._asdict().items()},
        "OPTIONS": current_options(),
        "GRAD_MODE": grad_enabled.get(),
        "NBYTES": made.nbytes,
        "DETACHED": DETACHED,
        "Storage": Storage,
        "Tensor": Tensor,
        "Version": Version,
        "allocate": made.allocate,
        "engine_lock": engine_lock,
        "grad_mode": grad_enabled.get,
        "is_current": replay.is_current,
        "listener": capture.listener,
        "options": current_options,
        "play": prepared.tape.run,
        "tensor_on": Tensor._on,
        "words": prepared.tape.words,
    }
    names = [f"x{n}" for n in range(len(arguments))]
    tensors = []
    lines = [_HEAD.format(count=len(names), names="".join(f"{x}, " for x in names))]
    for x, value in zip(names, arguments, strict=True):
        if type(value) is Tensor:
            tensors.append(x)
            lines.append(_TENSOR.format(x=x))
            given[f"{x}_DTYPE"], given[f"{x}_SHAPE"] = value._dtype, value._shape
            given[f"{x}_ASKS"], given[f"{x}_DEVICE"] = asks_gradient(value), value.device
        else:
            lines.append(_SAME.format(x=x))
            given[f"{x}_VALUE"] = value
    if len(tensors) > 1:
        twice = " or ".join(f"{a} is {b}" for a, b in itertools.combinations(tensors, 2))
        lines.append(_OTHERS.format(twice=twice))
    lines.append(_LOCK)
    if replay.externals:
        lines.append(_EXTERNALS)
    lines += [_BLOCK.format(x=x) for x in tensors]
    for x, places in zip(tensors, prepared.given, strict=False):
        lines += [_PLACE.format(place=place, block=f"{x}_block") for place in places]
    lines.append("        block = allocate(NBYTES)")
    lines += [_PLACE.format(place=place, block="block") for place in made.places]
    lines.append(_TAIL)
    exec(compile("\n".join(lines), "<straight way of a jit>", "exec"), given)
    function: StraightWay = given["straight"]
    return function
