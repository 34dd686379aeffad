"""Random reads and writes agree with numpy: slices, windows, `assign`, `+=`, `realize`.

A program is a list of steps on numbered names. A name is a tensor of its own, a window on
another, or a value that was computed: numpy's views are the windows, and its copies the values.

    [("new", (5,), 3), ("window", 0, ((1, None, None),)), ("compute", 1, "double"),
     ("write", 0, ((0, 3, None),), ("number", 7)), ("realize", (2,)), ("read", 1)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from pellucid import Tensor
from pellucid.core.options import Context
from tests.property.programs import slices
from tests.property.regressions import STORAGE_PROGRAMS

Array = np.ndarray[Any, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Step = tuple[Any, ...]
Program = list[Step]
Many = Callable[[st.SearchStrategy[Any], Callable[[Any], None], int], None]

SHAPES = ((4,), (7,), (2, 3), (3, 3), (2, 2, 2), (9,))
COMPUTED: dict[str, Callable[[Any], Any]] = {
    "double": lambda x: x * 2 + 1,
    "negated": lambda x: -x,
    "total": lambda x: x.sum(),
    "same": lambda x: x * 1,
}


# ---- the two machines -------------------------------------------------------------------------


class Numpy:
    """Names are arrays: views are windows, everything computed is copied."""

    def __init__(self) -> None:
        self.names: list[Array | None] = []

    def step(self, step: Step) -> Array | None:
        kind, *rest = step
        names = self.names
        if kind == "new":
            names.append(fresh(*rest))
        elif kind == "window":
            names.append(names[rest[0]][(*slices(rest[1]), ...)])  # a view, also of one element
        elif kind == "reshape":
            names.append(names[rest[0]].reshape(rest[1]))
        elif kind == "transpose":
            names.append(names[rest[0]].T)
        elif kind == "compute":
            names.append(np.array(COMPUTED[rest[1]](names[rest[0]]), np.int64))
        elif kind == "sum_of":
            names.append(np.array(names[rest[0]] + names[rest[1]], np.int64))
        elif kind == "write":
            target = names[rest[0]]
            value = self.value(rest[2], target[slices(rest[1])])
            target[slices(rest[1])] = value
        elif kind == "assign":
            names[rest[0]][...] = self.value(rest[1], names[rest[0]])
        elif kind == "add":
            names[rest[0]] += self.value(rest[1], names[rest[0]])
        elif kind == "put":
            for place, value in zip(rest[1], rest[2], strict=True):
                names[rest[0]][place] = value  # the last one wins
        elif kind == "forget":
            names[rest[0]] = None
        elif kind == "read":
            return names[rest[0]].copy()
        return None

    def value(self, what: tuple[Any, ...], window: Array) -> Any:
        if what[0] == "number":
            return what[1]
        if what[0] == "data":
            return fresh(window.shape, what[1])
        source = self.names[what[1]]
        if what[0] == "name":
            return np.array(source) * 1
        return np.array(source[slices(what[2])])


class Tensors:
    """The same with Tensor."""

    def __init__(self) -> None:
        self.names: list[Tensor | None] = []

    def step(self, step: Step) -> Array | None:
        kind, *rest = step
        names = self.names
        if kind == "new":
            names.append(Tensor(fresh(*rest)))
        elif kind == "window":
            names.append(names[rest[0]][slices(rest[1])])
        elif kind == "reshape":
            names.append(names[rest[0]].reshape(rest[1]))
        elif kind == "transpose":
            names.append(names[rest[0]].permute(tuple(range(names[rest[0]].ndim))[::-1]))
        elif kind == "compute":
            names.append(COMPUTED[rest[1]](names[rest[0]]))
        elif kind == "sum_of":
            names.append(names[rest[0]] + names[rest[1]])
        elif kind == "write":
            target = names[rest[0]]
            target[slices(rest[1])] = self.value(rest[2], target[slices(rest[1])].shape)
        elif kind == "assign":
            value = self.value(rest[1], names[rest[0]].shape)
            names[rest[0]].assign(value)
        elif kind == "add":
            names[rest[0]] += self.value(rest[1], names[rest[0]].shape)
        elif kind == "put":
            names[rest[0]][Tensor(np.array(rest[1]))] = Tensor(np.array(rest[2]))
        elif kind == "forget":
            names[rest[0]] = None
        elif kind == "realize":
            chosen = [names[i] for i in rest[0]]
            chosen[0].realize(*chosen[1:])
        elif kind == "read":
            return np.asarray(names[rest[0]].numpy())
        return None

    def value(self, what: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        if what[0] == "number":
            return what[1]
        if what[0] == "data":
            return Tensor(fresh(shape, what[1]))
        source = self.names[what[1]]
        if what[0] == "name":
            return source * 1
        return source[slices(what[2])]


def fresh(shape: tuple[int, ...], seed: int) -> Array:
    """New numbers."""
    return np.random.default_rng(seed).integers(-50, 50, shape, dtype=np.int64)


def check(program: Program) -> None:
    """Run both machines; compare every read, and all names that are left at the end."""
    expected, got = Numpy(), Tensors()
    reads = [("read", i) for i in alive(program)]
    for place, step in enumerate([*program, *reads]):
        wanted, found = expected.step(step), got.step(step)
        if wanted is None:
            continue
        same = found is not None and wanted.shape == found.shape and bool((wanted == found).all())
        problem = f"step {place}, {step}, reads {found!r}, not {wanted!r}"
        assert same, f"{problem}\n{program!r}"


def alive(program: Program) -> list[int]:
    """The names that are there at the end."""
    machine = Numpy()
    for step in program:
        machine.step(step)
    return [i for i, name in enumerate(machine.names) if name is not None]


# ---- drawing ----------------------------------------------------------------------------------


@st.composite
def storage_programs(draw: Draw) -> Program:
    """A program that runs in numpy without an error."""
    program: Program = [("new", draw(st.sampled_from(SHAPES)), draw(st.integers(0, 99)))]
    machine = Numpy()
    machine.step(program[0])
    for _ in range(draw(st.integers(3, 12))):
        step = draw_step(draw, machine.names)
        if step is not None:
            program.append(step)
            machine.step(step)
    return program


KINDS = (
    *("window", "write", "write", "compute", "assign", "add", "realize", "read", "new"),
    *("reshape", "transpose", "put", "sum_of", "forget"),
)


def draw_step(draw: Draw, names: list[Array | None]) -> Step | None:
    there = [i for i, name in enumerate(names) if name is not None]
    kind = draw(st.sampled_from(KINDS))
    if kind == "new" or not there:
        return ("new", draw(st.sampled_from(SHAPES)), draw(st.integers(0, 99)))
    i = draw(st.sampled_from(there))
    array = names[i]
    assert array is not None, "only names that are there are chosen"
    if kind == "realize":
        chosen = draw(st.sets(st.sampled_from(there), min_size=1, max_size=3))
        return ("realize", tuple(sorted(chosen)))
    if kind in ("read", "forget"):
        return (kind, i) if kind == "read" or len(there) > 1 else None
    if kind == "compute":
        return ("compute", i, draw(st.sampled_from(tuple(COMPUTED))))
    if kind == "sum_of":
        partners = [j for j in there if names[j].shape == array.shape]  # type: ignore[union-attr]
        return ("sum_of", i, draw(st.sampled_from(partners)))
    return _draw_window(draw, kind, i, array) or _draw_write(draw, kind, i, array, names, there)


def _draw_window(draw: Draw, kind: str, i: int, array: Array) -> Step | None:
    if kind == "window":
        return ("window", i, draw(boxes(array.shape)))
    if kind == "transpose":
        return ("transpose", i)
    if kind == "reshape" and array.size and array.flags.c_contiguous:
        return ("reshape", i, draw(st.sampled_from(_shapes_of(array.size))))
    return None


def _draw_write(
    draw: Draw, kind: str, i: int, array: Array, names: list[Array | None], there: list[int]
) -> Step | None:
    if kind == "write":
        box = draw(boxes(array.shape))
        return ("write", i, box, _draw_value(draw, array[slices(box)], names, there))
    if kind in ("assign", "add"):
        return (kind, i, _draw_value(draw, array, names, there))
    if kind == "put" and array.ndim == 1 and array.size:
        places = draw(st.lists(st.integers(-array.size, array.size - 1), min_size=1, max_size=6))
        return ("put", i, tuple(places), tuple(range(100, 100 + len(places))))
    return None


def _draw_value(
    draw: Draw, window: Array, names: list[Array | None], there: list[int]
) -> tuple[Any, ...]:
    """What is written: a number, new data, a name of the same shape, or a window on one."""
    options: list[tuple[Any, ...]] = [("number", draw(st.integers(-9, 9)))]
    options.append(("data", draw(st.integers(0, 99))))
    j = draw(st.sampled_from(there))
    source = names[j]
    assert source is not None, "only names that are there are chosen"
    if source.shape == window.shape:
        options += [("name", j)] * 2
    box = _box_with_shape(source.shape, window.shape)
    if box is not None:
        options += [("window", j, box)] * 4
    return draw(st.sampled_from(options))


def _box_with_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[Any, ...] | None:
    """A window of a tensor of *shape* that has the *wanted* shape: its end, so that it overlaps."""
    if len(shape) != len(wanted) or any(n < w for n, w in zip(shape, wanted, strict=True)):
        return None
    return tuple((n - w, None, None) for n, w in zip(shape, wanted, strict=True))


@st.composite
def boxes(draw: Draw, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index of a tensor: ranges with steps, and numbers."""
    box: list[Any] = []
    for size in shape:
        kind = draw(st.sampled_from(("all", "from", "to", "middle", "step", "back", "one")))
        if kind == "one" and size:
            box.append(draw(st.integers(-size, size - 1)))
        elif kind == "from":
            box.append((draw(st.integers(0, size)), None, None))
        elif kind == "to":
            box.append((None, draw(st.integers(0, size)), None))
        elif kind == "middle":
            box.append((1, max(1, size - 1), None))
        elif kind == "step":
            box.append((draw(st.integers(0, 1)), None, 2))
        elif kind == "back":
            box.append((None, None, -1))
        else:
            box.append((None, None, None))
    return tuple(box)


def _shapes_of(count: int) -> list[tuple[int, ...]]:
    return [(count,), *((a, count // a) for a in range(1, count + 1) if count % a == 0)]


# ---- tests ------------------------------------------------------------------------------------


def test_storage_agrees_with_numpy(many: Many) -> None:
    many(storage_programs(), check, 400)


def test_storage_agrees_with_numpy_in_c(many: Many) -> None:
    def in_c(program: Program) -> None:
        with Context(device="CPU:C", optimize=False):
            check(program)

    many(storage_programs(), in_c, 40)


@pytest.mark.parametrize("number", range(len(STORAGE_PROGRAMS)))
def test_storage_programs_that_failed_once(number: int) -> None:
    check(STORAGE_PROGRAMS[number])
