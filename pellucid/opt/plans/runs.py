"""How long sums may run before they are added to the next level's, and the nesting that follows.

    1024 products   ->   8 runs of 128

Adding m equal numbers one after the other ends within m / 8 epsilons (measured: the bias of the
last binade), and semantics.md allows 2 * log2(n) for a sum of n; so each level of a sum of products
adds at most 16 * (log2(n) - 1) terms to one accumulator, and at most MAX_RUN.
"""

from __future__ import annotations

import math

from pellucid.opt.plans.plan import Plan

MAX_RUN = 128
"""The most products that one accumulator adds before its sum is added to the next level's."""


def longest_run(count: int) -> int:
    """How many terms one accumulator may add, of a sum of *count*, so that the error stays small.

    >>> [longest_run(n) for n in (2, 16, 65, 131, 512, 100_000)]
    [16, 48, 80, 96, 128, 128]
    """
    return max(16, min(MAX_RUN, int(16 * (math.log2(max(count, 2)) - 1))))


def run_length(size: int, most: int) -> int:
    """How many terms of a sum to add at a time: a divisor if there is one, else even blocks.

    >>> [run_length(n, 128) for n in (1024, 768, 131, 2000)], run_length(3, 2)
    ([128, 128, 66, 125], 2)
    """
    for length in range(most, max(1, most // 2 - 1), -1):
        if size % length == 0:
            return length
    return -(-size // -(-size // most))


def nest(plan: Plan, loops: list[int], most: int) -> None:
    """Nest the loops of a sum so that no accumulator adds many terms."""
    reason = f"no accumulator adds more than about {most} terms, to bound the rounding error"
    while len(loops) > 1 and math.prod(plan.most(n) for n in loops) > most:
        inside = math.prod(plan.most(n) for n in loops[1:])
        outer: int | None = loops[0]
        if 2 * inside <= most < plan.size(loops[0]) * inside:
            length = run_length(plan.size(loops[0]), most // inside)
            outer = plan.do("cascade", loops[0], length, reason).outer
            loops = []
        else:
            plan.do("cascade", loops[0], 0, reason)
            loops = loops[1:]
        if outer is not None:
            _shorten(plan, outer, most, reason)
    if len(loops) == 1:
        _shorten(plan, loops[0], most, reason)


def _shorten(plan: Plan, number: int, most: int, reason: str) -> None:
    """Nest one loop until each level is short."""
    while (size := plan.size(number)) > most:
        outer = plan.do("cascade", number, run_length(size, most), reason).outer
        if outer is None:
            return
        number = outer
