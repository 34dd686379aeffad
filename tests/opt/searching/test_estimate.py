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
from tests.opt.plans.test_tiles import AVX2


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
