"""Reading a linear program: its leaves, its loops, and how its storage lies in memory.

    DEFINE acc; STORE acc, 0; RANGE i; … ; STORE acc, acc + x; END; LOAD acc
                              `-- loop_bodies: acc is set inside --'

A program is a LINEAR of native ops, each after its sources. RANGE opens a loop and END closes it,
IF and ENDIF likewise; a node that is no effect is a value, computed where it stands. AFTER and
GROUP only said in which order things happen, which is the order of the list now. A DEFINE in
registers of size 1 is a variable: LOAD reads it and STORE sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import AddrSpace, DefineArg
from pellucid.ir.bounds import bounds
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

SCRATCH_ALIGNMENT: Final = 64
"""Each piece of scratch memory starts at a multiple of this many bytes."""

SILENT: Final = frozenset(
    (
        *(Ops.CONST, Ops.PARAM, Ops.DEFINE, Ops.VARIABLE, Ops.INDEX),
        *(Ops.AFTER, Ops.GROUP, Ops.SINK, Ops.BARRIER),
    )
)
"""Items of a program that no line is written for: leaves, places, and order."""


def storage_of(node: UOp) -> UOp:
    """The PARAM or DEFINE below AFTERs and an INDEX.

    >>> acc = UOp(Ops.DEFINE, dtypes.int32, (), DefineArg(AddrSpace.REG, 0, 1))
    >>> storage_of(acc.after(acc)) is acc
    True
    """
    while node.op is Ops.AFTER or node.op is Ops.INDEX:
        node = node.src[0]
    return node


def value_of(node: UOp) -> UOp:
    """The node itself, below the AFTERs that said when it may be used."""
    while node.op is Ops.AFTER:
        node = node.src[0]
    return node


def is_register(storage: UOp) -> bool:
    """True for an accumulator that is one variable: in registers, of size 1."""
    arg = storage.arg
    return storage.op is Ops.DEFINE and arg.space is AddrSpace.REG and arg.size == 1


def storage_bytes(define: UOp) -> int:
    """Bytes of a DEFINE."""
    arg: DefineArg = define.arg
    return define.dtype.itemsize * arg.size


def scratch_layout(linear: UOp) -> tuple[dict[UOp, int], int]:
    """Offsets of a kernel's LOCAL storage in its scratch memory, and the bytes of all of it.

    >>> tile = UOp(Ops.DEFINE, dtypes.float32, (), DefineArg(AddrSpace.LOCAL, 0, 17))
    >>> scratch_layout(UOp(Ops.LINEAR, dtypes.void, (tile,)))[1]
    128
    """
    offsets: dict[UOp, int] = {}
    end = 0
    for node in linear.toposort():
        if node.op is Ops.DEFINE and node.arg.space is AddrSpace.LOCAL:
            offsets[node] = end
            end += -(-storage_bytes(node) // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return offsets, end


def streamed_bytes(items: tuple[UOp, ...]) -> dict[int, int]:
    """The slots of parameters that are written past the caches, and the widest vector for each."""
    found: dict[int, int] = {}
    for node in items:
        if node.op is Ops.STORE and node.arg == "stream":
            slot, size_bytes = storage_of(node.src[0]).arg.slot, node.src[1].dtype.itemsize
            found[slot] = max(found.get(slot, 0), size_bytes)
    return dict(sorted(found.items()))


def joined_pairs(items: tuple[UOp, ...]) -> set[UOp]:
    """The STACKs of two vectors of which nothing is asked but lanes: none need stand as one vector.

    >>> v = UOp.const(dtypes.float32.vec(4), 1.0)
    >>> both = UOp(Ops.STACK, dtypes.float32.vec(8), (v, v))
    >>> [len(joined_pairs((both, user))) for user in (both.lane((0, 4)), both.lane(0), -both)]
    [1, 0, 0]
    """
    pairs = {n for n in items if n.op is Ops.STACK and _joins_two_vectors(n)}
    if pairs:
        for node in items:
            if node.op is not Ops.LANE or node.dtype.lanes == 1:
                pairs.difference_update([value_of(source) for source in node.src])
    return pairs


def _joins_two_vectors(stack: UOp) -> bool:
    lanes = [source.dtype.lanes for source in stack.src]
    return len(lanes) == 2 and lanes[0] == lanes[1] > 1


def loop_bodies(items: tuple[UOp, ...]) -> dict[UOp, tuple[UOp, ...]]:
    """The registers that are set between each RANGE or IF and the END or ENDIF that closes it."""
    found: dict[UOp, dict[UOp, None]] = {}
    open_blocks: list[UOp] = []
    for node in items:
        if node.op is Ops.RANGE or node.op is Ops.IF:
            open_blocks.append(node)
            found[node] = {}
        elif node.op is Ops.END:
            del open_blocks[len(open_blocks) - len(closed_ranges(node)) :]
        elif node.op is Ops.ENDIF:
            open_blocks.pop()
        elif node.op is Ops.STORE and open_blocks:
            storage = storage_of(node.src[0])
            if is_register(storage):
                for block in open_blocks:
                    found[block][storage] = None
    return {block: tuple(registers) for block, registers in found.items()}


def closed_ranges(end: UOp) -> list[UOp]:
    """The loops that an END closes."""
    return [source for source in end.src[1:] if source.op is Ops.RANGE]


def leaves(linear: UOp, op: Op) -> Iterator[UOp]:
    """The nodes of a leaf *op* in a program, each once, in a fixed order."""
    return (node for node in linear.toposort() if node.op is op)


def cannot_wrap(node: UOp) -> bool:
    """True where bounds prove that an integer ADD, SUB or MUL stays inside of its type."""
    if node.dtype.lanes > 1 or not node.dtype.is_int:
        return False
    left, right = bounds(node.src[0]), bounds(node.src[1])
    corners = _CORNERS[node.op](left.min, left.max, right.min, right.max)
    return int(node.dtype.min) <= min(corners) and max(corners) <= int(node.dtype.max)


_CORNERS: Final[dict[Op, Callable[[int, int, int, int], tuple[int, ...]]]] = {
    Ops.ADD: lambda a, b, c, d: (a + c, b + d),
    Ops.SUB: lambda a, b, c, d: (a - d, b - c),
    Ops.MUL: lambda a, b, c, d: (a * c, a * d, b * c, b * d),
}


def memory_dtype(dtype: DType) -> DType:
    """How a value lies in memory: a bool is a byte, 0 or 1; all else is itself."""
    return dtypes.uint8.vec(dtype.lanes) if dtype.is_bool else dtype
