"""Beam search on this machine: candidates that crash, hang or lie; what is remembered; replay."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import Tensor
from pellucid.core import observe
from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError, OptionError, ParseError
from pellucid.core.options import Context, options_from_environment
from pellucid.core.target import machine_target, parse_target
from pellucid.engine import beam
from pellucid.engine.choosing import with_actions
from pellucid.ir.arg import Action
from pellucid.ir.uop import UOp
from pellucid.opt.saved import actions_from_text, actions_to_text, kernel_key
from pellucid.opt.searching.report import SearchReport
from pellucid.opt.searching.search import Limits
from pellucid.pipeline import forget_programs
from pellucid.runtime import measured_child
from pellucid.runtime.measuring import Code, MeasuringProcess, NotMeasuredError
from pellucid.tools.kernels import kernels_of
from pellucid.tools.saving import actions_of
from tests.codegen import kernels

HEAD = "define void @{name}(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {{\nentry:\n"
CRASHES = HEAD + "  store volatile i32 1, ptr inttoptr (i64 8 to ptr)\n  ret void\n}}\n"
HANGS = HEAD + "  br label %again\nagain:\n  %x = load volatile ptr, ptr %buffers\n"
HANGS += "  br label %again\n}}\n"
IDLES = HEAD + "  ret void\n}}\n"
OUTSIDE = HEAD + "  %b = load ptr, ptr %buffers\n  %p = getelementptr i8, ptr %b, i64 -4\n"
OUTSIDE += "  store i32 7, ptr %p\n  ret void\n}}\n"
WRITES_INPUT = HEAD + "  %q = getelementptr ptr, ptr %buffers, i64 1\n  %b = load ptr, ptr %q\n"
WRITES_INPUT += "  store i32 7, ptr %b\n  ret void\n}}\n"

FEW = Limits(seconds=20.0, candidates=5, steps=1, each_step=3)
ROWS = np.linspace(-1, 1, 24 * 40, dtype=np.float32).reshape(24, 40)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that are short, and remember nothing of other tests."""
    monkeypatch.setattr(Limits, "for_width", staticmethod(lambda width: FEW))
    beam.forget_searches()
    forget_programs()


def only_report() -> SearchReport:
    """The report of the one search that was made."""
    (report,) = beam._found.values()
    return report


def injected(monkeypatch: pytest.MonkeyPatch, texts: dict[int, str]) -> None:
    """Let the candidates with some numbers be other programs; 0 is the reference."""
    numbers = itertools.count()
    lowered = beam.Bench._lowered

    def other(self: beam.Bench, candidate: UOp) -> Code:
        code, text = lowered(self, candidate), texts.get(next(numbers))
        source = None if text is None else text.format(name=code.name)
        return code if source is None else dataclasses.replace(code, source=source)

    monkeypatch.setattr(beam.Bench, "_lowered", other)


