"""Reading and writing parts: numbers, slices, None, ellipsis, integer tensors, masks.

    x[1], x[:, ::2], x[..., None]      windows: writing to them writes to x
    x[index], x[mask]                  values of their own: GATHER
    x[1:] = y     x[index] = y         WRITE, or SCATTER where an index is a tensor

Negative indices count from the end. An index outside of its axis is an error: at once where it is
known, when realised where a tensor holds it (CHECK). Duplicates: reading repeats, writing keeps the
last one.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.core.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
    user_location,
)
from pellucid.engine import capture
from pellucid.engine.memory import buffer_with
from pellucid.frontend import arguments
from pellucid.frontend.operands import Number, Operand
from pellucid.frontend.reduce import counting
from pellucid.frontend.writing import Writing
from pellucid.ir.arg import CheckArg, ReduceArg
from pellucid.ir.op import Op, Ops, Shape
from pellucid.ir.uop import UOp

Index = Any
_COMBINING = {
    "sum": Ops.ADD,
    "add": Ops.ADD,
    "prod": Ops.MUL,
    "multiply": Ops.MUL,
    "amax": Ops.MAX,
    "amin": Ops.MIN,
}


class Indexing(Writing):
    """Methods that read and write parts."""

    __slots__ = ()

    def __getitem__(self, index: Index) -> Self:
        window, chosen = self._parse(index)
        if not chosen:
            return window
        node, place = window._gathered(chosen)
        shape = next(iter(chosen.values())).known_shape
        ndim = len(node.known_shape)
        rest = [i for i in range(ndim) if i >= len(shape)]
        order = (*rest[:place], *range(len(shape)), *rest[place:])
        return self._value(node.permute(order))

    def __setitem__(self, index: Index, value: Operand) -> None:
        window, chosen = self._parse(index, value)
        if not chosen:
            window.assign(value)
            return
        if isinstance(next(iter(chosen.values())), _Mask):
            mask = next(iter(chosen.values())).node
            node = window._incoming(value)
            window._write(mask.where(node.expand(window._shape), window.uop))
            return
        order, indices, place = window._leading(chosen)
        shape = indices[0].known_shape
        rest = tuple(window._shape[i] for i in order[len(indices) :])
        wanted = (*rest[:place], *shape, *rest[place:])
        node = window._fitting(value, wanted)
        back = (
            *range(place, place + len(shape)),
            *range(place),
            *range(place + len(shape), len(wanted)),
        )
        base = window.uop.permute(order)
        scattered = UOp.make(Ops.SCATTER, base, node.permute(back), *indices)
        inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
        window._write(scattered.permute(inverse))

    # ---- reading an index -----------------------------------------------------------------------

    def _parse(self, index: Index, value: Operand = None) -> tuple[Self, dict[int, Any]]:
        """The basic window that an index describes, and the index tensors for its axes."""
        items = list(index) if isinstance(index, tuple) else [index]
        items = [self._item(item) for item in items]
        used = sum(
            item.ndim if isinstance(item, _Mask) else item is not None and item is not Ellipsis
            for item in items
        )
        if used > self.ndim:
            raise IndexOutOfRangeError(
                "there are more indices than axes", rows=[("shape", self._shape), ("indices", used)]
            )
        ellipses = [at for at, item in enumerate(items) if item is Ellipsis]
        if len(ellipses) > 1:
            raise IndexOutOfRangeError("an index has one ellipsis at most")
        if not ellipses:
            items.append(Ellipsis)
        place = ellipses[0] if ellipses else len(items) - 1
        items[place : place + 1] = [slice(None)] * (self.ndim - used)
        return self._apply(items, value)

    def _item(self, item: Any) -> Any:
        """One entry of an index: int, slice, None, Ellipsis, index tensor, or mask."""
        if item is None or item is Ellipsis or isinstance(item, slice):
            return item
        if isinstance(item, bool | np.bool_):
            raise DTypeError("a single bool is no index", help="use None for a new axis")
        if isinstance(item, int | np.integer):
            return int(item)
        if isinstance(item, list | tuple | range | np.ndarray):
            array = np.asarray(item)
            item = self._indices_from(
                array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array
            )
        if isinstance(item, Indexing):
            self._check_device(item, "indexing")
            if item._dtype.is_bool:
                return _Mask(item.uop, item)
            if item._dtype.is_int:
                return item
            raise DTypeError("an index tensor holds integers or bools", came=item._dtype)
        raise DTypeError(
            "an index is made of integers, slices, None, ellipsis and tensors",
            came=type(item).__name__,
        )

    def _indices_from(self, array: np.ndarray[Any, Any]) -> Self:
        return self._array(array, "indexing")

    def _apply(self, items: list[Any], value: Operand) -> tuple[Self, dict[int, Any]]:
        window: Self = self
        chosen: dict[int, Any] = {}
        place = 0
        for item in items:
            if item is None:
                window = window.unsqueeze(place)
            elif isinstance(item, int):
                window = window._picked(place, item)
                continue
            elif isinstance(item, slice):
                window = window._sliced(place, item)
            elif isinstance(item, _Mask):
                place = self._apply_mask(window, place, item, items, value, chosen)
                continue
            else:
                chosen[place] = item
            place += 1
        checked = {
            axis: window._checked(item, axis) if isinstance(item, Indexing) else item
            for axis, item in chosen.items()
        }
        return window, _broadcast_indices(checked)

    def _apply_mask(
        self,
        window: Self,
        place: int,
        mask: _Mask,
        items: list[Any],
        value: Operand,
        chosen: dict[int, Any],
    ) -> int:
        """Turn a mask into index tensors, or keep it whole for writing one value everywhere."""
        covered = window._shape[place : place + mask.ndim]
        if mask.shape != covered:
            raise IndexOutOfRangeError(
                "a mask has the shape of the axes it chooses from",
                rows=[("axes", covered), ("mask", mask.shape)],
            )
        plain = all(
            isinstance(item, _Mask) or (isinstance(item, slice) and item == slice(None))
            for item in items
        )
        one_value = isinstance(value, Number) or (isinstance(value, Indexing) and value.ndim == 0)
        if plain and one_value and sum(isinstance(item, _Mask) for item in items) == 1:
            padded = (1,) * place + mask.shape + (1,) * (window.ndim - place - mask.ndim)
            chosen[place] = _Mask(mask.node.reshape(padded).expand(window._shape), mask.tensor)
            return place + mask.ndim
        for offset, found in enumerate(mask.places()):
            chosen[place + offset] = buffer_with(found, dtypes.int64, window.device)
        return place + mask.ndim

    def _picked(self, place: int, index: int) -> Self:
        size = self._shape[place]
        if not -size <= index < size:
            raise IndexOutOfRangeError(
                f"index {index} is outside of axis {place}, which has size {size}",
                expected=f"{-size} to {size - 1}" if size else "nothing: the axis is empty",
                came=index,
            )
        index %= size
        one = self._slice(place, index, index + 1)
        return one._reshape(self._shape[:place] + self._shape[place + 1 :])

    def _sliced(self, place: int, item: slice) -> Self:
        try:
            start, stop, step = item.indices(self._shape[place])
        except (TypeError, ValueError) as problem:
            raise IndexOutOfRangeError(
                "a slice is made of whole numbers", came=item, help=str(problem)
            ) from None
        count = len(range(start, stop, step))
        if count == 0:
            return self._slice(place, 0, 0)
        if step > 0:
            return self._every(place, start, step, count)
        last = start + (count - 1) * step
        upward = self._every(place, last, -step, count)
        return upward._window_on(Ops.FLIP, (place,), upward._shape)

    def _checked(self, index: Indexing, place: int) -> UOp:
        """The node of an index tensor: int64, negatives wrapped, with a check of its range."""
        return checked_index(index.uop, self._shape[place], place, "index")

    # ---- gathering ------------------------------------------------------------------------------

    def _leading(self, chosen: dict[int, UOp]) -> tuple[tuple[int, ...], list[UOp], int]:
        """An order with the indexed axes first, their indices, and where the result's axes go."""
        axes = list(chosen)
        rest = [i for i in range(self.ndim) if i not in chosen]
        adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
        return (*axes, *rest), list(chosen.values()), axes[0] if adjacent else 0

    def _gathered(self, chosen: dict[int, UOp]) -> tuple[UOp, int]:
        order, indices, place = self._leading(chosen)
        return UOp.make(Ops.GATHER, self.uop.permute(order), *indices), place

    def gather(self, dim: int, index: Self) -> Self:
        """The elements at *index* along an axis: out[i][j] = self[index[i][j]][j] for dim 0.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
        [[2], [3]]
        """
        indices, _ = self._along(dim, index, "gather")
        return self._value(UOp.make(Ops.GATHER, self.uop, *indices))

    def _along(self, dim: int, index: Self, name: str) -> tuple[list[UOp], int]:
        """Indices for all axes, from one for axis *dim*."""
        place = arguments.axis(dim, self.ndim, name)
        if not isinstance(index, Indexing) or not index._dtype.is_int:
            raise DTypeError(
                f"{name} takes a tensor of integers", came=getattr(index, "dtype", type(index))
            )
        shape = index._shape
        if len(shape) != self.ndim or any(
            n > m for i, (n, m) in enumerate(zip(shape, self._shape, strict=True)) if i != place
        ):
            raise ShapeError(
                f"the index of {name} has the axes of the tensor, no larger but along {place}",
                rows=[("tensor", self._shape), ("index", shape)],
            )
        checked = checked_index(index.uop, self._shape[place], place, name)
        return [checked if i == place else counting(shape, i) for i in range(self.ndim)], place

    def _of_classes(self, place: int, classes: Self) -> Self:
        """The element of one class for each sample; unlike an index, a class is not negative."""
        index = classes.unsqueeze(place).uop
        checked = checked_index(index, self._shape[place], place, "nll_loss", wraps=False)
        shape = checked.known_shape
        indices = [checked if i == place else counting(shape, i) for i in range(self.ndim)]
        return self._value(UOp.make(Ops.GATHER, self.uop, *indices)).squeeze(place)

    def take_along_dim(self, index: Self, dim: int) -> Self:
        """The same as `gather`, in numpy's order of arguments."""
        return self.gather(dim, index)

    def index_select(self, dim: int, index: Self) -> Self:
        """Whole slices of an axis, in the order that *index* lists.

        >>> Tensor([[1, 2, 3]]).index_select(1, Tensor([2, 0])).tolist()
        [[3, 1]]
        """
        place = arguments.axis(dim, self.ndim, "index_select")
        return self[(slice(None),) * place + (index,)]

    def take(self, index: Self) -> Self:
        """Elements of the flattened tensor.

        >>> Tensor([[1, 2], [3, 4]]).take(Tensor([3, 0])).tolist()
        [4, 1]
        """
        return self.flatten()[index]

    def masked_select(self, mask: Self) -> Self:
        """The elements where *mask* holds, as one axis.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        shape = arguments.broadcast(self._shape, mask._shape, name="masked_select")
        return self.expand(shape)[mask.expand(shape)]

    def nonzero(self) -> Self:
        """The places of all elements that are not 0, one row each.

        >>> Tensor([[0, 5], [7, 0]]).nonzero().tolist()
        [[0, 1], [1, 0]]
        """
        places = _Mask(self.uop, self).places()
        stacked = np.stack(places, 1) if places else np.zeros((self.numel(), 0), np.int64)
        return self._indices_from(stacked)

    # ---- scattering -----------------------------------------------------------------------------

    def scatter(self, dim: int, index: Self, src: Operand, reduce: str | None = None) -> Self:
        """A copy with the elements of *src* at *index* along an axis; of duplicates, the last.

        >>> Tensor([0, 0, 0]).scatter(0, Tensor([2, 0]), Tensor([7, 8])).tolist()
        [8, 0, 7]
        """
        op = None if reduce is None else self._combining(reduce)
        return self._scattered(dim, index, src, op, "scatter")

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """A copy with the elements of *src* added at *index* along an axis.

        >>> Tensor([0, 0]).scatter_add(0, Tensor([1, 1]), Tensor([3, 4])).tolist()
        [0, 7]
        """
        return self._scattered(dim, index, src, Ops.ADD, "scatter_add")

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy with *src* combined at *index*: sum, prod, mean, amax or amin.

        >>> Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([4, 5]), "sum").tolist()
        [10, 1]
        """
        name = "scatter_reduce"
        op = Ops.ADD if reduce == "mean" else self._combining(reduce)
        ones = src.ones_like(dtype=self._dtype)
        base = self
        if not include_self:
            touched = self.zeros_like()._scattered(dim, index, ones, Ops.ADD, name).ne(0)
            base = self._select(touched, self.full_like(op.identity_for(self._dtype)), self)
        result = base._scattered(dim, index, src, op, name)
        if reduce != "mean":
            return result
        start = self.ones_like() if include_self else self.zeros_like()
        count = start._scattered(dim, index, ones, Ops.ADD, name).maximum(1)
        return result / count if self._dtype.is_float else result // count

    def _combining(self, reduce: str) -> Op:
        if reduce not in _COMBINING:
            raise ArgumentError(
                f"there is no reduction {reduce!r}", expected="sum, prod, mean, amax or amin"
            )
        return _COMBINING[reduce]

    def _scattered(self, dim: int, index: Self, src: Operand, op: Op | None, name: str) -> Self:
        indices, _ = self._along(dim, index, name)
        node = self._incoming(src)
        if node.known_shape == ():
            node = node.expand(index._shape)
        if any(n > m for n, m in zip(index._shape, node.known_shape, strict=True)):
            raise ShapeError(
                f"{name}: src is smaller than the index",
                rows=[("src", node.known_shape), ("index", index._shape)],
            )
        node = node.shrink(tuple((0, n) for n in index._shape))
        return self._value(UOp.make(Ops.SCATTER, self.uop, node, *indices, arg=op))

    def index_add(self, dim: int, index: Self, source: Self, alpha: Number = 1) -> Self:
        """A copy with slices of *source* added at the places of an axis that *index* lists.

        >>> Tensor([0, 0]).index_add(0, Tensor([1, 1]), Tensor([3, 4])).tolist()
        [0, 7]
        """
        scaled = source if alpha == 1 else source * alpha
        return self._slices_put(dim, index, scaled, Ops.ADD, "index_add")

    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """A copy with slices of *source* at the places of an axis that *index* lists."""
        return self._slices_put(dim, index, source, None, "index_copy")

    def index_fill(self, dim: int, index: Self, value: Number) -> Self:
        """A copy with *value* in the slices of an axis that *index* lists."""
        place = arguments.axis(dim, self.ndim, "index_fill")
        shape = (*self._shape[:place], *index._shape, *self._shape[place + 1 :])
        return self._slices_put(
            dim, index, self.full(shape, value, dtype=self._dtype), None, "index_fill"
        )

    def _slices_put(self, dim: int, index: Self, source: Self, op: Op | None, name: str) -> Self:
        place = arguments.axis(dim, self.ndim, name)
        if index.ndim != 1:
            raise ShapeError(f"{name} takes an index with one axis", came=index._shape)
        checked = checked_index(index.uop, self._shape[place], place, name)
        shape = (*self._shape[:place], index._shape[0], *self._shape[place + 1 :])
        node = self._fitting(source, shape)
        order = (place, *(i for i in range(self.ndim) if i != place))
        inverse = tuple(sorted(range(self.ndim), key=order.__getitem__))
        base, value = self.uop.permute(order), node.permute(order)
        return self._value(UOp.make(Ops.SCATTER, base, value, checked, arg=op).permute(inverse))


