"""How much Python does for each call: counts, which do not depend on the machine's load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pellucid import Tensor, jit, pipeline
from pellucid.engine.replay import Replay
from pellucid.frontend.jit import Jit

MODEL = """
import sys
import numpy as np
from pellucid import Tensor, pipeline
x = Tensor(np.ones((16, 16), np.float32))
for _ in range(3):
    x = ((x @ x) * 0.03 + 0.5).relu().contiguous()
total = (x / x.sum(1, keepdim=True)).sum().item()
print(round(total, 3), pipeline.statistics.modules, "llvmlite" in sys.modules)
"""


def calls_of(function: Callable[[], object]) -> int:
    """How many Python functions one call of *function* calls, itself not counted."""
    count = 0

    def see(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    for _ in range(5):
        function()
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count - 1


def test_python_functions_to_realise_a_known_expression() -> None:
    x = Tensor(np.ones(64, np.float32)).realize()
    build = calls_of(lambda: x * 3 + 1)
    assert build <= 150
    assert calls_of(lambda: (x * 3 + 1).realize()) - build <= 90


def test_python_functions_to_replay_one_kernel() -> None:
    x = Tensor(np.ones(64, np.float32)).realize()
    step = jit(lambda x: x * 3 + 1)
    assert calls_of(lambda: step(x)) <= 70


def replay_of(step: Jit[..., Tensor]) -> Replay:
    found = [entry.replay for entry in step._entries.values() if entry.replay is not None]
    assert len(found) == 1
    return found[0]


def test_a_replay_is_one_native_call() -> None:
    x = Tensor(np.ones((8, 8), np.float32)).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        for _ in range(5):
            x = ((x @ x) * 0.1).contiguous()
        return x

    for _ in range(3):
        step(x)
    prepared = replay_of(step)._prepared
    assert prepared is not None
    assert prepared.tape.words[0] == 5, "five kernels"
    calls: list[str] = []
    play = prepared.tape.run
    prepared.tape.run = lambda: calls.append("played") or play()  # type: ignore[func-returns-value]
    step(x)
    assert calls == ["played"]


def test_more_kernels_cost_no_more_python_in_a_replay() -> None:
    x = Tensor(np.ones((8, 8), np.float32)).realize()

    def steps(count: int) -> Jit[..., Tensor]:
        def run(x: Tensor) -> Tensor:
            for _ in range(count):
                x = ((x @ x) * 0.1).contiguous()
            return x

        return jit(run)

    one, many = steps(1), steps(9)
    assert calls_of(lambda: many(x)) == calls_of(lambda: one(x))


def test_kernels_of_a_schedule_are_one_module(tmp_path: Path) -> None:
    before = pipeline.statistics.modules
    x = Tensor(np.ones((12, 12), np.float32))
    y = ((x @ x) * 0.017).contiguous()
    (y.sum(1) + 0.19).realize(y)
    assert pipeline.statistics.modules == before + 1


def test_a_warm_cache_needs_no_llvm(tmp_path: Path) -> None:
    def run() -> str:
        environment = {"PELLUCID_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, "-c", MODEL],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout.strip()

    assert run() == "16.0 1 True"
    assert run() == "16.0 0 False"


def test_importing_the_library_imports_no_compiler() -> None:
    script = (
        "import sys, pellucid; "
        "late = ['llvmlite', 'rich', 'pellucid.pipeline', 'pellucid.codegen.linearize', "
        "'pellucid.ir.interpret.kernels', 'subprocess', 'pellucid.render.llvm']; "
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
