"""Names that the examples in docstrings may use without importing them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def names_of_examples(doctest_namespace: dict[str, Any], request: pytest.FixtureRequest) -> None:
    """Write examples as a user would, after `from pellucid import Tensor, dtypes`."""
    if isinstance(request.node, pytest.DoctestItem):
        from pellucid import Tensor, dtypes

        doctest_namespace.update(Tensor=Tensor, dtypes=dtypes)
