"""What numpy says that operations are, where it takes more than one call to say it."""

from __future__ import annotations

from typing import Any

import numpy as np


def convolution(
    x: Any, weight: Any, padding: int = 0, stride: int = 1, dilation: int = 1, groups: int = 1
) -> Any:
    """The cross-correlation of pictures (batch, in, …) with windows (out, in / groups, …)."""
    around = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    span = tuple((size - 1) * dilation + 1 for size in weight.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(around, span, axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], axis=1)
