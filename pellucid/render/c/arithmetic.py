"""Arithmetic, comparisons, choices and conversions, as expressions.

    ADD(a, b) of floats    (a + b)              CMPLT(a, b) of vectors   (int32x8)(a < b)
    ADD(a, b) of int32     (int32_t)((uint32_t)a + (uint32_t)b)     where it may wrap

A vector of bools is a mask, as wide as what was compared (`types.mask_dtype`).
"""

from __future__ import annotations

from typing import Final

from pellucid.core.dtype import DType
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.c.table import emits
from pellucid.render.c.types import UNSIGNED, c_type, mask_dtype, stripped
from pellucid.render.c.writer import CWriter
from pellucid.render.program import cannot_wrap, value_of
from pellucid.render.renderer import FUNCTIONS

_SIGNS: Final = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.IDIV: "/",
    Ops.IMOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.ISHL: "<<",
    Ops.ISHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPLE: "<=",
    Ops.CMPEQ: "==",
    Ops.CMPNE: "!=",
}


def _infix(w: CWriter, node: UOp) -> str:
    return f"({w[node.src[0]]} {_SIGNS[node.op]} {w[node.src[1]]})"


@emits(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, floats=True)
def float_arithmetic(w: CWriter, node: UOp) -> str:
    """Floats: as C does it."""
    return _infix(w, node)


@emits(Ops.ADD, Ops.SUB, Ops.MUL, Ops.ISHL, floats=False)
def wrapping(w: CWriter, node: UOp) -> str:
    """Integers wrap: computed unsigned, unless bounds say that they cannot."""
    dtype, op = node.dtype, node.op
    if dtype.bits >= 32 and (dtype.is_unsigned or (op is not Ops.ISHL and cannot_wrap(node))):
        return _infix(w, node)
    bits = dtype.bits if dtype.lanes > 1 else max(dtype.bits, 32)
    unsigned = w.type_name(UNSIGNED[bits].vec(dtype.lanes))
    left, right = (f"({unsigned}){w[s]}" for s in node.src)
    return f"({w.type_name(dtype)})({left} {_SIGNS[op]} {right})"


@emits(Ops.IDIV, Ops.IMOD, Ops.ISHR, floats=False)
def integer_arithmetic(w: CWriter, node: UOp) -> str:
    """Never out of range, by the meaning of these ops."""
    narrow = node.dtype.bits < 32 and node.dtype.lanes == 1
    return f"({w.type_name(node.dtype)}){_infix(w, node)}" if narrow else _infix(w, node)


@emits(Ops.NEG, floats=True)
def flip_sign(w: CWriter, node: UOp) -> str:
    """Only the sign bit changes."""
    return f"(- {w[node.src[0]]})"


@emits(Ops.NEG, floats=False)
def negate(w: CWriter, node: UOp) -> str:
    """0 - x, unsigned."""
    dtype = node.dtype
    bits = dtype.bits if dtype.lanes > 1 else max(dtype.bits, 32)
    unsigned = w.type_name(UNSIGNED[bits].vec(dtype.lanes))
    return f"({w.type_name(dtype)})(- ({unsigned}){w[node.src[0]]})"


@emits(Ops.AND, Ops.OR, Ops.XOR, floats=False)
def bitwise(w: CWriter, node: UOp) -> str:
    """Bits, and logic of bools."""
    if node.dtype.is_bool and node.dtype.lanes > 1:
        left, right = (w.mask(s, w.mask_bits[node]) for s in node.src)
        return f"({left} {_SIGNS[node.op]} {right})"
    narrow = node.dtype.bits < 32 and node.dtype.lanes == 1 and not node.dtype.is_bool
    return f"({w.type_name(node.dtype)}){_infix(w, node)}" if narrow else _infix(w, node)


_FUNCTIONS: Final = {**FUNCTIONS, Ops.ROUND: "rint"}


@emits(*_FUNCTIONS, floats=True)
def function(w: CWriter, node: UOp) -> str:
    """Functions that the processor has; lane by lane for vectors."""
    dtype = node.dtype
    name = f"__builtin_{_FUNCTIONS[node.op]}{'f' if dtype.bits == 32 else ''}"
    arguments = ", ".join(stripped(w[s]) for s in node.src)
    if dtype.lanes == 1:
        return f"{name}({arguments})"
    letters = "abc"[: len(node.src)]
    call = f"{name}({', '.join(f'{x}[lane]' for x in letters)})"
    return f"{_by_lanes(w, _FUNCTIONS[node.op], dtype, letters, call)}({arguments})"


def _by_lanes(w: CWriter, name: str, dtype: DType, letters: str, expression: str) -> str:
    """A helper that computes *expression* for each lane."""
    kind = w.type_name(dtype)
    body = (
        f"    {kind} result;\n    for (int lane = 0; lane < {dtype.lanes}; lane++)\n"
        f"        result[lane] = {expression};\n    return result;"
    )
    parameters = ", ".join(f"{kind} {letter}" for letter in letters)
    return w.helper(f"{name}_{dtype}", dtype, parameters, body)


