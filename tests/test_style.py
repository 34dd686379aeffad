"""What CONTRIBUTING.md asks of all code of the package, where a walk over it can tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pellucid

FOLDER = Path(pellucid.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
LONGEST = 800
"""Lines of a file: more are two ideas."""


def faults(text: str) -> Iterator[str]:
    """What is wrong, each with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert) and node.msg is None:
            yield f"line {node.lineno}: an assert without a message"
        elif isinstance(node, ast.ExceptHandler):
            is_empty = all(isinstance(part, ast.Pass) for part in node.body)
            if node.type is None or (is_empty and _is_all(node.type)):
                yield f"line {node.lineno}: it hides every error"


def _is_all(kind: ast.expr) -> bool:
    return isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")


@pytest.mark.parametrize("folder", sorted({f.parent for f in FILES}), ids=lambda f: f.name)
def test_faults(folder: Path) -> None:
    found = [
        f"{path.relative_to(FOLDER.parent)} {fault}"
        for path in sorted(folder.glob("*.py"))
        for fault in faults(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_files_can_be_opened() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert [str(path) for path, lines in lengths.items() if lines > LONGEST] == []


def test_faults_are_found() -> None:
    assert list(faults("assert 1")) == ["line 1: an assert without a message"]
    assert list(faults("try: f()\nexcept Exception: pass")) == ["line 2: it hides every error"]
    assert list(faults("try: f()\nexcept: g()")) == ["line 2: it hides every error"]
    assert not list(faults("assert 1, 'one'\ntry: f()\nexcept OSError: pass"))
