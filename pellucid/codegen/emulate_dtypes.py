"""Compute in float32 what is too small for the target: bfloat16, float16 and the 8-bit floats.

SCALAR form -> SCALAR form of native types.

    before    half x[i] * half y[i]                 half: float16
    after     round(widen(x[i]) * widen(y[i]))      x, y: buffers of uint16; in float32

A small float is kept as the float32 of the same value. It is widened where it is loaded and
packed where it is stored; each op is done in float32 and its result rounded to nearest even in
the small type, at once: float32 is so much wider (24 >= 2 * 11 + 2 bits) that rounding twice
cannot be seen for + - * / and sqrt. Casts from wider types go to float32 by rounding to odd, for
the same end. What is only moved is never unpacked: a load that is stored keeps its bits.

Rounding works on the bits of the float32: adding half a unit of the small type's last place (less
one, where that place is even) and cutting off. Below the smallest normal number the last place is
fixed, so adding and subtracting a large power of 2 rounds there. Where the target converts
float16 itself (`native_dtypes` has it), its instructions do it.

Source: S. A. Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30, 1995; S.
Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
rounding to odd", 2008; P. Micikevicius and others, "FP8 formats for deep learning", 2022.
"""

from __future__ import annotations

from pellucid.codegen.decompositions.building import (
    absolute,
    literal,
    shift_left,
    shift_right,
    sign_bit,
    subtract,
    to_bits,
    with_sign,
)
from pellucid.core.dtype import DType, bits_of, dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import AddrSpace
from pellucid.ir.op import COMPARISONS, Ops
from pellucid.ir.uop import UOp

SINGLE = dtypes.float32
_ROUNDS = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.SQRT, Ops.MULADD)


def emulate_dtypes(sink: UOp, target: Target) -> UOp:
    """Replace floats narrower than float32 by float32 values and unsigned storage.

    >>> x = UOp.const(dtypes.bfloat16, 1.0)
    >>> emulate_dtypes(x.cast(dtypes.float32), Target(arch="generic")).dtype
    dtypes.float32
    """
    nodes = sink.toposort()
    if not any(map(is_small, {node.dtype for node in nodes})):
        return sink
    emulation = _Emulation(target)
    for node in nodes:
        emulation.done[node] = emulation.visit(node)
    return emulation.done[sink]


def is_small(dtype: DType) -> bool:
    """True for floats that are computed in float32."""
    return dtype.is_float and dtype.bits < 32


def storage_dtype(dtype: DType) -> DType:
    """The unsigned integer that holds a small float in memory."""
    return (dtypes.uint8 if dtype.bits == 8 else dtypes.uint16).vec(dtype.lanes)


