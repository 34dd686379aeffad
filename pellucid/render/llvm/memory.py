"""Loads and stores, gated or not, of registers and of memory.

    LOAD(x[i])    load float, ptr %p0, align 4        LOAD(acc)      what the register holds here
    STORE(x[i], v, gate)     br i1 %gate, label %gate0.do, label %gate0.end

A register is no memory at all: a store gives its value another name. A gate for each lane is in
`masks.py`.
"""

from __future__ import annotations

from pellucid.core.dtype import DType
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.types import llvm_literal, llvm_type
from pellucid.render.llvm.units import as_tile, load_tile
from pellucid.render.llvm.writer import LLVMWriter
from pellucid.render.program import is_register, memory_dtype, storage_of
from pellucid.render.renderer import refusal


@emits(Ops.LOAD, gated=False)
def load(w: LLVMWriter, node: UOp) -> str | None:
    """Read memory, or what a register holds here."""
    storage = storage_of(node.src[0])
    if is_register(storage):
        if storage not in w.registers:
            raise refusal(node, "llvm", w.info.name, "a register is read before it is set")
        w.names[node] = w.registers[storage]
        return None
    if node in w.tiles:
        return load_tile(w, w.addresses.of(node.src[0]))
    return from_memory(w, node.dtype, _plain_load(w, node, w.addresses.of(node.src[0])))


def _plain_load(w: LLVMWriter, node: UOp, address: str) -> str:
    dtype = memory_dtype(node.dtype)
    return f"load {llvm_type(dtype)}, ptr {address}, align {dtype.scalar.itemsize}"


def from_memory(w: LLVMWriter, dtype: DType, text: str) -> str:
    """Turn the bytes of bools into bits."""
    if not dtype.is_bool:
        return text
    stored = memory_dtype(dtype)
    return f"icmp ne {llvm_type(stored)} {w.value(text)}, {llvm_literal(stored, 0)}"


def to_memory(w: LLVMWriter, node: UOp) -> tuple[str, str]:
    """A value as it lies in memory: its type there, and its name."""
    if not node.dtype.is_bool:
        return w.argument(node)
    stored = llvm_type(memory_dtype(node.dtype))
    return stored, w.value(f"zext {w.typed(node)} to {stored}")


@emits(Ops.LOAD, gated=True, wide=False)
def gated_load(w: LLVMWriter, node: UOp) -> str:
    """Where the gate is false, the first element is read instead, and dropped."""
    index, fallback, gate = node.src
    storage = storage_of(index)
    if storage.arg.size == 0:
        return f"select i1 true, {w.typed(fallback)}, {w.typed(fallback)}"
    asked = w.addresses.of(index)
    safe = w.value(f"select i1 {w[gate]}, ptr {asked}, ptr {w.names[storage]}", "p")
    read = w.value(from_memory(w, node.dtype, _plain_load(w, node, safe)))
    return f"select i1 {w[gate]}, {llvm_type(node.dtype)} {read}, {w.typed(fallback)}"


@emits(Ops.STORE, gated=False)
def store(w: LLVMWriter, node: UOp) -> None:
    """Write memory, or set a register."""
    index, value = node.src
    storage = storage_of(index)
    if is_register(storage):
        w.registers[storage] = as_tile(w, value) if storage in w.tiles else w[value]
        return
    if node.arg == "stream":
        _streamed_store(w, index, value)
        return
    _plain_store(w, w.addresses.of(index), value)


def _streamed_store(w: LLVMWriter, index: UOp, value: UOp) -> None:
    """Write past the caches where the parameter is aligned, else as usual."""
    address = w.addresses.of(index)
    kind, name = to_memory(w, value)
    number = w.fresh("stream")[1:]
    storage_slot = storage_of(index).arg.slot
    w.effect(f"br i1 %aligned{storage_slot}, label %{number}.past, label %{number}.plain")
    w.label(f"{number}.past")
    past = f"align {memory_dtype(value.dtype).itemsize}, !nontemporal !0"
    w.effect(f"store {kind} {name}, ptr {address}, {past}")
    w.effect(f"br label %{number}.end")
    w.label(f"{number}.plain")
    w.effect(f"store {kind} {name}, ptr {address}, align {value.dtype.scalar.itemsize}")
    w.effect(f"br label %{number}.end")
    w.label(f"{number}.end")


def _plain_store(w: LLVMWriter, address: str, value: UOp) -> None:
    alignment = memory_dtype(value.dtype).scalar.itemsize
    kind, name = to_memory(w, value)
    w.effect(f"store {kind} {name}, ptr {address}, align {alignment}")


@emits(Ops.STORE, gated=True, wide=False)
def gated_store(w: LLVMWriter, node: UOp) -> None:
    """Touch memory only where the gate is true."""
    index, value, gate = node.src
    storage = storage_of(index)
    if is_register(storage):
        kept = f"{llvm_type(value.dtype)} {w.registers[storage]}"
        w.registers[storage] = w.value(f"select {w.typed(gate)}, {w.typed(value)}, {kept}")
        return
    address = w.addresses.of(index)  # before the branch: others may use it after that
    number = w.fresh("gate")[1:]
    w.effect(f"br {w.typed(gate)}, label %{number}.do, label %{number}.end")
    w.label(f"{number}.do")
    _plain_store(w, address, value)
    w.effect(f"br label %{number}.end")
    w.label(f"{number}.end")


@emits(Ops.PREFETCH)
def prefetch(w: LLVMWriter, node: UOp) -> None:
    """Ask for a line of the data cache, to be read or written, kept in all levels."""
    numbers = (("i32", str(int(node.arg == "write"))), ("i32", "3"), ("i32", "1"))
    address = ("ptr", w.addresses.of(node.src[0]))
    w.effect(w.call("llvm.prefetch.p0", "void", address, *numbers))
