"""Tables, the docs page and the picture show the figures that were measured."""

from __future__ import annotations

import doctest
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import inputs, plot, report, work
from benchmarks.measure import Figure, Row, Verdict
from benchmarks.plot import place_of, verdicts_svg
from benchmarks.report import (
    FIGURE_HEADINGS,
    Report,
    allowed_text,
    compute_share,
    figure_cells,
    markdown_page,
    print_summary,
    ratio_text,
    share_text,
    stream_share,
    time_text,
    verdict_text,
    write_docs,
)
from benchmarks.work import Ratio, Seconds, work_named


def measured_row() -> Row:
    figures = {
        "pellucid": Figure("pellucid", [0.002, 0.003], first_seconds=0.5),
        "numpy": Figure("numpy", [0.004, 0.005], first_seconds=0.004),
        "torch": Figure("torch", [0.001], first_seconds=0.1),
        "jax": Figure("jax", note="not available: not installed: make bench-peers"),
    }
    return Row(work_named("matmul 512"), 1, figures)


def measured_report() -> Report:
    return Report({"numpy": {"version": "2"}}, {1: {"fma": 2e11, "read": 2e10}}, [measured_row()])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (2.0, "2.00 s"), (0.5, "500 ms"), (1e-6, "1.00 us"), (9.96e-7, "996 ns")],
)
def test_times(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text


def test_ratios_and_shares() -> None:
    assert [ratio_text(r) for r in (0.999, 1.0, 99.9)] == ["1.00", "1.00", "99.9"]
    assert share_text(1.234) == "123 %"


def test_a_missed_limit_shows_the_true_figure() -> None:
    assert verdict_text(Verdict(Ratio(("torch",), 1.0), 1.37, "torch")) == "missed: 1.37"
    assert verdict_text(Verdict(Seconds(0.01), 0.0123)) == "missed: 12.3 ms"
    assert verdict_text(Verdict(Seconds(0.01), 0.009)) == "kept: 9.00 ms"
    assert verdict_text(Verdict(Seconds(0.01), None)) == "not measured"
    assert allowed_text(Verdict(Seconds(0.01), None)) == "10.0 ms of CPU time"


def test_a_ratio_that_rounds_to_the_limit_is_still_missed() -> None:
    verdict = Verdict(Ratio(("torch",), 1.0), 1.004, "torch")
    assert verdict_text(verdict) == "missed: 0.4 % more than 1.00"


def test_shares_of_the_machine() -> None:
    row = measured_row()
    flops, size_bytes = 2 * 512**3, 3 * 512**2 * 4
    limits = {"fma": 2e11, "read": 1e10, "stream": 2e10}
    own = row.figures["pellucid"]
    assert compute_share(row.work, own, limits) == pytest.approx(flops / 0.002 / 2e11)
    assert stream_share(row.work, own, limits) == pytest.approx(size_bytes / 0.002 / 2e10)
    assert compute_share(row.work, own, {}) is None
    assert compute_share(row.work, row.figures["jax"], limits) is None


def test_a_line_of_figures() -> None:
    row = measured_row()
    cells = figure_cells(row, row.figures["numpy"], {"fma": 2e11, "read": 2e10})
    assert cells == ["numpy", "4.00 ms", "4.50 ms", "0.50", "4.00 ms", "34 %", "4 %", ""]
    assert len(cells) == len(FIGURE_HEADINGS) - 1
    assert figure_cells(row, row.figures["jax"], {})[-1].startswith("not available")


def test_the_summary_names_kept_and_missed_limits() -> None:
    console = Console(record=True, width=140, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        print_summary(measured_report(), console)
        text = console.export_text()
    assert "kept: 0.50" in text
    assert "missed: 2.00" in text
    assert "fma 200 GF/s, read 20.0 GB/s" in text


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    page, picture = write_docs(measured_report(), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Benchmarks\n")
    assert "| matmul 512 | 1 | 2.00 ms | 1.00 of numpy | kept: 0.50 | numpy |" in text
    assert f"({picture.name})" in text
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    colours = [rect.get("fill") for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert colours == ["white", "#2b7a4b", "#b3432b"]


def test_a_busy_machine_is_named() -> None:
    report = measured_report()
    assert "others used" not in markdown_page(report)
    report.load = 3.2
    assert "3.2: others used the machine" in markdown_page(report)


def test_tiny_sizes_have_no_shares() -> None:
    report = measured_report()
    report.is_tiny = True
    assert "34 %" not in markdown_page(report)


def test_an_empty_picture_is_still_one() -> None:
    assert ElementTree.fromstring(verdicts_svg([])).tag.endswith("svg")
    assert place_of(2.0) - place_of(1.0) == pytest.approx(place_of(0.5) - place_of(0.25))


def test_the_command_measures_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    chosen = ["--quick", "--threads", "1", "--frameworks", "numpy", "--only", "exp 4M"]
    assert command.main([*chosen, "--json", str(path)]) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [row["work"] for row in found["rows"]] == ["exp 4M"]
    assert found["rows"][0]["figures"][0]["samples"]
    assert "numpy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nonsense"], "no work is like nonsense"),
        (["--frameworks", "caffe"], "no framework 'caffe'"),
        (["--threads", "0"], "invalid"),
    ],
)
def test_wrong_commands(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        command.main(arguments)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


def test_the_list_of_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "softmax 4096x1024"]) == 0
    assert capsys.readouterr().out.split() == [
        "softmax",
        "4096x1024",
        "Apply",
        "softmax",
        "to",
        "each",
        "row.",
    ]


@pytest.mark.parametrize("module", [inputs, plot, report, work], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
