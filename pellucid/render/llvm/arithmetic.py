"""Arithmetic, comparisons, choices and conversions: mostly one instruction for an op.

    ADD(a, b) of floats     fadd float %a, %b        WHERE(c, a, b)       select i1 %c, …
    MULADD(a, b, c)         call @llvm.fma.f32       CAST(a) to float32   sitofp i32 %a to float

What an emitter returns stands right of the name of the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pellucid.core.dtype import DType
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.addresses import WRAPPING
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.types import llvm_literal, llvm_type, suffix
from pellucid.render.llvm.writer import LLVMWriter
from pellucid.render.program import cannot_wrap
from pellucid.render.renderer import FUNCTIONS


def _simple(w: LLVMWriter, instruction: str, node: UOp) -> str:
    return f"{instruction} {w.typed(node.src[0])}, {w[node.src[1]]}"


def _rows(table: dict[Op, str], **facts: bool) -> None:
    """Register instructions that only differ in their name."""
    for op, instruction in table.items():
        emits(op, **facts)(_instruction(instruction))


def _instruction(instruction: str) -> Callable[[LLVMWriter, UOp], str]:
    return lambda w, node: _simple(w, instruction, node)


_rows({Ops.ADD: "fadd", Ops.SUB: "fsub", Ops.MUL: "fmul", Ops.FDIV: "fdiv"}, floats=True)
_rows({Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor", Ops.ISHL: "shl"}, floats=False)
_rows({Ops.IDIV: "udiv", Ops.IMOD: "urem", Ops.ISHR: "lshr"}, unsigned=True)
_rows({Ops.IDIV: "sdiv", Ops.IMOD: "srem", Ops.ISHR: "ashr"}, unsigned=False)
_rows(
    {
        Ops.CMPLT: "fcmp olt",
        Ops.CMPLE: "fcmp ole",
        Ops.CMPEQ: "fcmp oeq",
        Ops.CMPNE: "fcmp une",
    },
    floats=True,
)
_rows({Ops.CMPLT: "icmp ult", Ops.CMPLE: "icmp ule"}, unsigned=True)
_rows({Ops.CMPLT: "icmp slt", Ops.CMPLE: "icmp sle"}, unsigned=False)
_rows({Ops.CMPEQ: "icmp eq", Ops.CMPNE: "icmp ne"}, floats=False)


@emits(Ops.ADD, Ops.SUB, Ops.MUL, floats=False)
def wrapping(w: LLVMWriter, node: UOp) -> str:
    """Integers wrap; where they provably do not, address arithmetic may be rearranged."""
    flag = " nsw" if not node.dtype.is_unsigned and cannot_wrap(node) else ""
    return _simple(w, WRAPPING[node.op] + flag, node)


@emits(Ops.NEG, floats=True)
def flip_sign(w: LLVMWriter, node: UOp) -> str:
    """Only the sign bit changes."""
    return f"fneg {w.typed(node.src[0])}"


@emits(Ops.NEG, floats=False)
def negate(w: LLVMWriter, node: UOp) -> str:
    """0 - x."""
    return f"sub {llvm_type(node.dtype)} {llvm_literal(node.dtype, 0)}, {w[node.src[0]]}"


_INTRINSICS: Final = {**FUNCTIONS, Ops.ROUND: "roundeven"}


@emits(*_INTRINSICS, floats=True)
def intrinsic(w: LLVMWriter, node: UOp) -> str:
    """Functions that the processor has."""
    name = f"llvm.{_INTRINSICS[node.op]}.{suffix(node.dtype)}"
    return w.call(name, llvm_type(node.dtype), *map(w.argument, node.src))


@emits(Ops.MAX, Ops.MIN, floats=False)
def integer_extreme(w: LLVMWriter, node: UOp) -> str:
    """Maximum and minimum of integers."""
    sign = "u" if node.dtype.is_unsigned or node.dtype.is_bool else "s"
    name = f"llvm.{sign}{node.op.name.lower()}.{suffix(node.dtype)}"
    return w.call(name, llvm_type(node.dtype), *map(w.argument, node.src))


@emits(Ops.WHERE)
def select(w: LLVMWriter, node: UOp) -> str:
    """Both sides are computed; nothing branches."""
    return "select " + ", ".join(w.typed(s) for s in node.src)


# ---- conversions ---------------------------------------------------------------------------------


@emits(Ops.CAST)
def cast(w: LLVMWriter, node: UOp) -> str | None:
    """Between integers, from integers to floats, between floats, and to bool."""
    source, result = node.src[0], node.dtype
    if result.is_bool:
        zero = llvm_literal(source.dtype, 0.0 if source.dtype.is_float else 0)
        compare = "fcmp une" if source.dtype.is_float else "icmp ne"
        return f"{compare} {w.typed(source)}, {zero}"
    conversion = _conversion(source.dtype, result)
    if conversion == "":
        w.names[node] = w[source]
        w.addresses.widen(node)
        return None
    return f"{conversion} {w.typed(source)} to {llvm_type(result)}"


def _conversion(source: DType, result: DType) -> str:
    unsigned = source.is_unsigned or source.is_bool
    if source.is_float:
        if not result.is_float:
            return "fptoui" if result.is_unsigned else "fptosi"
        return "fpext" if result.bits > source.bits else "fptrunc"
    if result.is_float:
        return "uitofp" if unsigned else "sitofp"
    if result.bits == source.bits:
        return ""
    if result.bits < source.bits:
        return "trunc"
    return "zext" if unsigned else "sext"


@emits(Ops.FTOI)
def float_to_integer(w: LLVMWriter, node: UOp) -> str:
    """Towards zero, for values that fit."""
    conversion = "fptoui" if node.dtype.is_unsigned else "fptosi"
    return f"{conversion} {w.typed(node.src[0])} to {llvm_type(node.dtype)}"


@emits(Ops.BITCAST)
def bitcast(w: LLVMWriter, node: UOp) -> str:
    """The same bits; a bool counts as a byte."""
    source, result = node.src[0].dtype, node.dtype
    if result.is_bool and not source.is_bool:
        return f"trunc {w.typed(node.src[0])} to {llvm_type(result)}"
    conversion = "zext" if source.is_bool and not result.is_bool else "bitcast"
    return f"{conversion} {w.typed(node.src[0])} to {llvm_type(result)}"
