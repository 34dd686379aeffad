"""Everyday tensor work against PyTorch: `python -m benchmarks.survey [PATTERN ...]`.

    work                 pellucid     torch   ratio  first call
    one row for each work, the slowest ratio first

The bench (`python -m benchmarks`) measures a few works well; this looks at many, one call each as
users write it, to find what is slow beside the few. Both libraries compute in this process on one
thread, in turns; a figure is the least CPU time of a call, and the results must agree.

Status: 0 when it ran, whatever it found; 2 where PyTorch is missing or no work is like a pattern.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import pellucid.nn.functional as functional
from pellucid import Context, Tensor, jit

PEERS = Path(__file__).parent.parent / ".venv-peers"
"""Where `make bench-peers` installs PyTorch."""

Function = Callable[..., Any]
Shape = tuple[int, ...]

WORKS: dict[str, tuple[Function, tuple[Shape, ...]]] = {
    # elementwise
    "gelu 4M": (lambda f, x: f.gelu(x), ((4 << 20,),)),
    "tanh 4M": (lambda f, x: x.tanh(), ((4 << 20,),)),
    "sigmoid 4M": (lambda f, x: x.sigmoid(), ((4 << 20,),)),
    "log 4M": (lambda f, x: x.abs().log(), ((4 << 20,),)),
    "sin 4M": (lambda f, x: x.sin(), ((4 << 20,),)),
    "pow 4M": (lambda f, x: x.abs() ** 1.7, ((4 << 20,),)),
    "erf 4M": (lambda f, x: x.erf(), ((4 << 20,),)),
    "divide 4M": (lambda f, x, y: x / y, ((4 << 20,), (4 << 20,))),
    "where 4M": (lambda f, x, y: x.where(x > y, y), ((4 << 20,), (4 << 20,))),
    "clamp 4M": (lambda f, x: x.clamp(-1.0, 1.0), ((4 << 20,),)),
    "bias of rows": (lambda f, x, y: x + y, ((4096, 1024), (1024,))),
    "bias of channels": (lambda f, x, y: x + y, ((16, 64, 56, 56), (64, 1, 1))),
    "add 1000 small": (lambda f, x, y: x + y, ((1000,), (1000,))),
    # reductions
    "mean axis 0": (lambda f, x: x.mean(0), ((4096, 1024),)),
    "sum middle axis": (lambda f, x: x.sum(1), ((64, 256, 256),)),
    "sum first and last": (lambda f, x: x.sum((0, 2, 3)), ((32, 64, 28, 28),)),
    "max rows": (lambda f, x: x.amax(1), ((4096, 1024),)),
    "max columns": (lambda f, x: x.amax(0), ((4096, 1024),)),
    "argmax columns": (lambda f, x: x.argmax(0), ((4096, 1024),)),
    "argmax all": (lambda f, x: x.argmax(), ((4 << 20,),)),
    "var rows": (lambda f, x: x.var(1), ((4096, 1024),)),
    "var columns": (lambda f, x: x.var(0), ((4096, 1024),)),
    "std all": (lambda f, x: x.std(), ((4 << 20,),)),
    "norm rows": (lambda f, x: x.square().sum(1).sqrt(), ((4096, 1024),)),
    "logsumexp rows": (lambda f, x: x.logsumexp(1), ((4096, 1024),)),
    "logsumexp long": (lambda f, x: x.logsumexp(1), ((64, 50257),)),
    "prod rows": (lambda f, x: x.prod(1), ((4096, 1024),)),
    "any rows": (lambda f, x: (x > 3.0).any(1).float(), ((4096, 1024),)),
    "short rows sum": (lambda f, x: x.sum(1), ((1 << 20, 4),)),
    "short rows softmax": (lambda f, x: x.softmax(1), ((100000, 10),)),
    "softmax long": (lambda f, x: x.softmax(1), ((64, 50257),)),
    "softmax axis 1 of 4": (lambda f, x: x.softmax(1), ((16, 64, 56, 56),)),
    "log_softmax long": (lambda f, x: x.log_softmax(1), ((64, 50257),)),
    "rms norm": (
        lambda f, x: x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt(),
        ((4096, 1024),),
    ),
    "layer norm short": (lambda f, x: f.layer_norm(x, (64,)), ((65536, 64),)),
    "batch norm": (
        lambda f, x: (
            (x - x.mean((0, 2, 3), keepdim=True)) * (x.var((0, 2, 3), keepdim=True) + 1e-5).rsqrt()
        ),
        ((32, 64, 28, 28),),
    ),
    # scans and orders
    "cumsum columns": (lambda f, x: x.cumsum(0), ((4096, 1024),)),
    "cumsum all": (lambda f, x: x.cumsum(0), ((1 << 20,),)),
    "cumprod rows": (lambda f, x: x.cumprod(1), ((4096, 256),)),
    "sort rows": (lambda f, x: x.sort(1)[0], ((1024, 1024),)),
    "sort columns": (lambda f, x: x.sort(0)[0], ((1024, 256),)),
    "sort 100000": (lambda f, x: x.sort(0)[0], ((100000,),)),
    "argsort rows": (lambda f, x: x.gather(1, x.argsort(1)), ((1024, 256),)),
    "topk 5 of rows": (lambda f, x: x.topk(5, 1)[0], ((1024, 1000),)),
    # movement
    "transpose 1024": (lambda f, x: x.transpose(0, 1).contiguous(), ((1024, 1024),)),
    "transpose heads": (
        lambda f, x: x.transpose(1, 2).contiguous(),
        ((8, 512, 12, 64),),
    ),
    "permute to channels last": (
        lambda f, x: x.permute(0, 2, 3, 1).contiguous(),
        ((16, 64, 56, 56),),
    ),
    "flip rows": (lambda f, x: x.flip((1,)), ((4096, 1024),)),
    "roll rows": (lambda f, x: x.roll(100, 1), ((4096, 1024),)),
    "pad images": (lambda f, x: f.pad(x, (1, 1, 1, 1)), ((16, 64, 56, 56),)),
    "slice step 2": (lambda f, x: x[:, ::2] * 1.0, ((4096, 1024),)),
    "repeat": (lambda f, x: x.repeat(1, 4), ((1024, 1024),)),
    "tril": (lambda f, x: x.tril(), ((2048, 2048),)),
    "triu sum": (lambda f, x: x.triu().sum(1), ((2048, 2048),)),
    "diagonal": (lambda f, x: x.diagonal() * 2.0, ((2048, 2048),)),
    "unfold windows": (lambda f, x: x.unfold(0, 64, 16).mean(1), ((1 << 20,),)),
    # products
    "matmul 32": (lambda f, x, y: x @ y, ((32, 32), (32, 32))),
    "matmul 100": (lambda f, x, y: x @ y, ((100, 100), (100, 100))),
    "matmul 384": (lambda f, x, y: x @ y, ((384, 384), (384, 384))),
    "matmul a.T b": (lambda f, x, y: x.T @ y, ((512, 512), (512, 512))),
    "matmul a b.T": (lambda f, x, y: x @ y.T, ((512, 512), (512, 512))),
    "matmul tall": (lambda f, x, y: x @ y, ((65536, 64), (64, 64))),
    "matmul thin": (lambda f, x, y: x @ y, ((4096, 1024), (1024, 8))),
    "matmul outer": (lambda f, x, y: x @ y, ((1024, 8), (8, 1024))),
    "matmul few rows": (lambda f, x, y: x @ y, ((8, 1024), (1024, 4096))),
    "matvec right": (lambda f, x, y: x @ y, ((4096, 1024), (1024,))),
    "vec dot": (lambda f, x, y: (x * y).sum(), ((4 << 20,), (4 << 20,))),
    "batched heads": (
        lambda f, x, y: x @ y.transpose(-2, -1),
        ((8, 12, 128, 64), (8, 12, 128, 64)),
    ),
    "einsum bij,bjk": (
        lambda f, x, y: f.einsum("bij,bjk->bik", x, y),
        ((16, 128, 128), (16, 128, 128)),
    ),
    "linear relu": (lambda f, x, w: f.linear(x, w).relu(), ((128, 784), (512, 784))),
    "cdist": (
        lambda f, x, y: x.square().sum(1, keepdim=True) - 2.0 * (x @ y.T) + y.square().sum(1),
        ((1024, 64), (1024, 64)),
    ),
    "cosine similarity": (
        lambda f, x, y: (
            (x / x.square().sum(1, keepdim=True).sqrt())
            @ (y / y.square().sum(1, keepdim=True).sqrt()).T
        ),
        ((1024, 64), (1024, 64)),
    ),
    # convolutions
    "conv 1x1": (lambda f, x, w: f.conv2d(x, w), ((8, 64, 56, 56), (128, 64, 1, 1))),
    "conv 7x7 stride 2": (
        lambda f, x, w: f.conv2d(x, w, stride=2, padding=3),
        ((1, 3, 224, 224), (64, 3, 7, 7)),
    ),
    "conv 3x3 stride 2": (
        lambda f, x, w: f.conv2d(x, w, stride=2, padding=1),
        ((8, 64, 56, 56), (128, 64, 3, 3)),
    ),
    "conv 5x5": (lambda f, x, w: f.conv2d(x, w), ((64, 1, 28, 28), (32, 1, 5, 5))),
    "conv groups 4": (
        lambda f, x, w: f.conv2d(x, w, padding=1, groups=4),
        ((8, 64, 28, 28), (64, 16, 3, 3)),
    ),
    "conv dilated": (
        lambda f, x, w: f.conv2d(x, w, dilation=2),
        ((4, 32, 56, 56), (32, 32, 3, 3)),
    ),
    "conv1d": (lambda f, x, w: f.conv1d(x, w), ((8, 64, 1024), (64, 64, 5))),
    "conv3d": (lambda f, x, w: f.conv3d(x, w), ((1, 8, 16, 32, 32), (16, 8, 3, 3, 3))),
    "conv transposed": (
        lambda f, x, w: f.conv_transpose2d(x, w, stride=2),
        ((4, 64, 28, 28), (64, 32, 2, 2)),
    ),
    "avg pool": (lambda f, x: f.avg_pool2d(x, 2), ((16, 64, 56, 56),)),
    "max pool 3 stride 2": (
        lambda f, x: f.max_pool2d(x, 3, stride=2, padding=1),
        ((8, 64, 112, 112),),
    ),
    "global pool": (lambda f, x: x.mean((2, 3)), ((32, 512, 7, 7),)),
    # gradients of the sum of squares, by each input
    "gradients: linear": (
        lambda f, x, w: f.gradients(f.linear(x, w), x, w),
        ((128, 784), (512, 784)),
    ),
    "gradients: layer norm": (
        lambda f, x: f.gradients(f.layer_norm(x, (768,)), x),
        ((1024, 768),),
    ),
    "gradients: softmax": (lambda f, x: f.gradients(x.softmax(1), x), ((1024, 1024),)),
    "gradients: gelu": (lambda f, x: f.gradients(f.gelu(x), x), ((1 << 20,),)),
    "gradients: conv 3x3": (
        lambda f, x, w: f.gradients(f.conv2d(x, w, padding=1), x, w),
        ((8, 64, 28, 28), (64, 64, 3, 3)),
    ),
    "gradients: conv 3x3 stride 2": (
        lambda f, x, w: f.gradients(f.conv2d(x, w, stride=2, padding=1), x, w),
        ((8, 64, 28, 28), (128, 64, 3, 3)),
    ),
    "gradients: conv 7x7 stride 2": (
        lambda f, x, w: f.gradients(f.conv2d(x, w, stride=2, padding=3), x, w),
        ((4, 3, 112, 112), (64, 3, 7, 7)),
    ),
    "gradients: conv 1x1 stride 2": (
        lambda f, x, w: f.gradients(f.conv2d(x, w, stride=2), x, w),
        ((8, 64, 28, 28), (128, 64, 1, 1)),
    ),
    "gradients: conv patches": (
        lambda f, x, w: f.gradients(f.conv2d(x, w, stride=16), x, w),
        ((4, 3, 224, 224), (192, 3, 16, 16)),
    ),
    "gradients: depthwise": (
        lambda f, x, w: f.gradients(f.conv2d(x, w, padding=1, groups=96), x, w),
        ((8, 96, 28, 28), (96, 1, 3, 3)),
    ),
    "gradients: max pool": (
        lambda f, x: f.gradients(f.max_pool2d(x, 2), x),
        ((8, 64, 56, 56),),
    ),
    "gradients: max pool 3 stride 2": (
        lambda f, x: f.gradients(f.max_pool2d(x, 3, stride=2, padding=1), x),
        ((8, 64, 56, 56),),
    ),
    "gradients: avg pool": (
        lambda f, x: f.gradients(f.avg_pool2d(x, 2), x),
        ((8, 64, 56, 56),),
    ),
    "gradients: attention": (
        lambda f, q, k, v: f.gradients(f.scaled_dot_product_attention(q, k, v), q, k, v),
        ((1, 8, 512, 64), (1, 8, 512, 64), (1, 8, 512, 64)),
    ),
    "gradients: cumsum": (lambda f, x: f.gradients(x.cumsum(1), x), ((1024, 1024),)),
    # attention
    "attention 1 query": (
        lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v),
        ((1, 12, 1, 64), (1, 12, 1024, 64), (1, 12, 1024, 64)),
    ),
    "attention 197": (
        lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v),
        ((4, 12, 197, 64), (4, 12, 197, 64), (4, 12, 197, 64)),
    ),
    "attention 2048": (
        lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v),
        ((1, 4, 2048, 64), (1, 4, 2048, 64), (1, 4, 2048, 64)),
    ),
}
"""Name -> what is computed, of (functions of torch.nn.functional's names, inputs), and the shapes
of the inputs (float32, normally distributed)."""


@cache
def import_torch() -> Any:
    """PyTorch, from where it is installed for the bench."""
    sys.path.extend(map(str, PEERS.glob("lib/python*/site-packages")))
    return importlib.import_module("torch")


def turn_seconds(call: Callable[[], Any], calls: int) -> float:
    """CPU seconds of a call in this process, the mean of *calls*."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def least(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The least CPU time of each of *calls*, measured in turns for about *seconds*."""
    once = [max(turn_seconds(call, 1), 1e-7) for call in calls]
    counts = [max(1, round(2e-3 / each)) for each in once]
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for i, call in enumerate(calls):
            best[i] = min(best[i], turn_seconds(call, counts[i]))
        rounds += 1
    return best


class _TorchFunctions:
    """Functions of torch under one roof, as `pellucid.nn.functional` has them."""

    def gradients(self, value: Any, *inputs: Any) -> Any:
        torch = import_torch()
        with torch.enable_grad():
            return torch.autograd.grad(value.square().sum(), inputs)

    def __getattr__(self, name: str) -> Any:
        torch = import_torch()
        return getattr(torch.nn.functional, name, None) or getattr(torch, name)


class _OurFunctions:
    def gradients(self, value: Any, *inputs: Any) -> Any:
        return value.square().sum().gradient(*inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name, None) or getattr(Tensor, name)


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def problem_of(result: Any, expected: Any) -> str:
    """What is wrong with a result; nothing where it is right."""
    if result.shape != expected.shape:
        return f"shape {result.shape}, torch {expected.shape}"
    bound = 1e-3 * max(1.0, float(np.abs(expected).max()))
    is_near = float(np.abs(result - expected).max()) <= bound  # False for a NaN
    return "" if is_near else "values differ"


def survey(name: str, seconds: float) -> tuple[float, float, float, str]:
    """Seconds of a call of ours and of torch's, of our first call, and what differs."""
    torch = import_torch()
    function, shapes = WORKS[name]
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]
    ours = [Tensor(array).realize() for array in arrays]
    theirs = [torch.from_numpy(array) for array in arrays]
    ours_of, theirs_of = _OurFunctions(), _TorchFunctions()
    step = jit(lambda *inputs: function(ours_of, *inputs))

    def call() -> Any:
        return function(theirs_of, *theirs)

    start = time.process_time()
    results = [np.asarray(result.numpy()) for result in _each(step(*ours))]
    first = time.process_time() - start
    with torch.set_grad_enabled(name.startswith("gradients")):
        for tensor in theirs:
            tensor.requires_grad_(name.startswith("gradients"))
        expected = [value.detach().numpy() for value in _each(call())]
        for _ in range(2):
            step(*ours)
        mine, its = least([lambda: step(*ours), call], seconds)
    problems = map(problem_of, results, expected)
    return mine, its, first, next(filter(None, problems), "")


