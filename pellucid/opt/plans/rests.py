"""Columns of a product that fill no vector: each is summed in lanes along the sum.

    c[i, j] = sum over k of a[i, k] * b[k, j]                                65 columns, 8 lanes

    columns 0 to 63    vectors of columns, in tiles (tiles.py)
    column 64          copy b[:, 64] to local memory, side by side
                       for 2 rows of a: for 8 of k: 2 vectors of sums += 2 of a * 1 of the copy

A vector of which one lane is used takes as long as a whole one: of 65 columns, that is a ninth of
the time. Lanes along the sum are all used, and then added to each other, which takes about as long
as `ADDING_UP` more products. Measured on AVX2, with one column left: 65 x 65 x 65 took 0.84 of the
time with a masked vector, 127 x 131 x 129 0.96, 64 x 100 x 65 0.93, and 33 x 1000 x 17 0.5.
"""

from __future__ import annotations

from typing import Final

from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.opt.axes import all_ends, reductions, stride_of
from pellucid.opt.plans.copies import upcast
from pellucid.opt.plans.plan import Plan
from pellucid.opt.plans.products import Product
from pellucid.opt.plans.runs import longest_run, nest

ADDING_UP: Final = 10
"""Adding the lanes of a vector takes about as long as so many products of two vectors."""
LONG_SUM: Final = 256
"""From so many terms on, more than two chains of additions are worth their code."""


def columns_apart(product: Product, target: Target, lanes: int) -> int:
    """How many columns are better summed one by one; 0 where masks are, or no column is left."""
    size, count = product.size(product.column), product.count
    rest = size % lanes
    if not 0 < rest < size or product.more or len(product.sums) > 1 or count < 2 * lanes:
        return 0
    if not product.is_contiguous or product.is_of_itself or not _is_read_along(product):
        return 0
    masked = count / 2  # for each row: two products in a cycle
    return rest if rest * (count / lanes + ADDING_UP) < 0.8 * masked else 0


def _is_read_along(product: Product) -> bool:
    """True where the other factor is contiguous along the sum."""
    sides = [side for side in product.node.src[0].src if product.column not in side.ranges]
    return len(sides) == 1 and all(
        side.op is Ops.INDEX and stride_of(side.src[1], product.sums[0]) == 1 for side in sides
    )


def take_apart(plan: Plan, product: Product, count: int) -> tuple[int, list[int]]:
    """Give the last columns a nest of their own: the loop over the others, and its loops."""
    column = product.column.arg.id
    reason = "columns that fill no vector are summed one by one"
    pieces = plan.do("split", column, plan.size(column) - count, reason)
    nests = [[r.arg.id for r in end.src[1:]] for end in all_ends(plan.sink)]
    return pieces.inner, next(loops for loops in nests if pieces.inner not in loops)


def plan_apart(plan: Plan, product: Product, loops: list[int], lanes: int) -> None:
    """Plan the nest of the last columns, whose innermost loop is over rows."""
    row = loops[-1]
    slot = product.wide.src[0].arg.slot
    plan.do("pack", row, slot, "a column that all rows read lies side by side")
    node = next(n for n in reductions(plan.sink) if row in [r.arg.id for r in n.ranges])
    pieces = plan.do("lanes", node.src[1].arg.id, lanes, "the other factor is contiguous along it")
    if pieces.outer is not None:
        nest(plan, [pieces.outer], longest_run(product.count))
    chains = 4 if product.count >= LONG_SUM else 2
    if plan.size(row) > chains:
        upcast(plan, row, chains, "several chains of additions hide latency", may_overlap=True)
