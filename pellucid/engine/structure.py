"""The structure of a graph over storage: equal for graphs that differ in their BUFFERs only.

    ADD(MUL(RESHAPE(BUFFER 71), 3), 1)    and    ADD(MUL(RESHAPE(BUFFER 93), 3), 1)

have one key, and [BUFFER 71] or [BUFFER 93] beside it. The key is made without building a node, so
that a step that was realised before is found at once (engine/prepared.py). Two keys are equal only
if the graphs are; the scheduler's cache, which works on normalised graphs, finds more and costs
more.

The key lists the nodes as a walk from the roots meets them, each with how many sources it has, and
a number in place of a node that it met before: the graph can be built again from that.

    ADD 2, MUL 2, RESHAPE 1, BUFFER, <3>, <1>           <3> is the literal itself

What says nothing about values (LEAF with its number, DETACH) leaves no trace in the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_BUFFER, _CHECK, _EXPAND, _WRITE = Ops.BUFFER, Ops.CHECK, Ops.EXPAND, Ops.WRITE
_DETACH, _LEAF = Ops.DETACH, Ops.LEAF


class Structure(NamedTuple):
    """A graph's structure: its key, and the BUFFERs that take part, in order."""

    key: tuple[Any, ...]
    buffers: tuple[UOp, ...]
    has_writes: bool
    has_checks: bool


def structure_of(roots: Sequence[UOp]) -> Structure:
    """Read the structure of the graph below *roots*.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.uop import new_buffer
    >>> a, b = (new_buffer(4, dtypes.float32, "CPU") for _ in range(2))
    >>> structure_of([a * 3.0]).key == structure_of([b * 3.0]).key
    True
    >>> structure_of([a + a]).key == structure_of([a + b]).key
    False
    """
    numbers: dict[UOp, int] = {}
    key: list[Any] = [len(roots)]
    buffers: list[UOp] = []
    has_writes = has_checks = False
    stack = [*reversed(roots)]
    while stack:
        node = stack.pop()
        number = numbers.get(node)
        if number is not None:
            key.append(number)
            continue
        op, sources = node.op, node.src
        if op is _LEAF or op is _DETACH:
            stack.append(sources[0])
            continue
        numbers[node] = len(numbers)
        if op is _BUFFER:
            arg = node.arg
            buffers.append(node)
            key += (op, node.dtype, arg.size, arg.device)
        elif not sources or (op is _EXPAND and not sources[0].src and sources[0].op is not _BUFFER):
            key.append(node)  # without storage, held by the key: equal when the same
        else:
            if op is _WRITE:
                has_writes = True
            elif op is _CHECK:
                has_checks = True
            key += (op, node.dtype, node.arg, len(sources))
            stack += sources[::-1]
    return Structure(tuple(key), tuple(buffers), has_writes, has_checks)
