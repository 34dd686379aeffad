"""Which inputs an output reads is the same before and after lowering."""

from __future__ import annotations

import pytest

from pellucid.codegen.linearize import linearize
from pellucid.core.target import Target
from pellucid.ir.interpret import value_mapping
from tests.codegen.kernels import KERNELS, buffers_for
from tests.codegen.lowering import SMALL, TARGET, lowered


@pytest.mark.parametrize("target", [TARGET, SMALL], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", KERNELS)
def test_inputs_of_every_output(name: str, target: Target) -> None:
    sink = KERNELS[name]()
    buffers = buffers_for(sink)
    after = lowered(sink, target)
    assert value_mapping(linearize(after), buffers) == value_mapping(sink, buffers)
