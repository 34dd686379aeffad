"""The list of axes: effects as the SINK lists them, whatever they share."""

from __future__ import annotations

from pellucid.core.dtype import dtypes
from pellucid.ir.arg import KernelInfo, ParamArg, ReduceArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.axes import axes_of, reductions
from tests.counting import lines_in

i, j, k, m, n = (UOp.range(8, number) for number in range(5))


def param(slot: int) -> UOp:
    return UOp(Ops.PARAM, dtypes.float32, (), ParamArg(slot, 64))


def total(value: UOp, axis: UOp) -> UOp:
    return UOp(Ops.REDUCE, dtypes.float32, (value, axis), ReduceArg(Ops.ADD))


def kernel(*effects: UOp) -> UOp:
    return UOp.sink(*effects, arg=KernelInfo())


def test_an_axis_stands_where_the_first_effect_with_it_does() -> None:
    shared = total(param(2).index(k), k)
    first = param(0).index(i).store(shared + total(param(3).index(m), m)).end(i)
    second = param(1).index(j).store(shared * total(param(4).index(n), n)).end(j)
    assert axes_of(kernel(first, second)) == [i, k, m, j, n]
    assert axes_of(kernel(second, first)) == [j, k, n, i, m]


def test_output_axes_of_a_group_stand_before_those_of_its_reductions() -> None:
    inner = param(1).index(i * 8 + j).store(total(param(3).index(m), m)).end(j)
    outer = UOp.make(Ops.GROUP, param(0).index(i).store(total(param(2).index(k), k)), inner)
    assert axes_of(kernel(outer.end(i))) == [i, k, j, m]


def test_an_effect_that_an_earlier_one_waits_for_brings_its_axes_there() -> None:
    filled = param(1).index(j).store(total(param(2).index(k), k))
    value = param(1).after(filled.end(j)).index(i)
    store = param(0).index(i).store(total(value * param(3).index(m), m))
    assert axes_of(kernel(store.end(i), filled.end(j))) == [i, k, j, m]


def test_what_effects_share_is_read_once() -> None:
    def lines(num_effects: int) -> int:
        value = param(0).index(i)
        for step in range(200):
            value = value * 2.0 + float(step)
        stores = [param(s + 1).index(i).store(value).end(i) for s in range(num_effects)]
        sink = kernel(*stores)
        sink.toposort()
        return lines_in(lambda: axes_of(sink))

    assert lines(9) < 1.5 * lines(1)


def test_reductions_are_sought_once_in_a_kernel() -> None:
    value = total(param(1).index(k), k)
    for step in range(200):
        value = value * 2.0 + float(step)
    sink = kernel(param(0).index(i).store(value).end(i))
    assert [node.src[1] for node in reductions(sink)] == [k]
    assert lines_in(lambda: list(reductions(sink))) < 20
