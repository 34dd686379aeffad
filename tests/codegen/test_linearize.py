"""Order: invariants outside of loops, few values alive at a time, always the same."""

from __future__ import annotations

from pellucid.codegen.linearize import linearize
from pellucid.codegen.program_info import program_info
from pellucid.core.dtype import dtypes
from pellucid.ir.arg import AddrSpace, VariableArg
from pellucid.ir.form import LINEAR
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.ir.verify import verify
from tests.codegen.kernels import (
    KERNELS,
    fused,
    kernel,
    loop,
    matmul,
    param,
    scatter_one_place,
    softmax,
)
from tests.codegen.lowering import PASSES, TARGET, lowered
from tests.counting import lines_in


def program(sink: UOp) -> UOp:
    """The linear program of a kernel."""
    linear = linearize(lowered(sink))
    verify(linear, LINEAR)
    return linear


def depth_of(linear: UOp, wanted: UOp) -> int:
    """How many loops stand around an item."""
    depth = 0
    for item in linear.src:
        if item is wanted:
            return depth
        depth += (item.op is Ops.RANGE) - (item.op is Ops.END)
    raise AssertionError(f"{wanted!r} is not in the program")


def test_what_does_not_depend_on_a_loop_stands_outside() -> None:
    linear = program(matmul(4, 64, 512))
    for item in linear.src:
        if item.op.is_elementwise or item.op is Ops.LOAD:
            loops = {r for s in item.src for r in s.ranges}
            innermost = max((depth_of(linear, r) + 1 for r in loops), default=0)
            assert depth_of(linear, item) == innermost


def test_softmax_is_three_loops_inside_of_the_row() -> None:
    depths, depth = [], 0
    for item in program(softmax(2, 640)).src:
        if item.op is Ops.RANGE:
            depths.append(depth)
        depth += (item.op is Ops.RANGE) - (item.op is Ops.END)
    assert depths[0] == 0
    assert len([d for d in depths if d == 1]) == 3


def test_a_tile_keeps_few_vectors_alive() -> None:
    """A 6 x 4 tile of vectors: 24 accumulators, and at most 8 other vectors at any point."""
    linear = program(matmul(48, 16, 64))
    last = {s: place for place, item in enumerate(linear.src) for s in item.src}
    alive = most = 0
    ends: dict[int, int] = {}
    for place, item in enumerate(linear.src):
        if item.dtype.lanes > 1 and item.op not in (Ops.CONST, Ops.DEFINE, Ops.AFTER, Ops.INDEX):
            is_register = item.op is Ops.LOAD and storage(item).op is Ops.DEFINE
            if not is_register and item in last:
                alive += 1
                ends[last[item]] = ends.get(last[item], 0) + 1
        most = max(most, alive)
        alive -= ends.get(place, 0)
    assert most <= 8


def storage(node: UOp) -> UOp:
    """What an access goes into."""
    while node.op in (Ops.LOAD, Ops.INDEX, Ops.AFTER):
        node = node.src[0]
    return node


def test_an_ordered_read_stays_in_its_loop() -> None:
    linear = program(scatter_one_place())
    loads = [i for i in linear.src if i.op is Ops.LOAD]
    assert all(depth_of(linear, load) == 1 for load in loads)


def test_the_same_order_every_time() -> None:
    for make in KERNELS.values():
        assert linearize(lowered(make())) is linearize(lowered(make()))


def test_program_info() -> None:
    info = program_info(lowered(matmul(48, 16, 64)), TARGET)
    assert (info.reads, info.writes) == ((1, 2), (0,))
    assert info.param_sizes == (48 * 64, 48 * 16, 16 * 64)
    assert info.param_dtypes == ("float32",) * 3
    assert info.flops == 2 * 48 * 64 * 16
    assert info.num_threads == 1
    threads = program_info(lowered(fused(1 << 20)), TARGET)
    assert threads.num_threads == 3


def test_variables_are_sorted_by_name() -> None:
    i = loop(8, 0)
    names = ("n", "b", "z")
    value = param(1, 800).index(
        sum((UOp(Ops.VARIABLE, dtypes.index, (), VariableArg(n, 0, 9)) for n in names), i)
    )
    info = program_info(lowered(kernel(param(0, 8).index(i).store(value).end(i))), TARGET)
    assert [v.name for v in info.variables] == ["b", "n", "z"]


def test_accumulators_are_numbered_by_structure() -> None:
    nodes = lowered(softmax(2, 640)).toposort()
    defines = [n.arg for n in nodes if n.op is Ops.DEFINE]
    assert sorted(d.id for d in defines) == list(range(len(defines)))
    assert all(d.space is AddrSpace.REG and d.size == 1 for d in defines)


def test_a_fused_elementwise_kernel_is_lowered_in_few_steps() -> None:
    """Some ten milliseconds on one core; a walk over the graph too many shows in the lines."""

    def lower(size: int) -> int:
        sink = fused(size)

        def passes() -> None:
            lower = sink
            for run, _ in PASSES:
                lower = run(lower, TARGET)
            linearize(lower)

        return lines_in(passes)

    assert min(lower(1000 + 16 * k) for k in range(4)) < 40_000
