"""What users read when they make a mistake: a file for each message, with the exact text.

    two = Tensor([1, 2])                       a program whose last statement is wrong
    two.item()
    ---
    ShapeError: item() reads the only …        what it raises, with the line that is named

`pytest --bless` writes the texts; the difference is then reviewed. After the error, all tensors
that the program had made still have the values that they have without its last statement.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid import nn
from pellucid.core.errors import PellucidError, error_classes
from pellucid.core.options import Options
from pellucid.runtime.registry import DEVICE_NAMES

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))
RULE = "---\n"


def run(path: Path, statements: list[ast.stmt], made: dict[str, Any]) -> None:
    """Run statements of a file, as a program that has imported everything; fill *made*."""
    names: dict[str, Any] = {name: getattr(pellucid, name) for name in pellucid.__all__}
    names |= {"nn": nn, "np": np, "F": nn.functional}
    exec(compile(ast.Module(statements, []), str(path), "exec"), names, made)


def values(names: dict[str, Any]) -> dict[str, Any]:
    """The contents of all tensors that can be read."""
    tensors = {n: t for n, t in names.items() if isinstance(t, pellucid.Tensor)}
    return {n: t.tolist() for n, t in tensors.items() if t.numel() < 1000 and t.device != "NULL"}


def with_names_for_lists(text: str) -> str:
    """Replace what grows with the project, or differs between machines, by a word for it."""
    text = text.replace(", ".join(Options.__slots__), "{all options}")
    text = text.replace(", ".join(DEVICE_NAMES), "{all devices}")
    return re.sub(r"(available|in use)( +).+", r"\1\2{bytes}", text)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_message_is_exact_and_tensors_stay(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    program, _, expected = path.read_text(encoding="utf-8").partition(RULE)
    statements = ast.parse(program).body
    first: dict[str, Any] = {}
    run(path, statements[:-1], first)
    before = values(first)
    left: dict[str, Any] = {}
    with pytest.raises(PellucidError) as caught:
        run(path, statements, left)
    text = with_names_for_lists(f"{type(caught.value).__name__}: {caught.value}\n")
    if request.config.getoption("--bless"):
        path.write_text(program + RULE + text, encoding="utf-8")
        expected = text
    assert text == expected
    assert f"{path.name}:" in text, "the message names the user's line"
    after = values(left)
    for name, value in before.items():
        np.testing.assert_equal(after[name], value, err_msg=f"{name} has changed")


def test_every_class_that_programs_can_meet_has_a_message() -> None:
    """The others say that the machine or the compiler is broken: test_broken_machine.py."""
    met = {path.read_text(encoding="utf-8").partition(RULE)[2].partition(":")[0] for path in FILES}
    elsewhere = {
        "PellucidError", "ActionError", "CacheError", "CompileError", "CompilerError",
        "ExecutionError", "FormError", "InterpretError", "LawError", "ParseError",
        "RewriteLoopError", "ToolchainError",
    }  # fmt: skip
    assert met | elsewhere == {error.__name__ for error in error_classes()}
