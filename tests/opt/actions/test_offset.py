"""Factors of 8 bits that move into the other type: values, what is left of the sums, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ActionError
from pellucid.ir.arg import Action
from pellucid.ir.form import LOOP
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.table import apply_action
from pellucid.opt.axes import reductions, size_of
from tests.codegen import kernels
from tests.codegen.lowering import TARGET
from tests.opt.actions.test_units import buffers_of, interpreted, product, squares

BYTES = (dtypes.int8, dtypes.uint8)


def of(left: DType, right: DType) -> UOp:
    """A small product."""
    return product(3, 5, 4, left, right, dtypes.int32)


@pytest.mark.parametrize("slots", [(1,), (2,), (1, 2), (1, 1)])
@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
def test_values_stay_the_same(left: DType, right: DType, slots: tuple[int, ...]) -> None:
    sink = of(left, right)
    after = sink
    for slot in slots:
        after = apply_action(after, Action("offset", 2, slot), TARGET)
        verify(after, LOOP)
    for low in (True, False):
        arrays = buffers_of(sink)
        assert np.array_equal(interpreted(after, arrays), interpreted(sink, arrays))
        for array, dtype in zip(arrays[1:], (left, right), strict=True):
            array[:] = dtype.min if low else dtype.max
        assert np.array_equal(interpreted(after, arrays), interpreted(sink, arrays))


def test_a_sum_of_the_other_factor_is_added() -> None:
    after = apply_action(of(dtypes.int8, dtypes.int8), Action("offset", 2, 1), TARGET)
    products, alone = sorted(reductions(after), key=lambda n: n.src[0].op is not Ops.MUL)
    left, right = (side.src[0].dtype for side in products.src[0].src)
    assert (left, right) == (dtypes.uint8, dtypes.int8)
    assert [size_of(r) for r in alone.ranges] == [4], "a number for each column"
    assert alone.src[0].src[0].op is Ops.INDEX


REFUSALS = [
    (of(dtypes.int8, dtypes.int16), 2, 2, "a factor of int16 has no other type of 8 bits"),
    (of(dtypes.int8, dtypes.int8), 2, 0, "0 factors read parameter 0"),
    (of(dtypes.int8, dtypes.int8), 0, 1, "it is not all that one reduction is over"),
    (squares(4, 8), 1, 1, "2 factors read parameter 1"),
    (kernels.matmul(), 2, 1, "what is summed is no product of two reads of integers"),
]


@pytest.mark.parametrize(("sink", "axis", "slot", "reason"), REFUSALS)
def test_refusals(sink: UOp, axis: int, slot: int, reason: str) -> None:
    with pytest.raises(ActionError, match=reason):
        apply_action(sink, Action("offset", axis, slot), TARGET)
