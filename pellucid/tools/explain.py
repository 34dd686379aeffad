"""Say what became of a program: for each kernel its lines, reason, stages, code and time.

    pellucid explain train.py              explain(tensor)   tensor.explain()

       kernel  calls  one run  bound by    code  compiled in  what it computes last
    1  add_3       1   0.4 us  call 80 %   71 B       9.1 ms  train.py:4  y = x * 3 + 1

First a table of all kernels and the limits of the machine that they are held against (runtime/
limits.py), then a section for each: the lines of the program that it came from,
why it is a kernel of its own, what was chosen for it and why, what every stage did and how long it
took, the program in order, and its source. `stages` adds the graph after each stage that changed
something, `disassemble` the machine instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from pellucid.core.observe import observed_by
from pellucid.core.options import Context, current_options
from pellucid.core.records import dataclass
from pellucid.core.target import host_target
from pellucid.engine.beam import remembered
from pellucid.engine.choosing import with_chosen_actions
from pellucid.ir import origin
from pellucid.ir.op import Ops
from pellucid.ir.text import changes, expression, to_text
from pellucid.ir.uop import UOp
from pellucid.opt.saved import kernel_key
from pellucid.opt.searching.report import SearchReport
from pellucid.pipeline import renderer_for, to_program
from pellucid.runtime.device import Device
from pellucid.runtime.limits import Limits, machine_limits
from pellucid.tools.console import console
from pellucid.tools.kernels import (
    Kernel,
    ScheduleCollector,
    StageRecord,
    Study,
    code_bytes,
    kernels_of,
    num_copies,
    run_seconds,
    study,
)
from pellucid.tools.roofline import Bound, bound_of, limits_text
from pellucid.tools.running import UsageError, run_file
from pellucid.tools.saving import actions_text
from pellucid.tools.tables import cell, line, table

if TYPE_CHECKING:
    from pellucid.frontend import Tensor

_MOST_CHANGES: Final = 12
_MOST_LINES: Final = 400
_MOST_REASONS: Final = 8


@dataclass(frozen=True)
class Explained:
    """A kernel, one compilation of it, the median time of a run, and what bounds that."""

    kernel: Kernel
    study: Study
    seconds: float | None
    device: str
    search: SearchReport | None = None
    limits: Limits | None = None

    @property
    def bound(self) -> Bound | None:
        """What bounds the kernel; None where it was not run or the limits are not known."""
        if not self.seconds or self.limits is None:
            return None
        return bound_of(self.study.info, self.seconds, self.limits, host_target())


def explain_file(
    path: str,
    arguments: Sequence[str] = (),
    *,
    kernel: int | None = None,
    stages: bool = False,
    disassemble: bool = False,
    save_actions: str | None = None,
) -> int:
    """Run a program and explain its kernels; return the status that it ended with.

    save_actions: a file that gets the actions of all kernels (tools/saving.py).
    Errors: UsageError for a file that cannot be read and for a kernel that does not exist.
    """
    collector = ScheduleCollector()
    with Context(trace=True), origin.recording_origins(), observed_by(collector):
        status = run_file(path, arguments)
    if not collector.linears:
        console().print(f"{path} ran no kernels")
        return status
    if save_actions is not None:
        _save(actions_text(collector.linears, current_options().device), save_actions)
    show(collector.linears, kernel=kernel, stages=stages, disassemble=disassemble)
    return status


def _save(text: str, path: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path!r} cannot be written: {error.strerror}") from None


def explain(
    tensor: Tensor,
    *,
    kernel: int | None = None,
    stages: bool = False,
    disassemble: bool = False,
) -> None:
    """Print what computing *tensor* takes, without computing it.

    The lines of the program are known when the tensor was made under `Context(trace=True)` or with
    PELLUCID_TRACE=1.
    """
    if tensor.is_realized:
        console().print("this tensor is in memory already: nothing is left to compute")
        return
    linear = tensor.schedule_linear()
    show([linear], device=tensor.device, kernel=kernel, stages=stages, disassemble=disassemble)


def show(
    linears: Sequence[UOp],
    *,
    device: str | None = None,
    kernel: int | None = None,
    stages: bool = False,
    disassemble: bool = False,
    to: Console | None = None,
) -> list[Explained]:
    """Print the kernels of schedules: a table of all, then a section for each."""
    device = device or current_options().device
    out = to or console()
    linears = [with_chosen_actions(linear, device) for linear in linears]
    chosen = _chosen(kernels_of(linears), kernel)
    found = [_explained(one, device) for one in chosen]
    out.print(summary(found, num_copies(linears)))
    out.print(limits_grid(found))
    for one in found:
        out.print(section(one, stages=stages, disassemble=disassemble))
    return found


def _chosen(kernels: list[Kernel], number: int | None) -> list[Kernel]:
    if number is None:
        return kernels
    found = [kernel for kernel in kernels if kernel.number == number]
    if not found:
        raise UsageError(f"there is no kernel {number}; there are {len(kernels)}")
    return found


def _explained(kernel: Kernel, device: str) -> Explained:
    done = study(kernel.ast, renderer_for(device))
    seconds = run_seconds(done.program, device) if done.program is not None else None
    search = remembered(kernel.ast, device) if current_options().beam else None
    limits = machine_limits(done.info.num_threads) if seconds else None
    return Explained(kernel, done, seconds, device, search, limits)


# ---- the table ------------------------------------------------------------------------------


def summary(found: Sequence[Explained], copies: int = 0) -> Table:
    """One row a kernel."""
    title = "kernels, each with the time of one run" + (f"; {copies} copies" if copies else "")
    columns = (
        "",
        "kernel",
        "calls",
        "one run",
        "bound by",
        "code",
        "compiled in",
        "what it computes last",
    )
    made = table(title, *columns)
    for one in found:
        made.add_row(*_summary_row(one))
    _make_compact(made, 7)
    return made


def limits_grid(found: Sequence[Explained]) -> Table:
    """What the machine can do at most, measured, for each number of threads that kernels use."""
    made = Table.grid(padding=(0, 2))
    limits = {one.limits.threads: one.limits for one in found if one.limits is not None}
    for threads in sorted(limits):
        made.add_row("limits", cell(limits_text(limits[threads]), "dim"))
    return made


def _make_compact(made: Table, last: int) -> None:
    """Give numbers the room they need, and the *last* column what is left."""
    for place, column in enumerate(made.columns[:last]):
        column.no_wrap = True
        column.justify = "right" if place > 0 and column.header != "kernel" else "left"


def _summary_row(one: Explained) -> list[Text]:
    kernel, done = one.kernel, one.study
    lines = kernel.lines[-1] if kernel.lines else ""
    row = [str(kernel.number), kernel.name, str(kernel.calls)]
    if done.program is None:
        return [*map(cell, row), cell("failed", "red"), *map(cell, ("", "", "")), line(lines)]
    binary = done.part(Ops.BINARY).arg
    row += [duration(one.seconds), one.bound.short if one.bound else "-"]
    row += [f"{code_bytes(binary)} B", duration(done.seconds)]
    return [*(cell(text, "bold" if at == 1 else "") for at, text in enumerate(row)), line(lines)]


def times_table(linears: Sequence[UOp], device: str, *, most: int = 12) -> Table:
    """The kernels of schedules with their times alone: one row a kernel, the slowest first."""
    timed = []
    for kernel in kernels_of(linears):
        seconds = run_seconds(to_program(kernel.ast, renderer_for(device)), device) or 0.0
        timed.append((seconds * kernel.calls, seconds, kernel))
    whole = sum(total for total, _, _ in timed)
    calls = sum(kernel.calls for _, _, kernel in timed)
    title = f"{len(timed)} kernels, {calls} calls, {duration(whole)} together"
    made = table(title, "kernel", "calls", "one run", "share", "why it is a kernel of its own")
    timed.sort(key=lambda row: row[0], reverse=True)
    for total, seconds, kernel in timed[:most]:
        share = f"{total / whole:.0%}" if whole else "-"
        reason = kernel.reasons[0] if kernel.reasons else ""
        row = (str(kernel.calls), duration(seconds), share)
        made.add_row(cell(kernel.name, "bold"), *map(cell, row), line(reason))
    if len(timed) > most:
        rest = sum(total for total, _, _ in timed[most:])
        made.add_row(f"{len(timed) - most} more", "", duration(rest), f"{rest / whole:.0%}", "")
    _make_compact(made, 4)
    return made


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it.

    >>> duration(0.0000123), duration(0.25), duration(None)
    ('12.3 us', '250.0 ms', '-')
    """
    if seconds is None:
        return "-"
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.2f} s"


