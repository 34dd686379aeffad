"""Run the benchmark: `python -m benchmarks`, or `make bench ARGS='--only matmul'`.

    --only PATTERN      works whose names contain or match it; may be given several times
    --threads 1,2       one table for each number of threads
    --rounds N          interleaved rounds        --seconds S   of each framework's turn
    --frameworks A,B    instead of all that are installed
    --quick             tiny sizes, one round: shows that everything runs
    --json FILE         write all figures         --write-docs  write docs/benchmarks.md and .svg

Status: 0 when the bench ran, whatever it found; 2 when the command is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.frameworks import MODULES
from benchmarks.measure import Bench, Plan, Progress
from benchmarks.report import Report, limits_of, print_summary, row_table, write_docs
from benchmarks.work import Work, works_like

DOCS = Path(__file__).resolve().parent.parent / "docs"


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def _frameworks(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        known = ", ".join(MODULES)
        raise argparse.ArgumentTypeError(f"no framework {unknown[0]!r}; there are {known}")
    return names


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser("python -m benchmarks", description=__doc__.partition("\n")[0])
    made.add_argument("--only", action="append", default=[], metavar="PATTERN")
    made.add_argument("--threads", type=_numbers, default=(1, 2), metavar="1,2")
    made.add_argument("--rounds", type=int, default=None, metavar="N")
    made.add_argument("--seconds", type=float, default=None, metavar="S")
    made.add_argument("--frameworks", type=_frameworks, default=tuple(MODULES), metavar="A,B")
    made.add_argument("--quick", action="store_true", help="tiny sizes, one round")
    made.add_argument("--json", type=Path, metavar="FILE")
    made.add_argument("--write-docs", action="store_true")
    made.add_argument("--list", action="store_true", help="print the works and stop")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    made = parser()
    given = made.parse_args(arguments)
    works = works_like(given.only)
    if not works:
        made.error(f"no work is like {', '.join(given.only)}; --list prints all")
    if given.list:
        for work in works:
            print(f"{work.name:36}{work.about}")
        return 0
    plan = Plan(
        given.frameworks,
        rounds=given.rounds or (1 if given.quick else 5),
        seconds=given.seconds or (0.01 if given.quick else 0.2),
        is_tiny=given.quick,
    )
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    report = measured(plan, works, given.threads, console)
    print_summary(report, console)
    if given.json:
        given.json.write_text(json.dumps(report.as_data(), indent=1) + "\n", encoding="utf-8")
    if given.write_docs:
        for path in write_docs(report, DOCS):
            console.print(f"written: {path}")
    return 0


def measured(plan: Plan, works: Sequence[Work], threads: Sequence[int], console: Console) -> Report:
    """Measure everything, printing each row as it is ready; Ctrl-C keeps what there is."""
    report = Report(is_tiny=plan.is_tiny, load=os.getloadavg()[0])
    with contextlib.suppress(KeyboardInterrupt), _progress(console) as progress:
        for count in threads:
            with Bench(plan, count, progress) as bench:
                report.facts = report.facts or bench.facts()
                report.limits[count] = bench.limits()
                for row in bench.run(works):
                    report.rows.append(row)
                    console.print(row_table(row, limits_of(report, row)))
                again = bench.limits()
                report.limits[count] |= {
                    n: max(x, again[n]) for n, x in report.limits[count].items()
                }
    return report


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """Show what is being done, on a terminal; drawn once a second, so as not to disturb."""
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("", refresh_per_second=1) as status:
        yield lambda text: status.update(text)


if __name__ == "__main__":
    sys.exit(main())
