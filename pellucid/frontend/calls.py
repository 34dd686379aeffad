"""What belongs to the kind of a call of a captured function, and the tensors in its arguments.

    step(x, 2, {"mode": "train"})   ->   (("tensor", (4, 8), float32, "CPU", …), ("int", 2), …)

Calls with equal keys run the same schedule: shapes, dtypes and devices of tensors, which of them
are the same one, who asks for gradients; the values of numbers, texts and arrays; and of all other
objects, which object it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from pellucid.core.errors import JitError
from pellucid.core.options import code_key, current_options
from pellucid.frontend.tensor import Tensor
from pellucid.frontend.value import grad_enabled

_COMPARED_BY_VALUE: Final = (dict, list, tuple, set, frozenset, np.ndarray, np.generic, Tensor)


def asks_gradient(tensor: Tensor) -> bool | None:
    """What an argument says of gradients: what its maker asked for, False if it is no leaf."""
    storage = tensor._storage
    owner = storage.owner
    return storage.requires_grad if owner is not None and owner() is tensor else False


def surroundings() -> Any:
    """What else a function's meaning depends on."""
    options = current_options()
    return (
        grad_enabled.get(),
        code_key(options),
        options.default_float,
        options.default_int,
        options.device,
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)


def rebuilt(value: Any, exchange: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of tuples, lists and dicts with other tensors."""
    if isinstance(value, Tensor):
        return exchange(value)
    if isinstance(value, dict):
        return {key: rebuilt(inner, exchange) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(inner, exchange) for inner in value))
    if isinstance(value, list | tuple):
        return type(value)(rebuilt(inner, exchange) for inner in value)
    return value


def key_of_call(args: Any, kwargs: Any, tensors: list[Tensor], keep: list[Any]) -> Any:
    """What of all arguments belongs to the kind of a call; quickly where all are tensors."""
    key: list[Any] = []
    for number, value in enumerate(args):
        if kwargs or type(value) is not Tensor:
            tensors.clear()
            return _key_of((args, kwargs), tensors, keep, "arguments")
        alias = next((i for i in range(number) if args[i] is value), -1) if number else -1
        tensors.append(value)
        kind = value._shape, value._dtype, value.device, alias, asks_gradient(value)
        key.append(kind)
    return tuple(key) if not kwargs else _key_of((args, kwargs), tensors, keep, "arguments")


def can_change(value: Any) -> bool:
    """Tell whether an argument may be another value though it is the same object."""
    return isinstance(value, _COMPARED_BY_VALUE) and type(value) is not Tensor


def _key_of(value: Any, tensors: list[Tensor], keep: list[Any], name: str) -> Any:
    """What of an argument belongs to the kind of a call."""
    if isinstance(value, Tensor):
        alias = next((i for i, t in enumerate(tensors) if t is value), -1)
        tensors.append(value)
        return "tensor", value.shape, value.dtype, value.device, alias, asks_gradient(value)
    if value is None or isinstance(value, bool | int | str | bytes):
        return type(value).__name__, value
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, dict):
        return "dict", tuple(
            (k, _key_of(v, tensors, keep, f"{name}[{k!r}]")) for k, v in value.items()
        )
    if isinstance(value, list | tuple):
        inner = [_key_of(v, tensors, keep, f"{name}[{i}]") for i, v in enumerate(value)]
        return type(value).__name__, tuple(inner)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise JitError(
                f"{name} is an array of Python objects, which cannot be compared", came=array.dtype
            )
        return "array", array.shape, array.dtype.str, array.tobytes()
    if isinstance(value, set | frozenset):
        raise JitError(f"{name} is a set, whose order is not fixed", help="pass a sorted tuple")
    keep.append(value)
    return "object", id(value)
