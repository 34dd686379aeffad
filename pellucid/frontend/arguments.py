"""Reading arguments: axes, shapes and types as users write them, checked where they are wrong.

axis(-1, 3, "sum") -> 2          axes(None, 2, "sum") -> (0, 1)       shape((2, -1), 6) -> (2, 3)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pellucid.core.dtype import VALUE_DTYPES, DType, dtypes, parse_dtype
from pellucid.core.errors import AxisError, DTypeError, ShapeError
from pellucid.core.options import current_options
from pellucid.ir.op import Shape

Axes = int | Sequence[int] | None
DTypeLike = DType | str | type | None


def integer(value: Any, what: str) -> int:
    """Read a whole number (of Python, numpy, or anything that is an index)."""
    try:
        return operator.index(value)
    except TypeError:
        raise ShapeError(f"{what} has to be a whole number", came=repr(value)) from None


def axis(value: Any, ndim: int, name: str) -> int:
    """Read an axis, counted from the end if negative.

    >>> axis(-1, 3, "sum")
    2
    """
    number = integer(value, f"the axis of {name}")
    room = max(ndim, 1)
    if not -room <= number < room:
        raise AxisError(
            f"{name} has no axis {number} to work on",
            expected=f"an axis from {-room} to {room - 1}, as the tensor has {ndim}",
            came=number,
        )
    return number % room


def axes(value: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Read one axis, several, or None for all of them; ascending."""
    if value is None:
        return tuple(range(ndim))
    given = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    found = [axis(v, ndim, name) for v in given]
    if len(set(found)) != len(found):
        raise AxisError(f"{name} names an axis twice", came=tuple(given))
    if ndim == 0:
        return ()
    return tuple(sorted(found))


def sizes(values: tuple[Any, ...], name: str) -> Shape:
    """Read a shape given as one sequence or as several arguments."""
    if len(values) == 1 and isinstance(values[0], Iterable):
        values = tuple(values[0])
    return tuple(integer(v, f"a size in {name}") for v in values)


def shape(values: tuple[Any, ...], name: str) -> Shape:
    """Read a shape whose sizes are not negative."""
    found = sizes(values, name)
    if any(n < 0 for n in found):
        raise ShapeError(f"{name} cannot have a negative size", came=found)
    return found


def reshaped(values: tuple[Any, ...], old: Shape, name: str = "reshape") -> Shape:
    """Read the new shape of a tensor of shape *old*, where one size may be -1."""
    new = sizes(values, name)
    count = math.prod(old)
    unknown = [i for i, n in enumerate(new) if n == -1]
    rest = math.prod(n for n in new if n != -1)
    if len(unknown) == 1 and rest > 0 and count % rest == 0:
        new = tuple(count // rest if n == -1 else n for n in new)
    if any(n < 0 for n in new) or math.prod(new) != count:
        raise ShapeError(
            f"{name} keeps the number of elements",
            rows=[("from", old, count), ("to", new, "?" if unknown else math.prod(new))],
            help="at most one size may be -1, and the others must divide the number of elements",
        )
    return new


def broadcast(*shapes: Shape, name: str) -> Shape:
    """The shape that all *shapes* expand to: sizes are equal or 1, from the last axis on.

    >>> broadcast((3, 1), (4,), name="add")
    (3, 4)
    """
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    ndim = max(map(len, shapes))
    aligned = [(1,) * (ndim - len(s)) + s for s in shapes]
    result = []
    for column in zip(*aligned, strict=True):
        wide = {n for n in column if n != 1}
        if len(wide) > 1:
            names = ("left", "right") if len(shapes) == 2 else [f"{i}" for i in range(len(shapes))]
            raise ShapeError(
                f"{name} needs shapes that broadcast: sizes equal or 1, from the last axis on",
                rows=list(zip(names, shapes, strict=True)),
                help="reshape or expand one of them",
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def default_float() -> DType:
    """The type of Python floats."""
    return parse_dtype(current_options().default_float)


def default_int() -> DType:
    """The type of Python integers."""
    return parse_dtype(current_options().default_int)


def dtype(value: DTypeLike | np.dtype[Any], name: str = "dtype") -> DType:
    """Read a type: ours, its name, a Python type, or numpy's.

    >>> dtype("float16"), dtype(bool)
    (dtypes.float16, dtypes.bool)
    """
    if isinstance(value, DType):
        found: DType | None = value
    elif value is bool:
        found = dtypes.bool
    elif value is int:
        found = default_int()
    elif value is float:
        found = default_float()
    else:
        found = _named(value)
    if found is None or found not in VALUE_DTYPES or found.lanes != 1:
        known = ", ".join(d.name for d in VALUE_DTYPES if d.kind.value != "complex")
        raise DTypeError(
            f"{name}: there is no such type", expected=f"one of {known}", came=repr(value)
        )
    if found.kind.value == "complex":
        raise DTypeError(
            f"{found} is not supported yet", help="keep real and imaginary parts as two tensors"
        )
    return found


def _named(value: Any) -> DType | None:
    name = value if isinstance(value, str) else None
    if name is None:
        try:
            name = np.dtype(value).name
        except TypeError:
            return None
    return next((d for d in VALUE_DTYPES if d.name == name), None)
