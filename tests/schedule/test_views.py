"""Movement as index arithmetic, and the text of the indices that plain graphs end with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.ir.interpret.tensors import window_positions
from pellucid.ir.op import Ops, Shape
from pellucid.ir.text import expression
from pellucid.ir.uop import UOp
from pellucid.schedule.ranges import output_ranges
from pellucid.schedule.views import flat_index, reshape_groups, source_index, window_index
from tests.schedule.graphs import check, kernels, matmul, reduce, tensor


def at(position: UOp, values: dict[UOp, int]) -> int:
    """Value of an index expression for given values of its ranges."""
    known: dict[UOp, int] = {}
    for node in position.toposort():
        if node.op is Ops.RANGE:
            known[node] = values[node]
        elif node.op is Ops.CONST:
            known[node] = node.arg
        else:
            assert node.op.python is not None
            known[node] = int(node.op.python(*(known[s] for s in node.src)))
    return known[position]


def positions(window: UOp, base: UOp) -> np.ndarray:
    """The flat positions that window_index gives, for all elements of *window*."""
    shape = window.known_shape
    index = output_ranges(shape)
    flat = flat_index(base.known_shape, window_index(window, base, index))
    found = np.zeros(shape, np.int64)
    for element in np.ndindex(shape):
        ranges = zip(index, element, strict=True)
        found[element] = at(flat, {r: n for r, n in ranges if r.op is Ops.RANGE})
    return found


@st.composite
def windows(draw: st.DrawFn) -> tuple[UOp, UOp]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    base = window = tensor(shape)
    for _ in range(draw(st.integers(1, 5))):
        shape = window.known_shape
        kind = draw(st.integers(0, 3))
        if kind == 0:
            factors = [n for n in range(1, 13) if window.num_elems % n == 0]
            first = draw(st.sampled_from(factors))
            rest = window.num_elems // first
            second = draw(st.sampled_from([n for n in factors if rest % n == 0]))
            window = window.reshape((first, second, rest // second))
        elif kind == 1:
            window = window.permute(tuple(draw(st.permutations(range(len(shape))))))
        elif kind == 2:
            lows = [draw(st.integers(0, n - 1)) for n in shape]
            ends = [draw(st.integers(low + 1, n)) for low, n in zip(lows, shape, strict=True)]
            window = window.shrink(tuple(zip(lows, ends, strict=True)))
        else:
            window = window.flip((draw(st.integers(0, len(shape) - 1)),))
    return window, base


@given(windows())
def test_windows_show_the_right_elements(pair: tuple[UOp, UOp]) -> None:
    window, base = pair
    np.testing.assert_array_equal(positions(window, base), window_positions(base, window))


@pytest.mark.parametrize(
    ("source", "result", "groups"),
    [
        ((4, 3), (12,), [((0, 2), (0, 1))]),
        ((2, 3, 4), (2, 12), [((0, 1), (0, 1)), ((1, 3), (1, 2))]),
        ((6, 4), (2, 3, 2, 2), [((0, 1), (0, 2)), ((1, 2), (2, 4))]),
        ((), (1, 1), [((0, 0), (0, 1)), ((0, 0), (1, 2))]),
        ((5, 1), (5,), [((0, 1), (0, 1)), ((1, 2), (1, 1))]),
    ],
)
def test_reshape_groups(source: Shape, result: Shape, groups: list[object]) -> None:
    found = reshape_groups(source, result)
    assert [((a.start, a.stop), (b.start, b.stop)) for a, b in found] == groups


def test_axes_that_a_reshape_does_not_touch_pass_unchanged() -> None:
    x = tensor((2, 3, 4, 5)).reshape((2, 12, 5))
    index = output_ranges((2, 12, 5))
    found, _ = source_index(x, index)
    assert (found[0], found[3]) == (index[0], index[2])


# ---- golden text ---------------------------------------------------------------------------------


def body(*outputs: UOp) -> list[str]:
    """Text of what the one kernel of *outputs* stores: `index <- value`."""
    (kernel,) = kernels(check(outputs))
    stores = [n for n in kernel.toposort() if n.op is Ops.STORE]
    return [
        f"{expression(s.src[0].src[1], 40)} <- {expression(s.src[1], 40)}".replace(":float32", "")
        for s in stores
    ]


GOLDEN = {
    "elementwise": (
        lambda: tensor((4, 3)) + 1.0,
        "ADD(MUL(i0, 3), i1) <- ADD(INDEX(p1, ADD(MUL(i0, 3), i1)), 1.0)",
    ),
    "a reshape changes nothing": (
        lambda: tensor((4, 3)).reshape((2, 6)).reshape((12,)) + 1.0,
        "i0 <- ADD(INDEX(p1, i0), 1.0)",
    ),
    "flattened after a permutation": (
        lambda: tensor((4, 3)).permute((1, 0)).reshape((12,)),
        "ADD(MUL(i0, 4), i1) <- INDEX(p1, ADD(i0, MUL(i1, 3)))",
    ),
    "flipped twice": (
        lambda: tensor((12,)).flip((0,)).reshape((4, 3)).flip((0, 1)) + 1.0,
        "ADD(MUL(i0, 3), i1) <- ADD(INDEX(p1, ADD(MUL(i0, 3), i1)), 1.0)",
    ),
    "box": (
        lambda: tensor((4, 3)).shrink(((1, 3), (0, 2))),
        "ADD(MUL(i0, 2), i1) <- INDEX(p1, ADD(ADD(MUL(i0, 3), i1), 3))",
    ),
    "padded at the end": (
        lambda: tensor((4, 3)).pad(((0, 1), (0, 0))).reshape((15,)).reshape((5, 3)),
        "ADD(MUL(i0, 3), i1) <- WHERE(CMPLT(i0, 4), "
        "INDEX(p1, ADD(MUL(i0, 3), i1), CMPLT(i0, 4)), 0.0)",
    ),
    "padding that is cut off again": (
        lambda: tensor((4, 3)).pad(((2, 1), (0, 1)), 9.0).shrink(((2, 6), (0, 3))),
        "ADD(MUL(i0, 3), i1) <- INDEX(p1, ADD(MUL(i0, 3), i1))",
    ),
    "rows repeated": (
        lambda: tensor((1, 3)).expand((4, 3)).reshape((12,)),
        "ADD(MUL(i0, 3), i1) <- INDEX(p1, i1)",
    ),
    "pool": (
        lambda: reduce(tensor((4, 6)).reshape((2, 2, 3, 2)), 1, 3, op=Ops.MAX),
        "ADD(MUL(i0, 3), i1) <- REDUCE(INDEX(p1, ADD(ADD(ADD(MUL(i0, 12), MUL(i1, 2)), "
        "MUL(i2, 6)), i3)), i2, i3, ReduceArg(Ops.MAX))",
    ),
    "matmul": (
        lambda: matmul(tensor((4, 3)), tensor((3, 5))),
        "ADD(MUL(i0, 5), i1) <- REDUCE(MUL(INDEX(p1, ADD(MUL(i0, 3), i2)), "
        "INDEX(p2, ADD(i1, MUL(i2, 5)))), i2, ReduceArg(Ops.ADD))",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_text_of_what_is_stored(name: str) -> None:
    make, text = GOLDEN[name]
    assert body(make()) == [text]
