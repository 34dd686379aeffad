"""The straight way through a replay: taken where it may be, and never seen."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pellucid import Context, Device, Tensor, dtypes, jit, no_grad
from pellucid.engine.storage import live_storages
from pellucid.frontend.jit import Jit
from pellucid.ir.uop import num_live_nodes
from tests.together import in_threads


def floats(*values: float, requires_grad: bool | None = None) -> Tensor:
    return Tensor(list(values), requires_grad=requires_grad).realize()


def warm(function: Callable[..., Any], *args: Any) -> Any:
    """Call until it is replayed; give the last result."""
    for _ in range(3):
        result = function(*args)
    return result


def goes_straight(step: Jit[..., Any], *args: Any) -> bool:
    way = step._straight
    return way is not None and way(args) is not None


def test_it_is_taken_for_tensors_in_memory() -> None:
    step = jit(lambda x, y: x * 3 - y)
    x, y = floats(1.0, 2.0), floats(5.0, 7.0)
    assert warm(step, x, y).tolist() == [-2.0, -1.0]
    assert goes_straight(step, x, y)
    assert goes_straight(step, y, x), "other tensors of the same kind"
    assert step(y, x).tolist() == [14.0, 19.0]
    result = step(x, y)
    for _ in range(4):
        result = step(result, y)
    assert goes_straight(step, result, y), "a result goes in again"


@pytest.mark.parametrize(
    "other",
    [
        lambda x: floats(1.0, 2.0, 3.0),
        lambda x: x * 2.0,
        lambda x: x[:2],
        lambda x: floats(1.0, 2.0, requires_grad=True),
        lambda x: Tensor([1, 2]).realize(),
        lambda x: 2.0,
        lambda x: np.ones(2),
    ],
    ids=["shape", "lazy", "window", "gradient", "dtype", "number", "array"],
)
def test_it_is_left_for_arguments_of_another_kind(other: Callable[[Tensor], Any]) -> None:
    step = jit(lambda x, y: x * 3 + y)
    x, y = floats(1.0, 2.0), floats(5.0, 7.0)
    warm(step, x, y)
    unlike = other(Tensor([1.0, 2.0, 3.0]).realize())
    assert not goes_straight(step, unlike, y)
    plain = step.function
    if isinstance(unlike, Tensor) and unlike.shape == (3,):
        y = floats(1.0, 1.0, 1.0)
    for _ in range(3):
        assert step(unlike, y).tolist() == plain(unlike, y).tolist()


def test_the_same_tensor_twice_is_another_kind_of_call() -> None:
    step = jit(lambda x, y: x * 10 if x is y else x + y)
    x, y = floats(1.0), floats(2.0)
    assert warm(step, x, y).tolist() == [3.0]
    assert not goes_straight(step, x, x)
    assert warm(step, x, x).tolist() == [10.0]
    assert step(x, y).tolist() == [3.0]


def test_other_arguments_have_to_be_the_same_objects() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.weight = floats(factor)

        @jit
        def run(self, x: Tensor) -> Tensor:
            return x * self.weight

    two, three = Model(2.0), Model(3.0)
    x = floats(5.0)
    for _ in range(4):
        assert two.run(x).tolist() == [10.0]
        assert three.run(x).tolist() == [15.0]
    assert goes_straight(Model.run, three, x)
    assert not goes_straight(Model.run, two, x)


def test_a_list_may_change_though_it_is_the_same() -> None:
    step = jit(lambda x, numbers: x * numbers[0])
    x, numbers = floats(5.0), [2.0]
    assert warm(step, x, numbers).tolist() == [10.0]
    numbers[0] = 3.0
    assert step(x, numbers).tolist() == [15.0]


def test_options_and_modes_are_looked_at() -> None:
    step = jit(lambda x: x * 3)
    x = floats(1.0)
    warm(step, x)
    assert goes_straight(step, x)
    with Context(optimize=False):
        assert not goes_straight(step, x)
    with no_grad():
        assert not goes_straight(step, x)
    assert goes_straight(step, x)
    step.reset()
    assert step._straight is None


def test_a_tensor_of_the_function_that_moved_is_found() -> None:
    weight = floats(2.0)
    step = jit(lambda x: x * weight)
    x = floats(5.0)
    assert warm(step, x).tolist() == [10.0]
    assert goes_straight(step, x)
    weight.assign(floats(4.0))
    assert not goes_straight(step, x)
    assert [step(x).tolist() for _ in range(3)] == [[20.0]] * 3
    assert goes_straight(step, x)


def test_what_does_more_than_make_one_tensor_goes_the_long_way() -> None:
    state, leaf = floats(1.0), floats(1.0, requires_grad=True)

    def write(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 2

    steps: list[Callable[[Tensor], Any]] = [
        write,
        lambda x: x + Tensor.rand(1),
        lambda x: (x * 2, x * 3),
        lambda x: (leaf * x).sum().backward(),
        lambda x: x.assign(x + 1),
        lambda x: state,
    ]
    for function in steps:
        step = jit(function)
        warm(step, floats(1.0))
        assert step._straight is None


def test_results_are_values_like_all_others() -> None:
    step = jit(lambda x: x + 1)
    x = floats(1.0, 2.0)
    warm(step, x)
    first, second, third = (step(x) for _ in range(3))
    assert first.is_realized
    assert first.shape == (2,)
    assert (first.dtype, first.device) == (dtypes.float32, "CPU")
    assert first.uop is first.uop
    doubled = second * 2
    second += 10
    assert (doubled + first).tolist() == [6.0, 9.0]
    assert (second.tolist(), third.tolist()) == ([12.0, 13.0], [2.0, 3.0])
    assert first[1].item() == 3.0
    assert not first.requires_grad
    assert first.data_ptr() != third.data_ptr()


def test_results_outlive_each_other_in_any_order() -> None:
    step = jit(lambda x: x + 1)
    x = floats(0.0)
    warm(step, x)
    kept = []
    for turn in range(20):
        x = step(x)
        kept.append(x)
        if turn % 3 == 2:
            del kept[turn % len(kept)]
    assert x.item() == 20.0
    assert len({tensor.item() for tensor in kept}) == len(kept)


def test_a_result_captured_by_another_function_is_a_tensor_from_outside() -> None:
    step = jit(lambda x: x + 1)
    x = floats(1.0)
    warm(step, x)
    outside = step(x)
    times = jit(lambda x: x * outside)
    assert [times(x).tolist() for _ in range(4)] == [[2.0]] * 4
    outside.assign(outside + 5)
    assert [times(x).tolist() for _ in range(4)] == [[7.0]] * 4
    assert times.num_captures == 1


def test_memory_goes_back_and_nodes_are_not_made() -> None:
    step = jit(lambda x: x + 1)
    x = Tensor(np.zeros(1000, np.float32)).realize()
    warm(step, x)
    gc.collect()
    memory = Device["CPU"].allocator
    before, nodes = memory.statistics(), num_live_nodes()
    kept = [step(x) for _ in range(10)]
    assert memory.statistics().in_use_bytes == before.in_use_bytes + 10 * 4096
    assert num_live_nodes() == nodes
    ref = weakref.ref(kept[0])
    kept.clear()
    assert ref() is None
    spare = 2 * 4096  # for the next calls
    assert memory.statistics().in_use_bytes == before.in_use_bytes + spare
    del step
    gc.collect()
    assert memory.statistics().in_use_bytes == before.in_use_bytes


def test_a_result_is_what_the_long_way_makes() -> None:
    step = jit(lambda x: x + 1)
    x = floats(1.0)
    long = warm(step, x)
    straight = step(x)

    def parts(thing: Any) -> dict[str, Any]:
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        return {name: getattr(thing, name) for name in names if name != "__weakref__"}

    for found in (lambda t: t, lambda t: t._storage, lambda t: t._storage.current):
        mine, theirs = parts(found(straight)), parts(found(long))
        for own in ("_storage", "current", "block"):
            assert (own in mine) == (own in theirs)
            mine.pop(own, None), theirs.pop(own, None)
        assert mine == theirs
    assert any(storage is straight._storage for storage in live_storages())


def test_results_that_somebody_holds_keep_their_memory() -> None:
    step = jit(lambda x: x + 1)
    x = Tensor([0.0]).realize()
    for _ in range(5):
        x = step(x)
    assert x.tolist() == [5.0]
    kept = [step(x * float(n)) for n in range(5)]
    kept = [step(t) for t in [t.realize() for t in kept]]
    shown = [step(t).numpy() for t in kept]
    del kept
    assert [int(a[0]) for a in shown] == [3, 8, 13, 18, 23]
    lazy = [step(t) * 2 for t in (x, x)]
    for _ in range(4):
        step(x)
    assert [t.tolist() for t in lazy] == [[12.0], [12.0]]


def test_the_long_way_in_one_thread_and_the_straight_way_in_another() -> None:
    step = jit(lambda x, y: x * 2 + y)
    y, leaf = (Tensor(np.ones(512, np.float32)).realize() for _ in range(2))
    warm(step, leaf, y)
    wrong: list[object] = []

    def work(number: int) -> None:
        x = Tensor(np.full(512, number, np.float32)).realize()
        for n in range(200):
            given = x * 1.0 if number % 2 and n % 2 else x  # lazy: the long way
            found = step(given, y).numpy()
            if not (found == 2 * number + 1).all():
                wrong.append(found)

    in_threads(work, [(n,) for n in range(4)])
    assert not wrong


def test_an_argument_that_is_forgotten_is_let_go_of() -> None:
    step = jit(lambda x: x + 1)
    x = floats(1.0)
    warm(step, x)
    assert goes_straight(step, x)
    block = weakref.ref(x._storage.current.block)
    del x
    assert block() is None


def test_threads_take_it_at_the_same_time() -> None:
    step = jit(lambda x, y: x * 2 + y)
    y = Tensor(np.ones(512, np.float32)).realize()
    warm(step, Tensor(np.ones(512, np.float32)).realize(), y)
    wrong: list[object] = []

    def work(number: int) -> None:
        x = Tensor(np.full(512, number, np.float32)).realize()
        for _ in range(200):
            found = step(x, y).numpy()
            if not (found == 2 * number + 1).all():
                wrong.append(found)

    in_threads(work, [(n,) for n in range(4)])
    assert not wrong


def test_inside_of_another_capture_the_function_is_called() -> None:
    inner = jit(lambda x: x * 2)
    x = floats(3.0)
    warm(inner, x)
    outer = jit(lambda x: inner(x) + 1)
    assert [outer(x).tolist() for _ in range(4)] == [[7.0]] * 4


def test_a_state_that_another_function_writes_in_place_is_read_as_it_is_now() -> None:
    weight, x = floats(1.0, 2.0), floats(10.0, 10.0)

    def train(x: Tensor) -> None:
        weight.assign(weight + x)

    learn, use = jit(train), jit(lambda x: x * weight)
    for turn in range(8):
        assert use(x).tolist() == [10.0 + 100 * turn, 20.0 + 100 * turn]
        kept = use(x)
        learn(x)
        assert kept.tolist() == [10.0 + 100 * turn, 20.0 + 100 * turn]
    assert goes_straight(use, x)


def test_an_error_on_the_way_leaves_nothing_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    step = jit(lambda x: x + 1)
    x = floats(1.0)
    way = warm(step, x) and step._straight
    assert way is not None

    def fail(nbytes: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(way.__globals__, "allocate", fail)
        with pytest.raises(KeyboardInterrupt):
            step(x)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(step(x).item()))
    thread.start()
    thread.join(20)
    assert done == [2.0]