def num_started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count the child processes that are started from now on."""
    started: list[object] = []
    start = MeasuringProcess._start

    def counted(self: MeasuringProcess) -> None:
        started.append(self)
        start(self)

    monkeypatch.setattr(MeasuringProcess, "_start", counted)
    return started


# ---- candidates that go wrong ----------------------------------------------------------------


def test_what_goes_wrong_is_dropped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {3: CRASHES, 4: HANGS, 5: "no such language", 6: IDLES, 7: OUTSIDE, 8: WRITES_INPUT}
    injected(monkeypatch, texts)
    monkeypatch.setattr(
        beam, "MeasuringProcess", lambda *given: MeasuringProcess(*given, patience=2.0)
    )
    monkeypatch.setattr(Limits, "for_width", staticmethod(lambda width: Limits(20.0, 10, 4, 8)))
    started = num_started(monkeypatch)
    x = Tensor(ROWS).realize()
    with Context(beam=1), observe.record() as seen:
        got = (x * 2 + 1).numpy()
    np.testing.assert_array_equal(got, ROWS * 2 + 1)
    np.testing.assert_array_equal(x.numpy(), ROWS)
    report = only_report()
    found = {kind: reason for _, kind, reason in report.dropped}
    assert set(found) == {"crashed", "hung", "not compiled", "wrong"}
    assert found["crashed"] == "by SIGSEGV"
    assert found["hung"].startswith("no result after ")
    wrong = [reason for _, kind, reason in report.dropped if kind == "wrong"]
    assert [reason.partition(":")[0] for reason in wrong] == [
        "parameter 0, element 0",
        "parameter 0, something was written outside of it",
        "parameter 1, an input was written to",
    ]
    assert len(started) == 3  # at first, after the crash, after the hang
    assert report.actions not in [actions for actions, _, _ in report.dropped]
    decisions = [event for event in seen.decisions if event.kind == "search"]
    assert "1 crashed, 1 hung, 1 not compiled, 3 wrong" in decisions[0].reason


def test_nothing_that_goes_wrong_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the reference or the heuristic's choice cannot be measured, there is no result."""
    with monkeypatch.context() as patch, Context(beam=1), observe.record() as seen:
        injected(patch, {0: CRASHES})
        assert (Tensor([1.0, 2.0]) * 3).tolist() == [3.0, 6.0]
    assert beam._found == {}
    reasons = [event.reason for event in seen.decisions if event.kind == "search"]
    assert reasons == ["the heuristic decides: crashed: plain loops: by SIGSEGV"]
    with Context(beam=1):
        assert (Tensor([1.0, 2.0]) * 3 + 0.5).tolist() == [3.5, 6.5]
        assert (Tensor([4.0, 2.0]) * 3).tolist() == [12.0, 6.0]
    assert len(beam._found) >= 1


def test_a_child_is_started_again(tmp_path: Path) -> None:
    def code(text: str) -> Code:
        return Code(text.format(name="f"), "f", 1, (0,))

    with MeasuringProcess("CPU:LLVM", [("float32", 4)], patience=2.0) as child:
        child.set_reference(code(IDLES))
        assert child.measure(code(IDLES), [None]) < 1.0
        with pytest.raises(NotMeasuredError, match="crashed: by SIGSEGV"):
            child.measure(code(CRASHES), [None])
        assert child.measure(code(IDLES), [None]) < 1.0
        with pytest.raises(NotMeasuredError, match="hung: no result after"):
            child.measure(code(HANGS), [None])
        assert child.measure(code(IDLES), [None]) < 1.0
        assert child.num_started == 3


@pytest.mark.parametrize(
    ("seconds", "enough", "num_runs"),
    [
        (5e-6, 1e-6, 1472),  # short: all runs are made, up to 32 at a time
        (0.002, 0.001, 2),  # long, and much slower than the best
        (0.002, math.inf, 6),
        (1.0, math.inf, 4),
    ],
)
def test_how_often_a_kernel_runs(seconds: float, enough: float, num_runs: int) -> None:
    """A clock that goes on by the time of a run whenever one is made."""
    done = 0

    class Call:
        def run(self, vars: object = ()) -> None:
            nonlocal done
            done += 1

    Call().run()
    found = measured_child._fastest(Call(), lambda: done * seconds, seconds, enough)
    assert found == pytest.approx(seconds)
    assert done == num_runs


@pytest.mark.parametrize("place", [0, measured_child.BLOCK, 2 * measured_child.BLOCK + 2])
def test_a_difference_is_found_wherever_it_is(place: int) -> None:
    expected = np.arange(2 * measured_child.BLOCK + 3, dtype=np.float32)
    got = expected.copy()
    assert measured_child.difference(dtypes.float32, expected, got, 1e-6) is None
    got[place] += 1.0
    assert measured_child.difference(dtypes.float32, expected, got, 1e-5) is None, "of the largest"
    text = f"element {place}: expected {float(place)}"
    for tolerance in (None, 1e-6):
        found = measured_child.difference(dtypes.float32, expected, got, tolerance)
        assert found is not None
        assert found.startswith(text)


