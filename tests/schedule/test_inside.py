"""Scores of attentions: each kernel that uses them makes them, a row or a column at a time."""

from __future__ import annotations

import pytest

from pellucid import Tensor
from pellucid.core.dtype import dtypes
from pellucid.core.target import host_target
from pellucid.ir.arg import AddrSpace
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import base_of
from pellucid.schedule.facts import Facts
from pellucid.schedule.normalise import normalise
from pellucid.schedule.scores import find_scores
from tests.schedule.graphs import check, exp, keep, kernels, num_calls, reduce, tensor, write

ROWS, WIDTH = 20, 8


def product(a: UOp, b: UOp) -> UOp:
    """(…, n, k) @ (…, k, m), batch by batch."""
    *batch, n, k = a.known_shape
    m = b.known_shape[-1]
    left = a.reshape((*batch, n, k, 1)).expand((*batch, n, k, m))
    right = b.reshape((*batch, 1, k, m)).expand((*batch, n, k, m))
    return reduce(left * right, len(batch) + 1)


def turned(x: UOp) -> UOp:
    """The last two axes in the other order."""
    last = len(x.known_shape) - 1
    return x.permute((*range(last - 1), last, last - 1))


def softmax(x: UOp) -> UOp:
    last = len(x.known_shape) - 1
    size = x.known_shape[last]
    e = exp((x - keep(reduce(x, last, op=Ops.MAX), last, size)) * 0.125)
    return e / keep(reduce(e, last), last, size)


def attention(q: UOp, k: UOp, v: UOp) -> UOp:
    return product(softmax(product(q, turned(k))), v)


def inputs(batch: int = 2, rows: int = ROWS, keys: int = ROWS) -> tuple[UOp, UOp, UOp]:
    q, k, v = (tensor((2, batch, n, WIDTH)) for n in (rows, keys, keys))
    return q, k, v


def largest_storage(*outputs: UOp) -> int:
    """Elements of the largest storage of a schedule, after checking that the schedule is right."""
    calls = check(outputs).linear.src
    return max(int(node.arg.size) for call in calls for node in call.src[1:])


@pytest.mark.parametrize(("rows", "keys"), [(ROWS, ROWS), (17, 33), (40, 16)])
def test_attention_is_one_kernel_that_keeps_a_row_of_scores(rows: int, keys: int) -> None:
    (kernel,) = kernels(check([attention(*inputs(2, rows, keys))]))
    buffers = [n.arg for n in kernel.toposort() if n.op is Ops.DEFINE]
    assert {(b.space, b.size) for b in buffers} == {(AddrSpace.LOCAL, keys)}


def test_a_mask_and_a_bias_belong_to_the_kernel() -> None:
    q, k, v = inputs()
    bias = tensor((ROWS, ROWS)).reshape((1, 1, ROWS, ROWS)).expand((2, 2, ROWS, ROWS))
    scores = product(q, turned(k)) + bias
    assert num_calls(product(softmax((bias < 1.0).where(scores, -64.0)), v)) == 1


def test_gradients_make_scores_again() -> None:
    """Statistics and the gradient of queries by rows; those of keys and values by columns."""
    q, k, v = inputs()
    out_grad = tensor((2, 2, ROWS, WIDTH))
    scores = product(q, turned(k))
    weights = softmax(scores)
    by_weights = product(out_grad, turned(v))
    along = keep(reduce(by_weights * weights, 3), 3, ROWS)
    by_scores = weights * (by_weights - along)
    outputs = (
        product(weights, v),
        product(by_scores, k),
        product(turned(by_scores), q),
        product(turned(weights), out_grad),
    )
    assert largest_storage(*outputs) == 2 * 2 * ROWS * WIDTH
    assert num_calls(*outputs) == 2


