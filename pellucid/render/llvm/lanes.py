"""Vectors from scalars, and lanes from vectors.

    SPLAT(a)     %v0 = insertelement <8 x float> poison, float %a, i64 0
                 shufflevector <8 x float> %v0, <8 x float> poison, <8 x i32> zeroinitializer
    LANE(v, 3)   extractelement <8 x float> %v, i64 3

Code generation knows these pairs, and a splat of a load is one instruction.

    LANE(STACK(a, b), (0, 8, …))     shufflevector <8 x float> %a, <8 x float> %b, <i32 0, i32 8, …>

Lanes of two vectors are taken at once, as an instruction does. Were the two joined first, vectors
twice as wide as registers would have to be taken apart again, which takes code generation twice as
long as all the rest of a kernel that turns a square around, and it finds twice as many exchanges.
"""

from __future__ import annotations

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.types import lane_list, llvm_type
from pellucid.render.llvm.units import multiply_matrices
from pellucid.render.llvm.writer import LLVMWriter
from pellucid.render.program import value_of


@emits(Ops.SPLAT)
def splat(w: LLVMWriter, node: UOp) -> str:
    """Insert into lane 0, then copy it to all."""
    vector = llvm_type(node.dtype)
    one = w.value(f"insertelement {vector} poison, {w.typed(node.src[0])}, i64 0")
    lanes = f"<{node.dtype.lanes} x i32> zeroinitializer"
    return f"shufflevector {vector} {one}, {vector} poison, {lanes}"


@emits(Ops.LANE)
def lane(w: LLVMWriter, node: UOp) -> str:
    """One lane as a scalar, or some as a vector."""
    source = value_of(node.src[0])
    if source in w.pairs:
        left, right = source.src
        return f"shufflevector {w.typed(left)}, {w.typed(right)}, {lane_list(node.arg)}"
    vector = w.typed(source)
    if isinstance(node.arg, int):
        return f"extractelement {vector}, i64 {node.arg}"
    if len(node.arg) == 1:
        return f"extractelement {vector}, i64 {node.arg[0]}"
    poison = f"{llvm_type(node.src[0].dtype)} poison"
    return f"shufflevector {vector}, {poison}, {lane_list(node.arg)}"


emits(Ops.MMA)(multiply_matrices)


@emits(Ops.STACK)
def stack(w: LLVMWriter, node: UOp) -> str | None:
    """Scalars are inserted one by one; vectors of one size are joined in pairs."""
    vector = llvm_type(node.dtype)
    if node in w.pairs:
        return None
    if node.dtype.lanes == 1:
        w.names[node] = w[node.src[0]]
        return None
    if all(s.dtype.lanes == 1 for s in node.src):
        text = "poison"
        for position, part in enumerate(node.src[:-1]):
            text = w.value(f"insertelement {vector} {text}, {w.typed(part)}, i64 {position}")
        return f"insertelement {vector} {text}, {w.typed(node.src[-1])}, i64 {len(node.src) - 1}"
    lanes, count = node.src[0].dtype.lanes, len(node.src)
    if all(s.dtype.lanes == lanes for s in node.src) and count & (count - 1) == 0:
        return _stack_in_pairs(w, node)
    return _stack_lane_by_lane(w, node)


def _stack_in_pairs(w: LLVMWriter, node: UOp) -> str:
    """As many parts as a power of two, of one size: neighbours are joined, again and again."""
    lanes, scalar = node.src[0].dtype.lanes, node.dtype.scalar
    parts = [w[s] for s in node.src]
    while True:
        kind = llvm_type(scalar.vec(lanes))
        pairs = [
            f"shufflevector {kind} {low}, {kind} {high}, {lane_list(range(2 * lanes))}"
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
        if len(pairs) == 1:
            return pairs[0]
        parts, lanes = [w.value(text) for text in pairs], 2 * lanes


def _stack_lane_by_lane(w: LLVMWriter, node: UOp) -> str:
    """Parts of different sizes: every lane on its own."""
    vector, text, position = llvm_type(node.dtype), "poison", 0
    for part in node.src:
        for which in range(part.dtype.lanes):
            one = w.typed(part)
            if part.dtype.lanes > 1:
                taken = w.value(f"extractelement {one}, i64 {which}")
                one = f"{llvm_type(part.dtype.scalar)} {taken}"
            text = w.value(f"insertelement {vector} {text}, {one}, i64 {position}")
            position += 1
    return f"freeze {vector} {text}"
