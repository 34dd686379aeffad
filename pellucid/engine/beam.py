"""Search for the actions of a kernel by measuring candidates on this machine, and remember them.

    searched(ast, "CPU")   ->   SearchReport(actions=(Action('lanes', 1, 16), …), seconds=…)
                           ->   None, where there is nothing to search: the heuristic decides

A candidate goes through the passes, is compiled and run by a child process (runtime/measuring.py),
on buffers of the child's own, and counts only if what it computes is what plain loops compute: in
every bit, or, where floats are added up, within what another order may change. (Where plain loops
would take too long, the heuristic's choice says what is right.) A result is kept in
memory and on disk, by the kernel, the renderer with its target, the options that change code and
the version of the compiler; only what was measured and compared gets there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pellucid.codegen.linearize import linearize
from pellucid.codegen.program_info import program_info
from pellucid.core import observe
from pellucid.core.errors import PellucidError
from pellucid.core.options import code_key, current_options
from pellucid.engine.progress import progress
from pellucid.ir.arg import KernelInfo, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.apply_actions import kernel_name
from pellucid.opt.searching.estimate import estimated_us
from pellucid.opt.searching.report import SearchReport
from pellucid.opt.searching.rounding import adds_floats, longest_sum
from pellucid.opt.searching.search import SEARCH_VERSION, Dropped, Limits, search
from pellucid.pipeline import KERNEL_PIPELINE, compiler_version, renderer_for, run_stages
from pellucid.render import Renderer
from pellucid.runtime.device import Device
from pellucid.runtime.diskcache import content_key, current_cache
from pellucid.runtime.measuring import Code, MeasuringProcess, NotMeasuredError

MOST_BYTES: Final = 1 << 30
"""Kernels that touch more memory are left to the heuristic."""
SLOW_REFERENCE_US: Final = 200_000.0
"""Plain loops that would take longer are not run."""
_EPSILONS: Final = 8.0
"""How many epsilons results may differ by, times the root of the number of terms."""

_CHOICE: Final = "apply_actions"
_BEFORE = tuple(itertools.takewhile(lambda stage: stage.name != _CHOICE, KERNEL_PIPELINE))
_CHOICE_STAGE, *_BEHIND = KERNEL_PIPELINE[len(_BEFORE) :]

_found: dict[str, SearchReport] = {}


def searched(ast: UOp, device: str) -> SearchReport | None:
    """The result of a search for a kernel: of one made before, or of one made now."""
    if not _can_search(ast, device):
        return None
    renderer = renderer_for(device)
    key = _key(ast, renderer)
    report = _found.get(key) or _from_disk(key)
    if report is None:
        report = _search(ast, renderer, f"CPU:{renderer.name.upper()}")
        if report is not None:
            current_cache().put(key, report.to_json().encode())
    if report is not None:
        _found[key] = report
        if observe.watching:
            observe.decision("search", ast, report.sentence())
    return report


def remembered(ast: UOp, device: str) -> SearchReport | None:
    """The result of a search that this process made or read, if there is one."""
    return _found.get(_key(_without_actions(ast), renderer_for(device)))


def forget_searches() -> None:
    """Empty the memory of results (for tests)."""
    _found.clear()


def _can_search(ast: UOp, device: str) -> bool:
    nodes = ast.toposort()
    size_bytes = sum(n.dtype.itemsize * n.arg.size for n in nodes if n.op is Ops.PARAM)
    is_free = not ast.arg.ordered and not any(n.op is Ops.VARIABLE for n in nodes)
    return is_free and size_bytes <= MOST_BYTES and Device.canonical(device) != "NULL"


def _without_actions(ast: UOp) -> UOp:
    """The kernel as the schedule made it, asking for nothing."""
    info: KernelInfo = ast.arg
    return ast.replace(arg=replace(info, actions=None, applied=()))


def _key(ast: UOp, renderer: Renderer) -> str:
    options = current_options().with_changes(actions="")
    parts = [ast.key, type(renderer).__name__, renderer.key, SEARCH_VERSION, code_key(options)]
    return content_key("search", compiler_version(), json.dumps(parts, default=str))


def _from_disk(key: str) -> SearchReport | None:
    payload = current_cache().get(key)
    if payload is None:
        return None
    return SearchReport.from_json(payload.decode(errors="replace"))


# ---- one search -------------------------------------------------------------------------------


def _search(ast: UOp, renderer: Renderer, device: str) -> SearchReport | None:
    """Search now; None, with the reason as a decision, where that is not possible."""
    width = current_options().beam
    limits = Limits.for_width(width)
    sink = run_stages(_BEFORE, ast, renderer.target)
    bench, name = Bench(sink, renderer, device), kernel_name(sink)
    with bench.child, progress("search", f"searching for {name}", limits.candidates) as advance:

        def show(done: int, _: int, best: float) -> None:
            advance(done, f"searching for {name}, now {best * 1e6:.1f} us")

        try:
            bench.set_reference()
            return search(
                sink,
                renderer.target,
                bench.measure,
                width=width,
                limits=limits,
                prepare=bench.prepare,
                progress=show,
            )
        except Dropped as problem:
            if observe.watching:
                observe.decision("search", ast, f"the heuristic decides: {problem}")
            return None


class Bench:
    """Where the candidates for one kernel are measured."""

    def __init__(self, sink: UOp, renderer: Renderer, device: str) -> None:
        self.sink, self.renderer = sink, renderer
        self.child = MeasuringProcess(device, params_of(sink))
        self.tolerances = tolerances_for(sink)
        self.best = math.inf
        self.codes: dict[UOp, Code | Dropped] = {}

    def set_reference(self) -> None:
        """Run what others are compared with: plain loops, if they are quick. Errors: Dropped."""
        target, name, sink = self.renderer.target, "plain loops", self.sink
        if estimated_us(sink, target) > SLOW_REFERENCE_US:
            name, sink = "the heuristic's choice", run_stages((_CHOICE_STAGE,), sink, target)
        try:
            self.child.set_reference(self.code(sink))
        except NotMeasuredError as problem:
            raise Dropped(problem.kind, f"{name}: {problem.reason}") from problem

    def prepare(self, candidates: Sequence[UOp]) -> None:
        """Lower what will be measured next, while the child compiles what is lowered already."""
        for candidate in candidates:
            with contextlib.suppress(Dropped):  # `measure` says so
                self.child.prepare(self.code(candidate))

    def measure(self, candidate: UOp) -> float:
        """Seconds of one run of a kernel with its actions applied. Errors: Dropped."""
        enough = 3 * self.best if self.best < math.inf else 0.0
        try:
            seconds = self.child.measure(self.code(candidate), self.tolerances, enough_s=enough)
        except NotMeasuredError as problem:
            raise Dropped(problem.kind, problem.reason) from problem
        self.best = min(self.best, seconds)
        return seconds

    def code(self, candidate: UOp) -> Code:
        """Lower and render, once for each candidate. Errors: Dropped."""
        if candidate not in self.codes:
            try:
                self.codes[candidate] = self._lowered(candidate)
            except Dropped as problem:
                self.codes[candidate] = problem
        found = self.codes[candidate]
        if isinstance(found, Dropped):
            raise found
        return found

    def _lowered(self, candidate: UOp) -> Code:
        target = self.renderer.target
        try:
            lowered = run_stages(tuple(_BEHIND), candidate, target)
            info: ProgramInfo = program_info(lowered, target)
            source = self.renderer.render(linearize(lowered), info)
        except (PellucidError, RecursionError) as problem:
            raise Dropped("not lowered", f"{type(problem).__name__}: {problem}") from problem
        return Code(
            source,
            info.name,
            len(info.param_sizes),
            info.writes,
            info.num_threads,
            info.scratch_bytes,
        )


def params_of(sink: UOp) -> list[tuple[str, int]]:
    """Dtype name and size of the parameters of a kernel, by slot."""
    found: dict[int, Any] = {n.arg.slot: n for n in sink.toposort() if n.op is Ops.PARAM}
    slots = range(max(found, default=-1) + 1)
    return [(found[s].dtype.name, found[s].arg.size) if s in found else ("uint8", 0) for s in slots]


def tolerances_for(sink: UOp) -> list[float | None]:
    """For each parameter, how far a float may be off; None where every bit must agree."""
    nodes = sink.toposort()
    dtypes_ = {n.arg.slot: n.dtype for n in nodes if n.op is Ops.PARAM}
    slots = range(max(dtypes_, default=-1) + 1)
    if not adds_floats(sink):
        return [None for _ in slots]
    epsilons = _EPSILONS * (2 + math.sqrt(longest_sum(sink)))
    return [
        epsilons * dtypes_[s].epsilon if s in dtypes_ and dtypes_[s].is_float else None
        for s in slots
    ]
