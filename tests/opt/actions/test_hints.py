"""Hints: what the actions leave, what becomes of them, when they are chosen; no value changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import pellucid
from pellucid import Tensor
from pellucid.core.dtype import dtypes
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.ir.arg import Action, Hint
from pellucid.ir.form import LOOP, NATIVE
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.text import from_text, to_text
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from pellucid.opt.actions.hints import accesses_of, bytes_of
from pellucid.opt.actions.table import apply_action
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.saved import actions_from_text, actions_to_text
from pellucid.opt.searching.moves import next_actions
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered, with_actions

AVX2 = Target(arch="x86-64", features=frozenset(["avx2", "fma"]), l3_bytes=1 << 25)
HINTS = (Action("prefetch", 0, 1), Action("stream", 0, 0))
LANES = (Action("lanes", 3, 16), Action("lanes", 2, 16), Action("lanes", 1, 16))


def hinted(sink: UOp, *actions: Action) -> tuple[Hint, ...]:
    """The hints that actions leave."""
    for action in actions:
        sink = apply_action(sink, action, TARGET)
        verify(sink, LOOP)
    hints: tuple[Hint, ...] = sink.arg.hints
    return hints


def nodes_of(sink: UOp, *ops: object) -> list[UOp]:
    return [n for n in sink.toposort() if n.op in ops]


def kinds(actions: list[Action]) -> list[Action]:
    """The hints among chosen actions."""
    return [a for a in actions if a.kind in ("prefetch", "stream")]


# ---- actions -----------------------------------------------------------------------------------


def test_actions_leave_hints_and_no_other_change() -> None:
    sink = kernels.softmax(4, 64)
    assert hinted(sink, *HINTS) == (Hint("prefetch", 1, 64), Hint("stream", 0))
    after = apply_action(sink, HINTS[0], TARGET)
    assert after.src == sink.src
    assert hinted(sink, Action("prefetch", 0, 1, (3,))) == (Hint("prefetch", 1, 192),)


def test_parts_that_overlap_are_asked_for_as_if_none_did() -> None:
    """Rows 0 to 3, 4 to 7, and 6 to 9 of y: the last lies nearer."""
    actions = (Action("overlap", 0, 4), Action("prefetch", 0, 0))
    assert hinted(kernels.matmul(10, 5, 16), *actions) == (Hint("prefetch", 0, 4 * 16),)


@pytest.mark.parametrize(
    ("sink", "action", "message"),
    [
        (
            kernels.softmax(),
            Action("prefetch", 0, 7),
            "prefetch of axis 0 is refused: parameter 7 is not touched by the kernel",
        ),
        (
            kernels.matmul(),
            Action("prefetch", 0, 2),
            "prefetch of axis 0 is refused: each of its turns touches the same of parameter 2",
        ),
        (
            kernels.softmax(),
            Action("prefetch", 0, 1, (0,)),
            "prefetch of axis 0 is refused: 0 turns are no distance",
        ),
        (
            kernels.softmax(),
            Action("prefetch", 1, 1),
            "prefetch of axis 1 is refused: its turns do not move evenly along parameter 1",
        ),
        (
            kernels.softmax(),
            Action("stream", 0, 1),
            "stream of axis 0 is refused: parameter 1 is not written by the kernel",
        ),
        (
            apply_action(kernels.softmax(), Action("stream", 0, 0), TARGET),
            Action("stream", 0, 0),
            "stream of axis 0 is refused: parameter 0 has this hint already",
        ),
    ],
)
def test_refusals(sink: UOp, action: Action, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        apply_action(sink, action, TARGET)
    assert str(caught.value).splitlines()[0] == message


def test_what_is_read_again_is_not_streamed() -> None:
    i = kernels.loop(8, 0)
    y = kernels.param(0, 8)
    sink = kernels.kernel(y.index(i).store(y.index(i) * 2.0).end(i))
    with pytest.raises(ActionError, match="parameter 0 is read by the kernel too"):
        apply_action(sink, Action("stream", 0, 0), TARGET)


# ---- what becomes of them ----------------------------------------------------------------------


def test_the_next_row_is_asked_for_once_a_line_in_the_last_loop_over_a_row() -> None:
    sink = lowered(with_actions(kernels.softmax(4, 64), *HINTS, *LANES))
    verify(sink, NATIVE)
    (prefetch,) = nodes_of(sink, Ops.PREFETCH)
    (end,) = (n for n in nodes_of(sink, Ops.END) if prefetch in n.src[0].src)
    stores = [s for s in end.src[0].src if s.op is Ops.STORE]
    assert [s.arg for s in stores] == ["stream"]
    assert prefetch.src[0].src[0].arg.slot == 1
    assert prefetch.src[0].src[1] is stores[0].src[0].src[1] + 64
    assert prefetch.arg is None
    assert from_text(to_text(sink)) is sink


def test_vectors_of_one_line_are_asked_for_once() -> None:
    """Four vectors of 8 floats are two lines."""
    actions = (HINTS[0], Action("split", 1, 32), Action("lanes", 2, 8), Action("upcast", 2, 0))
    sink = lowered(with_actions(kernels.two_axes(4, 64), *actions))
    places = [n.src[0].src[1] for n in nodes_of(sink, Ops.PREFETCH)]
    assert len(nodes_of(sink, Ops.STORE)) == 4
    assert len(places) == 2


def test_an_output_is_asked_for_to_be_written() -> None:
    sink = lowered(with_actions(kernels.softmax(4, 64), Action("prefetch", 0, 0), *LANES))
    assert [n.arg for n in nodes_of(sink, Ops.PREFETCH)] == ["write"]


def test_only_whole_vectors_are_streamed() -> None:
    """100 = 6 vectors of 16 and 4 scalars; rows of 37 are never aligned."""
    whole = lowered(with_actions(kernels.elementwise(100), HINTS[1], Action("lanes", 0, 16)))
    assert sorted(str(n.arg) for n in nodes_of(whole, Ops.STORE)) == ["None", "stream"]
    odd = lowered(with_actions(kernels.two_axes(3, 37), HINTS[1], Action("lanes", 1, 16)))
    assert {n.arg for n in nodes_of(odd, Ops.STORE)} == {None}


@pytest.mark.parametrize("make", [kernels.softmax, kernels.two_axes], ids=lambda m: m.__name__)
@pytest.mark.parametrize("columns", [37, 64])
def test_values_stay(make, columns: int) -> None:
    sink = make(3, columns)
    buffers = kernels.buffers_for(sink)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(sink, wanted)
    axis = 1 if make is kernels.two_axes else 2
    run_kernel(lowered(with_actions(sink, *HINTS, Action("split", axis, 16))), got)
    for want, came in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(came, want)


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
@pytest.mark.parametrize("skipped", [0, 1, 8])
def test_programs_with_hints_write_the_same_wherever_their_output_begins(
    device: str, skipped: int
) -> None:
    """A window that starts *skipped* elements into memory need not lie on a vector's alignment."""
    from pellucid.pipeline import do_to_program, renderer_for
    from pellucid.runtime import Buffer, Device

    renderer = renderer_for(device)
    lanes = renderer.target.max_lanes(4)
    actions = (*HINTS, *(dataclasses.replace(a, amount=lanes) for a in LANES))
    sink = kernels.softmax(5, 64)
    program = do_to_program(with_actions(sink, *actions), renderer)
    assert "stream" in [n.arg for n in program.src[0].toposort() if n.op is Ops.STORE]
    buffers = kernels.buffers_for(sink)
    wanted = [b.copy() for b in buffers]
    run_kernel(sink, wanted)
    count = 5 * 64
    whole = Buffer(device, count + 16, dtypes.float32)
    x = Buffer(device, count, dtypes.float32)
    x.as_numpy()[:] = buffers[1]
    out = whole.view(4 * skipped, count, dtypes.float32)
    run = Device[device].load(program.src[3].arg, program.arg.name)
    run([out, x], (), program.arg.num_threads, program.arg.scratch_bytes)
    np.testing.assert_allclose(out.as_numpy(), wanted[0], rtol=1e-5)


