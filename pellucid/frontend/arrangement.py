"""New arrangements of elements: reversed, filled up, joined, repeated.

    x.flip(0)    x.pad((1, 1))    cat([x, y])    x.roll(1)    values of their own

What stays a window on the storage of its source is in movement.py. Here too no element is moved
when a method runs: each is a note on how an index of the result becomes an index of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TypeVar

from pellucid.core.dtype import DType, dtypes, promote
from pellucid.core.errors import DTypeError, ShapeError
from pellucid.frontend import arguments, sliding
from pellucid.frontend.arguments import Axes, default_float
from pellucid.frontend.movement import Movement
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp

_T = TypeVar("_T", bound="Arrangement")
_MOST_PARTS: Final = 16


class Arrangement(Movement):
    """Methods that arrange elements anew."""

    __slots__ = ()

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
