"""How LLVM IR spells the matrix units of core/units.py: one row for each.

    %v3 = call <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32> %acc, <16 x i32> %v1, …)
    %v3 = call x86_amx @llvm.x86.tdpbssd.internal(i16 16, i16 64, i16 64, x86_amx %acc, …)

The instructions on vectors take the group of products of the left operand in every lane. Those on
tiles work on values of type x86_amx: LLVM chooses the tile registers and writes their
configuration. A wide load that only such units use, and the accumulators that they add to, are
tiles from the start; where anything else needs such a value, it becomes a vector.

Source: LLVM Language Reference Manual; llvm/include/llvm/IR/IntrinsicsX86.td and
IntrinsicsAArch64.td, release 20 to 22.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pellucid.core.target import LOSSY_FEATURES, Target
from pellucid.core.units import MATRIX_UNITS, MatrixUnit
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.program import is_register, storage_of, value_of

if TYPE_CHECKING:
    from pellucid.render.llvm.writer import LLVMWriter

TILE: Final = "x86_amx"
TILE_ROWS: Final = "16"
TILE_ROW_BYTES: Final = "64"

_ADDING: Final = {
    "vdpbf16ps_512": ("llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>"),
    "vpdpbusd_512": ("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>"),
    "vpdpbusd_256": ("llvm.x86.avx512.vpdpbusd.256", "<8 x i32>"),
    "vpdpbssd_256": ("llvm.x86.avx2.vpdpbssd.256", "<8 x i32>"),
    "vpdpbuud_256": ("llvm.x86.avx2.vpdpbuud.256", "<8 x i32>"),
    "vpdpwssd_512": ("llvm.x86.avx512.vpdpwssd.512", "<16 x i32>"),
    "vpdpwssd_256": ("llvm.x86.avx512.vpdpwssd.256", "<8 x i32>"),
    "sdot_128": ("llvm.aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>"),
    "udot_128": ("llvm.aarch64.neon.udot.v4i32.v16i8", "<16 x i8>"),
}
"""Instructions that add to an accumulator, and the type in which they take the operands."""
_MULTIPLYING: Final = {
    "pmaddwd_512": ("llvm.x86.avx512.pmaddw.d.512", "<32 x i16>"),
    "pmaddwd_256": ("llvm.x86.avx2.pmadd.wd", "<16 x i16>"),
    "pmaddwd_128": ("llvm.x86.sse2.pmadd.wd", "<8 x i16>"),
}
"""Instructions that leave the addition to another one."""
_TILES: Final = {
    name: f"llvm.x86.{name}.internal" for name, unit in MATRIX_UNITS.items() if unit.is_tile
}

SPELLED: Final = frozenset((*_ADDING, *_MULTIPLYING, *_TILES))
"""The units that the renderer can spell."""


def asked_features(items: Iterable[UOp], target: Target) -> str:
    """The attribute of a function that uses units of features that code is not generated for."""
    wanted = {MATRIX_UNITS[n.arg].feature for n in items if n.op is Ops.MMA} & LOSSY_FEATURES
    if not wanted:
        return ""
    features = ",".join([target.code_features, *(f"+{name}" for name in sorted(wanted))])
    return f' "target-features"="{features}"'


def multiply_matrices(w: LLVMWriter, node: UOp) -> str:
    """The instruction of a unit."""
    unit = MATRIX_UNITS[node.arg]
    if unit.is_tile:
        return _on_tiles(w, node)
    left, right, addend = node.src
    total = w.argument(addend)
    if unit.name in _ADDING:
        name, kind = _ADDING[unit.name]
        return w.call(
            name, total[0], total, (kind, _spread(w, unit, left, kind)), _as(w, right, kind)
        )
    name, kind = _MULTIPLYING[unit.name]
    products = w.call(name, total[0], (kind, _spread(w, unit, left, kind)), _as(w, right, kind))
    return f"add {total[0]} {w.value(products)}, {total[1]}"


def _as(w: LLVMWriter, operand: UOp, kind: str) -> tuple[str, str]:
    """An operand in the type that an instruction takes."""
    if w.argument(operand)[0] == kind:
        return w.argument(operand)
    return kind, w.value(f"bitcast {w.typed(operand)} to {kind}")


def _spread(w: LLVMWriter, unit: MatrixUnit, left: UOp, kind: str) -> str:
    """The few numbers of the left operand, in every lane."""
    lanes = f"<{unit.columns} x i32>"
    bits = w.value(f"bitcast {w.typed(left)} to i32")
    one = w.value(f"insertelement {lanes} poison, i32 {bits}, i64 0")
    zeros = f"<{unit.columns} x i32> zeroinitializer"
    every = w.value(f"shufflevector {lanes} {one}, {lanes} poison, {zeros}")
    return every if kind == lanes else w.value(f"bitcast {lanes} {every} to {kind}")


# ---- tiles -------------------------------------------------------------------------------------


def find_tiles(items: tuple[UOp, ...]) -> set[UOp]:
    """The nodes whose value is a tile: MMAs, loads for them, and the registers that they add to."""
    products = [n for n in items if n.op is Ops.MMA and MATRIX_UNITS[n.arg].is_tile]
    if not products:
        return set()
    tiles = set(products)
    operands = {value_of(s) for n in products for s in n.src[:2]}
    others = {value_of(s) for n in items if n not in tiles and n.op is not Ops.AFTER for s in n.src}
    tiles |= {n for n in operands - others if n.op is Ops.LOAD and len(n.src) == 1}
    added = (value_of(n.src[2]) for n in products)
    registers = {storage_of(n.src[0]) for n in added if n.op is Ops.LOAD}
    registers = {storage for storage in registers if is_register(storage)}
    loads = (n for n in items if n.op is Ops.LOAD and storage_of(n.src[0]) in registers)
    return tiles | registers | set(loads)


def _on_tiles(w: LLVMWriter, node: UOp) -> str:
    shape = ("i16", TILE_ROWS), ("i16", TILE_ROW_BYTES), ("i16", TILE_ROW_BYTES)
    left, right, addend = (as_tile(w, source) for source in node.src)
    operands = ((TILE, addend), (TILE, left), (TILE, right))
    return w.call(_TILES[node.arg], TILE, *shape, *operands)


def as_tile(w: LLVMWriter, node: UOp) -> str:
    """A value as a tile: zero and loads directly, others by way of memory."""
    node = value_of(node)
    shape = ("i16", TILE_ROWS), ("i16", TILE_ROW_BYTES)
    if node.op is Ops.CONST and not node.arg:
        return w.value(w.call("llvm.x86.tilezero.internal", TILE, *shape))
    if node in w.tiles:
        return w.names[node]
    bits = w.value(f"bitcast {w.typed(node)} to <256 x i32>")
    return w.value(w.call("llvm.x86.cast.vector.to.tile.v256i32", TILE, ("<256 x i32>", bits)))


def load_tile(w: LLVMWriter, address: str) -> str:
    """Sixteen rows that follow each other in memory."""
    shape = ("i16", TILE_ROWS), ("i16", TILE_ROW_BYTES)
    place = ("ptr", address), ("i64", TILE_ROW_BYTES)
    return w.call("llvm.x86.tileloadd64.internal", TILE, *shape, *place)


def tile_to_vector(w: LLVMWriter, tile: str, kind: str) -> str:
    """The numbers of a tile as a vector."""
    cast = w.call("llvm.x86.cast.tile.to.vector.v256i32", "<256 x i32>", (TILE, tile))
    bits = w.value(cast)
    return bits if kind == "<256 x i32>" else w.value(f"bitcast <256 x i32> {bits} to {kind}")
