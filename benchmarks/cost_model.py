"""How well the cost model of the search ranks plans: its estimates against measured times.

    python -m benchmarks.cost_model                       a dozen kernels, 12 plans of each
    python -m benchmarks.cost_model --only conv --plans 30 --show

For each kernel, plans are the heuristic's, plain loops, and lists that a search would try next,
drawn by chance (the same in every run). They are measured as in a search: in a child process, one
thread, by its own clock. Printed are the rank correlation of Spearman (1: the same order), and how
many times as long as the fastest plan that one takes which the model likes best.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pellucid import Context, Tensor
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.engine.beam import _BEFORE, Bench
from pellucid.ir.arg import Action
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.searching.estimate import estimated_us
from pellucid.opt.searching.moves import Actions, Moves
from pellucid.opt.searching.search import MOST_NODES, Dropped, num_expanded
from pellucid.pipeline import renderer_for, run_stages
from pellucid.tools.kernels import kernels_of

DEVICE: Final = "CPU:LLVM"


def _numbers(*shape: int) -> Tensor:
    made = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)
    return Tensor(made).realize()


def _layer_norm(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()


WORKS: Final[dict[str, Callable[[], Tensor]]] = {
    "matmul 256": lambda: _numbers(256, 256) @ _numbers(256, 256),
    "matmul 64x512x100": lambda: _numbers(64, 512) @ _numbers(512, 100),
    "row times matrix": lambda: _numbers(1, 1024) @ _numbers(1024, 1024),
    "conv 3x3": lambda: _numbers(1, 32, 28, 28).conv2d(_numbers(32, 32, 3, 3)),
    "max pool": lambda: _numbers(1, 32, 56, 56).max_pool2d(2),
    "softmax": lambda: _numbers(256, 1000).softmax(-1),
    "layer norm": lambda: _layer_norm(_numbers(256, 768)),
    "sum of all": lambda: _numbers(1000, 1000).sum(),
    "sums of rows": lambda: _numbers(1000, 1000).sum(1),
    "sums of columns": lambda: _numbers(1000, 1000).sum(0),
    "transpose": lambda: _numbers(512, 700).transpose(0, 1).contiguous(),
    "elementwise": lambda: (_numbers(300_000) * 2 + 1).relu(),
    "gelu": lambda: _numbers(300_000).gelu(),
}


@dataclass(frozen=True)
class Point:
    """One plan: what the model says, and what was measured."""

    actions: Actions
    estimate_us: float
    measured_us: float


def plans_of(sink: UOp, target: Target, count: int, numbers: random.Random) -> list[UOp]:
    """The heuristic's plan, plain loops, and others that a search would try."""

    def apply(kernel: UOp, action: Action) -> UOp:
        return apply_action(kernel, action, target)

    def chosen_for(kernel: UOp) -> Actions:
        return tuple(choose(kernel, target).actions)

    chosen = chosen_for(sink)
    moves = Moves(sink, target, apply, chosen_for)
    found = [made for _, made in moves.after(chosen)]
    numbers.shuffle(found)
    plans: dict[UOp, None] = {}
    for actions in (chosen, (), *found):
        if len(plans) == count:
            break
        with contextlib.suppress(ActionError):
            after = sink
            for action in actions:
                after = apply(after, action)
            if num_expanded(after) <= MOST_NODES:
                info = dataclasses.replace(after.arg, actions=actions, applied=actions)
                plans[after.replace(arg=info)] = None
    return list(plans)


def points_of(tensor: Tensor, count: int, seed: int) -> Iterator[Point]:
    """Measure plans of the last kernel that computes *tensor*."""
    renderer = renderer_for(DEVICE)
    ast = kernels_of([tensor.schedule_linear()])[-1].ast
    sink = run_stages(_BEFORE, ast, renderer.target)
    bench = Bench(sink, renderer, DEVICE)
    with bench.child:
        bench.set_reference()
        for plan in plans_of(sink, renderer.target, count, random.Random(seed)):
            with contextlib.suppress(Dropped):
                seconds = bench.measure(plan)
                yield Point(plan.arg.applied, estimated_us(plan, renderer.target), seconds * 1e6)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """The correlation of the ranks of two lists (Spearman); equal values share a rank.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.8
    """
    ranks = np.array([_ranks(left), _ranks(right)])
    if ranks.std(axis=1).min() == 0:
        return 0.0
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    array = np.asarray(values)
    return [float((array < v).sum() + ((array == v).sum() - 1) / 2) for v in array]


def main() -> None:
    """Measure, and print a line for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="works whose name holds this")
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="each plan, the fastest first")
    given = parser.parse_args()
    found: list[float] = []
    print(f"{'kernel':20} plans  correlation  the model's choice")
    with Context(threads=1, cache_dir=""):
        for name, make in WORKS.items():
            if given.only not in name:
                continue
            points = list(points_of(make(), given.plans, given.seed))
            found.append(_report(name, points, show=given.show))
    if len(found) > 1:
        print(f"{'mean':20} {'':5}  {np.mean(found):11.2f}")


def _report(name: str, points: Sequence[Point], *, show: bool) -> float:
    estimates = [point.estimate_us for point in points]
    measured = [point.measured_us for point in points]
    correlation = rank_correlation(estimates, measured)
    liked = min(points, key=lambda point: point.estimate_us).measured_us / min(measured)
    print(f"{name:20} {len(points):5}  {correlation:11.2f}  {liked:.2f} times the fastest")
    for point in sorted(points, key=lambda point: point.measured_us) if show else ():
        listed = ", ".join(map(repr, point.actions)) or "plain loops"
        print(f"    {point.measured_us:9.1f} us, estimated {point.estimate_us:9.1f}: {listed}")
    return correlation


if __name__ == "__main__":
    main()
