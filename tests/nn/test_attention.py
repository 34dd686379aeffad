"""Attention of whole tensors: values, gradients, masks, and what is stored on the way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pellucid import Tensor, dtypes
from pellucid.codegen.collapse_reductions import collapse_reductions
from pellucid.codegen.simplify_ranges import simplify_ranges
from pellucid.core.dtype import DType
from pellucid.core.options import Context
from pellucid.core.target import host_target, machine_target
from pellucid.ir.op import Ops
from pellucid.opt.actions.online import most_parts
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.plans.passes import VECTORS

Array = np.ndarray
SHAPES = [(64, 64, 16), (33, 70, 16), (100, 100, 24), (1, 96, 16), (96, 1, 16), (40, 513, 32)]


def inputs(rows: int, keys: int, width: int) -> list[Array]:
    """Queries, keys, values, and a gradient of the result."""
    numbers = np.random.default_rng(rows * 1000 + keys)
    sizes = (rows, keys, keys, rows)
    return [numbers.standard_normal((2, 2, n, width)).astype(np.float32) for n in sizes]


def expected(q: Array, k: Array, v: Array, grad: Array, mask: Array) -> list[Array]:
    """The result and its gradients in float64; *mask* is added to the scores."""
    q, k, v, grad = (x.astype(np.float64) for x in (q, k, v, grad))
    factor = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * factor + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True)
    by_weights = grad @ v.swapaxes(-1, -2)
    away = by_weights - (by_weights * weights).sum(-1, keepdims=True)
    by_scores = weights * away * factor
    back = weights.swapaxes(-1, -2) @ grad
    return [weights @ v, by_scores @ k, by_scores.swapaxes(-1, -2) @ q, back]


def masks(rows: int, keys: int) -> dict[str, tuple[dict[str, object], Array]]:
    """For each kind of mask the arguments of the call, and what is added to the scores."""
    causal = np.tril(np.ones((rows, keys), bool))
    bias = np.random.default_rng(7).standard_normal((rows, keys)).astype(np.float32)
    return {
        "none": ({}, np.zeros(())),
        "causal": ({"is_causal": True}, np.where(causal, 0.0, -np.inf)),
        "bias": ({"attn_mask": Tensor(bias)}, bias),
        "chosen": (
            {"attn_mask": Tensor(causal | (bias > 0))},
            np.where(causal | (bias > 0), 0, -np.inf),
        ),
    }


@pytest.mark.parametrize("kind", ["none", "causal", "bias", "chosen"])
@pytest.mark.parametrize(("rows", "keys", "width"), SHAPES)
def test_values_and_gradients(rows: int, keys: int, width: int, kind: str) -> None:
    arrays = inputs(rows, keys, width)
    arguments, mask = masks(rows, keys)[kind]
    q, k, v, grad = map(Tensor, arrays)
    out = q.scaled_dot_product_attention(k, v, **arguments)  # type: ignore[arg-type]
    gradients = (out * grad).sum().gradient(q, k, v)
    for got, want in zip((out, *gradients), expected(*arrays, mask), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-4, atol=2e-5)


def largest_storage(*tensors: Tensor) -> int:
    """Elements of the largest storage that a schedule names."""
    linear = tensors[0].schedule_linear(*tensors[1:])
    return max(int(node.arg.size) for call in linear.src for node in call.src[1:])


@pytest.mark.parametrize("kind", ["none", "causal"])
@pytest.mark.parametrize(("rows", "keys", "width"), [(64, 64, 16), (64, 256, 64), (101, 101, 32)])
def test_no_kernel_stores_scores(rows: int, keys: int, width: int, kind: str) -> None:
    q, k, v, grad = map(Tensor, inputs(rows, keys, width))
    out = q.scaled_dot_product_attention(k, v, is_causal=kind == "causal")
    assert largest_storage(out) == 4 * keys * width
    assert largest_storage(out, *(out * grad).sum().gradient(q, k, v)) == 4 * keys * width
    again = (q * q).scaled_dot_product_attention(k, v, is_causal=kind == "causal")
    loss = again.square().sum()  # whose gradient needs the result
    assert largest_storage(loss, *loss.gradient(q, k, v)) == 4 * keys * width


def test_an_attention_written_by_hand_is_one() -> None:
    q, k, v, _ = map(Tensor, inputs(64, 64, 16))
    by_hand = (q @ k.mT * 0.25).softmax(-1) @ v
    assert largest_storage(by_hand) == 4 * 64 * 16
    whole = q.scaled_dot_product_attention(k, v)
    np.testing.assert_allclose(by_hand.numpy(), whole.numpy(), rtol=1e-4, atol=1e-5)


def test_bfloat16_rounds_as_without_actions() -> None:
    arrays = inputs(64, 192, 32)[:3]

    def result() -> Array:
        q, k, v = (Tensor(x).cast(dtypes.bfloat16) for x in arrays)
        out = q.scaled_dot_product_attention(k, v)
        return np.asarray(out.cast(dtypes.float32).numpy())

    got = result()
    with Context(optimize=False):
        plain = result()
    # a score on the edge between two numbers rounds the other way where its sum has another order
    np.testing.assert_allclose(got, plain, rtol=2**-7, atol=2e-3)


@pytest.mark.parametrize("place", ["query", "key", "value", "late value"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_come_out_as_without_actions(place: str, number: float) -> None:
    """Also of keys that the mask hides: 0 * NaN is NaN in every program."""
    q, k, v, _ = inputs(160, 160, 16)
    {"query": q, "key": k, "value": v, "late value": v}[place][
        0, 1, 150 if place == "late value" else 40, 3
    ] = number

    def result() -> Array:
        out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
        return np.asarray(out.numpy())

    got = result()
    with Context(optimize=False):
        plain = result()
    np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-5)


def test_rows_without_any_key_are_nan() -> None:
    q, k, v, _ = map(Tensor, inputs(64, 64, 16))
    keep = np.ones((64, 64), bool)
    keep[[3, 40]] = False
    out = q.scaled_dot_product_attention(k, v, attn_mask=Tensor(keep)).numpy()
    assert np.isnan(out[:, :, [3, 40]]).all()
    assert np.isfinite(np.delete(out, [3, 40], axis=2)).all()


# ---- long rows, by a small cache -----------------------------------------------------------------

SMALL_CACHE = 1 << 14
"""Bytes of a second cache that rows of a hundred keys do not fit."""


@pytest.fixture(params=["avx512f", "avx2"])
def small_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that makes attentions part by part, as others do that of many more keys."""
    here = machine_target()
    if not {request.param, "fma"} <= here.features:
        pytest.skip(f"this machine has no {request.param}")
    text = f"x86-64:{request.param},fma:cores=2,l2_bytes={SMALL_CACHE}"
    monkeypatch.setenv("PELLUCID_TARGET", text)