def speed(one: Explained) -> str:
    """Work and traffic in a second, by the estimates of the program."""
    info = one.study.info
    if not one.seconds:
        return "-"
    return (
        f"{info.flops / one.seconds / 1e9:.1f} GFLOP/s, {info.bytes / one.seconds / 1e9:.1f} GB/s"
    )


# ---- a section ------------------------------------------------------------------------------


def section(one: Explained, *, stages: bool = False, disassemble: bool = False) -> Group:
    """All that is known of one kernel."""
    kernel, done = one.kernel, one.study
    parts: list[object] = [Rule(f"kernel {kernel.number}: {kernel.name}", align="left")]
    parts.append(_facts(one))
    if one.search is not None:
        parts += [_heading("the search"), search_table(one.search)]
    parts.append(_stage_table(done))
    if stages:
        parts += [_heading("the graph at the start (LOOP form)"), graph(done.ast)]
        for stage in done.stages:
            if stage.after is not stage.before and stage.after.op is Ops.SINK:
                parts += [_heading(f"after {stage.name}"), what_changed(stage), graph(stage.after)]
    if done.error is not None:
        parts.append(cell(f"{type(done.error).__name__}: {done.error}", "red"))
    if done.program is not None:
        parts += [_heading("the program in order (LINEAR)"), _program(done.part(Ops.LINEAR))]
        parts += [_heading("its source"), _source(one)]
        if disassemble:
            listing = Device[one.device].disassemble(done.part(Ops.BINARY).arg)
            parts += [_heading("its machine instructions"), cell(listing)]
    return Group(*parts)  # type: ignore[arg-type]


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold underline")


