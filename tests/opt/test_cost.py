"""What lanes are worth, where values are compared."""

from __future__ import annotations

import dataclasses

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, size_of
from pellucid.opt.cost import Costs, price
from pellucid.opt.plans.heuristic import choose
from tests.codegen import kernels
from tests.codegen.lowering import TARGET

ONE_CORE = dataclasses.replace(TARGET, cores=1)
AVX2 = dataclasses.replace(ONE_CORE, features=frozenset({"avx2", "fma"}))


def largest_of_pairs(rows: int, columns: int) -> UOp:
    """t[r, j, i] = whether x[r, 2 j + i] is the largest of its pair, or is no number."""
    r, j, i = kernels.loop(rows, 0), kernels.loop(columns, 1), kernels.loop(2, 3)
    k = kernels.axis(2, 2)
    x = kernels.param(1, rows * columns * 2)
    place = (r * columns + j) * 2
    largest = kernels.reduce(x.index(place + k), k, op=Ops.MAX)
    own = x.index(place + i)
    is_tie = largest.alu(Ops.CMPEQ, own).alu(Ops.OR, own.alu(Ops.CMPNE, own))
    ties = kernels.param(0, rows * columns * 2, dtypes.bool).index(place + i)
    return kernels.kernel(ties.store(is_tie).end(i).end(r, j))


def test_comparing_floats_costs_as_much_as_adding_them() -> None:
    x = kernels.param(0, 4).index(kernels.const(0))
    assert price(x.alu(Ops.CMPEQ, x)) == price(x + x)
    condition = x.alu(Ops.CMPEQ, x)
    assert price(condition.alu(Ops.OR, condition)) < price(x + x)


@pytest.mark.parametrize("target", [ONE_CORE, AVX2])
def test_the_ties_of_windows_are_found_in_lanes(target: Target) -> None:
    sink = largest_of_pairs(64, 16)
    columns = axes_of(sink)[1]
    assert size_of(columns) == 16
    assert Costs(sink, target).gain(columns) > 0
    kinds = [axis.arg.kind.value for axis in axes_of(choose(sink, target).sink)]
    assert kinds.count("lanes") == 1
