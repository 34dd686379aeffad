"""Say what was measured: tables for the terminal, and the page of the docs."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.frameworks import OWN
from benchmarks.measure import Figure, Row, Verdict
from benchmarks.plot import verdicts_svg
from benchmarks.work import Measure, Ratio, Work
from pellucid.core.units import MATRIX_UNITS

QUIET_LOAD = 0.5
DISTURBED = (
    "others used the machine, which harms most those whose threads wait for each other busily: "
    "measure again when it is quiet"
)


@dataclass
class Report:
    """All that a run of the bench found out."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    limits: dict[int, dict[str, float]] = field(default_factory=dict)
    """Limits of the machine, by number of threads."""
    rows: list[Row] = field(default_factory=list)
    is_tiny: bool = False
    load: float = 0.0
    """How many processes wanted to run when the bench began, on average over a minute."""

    @property
    def is_disturbed(self) -> bool:
        """Tell whether others were using the machine."""
        return self.load > QUIET_LOAD

    def as_data(self) -> dict[str, Any]:
        """Give everything for a JSON file."""
        return {
            "machine": machine_title(),
            "tiny": self.is_tiny,
            "load": self.load,
            "facts": self.facts,
            "limits": self.limits,
            "rows": [row.as_data() for row in self.rows],
        }


# ---- numbers as text -------------------------------------------------------------------------


def time_text(seconds: float | None) -> str:
    """Write a time with three digits.

    >>> [time_text(t) for t in (1.5, 0.0123, 4.56e-5, 3e-9, None)]
    ['1.50 s', '12.3 ms', '45.6 us', '3.00 ns', '-']
    """
    if seconds is None:
        return "-"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{_three_digits(seconds / unit)} {name}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def _three_digits(value: float) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def ratio_text(ratio: float | None) -> str:
    """Write a ratio of times.

    >>> [ratio_text(r) for r in (0.123, 1.0, 12.34, 234.5, None)]
    ['0.12', '1.00', '12.3', '234', '-']
    """
    return "-" if ratio is None else _three_digits(ratio)


def share_text(share: float | None) -> str:
    """Write a share of a limit in per cent.

    >>> share_text(0.456), share_text(None)
    ('46 %', '')
    """
    return "" if share is None else f"{100 * share:.0f} %"


def verdict_text(verdict: Verdict) -> str:
    """Say whether a limit is kept, with the true figure.

    >>> verdict_text(Verdict(Ratio(("numpy",), 1.0), 1.254, "numpy"))
    'missed: 1.25'
    """
    if verdict.value is None:
        return "not measured"
    write = ratio_text if isinstance(verdict.limit, Ratio) else time_text
    value = write(verdict.value)
    if verdict.holds:
        return f"kept: {value}"
    if value == write(verdict.limit.at_most):  # rounding must not hide what is missing
        value = f"{100 * (verdict.value / verdict.limit.at_most - 1):.2g} % more than {value}"
    return f"missed: {value}"


def allowed_text(verdict: Verdict) -> str:
    """Write a limit.

    >>> allowed_text(Verdict(Ratio(("torch",), 1.05), None))
    '1.05 of torch'
    """
    if isinstance(verdict.limit, Ratio):
        return f"{verdict.limit.at_most:.2f} of {verdict.limit.title}"
    return f"{time_text(verdict.limit.at_most)} of {verdict.limit.title}"


# ---- shares of the machine's limits ----------------------------------------------------------


def compute_share(work: Work, figure: Figure, limits: Mapping[str, float]) -> float | None:
    """Give the part of the peak that is reached: of multiply-adds, or of a unit for the type."""
    peak = limits.get(_unit_for(work, limits))
    if work.measure is not Measure.STEADY or not figure.best or not peak:
        return None
    flops = work.cost(work.sizes).flops
    return flops / figure.best / peak if flops else None


def _unit_for(work: Work, limits: Mapping[str, float]) -> str:
    """The limit of what does the products of a work."""
    if work.dtype == "bfloat16" and "amx" in limits:
        return "amx"
    if work.dtype == "int8":
        return next((n for n in MATRIX_UNITS if n in limits), "")
    return "fma"


def stream_share(work: Work, figure: Figure, limits: Mapping[str, float]) -> float | None:
    """Give the part of the memory's bandwidth that is reached; caches can make it more than 1."""
    peak = max((limits.get(name, 0.0) for name in ("read", "copy", "stream")), default=0.0)
    if work.measure is not Measure.STEADY or not figure.best or not peak:
        return None
    return work.cost(work.sizes).size_bytes / figure.best / peak


# ---- tables ----------------------------------------------------------------------------------

Cells = list[str]

FIGURE_HEADINGS = (
    "work",
    "framework",
    "best",
    "median",
    "pellucid / it",
    "first call",
    "of FMA peak",
    "of bandwidth",
    "note",
)
VERDICT_HEADINGS = ("work", "threads", "pellucid", "allowed", "came to", "best peer")


def figure_cells(row: Row, figure: Figure, limits: Mapping[str, float]) -> Cells:
    """Write one framework's line of a row."""
    own = row.own.best if row.own else None
    is_peer = figure.framework not in OWN
    ratio = own / figure.best if is_peer and own and figure.best else None
    is_fresh = row.work.measure is not Measure.STEADY
    return [
        figure.framework,
        time_text(figure.best),
        time_text(figure.median),
        ratio_text(ratio) if is_peer else "",
        "" if is_fresh else time_text(figure.first_seconds),
        share_text(compute_share(row.work, figure, limits)),
        share_text(stream_share(row.work, figure, limits)),
        figure.note,
    ]


