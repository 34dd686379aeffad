"""bisect finds the stage that changes a value, and the law that did it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid import Ops, UOp, dtypes, pipeline
from pellucid.core.errors import CompileError
from pellucid.core.target import Target
from pellucid.ir.arg import AxisKind, KernelInfo, ParamArg, ReduceArg
from pellucid.ir.law import RuleSet, rule
from pellucid.ir.rewrite import rewrite_once
from pellucid.ir.rule import Rule
from pellucid.ir.text import from_text
from pellucid.tools.bisect import MACHINE_CODE, bisect, bisect_file
from pellucid.tools.kernels import Kernel

Pass = Callable[[UOp, Target], UOp]


def param(slot: int, size: int) -> UOp:
    return UOp(Ops.PARAM, dtypes.float32, (), ParamArg(slot, size))


def row_sums() -> UOp:
    """out[i] = max(sum_j x[i, j], 0), for 5 rows of 7."""
    i, j = UOp.range(5, 0), UOp.range(7, 1, AxisKind.REDUCE)
    x = param(1, 35).index(i * 7 + j)
    total = UOp(Ops.REDUCE, dtypes.float32, (x + 1.0, j), ReduceArg(Ops.ADD))
    return UOp.sink(param(0, 5).index(i).store(total * 3.0).end(i), arg=KernelInfo("row_sums"))


def with_stage(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Pass], Pass]) -> None:
    """Exchange one stage of the kernel pipeline."""

    def exchanged(stage: pipeline.Stage) -> pipeline.Stage:
        if stage.name != name:
            return stage
        run = change(stage.run)
        run.__name__ = name
        return dataclasses.replace(stage, run=run)

    stages = tuple(exchanged(stage) for stage in pipeline.KERNEL_PIPELINE)
    monkeypatch.setattr(pipeline, "KERNEL_PIPELINE", stages)


@rule(Ops.MUL)
def lose_a_factor(node: UOp) -> UOp | None:
    """A false law: x * y = x."""
    return node.src[0] if node.dtype.is_float else None


def followed_by(bad: Rule) -> Callable[[Pass], Pass]:
    """A stage that applies one more rule at its end."""
    rules = RuleSet("bad", [bad])
    return lambda run: lambda sink, target: rewrite_once(run(sink, target), rules)


def check() -> object:
    return bisect(Kernel(1, row_sums()), pipeline.renderer_for("CPU"), "CPU", seed=3)


def test_a_right_pipeline_is_right_at_every_stage() -> None:
    verdict = bisect(Kernel(1, row_sums()), pipeline.renderer_for("CPU"), "CPU")
    names = [stage.name for stage in pipeline.KERNEL_PIPELINE]
    assert verdict.is_right
    assert verdict.stages == (*names, "linearize", "render", "compile", MACHINE_CODE)


@pytest.mark.parametrize("name", ["simplify_ranges", "add_loads", "choose_index_width"])
def test_a_false_law_is_found_in_its_stage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_stage(monkeypatch, name, followed_by(lose_a_factor))
    verdict = bisect(Kernel(1, row_sums()), pipeline.renderer_for("CPU"), "CPU")
    assert (verdict.stage, verdict.law) == (name, "lose_a_factor")
    assert verdict.problem is not None
    assert verdict.problem.startswith("parameter 0, element 0: expected")


def test_a_stage_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: Pass) -> Pass:
        def failing(sink: UOp, target: Target) -> UOp:
            raise CompileError("lost", stage="coalesce_memory", kernel="row_sums")

        return failing

    with_stage(monkeypatch, "coalesce_memory", fail)
    verdict = bisect(Kernel(1, row_sums()), pipeline.renderer_for("CPU"), "CPU")
    assert verdict.stage == "coalesce_memory"


def test_wrong_code_is_found_where_every_stage_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = pipeline.renderer_for("CPU:C")
    render = type(renderer).render

    def wrong(self: object, linear: UOp, info: object) -> str:
        return render(self, linear, info).replace("3.0", "2.0")  # type: ignore[arg-type]

    monkeypatch.setattr(type(renderer), "render", wrong)
    verdict = bisect(Kernel(1, row_sums()), renderer, "CPU:C")
    assert verdict.stage == MACHINE_CODE


PROGRAM = """
from pellucid import Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
(x.sum(1) * 3).realize()
"""


def test_a_program_is_checked_and_a_failure_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    assert bisect_file(str(path)) == 0
    capsys.readouterr()
    with monkeypatch.context() as patched:
        with_stage(patched, "simplify_ranges", followed_by(lose_a_factor))
        pipeline.forget_programs()
        assert bisect_file(str(path), folder=str(tmp_path)) == 1
        printed = capsys.readouterr().out
        assert "lose_a_factor" in printed
        (saved,) = tmp_path.glob("bisect-*.uop")
        assert f"pellucid bisect {saved}" in printed.replace("\n", "")
        assert from_text(saved.read_text()).op is Ops.SINK
        assert bisect_file(str(saved), folder=str(tmp_path)) == 1
    assert bisect_file(str(saved)) == 0
