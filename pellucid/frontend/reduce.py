"""Combining elements along axes: sum, max, mean, argmax, cumsum, …

    x.sum()    x.sum(0)    x.max((0, 1), keepdim=True)    x.mean(-1)    x.argmax()

Integers add up in int64; narrow floats in float32, rounded once at the end. NaN goes through every
reduction. Of nothing, sum is 0, prod 1, all True, any False, mean NaN; max of nothing is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DTypeError, ShapeError
from pellucid.frontend import arguments
from pellucid.frontend.arguments import Axes, DTypeLike
from pellucid.frontend.elementwise import Elementwise
from pellucid.frontend.operands import Operand
from pellucid.ir import deviations  # noqa: F401  its rule is that of the gradient of a variance
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Op, Ops
from pellucid.ir.pairs import paired
from pellucid.ir.uop import UOp

T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """Elements that were looked for along an axis, and where along it they were."""

    values: T
    indices: T


class Reduce(Elementwise):
    """Methods that combine along axes."""

    __slots__ = ()

    def _reduced(self, node: UOp, op: Op, dim: Axes, keepdim: bool, name: str) -> Self:
        """REDUCE *node*, which has this tensor's shape, over the axes that *dim* names."""
        chosen = arguments.axes(dim, self.ndim, name)
        return self._value(_reduce(node, op, chosen, keepdim))

    def _nonempty(self, dim: Axes, name: str) -> None:
        chosen = arguments.axes(dim, self.ndim, name)
        if any(self._shape[i] == 0 for i in chosen):
            raise ShapeError(
                f"{name} of nothing has no value",
                rows=[("shape", self._shape), ("axes", chosen)],
                help=f"{name} needs at least one element along the axes it reduces",
            )

    # ---- sums and products ----------------------------------------------------------------------

    def sum(self, dim: Axes = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Add up along *dim* (all axes if None). Integers and bools give int64.

        >>> Tensor([[1, 2], [3, 4]]).sum(0).tolist()
        [4, 6]
        """
        return self._accumulated(Ops.ADD, dim, keepdim, dtype, "sum")

    def prod(self, dim: Axes = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Multiply along *dim* (all axes if None). Integers and bools give int64.

        >>> Tensor([[1, 2], [3, 4]]).prod(1).tolist()
        [2, 12]
        """
        return self._accumulated(Ops.MUL, dim, keepdim, dtype, "prod")

    def _accumulated(
        self, op: Op, dim: Axes, keepdim: bool, dtype: DTypeLike | None, name: str
    ) -> Self:
        result = accumulated_dtype(self._dtype) if dtype is None else arguments.dtype(dtype, name)
        wide = dtypes.float32 if result.is_float and result.bits < 32 else result
        summed = self._reduced(self.uop.cast(wide), op, dim, keepdim, name)
        return summed.cast(result)

    def mean(self, dim: Axes = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The average along *dim*; NaN of nothing. Integers become the default float first.

        dtype: of the result, and of what is averaged.

        >>> Tensor([1.0, 2.0, 6.0]).mean().tolist()
        3.0
        """
        if dtype is not None:
            return self.cast(dtype).mean(dim, keepdim)
        result = self._promoted_float()
        chosen = arguments.axes(dim, self.ndim, "mean")
        count = math.prod(self._shape[i] for i in chosen)
        wide = self.cast(_wide(result))
        average = (wide.sum(chosen) / count).cast(result)
        kept = tuple(1 if i in chosen else n for i, n in enumerate(self._shape))
        return average.reshape(kept) if keepdim else average  # the same value, kept or not

    def var(self, dim: Axes = None, correction: int = 1, keepdim: bool = False) -> Self:
        """The variance along *dim*: sum of squares about the mean over (count - correction).

        >>> Tensor([1.0, 3.0]).var().tolist(), Tensor([1.0, 3.0]).var(correction=0).tolist()
        (2.0, 1.0)
        """
        result = self._promoted_float()
        chosen = arguments.axes(dim, self.ndim, "var")
        count = math.prod(self._shape[i] for i in chosen)
        wide = self.cast(_wide(result))
        away = wide - wide.mean(chosen, keepdim=True)
        total = (away * away).sum(chosen, keepdim)
        return (total / max(count - correction, 0)).cast(result)

    def std(self, dim: Axes = None, correction: int = 1, keepdim: bool = False) -> Self:
        """The square root of the variance.

        >>> Tensor([1.0, 2.0, 3.0]).std().item()
        1.0
        """
        return self.var(dim, correction, keepdim).sqrt()

    def var_mean(
        self, dim: Axes = None, correction: int = 1, keepdim: bool = False
    ) -> tuple[Self, Self]:
        """Variance and mean.

        >>> [x.item() for x in Tensor([1.0, 2.0, 3.0]).var_mean()]
        [1.0, 2.0]
        """
        return self.var(dim, correction, keepdim), self.mean(dim, keepdim)

    def norm(self, p: Any = 2, dim: Axes = None, keepdim: bool = False) -> Self:
        """The p-norm along *dim*: (sum |x|^p)^(1/p); for p = inf the largest magnitude.

        >>> Tensor([3.0, 4.0]).norm().item()
        5.0
        """
        size = self.cast(self._promoted_float()).abs()
        if p in (math.inf, "inf"):
            return size.amax(dim, keepdim)
        if p == 2 or p == "fro":
            return (size * size).sum(dim, keepdim).sqrt()
        if p == 1:
            return size.sum(dim, keepdim)
        if p == 0:
            return size.ne(0).sum(dim, keepdim).cast(size._dtype)
        return size.pow(float(p)).sum(dim, keepdim).pow(1.0 / p)

    # ---- extremes -------------------------------------------------------------------------------

    def amax(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """The largest element along *dim*; NaN if there is one; ties share the gradient.

        >>> Tensor([[1, 5], [4, 2]]).amax(0).tolist()
        [4, 5]
        """
        self._nonempty(dim, "max")
        return self._reduced(self.uop, Ops.MAX, dim, keepdim, "max")

    def amin(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """The smallest element along *dim*; NaN if there is one.

        >>> Tensor([[1, 5], [4, 2]]).amin(0).tolist()
        [1, 2]
        """
        self._nonempty(dim, "min")
        return self._reduced(self.uop, Ops.MIN, dim, keepdim, "min")

    @overload
    def max(self, dim: None = None, keepdim: bool = False) -> Self: ...
    @overload
    def max(self, dim: int, keepdim: bool = False) -> Found[Self]: ...
    @overload
    def max(self, dim: Sequence[int] | Self, keepdim: bool = False) -> Self: ...

    def max(self, dim: Axes | Self = None, keepdim: bool = False) -> Self | Found[Self]:
        """The largest element; along one axis also its place; or the larger of two tensors.

        A place that nobody reads is not computed. Along several axes, `max` is `amax`.

        >>> x = Tensor([[1, 5], [7, 2]])
        >>> x.max().item(), x.max((0, 1)).item(), x.max(Tensor(4)).tolist()
        (7, 7, [[4, 5], [7, 4]])
        >>> values, indices = x.max(1)
        >>> values.tolist(), indices.tolist()
        ([5, 7], [1, 0])
        """
        if isinstance(dim, Reduce):
            return self.maximum(dim)
        values = self.amax(dim, keepdim)
        return Found(values, self.argmax(dim, keepdim)) if isinstance(dim, int) else values

    @overload
    def min(self, dim: None = None, keepdim: bool = False) -> Self: ...
    @overload
    def min(self, dim: int, keepdim: bool = False) -> Found[Self]: ...
    @overload
    def min(self, dim: Sequence[int] | Self, keepdim: bool = False) -> Self: ...

    def min(self, dim: Axes | Self = None, keepdim: bool = False) -> Self | Found[Self]:
        """The smallest element; along one axis also its place; or the smaller of two tensors.

        >>> Tensor([[1, 5], [7, 2]]).min(0).indices.tolist()
        [0, 1]
        """
        if isinstance(dim, Reduce):
            return self.minimum(dim)
        values = self.amin(dim, keepdim)
        return Found(values, self.argmin(dim, keepdim)) if isinstance(dim, int) else values

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """The first place of the largest element, or of the first NaN.

        >>> Tensor([1.0, float("nan"), 3.0]).argmax().tolist()
        1
        """
        return self._place_of(Ops.ARGMAX, dim, keepdim, "argmax")

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """The first place of the smallest element, or of the first NaN.

        >>> Tensor([3, 1, 1]).argmin().item()
        1
        """
        return self._place_of(Ops.ARGMIN, dim, keepdim, "argmin")

    def _place_of(self, op: Op, dim: Axes, keepdim: bool, name: str) -> Self:
        """The place along an axis that *op*, ARGMAX or ARGMIN, finds."""
        if dim is None:
            flat = self.flatten()._place_of(op, 0, False, name)
            return flat.reshape((1,) * self.ndim) if keepdim else flat
        self._nonempty(dim, name)
        place = arguments.axis(dim, self.ndim, name)
        x = self.reshape(1) if self.ndim == 0 else self
        return self._value(
            first_place(x.uop.cast(_wide(x._dtype)), op, place, keepdim and self.ndim > 0)
        )

    def all(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """True where no element along *dim* is 0.

        >>> Tensor([[1, 0], [2, 3]]).all(1).tolist()
        [False, True]
        """
        return self._reduced(self.uop.cast(dtypes.bool), Ops.AND, dim, keepdim, "all")

    def any(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """True where some element along *dim* is not 0.

        >>> Tensor([[0, 0], [2, 0]]).any(1).tolist()
        [False, True]
        """
        return self._reduced(self.uop.cast(dtypes.bool), Ops.OR, dim, keepdim, "any")

    def allclose(
        self,
        other: Operand,
        rtol: float = 1e-05,
        atol: float = 1e-08,
        equal_nan: bool = False,
    ) -> bool:
        """Tell whether all elements are close, as `isclose` means it; computes now.

        >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.000001]))
        True
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    # ---- exponentials ---------------------------------------------------------------------------

    def logsumexp(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """log(sum(exp(self))) without overflow; -inf where all is -inf.

            m + log sum_i exp(x_i - m)      m = max_i x_i, or 0 where that is infinite

        >>> Tensor([1000.0, 1000.0]).logsumexp().tolist()
        1000.6931762695312
        """
        x = self.cast(self._promoted_float())
        if math.prod(x._shape[i] for i in arguments.axes(dim, x.ndim, "logsumexp")) == 0:
            return x.exp().sum(dim, keepdim).log()
        top = x.detach().amax(dim, keepdim=True)
        safe = top.where(top.isfinite(), 0)
        total = (x - safe).exp().sum(dim, keepdim=True).log() + safe
        return total if keepdim else total.squeeze(arguments.axes(dim, x.ndim, "logsumexp"))

    def softmax(self, dim: int = -1, dtype: DTypeLike | None = None) -> Self:
        """Scale values along *dim* to be positive and sum to one.

            softmax(x)[i] = exp(x[i] - m) / sum_j exp(x[j] - m)      m = max_j x[j]

        Subtracting m changes nothing in exact arithmetic and keeps exp from overflowing.

        >>> Tensor([1.0, 1.0]).softmax(0).tolist()
        [0.5, 0.5]
        """
        x = self._logits(dtype)
        place = arguments.axis(dim, x.ndim, "softmax")
        if 0 in x._shape:
            return x.exp()
        grown = (x - x.detach().amax(place, keepdim=True)).exp()
        return (grown / grown.sum(place, keepdim=True)).cast(self._softmax_dtype(dtype))

    def log_softmax(self, dim: int = -1, dtype: DTypeLike | None = None) -> Self:
        """log(softmax(self)), computed without dividing.

        >>> [round(x, 3) for x in Tensor([0.0, 0.0]).log_softmax().exp().tolist()]
        [0.5, 0.5]
        """
        x = self._logits(dtype)
        place = arguments.axis(dim, x.ndim, "log_softmax")
        if 0 in x._shape:
            return x
        away = x - x.detach().amax(place, keepdim=True)
        result = away - away.exp().sum(place, keepdim=True).log()
        return result.cast(self._softmax_dtype(dtype))

    def _softmax_dtype(self, dtype: DTypeLike | None) -> DType:
        return self._promoted_float() if dtype is None else arguments.dtype(dtype, "softmax")

    def _logits(self, dtype: DTypeLike | None) -> Self:
        """This tensor in the width in which a softmax is computed."""
        result = self._softmax_dtype(dtype)
        if not result.is_float:
            raise DTypeError("softmax gives floats", came=result)
        return self.cast(_wide(result))

    # ---- running results ------------------------------------------------------------------------

    def cumsum(self, dim: int = 0, dtype: DTypeLike | None = None) -> Self:
        """The sums of all elements up to each one along *dim*.

        >>> Tensor([1, 2, 3]).cumsum(0).tolist()
        [1, 3, 6]
        """
        return self._running(Ops.ADD, dim, dtype, "cumsum")

    def cumprod(self, dim: int = 0, dtype: DTypeLike | None = None) -> Self:
        """The products of all elements up to each one along *dim*.

        >>> Tensor([1, 2, 3, 4]).cumprod().tolist()
        [1, 2, 6, 24]
        """
        return self._running(Ops.MUL, dim, dtype, "cumprod")

    def cummax(self, dim: int = 0) -> Self:
        """The largest of all elements up to each one along *dim*.

        >>> Tensor([1, 3, 2]).cummax().tolist()
        [1, 3, 3]
        """
        return self._running(Ops.MAX, dim, self._dtype, "cummax")

    def _running(self, op: Op, dim: int, dtype: DTypeLike | None, name: str) -> Self:
        result = accumulated_dtype(self._dtype) if dtype is None else arguments.dtype(dtype, name)
        place = arguments.axis(dim, self.ndim, name)
        wide = _wide(result) if op is not Ops.MAX else result
        if self.ndim == 0 or self.numel() == 0:
            return self._value(self.uop.cast(result))
        return self._value(_scan(self.uop.cast(wide), op, place).cast(result))


def accumulated_dtype(dtype: DType) -> DType:
    """The type that sums of *dtype* have."""
    if dtype.is_float:
        return dtype
    return dtypes.uint64 if dtype.is_unsigned else dtypes.int64


def counting(shape: tuple[int, ...], place: int, dtype: DType = dtypes.int64) -> UOp:
    """0, 1, 2, … along one axis, in a whole shape."""
    column = tuple(n if i == place else 1 for i, n in enumerate(shape))
    return UOp(Ops.IOTA, dtype, (), shape[place]).reshape(column).expand(shape)


def _wide(dtype: DType) -> DType:
    return dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype


def first_place(key: UOp, op: Op, place: int, keepdim: bool) -> UOp:
    """The first place of the best key along an axis, as int64: places and keys go in pairs."""
    shape = key.known_shape
    narrow = dtypes.int32 if shape[place] <= dtypes.int32.max else dtypes.int64
    position = counting(shape, place, narrow)  # places that fit get as many lanes as values
    return _reduce(paired(position, key), op, (place,), keepdim).cast(dtypes.int64)


def _reduce(node: UOp, op: Op, axes: tuple[int, ...], keepdim: bool) -> UOp:
    """REDUCE over *axes* (over none: the node itself)."""
    shape = node.known_shape
    if not axes:
        return node
    result = UOp.make(Ops.REDUCE, node, arg=ReduceArg(op, axes))
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return result.reshape(kept) if keepdim else result


_BLOCK = 16


def _scan(node: UOp, op: Op, place: int) -> UOp:
    """Running results along an axis, in blocks of `_BLOCK`: O(n), and every block is a vector.

        inside   element i of a block takes in elements 0 … i of it
        totals   each block as a whole, scanned in the same way; each block takes in those before

    A sum adds at most `_BLOCK` terms on each level, so its rounding error grows with the number of
    levels only. Source: G. Blelloch, "Prefix Sums and Their Applications", 1990.
    """
    shape = node.known_shape
    size = shape[place]
    if size <= _BLOCK:
        return _scan_block(node, op, place)
    blocks = -(-size // _BLOCK)
    around = tuple((0, blocks * _BLOCK - size if i == place else 0) for i in range(len(shape)))
    split = (*shape[:place], blocks, _BLOCK, *shape[place + 1 :])
    parts = node.pad(around, op.identity_for(node.dtype)).reshape(split)
    totals = _scan(_reduce(parts, op, (place + 1,), False), op, place)
    before = _shifted(totals, op, place, 1)
    column = before.reshape((*shape[:place], blocks, 1, *shape[place + 1 :])).expand(split)
    whole = _scan_block(parts, op, place + 1).alu(op, column)
    flat = whole.reshape((*shape[:place], blocks * _BLOCK, *shape[place + 1 :]))
    return flat.shrink(tuple((0, n) for n in shape))


def _scan_block(node: UOp, op: Op, place: int) -> UOp:
    """Running results along a short axis: element i is the result of all j <= i."""
    shape = node.known_shape
    size = shape[place]
    square = (*shape[: place + 1], size, *shape[place + 1 :])
    lines = node.reshape((*shape[:place], 1, *shape[place:])).expand(square)
    taken = counting(square, place + 1).alu(Ops.CMPLE, counting(square, place))
    unit = lines.const_like(op.identity_for(node.dtype))
    return _reduce(taken.where(lines, unit), op, (place + 1,), False)


def _shifted(node: UOp, op: Op, place: int, step: int) -> UOp:
    """Element i is element i - step of *node*, or the unit of *op* at the start."""
    shape = node.known_shape
    whole = tuple((0, n) for n in shape)
    none = tuple((0, 0) for _ in shape)
    kept = node.shrink((*whole[:place], (0, shape[place] - step), *whole[place + 1 :]))
    return kept.pad((*none[:place], (step, 0), *none[place + 1 :]), op.identity_for(node.dtype))
