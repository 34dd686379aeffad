"""Which values are written where they are used, and not into a variable of their own.

    const float v0 = x1[i0];
    const float v1 = (v0 * 2.0f);
    x0[i0] = v1;                         becomes

    const float v0 = x1[i0];
    x0[i0] = v0 * 2.0f;

Reads of memory keep their variable, so that they stay where the program has them.
"""

from __future__ import annotations

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.program import SILENT, is_register, storage_of, value_of


def used_once_nearby(items: tuple[UOp, ...]) -> set[UOp]:
    """Pure values that one other item uses, in the same block: they may stand where they are used.

    A read of a register may too, where its one use goes into the register's one write of the block.
    """
    block, blocks = 0, 0
    block_of: dict[UOp, int] = {}
    uses: dict[UOp, list[tuple[UOp, int]]] = {}
    writes: dict[tuple[UOp, int], int] = {}
    for node in items:
        if node.op in (Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF):
            blocks += 1
            block = blocks
        block_of[node] = block
        if node.op in SILENT or node.op is Ops.END:
            continue
        sources = list(node.src)
        if node.op in (Ops.LOAD, Ops.STORE, Ops.PREFETCH):
            sources[0] = node.src[0].src[1]
            if node.op is Ops.STORE:
                place = (storage_of(node.src[0]), block)
                writes[place] = writes.get(place, 0) + 1
        for source in map(value_of, sources):
            uses.setdefault(source, []).append((node, block))
    once: set[UOp] = set()
    for node, users in uses.items():
        if len(users) != 1 or users[0][1] != block_of.get(node, -1):
            continue
        if node.op.is_elementwise or node.op is Ops.SPLAT:
            once.add(node)
        elif node.op is Ops.LOAD and is_register(storage_of(node.src[0])):
            if _feeds_own_write(node, users[0][0], uses, writes, block_of):
                once.add(node)
    return once


def _feeds_own_write(
    load: UOp,
    user: UOp,
    uses: dict[UOp, list[tuple[UOp, int]]],
    writes: dict[tuple[UOp, int], int],
    block_of: dict[UOp, int],
) -> bool:
    register = storage_of(load.src[0])
    users = uses.get(user, [])
    if writes.get((register, block_of[load])) != 1 or len(users) != 1:
        return False
    store = users[0][0]
    return store.op is Ops.STORE and storage_of(store.src[0]) is register
