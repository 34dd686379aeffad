"""Squares that are loaded lane by lane are loaded by rows, and turned around."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pellucid.codegen.transpose import transposed
from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.simplify import simplify
from pellucid.ir.uop import UOp
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions


def turned_around(rows: int, columns: int) -> UOp:
    """y[j, i] = x[i, j]."""
    j, i = kernels.loop(columns, 0), kernels.loop(rows, 1)
    x = kernels.param(1, rows * columns).index(i * columns + j)
    y = kernels.param(0, rows * columns).index(j * rows + i)
    return kernels.kernel(y.store(x).end(j, i))


def loads_of(sink: UOp) -> list[int]:
    """How many lanes each LOAD has."""
    return [n.dtype.lanes for n in sink.toposort() if n.op is Ops.LOAD]


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_columns_of_a_square(lanes: int) -> None:
    numbers = np.arange(lanes * lanes).reshape(lanes, lanes)
    rows = [UOp.const(dtypes.int32.vec(lanes), tuple(row)) for row in numbers.tolist()]
    found = [simplify(column).arg for column in transposed(rows)]
    assert found == [tuple(column) for column in numbers.T.tolist()]


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_a_square_is_read_by_rows(lanes: int) -> None:
    sink = turned_around(32, 48)
    chosen = with_actions(sink, Action("lanes", 1, lanes), Action("upcast", 0, lanes))
    low = lowered(chosen)
    assert loads_of(low) == [lanes] * lanes
    buffers = kernels.buffers_for(sink)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(sink, wanted)
    run_kernel(low, got)
    np.testing.assert_array_equal(got[0], wanted[0])


@pytest.mark.parametrize(
    ("actions", "target"),
    [
        ((Action("lanes", 1, 8), Action("upcast", 0, 4)), TARGET),  # fewer copies than lanes
        ((Action("lanes", 1, 2), Action("upcast", 0, 2)), TARGET),  # two scalars do as well
        (
            (Action("lanes", 1, 4), Action("upcast", 0, 4)),
            dataclasses.replace(TARGET, has_groups=True),  # where long vectors may not exist
        ),
    ],
)
def test_other_loads_stay_as_they_are(actions: tuple[Action, ...], target: Target) -> None:
    assert set(loads_of(lowered(with_actions(turned_around(32, 48), *actions), target))) == {1}
