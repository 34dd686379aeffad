"""Sums of exponentials in one pass: the algebra of a running maximum.

    (s - m) + (m - M)         ->  s - M              so exp(s - m) * exp(m - M) is exp(s - M)
    a * f + b * f             ->  (a + b) * f        a sum is brought to M by one product
    (a / l) * v + (b / l) * u ->  (a * v + b * u) / l        weights are shared out once, at the end
    0 * f                     ->  0    if 0 < f <= 1         nothing so far stays nothing
    M - M                     ->  0    if M is finite        else it is NaN, as all of its row is

The first three are laws of real numbers, and floats round otherwise. The error of that is one of a
sum: semantics.md leaves the order of a sum free and bounds its error by 2 log2(n) epsilons of the
sum of sizes; opt/actions/online.py counts how many of them it may spend, from what is promised of
exp (ir/accuracy.py). So they are in no rule
set, which would apply them to single numbers: only opt/actions/online.py uses them, on whole sums.
The same holds for the exchange of two sums that ir/weighing.py chooses for a gradient:

    sum over j of w[j] * (sum over d of g[d] * v[j, d])
        =  sum over d of g[d] * (sum over j of w[j] * v[j, d])

Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math

from pellucid.ir.equation import Equation, Float, Known, Real
from pellucid.ir.law import law


@law
def away_in_steps(s: Real, m: Real, n: Real) -> Equation:
    """How far a score is below a later maximum, by way of an earlier one."""
    return (s + m * -1.0) + (m + n * -1.0), s + n * -1.0


@law
def scale_sum(a: Real, b: Real, f: Real) -> Equation:
    """Terms scaled one by one are a sum scaled as a whole."""
    return a * f + b * f, (a + b) * f


@law
def share_later(a: Real, b: Real, v: Real, u: Real, total: Real) -> Equation:
    """What shares weigh is a share of what all weigh."""
    left = (a / total) * v + (b / total) * u
    return left, (a * v + b * u) / total, total > 0.0


@law
def exchange_sums(e: Real, f: Real, g: Real, h: Real, a: Real, b: Real) -> Equation:
    """A product of a row, a matrix and a column can begin at either end."""
    return e * (g * a + h * b) + f * (g * b + h * a), g * (e * a + f * b) + h * (e * b + f * a)


@law
def nothing_scaled(f: Float, zero: Known) -> Equation:
    """Sums of nothing stay nothing, whatever the first maximum is."""
    return f * zero, zero, (f > 0.0) & (f <= 1.0) & ((zero <= 0.0) & (zero >= 0.0))


@law
def from_itself(m: Float) -> Equation:
    """A finite maximum is nothing away from itself."""
    return m * -1.0 + m, 0.0, (m > -math.inf) & (m < math.inf)


LAWS = (away_in_steps, scale_sum, share_later, exchange_sums, nothing_scaled, from_itself)