def _facts(one: Explained) -> Table:
    """What a person wants to know first."""
    kernel, done = one.kernel, one.study
    made = Table.grid(padding=(0, 2))
    for place in kernel.lines or ["not known: it was not made under Context(trace=True)"]:
        made.add_row("from", cell(place))
    for reason in kernel.reasons or ["-"]:
        made.add_row("why", cell(reason))
    if done.program is None:
        return made
    info = done.info
    applied = ", ".join(map(_action_text, info.applied)) or "none"
    made.add_row("optimised by", cell(applied))
    for event, count in Counter((e.kind, e.reason) for e in done.decisions).items():
        kind, reason = event
        often = f" ({_often(count)})" if count > 1 else ""
        made.add_row("", cell(f"{kind}: {reason}{often}", "dim"))
    made.add_row("key", cell(f"{kernel_key(kernel.ast)}, for saved actions", "dim"))
    if info.num_threads > 1:
        made.add_row("threads", str(info.num_threads))
    made.add_row("work", f"{info.flops} flop, {info.bytes} bytes of loads and stores (estimated)")
    made.add_row("time", f"{duration(one.seconds)} a run, {speed(one)}")
    if one.bound is not None:
        made.add_row("bound by", cell(one.bound.sentence))
        made.add_row("", cell(f"and {one.bound.others}", "dim"))
    made.add_row("size", f"{code_bytes(done.part(Ops.BINARY).arg)} bytes of instructions")
    return made


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _action_text(action: object) -> str:
    kind, axis = getattr(action, "kind", "?"), getattr(action, "axis", -1)
    amount = getattr(action, "amount", 0)
    if kind in _OF_PARAMETERS:
        return f"{kind} parameter {amount}, axis {axis}"
    by = f" by {amount}" if amount else ""
    return f"{kind} axis {axis}{by}" if axis >= 0 else f"{kind}{by}"


_OF_PARAMETERS = ("offset", "pack", "prefetch", "stream")
"""Actions whose amount is the slot of a parameter."""


