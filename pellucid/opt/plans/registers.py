"""How large a tile of accumulators is: uses of a loaded value, against registers that there are.

    16 registers    6 rows x 2 vectors      a turn loads 6 numbers and 2 vectors for 12 sums
    32 registers    4 rows x 4 vectors                   4 numbers and 4 vectors for 16 sums

In each turn of a sum, a tile loads a value for each row and one for each column, and adds rows *
columns products. What limits a turn is the additions (two a cycle), the loads (two a cycle, more
for vectors that reach into a second line), or the latency: each accumulator waits for the turn
before. The columns stay in registers while the rows pass by, so a tile of r rows and c columns
needs r * c + c + 1 registers.

What does not divide evenly is done by smaller tiles, which count here too.

Source: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008,
section 6 (the shape of the register tile).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pellucid.core.records import dataclass
from pellucid.core.target import Target

PER_CYCLE = 2
"""How many vectors a core adds products to, and how many it loads, in a cycle."""
LATENCY_CYCLES = 5
"""How long a sum takes until it can be added to again, with a little to spare."""
LOAD_CYCLES = 0.05
"""What a load takes from other instructions, also where it is not what limits."""
PART_COST = 0.01
"""What each smaller tile for a rest adds to the time: its code, and where it begins and ends."""

Part = tuple[int, int]
"""How often a piece of an axis occurs, and how long it is."""


def parts_of(size: int, amount: int) -> list[Part]:
    """The pieces of an axis that is taken *amount* at a time, and the rest.

    >>> parts_of(64, 6), parts_of(8, 4), parts_of(3, 4)
    ([(10, 6), (1, 4)], [(2, 4)], [(1, 3)])
    """
    pieces = [(size // amount, amount), (1, size % amount)]
    return [(count, length) for count, length in pieces if count and length]


@dataclass(frozen=True)
class Registers:
    """The register file of a target, and what a load of each kind costs.

    >>> avx2 = Target(arch="x86-64", features=frozenset(["avx2", "fma"]))
    >>> Registers.of(avx2).accumulators, Registers.of(avx2).vector_load
    (12, 1.5)
    """

    count: int
    vector_load: float
    """Loads that a vector at any place counts as: some of them reach into a second line."""
    for_masks: int = 0
    """How many registers hold something else all the time."""

    @staticmethod
    def of(target: Target, for_masks: int = 0) -> Registers:
        """Read a target, where masks of vectors take some registers."""
        load = 1 + target.vector_bytes / target.line_bytes
        return Registers(target.num_vector_registers, load, for_masks)

    @property
    def accumulators(self) -> int:
        """How many there are at most: those that hide the latency, and some for fewer loads."""
        return 8 + self.count // 4

    def has_room(self, rows: int, columns: int) -> bool:
        """Tell whether a tile stays in registers."""
        needed = rows * columns + columns + 1 + self.for_masks
        return rows * columns <= self.accumulators and needed <= self.count

    def turn_cycles(self, rows: int, columns: int, row_load: float = 1.0) -> float:
        """How long one turn of the sum takes in a tile of *columns* vectors."""
        loads = rows * row_load + columns * self.vector_load
        limit = max(rows * columns / PER_CYCLE, loads / PER_CYCLE, LATENCY_CYCLES)
        return limit + loads * LOAD_CYCLES

    def cycles(self, rows: Sequence[Part], columns: Sequence[Part], row_load: float = 1.0) -> float:
        """How long a turn takes in all tiles together."""
        whole = sum(
            count * often * self.turn_cycles(row, column, row_load)
            for (count, row), (often, column) in itertools.product(rows, columns)
        )
        return whole * (1 + PART_COST * (len(rows) * len(columns) - 1))


@dataclass(frozen=True)
class Shape:
    """A tile: rows, vectors side by side, and copies of these along one more axis."""

    rows: int
    vectors: int
    again: int = 1

    @property
    def columns(self) -> int:
        """How many vectors each row is multiplied with."""
        return self.vectors * self.again


def best_shape(
    registers: Registers,
    rows: Sequence[int],
    vectors: Sequence[int],
    again: Sequence[int],
    sizes: tuple[int, int, int],
    row_load: float = 1.0,
) -> Shape:
    """The cheapest tile of those allowed, for axes of some *sizes*: rows, vectors, again.

    Of equal ones the one with the fewest copies, then with the most vectors.

    >>> avx2 = Registers.of(Target(arch="x86-64", features=frozenset(["avx2", "fma"])), for_masks=1)
    >>> best_shape(avx2, range(1, 9), range(1, 5), range(1, 4), (64, 7, 56))
    Shape(rows=6, vectors=1, again=2)
    """

    def cost(shape: Shape) -> tuple[float, int, int, int]:
        cycles = shape_cycles(registers, shape, sizes, row_load)
        return (round(cycles, 6), shape.again, -shape.vectors, shape.rows)

    return min(_shapes(registers, rows, vectors, again, sizes), key=cost)


def shape_cycles(
    registers: Registers, shape: Shape, sizes: tuple[int, int, int], row_load: float = 1.0
) -> float:
    """How long a turn of the sum takes in all tiles of a shape.

    >>> avx2 = Registers.of(Target(arch="x86-64", features=frozenset(["avx2", "fma"])))
    >>> round(shape_cycles(avx2, Shape(6, 2), (12, 4, 1)), 2)
    25.8
    """
    along, side = parts_of(sizes[1], shape.vectors), parts_of(sizes[2], shape.again)
    columns = [(n * m, a * b) for (n, a), (m, b) in itertools.product(along, side)]
    return registers.cycles(parts_of(sizes[0], shape.rows), columns, row_load)


def _shapes(
    registers: Registers,
    rows: Sequence[int],
    vectors: Sequence[int],
    again: Sequence[int],
    sizes: tuple[int, int, int],
) -> Iterator[Shape]:
    """The tiles that fit; copies along a further axis only where no vectors are left over."""
    yield Shape(1, 1)
    for row, vector, copy in itertools.product(rows, vectors, again):
        is_short = row <= sizes[0] and vector <= sizes[1] and copy <= sizes[2]
        is_even = copy == 1 or sizes[1] % vector == 0
        if is_short and is_even and registers.has_room(row, vector * copy):
            yield Shape(row, vector, copy)
