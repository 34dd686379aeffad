"""What every test stands on: clean options and a cache folder that nobody else uses."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pellucid.core import options

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job
    signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count()
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder below which each test of this session has its cache."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def clean_options(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[options.Options]:
    """Give each test default options and an empty cache, also in its threads and child processes.

    The folder is made by whoever writes to it first, so that a test without a cache costs nothing.
    """
    for variable in [name for name in os.environ if name.startswith(options.PREFIX)]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PELLUCID_CACHE_DIR", str(caches / str(next(_numbers))))
    monkeypatch.setenv("PELLUCID_PROGRESS", "off")
    options.forget_environment()
    with options.using(options.environment_options()) as clean:
        yield clean
    monkeypatch.undo()
    options.forget_environment()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many random programs were tried, and with which seed (tests/property)."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "programs" and report.when == "call":
                test = report.nodeid.rpartition("::")[2]
                terminalreporter.write_line(f"random programs: {test} tried {value}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--bless` rewrites golden files; the difference is then reviewed."""
    parser.addoption("--bless", action="store_true", help="rewrite golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file below tests/golden, or write the file when blessing."""

    def compare(path: str, text: str) -> None:
        file = GOLDEN / path
        if request.config.getoption("--bless"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file} is missing: run pytest --bless, and review what it writes"
        assert text == file.read_text(encoding="utf-8"), f"{path} differs: review, then --bless"

    return compare
