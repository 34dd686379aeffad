"""What may stand as the arg of a node: a table, one row for each op that takes one.

    arg_fits_the_op(RESHAPE by "4")  ->  "RESHAPE takes a tuple of counts, not '4'"

A new op that takes an arg gets a row; without one its nodes take none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pellucid.core.units import MATRIX_UNITS
from pellucid.ir import arg as records
from pellucid.ir.checks import Message
from pellucid.ir.op import REDUCE_OPS, Op, Ops
from pellucid.ir.uop import UOp


def arg_fits_the_op(node: UOp) -> Message:
    """The arg is of the kind that the op takes, and None where it takes none."""
    fits, wanted = _ARGS.get(node.op, (_is_none, "no arg"))
    return None if fits(node.arg) else f"{node.op.name} takes {wanted}, not {node.arg!r}"


def _is_none(arg: Any) -> bool:
    return arg is None


def _is_record(record: type) -> Callable[[Any], bool]:
    return lambda arg: isinstance(arg, record)


def _is_count(arg: Any) -> bool:
    return type(arg) is int and arg >= 0


def _are_counts(arg: Any) -> bool:
    return isinstance(arg, tuple) and all(map(_is_count, arg))


def _are_pairs(arg: Any) -> bool:
    return isinstance(arg, tuple) and all(_are_counts(p) and len(p) == 2 for p in arg)


def _is_scalar(arg: Any) -> bool:
    values = arg if isinstance(arg, tuple) else (arg,)
    return all(isinstance(v, (bool, int, float)) for v in values)


def _is_reduction(arg: Any) -> bool:
    return isinstance(arg, records.ReduceArg) and arg.op in REDUCE_OPS


def _is_combiner(arg: Any) -> bool:
    return arg is None or arg in (Ops.ADD, Ops.MUL, Ops.MIN, Ops.MAX)


def _record(record: type) -> tuple[Callable[[Any], bool], str]:
    return _is_record(record), f"a {record.__name__}"


_COUNTS: Final = (_are_counts, "a tuple of counts")
_PAIRS: Final = (_are_pairs, "a tuple of pairs of counts")
_ARGS: Final[dict[Op, tuple[Callable[[Any], bool], str]]] = {
    Ops.CONST: (_is_scalar, "a number, or a tuple of numbers"),
    Ops.VARIABLE: _record(records.VariableArg),
    Ops.BUFFER: _record(records.BufferArg),
    Ops.PARAM: _record(records.ParamArg),
    Ops.IOTA: (_is_count, "a size"),
    Ops.DEFINE: _record(records.DefineArg),
    Ops.SPECIAL: _record(records.SpecialArg),
    Ops.RANGE: _record(records.RangeArg),
    Ops.RESHAPE: _COUNTS,
    Ops.PERMUTE: _COUNTS,
    Ops.EXPAND: _COUNTS,
    Ops.PAD: _PAIRS,
    Ops.SHRINK: _PAIRS,
    Ops.FLIP: _COUNTS,
    Ops.REDUCE: (_is_reduction, "a ReduceArg with an associative op"),
    Ops.SCATTER: (_is_combiner, "None, or an op that combines"),
    Ops.COPY: (lambda arg: isinstance(arg, str), "the name of a device"),
    Ops.LEAF: (lambda arg: type(arg) is int, "a number"),
    Ops.CHECK: _record(records.CheckArg),
    Ops.STAGE: _record(records.StageArg),
    Ops.MMA: (lambda arg: arg in MATRIX_UNITS, "the name of a matrix unit"),
    Ops.LANE: (lambda arg: _is_count(arg) or _are_counts(arg), "a lane, or a tuple of lanes"),
    Ops.SINK: (lambda arg: arg is None or isinstance(arg, records.KernelInfo), "a KernelInfo"),
    Ops.STORE: (lambda arg: arg in (None, "stream"), "None or 'stream'"),
    Ops.PREFETCH: (lambda arg: arg in (None, "write"), "None or 'write'"),
    Ops.CALL: _record(records.CallInfo),
    Ops.SOURCE: (lambda arg: isinstance(arg, str), "text"),
    Ops.BINARY: (lambda arg: isinstance(arg, bytes), "bytes"),
    Ops.PROGRAM: _record(records.ProgramInfo),
}
