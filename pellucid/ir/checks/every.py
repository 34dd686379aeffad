"""What every form promises of a node: its sources, its type, its literals.

    elementwise_sources_agree(ADD of int32 and float32)  ->  "ADD of int32, float32"

What is asked here follows from the node and its sources alone, at every level.
"""

from __future__ import annotations

import math
from typing import Final

from pellucid.core.dtype import dtypes, to_scalar
from pellucid.ir.checks import Message, names_of
from pellucid.ir.op import PAIR_OPS, TRANSCENDENTAL, Group, Ops
from pellucid.ir.uop import UOp, arg_text


def sources_fit_the_row(node: UOp) -> Message:
    """A node has as many sources as its row in the op table names."""
    names = node.op.sources
    least = sum(not name.endswith(("?", "*")) for name in names)
    most = math.inf if any(name.endswith("*") for name in names) else len(names)
    if least <= len(node.src) <= most:
        return None
    return f"{node.op.name} has {len(node.src)} sources; its row names {' '.join(names) or 'none'}"


def literals_are_of_their_type(node: UOp) -> Message:
    """The value of a CONST is one that its type holds, one for all lanes or one for each."""
    if node.op is not Ops.CONST:
        return None
    values = node.arg if isinstance(node.arg, tuple) else (node.arg,)
    if len(values) not in (1, node.dtype.lanes):
        return f"CONST of {node.dtype} has {len(values)} values"
    for value in values:
        held = to_scalar(node.dtype.scalar, value)
        if type(held) is not type(value) or arg_text(held) != arg_text(value):
            return f"CONST of {node.dtype} cannot be {value!r}"
    return None


def elementwise_sources_agree(node: UOp) -> Message:
    """All sources of an elementwise op have one type (conditions: bool) and as many lanes."""
    if not node.op.is_elementwise:
        return None
    alike = node.src[1:] if node.op is Ops.WHERE else node.src
    if len({s.dtype for s in alike}) > 1:
        return f"{node.op.name} of {names_of(s.dtype for s in alike)}"
    if len({s.dtype.lanes for s in node.src}) > 1:
        return f"{node.op.name} of {names_of(s.dtype.lanes for s in node.src)} lanes"
    return None


def result_types_follow(node: UOp) -> Message:
    """The type of a node is the one that its row derives from the types of its sources."""
    if node.op is Ops.INDEX:
        expected = node.src[0].dtype.scalar.vec(node.dtype.lanes)
    elif node.op in (Ops.CAST, Ops.BITCAST, Ops.FTOI):
        expected = node.dtype.vec(node.src[0].dtype.lanes)
    elif node.op.result is not None and node.src:
        expected = node.op.result([s.dtype for s in node.src])
    elif node.op.result is not None and node.op.group in (Group.CONTROL, Group.PROGRAM):
        expected = dtypes.void
    else:
        return None
    return None if node.dtype is expected else f"{node.op.name} gives {expected}, not {node.dtype}"


def ops_fit_their_types(node: UOp) -> Message:
    """Float ops take floats, integer ops integers, bit ops integers and bools."""
    if not node.op.is_elementwise or not node.src:
        return None
    dtype = node.src[-1].dtype.scalar
    if node.op is Ops.THREEFRY:
        return None if dtype is dtypes.uint64 else f"THREEFRY of {dtype}"
    if dtype is dtypes.void:
        return f"{node.op.name} of an effect"
    if node.op in _OF_FLOATS and not dtype.is_float:
        return f"{node.op.name} of {dtype}, which is not a float"
    if node.op in _OF_INTEGERS and not dtype.is_int:
        return f"{node.op.name} of {dtype}, which is not an integer"
    if node.op in _OF_BITS and not (dtype.is_int or dtype.is_bool):
        return f"{node.op.name} of {dtype}, which is not an integer or bool"
    return None


def conditions_are_bool(node: UOp) -> Message:
    """What decides (of WHERE and IF, validity, gates) is a bool."""
    place = _CONDITIONS.get(node.op)
    if place is None or len(node.src) <= place or node.src[place].dtype.is_bool:
        return None
    return f"{node.op.name} decides by {node.src[place].dtype}"


def bitcasts_keep_the_width(node: UOp) -> Message:
    """A BITCAST goes between types of equal size."""
    if node.op is not Ops.BITCAST or node.src[0].dtype.itemsize == node.dtype.itemsize:
        return None
    return f"BITCAST from {node.src[0].dtype} to {node.dtype}"


def casts_change_the_type(node: UOp) -> Message:
    """A CAST to the type that its source has is its source."""
    if node.op in (Ops.CAST, Ops.BITCAST) and node.src[0].dtype is node.dtype:
        return f"{node.op.name} from {node.dtype} to itself"
    return None


def pairs_are_reduced_as_pairs(node: UOp) -> Message:
    """What ARGMAX and ARGMIN reduce is a PAIR, and nothing else reduces one."""
    if node.op is not Ops.REDUCE:
        return None
    is_pair = node.src[0].op is Ops.PAIR
    if is_pair == (node.arg.op in PAIR_OPS):
        return None
    return f"REDUCE of {node.src[0].op.name} by {node.arg.op.name}"


_FLOAT_ONLY: Final = (Ops.FDIV, Ops.SQRT, Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND, Ops.FTOI)
_OF_FLOATS: Final = frozenset(_FLOAT_ONLY) | (set(TRANSCENDENTAL) - {Ops.THREEFRY})
_OF_INTEGERS: Final = {
    *(Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.IDIV, Ops.IMOD),
    *(Ops.SHL, Ops.SHR, Ops.ISHL, Ops.ISHR),
}
_OF_BITS: Final = frozenset([Ops.AND, Ops.OR, Ops.XOR])
_CONDITIONS: Final = {Ops.WHERE: 0, Ops.IF: 0, Ops.INDEX: 2, Ops.LOAD: 2, Ops.STORE: 2}
