"""The laws of hidden scores are proved; each condition is needed."""

from __future__ import annotations

import math

import pytest

from pellucid.core.dtype import dtypes
from pellucid.ir import smt
from pellucid.ir.equation import Equation, Float, Known
from pellucid.ir.law import Law, law
from pellucid.ir.laws import masked


@pytest.mark.parametrize("one", masked.LAWS, ids=lambda one: one.name)
def test_laws_are_proved(one: Law) -> None:
    assert smt.check(one).level == smt.PROVED


@law
def below_nothing_always(m: Float, low: Known) -> Equation:
    """False where m is minus infinity, too."""
    return m * -1.0 + low, low, (low < 0.0) & (low + low >= low)


@law
def share_of_nothing_always(x: Float, zero: Known) -> Equation:
    """False for 0 / 0, and for a negative x."""
    return zero / x, zero, (zero <= 0.0) & (zero >= 0.0)


@pytest.mark.parametrize("one", [below_nothing_always, share_of_nothing_always])
def test_without_their_conditions_they_are_false(one: Law) -> None:
    assert smt.prove(one).level == smt.FALSE


def test_what_they_say_of_infinities() -> None:
    values = {"m": 3.0, "low": -math.inf}
    assert smt.evaluate(masked.below_nothing.left, values, dtypes.float32) == -math.inf
    values = {"m": -math.inf, "low": -math.inf}
    left = smt.evaluate(masked.below_nothing.left, values, dtypes.float32)
    assert math.isnan(float(left))
