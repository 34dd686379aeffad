"""The arrays that works start from: seeded, so that every process makes the same ones.

    convolution({"batch": 1, "channels": 64, ...}, numbers)  ->  {"x": (1, 64, 56, 56), "w": ...}

Names with a dot ("fc1.weight") are parameters of a model, which a jitted function keeps; names
without one ("x", "labels") are data, which it takes as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Sizes = Mapping[str, int]
Numbers = np.random.Generator

SEED = 20


def numbers_for(name: str) -> Numbers:
    """Give the stream of random numbers of the work *name*."""
    return np.random.default_rng([SEED, *name.encode()])


def normal(numbers: Numbers, *shape: int, scale: float = 1.0) -> Array:
    """Give normal float32 numbers of a standard deviation of *scale*."""
    made = numbers.standard_normal(shape, dtype=np.float32)
    return made if scale == 1.0 else made * np.float32(scale)


def parameter_names(arrays: Mapping[str, Any]) -> list[str]:
    """Give the names that belong to parameters of a model."""
    return [name for name in arrays if "." in name]


def to_bfloat16_values(array: Array) -> Array:
    """Round float32 numbers to those that bfloat16 has, ties to even.

    >>> to_bfloat16_values(np.array([1.0, 1.001], np.float32)).tolist()
    [1.0, 1.0]
    """
    bits = array.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


# ---- one operation ---------------------------------------------------------------------------


def matmul(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make two matrices, or two stacks of `batch` matrices."""
    stack = (sizes["batch"],) if "batch" in sizes else ()
    return {
        "a": normal(numbers, *stack, sizes["m"], sizes["k"]),
        "b": normal(numbers, *stack, sizes["k"], sizes["n"]),
    }


