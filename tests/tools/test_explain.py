"""explain says where each kernel comes from, why it is one, what was done to it, and its speed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from pellucid import Context, Ops, Tensor, pipeline
from pellucid.core.errors import CompileError
from pellucid.core.observe import observed_by
from pellucid.runtime.limits import Limits
from pellucid.tools.explain import explain, explain_file, show
from pellucid.tools.kernels import ScheduleCollector, kernels_of
from pellucid.tools.running import UsageError

PROGRAM = """\
from pellucid import Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
y = x * 3 + 1
total = y.sum(1)
print(total.tolist())
"""


LIMITS = Limits(
    1,
    {"fma": 1e11, "l1": 2e11, "l2": 1e11, "l3": 4e10, "read": 8e9, "copy": 9e9, "stream": 1e10},
    call_seconds=5e-7,
)


@pytest.fixture(autouse=True)
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits and times that are the same on all machines."""
    monkeypatch.setattr("pellucid.tools.explain.machine_limits", lambda threads: LIMITS)
    monkeypatch.setattr("pellucid.tools.explain.run_seconds", lambda program, device: 1e-6)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_program_is_explained(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_file(program) == 0
    printed = capsys.readouterr().out
    assert "[11.0, 23.0]" in printed  # the program's own output
    assert "program.py:3  y = x * 3 + 1" in printed
    for stage in pipeline.KERNEL_PIPELINE:
        assert stage.name in printed
    for word in ("why", "optimised by", "work", "time", "size", "LINEAR", "its source", "define"):
        assert word in printed


def test_reasons_stand_under_what_they_are_reasons_of(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_file(program)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    place = next(i for i, line in enumerate(lines) if line.startswith("optimised by"))
    assert lines[place + 1].startswith("action: ")
    assert any(line.startswith("key ") for line in lines[place + 2 :])


def test_what_bounds_a_kernel_is_said_with_the_limits_of_the_machine(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_file(program)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any("bound by code compiled in" in line for line in lines)
    assert any(line.startswith("1 ") and " call 50 % " in line for line in lines)
    assert (
        "limits 1 thread: FMA 100 GFLOP/s, L1 200 GB/s, L2 100 GB/s, L3 40 GB/s, "
        "memory 10 GB/s, a call 0.5 us"
    ) in lines
    place = next(i for i, line in enumerate(lines) if line.startswith("bound by the host"))
    what = "the host's call: 50 % of the time is that of a kernel that does nothing"
    assert lines[place : place + 2] == [f"bound by {what}", "and FMA 0 %, L1 0 %"]


def test_a_kernel_is_not_bound_where_nothing_was_measured(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.tools.explain.machine_limits", lambda threads: None)
    explain_file(program)
    printed = capsys.readouterr().out
    assert "kernel 1" in printed
    assert "limits " not in printed
    assert "call 50 %" not in printed


def test_stages_and_instructions_on_request(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_file(program)
    short = capsys.readouterr().out
    explain_file(program, stages=True, disassemble=True)
    long = capsys.readouterr().out
    assert "after apply_actions" in long
    assert "after apply_actions" not in short
    assert "machine instructions" in long
    assert len(long) > 1.5 * len(short)


def test_one_kernel_can_be_chosen(program: str) -> None:
    assert explain_file(program, kernel=1) == 0
    with pytest.raises(UsageError, match="there is no kernel 9"):
        explain_file(program, kernel=9)


def test_a_failing_program_is_explained_up_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + "raise KeyError('mine')\n")
    assert explain_file(str(path)) == 1
    done = capsys.readouterr()
    assert "KeyError: 'mine'" in done.err
    assert "kernel 1" in done.out


def test_a_tensor_is_explained_without_being_computed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = x * 2
    explain(y)
    assert "kernel 1" in capsys.readouterr().out
    assert not y.is_realized
    assert y.tolist() == [2.0, 4.0]
    explain(y)
    assert "in memory already" in capsys.readouterr().out


def test_a_tensor_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    (Tensor([1.0, 2.0]).realize() * 2).explain()
    assert "kernel 1" in capsys.readouterr().out


def test_a_kernel_that_does_not_compile_shows_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linear = (Tensor([1.0, 2.0]).realize() * 2).schedule_linear()
    renderer = pipeline.renderer_for("CPU")

    def refuse(self: object, linear: object, info: object) -> str:
        raise CompileError("no", stage="render", kernel="k")

    monkeypatch.setattr(type(renderer), "render", refuse)
    out = io.StringIO()
    (found,) = show([linear], to=Console(file=out, width=120))
    assert found.study.program is None
    assert "failed" in out.getvalue()
    assert "render failed for kernel k: no" in out.getvalue()


@pytest.mark.parametrize("device", ["CPU", "CPU:C"])
def test_facts_are_measured_not_written(device: str) -> None:
    with Context(device=device):
        x = Tensor([[1.0, 2.0, 3.0]]).realize()
        linear = (x + 1).schedule_linear()
        (found,) = show([linear], device=device, to=Console(file=io.StringIO()))
    assert found.seconds is not None
    assert 0 < found.seconds < 1
    assert found.study.info.flops == 3
    assert found.study.info.bytes == 24
    assert [kernel.calls for kernel in kernels_of([linear, linear])] == [2]


def test_watching_a_program_keeps_none_of_its_memory() -> None:
    collector = ScheduleCollector()
    x = Tensor([1.0, 2.0]).realize()
    with observed_by(collector):
        for _ in range(5):
            x = (x * 2 + 1).detach().realize()
    assert len(collector.linears) == 5
    assert len(set(collector.linears)) == 1
    assert not any(n.op is Ops.BUFFER for line in collector.linears for n in line.toposort())