def test_what_was_compared_is_timed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search measures its result again, ten times."""
    asked: list[int] = []
    monkeypatch.setattr(measured_child._Bench, "_call", lambda self, code: CALL)
    monkeypatch.setattr(measured_child._Bench, "_run_once", lambda self, call: asked.append(1) or 1)
    monkeypatch.setattr(measured_child, "_fastest", lambda *given: 2e-6)
    bench = measured_child._Bench()
    question = {"code": {"writes": [], "num_threads": 1}, "tolerances": [], "enough_s": 0.0}
    assert [bench.do_measure(question) for _ in range(3)] == [{"seconds": 2e-6}] * 3
    assert len(asked) == 1


CALL = object()


def test_without_children_the_heuristic_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with Context(beam=1), observe.record() as seen:
        assert (Tensor([1.0, 2.0]) * 3).tolist() == [3.0, 6.0]
    reasons = [event.reason for event in seen.decisions if event.kind == "search"]
    assert "no child process could be started" in reasons[0]


def test_a_candidate_whose_compiler_crashes_takes_no_other_with_it() -> None:
    """What was to be compiled behind it is compiled when it is asked for."""

    def code(text: str, name: str) -> Code:
        return Code(text.format(name=name), name, 1, (0,))

    with MeasuringProcess("CPU:LLVM", [("float32", 4)], patience=5.0) as child:
        child.set_reference(code(IDLES, "f"))
        candidates = [code(IDLES, "g"), code("no such language", "h"), code(IDLES, "i")]
        for candidate in candidates:
            child.prepare(candidate)
        assert child.measure(candidates[0], [None]) < 1.0
        with pytest.raises(NotMeasuredError, match="not compiled"):
            child.measure(candidates[1], [None])
        for candidate in candidates:
            child.prepare(candidate)
        assert child._process is not None
        child._process.kill()  # as a compiler that crashes
        for candidate in (candidates[0], candidates[2]):
            with contextlib.suppress(NotMeasuredError):  # the first may be the one that crashed
                child.measure(candidate, [None])
        assert child.measure(candidates[2], [None]) < 1.0


def test_slow_plain_loops_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the heuristic's choice says what is right."""
    monkeypatch.setattr(beam, "SLOW_REFERENCE_US", 0.0)
    injected(monkeypatch, {3: IDLES})
    with Context(beam=1):
        np.testing.assert_array_equal((Tensor(ROWS) * 2 + 3).numpy(), ROWS * 2 + 3)
    report = only_report()
    assert [kind for _, kind, _ in report.dropped] == ["wrong"]


# ---- what is remembered ----------------------------------------------------------------------


def test_a_second_run_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started = num_started(monkeypatch)
    with Context(beam=1), observe.record():  # observed: no schedule is known from before
        first = (Tensor(ROWS) * 2 + 1).numpy()
        assert len(started) == 1
        found = only_report().actions
        beam.forget_searches()  # as another process
        forget_programs()
        np.testing.assert_array_equal((Tensor(ROWS) * 2 + 1).numpy(), first)
        assert len(started) == 1
        assert only_report().is_remembered
        assert only_report().actions == found
    with Context(beam=2):  # another width is another search
        (Tensor(ROWS) * 2 + 1).numpy()
    assert len(started) == 2


def test_a_damaged_result_is_searched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = num_started(monkeypatch)
    with Context(beam=1, cache_dir=str(tmp_path)), observe.record():
        (Tensor(ROWS) * 4).numpy()
        for file in tmp_path.rglob("*.bin"):
            file.write_bytes(b"nonsense")
        beam.forget_searches()
        forget_programs()
        (Tensor(ROWS) * 4).numpy()
    assert len(started) == 2


def test_no_beam_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    started = num_started(monkeypatch)
    (Tensor(ROWS) * 5).numpy()
    assert not started


