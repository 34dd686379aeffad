"""Schedules that are found again: by structure alone, never for something else."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import Context, Tensor, jit
from pellucid.core.dtype import dtypes
from pellucid.core.errors import IndexOutOfRangeError
from pellucid.engine import known
from pellucid.engine.structure import structure_of
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, new_buffer
from tests.together import in_threads


def buffers(count: int, size: int = 4) -> list[UOp]:
    return [new_buffer(size, dtypes.float32, "CPU") for _ in range(count)]


def test_structures_differ_where_graphs_do() -> None:
    a, b, c = buffers(3)
    wide = new_buffer(5, dtypes.float32, "CPU")
    whole = new_buffer(4, dtypes.int32, "CPU")
    roots = [
        [a + a],
        [a + b],
        [a + b, a],
        [a, a + b],
        [a * b],
        [(a + b) + a],
        [(a + b) + b],
        [(a + b) + c],
        [a * 0.0],
        [a * -0.0],
        [a * float("nan")],
        [a.reshape((2, 2))],
        [a.reshape((4, 1))],
        [a.cast(dtypes.float64)],
        [a.cast(dtypes.int32)],
        [a.bitcast(dtypes.int32)],
        [wide * 2.0],
        [whole + whole],
        [a.flip((0,))],
        [UOp.make(Ops.CONTIGUOUS, a)],
    ]
    keys = [structure_of(root).key for root in roots]
    assert len(set(keys)) == len(keys)


def test_structures_agree_where_buffers_alone_differ() -> None:
    a, b, c, d = buffers(4)
    first, second = structure_of([(a + b) * a]), structure_of([(c + d) * c])
    assert first.key == second.key
    assert (set(first.buffers), set(second.buffers)) == ({a, b}, {c, d})
    leaf = UOp.make(Ops.LEAF, a + b, arg=7)
    other = UOp.make(Ops.LEAF, c + d, arg=8)
    assert structure_of([leaf * 2.0]).key == structure_of([other * 2.0]).key


def test_long_chains_do_not_recurse() -> None:
    node = buffers(1)[0]
    for _ in range(20_000):
        node = node + 1.0
    assert len(structure_of([node]).buffers) == 1


def test_the_second_time_nothing_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(values: list[float]) -> list[float]:
        x = Tensor(values).realize()
        result: list[float] = ((x * 3.125 + 1) / x.sum()).tolist()
        return result

    first = work([1.0, 2.0, 4.0])
    monkeypatch.setattr("pellucid.engine.realize.schedule_storages", None)
    second = work([2.0, 4.0, 8.0])
    np.testing.assert_allclose(first, (np.array([1, 2, 4]) * 3.125 + 1) / 7, rtol=1e-6)
    np.testing.assert_allclose(second, (np.array([2, 4, 8]) * 3.125 + 1) / 14, rtol=1e-6)


def test_results_are_separate_values() -> None:
    x = Tensor([1.0, 2.0]).realize()
    results = [(x * 2.5 - 0.125).realize() for _ in range(4)]
    results[0] += 100
    results[0].realize()
    assert [r.tolist() for r in results] == [[102.375, 104.875], *[[2.375, 4.875]] * 3]


def test_options_that_change_code_are_part_of_the_question() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    for optimize in (True, False, True):
        with Context(optimize=optimize):
            assert (x * 7.75 + 0.5).tolist() == [8.25, 16.0, 23.75]


def test_checks_are_looked_at_each_time() -> None:
    x = Tensor([10, 20, 30]).realize()

    def pick(*index: int) -> list[int]:
        result: list[int] = x[Tensor(list(index)).realize()].tolist()
        return result

    assert pick(2, 0) == [30, 10]
    assert pick(1, 1) == [20, 20]
    with pytest.raises(IndexOutOfRangeError):
        pick(0, 3)
    assert pick(-1, 0) == [30, 10]


def test_gradients_go_through_what_was_found_again() -> None:
    for factor in (1.0, 2.0, 3.0):
        x = Tensor([factor, factor + 1], requires_grad=True).realize()
        y = (x * x * 1.5).realize()
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [3 * factor, 3 * (factor + 1)]


def test_debug_output_and_observers_still_see_each_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = Tensor([1.0]).realize()
    for _ in range(2):
        (x * 17.5).realize()
    with Context(debug=1):
        (x * 17.5).realize()
    assert capsys.readouterr().err.count("\n") == 1


def test_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST_KNOWN", 3)
    known.forget()
    x = Tensor([1.0, 2.0]).realize()
    for n in range(6):
        assert (x * (n + 0.625)).tolist() == [n + 0.625, 2 * n + 1.25]
    assert len(known._known) <= 3
    known.forget()


def test_from_many_threads() -> None:
    errors: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for n in range(30):
                x = Tensor([start + n, 1]).realize()
                assert (x * 3 + 11).tolist() == [(start + n) * 3 + 11, 14]
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    in_threads(work, [(n * 1000,) for n in range(4)])
    assert not errors


def test_a_jitted_result_can_go_in_again_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return x * 2 + 1

    x = Tensor([1.0, 2.0]).realize()
    values = []
    for _ in range(5):
        x = step(x)
        values.append(x)
    monkeypatch.setattr("pellucid.engine.realize.schedule_storages", None)
    x = step(step(x))
    assert x.tolist() == [255.0, 383.0]
    assert [v.tolist()[0] for v in values] == [3.0, 7.0, 15.0, 31.0, 63.0]


def test_writes_in_place_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        x += 0.375
        x.realize()
    address = x.data_ptr()
    with monkeypatch.context() as patch:
        patch.setattr("pellucid.engine.realize.schedule_storages", None)
        x += 0.375
        x.realize()
    assert x.data_ptr() == address
    assert x.tolist() == [2.125, 3.125]


def test_a_write_that_others_must_not_see_is_another_question() -> None:
    x = Tensor([1.0, 2.0]).realize()
    for turn in range(4):
        lazy = x * 2.0 if turn % 2 else None  # reads the version before the write
        before = x.tolist()
        x += 0.625
        x.realize()
        assert x.tolist() == [value + 0.625 for value in before]
        if lazy is not None:
            assert lazy.tolist() == [value * 2 for value in before]


def test_a_write_waits_for_gradients_through_a_value_that_has_no_node() -> None:
    for turn in range(3):  # from the second turn on, `y` is found again and gets no node at once
        leaf = Tensor([1.0, 1.0], requires_grad=True).realize()
        w = Tensor([1.0 + turn, 2.0], requires_grad=False).realize()
        y = (leaf * w * 1.75).realize()
        w += 10
        w.realize()
        y.sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [1.75 * (1 + turn), 3.5]
        assert w.tolist() == [11.0 + turn, 12.0]


def test_two_storages_that_mean_one_value_share_its_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Tensor([1, 2]).realize()
    for turn in range(3):
        a, b = x * 5 + turn, x * 5 + turn
        a.realize(b)
        assert a.uop is b.uop
        b += 1
        b.realize()
        assert (a.tolist(), b.tolist()) == ([5 + turn, 10 + turn], [6 + turn, 11 + turn])