def text_of(seconds: float) -> str:
    """Three digits, with the unit that suits."""
    for unit, scale in (("s ", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    return ""


def main(patterns: list[str]) -> int:
    """Measure and print all works whose names hold one of *patterns*."""
    names = [n for n in WORKS if not patterns or any(p in n for p in patterns)]
    if not names:
        print(f"no work is like {', '.join(patterns)}; there are {', '.join(WORKS)}")
        return 2
    try:
        torch = import_torch()
    except ImportError as error:
        print(f"the survey needs PyTorch ({error}): make bench-peers installs it")
        return 2
    torch.set_num_threads(1)
    rows = []
    with Context(threads=1), torch.no_grad():
        for name in names:
            try:
                rows.append((name, *survey(name, 0.3)))
            except Exception as error:  # noqa: BLE001 - a work that fails is a row of the table
                text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                rows.append((name, float("inf"), 1.0, 0.0, text))
    print(f"{'work':28}{'pellucid':>10}{'torch':>10}{'ratio':>8}{'first call':>12}")
    for name, mine, its, first, problem in sorted(rows, key=lambda row: -row[1] / row[2]):
        figures = f"{text_of(mine):>10}{text_of(its):>10}{mine / its:8.2f}{text_of(first):>12}"
        print(f"{name:28}{figures}  {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
