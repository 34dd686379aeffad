"""What form TENSOR promises: every node has a shape, and movement fits it.

    reduce_names_an_axis(REDUCE over no axes)  ->  "REDUCE without an axis"

The checks stand in form.py in such an order that shapes are asked for once they must exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from pellucid.core.dtype import dtypes
from pellucid.ir.checks import Message, names_of
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp


def tensors_have_a_shape(node: UOp) -> Message:
    """Every node but the SINK has a shape."""
    if node.op is Ops.SINK or node.shape is not None:
        return None
    return f"{node.op.name} has no shape"


def shapes_agree(node: UOp) -> Message:
    """All sources of an elementwise op, or of a PAIR, have one shape: broadcasting is EXPAND."""
    if (node.op.is_elementwise or node.op is Ops.PAIR) and len({s.shape for s in node.src}) > 1:
        return f"{node.op.name} of shapes {names_of(s.shape for s in node.src)}"
    return None


def one_lane_each(node: UOp) -> Message:
    """Lanes do not exist yet."""
    return None if node.dtype.lanes == 1 else f"{node.op.name} has {node.dtype.lanes} lanes"


def movement_fits_its_source(node: UOp) -> Message:
    """A movement op names axes, sizes and boxes that its source has."""
    if not node.op.is_movement:
        return None
    shape, arg = node.src[0].known_shape, node.arg
    if _MOVEMENTS[node.op](shape, arg):
        return None
    return f"{node.op.name} of shape {shape} by {arg}"


def pad_fill_is_a_scalar(node: UOp) -> Message:
    """The fill of a PAD has shape () and the type of the source."""
    if node.op is not Ops.PAD:
        return None
    fill = node.src[1]
    if fill.shape == () and fill.dtype is node.src[0].dtype:
        return None
    return f"PAD of {node.src[0].dtype} with a fill of {fill.dtype}, shape {fill.shape}"


def reduce_names_an_axis(node: UOp) -> Message:
    """A REDUCE names at least one axis, each once, ascending, of those that its source has."""
    if node.op is not Ops.REDUCE:
        return None
    axes = node.arg.axes
    if not axes:
        return "REDUCE without an axis"
    good = list(axes) == sorted(set(axes)) and all(
        0 <= a < len(node.src[0].known_shape) for a in axes
    )
    return None if good else f"REDUCE of shape {node.src[0].known_shape} over axes {axes}"


def reduce_has_no_ranges_yet(node: UOp) -> Message:
    """Ranges come with LOOP form: whole tensors are reduced, and staged, by axes."""
    if node.op in (Ops.REDUCE, Ops.STAGE) and len(node.src) > 1:
        return f"{node.op.name} over ranges in TENSOR form"
    return None


def indices_fit_their_tensor(node: UOp) -> Message:
    """The indices of GATHER and SCATTER are integers of one shape, no more than there are axes."""
    first = {Ops.GATHER: 1, Ops.SCATTER: 2}.get(node.op)
    if first is None:
        return None
    indices, shape = node.src[first:], node.src[0].known_shape
    if not 1 <= len(indices) <= len(shape):
        return f"{node.op.name} of shape {shape} by {len(indices)} indices"
    if any(not i.dtype.is_int for i in indices):
        return f"{node.op.name} by {names_of(i.dtype for i in indices)}"
    if len({i.shape for i in indices}) > 1:
        return f"{node.op.name} by indices of shapes {names_of(i.shape for i in indices)}"
    return None


def written_values_fit(node: UOp) -> Message:
    """The value of a SCATTER or WRITE has the base's type, and the shape of what it replaces."""
    if node.op is Ops.SCATTER:
        base, value = node.src[:2]
        wanted = node.src[2].known_shape + base.known_shape[len(node.src) - 2 :]
    elif node.op is Ops.WRITE:
        base, window, value = node.src
        wanted = window.known_shape
    else:
        return None
    if value.dtype is not base.dtype:
        return f"{node.op.name} of {value.dtype} into {base.dtype}"
    if value.shape != wanted:
        return f"{node.op.name} of shape {value.shape} where {wanted} is replaced"
    return None


def window_ends_at_its_base(node: UOp) -> Message:
    """The window of a WRITE is a chain of RESHAPE, PERMUTE, SHRINK and FLIP over the base."""
    if node.op is not Ops.WRITE:
        return None
    window = node.src[1]
    while window is not node.src[0]:
        if window.op not in (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP):
            return f"the window of WRITE goes through {window.op.name}"
        window = window.src[0]
    return None


def flag_is_a_scalar_int64(node: UOp) -> Message:
    """The flag of a CHECK is one int64."""
    if node.op is not Ops.CHECK:
        return None
    flag = node.src[1]
    good = flag.dtype is dtypes.int64 and flag.shape == ()
    return None if good else f"the flag of CHECK is {flag.dtype} of shape {flag.shape}"


def _can_reshape(shape: tuple[int, ...], arg: Any) -> bool:
    return bool(math.prod(shape) == math.prod(arg))


def _can_permute(shape: tuple[int, ...], arg: Any) -> bool:
    return sorted(arg) == list(range(len(shape)))


def _can_expand(shape: tuple[int, ...], arg: Any) -> bool:
    if len(arg) < len(shape):
        return False
    ends = arg[len(arg) - len(shape) :]
    return all(old in (1, new) for old, new in zip(shape, ends, strict=True))


def _can_pad(shape: tuple[int, ...], arg: Any) -> bool:
    return len(arg) == len(shape)


def _can_shrink(shape: tuple[int, ...], arg: Any) -> bool:
    if len(arg) != len(shape):
        return False
    return all(start <= end <= size for (start, end), size in zip(arg, shape, strict=True))


def _can_flip(shape: tuple[int, ...], arg: Any) -> bool:
    return list(arg) == sorted(set(arg)) and all(a < len(shape) for a in arg)


_MOVEMENTS: Final[dict[Op, Callable[[tuple[int, ...], Any], bool]]] = {
    Ops.RESHAPE: _can_reshape,
    Ops.PERMUTE: _can_permute,
    Ops.EXPAND: _can_expand,
    Ops.PAD: _can_pad,
    Ops.SHRINK: _can_shrink,
    Ops.FLIP: _can_flip,
}
