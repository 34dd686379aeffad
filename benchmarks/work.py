"""The works: what is computed, on which arrays, and how fast it has to be.

    Work("matmul 512", models.matmul, inputs.matmul, {m, k, n}, limits=(numpy 1.0, torch 1.05))

A limit is a ratio of times in one run, Pellucid's over a peer's (the best of interleaved rounds),
or a number of seconds of CPU time. A limit that is missed is printed as it is.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

import numpy as np

from benchmarks import inputs, models
from benchmarks.frameworks import OWN, PEERS
from benchmarks.inputs import Arrays, Numbers, Sizes
from benchmarks.models import Function

BYTES_PER_FLOAT = 4


class Measure(Enum):
    """What of a work is measured."""

    STEADY = "time of a call, once all is compiled"
    FIRST = "CPU time of the first call in a new process with empty caches"
    COMPILE = "CPU time from SINK to loaded code"


@dataclass(frozen=True)
class Ratio:
    """Pellucid takes at most *at_most* of the time of the best of *peers*."""

    peers: tuple[str, ...]
    at_most: float

    @property
    def title(self) -> str:
        """What the limit is relative to."""
        return (
            "best peer"
            if self.peers == PEERS
            else "best of " * (len(self.peers) > 1) + (", ".join(self.peers))
        )


@dataclass(frozen=True)
class Seconds:
    """Pellucid takes at most *at_most* seconds of CPU time."""

    at_most: float
    title: str = "CPU time"


Limit = Ratio | Seconds


@dataclass(frozen=True)
class Cost:
    """The least that a work has to do: floating-point operations, and bytes read and written."""

    flops: float
    size_bytes: float


@dataclass(frozen=True)
class Work:
    """One line of the benchmark."""

    name: str
    function: Function
    make: Callable[[Sizes, Numbers], Arrays]
    sizes: dict[str, int]
    tiny: dict[str, int]
    """Sizes for tests and `--quick`; what is not named stays."""
    cost: Callable[[Sizes], Cost]
    limits: tuple[Limit, ...]
    measure: Measure = Measure.STEADY
    dtype: str | None = None
    tolerance: float = 1e-4
    """Largest difference between results, relative to the largest value of the reference."""
    is_training: bool = False
    is_jitted: bool = False
    """Count only the jitted replay; otherwise the better of Pellucid's two ways."""
    numpy_is_timed: bool = True

    @property
    def about(self) -> str:
        """What is computed, in a sentence."""
        return (self.function.__doc__ or "").partition("\n")[0].partition("  ")[0]

    @property
    def counted(self) -> tuple[str, ...]:
        """The ways of Pellucid whose better time the limits are about."""
        return ("pellucid-jit",) if self.is_jitted else OWN

    def sizes_for(self, *, is_tiny: bool) -> dict[str, int]:
        """Give the sizes to run with."""
        return self.sizes | (self.tiny if is_tiny else {})

    def arrays(self, *, is_tiny: bool = False) -> Arrays:
        """Make the inputs; equal in every process."""
        return self.make(self.sizes_for(is_tiny=is_tiny), inputs.numbers_for(self.name))

    def is_timed_in(self, framework: str) -> bool:
        """Tell whether the time of a framework means anything here."""
        if self.measure is Measure.COMPILE:
            return framework == "pellucid"
        if framework == "numpy":
            return self.numpy_is_timed and self.measure is Measure.STEADY
        return framework != "pellucid" or self.measure is Measure.STEADY


# ---- what the works cost ---------------------------------------------------------------------


def _product(sizes: Sizes, item_bytes: int = BYTES_PER_FLOAT) -> Cost:
    m, k, n, batch = sizes["m"], sizes["k"], sizes["n"], sizes.get("batch", 1)
    return Cost(2 * batch * m * k * n, item_bytes * batch * (m * k + k * n + m * n))