def matmul_bfloat16(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make two matrices whose elements bfloat16 has."""
    return {name: to_bfloat16_values(array) for name, array in matmul(sizes, numbers).items()}


def matmul_int8(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make two matrices of any numbers of 8 bits."""
    m, k, n = sizes["m"], sizes["k"], sizes["n"]
    return {
        "a": numbers.integers(-128, 128, (m, k)).astype(np.int8),
        "b": numbers.integers(-128, 128, (k, n)).astype(np.int8),
    }


def matmul_bias(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make two matrices and a bias for each column of their product."""
    made = matmul(sizes, numbers)
    made["b"] *= np.float32(1 / math.sqrt(sizes["k"]))
    return made | {"bias": normal(numbers, sizes["n"])}


def three_vectors(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make x, y and z of `count` elements each."""
    return {name: normal(numbers, sizes["count"]) for name in "xyz"}


def vector(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make one vector of `count` elements."""
    return {"x": normal(numbers, sizes["count"])}


def matrix(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make one matrix of normal numbers."""
    return {"x": normal(numbers, sizes["rows"], sizes["columns"])}


def positive_matrix(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make one matrix of numbers between 0 and 1: its sums do not cancel."""
    return {"x": numbers.random((sizes["rows"], sizes["columns"]), dtype=np.float32)}


def table_and_rows(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make a table, and the rows of it that are asked for."""
    rows = numbers.integers(0, sizes["table"], sizes["rows"], dtype=np.int32)
    return {"table": normal(numbers, sizes["table"], sizes["columns"]), "rows": rows}


def convolution(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make pictures, and 3 x 3 filters (`groups` of them do not see each other)."""
    per_group = sizes["channels"] // sizes.get("groups", 1)
    filters = normal(numbers, sizes["filters"], per_group, 3, 3, scale=1 / math.sqrt(9 * per_group))
    return pictures(sizes, numbers) | {"w": filters}


def pictures(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make a batch of square pictures."""
    return {"x": normal(numbers, sizes["batch"], sizes["channels"], sizes["image"], sizes["image"])}


def attention(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make queries, keys and values."""
    shape = (sizes["batch"], sizes["heads"], sizes["tokens"], sizes["width"])
    return {name: normal(numbers, *shape) for name in "qkv"}


# ---- models ----------------------------------------------------------------------------------


def _linear(numbers: Numbers, name: str, inputs: int, outputs: int) -> Arrays:
    scale = 1 / math.sqrt(inputs)
    return {
        f"{name}.weight": normal(numbers, outputs, inputs, scale=scale),
        f"{name}.bias": normal(numbers, outputs, scale=scale),
    }


def _filters(numbers: Numbers, name: str, inputs: int, outputs: int, size: int) -> Arrays:
    scale = math.sqrt(2 / (inputs * size * size))
    return {f"{name}.weight": normal(numbers, outputs, inputs, size, size, scale=scale)}


def _norm(numbers: Numbers, name: str, channels: int) -> Arrays:
    return {
        f"{name}.weight": 1 + normal(numbers, channels, scale=0.1),
        f"{name}.bias": normal(numbers, channels, scale=0.1),
    }


def _fixed_norm(numbers: Numbers, name: str, channels: int) -> Arrays:
    return _norm(numbers, name, channels) | {
        f"{name}.mean": normal(numbers, channels, scale=0.1),
        f"{name}.var": 1 + numbers.random(channels, dtype=np.float32),
    }


def _labels(sizes: Sizes, numbers: Numbers) -> Array:
    return numbers.integers(0, sizes["classes"], sizes["batch"], dtype=np.int32)


def mlp(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make a batch and the parameters of three linear layers."""
    pixels, hidden = sizes["pixels"], sizes["hidden"]
    return {
        "x": normal(numbers, sizes["batch"], pixels),
        "labels": _labels(sizes, numbers),
        **_linear(numbers, "fc1", pixels, hidden),
        **_linear(numbers, "fc2", hidden, hidden),
        **_linear(numbers, "fc3", hidden, sizes["classes"]),
    }


def cnn(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make a batch and the parameters of two blocks of two convolutions, and a classifier."""
    width, made = sizes["width"], {**pictures(sizes, numbers), "labels": _labels(sizes, numbers)}
    widths = [sizes["channels"], width, width, 2 * width, 2 * width]
    for i, (inputs, outputs) in enumerate(pairwise(widths), 1):
        made |= _filters(numbers, f"conv{i}", inputs, outputs, 3)
        made |= _norm(numbers, f"bn{i}", outputs)
    return made | _linear(numbers, "fc", 2 * width * (sizes["image"] // 4) ** 2, sizes["classes"])


def resnet18(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make a picture and the parameters of ResNet-18, with statistics of its batch norms."""
    width = sizes["width"]
    made = {"x": normal(numbers, sizes["batch"], 3, sizes["image"], sizes["image"])}
    made |= _filters(numbers, "conv1", 3, width, 7) | _fixed_norm(numbers, "bn1", width)
    inputs = width
    for layer in range(4):
        outputs = width << layer
        for block in range(2):
            made |= _residual_block(numbers, f"layer{layer + 1}.{block}", inputs, outputs)
            inputs = outputs
    return made | _linear(numbers, "fc", inputs, sizes["classes"])


def _residual_block(numbers: Numbers, name: str, inputs: int, outputs: int) -> Arrays:
    made = _filters(numbers, f"{name}.conv1", inputs, outputs, 3)
    made |= _fixed_norm(numbers, f"{name}.bn1", outputs)
    made |= _filters(numbers, f"{name}.conv2", outputs, outputs, 3)
    made |= _fixed_norm(numbers, f"{name}.bn2", outputs)
    if inputs != outputs:
        made |= _filters(numbers, f"{name}.down", inputs, outputs, 1)
        made |= _fixed_norm(numbers, f"{name}.down_bn", outputs)
    return made


def gpt2(sizes: Sizes, numbers: Numbers) -> Arrays:
    """Make tokens and the parameters of GPT-2, of random values."""
    width = sizes["width"]
    made = {
        "tokens": numbers.integers(0, sizes["vocabulary"], (1, sizes["tokens"]), dtype=np.int32),
        "wte.weight": normal(numbers, sizes["vocabulary"], width, scale=0.02),
        "wpe.weight": normal(numbers, sizes["tokens"], width, scale=0.02),
    }
    for i in range(sizes["layers"]):
        made |= _norm(numbers, f"h{i}.ln_1", width) | _norm(numbers, f"h{i}.ln_2", width)
        made |= _linear(numbers, f"h{i}.attn", width, 3 * width)
        made |= _linear(numbers, f"h{i}.proj", width, width)
        made |= _linear(numbers, f"h{i}.fc", width, 4 * width)
        made |= _linear(numbers, f"h{i}.fc_proj", 4 * width, width)
    return made | _norm(numbers, "ln_f", width)