def verdict_cells(row: Row) -> list[Cells]:
    """Write the lines of a row's limits."""
    own = time_text(row.own.best if row.own else None)
    return [
        [
            row.work.name,
            str(row.threads),
            own,
            allowed_text(verdict),
            verdict_text(verdict),
            verdict.against,
        ]
        for verdict in row.verdicts()
    ]


def row_table(row: Row, limits: Mapping[str, float]) -> Table:
    """Draw everything about one work."""
    threads = f"{row.threads} thread" + "s" * (row.threads != 1)
    title = f"{row.work.name}, {threads}: {row.work.measure.value}"
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, heading in enumerate(FIGURE_HEADINGS[1:]):
        is_text = i in (0, 7)
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text)
    for figure in row.figures.values():
        table.add_row(*figure_cells(row, figure, limits))
    return table


def summary_table(rows: Sequence[Row]) -> Table:
    """Draw one line for each limit."""
    table = Table(title="What was asked, and what came", title_justify="left", title_style="bold")
    for heading in VERDICT_HEADINGS:
        table.add_column(heading)
    for row in rows:
        for verdict, cells in zip(row.verdicts(), verdict_cells(row), strict=True):
            colour = {True: "green", False: "red", None: "dim"}[verdict.holds]
            cells[4] = f"[{colour}]{cells[4]}[/{colour}]"
            table.add_row(*cells)
    return table


def notes_table(rows: Sequence[Row]) -> Table:
    """Draw what could not be measured, and why."""
    table = Table(title="What did not run", title_justify="left", title_style="bold")
    for heading in ("work", "framework", "reason"):
        table.add_column(heading)
    for row in rows:
        for figure in row.figures.values():
            if figure.note:
                table.add_row(row.work.name, figure.framework, figure.note)
    return table


def facts_table(report: Report) -> Table:
    """Draw what was measured, and what the machine can do."""
    table = Table(title=machine_title(), title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("facts", overflow="fold")
    for name, facts in report.facts.items():
        table.add_row(name, ", ".join(f"{key} {value}" for key, value in facts.items()))
    for threads, limits in report.limits.items():
        table.add_row(f"limits, {threads} thread" + "s" * (threads != 1), limits_text(limits))
    table.add_row("load at the start", load_text(report))
    return table


def load_text(report: Report) -> str:
    """Write how busy the machine was before.

    >>> load_text(Report(load=0.1))
    '0.1'
    """
    return f"{report.load:.1f}" + (f": {DISTURBED}" if report.is_disturbed else "")


def limits_text(limits: Mapping[str, float]) -> str:
    """Write the machine's limits.

    >>> limits_text({"fma": 1.17e11, "read": 3.1e10})
    'fma 117 GF/s, read 31.0 GB/s'
    """
    units = {"fma": "GF/s", "amx": "GF/s"} | dict.fromkeys(MATRIX_UNITS, "GOP/s")
    return ", ".join(
        f"{name} {_three_digits(value / 1e9)} {units.get(name, 'GB/s')}"
        for name, value in limits.items()
    )


def machine_title() -> str:
    """Describe the machine in a line."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
        model = names[0] if names else model
    except OSError:
        pass
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    )


def print_summary(report: Report, console: Console) -> None:
    """Print the facts and the limits kept and missed."""
    console.print(facts_table(report))
    if report.is_tiny:
        console.print("[yellow]Tiny sizes: this shows what runs; the times mean nothing.[/yellow]")
        console.print(notes_table(report.rows))
    else:
        console.print(summary_table(report.rows))


# ---- the page of the docs --------------------------------------------------------------------


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown.

    >>> print(markdown_table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    rows = [headings, ["---"] * len(headings), *lines]
    texts = []
    for i, row in enumerate(rows):
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        texts.append("|" + "|".join(cells) + "|" if i == 1 else "| " + " | ".join(cells) + " |")
    return "\n".join(texts)


def markdown_page(report: Report) -> str:
    """Write docs/benchmarks.md."""
    facts = [
        [name, ", ".join(f"{k} {v}" for k, v in facts.items())]
        for name, facts in report.facts.items()
    ]
    facts += [[f"limits, threads: {n}", limits_text(found)] for n, found in report.limits.items()]
    facts += [["load at the start", load_text(report)]]
    details = [
        [f"{row.work.name}, {row.threads}t", *figure_cells(row, figure, limits_of(report, row))]
        for row in report.rows
        for figure in row.figures.values()
    ]
    asked = [cells for row in report.rows for cells in verdict_cells(row)]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            f"Made by `make bench ARGS=--write-docs` on {machine_title()}. Each framework ran in",
            "its own process, rounds interleaved, after the results had been compared; a ratio is",
            "one of the best times of one run, Pellucid's over the peer's. First calls have empty",
            "caches of kernels; bytecode of packages is there, and Pellucid's matchers beside it.",
            "",
            "![Ratios, and what is allowed](benchmarks.svg)",
            "",
            markdown_table(["what", "facts"], facts),
            "",
            "## What was asked, and what came",
            "",
            markdown_table(VERDICT_HEADINGS, asked),
            "",
            "## Every figure",
            "",
            markdown_table(FIGURE_HEADINGS, details),
            "",
        ]
    )


def limits_of(report: Report, row: Row) -> dict[str, float]:
    """Give the machine's limits for the threads of a row; none for tiny sizes, where no share means
    anything."""
    return {} if report.is_tiny else report.limits.get(row.threads, {})


def write_docs(report: Report, folder: Path) -> list[Path]:
    """Write the page and its picture; give their paths."""
    page, picture = folder / "benchmarks.md", folder / "benchmarks.svg"
    page.write_text(markdown_page(report), encoding="utf-8")
    picture.write_text(verdicts_svg(report.rows), encoding="utf-8")
    return [page, picture]
