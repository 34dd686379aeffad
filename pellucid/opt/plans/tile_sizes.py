"""How large the tiles, panels and blocks of a product of matrices are, from the target's data.

    1024 x 1024 x 1024, float32               16 registers of 8, 512 KB    32 registers of 16, 2 MB
      a tile of sums                          6 rows x 2 vectors           6 rows x 4 vectors
      columns of a panel                      16                           64
      panels that are packed together         32                           1
      products added before the sums wait     1024                         1024

*Registers.* A tile of r rows and v vectors reads v vectors and r numbers for r * v products: both
are as large as registers allow. As many independent sums as a product takes cycles, times the two
products of a cycle, keep the units busy. Rows are chosen so that little is left at the edge. With
32 registers, 4 rows x 4 vectors keep them as busy, but load for two products of three what 6 rows
load for all: 512 x 512 x 512 took 5 % longer on one core, and 8 % on two that share much (Ice Lake;
12 rows x 2 vectors reached 0.93 of the peak with everything in the first cache, others 0.99).

*Caches.* All rows of a pass by what is packed of b. The more columns it has, the less often a is
read again; the fewer, the nearer it stays. A panel of 4 vectors is as wide as half the second cache
allows. Narrower ones are packed side by side: as many as that allows too, where a stays about in
the second cache, and else a part of the third, which all cores share: panels are read one after the
other, which can be foreseen, while the rows of a are short streams side by side. A long sum is cut
so that what is packed of it fits; the sums that wait are written and read once more for each part.
Where all of b stays in the first cache, as it has few rows, panels stand inside of the rows, and
results are written along memory: 1024 x 16 x 256 takes 0.75 of the time.

CPU time of one core, Zen 3, over that of OpenBLAS, measured in turns:

    columns together                  64       256      512
    2048 x 2048 x 2048                1.13     1.04     1.05        (64: the sum is cut in two)
    1000 x 768 x 3072                 1.10     1.04     1.03
    512 x 8192 x 512                  1.10     1.05     1.02        (1024 products at a time)
    128 x 768 x 3072                  1.04     1.05     1.06        (a stays in the second cache)

Sources: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008;
F. Van Zee, R. van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015;
T. M. Low, F. Igual, T. Smith, E. Quintana-Orti, "Analytical Modeling Is Enough for High-Performance
BLIS", 2016; the design's cpu.md, section 2 (32 registers).
"""

from __future__ import annotations

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.opt.actions.buffers import MAX_BUFFER_BYTES
from pellucid.opt.actions.overlap import pays_overlap
from pellucid.opt.plans.products import Product
from pellucid.opt.plans.runs import longest_run

MAX_DEPTH = 2048
"""The most rows of a panel that are copied at a time."""
LEAST_SUMS = 8
"""Independent sums that hide the latency of a product: 4 cycles, two products in each."""
LEAST_COLUMNS = 64
"""Where all rows pass by fewer columns at a time, reading them takes longer than multiplying."""
L3_PARTS = 8
"""Of so many parts of the third cache, one is for what the cores pack; others use it too."""


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
        near = columns * product.count * product.item_bytes <= target.l1d_bytes // 2
        panels = max(1, columns // width) if near and vectors > 2 else 1
        return Sizes(lanes, vectors, product.count, panels, is_packed=False)
    row_bytes = width * product.item_bytes
    cache_bytes = target.l2_bytes // 2
    if vectors <= 2:
        cache_bytes = packed_bytes(target, product.uses, product.count, product.item_bytes)
        longest = MAX_DEPTH if product.count <= MAX_DEPTH else MAX_DEPTH // 2
        least = max(LEAST_COLUMNS * product.item_bytes, cache_bytes // longest)
        row_bytes = min(columns * product.item_bytes, least)
    depth = sum_depth(product.count, row_bytes, cache_bytes)
    waiting = MAX_BUFFER_BYTES // (product.uses * width * product.node.dtype.itemsize)
    if depth < product.count and not waiting:
        return Sizes(lanes, vectors, product.count, 1, is_packed=True)
    if vectors > 2:
        return Sizes(lanes, vectors, depth, 1, is_packed=True)
    most = cache_bytes // (depth * width * product.item_bytes)
    most = most if depth == product.count else min(most, waiting)
    panels = panels_together(max(1, columns // width), most, threads)
    return Sizes(lanes, vectors, depth, panels, is_packed=True)


def packed_bytes(target: Target, rows: int, count: int, item_bytes: int) -> int:
    """How much a core may pack at a time of narrow panels, which so many rows pass by.

    >>> target = Target(arch="x86-64", l2_bytes=1 << 19, l3_bytes=1 << 25, cores=2)
    >>> packed_bytes(target, 128, 3072, 4), packed_bytes(target, 2048, 2048, 4)
    (262144, 2097152)
    """
    near = target.l2_bytes // 2
    depth = min(count, near // (LEAST_COLUMNS * item_bytes))
    return near if rows * depth * item_bytes <= 2 * target.l2_bytes else far_bytes(target)


def far_bytes(target: Target) -> int:
    """What a core may pack at a time in its part of the third cache, or else in the second.

    >>> far_bytes(Target(arch="x86-64", l2_bytes=1 << 19, l3_bytes=0))
    262144
    """
    return max(target.l2_bytes // 2, target.l3_bytes // L3_PARTS // max(2, target.cores))


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


def tile_rows(size: int, vectors: int, registers: int, *, may_overlap: bool = True) -> int:
    """How many rows a tile has: as many as fit, a few more or less where that leaves less rest.

    >>> [tile_rows(n, 4, 32) for n in (3, 64, 65, 127, 512, 1000)]
    [3, 4, 5, 6, 6, 6]
    >>> [tile_rows(n, 2, 16) for n in (3, 65, 127, 1000, 1024)]
    [3, 5, 6, 6, 6]
    >>> tile_rows(1000, 2, 16, may_overlap=False)
    5
    """
    most = min(size, most_rows(vectors, registers))
    best = min(range(most, most // 2, -1), key=lambda rows: _time(size, rows, vectors))
    overlapped = _time(-(-size // most) * most, most, vectors)
    pays = may_overlap and pays_overlap(size, most) and overlapped < _time(size, best, vectors)
    return most if pays else best


def most_rows(vectors: int, registers: int) -> int:
    """How many rows of so many vectors stay in registers, besides what is loaded.

    >>> [most_rows(n, 32) for n in (1, 2, 3, 4)], most_rows(2, 16)
    ([16, 8, 8, 6], 6)
    """
    if registers < 32:
        return (registers - 4) // vectors
    return (registers - 8) // vectors if vectors > 2 else registers // 2 // vectors


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
