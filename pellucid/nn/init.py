"""Starting values of parameters.

    kaiming_uniform((out, in))     uniform in +-sqrt(6 / ((1 + a^2) in))

Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015, equation 10; Glorot and
Bengio,
"Understanding the difficulty of training deep feedforward neural networks", 2010, equation 16.
"""

from __future__ import annotations

import math
from typing import Any

from pellucid.frontend.tensor import Tensor


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs one output has, and how many outputs one input feeds.

    >>> fans((8, 3, 5, 5))
    (75, 200)
    """
    window = math.prod(shape[2:])
    return (shape[1] if len(shape) > 1 else shape[0]) * window, shape[0] * window


def parameter_uniform(shape: tuple[int, ...], bound: float, **options: Any) -> Tensor:
    """A parameter, uniform in [-bound, bound)."""
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True, **options)


def kaiming_uniform(shape: tuple[int, ...], a: float = 0.0, **options: Any) -> Tensor:
    """A parameter whose variance suits rectifiers of negative slope *a*."""
    fan_in, _ = fans(shape)
    return parameter_uniform(shape, math.sqrt(6 / ((1 + a * a) * max(fan_in, 1))), **options)


def kaiming_normal(shape: tuple[int, ...], a: float = 0.0, **options: Any) -> Tensor:
    """A normal parameter whose variance suits rectifiers of negative slope *a*."""
    fan_in, _ = fans(shape)
    std = math.sqrt(2 / ((1 + a * a) * max(fan_in, 1)))
    return Tensor.normal(0.0, std, shape, requires_grad=True, **options)


def xavier_uniform(shape: tuple[int, ...], **options: Any) -> Tensor:
    """A parameter whose variance keeps activations and gradients alike."""
    return parameter_uniform(shape, math.sqrt(6 / sum(fans(shape))), **options)
