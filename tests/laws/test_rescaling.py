"""The laws of a running maximum are proved; how far floats are from them is what the docs say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pellucid.core.dtype import dtypes
from pellucid.ir import smt
from pellucid.ir.equation import Equation, Float, Known
from pellucid.ir.law import Law, law
from pellucid.ir.laws import rescaling


@pytest.mark.parametrize("one", rescaling.LAWS, ids=lambda one: one.name)
def test_laws_are_proved(one: Law) -> None:
    assert smt.check(one).level == smt.PROVED


@law
def nothing_scaled_always(f: Float, zero: Known) -> Equation:
    """False for infinities and NaN."""
    return f * zero, zero, (zero <= 0.0) & (zero >= 0.0)


@law
def from_itself_always(m: Float) -> Equation:
    """False for infinities and NaN."""
    return m * -1.0 + m, 0.0


@law
def away_in_steps_of_floats(s: Float, m: Float, n: Float) -> Equation:
    """False: floats round."""
    return (s + m * -1.0) + (m + n * -1.0), s + n * -1.0


@pytest.mark.parametrize(
    "one", [nothing_scaled_always, from_itself_always, away_in_steps_of_floats]
)
def test_without_their_conditions_they_are_false(one: Law) -> None:
    assert smt.check(one).level == smt.FALSE


def test_an_infinite_maximum_is_no_number_away_from_itself() -> None:
    for m in (math.inf, -math.inf, math.nan):
        found = smt.evaluate(rescaling.from_itself.left, {"m": m}, dtypes.float32)
        assert math.isnan(float(found))


def test_one_scaling_costs_a_term_of_a_sum_at_most_one_and_a_half_epsilons() -> None:
    """A function within a unit in the last place, and a product: of exact differences."""
    numbers = np.random.default_rng(0)
    term, away = numbers.random(100_000, np.float32), -20 * numbers.random(100_000, np.float32)
    factor = np.exp(away.astype(np.float64))
    near = factor.astype(np.float32)
    up = np.where(near < factor, np.nextafter(near, np.float32(2)), near)
    down = np.where(near > factor, np.nextafter(near, np.float32(0)), near)
    for rounded in (up, down):
        scaled = (term * rounded).astype(np.float64)
        exact = term.astype(np.float64) * factor
        assert np.max(np.abs(scaled / exact - 1)) <= 1.5 * np.finfo(np.float32).eps
