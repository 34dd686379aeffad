"""Random TENSOR graphs: the schedule computes what the graph means."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.dtype import dtypes
from pellucid.ir.op import Ops, Shape
from pellucid.ir.uop import UOp
from tests.schedule.graphs import (
    check,
    exp,
    gather,
    kernels,
    reduce,
    scatter,
    spread,
    tensor,
    write,
)

SIZES = (0, 1, 2, 3, 4, 5, 7, 8)
NUM_EXAMPLES = 150


def shapes_of(count: int) -> list[Shape]:
    """All shapes of *count* elements with up to three axes."""
    found: list[Shape] = [(count,), (1, count), (count, 1, 1)]
    for a in range(1, count + 1):
        if count and count % a == 0:
            found.append((a, count // a))
            found += [(a, b, count // a // b) for b in range(1, 9) if count // a % b == 0]
    return found


class Grower:
    """Grows a pool of values of one dtype by random ops."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3)))
        self.pool: list[UOp] = [tensor(shape), tensor(shape)]

    def pick(self) -> UOp:
        return self.pool[self.draw(st.integers(0, len(self.pool) - 1))]

    def grow(self) -> None:
        kinds = (
            self.view,
            self.view,
            self.combine,
            self.reduced,
            self.padded,
            self.indirect,
            self.marked,
            self.written,
        )
        made = self.draw(st.sampled_from(kinds))(self.pick())
        if made.num_elems <= 600:
            self.pool.append(made)

    def view(self, x: UOp) -> UOp:
        shape = x.known_shape
        kind = self.draw(st.integers(0, 4))
        if kind == 0:
            return x.reshape(self.draw(st.sampled_from(shapes_of(x.num_elems))))
        if kind == 1:
            return x.permute(tuple(self.draw(st.permutations(range(len(shape))))))
        if kind == 2:
            return x.flip(tuple(a for a in range(len(shape)) if self.draw(st.booleans())))
        if kind == 3:
            lows = [self.draw(st.integers(0, n)) for n in shape]
            highs = [self.draw(st.integers(low, n)) for low, n in zip(lows, shape, strict=True)]
            return x.shrink(tuple(zip(lows, highs, strict=True)))
        lead = self.draw(st.lists(st.sampled_from((1, 2, 3)), max_size=1))
        wide = tuple(self.draw(st.sampled_from((1, 2, 5))) if n == 1 else n for n in shape)
        return x.reshape((1,) * len(lead) + shape).expand((*lead, *wide))

    def combine(self, x: UOp) -> UOp:
        kind = self.draw(st.integers(0, 3))
        same = [y for y in self.pool if y.known_shape == x.known_shape]
        y = same[self.draw(st.integers(0, len(same) - 1))]
        if kind == 0:
            return x + y
        if kind == 1:
            return (x < y).where(x * 0.5, y)
        if kind == 2:
            return UOp.make(Ops.MAX, x, y) + 1.0
        rows = UOp(Ops.IOTA, dtypes.float32, (), x.num_elems)
        return x * 0.5 + rows.reshape(x.known_shape)

    def reduced(self, x: UOp) -> UOp:
        axes = [a for a in range(len(x.known_shape)) if self.draw(st.booleans())]
        op = self.draw(st.sampled_from((Ops.ADD, Ops.MAX, Ops.MIN)))
        if not axes or (op is not Ops.ADD and x.num_elems == 0):
            return x
        result = reduce(x, *axes, op=op)
        if self.draw(st.booleans()):
            kept = tuple(1 if a in axes else n for a, n in enumerate(x.known_shape))
            return x + result.reshape(kept).expand(x.known_shape) * 0.125
        return result

    def padded(self, x: UOp) -> UOp:
        small = st.integers(0, 2)
        amounts = tuple((self.draw(small), self.draw(small)) for _ in x.known_shape)
        return x.pad(amounts, self.draw(st.sampled_from((0.0, -1.0))))

    def indirect(self, x: UOp) -> UOp:
        if not x.known_shape:
            return x
        rows = tensor((self.draw(st.integers(1, 4)),), dtypes.int32)
        if self.draw(st.booleans()):
            return gather(x, rows)
        value = spread(tensor((1,)), rows.known_shape + x.known_shape[1:])
        op = self.draw(st.sampled_from((None, Ops.ADD, Ops.MAX)))
        return scatter(x, value, rows, op=op)

    def marked(self, x: UOp) -> UOp:
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return UOp.make(Ops.CONTIGUOUS, x)
        if kind == 1:
            return (exp(x * 0.0625) + exp(x * 0.03125)) * 0.5
        if kind == 2:
            return x.cast(dtypes.int16).cast(dtypes.float32)
        return UOp.make(Ops.LEAF, x, arg=1)

    def written(self, x: UOp) -> UOp:
        """x with a box replaced by another box of it, or by zeros."""
        lows = [self.draw(st.integers(0, n)) for n in x.known_shape]
        sizes = [
            self.draw(st.integers(0, n - low)) for low, n in zip(lows, x.known_shape, strict=True)
        ]
        window = x.shrink(tuple((low, low + n) for low, n in zip(lows, sizes, strict=True)))
        kind = self.draw(st.integers(0, 2))
        if kind == 0:
            return write(x, window, UOp.const(x.dtype, 0.0).expand(window.known_shape))
        other = x.shrink(tuple((0, n) for n in sizes))
        return write(x, window, other if kind == 1 else window * 2.0)


@st.composite
def graphs(draw: st.DrawFn) -> list[UOp]:
    grower = Grower(draw)
    for _ in range(draw(st.integers(1, 10))):
        grower.grow()
    outputs = grower.pool[2:][-1:]
    return outputs + [x for x in grower.pool if draw(st.integers(0, 4)) == 0]


@settings(max_examples=NUM_EXAMPLES, deadline=None)
@given(graphs())
def test_schedule_means_what_the_graph_means(outputs: list[UOp]) -> None:
    if not outputs:
        return
    for kernel in kernels(check(outputs, rtol=1e-4)):
        nodes = kernel.toposort()
        assert not any(n.op.is_movement or n.op is Ops.BUFFER for n in nodes)
        ids = [n.arg.id for n in nodes if n.op is Ops.RANGE]
        assert sorted(ids) == list(range(len(ids)))
