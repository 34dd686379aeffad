"""The documentation is made from the code: every table, every stage, every package has its page."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pellucid import Tensor
from pellucid.core.errors import error_classes
from pellucid.core.options import Options

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def paths_in(navigation: Any) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    entries = navigation.values() if isinstance(navigation, dict) else navigation
    return [path for entry in entries for path in paths_in(entry)]


def test_all_pages_are_written_and_are_in_the_navigation(
    generate: ModuleType, tmp_path: Path
) -> None:
    written = generate.generate(tmp_path)
    config = json.loads((tmp_path / "mkdocs.yml").read_text())
    found = sorted(path.relative_to(tmp_path / "docs").as_posix() for path in written)
    assert sorted(paths_in(config["nav"])) == found
    assert {"index.md", "options.md", "errors.md", "api/core.md", "contributing.md"} <= set(found)
    assert all(path.read_text().startswith("# ") for path in written)
    titles = [title for section in config["nav"] for title in section]
    assert titles == [
        "Pellucid", "The pipeline", "Schedule pipeline", "Kernel pipeline", "Program",
        "Tables", "The code", "The project",
    ]  # fmt: skip
    assert all(len(path.read_text()) > 200 for path in written), "no chapter is empty"


def test_every_stage_has_a_chapter(generate: ModuleType, tmp_path: Path) -> None:
    from pellucid import pipeline

    generate.generate(tmp_path)
    chapters = {path.stem.partition("-")[2] for path in (tmp_path / "docs/pipeline").glob("*.md")}
    for stages in (pipeline.SCHEDULE_PIPELINE, pipeline.KERNEL_PIPELINE):
        for number, stage in enumerate(stages, 1):
            assert f"{number:02}-{stage.name}" in chapters
    assert {"linearize", "render", "compile", "load-and-run"} <= chapters


def test_tables_have_every_row(generate: ModuleType) -> None:
    options = generate.options_page()
    assert all(f"`PELLUCID_{name.upper()}`" in options for name in Options.__slots__)
    errors = generate.errors_page()
    assert all(f"| `{error.__name__}` |" in errors for error in error_classes())


def test_every_method_of_a_tensor_is_listed(generate: ModuleType) -> None:
    page = generate.tensor_page(Tensor)
    assert "| `max(dim=None, keepdim=False)` | The largest element;" in page
    assert "| `zeros(*shape, **options)` |" in page
    assert "| `shape` | The size of every axis. |" in page
    listed = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    public = {name for name in dir(Tensor) if not name.startswith("_")}
    assert public - listed <= {"explain"}


def test_a_stage_becomes_a_chapter_and_a_row(generate: ModuleType) -> None:
    def expand_ranges() -> None: ...

    def add_loads() -> None: ...

    pipeline = ModuleType("pipeline", "The table of contents.")
    loop, vector = SimpleNamespace(name="LOOP"), SimpleNamespace(name="VECTOR")
    reason = {"expand_ranges": "lanes | hide"}
    pipeline.KERNEL_PIPELINE = [  # type: ignore[attr-defined]
        SimpleNamespace(run=expand_ranges, needs=loop, gives=vector, why="axes become lanes"),
        SimpleNamespace(run=add_loads, needs=vector, gives="SCALAR", why="a | b", after=reason),
    ]
    (_, path, contents), first, second = generate.pipeline_pages(pipeline)
    assert path == "pipeline/index.md"
    assert contents.startswith("# The pipeline\n\nThe table of contents.")
    row = "| [expand_ranges](kernel_pipeline-01-expand_ranges.md) | LOOP | VECTOR |"
    assert row + " axes become lanes |" in contents
    assert "a \\| b" in contents
    assert first[:2] == ("expand_ranges", "pipeline/kernel_pipeline-01-expand_ranges.md")
    assert "| LOOP | VECTOR |" in first[2]
    assert (__doc__ or "?") in first[2]  # the docstring of the module that defines the pass
    assert "- comes after `expand_ranges`: lanes | hide" in second[2]


def test_laws_and_rules_become_rows(generate: ModuleType) -> None:
    def fold_constants() -> None: ...

    law = SimpleNamespace(
        name="add_zero", family="arithmetic", equation="x | 0 = x", doc="Zero adds\nnothing."
    )
    rule = SimpleNamespace(name="fold", function=fold_constants, doc="Literals fold.")
    page = generate.laws_page([law, rule])
    assert "| arithmetic | `add_zero` | `x \\| 0 = x` | Zero adds nothing. |  |" in page
    assert "| test_generate | `fold` | (rule) | Literals fold. |  |" in page


def test_only_a_missing_module_counts_as_missing(generate: ModuleType, tmp_path: Path) -> None:
    assert generate.module_or_none("pellucid.no_such_module") is None
    assert generate.module_or_none("pellucid.core.options").__name__ == "pellucid.core.options"
    (tmp_path / "needs_something.py").write_text("import no_such_library\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            generate.module_or_none("needs_something")
    finally:
        sys.path.remove(str(tmp_path))