def _product_bfloat16(sizes: Sizes) -> Cost:
    return _product(sizes, item_bytes=2)


def _product_int8(sizes: Sizes) -> Cost:
    """Factors of one byte, sums of four."""
    m, k, n = sizes["m"], sizes["k"], sizes["n"]
    return Cost(2 * m * k * n, m * k + k * n + 4 * m * n)


def _streams(reads: int, writes: int, flops: int) -> Callable[[Sizes], Cost]:
    """Cost of touching each element: arrays read and written, operations for an element."""

    def cost(sizes: Sizes) -> Cost:
        count = sizes["count"] if "count" in sizes else sizes["rows"] * sizes["columns"]
        return Cost(flops * count, (reads + writes) * count * BYTES_PER_FLOAT)

    return cost


def _gather(sizes: Sizes) -> Cost:
    rows = sizes["rows"]
    return Cost(0, rows * (2 * BYTES_PER_FLOAT * sizes["columns"] + 4))


def _conv(sizes: Sizes) -> Cost:
    pixels = sizes["batch"] * sizes["image"] ** 2
    per_group = sizes["channels"] // sizes.get("groups", 1)
    weights = 9 * sizes["filters"] * per_group
    floats = pixels * (sizes["channels"] + sizes["filters"]) + weights
    return Cost(2 * pixels * weights, BYTES_PER_FLOAT * floats)


def _pool(sizes: Sizes) -> Cost:
    pixels = sizes["batch"] * sizes["channels"] * sizes["image"] ** 2
    return Cost(pixels, BYTES_PER_FLOAT * pixels * 1.25)


def _attention(sizes: Sizes) -> Cost:
    """Half of the scores are masked and need not be computed."""
    heads, tokens, width = sizes["batch"] * sizes["heads"], sizes["tokens"], sizes["width"]
    return Cost(2 * heads * tokens**2 * width, BYTES_PER_FLOAT * 4 * heads * tokens * width)


def _mlp_step(sizes: Sizes) -> Cost:
    """Forward, and twice as much backward less the gradient of the pixels; Adam reads and writes
    weight, gradient and two moments."""
    layers = [(sizes["pixels"], sizes["hidden"]), (sizes["hidden"],) * 2]
    layers += [(sizes["hidden"], sizes["classes"])]
    weights = sum(a * b for a, b in layers)
    flops = 2 * sizes["batch"] * (3 * weights - layers[0][0] * layers[0][1])
    return Cost(flops, BYTES_PER_FLOAT * 8 * weights)


