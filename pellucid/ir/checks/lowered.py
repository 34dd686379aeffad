"""What lowering brings, form by form: lanes, widths, only what the target has.

    no_functions_left(EXP)  ->  "EXP is not exact"

Each check belongs to the form from which on it holds, and to all forms below.
"""

from __future__ import annotations

from typing import Any, Final

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.arg import AxisKind
from pellucid.ir.checks import Message, names_of
from pellucid.ir.checks.tensors import one_lane_each
from pellucid.ir.op import TRANSCENDENTAL, Ops
from pellucid.ir.uop import UOp


def no_lanes_yet(node: UOp) -> Message:
    """LANES ranges are ranges still, so nothing has several lanes."""
    return one_lane_each(node)


def lane_ops_fit(node: UOp) -> Message:
    """SPLAT spreads a scalar, the parts of a STACK fill its lanes, LANE takes lanes that exist."""
    lanes = node.dtype.lanes
    if node.op is Ops.SPLAT and node.src[0].dtype.vec(lanes) is not node.dtype:
        return f"SPLAT of {node.src[0].dtype} to {node.dtype}"
    if node.op is Ops.SPLAT and node.src[0].dtype.lanes != 1:
        return f"SPLAT of {node.src[0].dtype}"
    if node.op is Ops.STACK and sum(s.dtype.lanes for s in node.src) != lanes:
        return f"STACK of {names_of(s.dtype for s in node.src)} to {node.dtype}"
    if node.op is Ops.LANE:
        chosen = node.arg if isinstance(node.arg, tuple) else (node.arg,)
        if len(chosen) != lanes or any(not 0 <= c < node.src[0].dtype.lanes for c in chosen):
            return f"LANE {node.arg} of {node.src[0].dtype} to {node.dtype}"
    return None


def matrices_fit_their_unit(node: UOp) -> Message:
    """The operands of an MMA have the lanes and types of its unit, or the bits of these types."""
    if node.op is not Ops.MMA:
        return None
    unit = MATRIX_UNITS[node.arg]
    lanes = (unit.rows * unit.depth, unit.depth * unit.columns, unit.rows * unit.columns)
    types = (unit.left, unit.right, unit.sum)
    for source, count, dtype in zip(node.src, lanes, types, strict=True):
        alike = source.dtype.scalar is dtype or source.dtype.scalar.name == f"uint{dtype.bits}"
        if source.dtype.lanes != count or not alike:
            return f"{unit.name} of {names_of(s.dtype for s in node.src)}"
    return None


def no_lanes_ranges_left(node: UOp) -> Message:
    """LANES ranges and those of matrix units are lanes now; UPCAST and UNROLL are copies."""
    if node.op is Ops.RANGE and node.arg.kind in _EXPANDED:
        return f"i{node.arg.id} is still a RANGE of kind {node.arg.kind.name}"
    return None


def index_width_is_chosen(node: UOp) -> Message:
    """No node is of type index any more."""
    return f"{node.op.name} is of type index" if node.dtype.is_index else None


def no_launch_ranges_left(node: UOp) -> Message:
    """THREAD, GLOBAL and LOCAL ranges have become indices that the launch provides."""
    if node.op is Ops.RANGE and node.arg.kind in _LAUNCHED:
        return f"i{node.arg.id} is still a RANGE of kind {node.arg.kind.name}"
    return None


def no_functions_left(node: UOp) -> Message:
    """Functions such as exp are spelled with exact ops."""
    return f"{node.op.name} is not exact" if node.op in TRANSCENDENTAL else None


def only_native_ops(node: UOp, target: Target) -> Message:
    """Arithmetic is what the target has."""
    native: Any = getattr(target, "native_ops", None)
    if node.op is Ops.MMA and node.arg not in target.matrix_units:
        return f"{node.arg} is not native to the target"
    if not native or not node.op.is_elementwise or node.op.name in native:
        return None
    return f"{node.op.name} is not native to the target"


def only_native_dtypes(node: UOp, target: Target) -> Message:
    """Values are of types that the target computes with."""
    native: Any = getattr(target, "native_dtypes", None)
    if not native or node.dtype is dtypes.void or node.op in (Ops.PARAM, Ops.DEFINE, Ops.AFTER):
        return None
    name = node.dtype.scalar.name
    return (
        None if name in native else f"{node.op.name} of {name}, which is not native to the target"
    )


_EXPANDED: Final = (
    *(AxisKind.LANES, AxisKind.UPCAST, AxisKind.UNROLL),
    *(AxisKind.ROW, AxisKind.COLUMN, AxisKind.DEPTH),
)
_LAUNCHED: Final = (AxisKind.THREAD, AxisKind.GLOBAL, AxisKind.LOCAL)
