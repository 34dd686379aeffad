"""The facts of each kernel of a program: its origin, what every stage did, its code and time.

    LINEAR of CALLs  ->  kernels_of(linear, renderer)  ->  [Kernel(number=1, calls=3, reason=…), …]
    study(kernel.ast, renderer)                        ->  Study(program, stages, decisions, error)

`study` compiles a kernel again, from its AST, with observers that listen: what it reports is what
the compiler did, not a description kept beside it. A stage that fails ends the study with the
stages before it, and the error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from statistics import median
from typing import Any, Final

import numpy as np

from pellucid import pipeline
from pellucid.core.dtype import DType, dtypes, parse_dtype
from pellucid.core.errors import PellucidError
from pellucid.core.observe import (
    DecisionEvent,
    DeclineEvent,
    Observer,
    RewriteEvent,
    observed_by,
)
from pellucid.core.options import Context
from pellucid.core.records import dataclass
from pellucid.ir.arg import CallInfo, KernelInfo, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render import Renderer
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device
from pellucid.runtime.elf import DamagedObjectError, read_object
from pellucid.runtime.limits import clock_of

Array = np.ndarray[Any, Any]

_LEAST_SECONDS: Final = 0.02
_MOST_RUNS: Final = 1000


@dataclass(frozen=True)
class StageRecord:
    """What one stage did to a kernel, and which laws and rules did it."""

    name: str
    before: UOp
    after: UOp
    seconds: float
    rewrites: tuple[RewriteEvent, ...]
    declines: tuple[DeclineEvent, ...]

    @property
    def laws(self) -> Counter[str]:
        """How often each law or rule fired."""
        return Counter(event.law for event in self.rewrites)


@dataclass(frozen=True)
class Study:
    """One compilation of one kernel; without a PROGRAM there is the error that ended it."""

    ast: UOp
    program: UOp | None
    stages: tuple[StageRecord, ...]
    decisions: tuple[DecisionEvent, ...]
    error: PellucidError | None = None

    @property
    def info(self) -> ProgramInfo:
        """The facts of the PROGRAM."""
        assert self.program is not None, "a study that failed has no program"
        info: ProgramInfo = self.program.arg
        return info

    def part(self, op: Any) -> UOp:
        """The source of the PROGRAM that is its SINK, LINEAR, SOURCE or BINARY."""
        assert self.program is not None, "a study that failed has no program"
        return next(source for source in self.program.src if source.op is op)

    @property
    def seconds(self) -> float:
        """How long all stages took together."""
        return sum(stage.seconds for stage in self.stages)


class _Listener(Observer):
    """Sorts what it hears by the stage that it belongs to."""

    def __init__(self) -> None:
        self.stages: list[StageRecord] = []
        self.decisions: list[DecisionEvent] = []
        self._rewrites: list[RewriteEvent] = []
        self._declines: list[DeclineEvent] = []

    def on_stage(self, name: str, before: object, after: object, seconds: float) -> None:
        if isinstance(before, UOp) and isinstance(after, UOp):
            rewrites, declines = tuple(self._rewrites), tuple(dict.fromkeys(self._declines))
            self.stages.append(StageRecord(name, before, after, seconds, rewrites, declines))
        self._rewrites, self._declines = [], []

    def on_rewrite(self, law: str, before: object, after: object) -> None:
        self._rewrites.append(RewriteEvent(law, before, after))

    def on_decline(self, law: str, reason: str, node: object) -> None:
        self._declines.append(DeclineEvent(law, reason, node))

    def on_decision(self, kind: str, what: object, reason: str) -> None:
        self.decisions.append(DecisionEvent(kind, what, reason))


def study(ast: UOp, renderer: Renderer) -> Study:
    """Compile a kernel from its AST, without any cache, and record what happens."""
    listener = _Listener()
    program, failure = None, None
    with observed_by(listener), Context(cache_dir=""):
        try:
            program = pipeline.do_to_program(ast, renderer)
        except PellucidError as error:
            failure = error
    stages, decisions = tuple(listener.stages), tuple(listener.decisions)
    return Study(ast, program, stages, decisions, failure)


@dataclass
class Kernel:
    """A kernel of a program: its AST, the reason of its being, and how often it is called."""

    number: int
    ast: UOp
    calls: int = 0
    reasons: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name that the schedule gave it."""
        info = self.ast.arg
        return info.name if isinstance(info, KernelInfo) else "kernel"


