"""Random functions give the same with jit as without: results, state, and what is read later.

A function is a list of steps on its arguments, on state outside and on what it computed; it is
called five times, the state is written to in between, and everything is read at the end.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from pellucid import Tensor, jit

Step = tuple[str, int, int, int]
KINDS = (
    *("add", "mul", "sum", "flip", "window", "alias", "index", "random", "realize"),
    *("write state", "add to state", "write slice", "write argument"),
)


def steps_of(numbers: random.Random) -> list[Step]:
    """Draw a function."""
    count = numbers.randint(2, 7)
    draw = numbers.randint
    return [(numbers.choice(KINDS), draw(0, 99), draw(0, 99), draw(0, 3)) for _ in range(count)]


def compute(step: Step, values: list[Tensor]) -> None:
    """A step that makes a value."""
    kind, i, j, c = step
    x, y = values[i % len(values)], values[j % len(values)]
    made: dict[str, Callable[[], Tensor]] = {
        "add": lambda: x + y * c,
        "mul": lambda: x * 2 - y,
        "sum": lambda: x * 0 + x.sum(),
        "flip": lambda: x.reshape(2, 2).T.reshape(4),
        "window": lambda: x[:].flip(0) if c % 2 else x[1:].pad((1, 0)),
        "alias": lambda: x.detach(),
        "index": lambda: x[Tensor([3, 0, 1, 1])] + c,
        "random": lambda: x + Tensor.randint(0, 5, (4,)),
        "realize": lambda: x.realize(),
    }
    values.append(made[kind]())


def write(step: Step, values: list[Tensor], state: list[Tensor]) -> None:
    """A step that writes."""
    kind, i, j, c = step
    target, y = state[i % len(state)], values[j % len(values)]
    if kind == "write state":
        target.assign(y.contiguous() + c)
    elif kind == "add to state":
        target += y
    elif kind == "write slice":
        target[1:3] = y[c % 2 : c % 2 + 2]
    else:
        values[0] += c


def function_of(steps: list[Step], state: list[Tensor]) -> Callable[[Tensor, Tensor], Any]:
    """The function that a list of steps describes."""

    def function(a: Tensor, b: Tensor) -> Any:
        values = [a, b, *state]
        for step in steps:
            if "write" in step[0] or "to" in step[0]:
                write(step, values, state)
            else:
                compute(step, values)
        return values[len(values) // 2] + 0, values[-1] * 1

    return function


def story(seed: int, is_jitted: bool) -> list[Any]:
    """All that can be seen of five calls."""
    numbers = random.Random(seed)
    steps = steps_of(numbers)
    Tensor.manual_seed(seed)
    state = [Tensor([1, 2, 3, 4]), Tensor([5, 6, 7, 8])]
    if numbers.random() < 0.5:
        state[0].realize(state[1])
    function: Callable[..., Any] = function_of(steps, state)
    function = jit(function) if is_jitted else function
    seen, results, lazy = [], [], []
    for call in range(5):
        a, b = Tensor([call, 1, 2, 3]), Tensor([10, call, 5, 6])
        lazy.append(state[0] * 3 + 1)
        results.append(function(a, b))
        seen.append(a.tolist())
        if call == 2:
            state[1].assign(Tensor([9, 9, 9, call]))
        if numbers.random() < 0.3:
            seen.append(state[0].tolist())
    seen += [[t.tolist() for t in pair] for pair in results]
    return seen + [t.tolist() for t in (*state, *lazy)]


@pytest.mark.parametrize("seed", range(24))
def test_a_random_function(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert story(seed, is_jitted=True) == story(seed, is_jitted=False)
