"""Addresses: in 64 bits from 64-bit counters, also where the program says int32.

    x[i * 8 + 3], int32    ->    %v0 = mul nsw i64 %i0, 8
                                 %p0 = getelementptr float, ptr %buffer1, i64 %v0
                                 %p1 = getelementptr float, ptr %p0, i64 3

An integer that an address needs is computed in 64 bits from the start, as far as bounds prove that
the narrow one would not have wrapped; else it is computed as the program says, and extended. Places
that differ by a literal are literal steps from one address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.types import llvm_type
from pellucid.render.program import SILENT, cannot_wrap, memory_dtype, storage_of, value_of

if TYPE_CHECKING:
    from pellucid.render.llvm.writer import LLVMWriter

WRAPPING: Final = {Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul"}
"""The integer arithmetic that addresses are made of."""


class Addresses:
    """The integers of a function that addresses need, and the addresses that it has computed."""

    def __init__(self, w: LLVMWriter) -> None:
        self.w = w
        self.wide, self.narrow = _widths(w.linear.src)
        self.wide_names: dict[UOp, str] = {}
        self.known: dict[tuple[UOp, str], str] = {}  # of storage at an offset, in this block

    def wide_of(self, node: UOp) -> str:
        """An integer as i64."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return str(node.arg)
        return self.w.names[node] if node.dtype.bits == 64 else self.wide_names[node]

    def integer(self, node: UOp, wide: str) -> None:
        """Record a value that was made as i64, in the widths that the program asks for."""
        self.wide_names[node] = wide
        if node.dtype.bits == 64:
            self.w.names[node] = wide
        elif node in self.narrow:
            self.w.names[node] = self.w.value(f"trunc i64 {wide} to {llvm_type(node.dtype)}")

    def compute(self, node: UOp) -> bool:
        """Compute an integer that only addresses need; tell whether it was one."""
        if node.op is Ops.ADD and node not in self.wide and node not in self.narrow:
            return True  # a step from another place
        if node in self.wide and node not in self.narrow and node.op in WRAPPING:
            self._compute_wide(node)
            return True
        return False

    def widen(self, node: UOp) -> None:
        """Let addresses have an integer that was computed in its own width, if they need it."""
        if node not in self.wide or node.dtype.bits == 64:
            return
        if node.op in WRAPPING and all(self._has_wide(s) for s in node.src) and cannot_wrap(node):
            self._compute_wide(node)
            return
        extend = "zext" if node.dtype.is_unsigned else "sext"
        self.wide_names[node] = self.w.value(f"{extend} {self.w.typed(node)} to i64")

    def _compute_wide(self, node: UOp) -> None:
        left, right = (self.wide_of(s) for s in node.src)
        self.wide_names[node] = self.w.value(f"{WRAPPING[node.op]} nsw i64 {left}, {right}")
        if node.dtype.bits == 64:
            self.w.names[node] = self.wide_names[node]

    def _has_wide(self, node: UOp) -> bool:
        node = value_of(node)
        return node.op is Ops.CONST or node in self.wide_names or node.dtype.bits == 64

    def of(self, index: UOp) -> str:
        """The address that an INDEX means; neighbours are literal steps from one address."""
        storage = storage_of(index)
        element = llvm_type(memory_dtype(storage.dtype))
        place, step = _place_and_step(index.src[1])
        key = (storage, self.wide_of(place))
        if key not in self.known:
            self.known[key] = self.w.address(self.w.names[storage], element, key[1])
        return self.w.address(self.known[key], element, str(step))


def _place_and_step(index: UOp) -> tuple[UOp, int]:
    """An index as a value, and a literal that is added to it."""
    index = value_of(index)
    if index.op is Ops.ADD and index.src[1].is_const and cannot_wrap(index):
        return value_of(index.src[0]), index.src[1].arg
    return index, 0


def _widths(items: tuple[UOp, ...]) -> tuple[set[UOp], set[UOp]]:
    """Integers that addresses need in 64 bits, and values that are needed in their own width."""
    wide: set[UOp] = set()
    narrow: set[UOp] = set()
    for node in reversed(items):
        if node.op is Ops.INDEX:
            wide.add(_place_and_step(node.src[1])[0])
        elif node.op is Ops.RANGE:
            wide.add(value_of(node.src[0]))
        elif node.op in SILENT or node.op is Ops.END or node.op is Ops.SPECIAL:
            continue
        elif node.op is Ops.ADD and node not in wide and node not in narrow:
            continue  # a step of addresses only
        elif node in wide and node.op in WRAPPING and cannot_wrap(node):
            wide.update(value_of(s) for s in node.src)
            if node in narrow:
                narrow.update(value_of(s) for s in node.src)
        else:
            if node in wide:
                narrow.add(node)
            narrow.update(value_of(s) for s in node.src)
    return wide, narrow
