"""Sums of exponentials below a maximum, made of parts of a long row: both in one pass.

Form before: TENSOR, a sum over the whole row behind its maximum. After: TENSOR, both of the parts.

    m = largest x[i];  s = sum of exp(x[i] - m)                                    x over 2^24
        ->  m[p] = largest x[i] of part p;  s[p] = sum of exp(x[i] - m[p])         1024 parts
            m = largest m[p];  s = sum of s[p] * exp(m[p] - m)

A part stays in cache between its maximum and its sum, so memory is read once for both; and threads
share the parts. The law, exp(x - n) * exp(n - m) = exp(x - m), is one of real numbers
(ir/laws/rescaling.py); what it costs is a function within a unit and a product, of the 2 log2(n)
epsilons that a sum may be off. A part whose maximum is not finite takes 0 in place of it: the sum
of a part of -inf is 0 then, and its factor too; with +inf or NaN both are what all would be.

Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

Parts = Callable[[UOp, Op], UOp]
"""The stored reductions of the parts of a tensor."""


def in_parts(source: UOp, axis: int, count: int, reduced: Parts) -> UOp | None:
    """For each part, its share of the sum of *source*; None where that is no such sum."""
    found = _read(source)
    if found is None:
        return None
    x, largest = found
    shape = source.known_shape
    split = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
    tops = reduced(x.reshape(split), Ops.MAX)
    if not _is_largest(largest.src[0], tops):
        return None
    one = (*shape[:axis], count, 1, *shape[axis + 1 :])
    safe = tops.alu(Ops.MAX, tops * -1.0).alu(Ops.CMPLT, tops.const_like(math.inf))
    safe = safe.where(tops, tops.const_like(0.0))
    away = x.reshape(split) + safe.reshape(one).expand(split) * -1.0
    sums = reduced(UOp.make(Ops.EXP, away), Ops.ADD)
    if largest.src[0].known_shape != (*shape[:axis], 1, *shape[axis + 1 :]):
        return None
    whole = largest.src[0].expand(tops.known_shape)
    return sums * UOp.make(Ops.EXP, tops + whole * -1.0)


def _read(source: UOp) -> tuple[UOp, UOp] | None:
    """What a row is, and what is taken away from all of it, in an exponential."""
    if source.op is not Ops.EXP or source.src[0].op is not Ops.ADD or source.dtype.bits < 32:
        return None
    for x, minus in (source.src[0].src, source.src[0].src[::-1]):
        if minus.op is Ops.MUL and minus.src[0].op is Ops.EXPAND and _is_minus_one(minus.src[1]):
            return x, minus.src[0]
    return None


def _is_minus_one(node: UOp) -> bool:
    while node.op is Ops.EXPAND or node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.CONST and node.arg == -1


def _is_largest(value: UOp, tops: UOp) -> bool:
    """True for the largest of the parts' maxima; and for 0 where that is not finite."""
    if value.op is Ops.WHERE:
        value = value.src[1]
    while value.op is Ops.RESHAPE:
        value = value.src[0]
    return value.op is Ops.REDUCE and value.arg.op is Ops.MAX and value.src[0] is tops
