"""Loads and stores, gated or not, of registers and of memory.

    LOAD(x[i])            x1[i0]                STORE(acc, v)          acc0 = v0;
    LOAD(x[i], 0, gate)   (v0 ? x1[i0] : 0)     STORE(x[i], v, gate)   if (v0) x1[i0] = v1;

A gate for each lane is a loop over lanes, which compilers turn into a masked access.
"""

from __future__ import annotations

from pellucid.core.dtype import DType
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.c.table import emits
from pellucid.render.c.types import mask_dtype, stripped
from pellucid.render.c.writer import CWriter
from pellucid.render.program import is_register, memory_dtype, storage_of


@emits(Ops.LOAD, gated=False)
def load(w: CWriter, node: UOp) -> str:
    """Read memory or a register."""
    storage = storage_of(node.src[0])
    if is_register(storage):
        return w.texts[storage]
    return _from_memory(w, node, w.element(node.src[0]))


def _from_memory(w: CWriter, node: UOp, text: str) -> str:
    if not node.dtype.is_bool:
        return text
    if node.dtype.lanes == 1:
        return f"({text} != 0)"
    return f"({w.type_name(mask_dtype(8, node.dtype.lanes))})({text} != 0)"


def _to_memory(w: CWriter, node: UOp) -> str:
    if node.dtype.is_bool and node.dtype.lanes > 1:
        return f"({w.type_name(memory_dtype(node.dtype))})(-{w.mask(node, 8)})"
    return w[node]


@emits(Ops.LOAD, gated=True, wide=False)
def gated_load(w: CWriter, node: UOp) -> str:
    """Touch memory only where the gate is true."""
    index, fallback, gate = node.src
    return f"({w[gate]} ? {_from_memory(w, node, w.element(index))} : {w[fallback]})"


@emits(Ops.LOAD, gated=True, wide=True)
def masked_load(w: CWriter, node: UOp) -> None:
    """Start from the fallback and replace the lanes whose gate is true."""
    index, fallback, gate = node.src
    name = w.fresh("v")
    scalar = node.dtype.is_bool
    start = w.mask(fallback, w.mask_bits[node]) if scalar else w[fallback]
    base, first = w.texts[storage_of(index)], stripped(w[index.src[1]])
    read = f"{base}[{first} + lane]"
    condition = _gate_lane(w, gate)
    w.statement(f"{w.value_type(node)} {name} = {stripped(start)};")
    w.statement(f"for (int lane = 0; lane < {node.dtype.lanes}; lane++)")
    value = f"-({read} != 0)" if scalar else read
    w.statement(f"    if ({condition}) {name}[lane] = {value};")
    w.texts[node] = name


def _gate_lane(w: CWriter, gate: UOp) -> str:
    """The gate of the lane `lane`; a mask is put into a variable first."""
    if gate.dtype.lanes == 1:
        return w[gate]
    bits = w.width_of_mask(gate)
    name = w.fresh("mask")
    kind = w.type_name(mask_dtype(bits, gate.dtype.lanes))
    w.statement(f"const {kind} {name} = {stripped(w.mask(gate, bits))};")
    return f"{name}[lane]"


@emits(Ops.STORE, gated=False)
def store(w: CWriter, node: UOp) -> None:
    """Write memory or a register."""
    index, value = node.src
    storage = storage_of(index)
    if is_register(storage):
        w.statement(f"{w.texts[storage]} = {stripped(_register_value(w, storage, value))};")
        return
    if node.arg == "stream":
        base, offset = w.texts[storage], stripped(w[index.src[1]])
        written = stripped(_to_memory(w, value))
        w.statement(f"{_streaming(w, value.dtype)}({base} + {offset}, {written});")
        return
    w.statement(f"{w.element(index)} = {stripped(_to_memory(w, value))};")


def _streaming(w: CWriter, dtype: DType) -> str:
    """The function that writes a vector past the caches where it is aligned, and clang is used."""
    stored = memory_dtype(dtype)
    name, kind, unaligned = f"stream_{stored}", w.type_name(stored), w.memory_type(stored)
    w.helpers[
        name
    ] = f"""static inline __attribute__((always_inline)) void {name}(void *p, {kind} x)
{{
#ifdef __clang__
    if (((uintptr_t)p & (sizeof x - 1)) == 0) {{
        __builtin_nontemporal_store(x, ({kind} *)p);
        return;
    }}
#endif
    *({unaligned} *)p = x;
}}"""
    return name


def _register_value(w: CWriter, storage: UOp, value: UOp) -> str:
    """A value as a register keeps it: masks have one width there."""
    if value.dtype.is_bool and value.dtype.lanes > 1:
        return w.mask(value, w.mask_bits[storage])
    return w[value]


@emits(Ops.STORE, gated=True)
def gated_store(w: CWriter, node: UOp) -> None:
    """Touch memory only where the gate is true."""
    index, value, gate = node.src
    storage = storage_of(index)
    if gate.dtype.lanes == 1:
        text = _register_value(w, storage, value) if is_register(storage) else _to_memory(w, value)
        place = w.texts[storage] if is_register(storage) else w.element(index)
        w.statement(f"if ({stripped(w[gate])}) {place} = {stripped(text)};")
        return
    name = w.fresh("v")
    kind = w.type_name(memory_dtype(value.dtype))
    base, first = w.texts[storage], stripped(w[index.src[1]])
    w.statement(f"const {kind} {name} = {stripped(_to_memory(w, value))};")
    condition = _gate_lane(w, gate)
    w.statement(f"for (int lane = 0; lane < {value.dtype.lanes}; lane++)")
    w.statement(f"    if ({condition}) {base}[{first} + lane] = {name}[lane];")


@emits(Ops.PREFETCH)
def prefetch(w: CWriter, node: UOp) -> None:
    """Ask for a line of the data cache, to be read or written."""
    index = node.src[0]
    place = f"{w.texts[storage_of(index)]} + {stripped(w[index.src[1]])}"
    w.statement(f"__builtin_prefetch({place}, {int(node.arg == 'write')});")
