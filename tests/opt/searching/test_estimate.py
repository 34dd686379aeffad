"""The cost model of the search: what it has to see, as ratios between plans of one kernel."""

from __future__ import annotations

from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import apply_action
from pellucid.opt.plans.heuristic import choose
from pellucid.opt.searching.estimate import estimated_us
from tests.codegen import kernels
from tests.codegen.lowering import TARGET
from tests.opt.products import AVX2


def estimate(sink: UOp, *actions: Action, target: Target = AVX2) -> float:
    for action in actions:
        sink = apply_action(sink, action, target)
    return estimated_us(sink, target)


LANES = Action("lanes", 1, 8)


def test_a_sum_waits_for_itself_unless_there_are_several() -> None:
    sink = kernels.reduce_all(4096)
    one = estimate(sink, Action("lanes", 0, 8))
    four = estimate(sink, Action("lanes", 0, 8), Action("unroll", 0, 4))
    assert 2.5 < one / four <= 5


def test_a_tile_loads_a_vector_once_for_its_rows() -> None:
    sink = kernels.matmul(48, 64, 64)
    row = estimate(sink, LANES)
    tile = estimate(sink, LANES, Action("upcast", 0, 6), Action("upcast", 2, 2))
    assert row / tile > 3


def test_sums_that_have_no_register_cost_more() -> None:
    sink = kernels.matmul(48, 64, 64)
    fits = estimate(sink, LANES, Action("upcast", 0, 6), Action("upcast", 2, 2))
    spilt = estimate(sink, LANES, Action("upcast", 0, 12), Action("upcast", 2, 4))
    assert spilt > fits


def test_operands_that_wait_need_registers_too() -> None:
    """Of two tiles of 16 sums, the square one has fewer loads, and holds 4 vectors instead of 2."""
    sink = kernels.matmul(64, 64, 64)
    square, tall = (
        estimate(sink, LANES, Action("upcast", 0, rows), Action("upcast", 2, 16 // rows))
        for rows in (4, 8)
    )
    assert square > tall


def test_the_terms_of_a_sum_without_a_loop_need_registers() -> None:
    sink = kernels.matmul(48, 32, 64)
    tile = (LANES, Action("upcast", 0, 4))
    unrolled = estimate(sink, *tile, Action("unroll", 4))
    assert unrolled > 1.5 * estimate(sink, *tile)


def per_element(rows: int, columns: int) -> float:
    """Plain loops that read down the columns of a matrix."""
    return estimate(kernels.transpose(rows, columns)) / (rows * columns)


def test_lines_a_power_of_two_apart_share_places() -> None:
    """200 lines are a part of the first cache, but not where all have twelve places."""
    assert per_element(200, 2048) > 1.3 * per_element(200, 2000)


def test_lines_on_different_pages_come_slower() -> None:
    assert per_element(4096, 1040) > 1.5 * per_element(4096, 1000)


def test_lines_that_do_not_stay_come_again() -> None:
    """Columns of a large matrix, element by element, and the same with rows inside."""
    across = kernels.two_axes(4096, 4096)
    assert estimate(across, Action("swap", 0, 1)) > 2 * estimate(across)


def test_lanes_with_a_stride_are_gathered() -> None:
    sink = kernels.two_axes(64, 64)
    assert estimate(sink, Action("lanes", 0, 8)) > 2 * estimate(sink, LANES)


def test_threads_share_the_time_but_not_more_than_there_are() -> None:
    sink, share = kernels.two_axes(512, 512), Action("thread", 0)
    one, two = (AVX2.with_changes({"cores": cores}) for cores in (1, 2))
    alone = estimate(sink, target=one)
    assert estimate(sink, share, target=two) == alone / 2
    assert estimate(sink, share, target=one) == alone


def test_every_choice_of_the_heuristic_has_an_estimate_below_that_of_plain_loops() -> None:
    for name, make in kernels.KERNELS.items():
        plain, chosen = make(), choose(make(), TARGET).sink
        assert 0 < estimated_us(chosen, TARGET) <= 1.5 * estimated_us(plain, TARGET), name
