"""The table of contents is true: order is checked, and what runs is what it lists."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from pellucid import Tensor, pipeline
from pellucid.core import observe
from pellucid.core.errors import FormError
from pellucid.ir.form import LOOP, VECTOR
from pellucid.ir.uop import UOp
from pellucid.pipeline import (
    KERNEL_PIPELINE,
    SCHEDULE_PIPELINE,
    Stage,
    checked,
    full_rewrite_to_sink,
    renderer_for,
)


def first(sink: UOp, target: object) -> UOp:
    """A pass that does nothing."""
    return sink


def second(sink: UOp, target: object) -> UOp:
    """Another."""
    return sink


def test_every_stage_says_why_and_has_a_page_of_prose() -> None:
    for stage in (*SCHEDULE_PIPELINE, *KERNEL_PIPELINE):
        module = inspect.getmodule(stage.run)
        assert module is not None
        assert len(stage.why) > 20
        assert len((module.__doc__ or "").splitlines()) >= 5, stage.name


def test_a_kernel_pass_has_a_file_of_its_name() -> None:
    for stage in KERNEL_PIPELINE:
        path = Path(inspect.getfile(stage.run))
        assert path.stem == stage.name


def test_an_order_that_breaks_a_reason_is_refused() -> None:
    after = {"second": "it must be so"}
    with pytest.raises(FormError, match="it must stand after second: it must be so"):
        checked([Stage(first, LOOP, LOOP, "why", after=after), Stage(second, LOOP, LOOP, "why")])


def test_forms_follow_each_other() -> None:
    with pytest.raises(FormError, match="the stage before gives VECTOR"):
        checked([Stage(first, LOOP, VECTOR, "why"), Stage(second, LOOP, LOOP, "why")])


def test_a_stage_that_may_be_skipped_keeps_its_form() -> None:
    with pytest.raises(FormError, match="it may be skipped"):
        checked([Stage(first, LOOP, VECTOR, "why", only_if=lambda options: options.verify)])


def test_what_runs_is_what_the_lists_say() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    with observe.record() as seen:
        linear = (x * 3 + 1).schedule_linear()
        kernel = linear.src[0].src[0]
        full_rewrite_to_sink(kernel, renderer_for("CPU").target)
    names = [stage.name for stage in seen.stages]
    scheduled = [stage.name for stage in SCHEDULE_PIPELINE if stage.name in names]
    assert scheduled == ["normalise", "assign_ranges", "cut_kernels", "plan_memory"]
    assert names == [*scheduled, *(stage.name for stage in KERNEL_PIPELINE)]


def test_the_version_of_the_compiler_stands_for_all_of_its_files() -> None:
    package = Path(pipeline.__file__).parent
    below = {path for path, _ in pipeline._files_below(str(package / "codegen"))}
    assert below == {str(path) for path in (package / "codegen").rglob("*.py")}
    assert any("decompositions" in path for path in below), "folders in folders too"
