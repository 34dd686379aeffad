"""Where the first call of a model spends its time: `python -m benchmarks.compile_time [MODEL ...]`.

    MLP training step                  CPU ms
      apply_actions                     112.3
      ...
      in all                            934.0

Each model runs in a process of its own, with empty caches. The times are CPU times of the process
by stage, without the stages inside: `graph` is what remains, that is building the graph, gradients
included; `run` is the first execution. Timing itself adds a few per cent.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import frameworks
from benchmarks.inputs import parameter_names
from benchmarks.work import works_like

MODELS = ("MLP training step", "CNN training step", "ResNet-18 forward", "GPT-2-small*")

STEPS: tuple[tuple[str, str, str], ...] = (
    ("pellucid.engine.realize", "schedule", "schedule: other"),
    ("pellucid.schedule.api", "normalise", "schedule: normalise"),
    ("pellucid.schedule.api", "find_plan", "schedule: assign_ranges"),
    ("pellucid.schedule.api", "order_drafts", "schedule: order_drafts"),
    ("pellucid.schedule.api", "share_kernels", "schedule: share_kernels"),
    ("pellucid.schedule.api", "cut_kernels", "schedule: cut_kernels"),
    ("pellucid.schedule.api", "plan_memory", "schedule: plan_memory"),
    ("pellucid.engine.realize", "compile_linear", "compile: other"),
    ("pellucid.engine.replay", "compile_linear", "compile: other"),
    ("pellucid.pipeline", "program_info", "program_info"),
    ("pellucid.pipeline", "linearize", "linearize"),
    ("pellucid.pipeline", "_compiled_together", "LLVM"),
    ("pellucid.engine.realize", "run_linear", "run"),
    ("pellucid.engine.known", "_run", "run"),
    ("pellucid.engine.prepared", "prepare", "load"),
)
"""Module, function, and the name under which its time is counted."""


class Clock:
    """CPU time by name; what happens inside of something else is taken off that."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.inside = [0.0]

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Count the time of a block under *name*."""
        self.inside.append(0.0)
        start = time.process_time()
        try:
            yield
        finally:
            whole = time.process_time() - start
            self.seconds[name] += whole - self.inside.pop()
            self.inside[-1] += whole

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give *function*, counted under *name*."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.time(name):
                return function(*args, **kwargs)

        return run


def watch(clock: Clock) -> None:
    """Let every step of this process be counted."""
    for module_name, function_name, name in STEPS:
        module = importlib.import_module(module_name)
        if hasattr(module, function_name):
            setattr(module, function_name, clock.timed(name, getattr(module, function_name)))
    pipeline: Any = importlib.import_module("pellucid.pipeline")
    pipeline.KERNEL_PIPELINE = tuple(
        replace(stage, run=clock.timed(stage.name, stage.run)) for stage in pipeline.KERNEL_PIPELINE
    )
    kind = type(pipeline.renderer_for("CPU"))
    kind.render = clock.timed("render", kind.render)


def times_of(model: str) -> dict[str, float]:
    """CPU seconds of each step of the first call of *model*, in this process."""
    clock = Clock()
    imported = time.process_time()
    framework = frameworks.start("pellucid-jit", len(os.sched_getaffinity(0)))
    watch(clock)
    imported = time.process_time() - imported
    (work,) = works_like([model])
    values = {n: framework.load(a, work.dtype) for n, a in work.arrays().items()}
    clock.seconds.clear()
    with clock.time("graph"):
        if work.is_training:
            framework.trained(work.function, values, parameter_names(values))()
        else:
            framework.prepared(work.function, values)()
    return dict(clock.seconds) | {"(imports, before)": imported}


def times_in_new_process(model: str) -> dict[str, float]:
    """As `times_of`, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--here", model]
    environment = os.environ | {"PELLUCID_CACHE_DIR": ""}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have bytecode
    folder = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def table(model: str, seconds: dict[str, float]) -> str:
    """Lines of a table, the slowest step first."""
    counted = {name: s for name, s in seconds.items() if not name.startswith("(")}
    lines = [f"{model:40}  CPU ms"]
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:38}{spent * 1e3:8.1f}")
    return "\n".join([*lines, f"  {'in all':38}{sum(counted.values()) * 1e3:8.1f}"])


def counts_of_chain(length: int) -> tuple[int, int]:
    """Rules tried and fired while a chain of *length* adds is scheduled and lowered."""
    pipeline: Any = importlib.import_module("pellucid.pipeline")
    statistics: Any = importlib.import_module("pellucid.ir.law").Statistics
    tensor: Any = importlib.import_module("pellucid").Tensor
    before = statistics.tried, statistics.fired
    first = tensor([1.0] * 4)
    x = first
    for _ in range(length):
        x = x + first
    for call in x.schedule_linear().src:
        pipeline.full_rewrite_to_sink(call.src[0], pipeline.renderer_for("CPU").target)
    return statistics.tried - before[0], statistics.fired - before[1]


def table_of_chains() -> str:
    """Counts for chains that double: they double too, as every pass is linear."""
    lines = [f"{'chain of adds':40}   tried   fired"]
    counts_of_chain(10)  # what the first use of a rule set costs belongs to no chain
    for length in (500, 1000, 2000, 4000):
        tried, fired = counts_of_chain(length)
        lines.append(f"  {length:<38}{tried:8}{fired:8}")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help="names of works, or patterns")
    parser.add_argument("--here", action="store_true", help="one model, in this process, as JSON")
    given = parser.parse_args()
    if given.here:
        print(json.dumps(times_of(given.models[0])))
        return
    for model in (work.name for work in works_like([name.lower() for name in given.models])):
        print(table(model, times_in_new_process(model)), flush=True)
    print(table_of_chains())


if __name__ == "__main__":
    main()
