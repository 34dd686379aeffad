"""One process that measures one framework: `python -m benchmarks.worker NAME THREADS`.

Requests come as JSON objects, one a line, on the standard input; each is answered by one line.

    {"do": "facts"}                                    version, threads, BLAS kernel
    {"do": "prepare", "work": W, "tiny": false}        load the inputs; time the first call
    {"do": "results", "folder": F, "calls": 3}         write results of the first calls as .npy
    {"do": "time", "seconds": 0.2}                     samples: seconds of a call
    {"do": "drop"}                                     forget the work
    {"do": "compile", "work": W}                       CPU seconds from SINK to loaded code
    {"do": "limits", "seconds": 1.0}                   the machine's own limits (Pellucid's worker)

An answer holds "error" when something failed, "unavailable" when it is not there. What libraries
print goes to the standard error stream, so that the pipe carries answers only.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import frameworks
from benchmarks.frameworks.base import Array, Framework, Step, Unavailable
from benchmarks.inputs import parameter_names
from benchmarks.work import Work, work_named

LEAST_SAMPLE_SECONDS = 2e-3
"""Calls that take less are timed several at a time."""

Answer = dict[str, Any]


def cpu_seconds() -> float:
    """Give the CPU time of this process, all its threads, and children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def samples_of(step: Step, seconds: float) -> list[float]:
    """Call *step* for about *seconds*; give the time of a call in each sample."""
    start = time.perf_counter()
    step()  # also brings caches and clocks back to work
    once = time.perf_counter() - start
    calls = max(1, round(LEAST_SAMPLE_SECONDS / max(once, 1e-7)))
    samples: list[float] = []
    while not samples or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        samples.append((time.perf_counter() - begin) / calls)
    return samples


class Worker:
    """A framework, and the work that is loaded."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.step: Step | None = None
        self.results: list[Array] = []

    def answer(self, request: dict[str, Any]) -> Answer:
        """Do what is asked."""
        name = request.pop("do")
        actions: dict[str, Callable[..., Answer]] = {
            "facts": self.facts,
            "prepare": self.prepare,
            "results": self.write_results,
            "time": self.time,
            "drop": self.drop,
            "compile": self.compile,
            "limits": self.limits,
        }
        return actions[name](**request)

    def facts(self) -> Answer:
        """Say what is measured."""
        return {"facts": self.framework.facts()}

    def _loaded(self, work: Work, *, is_tiny: bool) -> dict[str, Any]:
        arrays = work.arrays(is_tiny=is_tiny)
        return {name: self.framework.load(array, work.dtype) for name, array in arrays.items()}

    def prepare(self, work: str, tiny: bool = False) -> Answer:
        """Load the inputs, build the function, and call it once."""
        self.drop()
        chosen = work_named(work)
        values = self._loaded(chosen, is_tiny=tiny)
        start, start_cpu = time.perf_counter(), cpu_seconds()
        if chosen.is_training:
            step = self.framework.trained(chosen.function, values, parameter_names(values))
        else:
            step = self.framework.prepared(chosen.function, values)
        first = step()
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - start_cpu
        self.results = [self._copied(first)]
        self.step = step
        return {"first_seconds": seconds, "first_cpu_seconds": cpu}

    def _copied(self, value: Any) -> Array:
        return np.array(self.framework.to_numpy(value))

    def _ready(self) -> Step:
        if self.step is None:
            raise Unavailable("no work is prepared")
        return self.step

    def write_results(self, folder: str, calls: int) -> Answer:
        """Write the results of the first *calls* calls, for comparison."""
        step = self._ready()
        while len(self.results) < calls:
            self.results.append(self._copied(step()))
        paths = []
        for i, result in enumerate(self.results[:calls]):
            path = Path(folder) / f"{self.framework.name}-{i}.npy"
            np.save(path, result)
            paths.append(str(path))
        self.results = []
        return {"paths": paths}

    def time(self, seconds: float) -> Answer:
        """Measure for about *seconds*."""
        return {"samples": samples_of(self._ready(), seconds)}

    def drop(self) -> Answer:
        """Forget the work and its memory."""
        self.step, self.results = None, []
        return {}

    def compile(self, work: str, tiny: bool = False) -> Answer:
        """Measure a compilation, after another one has brought in all that is imported."""
        chosen, other = work_named(work), work_named("softmax 4096x1024")
        self.framework.compile_seconds(other.function, self._loaded(other, is_tiny=True))
        values = self._loaded(chosen, is_tiny=tiny)
        return {"cpu_seconds": self.framework.compile_seconds(chosen.function, values)}

    def limits(self, seconds: float, threads: int) -> Answer:
        """Measure what the machine can do at most."""
        from pellucid.runtime.limits import measured_limits

        return {"limits": measured_limits(threads, seconds)}


def serve(name: str, num_threads: int) -> None:
    """Answer requests until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        try:
            worker = worker or Worker(frameworks.start(name, num_threads))
            reply = worker.answer(json.loads(line))
        except Unavailable as error:
            reply = {"unavailable": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a framework raises is an answer
            reply = {"error": f"{type(error).__name__}: {str(error).strip()}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
