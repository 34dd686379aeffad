"""Functions of functions: the gradient of a function of tensors, as a function.

grad(f)(x)            df/dx
value_and_grad(f)(x)  both at once
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pellucid.core.errors import GradientError
from pellucid.frontend.tensor import Tensor

Function = Callable[..., Tensor]
Places = int | Sequence[int]


def value_and_grad(function: Function, argnums: Places = 0) -> Callable[..., tuple[Tensor, Any]]:
    """Give a function that returns the value of *function* and its gradient.

    argnums: the positional argument to differentiate by, or several (then a tuple of gradients).

    >>> value, gradient = value_and_grad(lambda x: (x * x).sum())(Tensor([3.0]))
    >>> value.item(), gradient.tolist()
    (9.0, [6.0])
    """
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        targets = [_target(args, place) for place in places]
        exchanged = list(args)
        for place, target in zip(places, targets, strict=True):
            exchanged[place] = target
        value = function(*exchanged, **kwargs)
        gradients = value.gradient(*targets)
        return value, gradients[0] if isinstance(argnums, int) else gradients

    return both


def grad(function: Function, argnums: Places = 0) -> Callable[..., Any]:
    """Give a function that returns the gradient of *function*.

    >>> grad(lambda x: (x * x * x).sum())(Tensor([2.0])).tolist()
    [12.0]
    >>> grad(lambda x: grad(lambda y: (y * y * y).sum())(x).sum())(Tensor([2.0])).tolist()
    [12.0]
    """
    both = value_and_grad(function, argnums)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def _target(args: Sequence[Any], place: int) -> Tensor:
    """The argument to differentiate by, as a value of its own, so that nothing else is meant."""
    if place >= len(args) or not isinstance(args[place], Tensor):
        raise GradientError(
            f"argument {place} is no tensor to differentiate by",
            help="pass it by position, or give argnums=",
        )
    target: Tensor = args[place]
    return target.contiguous()