def blocks_of(*tensors: Tensor) -> tuple[set[tuple[int, ...]], int]:
    """How kernels make rows of scores (the third thing in a `block`), and their largest memory."""
    extras, largest = set(), 0
    for call in tensors[0].schedule_linear(*tensors[1:]).src:
        kernel = simplify_ranges(collapse_reductions(call.src[0], host_target()), host_target())
        plan = choose(kernel, host_target())
        found = {a.extra for a in plan.actions if a.kind == "block"}
        if found:
            sizes = (n.arg.size for n in plan.sink.toposort() if n.op is Ops.DEFINE)
            extras, largest = extras | found, max(largest, *sizes)
    return extras, largest


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
def test_no_kernel_keeps_a_row_of_scores(causal: bool, dtype: DType) -> None:
    """Neither forward nor backward, whether the result is known before its gradients or not."""
    keys, lanes = 512, host_target().max_lanes(4)
    shapes = [(1, 2, keys, 16)] * 4 + [(16, 16)]
    q, k, v, grad, w = (Tensor(np.ones(s, np.float32)).cast(dtype).realize() for s in shapes)
    out = q.scaled_dot_product_attention(k, v, is_causal=causal)
    loss = (out @ w).square().sum()
    gradients = (out * grad).sum().gradient(q, k, v)
    part = -(-keys // most_parts(keys)) + 64
    for tensors in ((out,), (out, *gradients), gradients, (loss, *loss.gradient(q, k, v))):
        extras, largest = blocks_of(*tensors)
        assert extras
        assert largest <= part * VECTORS * lanes < keys * VECTORS * lanes


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("seed", range(3))
def test_random_attentions_part_by_part(seed: int) -> None:
    """Shapes that no block divides, masks, whole rows that are hidden, and narrow floats."""
    numbers = np.random.default_rng(seed)
    rows, keys, width = (int(numbers.integers(*ends)) for ends in ((65, 100), (65, 140), (8, 17)))
    dtype = (dtypes.float32, dtypes.bfloat16, dtypes.float16)[seed]
    tolerance = (2e-5, 3e-2, 4e-3)[seed]
    hidden = numbers.random((rows, keys)) < 0.3
    hidden[numbers.integers(rows)] = seed % 2  # a whole row, or none of it
    arrays = [np.asarray(Tensor(x).cast(dtype).float().numpy()) for x in inputs(rows, keys, width)]

    def results() -> list[Array]:
        q, k, v, grad = (Tensor(x).cast(dtype).realize() for x in arrays)
        mask = {"is_causal": True} if seed == 2 else {"attn_mask": Tensor(~hidden)}
        out = q.scaled_dot_product_attention(k, v, **mask)  # type: ignore[arg-type]
        gradients = (out * grad).sum().gradient(q, k, v)
        Tensor.realize(out, *gradients)
        return [np.asarray(x.float().numpy()) for x in (out, *gradients)]

    found = results()
    with Context(optimize=False):
        plain = results()
    for got, want in zip(found, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
