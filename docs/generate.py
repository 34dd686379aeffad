"""Gather the pages of the documentation in build/docs: some are copied, the others are made.

What the code knows is never written twice: options, errors, ops, laws and stages print themselves.

    docs/*.md, *.svg, *.css   -> the same in build/docs
    README.md                 -> build/docs/index.md
    pellucid.core.options     -> build/docs/options.md              (and errors, ops, laws)
    pellucid.pipeline         -> build/docs/pipeline/<stage>.md     one chapter a stage
    every package             -> build/docs/api/<package>.md        from the docstrings
    all of them, in order     -> build/mkdocs.yml                   the navigation

Run by `make docs`; `python docs/generate.py` alone writes the pages and needs no mkdocs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pellucid
from pellucid.core.errors import error_table, error_tree
from pellucid.core.options import options_table
from pellucid.tools.tables import known_rules

ROOT = Path(__file__).resolve().parent.parent

Page = tuple[str, str, str]
"""Title, path below build/docs, text."""
Navigation = list[dict[str, Any]]


def module_or_none(name: str) -> ModuleType | None:
    """Import a module, or give None when the project does not have it; other errors are errors."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            return None
        raise


# ---- pages that are made from tables --------------------------------------------------------


def options_page() -> str:
    """Every option, from core/options.py."""
    return "\n".join(
        [
            "# Options",
            "",
            "Set a variable for a whole program, or use `with Context(...)` for a block. A wrong",
            "name or value is an error that says what is allowed. Options that change code are",
            "part of every cache key.",
            "",
            options_table(),
        ]
    )


def errors_page() -> str:
    """Every error, from core/errors.py."""
    tree = "\n".join(f"    {line}" for line in error_tree().splitlines())
    return f"# Errors\n\n{tree}\n\n{error_table()}"


def ops_page(ops: Any) -> str:
    """Every operation, from ir/op.py."""
    rows = ["| op | family | sources | facts | meaning |", "|---|---|---|---|---|"]
    for op in ops.all():
        facts = [name for name in ("commutative", "associative", "idempotent") if getattr(op, name)]
        facts += [] if op.exact else ["spelled with exact ops before it runs"]
        facts += ["only in programs of targets that have it"] if op.native_only else []
        sources = ", ".join(op.sources)
        rows.append(
            f"| `{op.name}` | {op.group.value} | {sources} | {', '.join(facts)} | {cell(op.doc)} |"
        )
    return "# Operations\n\n" + "\n".join(rows) + "\n"


def laws_page(laws: list[Any]) -> str:
    """Every law and rule, with how far it is proved."""
    rows = [
        "| family | name | equation | what it says | how it is known |",
        "|---|---|---|---|---|",
    ]
    for law in laws:
        family = law.function.__module__ if not hasattr(law, "family") else law.family
        equation = f"`{cell(law.equation)}`" if hasattr(law, "equation") else "(rule)"
        level = cell(str(getattr(law, "level", "")))
        name = family.rpartition(".")[2]
        rows.append(f"| {name} | `{law.name}` | {equation} | {cell(law.doc)} | {level} |")
    return "# Laws\n\n" + "\n".join(rows) + "\n"


def cell(text: str) -> str:
    """Make *text* fit into one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def tensor_page(tensor: type) -> str:
    """Every method of Tensor, in families: what it takes, and in a sentence what it does."""
    lines = ["# Tensor", "", inspect.getdoc(tensor) or "", ""]
    for family in reversed(tensor.__mro__):
        rows = [row for name, value in vars(family).items() if (row := method_row(name, value))]
        module = inspect.getmodule(family)
        if rows and module is not None and family.__module__.startswith("pellucid."):
            title = (inspect.getdoc(module) or "").partition("\n")[0].partition(":")[0].rstrip(".")
            lines += [f"## {title}", "", "| method | what it does |", "|---|---|", *rows, ""]
    return fenced_examples("\n".join(lines))


STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def method_row(name: str, value: Any) -> str | None:
    """One row for a public method or property that says what it does."""
    function = getattr(value, "__func__", getattr(value, "fget", value))
    doc = (inspect.getdoc(function) or "").partition("\n\n")[0]
    if name.startswith("_") or not doc or not inspect.isfunction(function):
        return None
    names = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        stars = STARS.get(parameter.kind.name, "")
        has_default = parameter.default is not parameter.empty
        names.append(
            f"{stars}{parameter.name}" + (f"={parameter.default!r}" if has_default else "")
        )
    call = "" if isinstance(value, property) else f"({', '.join(names)})"
    return f"| `{cell(name + call)}` | {cell(doc)} |"


def fenced_examples(text: str) -> str:
    """Put examples of Python's prompt into blocks of code."""
    return re.sub(r"^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", text, flags=re.MULTILINE)


