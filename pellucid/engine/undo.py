"""Take back writes that cannot be done: a statement with a bad index is as if it had not been made.

    x[index] = 7        x means WRITE(old, …, SCATTER(old, 7, CHECK(index, flag)))
    x.realize()         the flag is set: IndexError, and x means old again

Only the write that failed goes; writes before and after it stay. What was read at a bad index has
no value and keeps raising.
"""

from __future__ import annotations

from collections.abc import Iterable

from pellucid.engine import history
from pellucid.engine.storage import live_nodes
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes


def take_back(failed: set[UOp]) -> None:
    """Let every storage forget the writes that depend on one of the CHECKs that *failed*."""
    bad = _writes_with(failed, [node for _, node in live_nodes()])
    if not bad:
        return
    for storage, before in live_nodes():
        after = before.substitute(bad)
        if after is before:
            continue
        storage.uop = after
        if storage.owner is not None:
            history.mark_leaf(after, storage)


def _writes_with(failed: set[UOp], nodes: Iterable[UOp]) -> dict[UOp, UOp]:
    """The WRITEs that cannot be done, each with what its storage meant before it."""
    bad: dict[UOp, UOp] = {}
    for node in all_nodes(nodes):
        if node.op is Ops.WRITE and _depends(node.src[2], failed, bad):
            bad[node] = node.src[0].substitute(bad)
    return bad


def _depends(value: UOp, failed: set[UOp], bad: dict[UOp, UOp]) -> bool:
    """Whether a value needs a failed CHECK, but for writes that are taken back anyway."""
    return any(node in failed for node in value.toposort(lambda n: n not in bad))