class _Emulation:
    """One run: `done` maps nodes to their results, `packed` values to their bits, where at hand."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.done: dict[UOp, UOp] = {}
        self.packed: dict[UOp, UOp] = {}

    def visit(self, node: UOp) -> UOp:
        """The new node, over new sources. A small float becomes a float32."""
        sources = tuple(self.done[s] for s in node.src)
        if not is_small(node.dtype) and not any(is_small(s.dtype) for s in node.src):
            return node.with_sources(sources)
        rewriter = _VISITORS.get(node.op)
        if rewriter is not None:
            return rewriter(self, node, sources)
        if node.op in COMPARISONS or node.op is Ops.GROUP or node.op is Ops.END:
            return node.with_sources(sources)
        wide = UOp(node.op, SINGLE.vec(node.dtype.lanes), sources, node.arg)
        return self.rounded(wide, node.dtype) if node.op in _ROUNDS else wide

    # ---- memory ----------------------------------------------------------------------------------

    def in_memory(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """PARAM, DEFINE and INDEX: unsigned storage; a register keeps float32."""
        return UOp(node.op, self.place_dtype(node), sources, node.arg)

    def place_dtype(self, node: UOp) -> DType:
        """The type of a place that holds small floats."""
        storage = node
        while storage.op in (Ops.AFTER, Ops.INDEX):
            storage = storage.src[0]
        if storage.op is Ops.DEFINE and storage.arg.space is AddrSpace.REG:
            return SINGLE.vec(node.dtype.lanes)
        return storage_dtype(node.dtype)

    def after(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """Storage or a value, later."""
        return UOp(node.op, sources[0].dtype, sources, node.arg)

    def load(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """Read bits and widen them."""
        index = sources[0]
        if index.dtype.is_float:
            return UOp(Ops.LOAD, index.dtype, sources)
        if len(sources) == 3:
            sources = (index, self.pack(sources[1], node.dtype), sources[2])
        bits = UOp(Ops.LOAD, index.dtype, sources)
        value = self.widened(bits, node.dtype)
        self.packed[value] = bits
        return value

    def store(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """Pack and write."""
        index, value = sources[:2]
        if index.dtype.is_float:
            return node.with_sources(sources)
        bits = self.pack(value, node.src[1].dtype)
        return UOp(Ops.STORE, dtypes.void, (index, bits, *sources[2:]))

    # ---- values ----------------------------------------------------------------------------------

    def constant(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """The same value as a float32."""
        return UOp(Ops.CONST, SINGLE.vec(node.dtype.lanes), (), node.arg)

    def cast(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """To a small float: round; from one: its float32 is the value."""
        (x,) = sources
        if not is_small(node.dtype):
            return x.cast(node.dtype.scalar)
        if is_small(node.src[0].dtype):
            return self.rounded(x, node.dtype)
        return self.rounded(to_odd_single(x, node.dtype), node.dtype)

    def bitcast(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """Between a small float and an integer of its width."""
        (x,) = sources
        bits = self.pack(x, node.src[0].dtype) if is_small(node.src[0].dtype) else x
        if not is_small(node.dtype):
            return bits.bitcast(node.dtype.scalar)
        bits = bits.bitcast(storage_dtype(node.dtype).scalar)
        value = self.widened(bits, node.dtype)
        self.packed[value] = bits
        return value

    def multiply_matrices(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """A matrix unit takes small floats as they lie in memory."""
        left, right = (self.pack(v, s.dtype) for v, s in zip(sources[:2], node.src, strict=False))
        return node.with_sources((left, right, sources[2]))

    # ---- conversions -----------------------------------------------------------------------------

    def is_native(self, dtype: DType) -> bool:
        """True when the target converts this type itself."""
        return dtype.name in self.target.native_dtypes

    def widened(self, bits: UOp, dtype: DType) -> UOp:
        """The float32 with the value of these bits."""
        if self.is_native(dtype):
            return bits.bitcast(dtype.scalar).cast(SINGLE)
        return widen(bits, dtype.scalar)

    def rounded(self, x: UOp, dtype: DType) -> UOp:
        """A float32 rounded to the values of a small type."""
        if not self.is_native(dtype):
            return round_to_small(x, dtype.scalar)
        narrow = x.cast(dtype.scalar)
        value = narrow.cast(SINGLE)
        self.packed[value] = narrow.bitcast(storage_dtype(dtype).scalar)
        return value

    def pack(self, value: UOp, dtype: DType) -> UOp:
        """The bits of a float32 whose value the small type has."""
        bits = self.packed.get(value)
        if bits is not None:
            return bits
        if value.is_const:
            return UOp.const(storage_dtype(dtype), bits_of(dtype.scalar, value.arg))
        if self.is_native(dtype):
            return value.cast(dtype.scalar).bitcast(storage_dtype(dtype).scalar)
        return pack(value, dtype.scalar)


_VISITORS = {
    Ops.PARAM: _Emulation.in_memory,
    Ops.DEFINE: _Emulation.in_memory,
    Ops.INDEX: _Emulation.in_memory,
    Ops.AFTER: _Emulation.after,
    Ops.LOAD: _Emulation.load,
    Ops.STORE: _Emulation.store,
    Ops.CONST: _Emulation.constant,
    Ops.CAST: _Emulation.cast,
    Ops.BITCAST: _Emulation.bitcast,
    Ops.MMA: _Emulation.multiply_matrices,
}


# ---- formats, by integer ops ---------------------------------------------------------------------


def _bias(dtype: DType) -> int:
    return 1 - dtype.smallest_exponent


def widen(bits: UOp, dtype: DType) -> UOp:
    """The value of a small float's bits, as a float32.

    Exponent and mantissa move to their places in a float32; multiplying by a power of 2 corrects
    the exponent's bias, of denormals too.
    """
    wide = bits.cast(dtypes.uint32)
    if dtype is dtypes.bfloat16:
        return shift_left(wide, 16).bitcast(SINGLE)
    magnitude = wide & literal(wide, (1 << (dtype.bits - 1)) - 1)
    sign = shift_left(wide ^ magnitude, 32 - dtype.bits)
    value = shift_left(magnitude, 23 - dtype.mantissa_bits).bitcast(SINGLE)
    value = value * literal(value, 2.0 ** (127 - _bias(dtype)))
    if dtype is dtypes.float8_e4m3:
        is_special = magnitude.eq(literal(magnitude, 0x7F))
        special = literal(wide, 0x7FC00000)
    else:
        exponent_ones = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
        is_special = literal(magnitude, exponent_ones) <= magnitude
        moved = shift_left(magnitude, 23 - dtype.mantissa_bits)
        special = moved | literal(moved, 0x7F800000)
    found = is_special.where(special, value.bitcast(dtypes.uint32))
    return (found | sign).bitcast(SINGLE)


def round_to_small(x: UOp, dtype: DType) -> UOp:
    """A float32 rounded to the nearest value of a small type, ties to even; still a float32."""
    shift = 23 - dtype.mantissa_bits
    bits = to_bits(x)
    last = shift_right(bits, shift) & literal(bits, 1)
    carried = bits + last + literal(bits, (1 << (shift - 1)) - 1)
    result = (carried & literal(bits, -(1 << shift))).bitcast(SINGLE)
    if dtype is dtypes.bfloat16:  # the same exponents: denormals and overflow are right already
        return x.eq(x).where(result, x)
    size = absolute(x)
    magic = literal(x, 2.0 ** (dtype.smallest_exponent - dtype.mantissa_bits + 23))
    fixed = with_sign(subtract(size + magic, magic), sign_bit(x))
    result = (size < literal(x, 2.0**dtype.smallest_exponent)).where(fixed, result)
    beyond = literal(x, float("nan") if dtype is dtypes.float8_e4m3 else float("inf"))
    beyond = with_sign(beyond, sign_bit(x))
    fits = absolute(result) <= literal(x, dtype.finite_max)
    return x.eq(x).where(fits.where(result, beyond), x)


def pack(x: UOp, dtype: DType) -> UOp:
    """The bits of a float32 that has a value of the small type."""
    shift = 23 - dtype.mantissa_bits
    bits = x.bitcast(dtypes.uint32)
    nan = literal(bits, bits_of(dtype, float("nan")))
    if dtype is dtypes.bfloat16:
        kept = shift_right(bits, 16)
        return x.eq(x).where(kept, nan).cast(dtypes.uint16)
    magnitude = bits & literal(bits, 0x7FFFFFFF)
    sign = shift_right(bits ^ magnitude, 32 - dtype.bits)
    rebiased = shift_right(magnitude, shift)
    normal = subtract(rebiased, (127 - _bias(dtype)) << dtype.mantissa_bits)
    unit = 2.0 ** (dtype.smallest_exponent - dtype.mantissa_bits)
    size = absolute(x)
    smallest = literal(x, 2.0**dtype.smallest_exponent)
    # adding 2**23 to a small integer leaves that integer in the low bits
    counted = size * literal(x, 1 / unit) + literal(x, 2.0**23)
    denormal = subtract(counted.bitcast(dtypes.uint32), bits_of(SINGLE, 2.0**23))
    found = (size < smallest).where(denormal, normal)
    if dtype is not dtypes.float8_e4m3:
        infinity = literal(bits, bits_of(dtype, float("inf")))
        found = size.eq(literal(x, float("inf"))).where(infinity, found)
    found = x.eq(x).where(found, nan)
    return (found | sign).cast(storage_dtype(dtype).scalar)


def to_odd_single(x: UOp, dtype: DType) -> UOp:
    """A float32 that rounds to the small type as x does; x is of any other type.

    Of a float64 or a large integer all bits that a float32 loses are gathered in its last one,
    which is far below the small type's last place.
    """
    if x.dtype.scalar is SINGLE:
        return x
    if x.dtype.is_bool or (x.dtype.is_int and x.dtype.bits <= 16):
        return x.cast(SINGLE)
    if x.dtype.is_int:
        x = (_with_sticky_bit(x) if x.dtype.bits == 64 else x).cast(dtypes.float64)
    nearest = x.cast(SINGLE)
    back = nearest.cast(dtypes.float64)
    bits = to_bits(nearest)
    too_large = (absolute(x) < absolute(back)).cast(dtypes.int32)
    inexact = back.ne(x) & x.eq(x)
    odd = subtract(bits, too_large) | literal(bits, 1)
    return inexact.where(odd, bits).bitcast(SINGLE)


def _with_sticky_bit(x: UOp) -> UOp:
    """A 64-bit integer with its lowest 16 bits gathered in one, where that cannot show."""
    mask = (1 << 16) - 1
    lost = (x & literal(x, mask)).ne(literal(x, 0)).cast(x.dtype.scalar)
    gathered = (x & literal(x, ~mask if not x.dtype.is_unsigned else ~mask % 2**64)) | shift_left(
        lost, 15
    )
    limit = literal(x, 1 << 40)
    is_large = limit <= x
    if not x.dtype.is_unsigned:
        is_large = is_large | (x <= literal(x, -(1 << 40)))
    return is_large.where(gathered, x)
