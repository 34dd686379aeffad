"""Reductions of pairs: each value comes with a key, and the keys decide what becomes of the values.

    REDUCE(PAIR(k, x[k]), k, ARGMAX)        the place of the largest x: of several, the first

A PAIR is no value of its own: it stands under a REDUCE, or is what a reduction of pairs was made
into; then it means its value, and the key goes along for those who join it with another one:

    joined(ARGMAX, (p, x), (q, y))   value: q where y beats x, p where x beats y, else min(p, q)
                                     key: y where y beats x, else x

An ARGMAX joins in any order and any grouping, so lanes, copies, blocks and threads are those of
every other reduction, and one loop over the data finds a place and its key. NaN beats what is not
NaN, and zeros of both signs are equal (semantics.md, "Floats").

An op of this family is a row of the op table and a case of `joined` and of the interpreter's
`reduce_pairs`. A sum that is scaled again whenever its running maximum grows (M. Milakov,
N. Gimelshein, "Online normalizer calculation for softmax", 2018), and moments that are merged
(T. Chan, G. Golub, R. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances", 1979), have the same shape: a key that is reduced by itself, and a value joined by it.
"""

from __future__ import annotations

from pellucid.core.dtype import DType, Scalar
from pellucid.ir.op import PAIR_OPS, Op, Ops
from pellucid.ir.uop import UOp


def paired(value: UOp, key: UOp) -> UOp:
    """The PAIR of a value and the key that decides about it."""
    return UOp.make(Ops.PAIR, value, key)


def parts(node: UOp) -> tuple[UOp, UOp]:
    """Value and key of a PAIR, or of a REDUCE of pairs: its key is reduced in the same loop.

    >>> from pellucid.core.dtype import dtypes
    >>> one, two = UOp.const(dtypes.int32, 1), UOp.const(dtypes.float32, 2.0)
    >>> parts(paired(one, two)) == (one, two)
    True
    """
    if node.op is Ops.PAIR:
        return node.src[0], node.src[1]
    assert is_of_pairs(node), "only pairs have a value and a key"
    return node, key_of(node)


def is_of_pairs(node: UOp) -> bool:
    """True for a REDUCE of PAIRs."""
    return node.op is Ops.REDUCE and node.arg.op in PAIR_OPS


def key_of(node: UOp) -> UOp:
    """The key that a REDUCE of pairs ends with: the same reduction, with the key as the value."""
    key = node.src[0].src[1]
    return UOp(Ops.REDUCE, key.dtype, (paired(key, key), *node.src[1:]), node.arg)


def value_of(node: UOp) -> UOp:
    """What a PAIR means where nothing is decided any more; other nodes mean themselves."""
    while node.op is Ops.PAIR:
        node = node.src[0]
    return node


def joined(op: Op, first: UOp, second: UOp) -> UOp:
    """Join two results of one reduction: by the op itself, or as pairs, to a PAIR."""
    if op not in PAIR_OPS:
        return first.alu(op, second)
    (value, key), (other, other_key) = parts(first), parts(second)
    wins = beats(op, other_key, key)
    best = wins.where(other_key, key)
    if value is key and other is other_key:
        return paired(best, best)
    loses = beats(op, key, other_key)
    return paired(wins.where(other, loses.where(value, value.minimum(other))), best)


def beats(op: Op, key: UOp, other: UOp) -> UOp:
    """Whether a pair with *key* is taken before one with *other*, whatever their values are."""
    larger, smaller = (key, other) if op is Ops.ARGMAX else (other, key)
    if not key.dtype.is_float:
        return smaller < larger
    # "not (x <= y)" is "x > y, or one of them is NaN"
    return (larger <= smaller).logical_not() & other.eq(other)


def identity_of_key(op: Op, dtype: DType) -> Scalar:
    """The key that every other one beats, but for those equal to it."""
    return (Ops.MAX if op is Ops.ARGMAX else Ops.MIN).identity_for(dtype)


def lanes_of(node: UOp, which: int | tuple[int, ...]) -> UOp:
    """Some lanes of a value, or of both parts of a pair."""
    if node.op is Ops.PAIR or is_of_pairs(node):
        value, key = parts(node)
        return paired(value.lane(which), key.lane(which))
    return node.lane(which)
