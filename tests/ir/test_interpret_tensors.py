"""The interpreter on whole tensors: movement, reductions, gathers, writes, long graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ExecutionError, IndexOutOfRangeError, InterpretError
from pellucid.ir.arg import CheckArg, ReduceArg
from pellucid.ir.interpret import evaluate, evaluate_all
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp, new_buffer
from tests.counting import lines_in

Array = npt.NDArray[Any]


def tensor(values: Any, dtype: Any = dtypes.int32) -> tuple[UOp, dict[UOp, Array]]:
    """A tensor of a shape over a fresh buffer."""
    array = np.array(values, dtype.name)
    buffer = new_buffer(array.size, dtype, "CPU")
    return buffer.reshape(array.shape), {buffer: array.reshape(-1)}


def summed(node: UOp, *axes: int, op: Op = Ops.ADD) -> UOp:
    return UOp.make(Ops.REDUCE, node, arg=ReduceArg(op, axes))


def test_movement_is_numpys() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    x, storage = tensor(array)
    cases: list[tuple[UOp, Array]] = [
        (x.reshape((4, 6)), array.reshape(4, 6)),
        (x.permute((2, 0, 1)), array.transpose(2, 0, 1)),
        (x.shrink(((0, 2), (1, 3), (2, 2))), array[:, 1:3, 2:2]),
        (x.flip((0, 2)), array[::-1, :, ::-1]),
        (x.reshape((2, 1, 3, 4)).expand((5, 2, 7, 3, 4)), np.tile(array[:, None], (5, 1, 7, 1, 1))),
        (
            x.pad(((1, 0), (0, 0), (2, 1)), -3),
            np.pad(array, ((1, 0), (0, 0), (2, 1)), constant_values=-3),
        ),
    ]
    for node, expected in cases:
        assert evaluate(node, storage).tolist() == expected.tolist()
        assert node.shape == expected.shape


def test_padding_cases_1_to_4() -> None:
    x, storage = tensor([7, 9, 4])
    padded = evaluate(x.pad(((1, 2),), -3), storage)
    assert padded.tolist() == [-3, 7, 9, 4, -3, -3]
    x, storage = tensor([4, 5])
    assert evaluate(summed(x.pad(((4, 0),)).shrink(((1, 3),)), 0), storage).item() == 0
    x, storage = tensor(np.arange(1, 33).reshape(2, 4, 4))
    rows = summed(x.pad(((0, 0), (0, 2), (0, 0))).reshape((2, 4, 6)), 2)
    assert evaluate(rows, storage).tolist() == [[21, 57, 58, 0], [117, 153, 122, 0]]
    x, storage = tensor(np.arange(1, 6))
    columns = summed(x.pad(((2, 3),)).reshape((2, 5)).flip((1,)), 0)
    assert evaluate(columns, storage).tolist() == [3, 2, 1, 5, 4]


def test_iota_counts_and_wraps() -> None:
    node = UOp(Ops.IOTA, dtypes.uint8, (), 300)
    assert evaluate(node).tolist() == [k % 256 for k in range(300)]


def test_gather_reads_rows_and_zero_outside() -> None:
    x, storage = tensor(np.arange(6).reshape(3, 2))
    index, more = tensor([2, 0, 3, -1])
    rows = UOp.make(Ops.GATHER, x, index)
    assert evaluate(rows, storage | more).tolist() == [[4, 5], [0, 1], [0, 0], [0, 0]]
    both = UOp.make(Ops.GATHER, x, index, index)
    assert evaluate(both, storage | more).tolist() == [0, 0, 0, 0]
    empty, nothing = tensor(np.zeros((0, 2), np.int32))
    none = UOp.make(Ops.GATHER, empty, index)
    assert evaluate(none, nothing | more).tolist() == [[0, 0]] * 4


def test_scatter_lets_the_last_win_or_combines() -> None:
    base, storage = tensor([0, 0, 0, 100])
    value, more = tensor([1, 2, 3, 4, 5])
    index, last = tensor([1, 1, 0, 9, 3])
    storage |= more | last
    expected: dict[Op | None, list[int]] = {
        None: [3, 2, 0, 5],
        Ops.ADD: [3, 3, 0, 105],
        Ops.MAX: [3, 2, 0, 100],
        Ops.MUL: [0, 0, 0, 500],
    }
    for op, result in expected.items():
        node = UOp.make(Ops.SCATTER, base, value, index, arg=op)
        assert evaluate(node, storage).tolist() == result
    assert evaluate(base, storage).tolist() == [0, 0, 0, 100]


def test_write_replaces_what_its_window_shows() -> None:
    base, storage = tensor(np.zeros((3, 4), np.int32))
    window = base.permute((1, 0)).shrink(((1, 3), (0, 2))).flip((0,))
    value, more = tensor([[1, 2], [3, 4]])
    node = UOp.make(Ops.WRITE, base, window, value)
    expected = np.zeros((3, 4), np.int32)
    expected.T[1:3, 0:2][::-1] = [[1, 2], [3, 4]]
    assert evaluate(node, storage | more).tolist() == expected.tolist()
    again = UOp.make(Ops.WRITE, node, node.shrink(((0, 1), (0, 4))), node.shrink(((1, 2), (0, 4))))
    expected[0] = expected[1]
    assert evaluate(again, storage | more).tolist() == expected.tolist()


def test_check_raises_when_its_flag_is_set() -> None:
    x, storage = tensor([1])
    for flag, fails in ((-1, False), (4, True)):
        arg = CheckArg("gather", 0, 3)
        node = UOp.make(Ops.CHECK, x, UOp.const(dtypes.int64, flag), arg=arg)
        if fails:
            with pytest.raises(IndexOutOfRangeError, match="gather: an index is outside of axis 0"):
                evaluate(node, storage)
        else:
            assert evaluate(node, storage).tolist() == [1]


def test_bfloat16_goes_through_bit_patterns() -> None:
    buffer = new_buffer(2, dtypes.bfloat16, "CPU")
    raw = np.array([0x3F80, 0xC000], np.uint16)
    assert evaluate(buffer + buffer, {buffer: raw}).tolist() == [2.0, -4.0]
    assert evaluate(buffer.bitcast(dtypes.uint16), {buffer: raw}).tolist() == raw.tolist()


def test_precise_mode_never_rounds() -> None:
    x, storage = tensor([0.1, 0.2, 0.3], dtypes.float32)
    wide = storage[x.src[0] if x.src else x].astype(np.float64)
    node = summed((x.cast(dtypes.float16) * x.cast(dtypes.float16)).cast(dtypes.float32), 0)
    precise = evaluate(node, storage, precise=True)
    assert precise.dtype == np.float64
    assert precise.item() == pytest.approx(float((wide * wide).sum()), rel=1e-15)
    assert evaluate(node, storage).dtype == np.float32


def test_precise_mode_still_asks_for_bits() -> None:
    x, storage = tensor([1.1, -2.0], dtypes.float32)
    bits = x.bitcast(dtypes.uint32)
    assert evaluate(bits, storage, precise=True).tolist() == evaluate(bits, storage).tolist()
    back = evaluate(bits.bitcast(dtypes.float32), storage, precise=True)
    assert back.tolist() == [float(np.float32(1.1)), -2.0]


def test_ten_thousand_ops_and_shared_diamonds_are_quick() -> None:
    x, storage = tensor([0, 1], dtypes.float32)

    def lines(length: int, height: int) -> int:
        chain = diamond = x
        for _ in range(length):
            chain = chain + 1.0
        for _ in range(height):
            diamond = diamond * diamond

        def run() -> None:
            values = evaluate_all([chain, diamond], storage)
            assert [v.tolist() for v in values] == [[length, length + 1.0], [0.0, 1.0]]

        return lines_in(run)

    lines(10_000, 200)  # too deep for recursion
    assert lines(1_000, 40) < 2.2 * lines(500, 20)


def test_scalars_and_empty_shapes_are_ordinary() -> None:
    empty, storage = tensor(np.zeros((2, 0), np.int32))
    assert evaluate(summed(empty, 1), storage).tolist() == [0, 0]
    assert evaluate(summed(empty + 1, 0, 1, op=Ops.MUL), storage).item() == 1
    assert evaluate(UOp.const(dtypes.bool, True)).shape == ()


def test_missing_storage_and_foreign_ops_are_named() -> None:
    buffer = new_buffer(2, dtypes.int32, "CPU")
    with pytest.raises(ExecutionError, match="no storage was given for <BUFFER int32"):
        evaluate(buffer + 1)
    with pytest.raises(InterpretError, match="RANGE has no value in TENSOR form"):
        evaluate(UOp.range(3, 0))
