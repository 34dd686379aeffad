"""Find the first stage after which a kernel means something else, and the law that did it.

    kernel 3  sum_64x10
      LOOP form          the interpreter's value is taken as right
      simplify_ranges    same
      expand_ranges      parameter 0, element 9: expected 45, got 36     <- here
                         law `merge_ranges`: i0*4 + i1 -> i0*3 + i1

Every kernel of a program is compiled again with observers that listen. The interpreter runs the
graph after each stage on the same seeded inputs; at last the machine code runs. Where a stage
changes a value, each rewrite of that stage is tried by itself; the first whose sides differ is the
culprit. The graph is saved as text, with the seed, so that the failure can be run again alone:

    pellucid bisect bisect-sum_64x10.uop --seed 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import PellucidError
from pellucid.core.observe import observed_by
from pellucid.core.options import current_options
from pellucid.core.records import dataclass
from pellucid.ir.arg import ParamArg
from pellucid.ir.interpret.values import storage_dtype
from pellucid.ir.op import Group, Ops
from pellucid.ir.text import expression, from_text, to_text
from pellucid.ir.uop import UOp, all_nodes
from pellucid.pipeline import renderer_for
from pellucid.render import Renderer
from pellucid.tools.compare import difference, executed, inputs, interpreted, value_difference
from pellucid.tools.console import console
from pellucid.tools.kernels import (
    Kernel,
    ScheduleCollector,
    StageRecord,
    Study,
    kernels_of,
    study,
)
from pellucid.tools.running import UsageError, read_file, run_file
from pellucid.tools.tables import cell, table

Array = np.ndarray[Any, Any]

MACHINE_CODE: Final = "machine code"
_MOST_REWRITES: Final = 2000
_MOST_POINTS: Final = 1 << 14


@dataclass(frozen=True)
class Verdict:
    """What was found about one kernel: the first stage that changed a value or failed, if any."""

    kernel: Kernel
    stages: tuple[str, ...]
    stage: str | None = None
    problem: str | None = None
    law: str | None = None
    example: str | None = None
    repro: str | None = None

    @property
    def is_right(self) -> bool:
        """True when every stage and the machine code agree with the interpreter."""
        return self.stage is None


# ---- one kernel -----------------------------------------------------------------------------


def bisect(kernel: Kernel, renderer: Renderer, device: str, *, seed: int = 0) -> Verdict:
    """Compare the value of a kernel in LOOP form with its value after every stage."""
    done = study(kernel.ast, renderer)
    names = (*(stage.name for stage in done.stages), MACHINE_CODE)
    arrays = inputs(kernel.ast, seed)
    try:
        expected = interpreted(kernel.ast, arrays)
    except PellucidError as error:
        return Verdict(kernel, names, "schedule", f"the interpreter stops: {error}")
    for stage in done.stages:
        problem = _problem_after(stage, kernel.ast, arrays, expected)
        if problem is not None:
            law, example = culprit(stage, arrays) or _suspects(stage)
            return Verdict(kernel, names, stage.name, problem, law, example)
    if done.error is not None:
        return Verdict(kernel, names, _after_last(done), str(done.error))
    problem = _problem_of_code(done, arrays, expected, device)
    return Verdict(kernel, names, None if problem is None else MACHINE_CODE, problem)


def _problem_after(
    stage: StageRecord, ast: UOp, arrays: Sequence[Array], expected: Sequence[Array]
) -> str | None:
    if stage.after.op not in (Ops.SINK, Ops.LINEAR):
        return None  # text and objects: the machine code is run at the end
    try:
        return difference(ast, expected, interpreted(stage.after, arrays))
    except PellucidError as error:
        return f"the interpreter stops: {error}"


def _problem_of_code(
    done: Study, arrays: Sequence[Array], expected: Sequence[Array], device: str
) -> str | None:
    assert done.program is not None, "a study without an error has a program"
    if device == "NULL":
        return None
    return difference(done.ast, expected, executed(done.program, arrays, device))


def _after_last(done: Study) -> str:
    """The stage that failed: its error names it, or it follows the last that did not."""
    stage = getattr(done.error, "stage", None)
    if isinstance(stage, str):
        return stage
    return f"after {done.stages[-1].name}" if done.stages else "the first stage"


def _suspects(stage: StageRecord) -> tuple[str | None, str | None]:
    """The laws that fired, when none of them is wrong by itself: the pass put them together."""
    names = ", ".join(name for name, _ in stage.laws.most_common(5))
    return None, f"no single rewrite is wrong; fired: {names}" if names else None


# ---- one rewrite ----------------------------------------------------------------------------


def culprit(stage: StageRecord, arrays: Sequence[Array]) -> tuple[str, str] | None:
    """The first rewrite of a stage whose two sides differ in value: its law, and both sides."""
    for event in stage.rewrites[:_MOST_REWRITES]:
        if isinstance(event.before, UOp) and isinstance(event.after, UOp):
            text = _sides_differ(event.before, event.after, arrays)
            if text is not None:
                return event.law, text
    return None


def _sides_differ(before: UOp, after: UOp, arrays: Sequence[Array]) -> str | None:
    if before.dtype is not after.dtype or before.dtype is dtypes.void:
        return None
    try:
        sides, given = _without_registers([before, after], arrays)
        if not all(map(_can_stand_alone, sides)):
            return None
        ranges = tuple(dict.fromkeys(r for side in sides for r in side.ranges))
        left, right = (_values_of(side, ranges, given) for side in sides)
    except (PellucidError, TypeError, ValueError, KeyError):
        return None
    text = value_difference(_kept_dtype(before.dtype), left, right)
    if text is None:
        return None
    return f"{expression(before)}  ->  {expression(after)}   {text}"


def _without_registers(sides: list[UOp], arrays: Sequence[Array]) -> tuple[list[UOp], list[Array]]:
    """Read accumulators and tiles from parameters instead, with the same numbers on both sides."""
    given = list(arrays)
    stand_ins: dict[UOp, UOp] = {}
    for node in all_nodes(sides):
        if node.op not in (Ops.LOAD, Ops.INDEX) or _storage_of(node).op is Ops.PARAM:
            continue
        param = UOp(Ops.PARAM, node.dtype.scalar, (), ParamArg(len(given), node.dtype.lanes))
        read = UOp(Ops.INDEX, node.dtype, (param, UOp.const(dtypes.index, 0)))
        stand_ins[node] = read.load() if node.op is Ops.LOAD else read
        given.append(inputs(UOp.sink(param.replace(arg=ParamArg(0, node.dtype.lanes))), 1)[0])
    return [side.substitute(stand_ins) for side in sides], given


def _storage_of(node: UOp) -> UOp:
    while node.op in (Ops.LOAD, Ops.INDEX, Ops.AFTER):
        node = node.src[0]
    return node


def _can_stand_alone(node: UOp) -> bool:
    """True for values that need nothing but parameters and ranges of known size."""
    if node.dtype is dtypes.void:
        return False
    needed = node.toposort()
    return all(
        n.op.group in _PLAIN or n.op in (Ops.INDEX, Ops.LOAD, Ops.REDUCE, Ops.RANGE) for n in needed
    ) and not any(n.op in (Ops.DEFINE, Ops.SPECIAL, Ops.VARIABLE, Ops.BUFFER) for n in needed)


_PLAIN = (Group.LEAF, Group.ELEMENTWISE, Group.VECTOR)


def _kept_dtype(dtype: DType) -> DType:
    return dtypes.int64 if dtype.is_index else dtype.scalar


def _values_of(node: UOp, ranges: Sequence[UOp], arrays: Sequence[Array]) -> Array:
    """The value of a node for all values of *ranges*, by a kernel of its own."""
    count = node.dtype.lanes
    index = UOp.const(dtypes.index, 0)
    for axis in ranges:
        size = axis.src[0].arg
        index = index * size + axis.cast(dtypes.index)
        count *= size
    if count > _MOST_POINTS:
        raise ValueError("too many points")
    kept = _kept_dtype(node.dtype)
    value = node.cast(kept) if node.dtype.is_index else node
    out = UOp(Ops.PARAM, kept, (), ParamArg(len(arrays), count))
    place = UOp(Ops.INDEX, value.dtype, (out, index * node.dtype.lanes))
    kernel = UOp.sink(place.store(value).end(*ranges))
    return interpreted(kernel, [*arrays, np.zeros(count, storage_dtype(kept))])[-1]


# ---- a program ------------------------------------------------------------------------------


def bisect_file(
    path: str,
    arguments: Sequence[str] = (),
    *,
    kernel: int | None = None,
    seed: int = 0,
    folder: str = ".",
) -> int:
    """Check every kernel of a program, or of a graph saved as text; print what is found.

    Returns 0 when every stage keeps the value, else 1. Errors: UsageError for a file that cannot be
    read and for a kernel that does not exist.
    """
    found = _kernels_in(path, arguments)
    if not found:
        console().print(f"{path} runs no kernels: there is nothing to compare")
        return 0
    if kernel is not None:
        found = [one for one in found if one.number == kernel]
        if not found:
            raise UsageError(f"there is no kernel {kernel} in {path}")
    device = current_options().device
    renderer = renderer_for(device)
    verdicts = [_saved(bisect(one, renderer, device, seed=seed), seed, folder) for one in found]
    console().print(verdict_table(verdicts, seed))
    for verdict in verdicts:
        _print_failure(verdict, seed)
    return 0 if all(verdict.is_right for verdict in verdicts) else 1


def _kernels_in(path: str, arguments: Sequence[str]) -> list[Kernel]:
    if path.endswith(".uop"):
        return [Kernel(1, from_text(read_file(path)), calls=1)]
    collector = ScheduleCollector()
    with observed_by(collector):
        status = run_file(path, arguments)
    if status:
        console().print(f"{path} ended with status {status}; its kernels up to there:")
    return kernels_of(collector.linears)


def verdict_table(verdicts: Sequence[Verdict], seed: int) -> Any:
    """One row a kernel: the last stage at which it is right."""
    made = table(f"every stage against the interpreter, seed {seed}", "", "kernel", "value", "")
    for verdict in verdicts:
        number, name = str(verdict.kernel.number), cell(verdict.kernel.name, "bold")
        if verdict.is_right:
            made.add_row(
                number, name, cell("same", "green"), f"after all {len(verdict.stages)} stages"
            )
        else:
            made.add_row(number, name, cell("changed", "red"), cell(f"first by {verdict.stage}"))
    return made


def _print_failure(verdict: Verdict, seed: int) -> None:
    if verdict.is_right:
        return
    lines = list(_failure_lines(verdict, seed))
    console().print(cell("\n".join(lines)))


def _failure_lines(verdict: Verdict, seed: int) -> Iterator[str]:
    yield f"kernel {verdict.kernel.number} ({verdict.kernel.name}): {verdict.stage}"
    yield f"    {verdict.problem}"
    if verdict.law is not None:
        yield f"    law    {verdict.law}"
    if verdict.example is not None:
        yield f"    sides  {verdict.example}"
    for line in verdict.kernel.lines:
        yield f"    at     {line}"
    yield f"    again  pellucid bisect {verdict.repro} --seed {seed}"


def _saved(verdict: Verdict, seed: int, folder: str) -> Verdict:
    """Write a failing kernel's graph, with what was found, to a file that bisect can read."""
    if verdict.is_right:
        return verdict
    path = Path(folder) / f"bisect-{verdict.kernel.name}.uop"
    note = "\n".join(f"# {line}" for line in (verdict.problem or "").splitlines())
    text = (
        f"# seed {seed}, changed first by {verdict.stage}\n{note}\n{to_text(verdict.kernel.ast)}\n"
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return Verdict(**{**vars(verdict), "repro": str(path)})
