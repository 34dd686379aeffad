"""Loads of lanes that lie apart, as many as there are lanes and side by side, become whole vectors.

VECTOR form -> VECTOR form: a part of coalesce_memory.py. Four copies of four lanes, before and
after:

    LOAD(x[SPLAT(i) + (0, 64, 128, 192)])        r0 = LOAD(x[i])            4 neighbours each
    LOAD(x[SPLAT(i + 1) + (0, 64, 128, 192)])    r1 = LOAD(x[i + 64])
    LOAD(x[SPLAT(i + 2) + (0, 64, 128, 192)])    r2 = LOAD(x[i + 128])
    LOAD(x[SPLAT(i + 3) + (0, 64, 128, 192)])    r3 = LOAD(x[i + 192])

and the four values are the columns of the rows r0 to r3: two rounds of exchanging lanes of two
vectors, of one instruction each, in place of 16 scalar loads. The same elements are read.

Source: J. O. Eklundh, "A Fast Computer Method for Matrix Transposing", 1972 (rounds of exchanges).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pellucid.ir.laws.terms import moved_by, terms_of
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp

Place = tuple[UOp, tuple[int, ...]]
"""A vector index as a scalar base and an offset for each lane."""
Terms = frozenset[tuple[UOp | None, int]]
"""What is added to a place, but for a literal: with how often."""
_QUAD = 4
"""Lanes of a vector that instructions exchange at once, in pairs of vectors."""


def transposed_loads(
    nodes: Iterable[UOp], place_of: Callable[[UOp], Place | None]
) -> dict[UOp, UOp]:
    """What loads of blocks become: columns of rows that are read as vectors."""
    groups: dict[tuple[UOp, Terms, tuple[int, ...]], dict[int, UOp]] = {}
    starts: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is not Ops.LOAD or node.dtype.lanes < _QUAD or not _is_plain(node):
            continue
        buffer, index = node.src[0].src
        found = place_of(index)
        if found is not None and _is_apart(found[1]):
            base, offsets = found
            starts[node] = moved_by(base, offsets[0])
            terms, literal = _apart(starts[node])
            steps = tuple(offset - offsets[0] for offset in offsets)
            groups.setdefault((buffer, terms, steps), {})[literal] = node
    made: dict[UOp, UOp] = {}
    for (buffer, _, steps), loads in groups.items():
        for block in _blocks(loads, len(steps)):
            places = [moved_by(starts[block[0]], step) for step in steps]
            rows = [UOp(Ops.INDEX, block[0].dtype, (buffer, place)).load() for place in places]
            made |= zip(block, transposed(rows), strict=True)
    return made


def _is_plain(load: UOp) -> bool:
    return len(load.src) == 1 and len(load.src[0].src) == 2 and not load.dtype.is_bool


def _is_apart(offsets: Sequence[int]) -> bool:
    """True where lanes are evenly apart, by at least as much as a row is long."""
    step = offsets[1] - offsets[0]
    return step >= len(offsets) and all(b - a == step for a, b in itertools.pairwise(offsets))


def _apart(base: UOp) -> tuple[Terms, int]:
    """What is added to a place but for a literal, and the literal."""
    terms = terms_of(base)
    literal = terms.pop(None, 0)
    return frozenset(terms.items()), literal


def _blocks(loads: Mapping[int, UOp], count: int) -> Iterator[list[UOp]]:
    """Loads whose bases follow each other, *count* at a time."""
    free = min(loads)
    for first in sorted(loads):
        block = range(first, first + count)
        if first >= free and all(place in loads for place in block):
            free = first + count
            yield [loads[place] for place in block]


def transposed(rows: Sequence[UOp]) -> list[UOp]:
    """The columns of a square of vectors: quads of lanes by pairs, then quads as wholes.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.simplify import simplify
    >>> rows = [UOp.const(dtypes.int32.vec(4), tuple(range(n, n + 4))) for n in (0, 4, 8, 12)]
    >>> [simplify(column).arg for column in transposed(rows)]
    [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    """
    count = len(rows)
    quads = [_in_quads(rows[n : n + _QUAD]) for n in range(0, count, _QUAD)]
    across = [_exchanged([quad[lane] for quad in quads]) for lane in range(_QUAD)]
    return [across[n % _QUAD][n // _QUAD] for n in range(count)]


def _in_quads(rows: Sequence[UOp]) -> list[UOp]:
    """In each quad of lanes, the columns of four vectors."""
    a, b, c, d = rows
    low, high = (0, None, 1, None), (2, None, 3, None)
    pairs = [_mixed(x, y, lanes) for lanes in (low, high) for x, y in ((a, b), (c, d))]
    first, last = (0, 1, None, None), (2, 3, None, None)
    halves = ((pairs[0], pairs[1]), (pairs[2], pairs[3]))
    return [_mixed(x, y, lanes) for x, y in halves for lanes in (first, last)]


def _mixed(left: UOp, right: UOp, lanes: tuple[int | None, ...]) -> UOp:
    """In each quad, some lanes of *left*, and the same ones of *right* where None stands."""
    count = left.dtype.lanes
    chosen = [lane for lane in lanes if lane is not None]
    order = []
    for quad in range(0, count, _QUAD):
        of_left, of_right = iter(chosen), iter(chosen)
        order += [
            quad + (count + next(of_right) if lane is None else next(of_left)) for lane in lanes
        ]
    return _joined(left, right).lane(tuple(order))


def _exchanged(vectors: list[UOp]) -> list[UOp]:
    """The columns of a square whose elements are quads."""
    distance = 1
    while distance < len(vectors):
        for n in range(len(vectors)):
            if not n & distance:
                pair = vectors[n], vectors[n + distance]
                vectors[n : n + distance + 1 : distance] = _halves(*pair, distance)
        distance *= 2
    return vectors


def _halves(left: UOp, right: UOp, distance: int) -> tuple[UOp, UOp]:
    """Quads that change places between two vectors, and those that stay."""
    count = left.dtype.lanes
    quads = range(count // _QUAD)
    both = _joined(left, right)
    right_at = count // _QUAD
    first = [q if not q & distance else right_at + (q ^ distance) for q in quads]
    second = [q | distance if not q & distance else right_at + q for q in quads]
    return both.lane(_lanes_of(first)), both.lane(_lanes_of(second))


def _lanes_of(quads: Sequence[int]) -> tuple[int, ...]:
    return tuple(quad * _QUAD + lane for quad in quads for lane in range(_QUAD))


def _joined(left: UOp, right: UOp) -> UOp:
    return UOp(Ops.STACK, left.dtype.scalar.vec(2 * left.dtype.lanes), (left, right))