# ---- choosing ----------------------------------------------------------------------------------


def test_rows_that_several_loops_work_at_are_asked_for_ahead() -> None:
    plan = choose(kernels.softmax(4096, 1024), AVX2)
    assert kinds(plan.actions) == [Action("stream", 0, 0), Action("prefetch", 0, 1)]


@pytest.mark.parametrize(("width", "ahead"), [(64, (16,)), (300, (3,)), (4096, ())])
def test_of_short_rows_later_ones_are_asked_for(width: int, ahead: tuple[int, ...]) -> None:
    plan = choose(kernels.softmax((1 << 22) // width, width), AVX2)
    assert Action("prefetch", 0, 1, ahead) in plan.actions


def test_a_loop_that_does_much_for_each_line_asks_for_lines_ahead() -> None:
    i = kernels.loop(1 << 20, 0)
    value = UOp.make(Ops.EXP, kernels.param(1, 1 << 20).index(i))
    sink = kernels.kernel(kernels.param(0, 1 << 20).index(i).store(value).end(i))
    assert kinds(choose(sink, AVX2).actions) == [Action("prefetch", 0, 1, (64,))]


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        (kernels.softmax(8, 1024), "it stays in cache"),
        (kernels.softmax(8, 1 << 18), "a row is too long to wait in cache"),
        (kernels.reduce_rows(4096, 1024), "one loop reads on and on"),
        (kernels.elementwise(1 << 16), "it stays in cache"),
        (kernels.reduce_columns(4096, 4096), "rows are read once"),
    ],
)
def test_no_hint_where_it_would_not_help(sink: UOp, why: str) -> None:
    assert kinds(choose(sink, AVX2).actions) == [], why


