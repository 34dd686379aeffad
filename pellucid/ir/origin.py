"""Which lines of the user's program a node came from, while someone is tracing.

The table is beside the graph, so that nodes stay interned and cost nothing extra. While nobody
records, `recording` is False and the rewriter does not look here.

    with recording_origins():
        record(node, "train.py:41 h = x @ w")
        …                                        # rewrites hand lines on to what they make
        of(lowered)      ->  ("train.py:41 h = x @ w",)
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

from pellucid.ir.uop import UOp

recording: bool = False
"""True while origins are recorded and inherited."""

_lines: weakref.WeakKeyDictionary[UOp, tuple[str, ...]] = weakref.WeakKeyDictionary()


def record(node: UOp, *lines: str) -> None:
    """Say that *node* comes from *lines* (added to what is known already, in order, each once)."""
    known = _lines.get(node, ())
    _lines[node] = known + tuple(line for line in dict.fromkeys(lines) if line not in known)


def record_new(node: UOp, line: str) -> None:
    """Say that *line* made *node*, and all below it that no line is known for."""
    record(node, line)
    stack = list(node.src)
    while stack:
        below = stack.pop()
        if below not in _lines and below.src:
            record(below, line)
            stack.extend(below.src)


def of(node: UOp) -> tuple[str, ...]:
    """The lines that *node* came from; empty when nobody recorded."""
    return _lines.get(node, ())


def inherit(before: UOp, after: UOp) -> None:
    """Give the lines of *before* to *after* and to all that was made with it."""
    lines = _lines.get(before)
    if lines is None:
        return
    stack, seen = [after], {before, *before.src}
    while stack:
        node = stack.pop()
        if node in seen or node in _lines:
            continue
        seen.add(node)
        record(node, *lines)
        stack.extend(node.src)


@contextlib.contextmanager
def recording_origins() -> Iterator[None]:
    """Record and inherit origins in a block."""
    global recording
    before, recording = recording, True
    try:
        yield
    finally:
        recording = before
