"""Number types: what a value is made of, and how types combine.

A `DType` names a machine representation (kind, width) and a number of lanes: `float32` has one
lane, `float32.vec(16)` is a vector of sixteen. Two types are special: `index` is an integer whose
width is not chosen yet (addresses and loop counters, see the form NATIVE), `void` is the type of
what has no value.

    promote(int8, uint8) -> int16         promote(float16, bfloat16) -> float32
    wrap(uint8, 300)     -> 44            round_to(float16, 65520.0) -> inf

Promotion follows the lattice of the design's semantics.md, "Types"; rounding is to nearest, ties to
even (IEEE 754-2019, 4.3.1). The 8-bit floats are those of Micikevicius et al., "FP8 formats for
deep learning", 2022: e4m3 has no infinity and one NaN pattern, e5m2 follows IEEE.
"""

from __future__ import annotations

import enum
import math
import struct
from functools import cache, cached_property
from typing import Final

from pellucid.core.records import dataclass

Scalar = bool | int | float


class Kind(enum.Enum):
    """What the bits of a type mean."""

    VOID = "void"
    BOOL = "bool"
    UINT = "uint"
    INT = "int"
    INDEX = "index"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True, eq=False)
class DType:
    """A number type: kind, width in bits of one lane, and number of lanes.

    There is one object for each type, so that types are compared by identity.

    >>> dtypes.float32.vec(4), dtypes.float32.vec(4).itemsize
    (dtypes.float32.vec(4), 16)
    """

    name: str
    kind: Kind
    bits: int
    exponent_bits: int = 0
    mantissa_bits: int = 0
    lanes: int = 1

    def __repr__(self) -> str:
        suffix = f".vec({self.lanes})" if self.lanes > 1 else ""
        return f"dtypes.{self.name}{suffix}"

    def __str__(self) -> str:
        return self.name if self.lanes == 1 else f"{self.name}x{self.lanes}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (parse_dtype, (str(self),))

    def vec(self, lanes: int) -> DType:
        """Return this type with *lanes* lanes (1 gives the scalar type)."""
        return _with_lanes(self, lanes)

    @property
    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self.lanes == 1 else _with_lanes(self, 1)

    @cached_property
    def itemsize(self) -> int:
        """Size in bytes of one value, all lanes together. A bool takes a byte."""
        return (self.bits + 7) // 8 * self.lanes

    @cached_property
    def is_float(self) -> bool:
        """True for floats of every width, not for complex."""
        return self.kind is Kind.FLOAT

    @cached_property
    def is_int(self) -> bool:
        """True for signed and unsigned integers and `index`, not for bool."""
        return self.kind in (Kind.INT, Kind.UINT, Kind.INDEX)

    @cached_property
    def is_unsigned(self) -> bool:
        """True for uint8 to uint64."""
        return self.kind is Kind.UINT

    @cached_property
    def is_bool(self) -> bool:
        """True for bool."""
        return self.kind is Kind.BOOL

    @cached_property
    def is_index(self) -> bool:
        """True for the integer whose width is not chosen yet."""
        return self.kind is Kind.INDEX

    @cached_property
    def min(self) -> Scalar:
        """The smallest value (-inf for floats). `index` counts as 64 bits."""
        if self.kind is Kind.BOOL:
            return False
        if self.kind is Kind.UINT:
            return 0
        if self.kind in (Kind.INT, Kind.INDEX):
            return -(1 << (self.bits - 1))
        return -self.finite_max if self.name == "float8_e4m3" else -math.inf

    @cached_property
    def max(self) -> Scalar:
        """The largest value (inf for floats that have it)."""
        if self.kind is Kind.BOOL:
            return True
        if self.kind is Kind.UINT:
            return (1 << self.bits) - 1
        if self.kind in (Kind.INT, Kind.INDEX):
            return (1 << (self.bits - 1)) - 1
        return self.finite_max if self.name == "float8_e4m3" else math.inf

    @cached_property
    def finite_max(self) -> float:
        """The largest finite value of a float type."""
        if self.name == "float8_e4m3":
            return 448.0
        bias = (1 << (self.exponent_bits - 1)) - 1
        return math.ldexp(2.0 - math.ldexp(1.0, -self.mantissa_bits), bias)

    @cached_property
    def epsilon(self) -> float:
        """Distance from 1.0 to the next larger value of a float type."""
        return math.ldexp(1.0, -self.mantissa_bits)

    @cached_property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal value of a float type (-126 for float32)."""
        return 2 - (1 << (self.exponent_bits - 1))


@cache
def _with_lanes(dtype: DType, lanes: int) -> DType:
    if dtype.lanes == lanes:
        return dtype
    if lanes == 1:
        return _BY_NAME[dtype.name]
    made = DType(
        dtype.name, dtype.kind, dtype.bits, dtype.exponent_bits, dtype.mantissa_bits, lanes
    )
    return _VECTORS.setdefault((dtype.name, lanes), made)  # one, also if two threads come here


class dtypes:  # noqa: N801  (a namespace that users write in lower case, as in `dtypes.float32`)
    """All types, by name."""

    void: Final = DType("void", Kind.VOID, 0)
    bool: Final = DType("bool", Kind.BOOL, 1)
    index: Final = DType("index", Kind.INDEX, 64)
    int8: Final = DType("int8", Kind.INT, 8)
    int16: Final = DType("int16", Kind.INT, 16)
    int32: Final = DType("int32", Kind.INT, 32)
    int64: Final = DType("int64", Kind.INT, 64)
    uint8: Final = DType("uint8", Kind.UINT, 8)
    uint16: Final = DType("uint16", Kind.UINT, 16)
    uint32: Final = DType("uint32", Kind.UINT, 32)
    uint64: Final = DType("uint64", Kind.UINT, 64)
    float8_e4m3: Final = DType("float8_e4m3", Kind.FLOAT, 8, 4, 3)
    float8_e5m2: Final = DType("float8_e5m2", Kind.FLOAT, 8, 5, 2)
    float16: Final = DType("float16", Kind.FLOAT, 16, 5, 10)
    bfloat16: Final = DType("bfloat16", Kind.FLOAT, 16, 8, 7)
    float32: Final = DType("float32", Kind.FLOAT, 32, 8, 23)
    float64: Final = DType("float64", Kind.FLOAT, 64, 11, 52)
    complex64: Final = DType("complex64", Kind.COMPLEX, 64)
    complex128: Final = DType("complex128", Kind.COMPLEX, 128)
    # the names that people also know
    half: Final = float16
    float: Final = float32
    double: Final = float64
    long: Final = int64
    int: Final = int32


SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
)
COMPLEX = (dtypes.complex64, dtypes.complex128)
VALUE_DTYPES = (dtypes.bool, *INTEGERS, *FLOATS, *COMPLEX)
_BY_NAME = {d.name: d for d in (*VALUE_DTYPES, dtypes.index, dtypes.void)}
_VECTORS: dict[tuple[str, int], DType] = {}


def parse_dtype(text: str) -> DType:
    """Return the type that prints as *text*; raise KeyError for an unknown name.

    >>> parse_dtype("float32x16")
    dtypes.float32.vec(16)
    """
    if text in _BY_NAME:
        return _BY_NAME[text]
    name, _, lanes = text.rpartition("x")
    return _BY_NAME[name].vec(int(lanes))


def promote(*given: DType, default_float: DType = dtypes.float32) -> DType:
    """Return the smallest type that the lattice puts above all *given* ones.

    uint64 with a signed type is the default float, as no integer type holds both.

    >>> promote(dtypes.uint8, dtypes.int8), promote(dtypes.int64, dtypes.float16)
    (dtypes.int16, dtypes.float16)
    """
    result = given[0]
    for other in given[1:]:
        result = _promote_two(result, other, default_float)
    return result


@cache
def _promote_two(left: DType, right: DType, default_float: DType) -> DType:
    if left is right:
        return left
    a, b = sorted((left, right), key=_rank)
    if a.kind is Kind.BOOL:
        return b
    if b.kind is Kind.COMPLEX:
        wide = a is dtypes.float64 or dtypes.complex128 in (a, b)
        return dtypes.complex128 if wide else dtypes.complex64
    if b.is_float:
        return b if not a.is_float else _promote_floats(a, b)
    if a.is_unsigned == b.is_unsigned or (b.bits > a.bits and not b.is_unsigned):
        return b if b.bits >= a.bits else a
    signed, unsigned = (b, a) if a.is_unsigned else (a, b)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        return default_float
    return SIGNED[[8, 16, 32].index(unsigned.bits) + 1]


def _rank(dtype: DType) -> tuple[int, int]:
    order = (Kind.BOOL, Kind.UINT, Kind.INT, Kind.INDEX, Kind.FLOAT, Kind.COMPLEX)
    return order.index(dtype.kind), dtype.bits


def _promote_floats(a: DType, b: DType) -> DType:
    if a.bits < b.bits:
        return b
    # two 8-bit or two 16-bit formats: the next format that holds both
    return dtypes.float16 if a.bits == 8 else dtypes.float32


@cache
def can_hold(wide: DType, narrow: DType) -> bool:
    """True when every value of *narrow* survives a cast to *wide* and back.

    >>> can_hold(dtypes.float32, dtypes.int16), can_hold(dtypes.float32, dtypes.int32)
    (True, False)
    """
    wide, narrow = wide.scalar, narrow.scalar
    if wide is narrow:
        return True
    if narrow.is_bool:
        return wide.is_int or wide.is_float
    if narrow.is_int and wide.is_int:
        if narrow.is_unsigned:
            return wide.bits - (not wide.is_unsigned) >= narrow.bits
        return not wide.is_unsigned and wide.bits >= narrow.bits
    if narrow.is_int and wide.is_float:
        magnitude_bits = narrow.bits - (not narrow.is_unsigned)
        # the top value 2**bits must not overflow the exponent either
        return wide.mantissa_bits + 1 >= magnitude_bits and wide.finite_max >= 2.0**magnitude_bits
    if narrow.is_float and wide.is_float:
        if narrow is dtypes.float8_e5m2 and wide is dtypes.float8_e4m3:
            return False
        return (
            wide.mantissa_bits >= narrow.mantissa_bits
            and wide.exponent_bits >= narrow.exponent_bits
            and wide.bits > narrow.bits
        )
    return False


def wrap(dtype: DType, value: int) -> int:
    """Reduce *value* modulo the width of an integer *dtype* (two's complement).

    >>> wrap(dtypes.int8, 200), wrap(dtypes.uint8, -1)
    (-56, 255)
    """
    if dtype.is_index:
        return value
    value &= (1 << dtype.bits) - 1
    if not dtype.is_unsigned and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def round_to(dtype: DType, value: float) -> float:
    """Round a Python float to the nearest value of a float *dtype*, ties to even.

    >>> round_to(dtypes.bfloat16, 1.01171875), round_to(dtypes.float16, 65519.0)
    (1.015625, 65504.0)
    """
    if dtype is dtypes.float64 or value != value or value in (0.0, math.inf, -math.inf):
        return math.nan if dtype is dtypes.float8_e4m3 and math.isinf(value) else value
    if dtype is dtypes.float32:
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    exponent = max(math.frexp(value)[1] - 1, dtype.smallest_exponent)
    quantum = math.ldexp(1.0, exponent - dtype.mantissa_bits)
    rounded = round(value / quantum) * quantum  # both steps are exact but for the rounding itself
    if abs(rounded) > dtype.finite_max:
        return math.nan if dtype is dtypes.float8_e4m3 else math.copysign(math.inf, value)
    return math.copysign(rounded, value)


def to_scalar(dtype: DType, value: Scalar) -> Scalar:
    """Cast a Python *value* to the Python value that *dtype* holds for it.

    Floats become integers towards zero, saturating, NaN as 0; wider integers wrap; anything not
    equal to zero is True (NaN too). This is the cast of semantics.md, used by CONST and by folding.

    >>> [to_scalar(dtypes.uint8, v) for v in (-1.0, 256.0, 3.9, 300)]
    [0, 255, 3, 44]
    """
    if dtype.is_bool:
        return value != 0
    if dtype.is_float:
        return round_to(dtype, _float_for(dtype, value))
    if dtype.is_int:
        if isinstance(value, float):
            if value != value:
                return 0
            low, high = int(dtype.min), int(dtype.max)
            if value <= low or value >= high:
                return low if value <= low else high
            return int(value)
        return wrap(dtype, int(value))
    return value


def _float_for(dtype: DType, value: Scalar) -> float:
    """A float64 that rounds to *dtype* as *value* itself does.

    An integer of more than 53 bits is cut, and its last bit set if anything was lost, so that
    rounding again cannot be misled into a tie.
    """
    if dtype is dtypes.float64 or isinstance(value, float):
        return _nearest_float(value)
    shift = max(value.bit_length() - 53, 0)
    kept = abs(value) >> shift
    if kept << shift != abs(value):
        kept |= 1
    return _nearest_float(kept << shift if value >= 0 else -(kept << shift))


def _nearest_float(value: Scalar) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def bits_of(dtype: DType, value: Scalar) -> int:
    """Return the bit pattern of *value* as a non-negative integer (for BITCAST and printing).

    >>> hex(bits_of(dtypes.float32, 1.0)), bits_of(dtypes.int8, -1)
    ('0x3f800000', 255)
    """
    if dtype.is_bool or dtype.is_int:
        return int(value) & ((1 << max(dtype.bits, 8)) - 1)
    value = float(value)
    code = {dtypes.float64: "<d", dtypes.float32: "<f", dtypes.float16: "<e"}.get(dtype)
    if code is not None:
        try:
            return int.from_bytes(struct.pack(code, value), "little")
        except OverflowError:
            return int.from_bytes(struct.pack(code, math.copysign(math.inf, value)), "little")
    return _small_float_bits(dtype, value)


def _small_float_bits(dtype: DType, value: float) -> int:
    sign = 1 if math.copysign(1.0, value) < 0 else 0
    top_exponent = (1 << dtype.exponent_bits) - 1
    mantissa_ones = (1 << dtype.mantissa_bits) - 1
    sign_bit = sign << (dtype.bits - 1)
    if value != value:
        quiet = mantissa_ones if dtype is dtypes.float8_e4m3 else 1 << (dtype.mantissa_bits - 1)
        return sign_bit | top_exponent << dtype.mantissa_bits | quiet
    if math.isinf(value):
        return sign_bit | top_exponent << dtype.mantissa_bits
    value = abs(round_to(dtype, value))
    if value == 0.0:
        return sign_bit
    exponent = max(math.frexp(value)[1] - 1, dtype.smallest_exponent)
    significand = int(math.ldexp(value, dtype.mantissa_bits - exponent))
    biased = exponent - dtype.smallest_exponent + 1
    if significand <= mantissa_ones:
        biased = 0
    return sign_bit | biased << dtype.mantissa_bits | (significand & mantissa_ones)


def value_of_bits(dtype: DType, bits: int) -> Scalar:
    """Return the value whose bit pattern is *bits*: the inverse of `bits_of`.

    >>> value_of_bits(dtypes.float16, 0x3c00), value_of_bits(dtypes.int8, 255)
    (1.0, -1)
    """
    if dtype.is_bool:
        return bits & 1 != 0
    if dtype.is_int:
        return wrap(dtype, bits)
    code = {dtypes.float64: "<d", dtypes.float32: "<f", dtypes.float16: "<e"}.get(dtype)
    if code is not None:
        return float(struct.unpack(code, bits.to_bytes(dtype.itemsize, "little"))[0])
    sign = -1.0 if bits >> (dtype.bits - 1) & 1 else 1.0
    biased = bits >> dtype.mantissa_bits & ((1 << dtype.exponent_bits) - 1)
    mantissa = bits & ((1 << dtype.mantissa_bits) - 1)
    if dtype is dtypes.float8_e4m3:
        if biased == 15 and mantissa == 7:
            return math.nan
    elif biased == (1 << dtype.exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    exponent = max(biased, 1) + dtype.smallest_exponent - 1
    significand = mantissa | ((1 << dtype.mantissa_bits) if biased else 0)
    return sign * math.ldexp(significand, exponent - dtype.mantissa_bits)