def test_outputs_beyond_the_caches_are_streamed() -> None:
    assert kinds(choose(kernels.elementwise(1 << 23), AVX2).actions) == [Action("stream", 0, 0)]
    assert kinds(choose(kernels.elementwise(1 << 21), AVX2).actions) == []


@pytest.mark.parametrize("l3_bytes", [48 << 20, 1 << 29])
def test_no_more_than_32_mb_of_a_large_cache_are_counted_on(l3_bytes: int) -> None:
    """Two arrays are read and one is written, of 16 and of 8 MB; the larger cache holds all."""
    large = AVX2.with_changes({"l3_bytes": l3_bytes})
    assert kinds(choose(kernels.elementwise(1 << 22), large).actions) == [Action("stream", 0, 0)]
    assert kinds(choose(kernels.elementwise(1 << 21), large).actions) == []


def test_a_small_output_of_a_large_input_stays_in_cache() -> None:
    """A million sums of 8: 32 MB are read, and 4 MB written, which somebody reads soon."""
    i, k = kernels.loop(1 << 20, 0), kernels.axis(8, 1)
    total = kernels.reduce(kernels.param(1, 1 << 23).index(i * 8 + k), k)
    sink = kernels.kernel(kernels.param(0, 1 << 20).index(i).store(total).end(i))
    assert Action("stream", 0, 0) not in choose(sink, AVX2).actions


def test_a_gather_counts_what_it_reads() -> None:
    """A few rows of a large table."""
    i, j = kernels.loop(8, 0), kernels.loop(16, 1)
    rows = kernels.param(2, 8, dtypes.int64).index(i).cast(dtypes.index)
    table = kernels.param(1, 1 << 20)
    sink = kernels.kernel(kernels.param(0, 128).index(i * 16 + j).store(table.index(rows * 16 + j)))
    assert bytes_of(accesses_of(sink, 1)) == 8 * 16 * 4


def rows_by_index(rows: int, width: int, table_rows: int) -> UOp:
    """y[i, j] = x[index[i], j]"""
    i, j = kernels.loop(rows, 0), kernels.loop(width, 1)
    row = kernels.param(2, rows, dtypes.int64).index(i).cast(dtypes.index)
    place = row.maximum(0).minimum(table_rows - 1) * width + j
    value = kernels.param(1, table_rows * width).index(place)
    target = kernels.param(0, rows * width).index(i * width + j)
    return kernels.kernel(target.store(value).end(i, j))


def test_rows_that_memory_names_are_asked_for_turns_ahead() -> None:
    assert hinted(rows_by_index(8, 64, 99), Action("prefetch", 0, 1, (2,))) == (Hint("seek", 1, 2),)
    assert kinds(choose(rows_by_index(8192, 256, 32768), AVX2).actions) == [
        Action("prefetch", 0, 1, (2,))
    ]
    assert kinds(choose(rows_by_index(8192, 2, 32768), AVX2).actions) == []


@pytest.mark.parametrize("turns", [1, 3, 100])
def test_the_last_rows_ask_for_no_index_that_does_not_exist(turns: int) -> None:
    sink = with_actions(
        rows_by_index(9, 32, 40), Action("lanes", 1, 16), Action("prefetch", 0, 1, (turns,))
    )
    kernel = lowered(sink, TARGET)
    verify(kernel, NATIVE)
    assert nodes_of(kernel, Ops.PREFETCH)
    table = np.arange(40 * 32, dtype=np.float32)
    rows = np.array([0, 39, 5, 5, -3, 41, 7, 8, 20])
    buffers = [np.zeros(9 * 32, np.float32), table, rows]
    run_kernel(kernel, buffers)
    wanted = table.reshape(40, 32)[rows.clip(0, 39)]
    np.testing.assert_array_equal(buffers[0].reshape(9, 32), wanted)


def test_rows_by_index_are_those_of_numpy() -> None:
    numbers = np.random.default_rng(0)
    table = numbers.standard_normal((4096, 256)).astype(np.float32)
    rows = numbers.integers(-4096, 4096, 1024)
    np.testing.assert_array_equal(Tensor(table)[Tensor(rows)].numpy(), table[rows])


# ---- saved, searched ---------------------------------------------------------------------------


def test_hints_are_saved_and_asked_for_again() -> None:
    text = actions_to_text({"00ff": (*HINTS, Action("prefetch", 0, 2, (4,)))})
    assert actions_from_text(text)["00ff"] == (*HINTS, Action("prefetch", 0, 2, (4,)))


def test_a_search_tries_hints() -> None:
    small, large = (set(next_actions(kernels.softmax(n, 1024), TARGET)) for n in (4, 4096))
    assert set(HINTS) <= large
    assert not set(HINTS) & small


def test_a_softmax_with_hints_is_that_without() -> None:
    x = np.random.default_rng(0).standard_normal((700, 1024)).astype(np.float32)
    got = Tensor(x).softmax(-1).numpy()
    with pellucid.Context(optimize=False):
        want = Tensor(x).softmax(-1).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-6)