# ---- the pipeline: one chapter a stage ------------------------------------------------------


def pipelines(module: ModuleType) -> dict[str, list[Any]]:
    """Find the lists of stages in pipeline.py, by the names they have there."""
    found = {}
    for name, value in vars(module).items():
        stages = list(value) if isinstance(value, tuple | list) else []
        if name.isupper() and stages and all(hasattr(stage, "why") for stage in stages):
            found[name] = stages
    return found


def stage_name(stage: Any) -> str:
    """Give the one name of a stage: its function's."""
    return str(getattr(stage, "name", None) or stage.run.__name__)


def form_name(form: Any) -> str:
    """Give the name of a form, whether it is an object or a text."""
    return str(getattr(form, "name", form))


def stage_chapter(stage: Any, number: int) -> str:
    """Write the chapter of a stage: its contract, then the docstring of its module."""
    module = inspect.getmodule(stage.run)
    lines = [
        f"# {number}. {stage_name(stage)}",
        "",
        f"*{stage.why}*",
        "",
        "| needs | gives |",
        "|---|---|",
        f"| {form_name(stage.needs)} | {form_name(stage.gives)} |",
        "",
    ]
    for earlier, reason in (getattr(stage, "after", None) or {}).items():
        lines.append(f"- comes after `{earlier}`: {reason}")
    text = (inspect.getdoc(module) if module else "") or ""
    lines += ["", text, ""]
    if module is not None:
        lines += [f"Code: `{module.__name__.replace('.', '/')}.py`", ""]
    return "\n".join(lines)


def pipeline_pages(module: ModuleType) -> Iterator[Page]:
    """Write the table of contents of the compiler, and a chapter for each stage."""
    contents = ["# The pipeline", "", inspect.getdoc(module) or "", ""]
    chapters: list[Page] = []
    for name, stages in pipelines(module).items():
        contents += [f"## {name.replace('_', ' ').capitalize()}", ""]
        contents += ["| stage | needs | gives | why |", "|---|---|---|---|"]
        for number, stage in enumerate(stages, 1):
            title = stage_name(stage)
            path = f"pipeline/{name.lower()}-{number:02}-{title}.md"
            chapters.append((title, path, stage_chapter(stage, number)))
            link = f"[{title}]({Path(path).name})"
            needs, gives = form_name(stage.needs), form_name(stage.gives)
            contents.append(f"| {link} | {needs} | {gives} | {cell(stage.why)} |")
        contents.append("")
    yield "The pipeline", "pipeline/index.md", "\n".join(contents)
    yield from chapters


LAST_STEPS = {
    "linearize": ["pellucid.codegen.linearize"],
    "render": [
        "pellucid.render.renderer",
        "pellucid.render.llvm.__init__",
        "pellucid.render.c.__init__",
    ],
    "compile": ["pellucid.runtime.toolchain_llvm", "pellucid.runtime.toolchain_c"],
    "load and run": ["pellucid.runtime.loader", "pellucid.runtime.program"],
}
"""What follows the kernel pipeline: no graph comes out of these steps, so they are no stages."""


def last_steps() -> Iterator[Page]:
    """Write the chapters from the lowered kernel to the machine, from the modules' docstrings."""
    for title, names in LAST_STEPS.items():
        lines = [f"# {title[0].upper()}{title[1:]}", ""]
        for name in names:
            path = name.replace(".", "/") + ".py"
            lines += [f"## {path}", "", module_docstring(ROOT / path), ""]
        yield title, f"pipeline/program-{title.replace(' ', '-')}.md", "\n".join(lines)


# ---- the code: one page a package -----------------------------------------------------------


