"""How large the tiles, panels and blocks of a product of matrices are, from the target's data.

    1024 x 1024 x 1024, float32               16 registers of 8, 512 KB    32 registers of 16, 2 MB
      a tile of sums                          6 rows x 2 vectors           4 rows x 4 vectors
      columns of a panel                      16                           64
      panels that are packed together         4                            1
      products added before the sums wait     1024                         1024

*Registers.* A tile of r rows and v vectors reads v vectors and r numbers for r * v products: both
are as large as registers allow. As many independent sums as a product takes cycles, times the two
products of a cycle, keep the units busy. Rows are chosen so that little is left at the edge.

*Caches.* What is packed of b stays in the second cache, and fills half of it, while all rows of a
pass by: the more columns it has, the less often a is read again. A tile of 4 vectors is as wide as
that allows; narrower ones pass by several panels, side by side. A long sum is cut so that it fits.

Sources: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008;
F. Van Zee, R. van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015;
T. M. Low, F. Igual, T. Smith, E. Quintana-Orti, "Analytical Modeling Is Enough for High-Performance
BLIS", 2016; the design's cpu.md, section 2 (32 registers).
"""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.target import Target
from pellucid.opt.products import Product
from pellucid.opt.runs import longest_run

MAX_DEPTH = 2048
"""The most rows of a panel that are copied at a time."""
LEAST_SUMS = 8
"""Independent sums that hide the latency of a product: 4 cycles, two products in each."""
LEAST_COLUMNS = 64
"""Where all rows pass by fewer columns at a time, reading them takes longer than multiplying."""


@dataclass(frozen=True)
class Sizes:
    """What is chosen for one product."""

    lanes: int
    vectors: int
    """Vectors of a panel, and of a tile."""
    depth: int
    """How much of the sum is done for all rows before the next block of it."""
    panels: int
    """How many panels are packed together."""
    is_packed: bool

    @property
    def width(self) -> int:
        """The columns of a panel."""
        return self.vectors * self.lanes


def choose_sizes(product: Product, target: Target, threads: int) -> Sizes:
    """Choose for a product that so many threads share."""
    lanes = target.max_lanes(max(4, product.node.dtype.itemsize))
    columns = -(-product.size(product.column) // lanes) * lanes
    vectors = panel_vectors(columns // lanes, target.num_vector_registers)
    width = vectors * lanes
    if not _pays_packing(product, target, vectors):
        return Sizes(lanes, vectors, product.count, 1, is_packed=False)
    cache_bytes = target.l2_bytes // 2
    least = width if vectors > 2 else min(columns, LEAST_COLUMNS)
    depth = sum_depth(product.count, least * product.item_bytes, cache_bytes)
    panels = 1
    if vectors <= 2:
        most = cache_bytes // (depth * width * product.item_bytes)
        panels = panels_together(max(1, columns // width), most, threads)
    return Sizes(lanes, vectors, depth, panels, is_packed=True)


def panel_vectors(count: int, registers: int) -> int:
    """How many vectors of columns a panel has, of *count*: one less where that leaves no rest.

    >>> [panel_vectors(n, 32) for n in (4, 6, 7, 12)]
    [4, 3, 4, 4]
    """
    if registers < 32:
        return 2
    return 3 if count % 4 and count % 3 == 0 else 4


def _pays_packing(product: Product, target: Target, vectors: int) -> bool:
    """True where *wide* does not stay in cache, or must be converted or turned around.

    Of a narrow panel that is not packed, each row is one line or two, and lines that lie evenly
    apart meet in few sets of the first cache.
    """
    num_bytes = product.size(product.column) * product.count * product.item_bytes
    is_large = num_bytes > target.l2_bytes // 2 or product.is_converted
    is_scattered = vectors <= 2 and num_bytes > target.l1d_bytes and product.uses >= 64
    return (is_large and product.uses >= 16) or is_scattered or not product.is_contiguous


def sum_depth(count: int, row_bytes: int, cache_bytes: int) -> int:
    """How much of a sum is done at a time, so that columns stay in a cache; little is left.

    >>> [sum_depth(n, 256, 1 << 18) for n in (768, 1201, 2048, 3072, 8192)]
    [768, 600, 1024, 1024, 1024]
    """
    if count * row_bytes <= cache_bytes:
        return count
    most = max(longest_run(count), min(MAX_DEPTH, cache_bytes // row_bytes))
    divisor = next((n for n in range(most, most // 2, -1) if count % n == 0), None)
    return divisor or count // -(-count // most)


def panels_together(count: int, most: int, threads: int) -> int:
    """How many panels are packed at a time, so that threads have equally many groups of them.

    >>> [panels_together(n, 32, 2) for n in (3, 31, 64, 192)]
    [1, 15, 32, 32]
    """
    most = max(1, min(most, count))
    groups = -(-count // (most * threads)) * threads
    near = range(max(1, count // groups), most // 2, -1)
    return next((n for n in near if count % (n * threads) == 0), max(1, count // groups))


def tile_rows(size: int, vectors: int, registers: int) -> int:
    """How many rows a tile has: as many as fit, a few more or less where that leaves less rest.

    >>> [tile_rows(n, 4, 32) for n in (3, 64, 65, 66, 127)]
    [3, 4, 5, 6, 4]
    >>> [tile_rows(n, 2, 16) for n in (3, 65, 127, 1000, 1024)]
    [3, 5, 6, 5, 6]
    """
    if registers >= 32:
        most = max(1, registers // 2 // vectors)
        near = (most, most + 1, most + most // 2, most - 1)
        return min(size, next((n for n in near if n > 1 and size % n == 0), most))
    most = min(size, (registers - 4) // vectors)
    return min(range(most, most // 2, -1), key=lambda rows: _time(size, rows, vectors))


def rest_rows(rest: int, size: int, vectors: int, registers: int) -> int:
    """How many rows of the rest stand in one tile: few, where it takes little time; code costs too.

    >>> [rest_rows(4, size, 2, 16) for size in (64, 256, 1024)]
    [4, 2, 1]
    """
    if registers >= 32:
        return rest
    most = rest * vectors + size * vectors // 50
    near = (n for n in range(1, rest) if rest % n == 0)
    return next((n for n in near if rest // n * max(n * vectors, LEAST_SUMS) <= most), rest)


def _time(size: int, rows: int, vectors: int) -> float:
    """About how long tiles of so many rows take, in products; another body costs a little too."""
    whole, rest = size // rows * _step(rows * vectors), size % rows
    return (whole + _step(rest * vectors)) * 1.02 if rest else float(whole)


def _step(products: int) -> int:
    return max(products, LEAST_SUMS) + 1
