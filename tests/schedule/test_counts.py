"""How many kernels the reductions of neural networks take, at many sizes: a table.

A number above 1 has a reason, by its column:

    columns     lanes run along columns, so a kernel of sums by columns makes the statistics, and
                another one uses them along memory (a gradient: twice)
    few rows    two rows are shared out among threads in parts; statistics come first
    a vector    parts of it for threads, then all of them, for each reduction that needs the last
                (maxima and sums of exponentials are made together)
    middle      as columns, over many channels (few are read side by side, as those of few pictures)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from pellucid import Tensor
from pellucid.core.target import host_target

SHAPES = {
    "short rows": ((4096, 64), 1),
    "rows": ((256, 1000), 1),
    "columns": ((256, 1000), 0),
    "long columns": ((1024, 4096), 0),
    "long rows": ((64, 30_000), 1),
    "few rows": ((2, 100_000), 1),
    "a row": ((1000,), 0),
    "a vector": ((1 << 20,), 0),
    "few pictures": ((4, 8, 128, 128), 1),
    "middle": ((16, 64, 28, 28), 1),
}
Program = Callable[[Tensor, int], Tensor]


def normal(x: Tensor, axis: int) -> Tensor:
    away = x - x.mean(axis, keepdim=True)
    return away * (x.var(axis, keepdim=True, correction=0) + 1e-5).rsqrt()


PROGRAMS: dict[str, Program] = {
    "softmax": lambda x, axis: x.softmax(axis),
    "log_softmax": lambda x, axis: x.log_softmax(axis),
    "logsumexp": lambda x, axis: x.logsumexp(axis),
    "layernorm": normal,
    "rmsnorm": lambda x, axis: x * (x.square().mean(axis, keepdim=True) + 1e-5).rsqrt(),
    "variance": lambda x, axis: x.var(axis),
    "deviation": lambda x, axis: x.mean(axis) + x.std(axis),
    "length": lambda x, axis: x / x.norm(2, axis, keepdim=True),
}
COUNTS = {
    #               short rows cols long-c long-r few row vector pictures middle
    "softmax": "1 1 2 2 1 2 1 3 1 2",
    "log_softmax": "1 1 2 2 1 2 1 3 1 2",
    "logsumexp": "1 1 1 1 1 1 1 2 1 1",
    "layernorm": "1 1 2 2 1 2 1 5 1 2",
    "rmsnorm": "1 1 2 2 1 2 1 3 1 2",
    "variance": "1 1 1 1 1 1 1 3 1 1",
    "deviation": "1 1 1 1 1 1 1 4 1 1",
    "length": "1 1 2 2 1 2 1 3 1 2",
    "softmax, its gradient": "1 1 4 4 1 4 1 5 1 4",
    "log_softmax, its gradient": "1 1 2 2 1 2 1 4 1 2",
    "logsumexp, its gradient": "1 1 4 4 1 2 1 3 1 4",
    "layernorm, its gradient": "1 1 2 2 1 2 1 5 1 2",
    "rmsnorm, its gradient": "1 1 2 2 1 2 1 3 1 2",
    "variance, its gradient": "1 1 3 3 1 2 1 3 1 3",
    "length, its gradient": "1 1 2 2 1 2 1 5 1 2",
}


@pytest.fixture(autouse=True)
def a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = dataclasses.replace(host_target(), l2_bytes=512 << 10, cores=2)
    monkeypatch.setenv("PELLUCID_TARGET", machine.key.partition(";")[0])


def num_kernels(name: str, shape: tuple[int, ...], axis: int) -> int:
    name, _, is_gradient = name.partition(", ")
    x = Tensor.zeros(*shape).contiguous().realize().requires_grad_()
    result = PROGRAMS[name](x, axis)
    if is_gradient:
        weight = Tensor.zeros(*result.shape).contiguous().realize()
        (result,) = (result * weight).sum().gradient(x)
    return len(result.schedule_linear().src)


@pytest.mark.parametrize("name", COUNTS)
def test_numbers_of_kernels(name: str) -> None:
    found = {column: num_kernels(name, *SHAPES[column]) for column in SHAPES}
    assert found == dict(zip(SHAPES, map(int, COUNTS[name].split()), strict=True))
