"""Order along an axis: sort, argsort, topk.

    keys and places in one integer:  [3.0, 1.0]  ->  [key(3.0) * 2^32 + 0, key(1.0) * 2^32 + 1]
    sorted, the lower halves are the places of the elements in order: argsort; sort gathers there

Numbers become integers of the same order, NaN above all. The network is bitonic: in each round,
elements are compared with a partner at a fixed distance, so a round is elementwise, and
log2(n) (log2(n) + 1) / 2 rounds sort n elements (Batcher, "Sorting networks and their
applications", 1968). Places make all keys different, so the order is stable. One element alone is
found by a reduction, without sorting the others; the values of integers are sorted without places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self, TypeVar

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ShapeError
from pellucid.frontend import arguments
from pellucid.frontend.convolution import Convolution
from pellucid.frontend.reduce import Found, counting, first_place
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

T = TypeVar("T")

_HALF: Final = 1 << 32
_ROW: Final = 1024
"""Elements of a row that is sorted in cache: two copies of it stay in the first one."""
_ROW_BYTES: Final = 1 << 16
"""Of so many bytes, two copies stay in any second cache. (A million int64 take 14 % less time.)"""
_ROWS: Final = 64
"""Rows are longer than `_ROW` where so many of them are left for cores to share."""
_ROUNDS: Final = 2
"""Rounds of comparisons that are computed together."""
_FEW: Final = 32
"""So many elements are found one after the other, before it is better to sort all."""


class _Sorted(Found[T]):
    """What `sort` found; `values` that are used without the places are sorted without these."""

    alone: T | None = None

    @property
    def values(self) -> T:
        """The elements in order."""
        return self[0] if self.alone is None else self.alone


class Sorting(Convolution):
    """Methods that order."""

    __slots__ = ()

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """The places of the elements along an axis, in order; equal ones as they come.

        NaN counts as the largest: it is last, or first when descending.

        >>> Tensor([3.0, 1.0, 2.0]).argsort().tolist()
        [1, 2, 0]
        """
        return self._places(dim, descending, "argsort")

    def _places(self, dim: int, descending: bool, name: str) -> Self:
        if self.ndim == 0:
            return self._value(UOp.const(dtypes.int64, 0))
        place = arguments.axis(dim, self.ndim, name)
        turned = self.movedim(place, -1)
        key = _ordered(turned.uop)
        key = key ^ -1 if descending else key
        is_wide = self._dtype.bits == 64
        return self._value(_argsorted(key, is_wide=is_wide)).movedim(-1, place)

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Found[Self]:
        """The elements along an axis in order, and the places that they came from.

        >>> values, places = Tensor([3, 1, 2]).sort(descending=True)
        >>> values.tolist(), places.tolist()
        ([3, 2, 1], [0, 2, 1])
        """
        places = self._places(dim, descending, "sort")
        if self.ndim == 0:
            return Found(self.contiguous(), places)
        found = _Sorted(self._at(dim, places), places)
        if not self._dtype.is_float:
            found.alone = self._sorted_alone(dim, descending)
        return found

    def _sorted_alone(self, dim: int, descending: bool) -> Self:
        """Integers in order, without places: nobody can tell which of equal ones is which."""
        place = arguments.axis(dim, self.ndim, "sort")
        turned = self.movedim(place, -1)
        if 0 in turned._shape:
            return self.contiguous()
        key = _key(turned.uop)
        key = _sorted(key ^ -1) ^ -1 if descending else _sorted(key)
        return self._value(_from_key(key, self._dtype)).movedim(-1, place)

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Found[Self]:
        """The k largest (or smallest) elements along an axis in order, and their places.

        >>> values, places = Tensor([3, 1, 2]).topk(2)
        >>> values.tolist(), places.tolist()
        ([3, 2], [0, 2])
        """
        place = arguments.axis(dim, self.ndim, "topk")
        if self.ndim == 0 or not 0 <= k <= self._shape[place]:
            raise ShapeError(
                "topk takes at most as many elements as there are",
                rows=[("shape", self._shape), ("k", k)],
            )
        if k == 1:
            key, op = _ordered(self.uop), Ops.ARGMAX if largest else Ops.ARGMIN
            places = self._value(first_place(key, op, place, True))
        elif 0 < k <= _FEW and self._dtype.bits < 64:
            key = _ordered(self.movedim(place, -1).uop)
            found = _first_in_order(key if largest else key ^ -1, k)
            places = self._value(found).movedim(-1, place)
        else:
            places = self.argsort(place, descending=largest)._slice(place, 0, k)
        return Found(self._at(place, places), places)

    def median(self) -> Self:
        """The lower middle element of all; NaN if there is one.

        >>> Tensor([4, 1, 3, 2]).median().item()
        2
        """
        flat = self.flatten()
        if flat.numel() == 0:
            raise ShapeError("median of nothing has no value", came=self._shape)
        key = UOp.make(Ops.CONTIGUOUS, _key(flat.uop))
        middle = self._value(_place_of_rank(key, (flat.numel() - 1) // 2))
        # NaN is above all, so it is the middle of few only; if there is one, the last of all is one
        last = self._value(first_place(key, Ops.ARGMAX, 0, False))
        has_nan = flat.isnan().any()
        return flat._at(0, self._select(has_nan, last, middle).reshape(1)).reshape(())

    def _at(self, dim: int, places: Self) -> Self:
        """The elements at places that are known to exist."""
        place = arguments.axis(dim, self.ndim, "sort")
        shape = places._shape
        indices = [places.uop if i == place else counting(shape, i) for i in range(self.ndim)]
        return self._value(UOp.make(Ops.GATHER, self.uop, *indices))

    @classmethod
    def randperm(cls, n: int) -> Self:
        """The numbers from 0 to n - 1 in random order.

        >>> Tensor.randperm(3).sum().item()
        3
        """
        return cls.rand(n, dtype=dtypes.float64).argsort()


def _ordered(node: UOp) -> UOp:
    """int64 keys in the order of the elements: equal for equal elements, NaN above all."""
    return _key(node).cast(dtypes.int64)


def _key(node: UOp) -> UOp:
    """Keys in the order of the elements, as int32 where these suffice, else as int64."""
    dtype = node.dtype
    if dtype.is_float:
        wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        x = node.cast(wide) + 0.0  # -0.0 is 0.0
        signed = dtypes.int64 if wide is dtypes.float64 else dtypes.int32
        bits = x.bitcast(signed)
        flipped = bits ^ ((bits >> (signed.bits - 1)) & int(signed.max))
        return x.ne(x).where(flipped.const_like(signed.max), flipped)
    if dtype is dtypes.uint64 or dtype is dtypes.uint32:
        signed = dtypes.int64 if dtype is dtypes.uint64 else dtypes.int32
        return node.bitcast(signed) ^ int(signed.min)
    return node if dtype is dtypes.int64 else node.cast(dtypes.int32)


def _from_key(key: UOp, dtype: DType) -> UOp:
    """The integers that have these keys."""
    if dtype is dtypes.uint64 or dtype is dtypes.uint32:
        return (key ^ int(key.dtype.min)).bitcast(dtype)
    return key.cast(dtype)


def _place_of_rank(key: UOp, rank: int) -> UOp:
    """The first place of the key that has *rank* others before it in order, of one axis of keys.

    Two bits of it are found at a time, the highest first: it has them if no more keys than *rank*
    are below the number that has these bits, and no others behind them. So all keys are read half
    as often as they have bits, however many there are.
    """
    dtype, count = key.dtype, key.num_elems
    whole = (count,)
    found = UOp.const(dtype, dtype.min)
    for shift in range(dtype.bits - 2, -1, -2):
        best = found
        for digit in (1, 2, 3):
            more = _wrapped(digit << shift, dtype.bits)
            limit = found + more
            is_below = key < limit.reshape((1,)).expand(whole)
            below = UOp.make(Ops.REDUCE, is_below.cast(dtypes.int32), arg=ReduceArg(Ops.ADD, (0,)))
            best = (below <= rank).where(limit, best)
        found = UOp.make(Ops.CONTIGUOUS, best)
    is_found = key.eq(found.reshape((1,)).expand(whole))
    place = is_found.where(UOp(Ops.IOTA, dtypes.int64, (), count), count - 1)
    return UOp.make(Ops.REDUCE, place, arg=ReduceArg(Ops.MIN, (0,)))


def _wrapped(value: int, bits: int) -> int:
    """A number modulo 2^bits, as a signed one.

    >>> _wrapped(3 << 30, 32), _wrapped(5, 32)
    (-1073741824, 5)
    """
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def _argsorted(key: UOp, *, is_wide: bool) -> UOp:
    """The places that sort the last axis by its keys; wide keys by one half, then the other."""
    shape = key.known_shape
    position = counting(shape, len(shape) - 1)
    if shape[-1] < 2 or 0 in shape:
        return position
    if not is_wide:
        return _sorted(key * _HALF + position) & (_HALF - 1)
    low = (key & (_HALF - 1)) + -(1 << 31)
    first = _sorted(low * _HALF + position) & (_HALF - 1)
    rest = [counting(shape, i) for i in range(len(shape) - 1)]
    high = UOp.make(Ops.GATHER, key >> 32, *rest, first)
    second = _sorted(high * _HALF + position) & (_HALF - 1)
    return UOp.make(Ops.GATHER, first, *rest, second)


def _first_in_order(key: UOp, k: int) -> UOp:
    """The places of the k largest keys of at most 32 bits along the last axis, the largest first.

    One is found after the other: the largest of those below the one before. Keys and places are one
    number, so no two are equal; of equal keys the first place has the largest number.
    """
    *lead, size = key.known_shape
    lowest = dtypes.int64.min
    number = UOp.make(
        Ops.CONTIGUOUS, key * _HALF + (counting(key.known_shape, len(lead)) * -1 + (_HALF - 1))
    )
    rows, chosen = (*lead, k), None
    rank = counting(rows, len(lead))
    taken = number
    for place in range(k):
        largest = UOp.make(Ops.REDUCE, taken, arg=ReduceArg(Ops.MAX, (len(lead),)))
        largest = UOp.make(Ops.CONTIGUOUS, largest).reshape((*lead, 1))
        taken = (number < largest.expand((*lead, size))).where(number, lowest)
        found = largest.expand(rows)
        chosen = found if chosen is None else rank.eq(place).where(found, chosen)
    assert chosen is not None, "k is not 0"
    return (chosen & (_HALF - 1)) * -1 + (_HALF - 1)


def _sorted(node: UOp) -> UOp:
    """Sort integers along the last axis, filled up to a power of two with the largest number.

    Blocks of 2, 4, 8, … are sorted: the two halves of a block are, so one is read backwards and the
    smaller of each pair goes to the front; then halves of halves are compared forwards. Rounds at
    distances below the length of a row are about one row each, which stays in cache for all of
    them.
    """
    *lead, size = node.known_shape
    count = 1 << (size - 1).bit_length()
    width = min(count, max(_ROW, min(_ROW_BYTES // node.dtype.itemsize, count // _ROWS)))
    flat, rows = (*lead, count), (*lead, count // width, width)
    none = [(0, 0)] * len(lead)
    node = node.pad((*none, (0, count - size)), node.dtype.max)
    block = 2
    while block <= count:
        rounds = [(block, block), *((n // 2, n) for n in _halves(block // 2))]
        far = [r for r in rounds if r[1] > width]
        node = _in_steps(node.reshape(flat), far)
        node = _in_steps(node.reshape(rows), rounds[len(far) :])
        block *= 2
    return node.reshape(flat).shrink((*((0, n) for n in lead), (0, size)))


def _halves(block: int) -> Iterator[int]:
    """*block*, and half of it, down to 2."""
    while block > 1:
        yield block
        block //= 2


def _in_steps(node: UOp, rounds: Sequence[tuple[int, int]]) -> UOp:
    """Rounds of comparisons, a few in a kernel: of two, each element is read four times."""
    for number, (flipped, block) in enumerate(rounds, 1):
        node = _compared(node, flipped, block)
        if number % _ROUNDS == 0 or number == len(rounds):
            node = UOp.make(Ops.CONTIGUOUS, node)
    return node


def _compared(node: UOp, flipped: int, block: int) -> UOp:
    """Compare-exchange in blocks: with the mirror image (flipped = block) or the other half."""
    *lead, count = node.known_shape
    axis = len(lead) + 1
    x = node.reshape((*lead, count // block, 2, block // 2))
    partner = x.flip((axis, axis + 1) if flipped == block else (axis,))
    is_front = counting(x.known_shape, axis) < 1
    return is_front.where(x.minimum(partner), x.maximum(partner)).reshape((*lead, count))