class _Mask:
    """A tensor of bools as an index."""

    def __init__(self, node: UOp, tensor: Any) -> None:
        self.node, self.tensor = node, tensor
        self.shape: Shape = node.known_shape
        self.ndim = len(self.shape)

    @property
    def known_shape(self) -> Shape:
        """The shape of the mask."""
        return self.shape

    def places(self) -> list[np.ndarray[Any, Any]]:
        """Where the mask holds: one array of positions for each axis. Reads the mask."""
        capture.forbid_reading("a boolean mask as an index")
        array = self.tensor.numpy().reshape(self.shape)
        return [np.ascontiguousarray(a.astype(np.int64)) for a in np.nonzero(array)]


def checked_index(node: UOp, size: int, place: int, name: str, *, wraps: bool = True) -> UOp:
    """An index as int64 with negatives wrapped, checked against the size of its axis."""
    wide = node.cast(dtypes.int64)
    is_plain = node.dtype.is_unsigned or not wraps
    wrapped = wide if is_plain else (wide < 0).where(wide + size, wide)
    count = wide.num_elems
    if count == 0:
        return wrapped
    bad = (wrapped < 0) | (wrapped >= size)
    flat = bad.reshape((count,))
    position = UOp(Ops.IOTA, dtypes.int64, (), count)
    first = UOp.make(Ops.REDUCE, flat.where(position, count), arg=ReduceArg(Ops.MIN, (0,)))
    flag = (first < count).where(first, -1)
    arg = CheckArg(name, place, size, str(user_location() or ""))
    return UOp.make(Ops.CHECK, wrapped, flag, arg=arg)


def _broadcast_indices(chosen: dict[int, Any]) -> dict[int, Any]:
    """All index nodes in one shape."""
    nodes = [item for item in chosen.values() if isinstance(item, UOp)]
    if not nodes:
        return chosen
    shape = arguments.broadcast(*(n.known_shape for n in nodes), name="indexing")
    return {axis: node.expand(shape) for axis, node in chosen.items()}
