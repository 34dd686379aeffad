"""How much Python does for each call: counts, which do not depend on the machine's load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pellucid import Tensor, jit, no_grad, pipeline
from pellucid.engine.replay import Replay
from pellucid.frontend.jit import Jit
from pellucid.nn.optim import SGD
from pellucid.runtime.tape import Tape
from tests.counting import calls_in

MODEL = """
import sys
import numpy as np
import pytest
from pellucid import Tensor, pipeline
x = Tensor(np.ones((16, 16), np.float32))
for _ in range(3):
    x = ((x @ x) * 0.03 + 0.5).relu().contiguous()
total = (x / x.sum(1, keepdim=True)).sum().item()
print(round(total, 3), pipeline.statistics.modules, "llvmlite" in sys.modules)
"""


def calls_of(function: Callable[[], object]) -> int:
    """How many Python functions a call of *function* enters, when it is not the first one."""
    for _ in range(5):
        function()
    return calls_in(function)


def test_python_functions_to_realise_a_known_expression() -> None:
    x = Tensor(np.ones(64, np.float32)).realize()
    build = calls_of(lambda: x * 3 + 1)
    assert build <= 34
    assert calls_of(lambda: (x * 3 + 1).realize()) - build <= 38


def test_python_functions_to_replay_one_kernel() -> None:
    x = Tensor(np.ones(64, np.float32)).realize()
    y = Tensor(np.ones(64, np.float32)).realize()
    one, two = jit(lambda x: x * 3 + 1), jit(lambda x, y: x * 3 + y)
    assert calls_of(lambda: one(x)) == calls_of(lambda: two(x, y)) <= 3


def test_python_functions_to_replay_a_training_step() -> None:
    w = Tensor(np.ones((4, 4), np.float32), requires_grad=True).realize()
    optimizer = SGD([w], lr=0.5)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x @ w).sum()
        loss.backward()
        optimizer.step()
        return loss

    x = Tensor(np.ones((4, 4), np.float32)).realize()
    before = calls_of(lambda: step(x))
    assert before <= 68
    with no_grad():
        others = [(x * float(n + 2)).realize() for n in range(20)]
    assert len({other.uop for other in others}) == 20
    assert calls_of(lambda: step(x)) <= before + 20, "one for each other tensor in memory"


def test_a_state_that_stays_where_it_is_costs_a_replay_one_function() -> None:
    x = Tensor(np.ones(4, np.float32)).realize()

    def replay(count: int) -> int:
        states = [Tensor(np.ones(4, np.float32)).realize() for _ in range(count)]

        @jit
        def step(x: Tensor) -> Tensor:
            for state in states:
                state.assign(state + x)
            return x * 3

        calls = calls_of(lambda: step(x))
        assert all(state.tolist() == [7.0] * 4 for state in states), "one of them did not follow"
        return calls

    assert replay(9) <= replay(1) + 8


def replay_of(step: Jit[..., Tensor]) -> Replay:
    found = [entry.replay for entry in step._entries.values() if entry.replay is not None]
    assert len(found) == 1
    return found[0]


def test_a_replay_is_one_native_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(np.ones((8, 8), np.float32)).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        for _ in range(5):
            x = ((x @ x) * 0.1).contiguous()
        return x

    for _ in range(2):
        step(x)
    prepared = replay_of(step).prepared()
    assert prepared is not None
    assert prepared.tape.words[0] == 5, "five kernels"
    calls: list[str] = []
    play, player_on = prepared.tape.run, Tape.player_on
    prepared.tape.run = lambda: calls.append("played") or play()  # type: ignore[func-returns-value]

    def heard(tape: Tape, places: Sequence[Sequence[int]]) -> Callable[..., bool]:
        play_on = player_on(tape, places)
        return lambda *given: calls.append("played on") or play_on(*given)  # type: ignore[func-returns-value]

    monkeypatch.setattr(Tape, "player_on", heard)
    step(x)
    assert calls == ["played"], "the long way"
    step(x)
    assert calls == ["played", "played on"], "the straight way"


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
