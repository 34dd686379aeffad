"""The seed of the random tests: another one every day, or the one that PROPERTY_SEED gives.

Every test says at the end of the run how many programs it tried, and with which seed:

    PROPERTY_SEED=20261129 .venv/bin/pytest tests/property
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

SEED = int(os.environ.get("PROPERTY_SEED") or f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")
SCALE = float(os.environ.get("PROPERTY_SCALE") or 1)
"""How many times as many programs as a run of all tests tries."""


def try_many(
    programs: st.SearchStrategy[Any],
    check: Callable[[Any], None],
    count: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Let *check* look at *count* random programs; report how many there were."""
    num_tried = 0

    def one(program: Any) -> None:
        nonlocal num_tried
        num_tried += 1
        check(program)

    configured = settings(
        max_examples=max(1, int(count * SCALE)),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    try:
        seed(SEED)(configured(given(programs)(one)))()
    finally:
        record_property("programs", f"{num_tried} with PROPERTY_SEED={SEED}")


@pytest.fixture
def many(
    record_property: Callable[[str, object], None],
) -> Callable[[st.SearchStrategy[Any], Callable[[Any], None], int], None]:
    """try_many, which reports through the test that asks for it."""

    def run(programs: st.SearchStrategy[Any], check: Callable[[Any], None], count: int) -> None:
        try_many(programs, check, count, record_property)

    return run
