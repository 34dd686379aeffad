"""The spine, end to end: Tensor code becomes calls, calls become programs, programs run.

Also what a cached program may be keyed by: everything that changes its code, and nothing else.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pellucid import Ops, Tensor, UOp, compile_linear, dtypes, run_linear
from pellucid.core.errors import FormError
from pellucid.core.options import Context, current_options
from pellucid.ir.arg import CallInfo, KernelInfo, ParamArg, ProgramInfo
from pellucid.ir.form import LINEAR, SCHEDULE
from pellucid.ir.verify import verify
from pellucid.pipeline import (
    forget_programs,
    renderer_for,
    statistics,
    to_program,
    to_program_key,
)
from pellucid.render import CRenderer, LLVMRenderer
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device

DEVICES = ("CPU", "CPU:C")


def programs_in(linear: UOp) -> list[UOp]:
    """Every PROGRAM of a compiled schedule."""
    return [node for node in linear.toposort() if node.op is Ops.PROGRAM]


# ---- the program of the README ----------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_three_numbers(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Context(device=device):
        x = Tensor([1.0, 2.0, 3.0]).realize()
        y = x * 3 + 1
        linear = y.schedule_linear()
        compiled = compile_linear(linear)
        programs = programs_in(compiled)
        assert programs
        for program in programs:
            sources = [source for source in program.src if source.op is Ops.SOURCE]
            assert len(sources) == 1
            print(sources[0].arg)
        run_linear(compiled)
        assert y.tolist() == [4.0, 7.0, 10.0]
    assert programs[0].arg.name in capsys.readouterr().out


@pytest.mark.parametrize("device", DEVICES)
def test_a_program_holds_sink_linear_source_binary(device: str) -> None:
    with Context(device=device):
        compiled = compile_linear((Tensor([1.0, 2.0]) * 2).schedule_linear())
    for program in programs_in(compiled):
        assert [s.op for s in program.src] == [Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY]
        assert isinstance(program.arg, ProgramInfo)
        assert isinstance(program.src[2].arg, str)
        assert isinstance(program.src[3].arg, bytes)


def test_the_two_kinds_of_linear_are_told_apart_by_form() -> None:
    schedule = (Tensor([1.0, 2.0]).realize() + 1).schedule_linear()
    assert all(call.op is Ops.CALL and isinstance(call.arg, CallInfo) for call in schedule.src)
    compiled = compile_linear(schedule)
    program = programs_in(compiled)[0]
    target = renderer_for("CPU").target
    low_level = program.src[1]
    assert schedule.op is low_level.op is Ops.LINEAR
    verify(schedule, SCHEDULE)
    verify(low_level, LINEAR, target)
    with pytest.raises(FormError):
        verify(low_level, SCHEDULE)
    with pytest.raises(FormError):
        verify(schedule, LINEAR, target)


def test_a_program_lists_every_operation_after_its_sources() -> None:
    compiled = compile_linear((Tensor(np.ones((3, 4), np.float32)).sum(1) + 1).schedule_linear())
    for program in programs_in(compiled):
        seen: set[UOp] = set()
        for item in program.src[1].src:
            assert seen.issuperset(s for s in item.src if s in set(program.src[1].src))
            seen.add(item)


def test_compiling_keeps_the_calls_in_order() -> None:
    schedule = (Tensor([[1.0, 2.0]]).realize().sum(1).contiguous() * 2).schedule_linear()
    compiled = compile_linear(schedule)
    assert [c.src[1:] for c in compiled.src] == [c.src[1:] for c in schedule.src]
    assert all(c.src[0].op in (Ops.PROGRAM, Ops.COPY) for c in compiled.src)


# ---- keys -------------------------------------------------------------------------------------


def scaled(factor: float, name: str = "scale", size: int = 4) -> UOp:
    """A kernel: out[i] = in[i] * factor."""
    i = UOp.range(size, 0)
    out = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, size))
    given = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(1, size))
    return UOp.sink(out.index(i).store(given.index(i) * factor).end(i), arg=KernelInfo(name))


def run(program: UOp, values: list[float]) -> list[float]:
    """What a program of `scaled` makes of *values*."""
    out, given = (Buffer("CPU", len(values), dtypes.float32) for _ in range(2))
    given.copy_from(np.array(values, np.float32))
    loaded = Device["CPU"].load(program.src[3].arg, program.arg.name)
    loaded([out, given], num_threads=program.arg.num_threads)
    return out.as_numpy().tolist()


def test_the_key_is_equal_for_equal_kernels() -> None:
    renderer = LLVMRenderer()
    assert to_program_key(scaled(2), renderer) == to_program_key(scaled(2), LLVMRenderer())
    assert hash(to_program_key(scaled(2), renderer)) == hash(to_program_key(scaled(2), renderer))


@pytest.mark.parametrize(
    "other",
    [
        lambda: to_program_key(scaled(3), LLVMRenderer()),
        lambda: to_program_key(scaled(2, size=5), LLVMRenderer()),
        lambda: to_program_key(scaled(2, name="other"), LLVMRenderer()),
        lambda: to_program_key(scaled(2), CRenderer()),
        lambda: to_program_key(
            scaled(2), LLVMRenderer(dataclasses.replace(LLVMRenderer().target, l2_bytes=1 << 16))
        ),
    ],
    ids=["constant", "size", "name", "renderer", "target"],
)
def test_the_key_differs_when_code_may_differ(other: Callable[[], object]) -> None:
    assert other() != to_program_key(scaled(2), LLVMRenderer())


def test_the_key_follows_options_that_change_code_and_no_others() -> None:
    renderer = LLVMRenderer()
    before = to_program_key(scaled(2), renderer)
    for field in dataclasses.fields(current_options()):
        change = {
            "device": "NULL",
            "cache_dir": "/nowhere",
            "default_float": "float64",
            "default_int": "int32",
            "progress": "off",
            "actions": "kernel 0123456789abcdef",
        }.get(field.name)
        if change is None:
            value = getattr(current_options(), field.name)
            change = not value if isinstance(value, bool) else value + 1
        with Context(**{field.name: change}):
            is_same = to_program_key(scaled(2), renderer) == before
        assert is_same is not field.metadata["affects_code"], field.name


def test_the_key_is_equal_in_another_process() -> None:
    script = (
        "from tests.test_spine import scaled, to_program_key, LLVMRenderer;"
        "print(to_program_key(scaled(2), LLVMRenderer()))"
    )
    root = Path(__file__).parent.parent
    printed = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.add(done.stdout.strip())
    assert printed == {str(to_program_key(scaled(2), LLVMRenderer()))}


def test_a_cache_hit_with_other_values_gives_their_result() -> None:
    first = (Tensor([1.0, 2.0, 4.0]).realize() * 5 - 3).tolist()
    compiled = statistics.compiled
    second = (Tensor([7.0, 8.0, 9.0]).realize() * 5 - 3).tolist()
    assert statistics.compiled == compiled, "the second program was compiled again"
    assert (first, second) == ([2.0, 7.0, 17.0], [32.0, 37.0, 42.0])


def test_programs_on_disk_belong_to_the_compiler_that_wrote_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renderer = LLVMRenderer()
    to_program(scaled(6), renderer)
    forget_programs()
    found = statistics.on_disk
    to_program(scaled(6), renderer)
    assert statistics.on_disk == found + 1
    forget_programs()
    monkeypatch.setattr("pellucid.pipeline.compiler_version", lambda: "another")
    to_program(scaled(6), renderer)
    assert statistics.on_disk == found + 1


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_with_one_name_run_their_own_code(device: str) -> None:
    renderer = renderer_for(device)
    double, triple = (to_program(scaled(n, name="same"), renderer) for n in (2, 3))
    assert double.arg.name == triple.arg.name
    assert run(double, [1, 2, 3, 4]) == [2, 4, 6, 8]
    assert run(triple, [1, 2, 3, 4]) == [3, 6, 9, 12]
    assert run(double, [1, 2, 3, 4]) == [2, 4, 6, 8]


def test_programs_that_differ_in_one_operand_are_different() -> None:
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([10.0, 20.0]).realize()
    assert (x + x).tolist() == [2.0, 4.0]
    assert (x + y).tolist() == [11.0, 22.0]
    assert (y + x).tolist() == [11.0, 22.0]