def search_table(report: SearchReport) -> Table:
    """What a search tried, what was dropped and why, and what it gained."""
    made = Table.grid(padding=(0, 2))
    when = ", in an earlier process" if report.is_remembered else ""
    made.add_row("result", cell(report.sentence()))
    made.add_row("took", cell(f"{report.took:.1f} s{when}; {report.ended}"))
    made.add_row("plain loops", duration(report.plain_seconds))
    made.add_row("heuristic", duration(report.heuristic_seconds))
    made.add_row("after each step", ", ".join(map(duration, report.steps)) or "-")
    made.add_row("equal to others", str(report.equal))
    tried = ", ".join(f"{count} {family}" for family, count in report.tried.most_common())
    made.add_row("measured", cell(tried or "-"))
    for actions, family, seconds in report.fastest[:_MOST_REASONS]:
        listed = ", ".join(map(_action_text, actions)) or "none"
        made.add_row("fast", cell(f"{duration(seconds)}, {family}: {listed}"))
    for what, counts in (("left out", report.pruned), ("refused", report.refused)):
        for reason, count in counts.most_common(_MOST_REASONS):
            made.add_row(what, cell(f"{_often(count)}: {reason}", "dim"))
    for actions, kind, reason in report.dropped[:_MOST_REASONS]:
        listed = ", ".join(map(_action_text, actions)) or "none"
        made.add_row(cell(kind, "red"), cell(f"{reason}, by actions: {listed}"))
    return made


def _stage_table(done: Study) -> Table:
    made = table("", "stage", "nodes", "took", "rewrites")
    made.title = None  # the section has a heading
    made.columns[0].no_wrap = made.columns[2].no_wrap = True
    for stage in done.stages:
        is_same = stage.after is stage.before
        size = "same" if is_same else str(len(stage.after.toposort()))
        fired = ", ".join(
            name if count == 1 else f"{name} x{count}" for name, count in stage.laws.most_common(6)
        )
        more = len(stage.laws) - 6
        fired += f", {more} more" if more > 0 else ""
        style = "dim" if is_same else ""
        made.add_row(
            cell(stage.name, style), cell(size, style), duration(stage.seconds), cell(fired)
        )
    made.columns[1].justify = made.columns[2].justify = "right"
    return made


def what_changed(stage: StageRecord) -> Text:
    """The nodes that a stage took away and those that it made; long lists are cut."""
    found = changes(stage.before, stage.after)
    text = Text()
    for sign, style, nodes in (("-", "red", found.removed), ("+", "green", found.added)):
        shown = [node for node in nodes if node.op not in (Ops.CONST, Ops.SINK)]
        for node in shown[:_MOST_CHANGES]:
            text.append(f"{sign} {expression(node)}\n", style=style)
        if len(shown) > _MOST_CHANGES:
            text.append(f"{sign} … {len(shown) - _MOST_CHANGES} more\n", style=style)
    return text


def graph(root: UOp) -> Text:
    """A graph as text for people."""
    lines = to_text(root, names=True).splitlines()
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    return cell("\n".join(lines))


def _program(linear: UOp) -> Text:
    """A program's LINEAR: one operation a line, in order, indented by loop."""
    names: dict[UOp, str] = {}
    lines: list[str] = []
    depth = 0
    for item in linear.src:
        if item.op in (Ops.CONST, Ops.PARAM):
            names[item] = expression(item)
            continue
        if item.op in (Ops.END, Ops.ENDIF):
            depth = max(0, depth - (1 if item.op is Ops.ENDIF else len(item.src) - 1))
        names[item] = f"i{item.arg.id}" if item.op is Ops.RANGE else f"%{len(lines)}"
        sources = " ".join(names.get(s) or expression(s, 1) for s in item.src)
        dtype = "" if item.dtype.name == "void" else f" {item.dtype}"
        arg = "" if item.arg is None or item.op is Ops.SINK else f" {item.arg!r}"
        lines.append(f"{'  ' * depth}{names[item]} = {item.op.name}{dtype} {sources}{arg}".rstrip())
        if item.op in (Ops.RANGE, Ops.IF):
            depth += 1
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    return cell("\n".join(lines))


def _source(one: Explained) -> Syntax:
    language = {"c": "c", "llvm": "llvm"}.get(Device[one.device].renderer_name, "text")
    text = one.study.part(Ops.SOURCE).arg
    return Syntax(text, language, word_wrap=True, background_color="default")