def api_pages() -> Iterator[Page]:
    """Write a page for each package, which mkdocstrings fills from the docstrings."""
    folder = Path(pellucid.__file__).parent
    names = [name for _, name, is_package in pkgutil.iter_modules([str(folder)]) if is_package]
    for name in sorted(names):
        package = folder / name
        modules = sorted(package.rglob("*.py"))
        lines = [f"# pellucid.{name}", "", module_docstring(package / "__init__.py"), ""]
        for module in modules:
            dotted = ".".join(module.relative_to(folder.parent).with_suffix("").parts)
            if not dotted.endswith("__init__") and module_docstring(module):
                lines += [f"::: {dotted}", ""]
        yield f"pellucid.{name}", f"api/{name}.md", "\n".join(lines)


def module_docstring(path: Path) -> str:
    """Read the docstring of a module without running it."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


# ---- all of it ------------------------------------------------------------------------------


FIRST_PAGES = (
    "from-pytorch",
    "semantics",
    "looking-inside",
    "actions",
    "targets",
    "performance",
)
"""What people read in this order; pages that are not named here follow."""


def written_pages() -> Iterator[Page]:
    """Take the pages that people wrote: the README comes first, as the index."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield "Pellucid", "index.md", with_links_of_pages(readme)
    files = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}
    for path in [files[name] for name in FIRST_PAGES] + [
        path for name, path in files.items() if name not in FIRST_PAGES
    ]:
        text = path.read_text(encoding="utf-8")
        yield text.partition("\n")[0].lstrip("# "), path.name, text


def with_links_of_pages(readme: str) -> str:
    """Let the links of the README lead to pages; files that are no pages become plain names."""
    text = readme.replace("(CONTRIBUTING.md)", "(contributing.md)").replace("(docs/", "(")
    return re.sub(r"\[([^]]+)\]\(examples/[^)]+\)", r"`\1`", text)


def table_pages() -> Iterator[Page]:
    """Make the pages that are tables; those of parts that do not exist yet are left out."""
    yield "Tensor", "tensor.md", tensor_page(pellucid.Tensor)
    yield "Options", "options.md", options_page()
    yield "Errors", "errors.md", errors_page()
    if op := module_or_none("pellucid.ir.op"):
        yield "Operations", "ops.md", ops_page(op.Ops)
    yield "Laws", "laws.md", laws_page(known_rules())


def project_pages() -> Iterator[Page]:
    """Take the contribution guide and the changelog."""
    for title, name in [("Contributing", "CONTRIBUTING.md"), ("Changelog", "CHANGELOG.md")]:
        yield title, name.lower(), (ROOT / name).read_text(encoding="utf-8")


def all_pages() -> Iterator[tuple[str, list[Page]]]:
    """Give the sections in the order of the navigation."""
    yield "Pellucid", list(written_pages())
    pipeline = module_or_none("pellucid.pipeline")
    if pipeline is not None:
        contents, *chapters = pipeline_pages(pipeline)
        yield "The pipeline", [contents]
        for name in pipelines(pipeline):
            start = f"pipeline/{name.lower()}-"
            title = name.replace("_", " ").capitalize()
            yield title, [page for page in chapters if page[1].startswith(start)]
        yield "Program", list(last_steps())
    yield "Tables", list(table_pages())
    yield "The code", list(api_pages())
    yield "The project", list(project_pages())


def generate(build: Path) -> list[Path]:
    """Write all pages below *build*, and the configuration that puts them in order."""
    docs = build / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    navigation: Navigation = []
    written = []
    for section, pages in all_pages():
        for _, path, text in pages:
            (docs / path).parent.mkdir(parents=True, exist_ok=True)
            (docs / path).write_text(text, encoding="utf-8")
            written.append(docs / path)
        entries: Navigation = [{title: path} for title, path, _ in pages]
        navigation.append({section: entries})
    for kept in [path for kind in ("*.svg", "*.css") for path in (ROOT / "docs").glob(kind)]:
        shutil.copy(kept, docs)
    config = {
        "INHERIT": "../mkdocs.yml",
        "docs_dir": "docs",
        "site_dir": "../site",
        "nav": navigation,
    }
    # JSON is YAML, so that writing it needs no library.
    (build / "mkdocs.yml").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return written


def main() -> int:
    """Write the pages into build/ and say how many there are."""
    pages = generate(ROOT / "build")
    print(f"documentation: {len(pages)} pages in build/docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
