"""Vectors of which only some lanes are loaded or stored: a gate for each lane.

    LOAD(x[i], 0, gate)    call <8 x float> @llvm.masked.load.v8f32.p0(ptr %p, i32 4, …)

Few processors have that for narrow elements (`Target.masks`), and code generation then makes a
branch for each lane. Instead, whole words are read, from the nearest place that lies inside of the
storage:

    storage        [ 0 1 2 3 4 5 6 7 8 9 ]         8 lanes at -2; lanes 0 and 1 are gated off
    asked      . . 0 1 2 3 4 5
    read           0 1 2 3 4 5 6 7                 at max(0, min(-2, 10 - 8)) = 0
    shifted    0 0 0 1 2 3 4 5                     by the 2 lanes between the two places

A lane whose gate is true lies inside of the storage (`verify` proves that for every access), so it
is read, and the shift brings it where it belongs. The gate drops all others.
"""

from __future__ import annotations

from typing import Final

from pellucid.core.dtype import DType
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.memory import from_memory, gated_load, gated_store, to_memory
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.types import llvm_type, suffix
from pellucid.render.llvm.writer import LLVMWriter
from pellucid.render.program import is_register, memory_dtype, storage_of

WORD_BYTES: Final = 8
"""What is read at once, to be shifted in one register."""


@emits(Ops.LOAD, gated=True, wide=True)
def masked_load(w: LLVMWriter, node: UOp) -> str | None:
    """Lanes whose gate is false are not touched, or dropped, and take the fallback."""
    index, fallback, gate = node.src
    if gate.dtype.lanes == 1 and storage_of(index).arg.size >= node.dtype.lanes:
        return gated_load(w, node)
    stored = memory_dtype(node.dtype)
    if _is_read_in_words(w, node):
        read = w.value(from_memory(w, node.dtype, _in_words(w, index)))
        mask = " ".join(_mask(w, gate, node.dtype.lanes))
        return f"select {mask}, {llvm_type(node.dtype)} {read}, {w.typed(fallback)}"
    text = w.call(
        f"llvm.masked.load.{suffix(stored)}.p0",
        llvm_type(stored),
        ("ptr", w.addresses.of(index)),
        ("i32", str(stored.scalar.itemsize)),
        _mask(w, gate, node.dtype.lanes),
        to_memory(w, fallback),
    )
    return from_memory(w, node.dtype, text)


@emits(Ops.STORE, gated=True, wide=True)
def masked_store(w: LLVMWriter, node: UOp) -> None:
    """Lanes whose gate is false are not touched."""
    index, value, gate = node.src
    if gate.dtype.lanes == 1 or is_register(storage_of(index)):
        gated_store(w, node)
        return
    stored = memory_dtype(value.dtype)
    text = w.call(
        f"llvm.masked.store.{suffix(stored)}.p0",
        "void",
        to_memory(w, value),
        ("ptr", w.addresses.of(index)),
        ("i32", str(stored.scalar.itemsize)),
        w.argument(gate),
    )
    w.effect(text)


def _mask(w: LLVMWriter, gate: UOp, lanes: int) -> tuple[str, str]:
    if gate.dtype.lanes == lanes:
        return w.argument(gate)
    vector = f"<{lanes} x i1>"
    one = w.value(f"insertelement {vector} poison, {w.typed(gate)}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return vector, w.value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")


def _is_read_in_words(w: LLVMWriter, node: UOp) -> bool:
    """True where the machine has no masks for elements of this size, and storage holds a word."""
    stored, storage = memory_dtype(node.dtype), storage_of(node.src[0])
    word = _word_bytes(stored)
    is_whole = stored.itemsize % word == 0 and storage.arg.size * storage.dtype.itemsize >= word
    return is_whole and not w.target.masks(stored.scalar.itemsize)


def _word_bytes(stored: DType) -> int:
    return min(stored.itemsize, WORD_BYTES)


def _in_words(w: LLVMWriter, index: UOp) -> str:
    """A whole vector of which some lanes may lie outside of the storage, word by word."""
    stored = memory_dtype(index.dtype)
    bits, count = 8 * _word_bytes(stored), stored.itemsize // _word_bytes(stored)
    asked = w.addresses.of(index)
    words = [
        _word(w, index, w.address(asked, "i8", str(number * WORD_BYTES)), bits)
        for number in range(count)
    ]
    if count == 1:
        return f"bitcast i{bits} {words[0]} to {llvm_type(stored)}"
    vector, text = f"<{count} x i64>", "poison"
    for number, word in enumerate(words):
        text = w.value(f"insertelement {vector} {text}, i64 {word}, i64 {number}")
    return f"bitcast {vector} {text} to {llvm_type(stored)}"


def _word(w: LLVMWriter, index: UOp, asked: str, bits: int) -> str:
    """The bits at an address, as far as they lie inside of the storage."""
    storage = storage_of(index)
    first = w.names[storage]
    size_bytes = storage.arg.size * storage.dtype.itemsize
    last = w.address(first, "i8", str(size_bytes - bits // 8))
    is_before = w.value(f"icmp ult ptr {asked}, {first}")
    is_after = w.value(f"icmp ugt ptr {asked}, {last}")
    near = w.value(f"select i1 {is_before}, ptr {first}, ptr {asked}", "p")
    near = w.value(f"select i1 {is_after}, ptr {last}, ptr {near}", "p")
    read = w.value(f"load i{bits}, ptr {near}, align {index.dtype.scalar.itemsize}")
    wide = read if bits == 64 else w.value(f"zext i{bits} {read} to i64")
    down, up = _shifts(w, asked, near)
    moved = w.value(f"shl i64 {wide}, {up}")
    moved = w.value(f"lshr i64 {moved}, {down}")
    return moved if bits == 64 else w.value(f"trunc i64 {moved} to i{bits}")


def _shifts(w: LLVMWriter, asked: str, near: str) -> tuple[str, str]:
    """By how many bits a word is moved down and up; one of the two is 0.

    Where the places are a word or more apart no lane is wanted, and any number will do.
    """
    places = [w.value(f"ptrtoint ptr {place} to i64") for place in (asked, near)]
    distance = w.value(f"sub i64 {places[0]}, {places[1]}")
    bits = w.value(f"shl i64 {distance}, 3")
    opposite = w.value(f"sub i64 0, {bits}")
    shifts = []
    for amount in (bits, opposite):
        some = w.value(w.call("llvm.smax.i64", "i64", ("i64", amount), ("i64", "0")))
        shifts.append(w.value(f"and i64 {some}, 63"))
    return shifts[0], shifts[1]
