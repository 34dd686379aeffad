"""The table of works: complete, named once, and computed alike by numpy and Pellucid."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from benchmarks import frameworks
from benchmarks.frameworks import MODULES, PEERS
from benchmarks.frameworks.base import Array, Framework, Unavailable
from benchmarks.inputs import parameter_names, to_bfloat16_values
from benchmarks.work import (
    WORKS,
    Measure,
    Ratio,
    Seconds,
    Work,
    difference,
    work_named,
    works_like,
)

STEADY = [work for work in WORKS if work.measure is Measure.STEADY]
WAYS = [
    (name, work)
    for work in STEADY
    for name in ("pellucid-jit", "pellucid")
    if name in work.counted or work.name == "MLP training step"  # one model is enough to try both
]


@functools.cache
def framework(name: str) -> Framework:
    return frameworks.start(name, 1)


def first_results(name: str, work: Work, calls: int) -> list[Array]:
    """Run a work at its tiny size; give the results of its first calls."""
    chosen = framework(name)
    arrays = work.arrays(is_tiny=True)
    values: dict[str, Any] = {n: chosen.load(a, work.dtype) for n, a in arrays.items()}
    if work.is_training:
        step = chosen.trained(work.function, values, parameter_names(values))
    else:
        step = chosen.prepared(work.function, values)
    return [np.array(chosen.to_numpy(step())) for _ in range(calls)]


def test_names_are_unique() -> None:
    assert len({work.name for work in WORKS}) == len(WORKS)


def test_every_line_that_is_asked_for_has_a_work() -> None:
    asked = [
        "matmul 512",
        "matmul 1024",
        "matmul 2048",
        "matmul 1000x768x3072",
        "matmul 512x8192x512",
        "matmul 127x131x129",
        "matmul 65x65x65",
        "matmul 256 of 64",
        "matvec 1x4096x4096",
        "bf16 matmul 1024",
        "int8 matmul 1024",
        "fused elementwise 16M",
        "exp 4M",
        "sum all 16M",
        "sum rows 16M",
        "sum columns 16M",
        "transpose 4096",
        "argmax rows*",
        "cumsum rows*",
        "gather 8192 rows of 256",
        "softmax 4096x1024",
        "layernorm 4096x1024",
        "matmul+bias+gelu 1024x768x3072",
        "conv 3x3 64-64 56x56 b1",
        "conv 3x3 32-64 28x28 b32",
        "depthwise*96*",
        "max-pool*",
        "causal attention 4x12x512x64",
        "MLP training step",
        "CNN training step",
        "ResNet-18 forward",
        "GPT-2-small forward 128 tokens",
        "first call: MLP",
        "first call: CNN",
        "first call: ResNet-18",
        "first call: GPT-2-small",
        "SINK to code: fused elementwise",
        "SINK to code: matmul 1024",
    ]
    assert [len(works_like([pattern])) for pattern in asked] == [1] * len(asked)
    assert len(asked) == len(WORKS)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_work_is_well_formed(work: Work) -> None:
    assert work.about.endswith((".", "`.")), "the function says what it computes"
    assert set(work.tiny) <= set(work.sizes)
    assert work.limits
    for limit in work.limits:
        assert isinstance(limit, Seconds if work.measure is not Measure.STEADY else Ratio)
        assert limit.at_most > 0
        assert not isinstance(limit, Ratio) or set(limit.peers) <= set(PEERS)
    cost = work.cost(work.sizes)
    assert cost.size_bytes > 0
    assert cost.flops >= 0


def test_inputs_are_the_same_each_time_and_differ_between_works() -> None:
    first, again = (work_named("exp 4M").arrays(is_tiny=True) for _ in range(2))
    assert np.array_equal(first["x"], again["x"])
    other = work_named("fused elementwise 16M").arrays(is_tiny=True)
    assert not np.array_equal(first["x"], other["x"])


@pytest.mark.parametrize(("name", "work"), WAYS, ids=[f"{name}-{work.name}" for name, work in WAYS])
def test_pellucid_computes_what_numpy_computes(name: str, work: Work) -> None:
    calls = 3 if work.is_training else 2
    ours = first_results(name, work, calls)
    theirs = first_results("numpy", work, 1 if not work.numpy_is_timed else calls)
    for left, right in zip(ours, theirs, strict=False):
        assert difference(left, right) <= work.tolerance
    if not work.is_training:
        assert np.array_equal(ours[0], ours[1]), "a second call gives the same"


def test_training_lowers_the_loss() -> None:
    losses = first_results("numpy", work_named("MLP training step"), 10)
    assert losses[-1] < losses[0]


def test_sink_to_code_is_measured() -> None:
    work = work_named("SINK to code: fused elementwise")
    chosen = framework("pellucid")
    values = {n: chosen.load(a) for n, a in work.arrays(is_tiny=True).items()}
    assert 0 < chosen.compile_seconds(work.function, values) < 60


def test_a_framework_without_kernels_says_so() -> None:
    with pytest.raises(Unavailable, match="numpy has no kernels"):
        framework("numpy").compile_seconds(work_named("exp 4M").function, {})


def test_every_framework_has_a_module() -> None:
    assert set(PEERS) | {"pellucid", "pellucid-jit"} == set(MODULES)


def test_difference() -> None:
    ones = np.ones(3, np.float32)
    assert difference(ones, ones) == 0
    assert difference(ones * 1.5, ones * 2) == 0.25
    assert difference(ones, np.ones(4)) == np.inf
    assert difference(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == np.inf
    assert difference(np.array([np.inf, 2.0]), np.array([np.inf, 2.0])) == 0
    assert difference(np.zeros(0), np.zeros(0)) == 0


def test_bfloat16_values_round_to_even() -> None:
    halfway = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    assert to_bfloat16_values(halfway).tolist() == [1.0, 1 + 2**-6]


def test_patterns_choose_works() -> None:
    assert works_like([]) == list(WORKS)
    assert [work.name for work in works_like(["MATMUL 512"])] == ["matmul 512"]
    assert works_like(["no such work"]) == []
