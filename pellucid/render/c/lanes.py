"""Vectors from scalars, and lanes from vectors.

    SPLAT(a)  splat_float32x8(a)    LANE(v, 3)  v[3]    STACK(a, b)  (float32x2){a, b}

In a vector of bools each lane is 0 or -1.
"""

from __future__ import annotations

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.c.table import emits
from pellucid.render.c.types import mask_dtype, stripped
from pellucid.render.c.writer import CWriter


@emits(Ops.SPLAT)
def splat(w: CWriter, node: UOp) -> str:
    """One scalar in all lanes."""
    if node.dtype.is_bool:
        mask = mask_dtype(w.mask_bits[node], node.dtype.lanes)
        return w.splat(mask, f"-{w[node.src[0]]}")
    return w.splat(node.dtype, stripped(w[node.src[0]]))


@emits(Ops.LANE)
def lane(w: CWriter, node: UOp) -> str:
    """One lane as a scalar, or some as a vector."""
    source = node.src[0]
    text = w.mask(source, w.width_of_mask(source)) if source.dtype.is_bool else w[source]
    text = text if text.isidentifier() else f"({text})"
    which = node.arg if isinstance(node.arg, int) else node.arg[0] if len(node.arg) == 1 else None
    if which is not None:
        return f"({text}[{which}] != 0)" if source.dtype.is_bool else f"{text}[{which}]"
    lanes = ", ".join(map(str, node.arg))
    return f"__builtin_shufflevector({text}, {text}, {lanes})"


@emits(Ops.STACK)
def stack(w: CWriter, node: UOp) -> str:
    """All lanes of all parts, in order."""
    if node.dtype.lanes == 1:
        return w[node.src[0]]
    sign, dtype = "", node.dtype
    if dtype.is_bool:
        sign, dtype = "-", mask_dtype(w.mask_bits[node], dtype.lanes)
    lanes: list[str] = []
    for part in node.src:
        if part.dtype.lanes == 1:
            lanes.append(sign + w[part])
        else:
            text = w.mask(part, dtype.bits) if part.dtype.is_bool else w[part]
            text = text if text.isidentifier() else f"({text})"
            lanes.extend(f"{text}[{i}]" for i in range(part.dtype.lanes))
    return f"({w.type_name(dtype)}){{{', '.join(lanes)}}}"
