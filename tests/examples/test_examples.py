"""The examples run as their pages say, and print what they print."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
README = EXAMPLES.parent / "README.md"


def run(*arguments: str, device: str = "CPU") -> subprocess.CompletedProcess[str]:
    """Run an example in a process of its own, as a user does."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PELLUCID_DEVICE": device},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    """The module of the demo."""
    specification = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_first_program_prints_its_source_and_result() -> None:
    done = run(str(EXAMPLES / "first.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("define void @")
    assert done.stdout.endswith("[4.0, 7.0, 10.0]\n")


def test_the_readme_shows_the_first_program_and_what_it_prints() -> None:
    text = README.read_text()
    program = (EXAMPLES / "first.py").read_text().partition('"""\n\n')[2]
    assert program in text
    blocks = text.split("```")
    shown = next(block for block in blocks if "void map_3(" in block).partition("\n")[2]
    assert shown == run(str(EXAMPLES / "first.py"), device="CPU:C").stdout


def test_the_digits_are_learned() -> None:
    done = run(str(EXAMPLES / "digits.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("held out", "600/600", "kernels", "one run", "are read right: enough", "explain"):
        assert part in done.stdout


def test_too_little_learning_is_a_failure() -> None:
    done = run(str(EXAMPLES / "digits.py"), "--steps", "2")
    assert done.returncode == 1
    assert "too few" in done.stdout


def test_the_held_out_third_is_stratified_and_apart(digits: ModuleType) -> None:
    (learned, learned_labels), (held_out, held_out_labels) = digits.split_digits()
    assert len(held_out) == 599
    assert len(learned) + len(held_out) == 1797
    for digit in range(10):
        count = (learned_labels == digit).sum() + (held_out_labels == digit).sum()
        assert (held_out_labels == digit).sum() == round(count / 3)
    assert learned.dtype == np.float32
    assert 0 == learned.min() < learned.max() == 1
    again = digits.split_digits()
    assert (again[1][0] == held_out).all()
