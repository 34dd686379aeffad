"""The structure of a graph over storage: equal for graphs that differ in their BUFFERs only.

    ADD(MUL(RESHAPE(BUFFER 71), 3), 1)    and    ADD(MUL(RESHAPE(BUFFER 93), 3), 1)

have one key, and [BUFFER 71] or [BUFFER 93] beside it. The key is made without building a node,
about half a microsecond for each, so that a step that was realised before is found at once
(engine/prepared.py). Two keys are equal only if the graphs are; the scheduler's cache, which works
on normalised graphs, finds more and costs more.

What says nothing about values (LEAF with its number, DETACH) leaves no trace in the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

_BUFFER, _WRITE, _CHECK = Ops.BUFFER, Ops.WRITE, Ops.CHECK
_SILENT = (Ops.LEAF, Ops.DETACH)


@dataclass(frozen=True, slots=True)
class Structure:
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
    key: list[Any] = []
    buffers: list[UOp] = []
    has_writes = has_checks = False
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        op, sources = node.op, node.src
        if not sources:
            stack.pop()
            if op is _BUFFER:
                arg = node.arg
                buffers.append(node)
                key.append((op, node.dtype, arg.size, arg.device))
            else:
                key.append(node)  # a leaf without storage, held by the key: equal when the same
            numbers[node] = len(key)
            continue
        waiting = len(stack)
        stack += [source for source in sources if source not in numbers]
        if len(stack) > waiting:
            continue
        stack.pop()
        if op in _SILENT:
            numbers[node] = numbers[sources[0]]
            continue
        if op is _WRITE:
            has_writes = True
        elif op is _CHECK:
            has_checks = True
        key.append((op, node.dtype, node.arg, *[numbers[source] for source in sources]))
        numbers[node] = len(key)
    key.append(tuple([numbers[root] for root in roots]))
    return Structure(tuple(key), tuple(buffers), has_writes, has_checks)
