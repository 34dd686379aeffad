"""Move a factor of 8 bits into the other type of 8 bits, for matrix units that mix the two.

LOOP form -> LOOP form: the action `offset`. Of c = a @ b of int8, before and after `offset(2, 1)`,
whose axis 2 is k, and whose parameter 1 is a:

    REDUCE(int32(a[i, k]) * int32(b[k, j]), k)
    REDUCE(int32(u[i, k]) * int32(b[k, j]), k) + REDUCE(int32(b[k', j]), k') * -128

    u[i, k] = uint8(a[i, k]) ^ 128              which is a[i, k] + 128

The processor's products of 8 bits (VPDPBUSD) take uint8 at the left and int8 at the right. A factor
of int8 is 128 more as uint8, one of uint8 is 128 less as int8; both are a changed highest bit. What
that adds to a sum of products is a sum of the other factor alone, which fewer loops need: here one
number for each column. Sums of integers wrap, so the result is the same, bit for bit.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD; B. Jacob
et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", 2018, section 2.3 (sums of one factor, apart from those of products).
"""

from __future__ import annotations

from typing import Final

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import Action, RangeArg
from pellucid.ir.op import Ops
from pellucid.ir.transform import next_range_id, substitute_free
from pellucid.ir.uop import UOp
from pellucid.opt.actions.legal import known_size, refuse, require_free_order, require_loop
from pellucid.opt.actions.units import factor_below
from pellucid.opt.axes import reduces_over

OTHERS: Final = {dtypes.int8: dtypes.uint8, dtypes.uint8: dtypes.int8}
"""The type that holds a factor once it is offset."""
_HIGHEST: Final = 128


def offset(sink: UOp, action: Action, axis: UOp, target: Target) -> UOp:
    """Offset the factor that reads a parameter; the amount is its slot."""
    require_free_order(sink, action)
    require_loop(action, axis)
    known_size(action, axis)
    node, changed, other = _factors(sink, action, axis)
    factor = _value_of(changed)
    dtype = OTHERS.get(factor.dtype)
    if dtype is None:
        raise refuse(action, f"a factor of {factor.dtype} has no other type of 8 bits")
    now = factor.cast(dtype)
    moved = (now ^ now.const_like(_HIGHEST if dtype.is_unsigned else -_HIGHEST)).cast(node.dtype)
    again = axis.replace(arg=RangeArg(next_range_id(sink), axis.arg.kind))
    alone = node.with_sources((substitute_free(other, {axis: again}), again))
    added = alone * alone.const_like(-_HIGHEST if dtype.is_unsigned else _HIGHEST)
    product = node.src[0].substitute({changed: moved})
    return sink.substitute({node: node.with_sources((product, axis)) + added})


def _factors(sink: UOp, action: Action, axis: UOp) -> tuple[UOp, UOp, UOp]:
    """The sum over the axis; of its factors, the one that reads the parameter, and the other."""
    nodes = [n for n in reduces_over(sink, axis) if n.src[1:] == (axis,)]
    if len(nodes) != 1 or len(reduces_over(sink, axis)) != 1:
        raise refuse(action, "it is not all that one reduction is over")
    (node,) = nodes
    is_sum = node.arg.op is Ops.ADD and node.dtype.is_int and node.src[0].op is Ops.MUL
    sides = node.src[0].src if is_sum else ()
    reads = [read[1] if (read := factor_below(side)) else None for side in sides]
    if not reads or None in reads:
        raise refuse(action, "what is summed is no product of two reads of integers")
    found = [s for s, r in zip(sides, reads, strict=True) if r is not None and _reads(r, action)]
    if len(found) != 1:
        raise refuse(action, f"{len(found)} factors read parameter {action.amount}")
    (changed,) = found
    return node, changed, sides[0] if changed is sides[1] else sides[1]


def _reads(read: UOp, action: Action) -> bool:
    return read.src[0].op is Ops.PARAM and read.src[0].arg.slot == action.amount


def _value_of(side: UOp) -> UOp:
    found = factor_below(side)
    assert found is not None, "both factors have been looked at"
    return found[0]