# ---- values ----------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul": lambda x: x.matmul(x.transpose(0, 1)),
    "sum of rows": lambda x: x.sum(1),
    "softmax": lambda x: x.softmax(-1),
    "sum of columns": lambda x: (x * x).sum(0),
    "transpose": lambda x: x.transpose(0, 1).contiguous(),
    "whole numbers": lambda x: (x * 100).cast("int32") // 7,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_interpreter(name: str) -> None:
    make = PROGRAMS[name]
    with Context(beam=1, verify=True):
        got = make(Tensor(ROWS)).numpy()
    np.testing.assert_allclose(got, make(Tensor(ROWS)).numpy(), rtol=1e-5, atol=1e-5)
    report = only_report()
    assert report.measured >= 2
    assert not report.dropped
    assert report.heuristic_seconds is not None


MACHINES = [
    "x86-64:sse2:cores=1",  # nothing but SSE2
    "x86-64:avx:cores=1",
    "x86-64:avx2,fma:cores=2,l1d_bytes=16384,l2_bytes=65536",
]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_search_for_a_lesser_machine_gives_right_code(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates use what the target has, whatever the processor under it could do or is called."""
    here = machine_target()
    asked = parse_target(machine, like=here)
    if here.arch != "x86-64" or not asked.features <= here.features:
        pytest.skip(f"this machine cannot run code for {machine}")
    monkeypatch.setenv("PELLUCID_TARGET", machine)
    forget_programs()
    for name in ("matmul", "softmax", "whole numbers"):
        make = PROGRAMS[name]
        with Context(beam=1, verify=True):
            got = make(Tensor(ROWS)).numpy()
        np.testing.assert_allclose(got, make(Tensor(ROWS)).numpy(), rtol=1e-5, atol=1e-5)
    for report in beam._found.values():
        assert not report.dropped
        lanes = [a.amount for a in report.actions if a.kind == "lanes"]
        assert all(amount <= asked.vector_bytes for amount in lanes)


def test_results_belong_to_a_target_and_a_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if machine_target().arch != "x86-64":
        pytest.skip("targets of another architecture")
    keys = set()
    for machine, threads in (("", 1), ("", 2), ("x86-64:sse2", 1), ("x86-64:sse2", 2)):
        monkeypatch.setenv("PELLUCID_TARGET", machine)
        beam.forget_searches()
        with Context(beam=1, threads=threads), observe.record():
            (Tensor(ROWS) * 11).numpy()
        keys |= set(beam._found)
    assert len(keys) == 4


def test_kernels_that_cannot_be_searched_are_left() -> None:
    ordered = kernels.elementwise(64)
    ordered = ordered.replace(arg=dataclasses.replace(ordered.arg, ordered=True))
    with Context(beam=1):
        assert beam.searched(ordered, "CPU") is None
        assert beam.searched(kernels.elementwise(64), "NULL") is None
        assert beam.searched(kernels.elementwise(1 << 28), "CPU") is None


def test_progress_is_reported() -> None:
    with Context(beam=1), observe.record() as seen:
        (Tensor(ROWS) * 6).numpy()
    steps = [(event.done, event.total) for event in seen.progress if event.task == "search"]
    assert steps == [(n, FEW.candidates) for n in range(1, len(steps) + 1)]


# ---- saved lists -----------------------------------------------------------------------------


def only_kernel(tensor: Tensor) -> UOp:
    (kernel,) = kernels_of([tensor.schedule_linear()])
    return kernel.ast


def test_a_saved_list_is_replayed() -> None:
    key = kernel_key(only_kernel(Tensor(ROWS) * 7))
    text = actions_to_text({key: (Action("lanes", 0, 4), Action("upcast", 0, 2))})
    with Context(actions=text, beam=1), observe.record() as seen:
        np.testing.assert_array_equal((Tensor(ROWS) * 7).numpy(), ROWS * 7)
        again = actions_of(Tensor(ROWS) * 7)
    assert next(e.reason for e in seen.decisions if e.kind == "saved actions") == (
        f"the list of kernel {key} is taken"
    )
    assert actions_from_text(again) == actions_from_text(text)
    assert not beam._found  # what the user asks for is not searched for


def test_a_list_of_no_actions_means_plain_loops() -> None:
    ast = only_kernel(Tensor(ROWS) * 8)
    with Context(actions=f"kernel {kernel_key(ast)}\n"):
        assert with_actions(ast, "CPU").arg.actions == ()
    assert with_actions(ast, "CPU") is ast


def test_the_result_of_a_search_is_saved_and_replayed() -> None:
    with Context(beam=1):
        text = actions_of(Tensor(ROWS).sum(1))
    assert list(actions_from_text(text).values()) == [only_report().actions]
    with Context(actions=text):
        assert actions_of(Tensor(ROWS).sum(1)) == text


def test_an_action_that_is_not_legal_names_axis_and_reason() -> None:
    key = kernel_key(only_kernel(Tensor(ROWS) * 9))
    refused = pytest.raises(ActionError, match="lanes of axis 0 is refused: 5 lanes are not a")
    with Context(actions=f"kernel {key}\nAction('lanes', 0, 5)\n"), refused:
        (Tensor(ROWS) * 9).numpy()


@pytest.mark.parametrize(
    ("asked", "reason", "advice"),
    [
        ("Action('lanes', 9, 4)", "the kernel has 3 axes", "legal here: Action('lanes', 2, 4)"),
        ("Action('lanes', 1, 5)", "not a power of two", "legal here: Action('lanes', 1, 4)"),
        ("Action('lane', 1, 4)", "there is no such action", "legal here: Action('lanes', 1, 4)"),
        ("Action('upcast', 1, 4)", "unroll it", "legal here: Action('unroll', 1, 4)"),
        ("Action('swap', 0, 1)", "another nest", "leave it out: nothing like it is legal"),
    ],
)
def test_a_mistake_in_a_list_is_explained(asked: str, reason: str, advice: str) -> None:
    """The message names the axis, the reason, the axes there are, and what to try."""
    key = kernel_key(only_kernel(Tensor(ROWS).sum(1)))
    text = f"kernel {key}\nAction('cascade', 1, 8)\n{asked}\n"
    with Context(actions=text), pytest.raises(ActionError) as caught:
        Tensor(ROWS).sum(1).numpy()
    said = " ".join(str(caught.value).split())
    assert reason in said
    assert advice in said
    assert f"action 2 of 2: {asked} axes axis 0: output, over 24, loop axis 1: reduced" in said


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("Action('lanes', 0, 4)", 1, "`kernel KEY` before the first action"),
        ("kernel 00ff\n\nlanes 0 4", 3, "an action such as `Action('lanes', 0, 16)`"),
        ("kernel xyz", 1, "hexadecimal digits behind `kernel`"),
        ("kernel 00ff\nAction('lanes', '0', 4)", 2, "an action such as `Action('lanes', 0, 16)`"),
        ("kernel 00ff\nAction('lanes', 0, 4, 8)", 2, "an action such as `Action('lanes', 0, 16)`"),
        ("kernel 00ff\n__import__('os')", 2, "an action such as `Action('lanes', 0, 16)`"),
    ],
)
def test_a_list_that_cannot_be_read(text: str, line: int, expected: str) -> None:
    with pytest.raises(ParseError) as caught:
        actions_from_text(text)
    assert f"line {line} of the lists of actions cannot be read" in str(caught.value)
    assert expected in str(caught.value)


def test_a_file_of_lists(tmp_path: Path) -> None:
    file = tmp_path / "plans.txt"
    file.write_text("kernel 00ff\n")
    environment: dict[str, Any] = {"PELLUCID_ACTIONS": str(file)}
    assert options_from_environment(environment).actions == "kernel 00ff\n"
    with pytest.raises(OptionError, match="PELLUCID_ACTIONS"):
        options_from_environment({"PELLUCID_ACTIONS": str(tmp_path / "missing")})