def _cnn_step(sizes: Sizes) -> Cost:
    width, image, batch = sizes["width"], sizes["image"], sizes["batch"]
    widths = [sizes["channels"], width, width, 2 * width, 2 * width]
    flops, floats = 0, 0
    for i, (inputs_, outputs) in enumerate(pairwise(widths)):
        pixels = batch * (image if i < 2 else image // 2) ** 2
        flops += 2 * pixels * 9 * inputs_ * outputs * (2 if i == 0 else 3)
        floats += 6 * pixels * outputs
    return Cost(flops, BYTES_PER_FLOAT * floats)


def _resnet18(sizes: Sizes) -> Cost:
    """1.81 G multiply-adds and 11.7 M parameters at 224 x 224 (He et al., 2015, table 1)."""
    scale = sizes["batch"] * (sizes["image"] / 224) ** 2 * (sizes["width"] / 64) ** 2
    return Cost(2 * 1.81e9 * scale, BYTES_PER_FLOAT * 11.7e6 * (sizes["width"] / 64) ** 2)


def _gpt2(sizes: Sizes) -> Cost:
    width, tokens = sizes["width"], sizes["tokens"]
    weights = 12 * sizes["layers"] * width**2 + sizes["vocabulary"] * width
    scores = 2 * sizes["layers"] * tokens**2 * width
    return Cost(
        2 * tokens * weights + scores,
        BYTES_PER_FLOAT * (weights + tokens * sizes["vocabulary"]),
    )


# ---- the table -------------------------------------------------------------------------------

_BEST_PEER = (Ratio(PEERS, 1.0),)
_LIKE_BLAS = (Ratio(("numpy",), 1.0), Ratio(("torch",), 1.05))
_TINY_MATRIX = {"rows": 5, "columns": 7}
_TINY_PRODUCT = {"m": 5, "k": 7, "n": 3}
_SQUARE = {"rows": 4096, "columns": 4096}
_ROWS = {"rows": 4096, "columns": 1024}


def _torch(at_most: float) -> tuple[Limit, ...]:
    return (Ratio(("torch",), at_most),)


def _matmul(name: str, m: int, k: int, n: int, **more: int) -> Work:
    return Work(
        f"matmul {name}",
        models.matmul,
        inputs.matmul,
        {"m": m, "k": k, "n": n} | more,
        _TINY_PRODUCT | ({"batch": 2} if more else {}),
        _product,
        _LIKE_BLAS,
    )


def _on_matrix(
    name: str,
    function: Function,
    sizes: dict[str, int],
    cost: Callable[[Sizes], Cost],
    **more: object,
) -> Work:
    given = {"make": inputs.matrix, "limits": _BEST_PEER} | more
    return Work(name, function, sizes=sizes, tiny=_TINY_MATRIX, cost=cost, **given)  # type: ignore[arg-type]


def _on_pictures(name: str, sizes: dict[str, int], tiny: dict[str, int]) -> Work:
    return Work(
        name,
        models.convolution,
        inputs.convolution,
        sizes,
        tiny,
        _conv,
        _torch(1.1),
        numpy_is_timed=False,
    )


def _per_row(flops: int) -> Callable[[Sizes], Cost]:
    """One result for each row."""
    return lambda sizes: Cost(
        flops * sizes["rows"] * sizes["columns"],
        BYTES_PER_FLOAT * sizes["rows"] * sizes["columns"],
    )


MATMULS = [
    _matmul("512", 512, 512, 512),
    _matmul("1024", 1024, 1024, 1024),
    _matmul("2048", 2048, 2048, 2048),
    _matmul("1000x768x3072", 1000, 768, 3072),
    _matmul("512x8192x512", 512, 8192, 512),
    _matmul("127x131x129", 127, 131, 129),
    _matmul("65x65x65", 65, 65, 65),
    _matmul("256 of 64", 64, 64, 64, batch=256),
    Work(
        "matvec 1x4096x4096",
        models.matmul,
        inputs.matmul,
        {"m": 1, "k": 4096, "n": 4096},
        {"k": 7, "n": 5},
        _product,
        _torch(0.9),
    ),
    Work(
        "bf16 matmul 1024",
        models.matmul,
        inputs.matmul_bfloat16,
        {"m": 1024, "k": 1024, "n": 1024},
        _TINY_PRODUCT,
        _product_bfloat16,
        _torch(1.0),
        dtype="bfloat16",
        tolerance=1e-2,
        numpy_is_timed=False,
    ),
    Work(
        "int8 matmul 1024",
        models.matmul_int8,
        inputs.matmul_int8,
        {"m": 1024, "k": 1024, "n": 1024},
        _TINY_PRODUCT,
        _product_int8,
        _torch(1.0),
        dtype="int8",
        tolerance=0.0,
        numpy_is_timed=False,
    ),
]

FUSED = Work(
    "fused elementwise 16M",
    models.fused_elementwise,
    inputs.three_vectors,
    {"count": 1 << 24},
    {"count": 37},
    _streams(reads=3, writes=1, flops=6),
    (Ratio(("numpy",), 0.4), Ratio(("torch-compile",), 1.0), Ratio(("jax",), 1.0)),
)

OPERATIONS = [
    FUSED,
    Work(
        "exp 4M",
        models.exp,
        inputs.vector,
        {"count": 1 << 22},
        {"count": 37},
        _streams(reads=1, writes=1, flops=10),
        _BEST_PEER,
    ),
    _on_matrix("sum all 16M", models.sum_all, _SQUARE, _per_row(1), make=inputs.positive_matrix),
    _on_matrix("sum rows 16M", models.sum_rows, _SQUARE, _per_row(1), make=inputs.positive_matrix),
    _on_matrix(
        "sum columns 16M", models.sum_columns, _SQUARE, _per_row(1), make=inputs.positive_matrix
    ),
    _on_matrix("transpose 4096", models.transpose, _SQUARE, _streams(1, 1, 0)),
    _on_matrix("argmax rows 4096x1024", models.argmax_rows, _ROWS, _per_row(1), tolerance=0.0),
    _on_matrix(
        "cumsum rows 4096x1024",
        models.cumsum_rows,
        _ROWS,
        _streams(1, 1, 1),
        make=inputs.positive_matrix,
    ),
    Work(
        "gather 8192 rows of 256",
        models.gather_rows,
        inputs.table_and_rows,
        {"table": 32768, "rows": 8192, "columns": 256},
        {"table": 9, "rows": 5, "columns": 7},
        _gather,
        _BEST_PEER,
        tolerance=0.0,
    ),
    _on_matrix("softmax 4096x1024", models.softmax, _ROWS, _streams(1, 1, 12), limits=_torch(0.7)),
    _on_matrix(
        "layernorm 4096x1024", models.layernorm, _ROWS, _streams(1, 1, 7), limits=_torch(0.7)
    ),
    Work(
        "matmul+bias+gelu 1024x768x3072",
        models.matmul_bias_gelu,
        inputs.matmul_bias,
        {"m": 1024, "k": 768, "n": 3072},
        _TINY_PRODUCT,
        _product,
        _BEST_PEER,
    ),
]

PICTURES = [
    _on_pictures(
        "conv 3x3 64-64 56x56 b1",
        {"batch": 1, "channels": 64, "filters": 64, "image": 56},
        {"channels": 3, "filters": 4, "image": 6},
    ),
    _on_pictures(
        "conv 3x3 32-64 28x28 b32",
        {"batch": 32, "channels": 32, "filters": 64, "image": 28},
        {"batch": 2, "channels": 3, "filters": 4, "image": 5},
    ),
    _on_pictures(
        "depthwise 3x3 96 56x56 b8",
        {"batch": 8, "channels": 96, "filters": 96, "groups": 96, "image": 56},
        {"batch": 2, "channels": 3, "filters": 3, "groups": 3, "image": 5},
    ),
    Work(
        "max-pool 2x2 64 112x112 b8",
        models.max_pool,
        inputs.pictures,
        {"batch": 8, "channels": 64, "image": 112},
        {"batch": 2, "channels": 3, "image": 6},
        _pool,
        _torch(1.1),
        tolerance=0.0,
        numpy_is_timed=False,
    ),
]

MODELS = [
    Work(
        "causal attention 4x12x512x64",
        models.attention,
        inputs.attention,
        {"batch": 4, "heads": 12, "tokens": 512, "width": 64},
        {"batch": 1, "heads": 2, "tokens": 5, "width": 4},
        _attention,
        _torch(0.9),
        numpy_is_timed=False,
    ),
    Work(
        "MLP training step",
        models.mlp_loss,
        inputs.mlp,
        {"batch": 128, "pixels": 784, "hidden": 512, "classes": 10},
        {"batch": 4, "pixels": 6, "hidden": 5, "classes": 3},
        _mlp_step,
        _torch(1.0),
        is_training=True,
        is_jitted=True,
        tolerance=1e-3,
    ),
    Work(
        "CNN training step",
        models.cnn_loss,
        inputs.cnn,
        {"batch": 64, "channels": 3, "image": 32, "width": 32, "classes": 10},
        {"batch": 2, "image": 8, "width": 2, "classes": 3},
        _cnn_step,
        _torch(1.1),
        is_training=True,
        is_jitted=True,
        tolerance=5e-3,
        numpy_is_timed=False,
    ),
    Work(
        "ResNet-18 forward",
        models.resnet18,
        inputs.resnet18,
        {"batch": 1, "image": 224, "width": 64, "classes": 1000},
        {"image": 32, "width": 2, "classes": 5},
        _resnet18,
        _torch(1.2),
        is_jitted=True,
        tolerance=1e-3,
        numpy_is_timed=False,
    ),
    Work(
        "GPT-2-small forward 128 tokens",
        models.gpt2,
        inputs.gpt2,
        {"layers": 12, "width": 768, "tokens": 128, "vocabulary": 50257},
        {"layers": 2, "width": 8, "tokens": 5, "vocabulary": 11},
        _gpt2,
        _torch(1.0),
        is_jitted=True,
        tolerance=1e-3,
        numpy_is_timed=False,
    ),
]


def _first(work: Work, seconds: float) -> Work:
    name = "first call: " + work.name.removesuffix(" training step").partition(" forward")[0]
    return replace(work, name=name, limits=(Seconds(seconds),), measure=Measure.FIRST)


def _compile(work: Work, name: str, seconds: float) -> Work:
    return replace(work, name=name, limits=(Seconds(seconds),), measure=Measure.COMPILE)


_BY_NAME = {work.name: work for work in [*MATMULS, *OPERATIONS, *PICTURES, *MODELS]}

COMPILE_TIMES = [
    _first(_BY_NAME["MLP training step"], 1.0),
    _first(_BY_NAME["CNN training step"], 3.0),
    _first(_BY_NAME["ResNet-18 forward"], 3.0),
    _first(_BY_NAME["GPT-2-small forward 128 tokens"], 2.0),
    _compile(FUSED, "SINK to code: fused elementwise", 0.010),
    _compile(_BY_NAME["matmul 1024"], "SINK to code: matmul 1024", 0.050),
]

WORKS: tuple[Work, ...] = (*_BY_NAME.values(), *COMPILE_TIMES)


def works_like(patterns: Sequence[str]) -> list[Work]:
    """Give the works that a pattern names, matches, or else is part of; all without a pattern.

    >>> [work.name for work in works_like(["matmul 512", "sum*"])]
    ['matmul 512', 'sum all 16M', 'sum rows 16M', 'sum columns 16M']
    """
    chosen = {work.name for pattern in patterns for work in _like(pattern.lower())}
    return [work for work in WORKS if not patterns or work.name in chosen]


def _like(pattern: str) -> list[Work]:
    exact = [work for work in WORKS if work.name.lower() == pattern]
    matching = [work for work in WORKS if fnmatch.fnmatch(work.name.lower(), pattern)]
    return exact or matching or [work for work in WORKS if pattern in work.name.lower()]


def work_named(name: str) -> Work:
    """Give the work of exactly this name."""
    return next(work for work in WORKS if work.name == name)


def difference(result: inputs.Array, reference: inputs.Array) -> float:
    """Give the largest difference relative to the largest value of the reference.

    Infinite when shapes differ, or where only one of the two is infinite or not a number.
    """
    if result.shape != reference.shape:
        return math.inf
    if reference.size == 0:
        return 0.0
    ours, theirs = result.astype(np.float64), reference.astype(np.float64)
    is_number = np.isfinite(theirs)
    if not np.array_equal(ours[~is_number], theirs[~is_number], equal_nan=True):
        return math.inf
    ours, theirs = ours[is_number], theirs[is_number]
    scale = float(np.abs(theirs).max(initial=0.0))
    away = float(np.abs(ours - theirs).max(initial=0.0))
    if math.isnan(away):
        return math.inf
    return away / scale if scale else away
