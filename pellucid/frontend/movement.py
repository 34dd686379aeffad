"""Rearranging elements without computing: windows (reshape, permute, …) and new arrangements
(pad, flip, cat).

    x.reshape(3, 2)    x.T    x[..., ::2]     windows: they share storage with x
    x.flip(0)    x.pad((1, 1))    cat([x, y])  values of their own

No element is moved when these run: each is a note on how an index of the result becomes an index
of the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from pellucid.core.dtype import DType, dtypes, promote
from pellucid.core.errors import DTypeError, ShapeError
from pellucid.frontend import arguments, sliding
from pellucid.frontend.arguments import Axes, DTypeLike, default_float
from pellucid.frontend.value import Value
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp

_T = TypeVar("_T", bound="Movement")
_MOST_PARTS: Final = 16


class Movement(Value):
    """Methods that rearrange."""

    __slots__ = ()

    # ---- windows --------------------------------------------------------------------------------

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

    # ---- values of their own --------------------------------------------------------------------

    def contiguous(self) -> Self:
        """A value of its own, in memory in row-major order when it is realised."""
        return self._value(UOp.make(Ops.CONTIGUOUS, self.uop))

    def clone(self) -> Self:
        """A value of its own that is equal now."""
        return self.contiguous()

    def flip(self, *dims: Any) -> Self:
        """The order of elements reversed along *dims*.

        >>> Tensor([1, 2, 3]).flip(0).tolist()
        [3, 2, 1]
        """
        chosen = arguments.axes(arguments.sizes(dims, "flip"), self.ndim, "flip")
        return self._value(self.uop.flip(chosen) if chosen else UOp.make(Ops.CONTIGUOUS, self.uop))

    def _padded(self, amounts: Sequence[tuple[int, int]], value: float = 0) -> Self:
        """Elements of *value* around; a negative amount cuts off."""
        box = tuple(
            (max(0, -low), n - max(0, -high))
            for (low, high), n in zip(amounts, self._shape, strict=True)
        )
        if any(start > end for start, end in box):
            raise ShapeError(
                "pad cuts off more than there is", rows=[("shape", self._shape), ("pad", amounts)]
            )
        grown = tuple((max(0, low), max(0, high)) for low, high in amounts)
        return self._value(self.uop.shrink(box).pad(grown, value))

    def pad(
        self,
        pad: Sequence[int] | Sequence[tuple[int, int]],
        mode: str = "constant",
        value: float = 0,
    ) -> Self:
        """Elements added around, as in `torch.nn.functional.pad`: pairs from the last axis
        backwards.

        mode: "constant" (with *value*), "reflect", "replicate" or "circular".
        A sequence of pairs is taken axis by axis from the first, as in numpy.

        >>> Tensor([7, 9, 4]).pad((1, 2), value=-3).tolist()
        [-3, 7, 9, 4, -3, -3]
        """
        amounts = self._pad_amounts(pad)
        if mode == "constant":
            return self._padded(amounts, value)
        result = self
        for place, (low, high) in enumerate(amounts):
            if low or high:
                result = result._pad_by_copies(place, low, high, mode)
        return result

    def _pad_amounts(self, pad: Sequence[Any]) -> list[tuple[int, int]]:
        given = list(pad)
        if given and isinstance(given[0], Sequence):
            pairs = [(int(low), int(high)) for low, high in given]
        else:
            flat = [arguments.integer(p, "a padding") for p in given]
            pairs = list(zip(flat[-2::-2], flat[-1::-2], strict=True)) if len(flat) % 2 == 0 else []
            if len(flat) % 2 or len(pairs) > self.ndim:
                raise ShapeError(
                    "pad takes (before, after) for the last axis, then for the one before it, …",
                    rows=[("shape", self._shape), ("pad", tuple(given))],
                )
            pairs = [(0, 0)] * (self.ndim - len(pairs)) + pairs
        if len(pairs) != self.ndim:
            raise ShapeError(
                "pad takes one pair for each axis", rows=[("shape", self._shape), ("pad", pad)]
            )
        return pairs

    def _pad_by_copies(self, place: int, low: int, high: int, mode: str) -> Self:
        size = self._shape[place]
        allowed = {"reflect": size - 1, "circular": size, "replicate": 1 << 62 if size else 0}
        if mode not in allowed:
            raise ShapeError(
                f"pad has no mode {mode!r}", expected="constant, reflect, replicate or circular"
            )
        if max(low, high) > allowed[mode]:
            raise ShapeError(
                f"{mode} padding cannot add that much", rows=[("size", size), ("pad", (low, high))]
            )
        if mode == "reflect":
            before = self._slice(place, 1, 1 + max(low, 0)).flip(place)
            after = self._slice(place, size - 1 - max(high, 0), size - 1).flip(place)
        elif mode == "circular":
            before, after = (
                self._slice(place, size - max(low, 0), size),
                self._slice(place, 0, max(high, 0)),
            )
        else:
            before = self._slice(place, 0, 1)._repeat_axis(place, max(low, 0))
            after = self._slice(place, size - 1, size)._repeat_axis(place, max(high, 0))
        middle = self._slice(place, max(0, -low), size - max(0, -high))
        return type(self).cat([before, middle, after], place)

    def _repeat_axis(self, place: int, count: int) -> Self:
        return self._expand((*self._shape[:place], count, *self._shape[place + 1 :]))

    @classmethod
    def cat(cls, tensors: Sequence[Self], dim: int = 0) -> Self:
        """Tensors one after the other along an axis.

        >>> Tensor.cat([Tensor([1, 2]), Tensor([3])]).tolist()
        [1, 2, 3]
        """
        parts = _given(tensors, "cat")
        first = parts[0]
        place = arguments.axis(dim, first.ndim, "cat")
        for part in parts:
            first._check_device(part, "cat")
            if not _is_alike(part._shape, first._shape, place):
                raise ShapeError(
                    f"cat along axis {place} needs tensors that are alike in all other axes",
                    rows=[("first", first._shape), ("another", part._shape)],
                    help="stack() joins scalars and adds a new axis",
                )
        wide = promote(*(p._dtype for p in parts), default_float=default_float())
        return first._value(_joined([p.uop.cast(wide) for p in parts], place))

    concat = cat

    @classmethod
    def stack(cls, tensors: Sequence[Self], dim: int = 0) -> Self:
        """Tensors of one shape along a new axis.

        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], 1).tolist()
        [[1, 3], [2, 4]]
        """
        parts = _given(tensors, "stack")
        shapes = {p._shape for p in parts}
        if len(shapes) > 1:
            raise ShapeError("stack needs tensors of one shape", came=sorted(shapes))
        return cls.cat(
            [p.unsqueeze(dim) for p in parts], arguments.axis(dim, parts[0].ndim + 1, "stack")
        )

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
        ends = [sum(parts[: i + 1]) for i in range(len(parts))]
        return tuple(self._slice(place, e - n, e) for e, n in zip(ends, parts, strict=True))

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

    def repeat(self, *repeats: Any) -> Self:
        """The tensor repeated along each axis; more numbers than axes add axes in front.

        >>> Tensor([1, 2]).repeat(2).tolist()
        [1, 2, 1, 2]
        """
        given = arguments.shape(repeats, "repeat")
        if len(given) < self.ndim:
            raise ShapeError("repeat takes a number for each axis", expected=self.ndim, came=given)
        old = (1,) * (len(given) - self.ndim) + self._shape
        spread = self._reshape(tuple(n for size in old for n in (1, size)))
        wide = spread._expand(
            tuple(n for r, size in zip(given, old, strict=True) for n in (r, size))
        )
        shape = tuple(r * n for r, n in zip(given, old, strict=True))
        return self._value(wide._reshape(shape).uop)

    tile = repeat

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element along an axis repeated; without *dim*, of the flattened tensor.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        x = self.flatten() if dim is None else self
        place = arguments.axis(dim or 0, x.ndim, "repeat_interleave")
        count = arguments.shape((repeats,), "repeat_interleave")[0]
        wide = x.unsqueeze(place + 1)._repeat_axis(place + 1, count)
        shape = (*x._shape[:place], x._shape[place] * count, *x._shape[place + 1 :])
        return self._value(wide._reshape(shape).uop)

    def roll(self, shifts: int | Sequence[int], dims: Axes = None) -> Self:
        """Elements moved along axes, those that leave at the end come back at the start.

        >>> Tensor([1, 2, 3]).roll(1).tolist()
        [3, 1, 2]
        """
        if dims is None:
            if not isinstance(shifts, int):
                raise ShapeError("roll by several shifts needs as many dims", came=shifts)
            return self.flatten().roll(shifts, 0).reshape(self._shape)
        moves = [shifts] if isinstance(shifts, int) else list(shifts)
        places = [dims] if isinstance(dims, int) else list(dims)
        if len(moves) != len(places):
            raise ShapeError(
                "roll takes one shift for each axis", rows=[("shifts", shifts), ("dims", dims)]
            )
        result = self.contiguous()
        for shift, dim in zip(moves, places, strict=True):
            place = arguments.axis(dim, self.ndim, "roll")
            size = self._shape[place] if self.ndim else 0
            if size:
                cut = -shift % size
                halves = [result._slice(place, cut, size), result._slice(place, 0, cut)]
                result = type(self).cat(halves, place)
        return result

    def _windows(
        self, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> Self:
        """All places of a sliding box over the last axes: (…, outputs…, kernel…)."""
        return self._value(sliding.windows(self.uop, kernel, stride, dilation))

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """All windows of *size* along an axis, *step* apart; their elements become the last axis.

        >>> Tensor([1, 2, 3, 4]).unfold(0, 2, 1).tolist()
        [[1, 2], [2, 3], [3, 4]]
        """
        place = arguments.axis(dim, self.ndim, "unfold")
        if not 0 < size <= self._shape[place] or step <= 0:
            raise ShapeError(
                "unfold needs 0 < size <= the axis, and a step above 0", came=(size, step)
            )
        last = self.movedim(place, -1)._windows((size,), (step,), (1,))
        return last.movedim(-2, place)

    def _promoted_float(self) -> DType:
        """The dtype of a float function of this tensor."""
        return self._dtype if self._dtype.is_float else default_float()


def _joined(nodes: list[UOp], place: int) -> UOp:
    """Concatenate by halves, `_MOST_PARTS` at a time, so that no kernel reads too many buffers."""
    if len(nodes) == 1:
        return UOp.make(Ops.CONTIGUOUS, nodes[0])
    while len(nodes) > 1:
        groups = [nodes[i : i + _MOST_PARTS] for i in range(0, len(nodes), _MOST_PARTS)]
        nodes = [_halves(group, place) for group in groups]
        if len(nodes) > 1:
            nodes = [UOp.make(Ops.CONTIGUOUS, node) for node in nodes]
    return nodes[0]


def _halves(nodes: list[UOp], place: int) -> UOp:
    while len(nodes) > 1:
        pairs = [nodes[i : i + 2] for i in range(0, len(nodes), 2)]
        nodes = [pair[0] if len(pair) == 1 else _pair(pair[0], pair[1], place) for pair in pairs]
    return nodes[0]


def _pair(left: UOp, right: UOp, place: int) -> UOp:
    first, second = left.known_shape, right.known_shape
    if not first[place]:
        return right
    if not second[place]:
        return left
    total = first[place] + second[place]
    none = tuple((0, 0) for _ in first)
    wide_left = left.pad((*none[:place], (0, second[place]), *none[place + 1 :]))
    wide_right = right.pad((*none[:place], (first[place], 0), *none[place + 1 :]))
    position = UOp(Ops.IOTA, dtypes.int64, (), total)
    shape = (*first[:place], total, *first[place + 1 :])
    column = position.reshape(tuple(total if i == place else 1 for i in range(len(shape))))
    return (column.expand(shape) < first[place]).where(wide_left, wide_right)


def _given(tensors: Iterable[_T], name: str) -> list[_T]:
    if isinstance(tensors, Movement):
        raise DTypeError(
            f"{name} takes a sequence of tensors",
            came=type(tensors).__name__,
            help=f"put them in a list, as in Tensor.{name}([a, b])",
        )
    parts = list(tensors)
    if not parts:
        raise ShapeError(f"{name} needs at least one tensor")
    wrong = next((p for p in parts if not isinstance(p, Movement)), None)
    if wrong is not None:
        raise DTypeError(f"{name} takes a sequence of tensors", came=type(wrong).__name__)
    return parts


def _is_alike(shape: Shape, other: Shape, place: int) -> bool:
    """Tell whether two shapes are equal but for one axis."""
    if len(shape) != len(other) or not shape:
        return False
    return all(a == b for i, (a, b) in enumerate(zip(shape, other, strict=True)) if i != place)
