"""Copies of an output axis, a few at a time: what is left over overlaps, or gets copies of its own.

    rows over 1024, 6 at a time     ->   overlap(6), upcast: 171 parts; 2 rows are computed twice
    rows over 20, 6 at a time       ->   upcast(6), upcast(2): 3 parts and a rest

A rest is a second body, which takes as long to compile as the first. Where little is done twice
without it (overlap.py), there is none.
"""

from __future__ import annotations

from pellucid.core.errors import ActionError
from pellucid.opt.actions.overlap import pays_overlap
from pellucid.opt.plans.plan import Pieces, Plan


def upcast(plan: Plan, number: int, amount: int, reason: str, *, may_overlap: bool) -> Pieces:
    """Make copies of a loop, so many at a time; the rest, if there is one, stays a loop."""
    if may_overlap and pays_overlap(plan.size(number), amount):
        try:
            pieces = plan.do("overlap", number, amount, "a rest would be compiled a second time")
        except ActionError:  # the nest reads what it stores
            return plan.do("upcast", number, amount, reason)
        plan.do("upcast", pieces.inner, 0, reason)
        return pieces
    return plan.do("upcast", number, amount, reason)
