"""Scores that a mask hides: what a softmax makes of -inf, from step to step.

    max(x, -inf)    ->  x                     the largest of a row is that of the rest
    -inf - m        ->  -inf    if m > -inf   m is the largest of its row
    0 / l           ->  0       if l >= 1     l is the sum of a row whose largest element is 1

Where a condition fails, the row has NaN for its largest element or its sum, and all that is made of
it is NaN with or without what is hidden. Conditions on floats follow from no bounds, so these laws
are in no rule set: opt/actions/masked.py applies them where the structure of a kernel shows the
conditions: that m is the maximum, and l the sum, of the row itself. That a literal is minus
infinity is spelled as: it is negative, and twice of it is not less (some small floats have none).
"""

from __future__ import annotations

from pellucid.ir.equation import Equation, Float, Known
from pellucid.ir.law import law


@law
def maximum_of_nothing(x: Float, low: Known) -> Equation:
    """Minus infinity is never the larger one."""
    return x.maximum(low), x, (low < 0.0) & (low + low >= low)


@law
def below_nothing(m: Float, low: Known) -> Equation:
    """Minus infinity is as far below everything that is more."""
    return m * -1.0 + low, low, (m > low) & ((low < 0.0) & (low + low >= low))


@law
def share_of_nothing(x: Float, zero: Known) -> Equation:
    """Nothing, shared out among one or more, is nothing."""
    return zero / x, zero, (x >= 1.0) & ((zero <= 0.0) & (zero >= 0.0))


LAWS = (maximum_of_nothing, below_nothing, share_of_nothing)