def num_scaled(*outputs: UOp) -> int:
    """How many factors of scores are scaled where they are copied."""
    normal = normalise(outputs)
    facts = Facts(normal.sink.toposort(), ["CPU"] * len(normal.buffers), host_target())
    find_scores(normal.sink, facts, {base_of(output) for output in normal.sink.src})
    return len(facts.scaled_factors)


def test_queries_are_scaled_by_the_kernel_that_copies_them() -> None:
    q, k, v = inputs()
    weights = softmax(product(q * 0.25, turned(k)))
    assert num_scaled(product(weights, v)) == num_calls(product(weights, v)) == 1


def test_what_each_row_would_scale_again_is_left() -> None:
    """Keys, which lie along the row, and queries that gradients read too, or columns."""
    q, k, v = inputs()
    scaled = q * 0.25
    weights = softmax(product(scaled, turned(k)))
    assert num_scaled(product(softmax(product(q, turned(k * 0.25))), v)) == 0
    assert num_scaled(product(turned(weights), v)) == 0
    assert num_scaled(product(weights, v), product(turned(weights), v)) == 0
    assert num_scaled(product(weights, v), scaled) == 0
    assert num_scaled(product(weights, v) + scaled) == 0


def test_a_gradient_of_a_sum_is_not_multiplied_by_ones() -> None:
    ones = UOp.const(dtypes.float32, 1.0).reshape((1, 1)).expand((ROWS, WIDTH))
    x = tensor((ROWS, WIDTH))
    sinks = [normalise([y.alu(Ops.EXP2)]).sink for y in (x, ones * x, x * ones)]
    assert sinks[0] is sinks[1] is sinks[2]


def test_a_product_with_ones_that_has_memory_of_its_own_stays() -> None:
    """What is asked for, or written to, may not become the buffer that it was made of."""
    x = tensor((ROWS, WIDTH))
    own = x * 1.0
    assert normalise([own]).sink is not normalise([x]).sink
    z = Tensor([1.0, 2.0])
    copy, kept = z * 1.0, z * 1.0
    z += 1
    copy[0] = 5.0
    assert (copy.tolist(), kept.tolist(), z.tolist()) == ([5.0, 2.0], [1.0, 2.0], [2.0, 3.0])


def test_scores_that_are_asked_for_are_stored() -> None:
    q, k, v = inputs()
    scores = product(q, turned(k))
    assert largest_storage(scores, product(softmax(scores), v)) == 2 * 2 * ROWS * ROWS


def test_scores_that_are_used_otherwise_are_stored() -> None:
    q, k, v = inputs()
    weights = softmax(product(q, turned(k)))
    moved = weights.flip((3,)) + 1.0
    assert largest_storage(product(weights, v), moved) == 2 * 2 * ROWS * ROWS


def test_rows_and_columns_of_one_kernel_are_right() -> None:
    """Two sums of one result, one along each axis of the scores."""
    q, k, v = inputs()
    weights = softmax(product(q, turned(k)))
    check([product(weights, v) + product(turned(weights), v)])
    squares = product(weights, turned(weights))  # rows that are summed with other rows
    check([product(squares, v)])


def test_products_smaller_than_their_matrices_are_stored() -> None:
    """What follows a wide layer is no attention: its matrix is larger than its result."""
    x, w, u = tensor((ROWS, 64)), tensor((64, 16)), tensor((16, 24))
    assert num_calls(product(softmax(product(x, w)), u)) > 1


def test_products_without_statistics_of_rows_stay_apart() -> None:
    x, w, u = tensor((64, 8)), tensor((8, 64)), tensor((64, 24))
    assert num_calls(product(product(x, w) * 2.0, u)) == 2


def test_a_value_that_a_write_overwrites_is_read_in_time() -> None:
    q, k, v = inputs()
    first, second = q.shrink(((0, 1), *_REST)), q.shrink(((1, 2), *_REST))
    check([attention(q, k, v), write(q, first, second * 2.0)])


_REST = ((0, 2), (0, ROWS), (0, WIDTH))
