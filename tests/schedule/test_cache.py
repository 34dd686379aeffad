"""Schedules are found again by content; storage, checks and outputs are those of the asker."""

from __future__ import annotations

import pytest

from pellucid.core.dtype import DType, dtypes
from pellucid.core.options import Options
from pellucid.ir import origin
from pellucid.ir.arg import CheckArg
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.schedule import schedule, schedule_cache
from pellucid.schedule.cache import ScheduleCache, Template
from tests.schedule.graphs import buffer_of, check, gather, matmul, reduce, scatter, tensor, write
from tests.together import in_threads


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    schedule_cache.clear()


def graph(shape: Shape = (4, 3), dtype: DType = dtypes.float32, number: float = 1.0) -> UOp:
    x, y = tensor(shape, dtype), tensor(shape, dtype)
    return reduce(x * y + number, 1)


def hits() -> int:
    return schedule_cache.counts.hits


def test_same_graph_over_other_buffers_is_found() -> None:
    first = check([graph()])
    second = check([graph()])
    assert (schedule_cache.counts.misses, hits()) == (1, 1)
    assert first.linear is not second.linear
    assert first.linear.src[0].src[0] is second.linear.src[0].src[0]
    used = [{b for c in r.linear.src for b in c.src[1:]} for r in (first, second)]
    assert not used[0] & used[1]


def test_leaves_do_not_matter() -> None:
    x, y = tensor((4,)), tensor((4,))
    schedule([x + y])
    schedule([UOp.make(Ops.LEAF, tensor((4,)), arg=7) + UOp.make(Ops.DETACH, tensor((4,)))])
    assert hits() == 1


def test_what_differs_is_not_found() -> None:
    x, y = tensor((4, 3)), tensor((4, 3))
    for outputs in (
        [graph()],
        [graph((3, 4))],
        [graph(dtype=dtypes.float64)],
        [graph(number=2.0)],
        [reduce(x * x + 1.0, 1)],  # one buffer twice
        [reduce(x * y + 1.0, 1), x + y],
        [UOp.make(Ops.CONTIGUOUS, graph())],
        [graph(number=-0.0)],
        [graph(number=0.0)],
    ):
        check(outputs)
    assert hits() == 0


def test_pending_and_device_are_part_of_the_key() -> None:
    def assigned() -> tuple[UOp, UOp]:
        a = tensor((4,))
        return write(a, a, a + 1.0), buffer_of(a)

    after, _ = assigned()
    check([after])
    after, buffer = assigned()
    result = check([after], pending=frozenset([buffer]))
    assert buffer_of(result.stored[after]) is not buffer
    after, buffer = assigned()
    result = check([after])
    assert buffer_of(result.stored[after]) is buffer
    assert hits() == 1
    one = UOp.const(dtypes.int32, 1).expand((3,))
    schedule([one], options=Options(device="CPU"))
    result = schedule([one], options=Options(device="NULL"))
    assert buffer_of(result.stored[one]).arg.device == "NULL"


def test_checks_have_the_lines_of_the_asker() -> None:
    def checked(line: str) -> UOp:
        i = tensor((3,), dtypes.int64)
        arg = CheckArg("getitem", 0, 4, line)
        return UOp.make(Ops.CHECK, gather(tensor((4,)), i), reduce(i, 0), arg=arg)

    first = schedule([checked("a.py:1")])
    second = schedule([checked("a.py:2")])
    assert hits() == 1
    assert [arg.line for _, arg in (*first.checks, *second.checks)] == ["a.py:1", "a.py:2"]


def test_buffers_that_the_graph_does_not_need_keep_their_numbers() -> None:
    """A scatter of nothing goes away, with the buffers of its indices."""

    def outputs() -> list[UOp]:
        nothing = tensor((1, 2)).shrink(((0, 0), (0, 2)))
        rows = tensor((1,), dtypes.int32).shrink(((0, 0),))
        return [scatter(tensor((3, 2)), nothing, rows) * 2.0, tensor((5, 2)) + 1.0]

    check(outputs())
    check(outputs())
    assert hits() == 1


def test_lines_are_recorded_while_tracing_and_nothing_is_cached() -> None:
    with origin.recording_origins():
        y = graph()
        origin.record(y, "train.py:3 y = (x * y + 1).sum(1)")
        result = schedule([y])
    assert result.linear.src[0].arg.lines == ("train.py:3 y = (x * y + 1).sum(1)",)
    assert schedule_cache.counts.misses == 0


def test_the_least_recently_used_is_forgotten() -> None:
    cache = ScheduleCache(capacity=2)
    template = Template((), (), (), ())
    for name in "ab":
        cache.put((name,), template)
    cache.get(("a",))
    cache.put(("c",), template)
    assert [cache.get((name,)) is not None for name in "abc"] == [True, False, True]


def test_threads_may_schedule_at_once() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for size in range(1, 8):
                x = tensor((size, size))
                assert len(schedule([matmul(x, x) + float(size)]).linear.src) == 1
        except AssertionError as error:
            failures.append(error)

    in_threads(work, [()] * 4)
    assert not failures
