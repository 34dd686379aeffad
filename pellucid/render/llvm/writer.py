"""The function in the making: its lines, the names of its values, and what surrounds it.

    w.value("fadd float %a, %b")   appends "%v7 = fadd float %a, %b" and returns "%v7"
    w.effect("ret void")           appends the line
    w[node]                        the name of a value that was written, or a literal

Integers that addresses need are the business of `addresses.py`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.arg import AddrSpace, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.addresses import Addresses
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.types import llvm_literal, llvm_type
from pellucid.render.llvm.units import TILE, asked_features, find_tiles, tile_to_vector
from pellucid.render.program import (
    SCRATCH_ALIGNMENT,
    SILENT,
    is_register,
    joined_pairs,
    leaves,
    loop_bodies,
    memory_dtype,
    scratch_layout,
    streamed_bytes,
    value_of,
)
from pellucid.render.renderer import refusal

_STREAMED_FACT: Final = "!0 = !{i32 1}"  # what `!nontemporal !0` refers to


@dataclass
class Loop:
    """An open loop: its labels, and what its phis wait for."""

    node: UOp
    number: int
    step: int
    outside_line: int
    before: str
    carried: dict[UOp, str]  # register -> name of its phi
    initial: dict[UOp, str]
    phi_line: int
    count: str
    guarded: bool
    sums: list[tuple[str, str, int]] = field(default_factory=list)  # name, start, step


@dataclass
class If:
    """An open IF: the block it came from, and the registers as they were there."""

    number: int
    outside_line: int
    before: str
    registers: dict[UOp, str]


class LLVMWriter:
    """Writes one function: emitters call `define` for a value and `effect` for the rest."""

    def __init__(self, linear: UOp, info: ProgramInfo, target: Target) -> None:
        self.linear, self.info, self.target = linear, info, target
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.registers: dict[UOp, str] = {}  # what each accumulator holds here
        self.declared: dict[str, str] = {}
        self.block = "entry"
        self.open: list[Loop | If] = []
        self.counts: dict[str, int] = {}
        self.bodies = loop_bodies(linear.src)
        self.streamed = streamed_bytes(linear.src)
        self.pairs = joined_pairs(linear.src)
        self.tiles = find_tiles(linear.src)
        self.vectors: dict[UOp, str] = {}  # of tiles, in this block
        self.addresses = Addresses(self)

    # ---- text ------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole function, with the declarations of what it calls."""
        self.enter()
        for node in self.linear.src:
            self.write(node)
        if self.streamed:
            self.fence()
        self.effect("ret void")
        asked = asked_features(self.linear.src, self.target)
        wide = ' "prefer-vector-width"="512"' if self.target.vector_bytes == 64 else ""
        name = self.info.name
        head = (
            f"define void @{name}(ptr noalias readonly %buffers, ptr readonly %vars, "
            "i64 %thread, ptr %scratch) #0 {"
        )
        declarations = [self.declared[key] for key in sorted(self.declared)]
        aligned = ' "stackrealign"' if spills_vectors(self.linear, self.target) else ""
        known = f'nounwind "no-trapping-math"="true"{wide}{aligned}{asked}'
        attributes = f"attributes #0 = {{ {known} }}"
        facts = [_STREAMED_FACT] if self.streamed else []
        parts = [head, "entry:", *filter(None, self.lines), "}", *declarations, attributes, *facts]
        return "\n".join(parts) + "\n"

    def enter(self) -> None:
        """What stands once at the start: addresses of buffers, variables, the kernel's storage."""
        for param in sorted(leaves(self.linear, Ops.PARAM), key=lambda p: p.arg.slot):
            slot = param.arg.slot
            address = self.address("%buffers", "ptr", str(slot)) if slot else "%buffers"
            self.names[param] = f"%buffer{slot}"
            if self.names[param] not in self.counts:
                self.counts[self.names[param]] = 1
                self.effect(f"%buffer{slot} = load ptr, ptr {address}, align 8")
        self.ask_alignment()
        offsets, _ = scratch_layout(self.linear)
        for define in leaves(self.linear, Ops.DEFINE):
            self.reserve(define, offsets)
        for variable in leaves(self.linear, Ops.VARIABLE):
            position = self.info.variables.index(variable.arg)
            value = self.value(
                f"load i64, ptr {self.address('%vars', 'i64', str(position))}, align 8"
            )
            self.addresses.integer(variable, value)

    def ask_alignment(self) -> None:
        """Ask of each parameter that is written past the caches whether it lies as that needs."""
        for slot, size_bytes in self.streamed.items():
            address = self.value(f"ptrtoint ptr %buffer{slot} to i64")
            rest = self.value(f"and i64 {address}, {size_bytes - 1}")
            self.effect(f"%aligned{slot} = icmp eq i64 {rest}, 0")

    def fence(self) -> None:
        """Let what went past the caches be seen by others before the kernel ends."""
        if self.target.arch == "x86-64":
            self.effect(self.call("llvm.x86.sse.sfence", "void"))

    def reserve(self, define: UOp, offsets: dict[UOp, int]) -> None:
        """Give storage to a DEFINE: scratch memory, the stack, or nothing (a register)."""
        if is_register(define):
            return
        if define.arg.space is AddrSpace.LOCAL and self.info.scratch_bytes:
            self.names[define] = self.address("%scratch", "i8", str(offsets[define]))
            return
        dtype = memory_dtype(define.dtype)
        size = define.arg.size
        self.names[define] = self.value(
            f"alloca [{size} x {llvm_type(dtype)}], align {SCRATCH_ALIGNMENT}"
        )

    def effect(self, text: str) -> None:
        """One line."""
        self.lines.append("  " + text)

    def later(self, count: int = 1) -> int:
        """Keep lines free, to be filled by number."""
        self.lines.extend([""] * count)
        return len(self.lines) - count

    def fresh(self, prefix: str) -> str:
        """A name that is not taken."""
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"%{prefix}{number}"

    def value(self, text: str, prefix: str = "v") -> str:
        """One line that computes a value; returns its name."""
        name = self.fresh(prefix)
        self.lines.append(f"  {name} = {text}")
        return name

    def count(self, level: int, start: str, step: int) -> str:
        """An integer that the loop opened at a level - 1 counts along with its own counter."""
        loop = self.open[level - 1]
        assert isinstance(loop, Loop), "an IF counts nothing"
        name = self.fresh("n")
        loop.sums.append((name, start, step))
        return name

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name
        self.vectors.clear()

    def call(self, intrinsic: str, result: str, *arguments: tuple[str, str]) -> str:
        """The text of a call of an intrinsic, which is declared at the end."""
        types = ", ".join(kind for kind, _ in arguments)
        self.declared[intrinsic] = f"declare {result} @{intrinsic}({types})"
        return f"call {result} @{intrinsic}({', '.join(f'{k} {text}' for k, text in arguments)})"

    # ---- values ----------------------------------------------------------------------------------

    def __getitem__(self, node: UOp) -> str:
        """The name (or literal) of a value."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return llvm_literal(node.dtype, node.arg)
        return self.vector_of(node) if node in self.tiles else self.names[node]

    def vector_of(self, tile: UOp) -> str:
        """A tile as a vector, converted once in a block."""
        if tile not in self.vectors:
            kind = llvm_type(tile.dtype)
            self.vectors[tile] = tile_to_vector(self, self.names[tile], kind)
        return self.vectors[tile]

    def typed(self, node: UOp) -> str:
        """A value with its type before it, as most instructions want."""
        return f"{llvm_type(node.dtype)} {self[node]}"

    def argument(self, node: UOp) -> tuple[str, str]:
        """A value for `call`."""
        return llvm_type(node.dtype), self[node]

    def address(self, base: str, element: str, offset: str) -> str:
        """The address of an element."""
        if offset == "0":
            return base
        return self.value(f"getelementptr {element}, ptr {base}, i64 {offset}", "p")

    def register_type(self, register: UOp) -> str:
        """The type of what an accumulator holds."""
        return TILE if register in self.tiles else llvm_type(register.dtype)

    # ---- nodes -----------------------------------------------------------------------------------

    def write(self, node: UOp) -> None:
        """Write one item of the program."""
        if node.op in SILENT or self.addresses.compute(node):
            return
        emit = emits.find(node)
        if emit is None:
            raise refusal(node, "llvm", self.info.name)
        text = emit(self, node)
        if text is not None:
            self.names[node] = self.value(text)
        if node in self.names:
            self.addresses.widen(node)


def spills_vectors(linear: UOp, target: Target) -> bool:
    """True where accumulators leave too few registers for operands, so that some wait in memory.

    The stack is aligned to 16 bytes only: without asking for more, wider vectors reach into a
    second line there, and a product of 512 x 512 x 512 took 3.5 % longer.
    """
    held = [d.dtype.itemsize for d in leaves(linear, Ops.DEFINE) if is_register(d)]
    count = sum(-(-size // target.vector_bytes) for size in held)
    return max(held, default=0) > STACK_ALIGNMENT and count + 2 > target.num_vector_registers


STACK_ALIGNMENT: Final = 16
"""Bytes to which the stack is aligned when a function is called, on all processors."""
