"""The function in the making: its lines, the texts of its values, and what stands before it.

    w.statement("x0[i0] = v1;")     appends a line
    w.texts[node], w[node]          the expression or the variable that a value is
    w.helper("splat_float32x8", …)  a small function in front, once

Values that are used once, nearby, have no variable (`inline.py`).
"""

from __future__ import annotations

from typing import Final

from pellucid.core.dtype import DType, Scalar
from pellucid.ir.arg import AddrSpace, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.c.inline import used_once_nearby
from pellucid.render.c.types import c_literal, c_type, mask_dtype, stripped
from pellucid.render.program import (
    SCRATCH_ALIGNMENT,
    SILENT,
    is_register,
    leaves,
    memory_dtype,
    scratch_layout,
    storage_of,
    streamed_bytes,
    value_of,
)
from pellucid.render.renderer import Emitters, refusal

_LONGEST_INLINE: Final = 60


class CWriter:
    """Writes one function. Values that are used once, nearby, are written where they are used."""

    def __init__(self, linear: UOp, info: ProgramInfo, emits: Emitters[CWriter]) -> None:
        self.linear, self.info, self.emits = linear, info, emits
        self.lines: list[str] = []
        self.texts: dict[UOp, str] = {}
        self.helpers: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.mask_bits: dict[UOp, int] = {}
        self.counts: dict[str, int] = {}
        self.indent = 1
        self.inline = used_once_nearby(linear.src)

    # ---- text ------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole file: a comment, types and helpers, and the function."""
        self.enter()
        for node in self.linear.src:
            self.write(node)
        if streamed_bytes(self.linear.src):
            self.lines += ["#ifdef __x86_64__", "    __builtin_ia32_sfence();", "#endif"]
        parameters = "void **buffers, const int64_t *vars, int64_t thread, void *scratch"
        head = f"void {self.info.name}({parameters})\n{{"
        parts = [self.header(), "#include <stdbool.h>\n#include <stdint.h>"]
        if self.types:
            parts.append("\n".join(self.types.values()))
        parts.extend(self.helpers.values())
        parts.append("\n".join([head, *self.lines, "}"]))
        return "\n\n".join(parts) + "\n"

    def header(self) -> str:
        """A comment with the kernel's name and what its parameters are."""
        rows = [f"/* {self.info.name}"]
        for param in _params(self.linear):
            slot = param.arg.slot
            roles = [
                r
                for r, slots in (("read", self.info.reads), ("written", self.info.writes))
                if slot in slots
            ]
            role = f", {' and '.join(roles)}" if roles else ""
            rows.append(f"   x{slot}: {param.dtype} [{param.arg.size}]{role}")
        rows.extend(f"   {v.name}: {v.min} to {v.max}" for v in self.info.variables)
        if self.info.num_threads > 1:
            rows.append(f"   thread: 0 to {self.info.num_threads - 1}")
        return "\n".join(rows) + " */"

    def enter(self) -> None:
        """Declare parameters, variables and storage."""
        for param in _params(self.linear):
            slot = param.arg.slot
            kind = c_type(memory_dtype(param.dtype))
            self.statement(f"{kind} *x{slot} = buffers[{slot}];")
        for param in leaves(self.linear, Ops.PARAM):
            self.texts[param] = f"x{param.arg.slot}"
        for variable in leaves(self.linear, Ops.VARIABLE):
            position = self.info.variables.index(variable.arg)
            self.texts[variable] = name = f"n{position}"
            kind = c_type(variable.dtype)
            self.statement(f"const {kind} {name} = vars[{position}]; /* {variable.arg.name} */")
        offsets, _ = scratch_layout(self.linear)
        for define in leaves(self.linear, Ops.DEFINE):
            self.reserve(define, offsets)

    def reserve(self, define: UOp, offsets: dict[UOp, int]) -> None:
        """Declare a DEFINE: a variable, an array, or a piece of scratch memory."""
        if is_register(define):
            self.texts[define] = name = self.fresh("acc")
            self.statement(f"{self.value_type(define)} {name};")
            return
        self.texts[define] = name = self.fresh("tile")
        kind = self.type_name(memory_dtype(define.dtype))
        if define.arg.space is AddrSpace.LOCAL and self.info.scratch_bytes:
            self.statement(f"{kind} *{name} = (void *)((char *)scratch + {offsets[define]});")
            return
        aligned = f"__attribute__((aligned({SCRATCH_ALIGNMENT})))"
        self.statement(f"{kind} {name}[{define.arg.size}] {aligned};")

    def statement(self, text: str) -> None:
        """One line of the function."""
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        """A name that is not taken."""
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}{number}"

    def type_name(self, dtype: DType) -> str:
        """The name of a type, which is defined where it is a vector."""
        name = c_type(dtype)
        if dtype.lanes > 1 and name not in self.types:
            scalar = c_type(dtype.scalar)
            attribute = f"vector_size({dtype.itemsize})"
            self.types[name] = f"typedef {scalar} {name} __attribute__(({attribute}));"
        return name

    def memory_type(self, dtype: DType) -> str:
        """The type of a vector in memory, where it is only aligned as its elements are."""
        name = f"{dtype}_in_memory"
        if name not in self.types:
            scalar = c_type(dtype.scalar)
            attributes = (
                f"vector_size({dtype.itemsize}), aligned({dtype.scalar.itemsize}), may_alias"
            )
            self.types[name] = f"typedef {scalar} {name} __attribute__(({attributes}));"
        return name

    def value_type(self, node: UOp) -> str:
        """The type of the variable that holds a value."""
        if node.dtype.is_bool and node.dtype.lanes > 1:
            bits = self.mask_bits.setdefault(node, 8)
            return self.type_name(mask_dtype(bits, node.dtype.lanes))
        return self.type_name(node.dtype)

    def helper(self, name: str, result: DType, parameters: str, body: str) -> str:
        """Define a small function, once; returns its name."""
        if name not in self.helpers:
            head = "static inline __attribute__((always_inline))"
            self.helpers[name] = (
                f"{head} {self.type_name(result)} {name}({parameters})\n{{\n{body}\n}}"
            )
        return name

    # ---- values ----------------------------------------------------------------------------------

    def __getitem__(self, node: UOp) -> str:
        """The text of a value; a vector of bools as a mask of its own width."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return self.literal(node.dtype, node.arg)
        return self.texts[node]

    def literal(self, dtype: DType, value: Scalar | tuple[Scalar, ...]) -> str:
        """A literal of any type but a vector of bools."""
        if isinstance(value, tuple):
            lanes = ", ".join(c_literal(dtype.scalar, v) for v in value)
            return f"({self.type_name(dtype)}){{{lanes}}}"
        text = c_literal(dtype.scalar, value)
        return text if dtype.lanes == 1 else self.splat(dtype, text)

    def splat(self, dtype: DType, text: str) -> str:
        """The call that copies a scalar to all lanes."""
        lanes = ", ".join(["x"] * dtype.lanes)
        body = f"    return ({self.type_name(dtype)}){{{lanes}}};"
        return f"{self.helper(f'splat_{dtype}', dtype, f'{c_type(dtype.scalar)} x', body)}({text})"

    def width_of_mask(self, *nodes: UOp) -> int:
        """The width in which masks are combined: that of the first that is no literal."""
        for node in map(value_of, nodes):
            if node.op is not Ops.CONST and node.dtype.is_bool and node.dtype.lanes > 1:
                return self.mask_bits[node]
        return 8

    def mask(self, node: UOp, bits: int) -> str:
        """A vector of bools as a mask of *bits* wide lanes."""
        node = value_of(node)
        dtype = mask_dtype(bits, node.dtype.lanes)
        if node.op is Ops.CONST:
            value = node.arg
            lanes = tuple(-int(v) for v in value) if isinstance(value, tuple) else -int(value)
            return self.literal(dtype, lanes)
        if self.mask_bits[node] == bits:
            return self.texts[node]
        return f"__builtin_convertvector({self.texts[node]}, {self.type_name(dtype)})"

    def element(self, index: UOp) -> str:
        """The place in memory that an INDEX means, with all of its lanes."""
        storage = storage_of(index)
        base, offset = self.texts[storage], stripped(self[index.src[1]])
        extra = index.dtype.lanes // storage.dtype.lanes
        if extra == 1:
            return f"{base}[{offset}]"
        kind = self.memory_type(memory_dtype(index.dtype))
        return f"*({kind} *){base if offset == '0' else f'({base} + {offset})'}"

    # ---- nodes -----------------------------------------------------------------------------------

    def write(self, node: UOp) -> None:
        """Write one item of the program."""
        if node.op in SILENT:
            return
        emit = self.emits.find(node)
        if emit is None or node.dtype.lanes & (node.dtype.lanes - 1):
            raise refusal(node, "c", self.info.name)
        if node.dtype.is_bool and node.dtype.lanes > 1:
            self.mask_bits[node] = _mask_width(self, node)
        text = emit(self, node)
        if text is None:
            return
        if node in self.inline and len(text) <= _LONGEST_INLINE:
            self.texts[node] = text
            return
        name = self.fresh("v")
        self.statement(f"const {self.value_type(node)} {name} = {stripped(text)};")
        self.texts[node] = name


def _params(linear: UOp) -> list[UOp]:
    """One PARAM for each slot, by slot."""
    by_slot = {param.arg.slot: param for param in leaves(linear, Ops.PARAM)}
    return [by_slot[slot] for slot in sorted(by_slot)]


def _mask_width(w: CWriter, node: UOp) -> int:
    """Lanes of a mask are as wide as those of what made it."""
    if node.op in (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE) and not node.src[0].dtype.is_bool:
        return node.src[0].dtype.bits
    if node.op in (Ops.CAST, Ops.BITCAST):
        return max(node.src[0].dtype.bits, 8)
    if node.op is Ops.LOAD:
        return w.mask_bits.get(storage_of(node.src[0]), 8)
    return w.width_of_mask(*(node.src[1:] + node.src[:1] if node.op is Ops.WHERE else node.src))
