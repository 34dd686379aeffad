"""What the pages say is true: their examples run, and their links lead somewhere."""

from __future__ import annotations

import doctest
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path) -> None:
    blocks = re.findall(
        r"^```pycon\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, object] = {}
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), 0)
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        names = test.globs
        assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = {
        "tensor.md",
        "errors.md",
        "options.md",
        "ops.md",
        "laws.md",
        "contributing.md",
        "changelog.md",
    }
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in link and link not in made:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
    for path in re.findall(r"`((?:pellucid|tests|docs|examples|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{page.name} speaks of {path}"


def test_examples_become_blocks_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object))
    fenced = runpy.run_path(str(ROOT / "docs" / "examples.py"))["fenced"]
    assert fenced("One.\n\n>>> 1\n1\n\nTwo.\n\n>>> 2\n2") == (
        "One.\n\n```pycon\n>>> 1\n1\n```\n\nTwo.\n\n```pycon\n>>> 2\n2\n```"
    )
