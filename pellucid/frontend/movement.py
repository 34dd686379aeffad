"""Rearranging elements without computing: windows, which share storage with what they look at.

    x.reshape(3, 2)    x.T    x[..., ::2]

What is a value of its own (pad, flip, cat) is in arrangement.py. No element is moved when these
run: each is a note on how an index of the result becomes an index of the source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import DTypeError, ShapeError
from pellucid.frontend import arguments
from pellucid.frontend.arguments import Axes, DTypeLike
from pellucid.frontend.value import Value
from pellucid.ir.op import Ops, Shape


class Movement(Value):
    """Methods that rearrange."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The same elements, in order, in another shape; one size may be -1.

        >>> Tensor([1, 2, 3, 4]).reshape(2, -1).tolist()
        [[1, 2], [3, 4]]
        """
        new = arguments.reshaped(shape, self._shape)
        return self._reshape(new)

    def _reshape(self, shape: Shape) -> Self:
        if shape == self._shape:
            return self._on(self._storage, self._window, shape, self._dtype)
        return self._window_on(Ops.RESHAPE, shape, shape)

    def view(self, *shape: Any) -> Self:
        """The same as `reshape`; with a dtype, the same as `bitcast`."""
        if len(shape) == 1 and isinstance(shape[0], DType):
            return self.bitcast(shape[0])
        return self.reshape(*shape)

    def view_as(self, other: Value) -> Self:
        """The same elements in the shape of *other*."""
        return self.reshape(other.shape)

    reshape_as = view_as

    def permute(self, *dims: Any) -> Self:
        """The axes in the order that *dims* lists.

        >>> Tensor([[1, 2, 3]]).permute(1, 0).shape
        (3, 1)
        """
        given = arguments.sizes(dims, "permute")
        order = tuple(arguments.axis(d, self.ndim, "permute") for d in given)
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(
                "permute names every axis once",
                expected=f"an order of {tuple(range(self.ndim))}",
                came=given,
            )
        return self._permute(order)

    def _permute(self, order: tuple[int, ...]) -> Self:
        if order == tuple(range(len(order))):
            return self._on(self._storage, self._window, self._shape, self._dtype)
        return self._window_on(Ops.PERMUTE, order, tuple(self._shape[i] for i in order))

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes exchanged.

        >>> Tensor([[1, 2], [3, 4]]).transpose(0, 1).tolist()
        [[1, 3], [2, 4]]
        """
        first = arguments.axis(dim0, self.ndim, "transpose")
        second = arguments.axis(dim1, self.ndim, "transpose")
        order = list(range(self.ndim))
        if order:
            order[first], order[second] = order[second], order[first]
        return self._permute(tuple(order))

    swapaxes = transpose

    def movedim(self, source: int, destination: int) -> Self:
        """One axis moved to another place, the others in their order.

        >>> Tensor.zeros(2, 3, 4).movedim(0, 2).shape
        (3, 4, 2)
        """
        start = arguments.axis(source, self.ndim, "movedim")
        end = arguments.axis(destination, self.ndim, "movedim")
        order = [i for i in range(self.ndim) if i != start]
        order.insert(end, start)
        return self._permute(tuple(order))

    def t(self) -> Self:
        """A matrix transposed; a vector as it is."""
        if self.ndim > 2:
            raise ShapeError("t() is for at most two axes", came=self._shape, help="use transpose")
        return self.T

    @property
    def T(self) -> Self:
        """The axes in reverse order.

        >>> Tensor([[1, 2], [3, 4]]).T.tolist()
        [[1, 3], [2, 4]]
        """
        return self._permute(tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        return self.transpose(-2, -1)

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated, without copying; -1 keeps a size; new axes lead.

        >>> Tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        given = arguments.sizes(shape, "expand")
        added = len(given) - self.ndim
        old = (1,) * added + self._shape
        new = tuple(
            o if n == -1 and i >= added else n
            for i, (n, o) in enumerate(zip(given, old, strict=False))
        )
        fits = added >= 0 and all(o == n or o == 1 for n, o in zip(new, old, strict=True))
        if not fits or any(n < 0 for n in new):
            raise ShapeError(
                "expand repeats axes of size 1 only, and adds axes in front",
                rows=[("from", self._shape), ("to", given)],
            )
        return self._expand(new)

    def _expand(self, shape: Shape) -> Self:
        if shape == self._shape:
            return self._on(self._storage, self._window, shape, self._dtype)
        return self._window_on(Ops.EXPAND, shape, shape)

    def broadcast_to(self, *shape: Any) -> Self:
        """The same as `expand`."""
        return self.expand(*shape)

    def expand_as(self, other: Value) -> Self:
        """Repeated to the shape of *other*."""
        return self.expand(other.shape)

    def squeeze(self, dim: Axes = None) -> Self:
        """Axes of size 1 dropped: all of them, or those in *dim*.

        >>> Tensor([[[1], [2]]]).squeeze().shape
        (2,)
        """
        chosen = arguments.axes(dim, self.ndim, "squeeze")
        return self._reshape(
            tuple(n for i, n in enumerate(self._shape) if n != 1 or i not in chosen)
        )

    def unsqueeze(self, dim: int) -> Self:
        """A new axis of size 1 at *dim*.

        >>> Tensor([1, 2]).unsqueeze(-1).shape
        (2, 1)
        """
        place = arguments.axis(dim, self.ndim + 1, "unsqueeze")
        return self._reshape((*self._shape[:place], 1, *self._shape[place:]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from *start_dim* to *end_dim* as one.

        >>> Tensor([[1, 2], [3, 4]]).flatten().tolist()
        [1, 2, 3, 4]
        """
        start = arguments.axis(start_dim, self.ndim, "flatten")
        end = arguments.axis(end_dim, self.ndim, "flatten")
        if start > end:
            raise ShapeError("flatten starts after it ends", came=(start_dim, end_dim))
        middle = math.prod(self._shape[start : end + 1])
        return self._reshape((*self._shape[:start], middle, *self._shape[end + 1 :]))

    def ravel(self) -> Self:
        """All axes as one."""
        return self.flatten()

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """One axis as several.

        >>> Tensor([1, 2, 3, 4, 5, 6]).unflatten(0, (2, -1)).shape
        (2, 3)
        """
        place = arguments.axis(dim, self.ndim, "unflatten")
        inner = arguments.reshaped((sizes,), self._shape[place : place + 1], "unflatten")
        return self._reshape((*self._shape[:place], *inner, *self._shape[place + 1 :]))

    def detach(self) -> Self:
        """A window on the same storage through which no gradient flows."""
        return self._window_on(Ops.DETACH, None, self._shape)

    def bitcast(self, dtype: DTypeLike) -> Self:
        """The same bits read as another type of equal width.

        >>> Tensor([1.0]).bitcast(dtypes.int32).tolist()
        [1065353216]
        """
        new = arguments.dtype(dtype, "bitcast")
        if new.itemsize != self._dtype.itemsize or (
            dtypes.bool in (new, self._dtype) and new is not self._dtype
        ):
            raise DTypeError(
                "bitcast needs types of equal width (bool has no other reading)",
                rows=[
                    ("from", self._dtype, f"{self._dtype.itemsize} bytes"),
                    ("to", new, f"{new.itemsize} bytes"),
                ],
            )
        return self._window_on(Ops.BITCAST, new, self._shape, new)

    def shrink(self, box: Sequence[tuple[int, int] | None]) -> Self:
        """A box of the tensor: (start, end) for each axis, None for all of it.

        >>> Tensor([1, 2, 3, 4]).shrink(((1, 3),)).tolist()
        [2, 3]
        """
        given = [(0, n) if b is None else tuple(b) for b, n in zip(box, self._shape, strict=False)]
        if len(box) != self.ndim or any(
            not 0 <= start <= end <= n for (start, end), n in zip(given, self._shape, strict=True)
        ):
            raise ShapeError(
                "shrink keeps a box inside of the tensor", expected=self._shape, came=box
            )
        return self._shrink(tuple((int(s), int(e)) for s, e in given))

    def _shrink(self, box: tuple[tuple[int, int], ...]) -> Self:
        if all(start == 0 and end == n for (start, end), n in zip(box, self._shape, strict=True)):
            return self._on(self._storage, self._window, self._shape, self._dtype)
        return self._window_on(Ops.SHRINK, box, tuple(end - start for start, end in box))

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """The part of one axis that starts at *start*.

        >>> Tensor([1, 2, 3, 4]).narrow(0, 1, 2).tolist()
        [2, 3]
        """
        place = arguments.axis(dim, self.ndim, "narrow")
        start += self._shape[place] if start < 0 else 0
        box = [(0, n) for n in self._shape]
        box[place] = (start, start + length)
        return self.shrink(box)

    def _every(self, place: int, start: int, step: int, count: int) -> Self:
        """*count* elements of an axis, from *start* on, *step* apart (step at least 1)."""
        size = self._shape[place]
        if count == 0 or step == 1:
            return self._slice(place, start, start + count)
        span = count * step
        back = max(0, start + span - size)
        if back <= min(start, step - 1):
            rows = self._slice(place, start - back, start - back + span)
        else:
            back = 0
            around = [(0, 0)] * self.ndim
            around[place] = (0, start + span - size)
            padded = (*self._shape[:place], start + span, *self._shape[place + 1 :])
            rows = self._window_on(Ops.PAD, tuple(around), padded)._slice(
                place, start, start + span
            )
        split = rows._reshape((*self._shape[:place], count, step, *self._shape[place + 1 :]))
        one = split._slice(place + 1, back, back + 1)
        return one._reshape((*self._shape[:place], count, *self._shape[place + 1 :]))

    def _slice(self, place: int, start: int, end: int) -> Self:
        box = [(0, n) for n in self._shape]
        box[place] = (start, end)
        return self._shrink(tuple(box))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of a matrix, or of many, as a window; its axis is the last.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        first = arguments.axis(dim1, self.ndim, "diagonal")
        second = arguments.axis(dim2, self.ndim, "diagonal")
        if self.ndim < 2 or first == second:
            raise ShapeError("diagonal needs two axes", came=self._shape)
        rest = [i for i in range(self.ndim) if i not in (first, second)]
        x = self._permute((*rest, first, second))
        *lead, rows, columns = x._shape
        top, left = max(-offset, 0), max(offset, 0)
        count = max(0, min(rows - top, columns - left))
        if count == 0:
            return (
                x._slice(x.ndim - 1, 0, 0)._slice(x.ndim - 2, 0, min(rows, 1))._reshape((*lead, 0))
            )
        x = x._slice(x.ndim - 2, top, top + count)._slice(x.ndim - 1, left, left + count)
        flat = x._reshape((*lead, count * count))
        return flat._every(len(lead), 0, count + 1, count)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Windows of *split_size* along an axis (the last may be smaller), or of the sizes listed.

        >>> [part.tolist() for part in Tensor([1, 2, 3, 4, 5]).split(2)]
        [[1, 2], [3, 4], [5]]
        """
        place = arguments.axis(dim, self.ndim, "split")
        size = self._shape[place]
        if isinstance(split_size, int):
            if split_size <= 0 and size:
                raise ShapeError("split needs a size above 0", came=split_size)
            starts = range(0, size, split_size) if size else [0]
            parts = [min(split_size, size - start) for start in starts]
        else:
            parts = [arguments.integer(n, "a size in split") for n in split_size]
        if sum(parts) != size or any(n < 0 for n in parts):
            raise ShapeError(
                "the sizes of split add up to that of the axis", expected=size, came=parts
            )
        ends = zip(itertools.accumulate(parts), parts, strict=True)
        return tuple(self._slice(place, end - size, end) for end, size in ends)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most *chunks* windows of equal size along an axis (the last may be smaller).

        >>> [part.tolist() for part in Tensor([1, 2, 3]).chunk(2)]
        [[1, 2], [3]]
        """
        if chunks <= 0:
            raise ShapeError("chunk needs a number above 0", came=chunks)
        size = self._shape[arguments.axis(dim, self.ndim, "chunk")]
        return self.split(max(1, -(-size // chunks)), dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The windows along an axis, without it.

        >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
        """
        place = arguments.axis(dim, self.ndim, "unbind")
        rest = self._shape[:place] + self._shape[place + 1 :]
        return tuple(self._slice(place, i, i + 1)._reshape(rest) for i in range(self._shape[place]))