def kernels_of(linears: Sequence[UOp]) -> list[Kernel]:
    """The distinct kernels that schedules call, in the order of their first call."""
    found: dict[UOp, Kernel] = {}
    for linear in linears:
        for call in linear.src:
            ast = call.src[0] if call.src else call
            if call.op is not Ops.CALL or ast.op is not Ops.SINK:
                continue
            kernel = found.setdefault(ast, Kernel(len(found) + 1, ast))
            kernel.calls += 1
            if isinstance(call.arg, CallInfo):
                _add_new(kernel.reasons, [call.arg.reason] if call.arg.reason else [])
                _add_new(kernel.lines, call.arg.lines)
    return list(found.values())


def _add_new(known: list[str], more: Sequence[str]) -> None:
    known.extend(text for text in dict.fromkeys(more) if text not in known)


class ScheduleCollector(Observer):
    """Collects the schedules that a program compiles, without their buffers, which may go."""

    def __init__(self) -> None:
        self.linears: list[UOp] = []

    def on_decision(self, kind: str, what: object, reason: str) -> None:
        if kind == "schedule" and isinstance(what, UOp):
            calls = [call.with_sources(call.src[:1]) for call in what.src]
            self.linears.append(what.with_sources(tuple(calls)))


def num_copies(linears: Sequence[UOp]) -> int:
    """How many CALLs of schedules are copies between devices."""
    calls = [call for linear in linears for call in linear.src]
    return sum(1 for call in calls if call.src and call.src[0].op is Ops.COPY)


def code_bytes(binary: bytes) -> int:
    """Bytes of machine instructions in an object; of the whole where it is no ELF object.

    >>> code_bytes(b"not an object")
    13
    """
    try:
        sections = read_object(binary).sections
    except DamagedObjectError:
        return len(binary)
    return sum(s.size for s in sections if s.name.startswith(".text"))


# ---- running a kernel apart from its program --------------------------------------------------


@dataclass(frozen=True)
class Param:
    """A parameter of a kernel: its type and how many elements it has."""

    dtype: DType
    size: int


def params_of(ast: UOp) -> list[Param]:
    """The parameters of a kernel by slot; a slot that it does not use is empty.

    >>> from pellucid.ir.arg import ParamArg
    >>> params_of(UOp.sink(UOp(Ops.PARAM, dtypes.int8, (), ParamArg(0, 3))))
    [Param(dtype=dtypes.int8, size=3)]
    """
    found = {n.arg.slot: Param(n.dtype, n.arg.size) for n in ast.toposort() if n.op is Ops.PARAM}
    nothing = Param(dtypes.uint8, 0)
    return [found.get(slot, nothing) for slot in range(max(found, default=-1) + 1)]


def buffers_for(info: ProgramInfo, device: str) -> list[Buffer]:
    """Fresh buffers of zeros for a PROGRAM's parameters."""
    made = []
    for name, size in zip(info.param_dtypes, info.param_sizes, strict=True):
        dtype = dtypes.uint8 if name == "void" else parse_dtype(name)
        buffer = Buffer(device, size, dtype)
        buffer.as_numpy()[:] = 0
        made.append(buffer)
    return made


def run_seconds(program: UOp, device: str) -> float | None:
    """Median time of a run on buffers of its own; None where it cannot run."""
    info: ProgramInfo = program.arg
    if info.variables or Device.canonical(device) == "NULL":
        return None
    binary = next(source.arg for source in program.src if source.op is Ops.BINARY)
    loaded = Device[device].load(binary, info.name)
    try:
        buffers = buffers_for(info, device)
    except MemoryError:
        return None
    call = loaded.bind(buffers, info.num_threads, info.scratch_bytes)
    call.run()  # pages are touched, code is in cache
    clock = clock_of(info.num_threads)
    times: list[float] = []
    while sum(times) < _LEAST_SECONDS and len(times) < _MOST_RUNS:
        start = clock()
        call.run()
        times.append(clock() - start)
    return median(times)
