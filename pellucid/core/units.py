"""Matrix units: instructions that multiply two small matrices and add the product to a third.

    sum[i, j] += left[i, k] * right[k, j]        i < rows, j < columns, k < depth

Each row of `MATRIX_UNITS` is one instruction, as plain data: the shape, the types, the feature that
a processor must have, and where each element stands in a register. *group* numbers that are
neighbours along k stand side by side (pairs of 16 bits, quads of 8), so that each lane of the sum
has all that it adds in its own lane of the operands:

    left[i, k]     lane  i * depth + k
    right[k, j]    lane  (k // group) * columns * group  +  j * group  +  k % group
    sum[i, j]      lane  i * columns + j

    vdpbf16ps, of 1 x 16 x 2, group 2     right:  b[0,0] b[1,0] b[0,1] b[1,1] … b[0,15] b[1,15]

Integer units wrap as the sums that they stand for, so they give the same bits. Those for bfloat16
take denormal numbers as zero, whatever the control register says: they are used where a user
allows `relaxed_float` only.

Which of them a kernel may use is a question to the target: `Target.matrix_units` names those that
its renderer can spell, and `target.may_use` asks Linux for tiles, which it hands out on request.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, PMADDWD, VPDPWSSD,
VPDPBUSD, VPDPBSSD, VDPBF16PS, TDPBF16PS, TDPBSSD; volume 1, chapter 18; Arm Architecture Reference
Manual, SDOT, UDOT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pellucid.core.dtype import DType, dtypes
from pellucid.core.records import dataclass


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """One instruction: sum (rows x columns) += left (rows x depth) * right (depth x columns).

    >>> unit = MATRIX_UNITS["vdpbf16ps_512"]
    >>> [unit.right_lane(k, j) for k, j in ((0, 0), (1, 0), (0, 1), (1, 15))]
    [0, 1, 2, 31]
    """

    name: str
    rows: int
    columns: int
    depth: int
    group: int
    """How many neighbours along k stand side by side in *right*; it divides *depth*."""
    left: DType
    right: DType
    sum: DType
    feature: str
    """What the processor must have, in LLVM's words."""
    is_tile: bool = False
    """Whether operands are tile registers, which need the permission of the operating system."""
    flushes_denormals: bool = False
    """Whether denormal numbers count as zero."""

    @property
    def products(self) -> int:
        """How many products one instruction adds."""
        return self.rows * self.columns * self.depth

    def left_lane(self, i: int, k: int) -> int:
        """Where left[i, k] stands."""
        return i * self.depth + k

    def right_lane(self, k: int, j: int) -> int:
        """Where right[k, j] stands."""
        return (k // self.group * self.columns + j) * self.group + k % self.group

    def takes(self, left: DType, right: DType) -> bool:
        """True where operands of these types lose nothing when they become those of the unit.

        >>> MATRIX_UNITS["pmaddwd_256"].takes(dtypes.int8, dtypes.uint8)
        True
        """
        return self.takes_as(self.left, left) and self.takes_as(self.right, right)

    @staticmethod
    def takes_as(wanted: DType, given: DType) -> bool:
        """True where every value of *given* is one of *wanted*: integers, or the same type."""
        return wanted is given or (wanted.is_int and keeps_values(given, wanted))


def keeps_values(narrow: DType, wide: DType) -> bool:
    """Tell whether every value of *narrow* is one of *wide*, both integers or both floats.

    >>> keeps_values(dtypes.uint8, dtypes.int16), keeps_values(dtypes.int8, dtypes.uint8)
    (True, False)
    """
    if narrow.is_float and wide.is_float:
        exponents = narrow.exponent_bits <= wide.exponent_bits
        return exponents and narrow.mantissa_bits <= wide.mantissa_bits
    return narrow.is_int and wide.is_int and wide.min <= narrow.min and narrow.max <= wide.max


def _dots() -> list[MatrixUnit]:
    """Rows of the instructions on vectors: one row of the sum, a group of products in each lane."""
    pairs, words = (dtypes.bfloat16,) * 2, (dtypes.int16,) * 2
    unsigned, signed = (dtypes.uint8,) * 2, (dtypes.int8,) * 2
    mixed = (dtypes.uint8, dtypes.int8)
    found = []
    for name, feature, bits, (left, right) in (
        ("vdpbf16ps_512", "avx512bf16", 512, pairs),
        ("vpdpbusd_512", "avx512vnni", 512, mixed),
        ("vpdpbssd_256", "avxvnniint8", 256, signed),
        ("vpdpbuud_256", "avxvnniint8", 256, unsigned),
        ("vpdpbusd_256", "avxvnni", 256, mixed),
        ("vpdpwssd_512", "avx512vnni", 512, words),
        ("pmaddwd_512", "avx512bw", 512, words),
        ("vpdpwssd_256", "avxvnni", 256, words),
        ("pmaddwd_256", "avx2", 256, words),
        ("pmaddwd_128", "sse2", 128, words),
        ("sdot_128", "dotprod", 128, signed),
        ("udot_128", "dotprod", 128, unsigned),
    ):
        group, is_float = 32 // left.bits, left.is_float
        total = dtypes.float32 if is_float else dtypes.int32
        shape = (1, bits // 32, group, group)
        unit = MatrixUnit(name, *shape, left, right, total, feature, flushes_denormals=is_float)
        found.append(unit)
    return found


def _tiles() -> list[MatrixUnit]:
    """Rows of the instructions on tiles: 16 rows of 64 bytes each."""
    found = []
    for name, feature, left, right in (
        ("tdpbf16ps", "amx-bf16", dtypes.bfloat16, dtypes.bfloat16),
        ("tdpbssd", "amx-int8", dtypes.int8, dtypes.int8),
        ("tdpbsud", "amx-int8", dtypes.int8, dtypes.uint8),
        ("tdpbusd", "amx-int8", dtypes.uint8, dtypes.int8),
        ("tdpbuud", "amx-int8", dtypes.uint8, dtypes.uint8),
    ):
        group, is_float = 32 // left.bits, left.is_float
        total = dtypes.float32 if is_float else dtypes.int32
        shape = (16, 16, 16 * group, group)
        found.append(MatrixUnit(name, *shape, left, right, total, feature, True, is_float))
    return found


MATRIX_UNITS: Final[Mapping[str, MatrixUnit]] = {u.name: u for u in (*_tiles(), *_dots())}
"""All units by name, the one with the most products for each instruction first."""