@emits(Ops.MAX, Ops.MIN, floats=False)
def integer_extreme(w: CWriter, node: UOp) -> str:
    """Maximum and minimum of integers."""
    dtype = node.dtype
    sign, name = (">", "max") if node.op is Ops.MAX else ("<", "min")
    if dtype.lanes > 1:
        letters = f"a[lane] {sign} b[lane] ? a[lane] : b[lane]"
        left, right = (stripped(w[s]) for s in node.src)
        return f"{_by_lanes(w, name, dtype, 'ab', letters)}({left}, {right})"
    kind = c_type(dtype)
    parameters = f"{kind} a, {kind} b"
    chosen = w.helper(f"{name}_{dtype}", dtype, parameters, f"    return a {sign} b ? a : b;")
    return f"{chosen}({stripped(w[node.src[0]])}, {stripped(w[node.src[1]])})"


@emits(Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
def compare(w: CWriter, node: UOp) -> str:
    """Scalars give 0 or 1, vectors 0 or -1 in each lane."""
    if node.dtype.lanes == 1:
        return _infix(w, node)
    if node.src[0].dtype.is_bool:
        return _compare_masks(w, node)
    kind = w.type_name(mask_dtype(w.mask_bits[node], node.dtype.lanes))
    return f"({kind}){_infix(w, node)}"


def _compare_masks(w: CWriter, node: UOp) -> str:
    left, right = (w.mask(s, w.mask_bits[node]) for s in node.src)
    return {
        Ops.CMPLT: f"(~{left} & {right})",
        Ops.CMPLE: f"(~{left} | {right})",
        Ops.CMPEQ: f"(~({left} ^ {right}))",
        Ops.CMPNE: f"({left} ^ {right})",
    }[node.op]


@emits(Ops.WHERE, wide=False)
def select(w: CWriter, node: UOp) -> str:
    """One of two values."""
    condition, if_true, if_false = (w[s] for s in node.src)
    literals = all(value_of(s).op is Ops.CONST for s in node.src[1:])
    kind = f"({c_type(node.dtype)})" if literals and node.dtype.bits == 64 else ""
    return f"({condition} ? {kind}{if_true} : {if_false})"


@emits(Ops.WHERE, wide=True)
def select_lanes(w: CWriter, node: UOp) -> str:
    """Lane by lane, by masking."""
    condition, if_true, if_false = node.src
    if node.dtype.is_bool:
        bits = w.mask_bits[node]
        chosen, left, right = (w.mask(s, bits) for s in node.src)
        return f"(({chosen} & {left}) | (~{chosen} & {right}))"
    dtype = node.dtype
    mask = mask_dtype(dtype.bits, dtype.lanes)
    kind, bits_kind = w.type_name(dtype), w.type_name(mask)
    body = f"    return ({kind})((mask & ({bits_kind})a) | (~mask & ({bits_kind})b));"
    name = w.helper(f"select_{dtype}", dtype, f"{bits_kind} mask, {kind} a, {kind} b", body)
    chosen = w.mask(condition, dtype.bits)
    return f"{name}({stripped(chosen)}, {stripped(w[if_true])}, {stripped(w[if_false])})"


# ---- conversions ---------------------------------------------------------------------------------


@emits(Ops.CAST, Ops.FTOI)
def cast(w: CWriter, node: UOp) -> str:
    """Between types, by value; floats become integers towards zero."""
    source, result = node.src[0], node.dtype
    if result.is_bool:
        return _to_bool(w, node)
    if result.lanes == 1:
        return f"({c_type(result)}){w[source]}"
    if source.dtype.is_bool:
        bits = w.width_of_mask(source)
        ones = f"(-{w.mask(source, bits)})"
        same = mask_dtype(bits, result.lanes)
        return ones if result is same else f"__builtin_convertvector({ones}, {w.type_name(result)})"
    return f"__builtin_convertvector({stripped(w[source])}, {w.type_name(result)})"


def _to_bool(w: CWriter, node: UOp) -> str:
    source = node.src[0]
    zero = w.literal(source.dtype, 0.0 if source.dtype.is_float else 0)
    if node.dtype.lanes == 1:
        return f"({w[source]} != {zero})"
    kind = w.type_name(mask_dtype(w.mask_bits[node], node.dtype.lanes))
    return f"({kind})({w[source]} != {zero})"


@emits(Ops.BITCAST, wide=False)
def bitcast(w: CWriter, node: UOp) -> str:
    """The same bits, through memory; a bool counts as a byte."""
    source, result = node.src[0], node.dtype
    if not source.dtype.is_float and not result.is_float:
        return f"({c_type(result)}){w[source]}"
    kind = c_type(result)
    body = (
        f"    {kind} result;\n    __builtin_memcpy(&result, &x, sizeof result);\n    return result;"
    )
    name = f"{result}_of_{source.dtype}_bits"
    w.helper(name, result, f"{c_type(source.dtype)} x", body)
    return f"{name}({stripped(w[source])})"


@emits(Ops.BITCAST, wide=True)
def bitcast_lanes(w: CWriter, node: UOp) -> str:
    """The same bits; a bool counts as a byte."""
    source, result = node.src[0], node.dtype
    if result.is_bool:
        return w[source] if source.dtype.is_bool else _to_bool(w, node)
    if source.dtype.is_bool:
        return f"({w.type_name(result)})(-{w.mask(source, 8)})"
    return f"({w.type_name(result)}){w[source]}"
