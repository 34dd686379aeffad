"""Values that are made in blocks, in local memory of the kernel that uses them."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.target import host_target
from pellucid.ir.arg import AddrSpace
from pellucid.ir.interpret import run_kernel
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from tests.codegen.kernels import buffers_for
from tests.codegen.lowering import SMALL, TARGET, lowered, with_actions
from tests.schedule.graphs import check, exp, kernels, num_calls, reduce, tensor, write


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose second cache holds a block of the tests here, and not a whole value."""
    monkeypatch.setenv("PELLUCID_TARGET", "x86-64:avx2,fma:cores=1,l2_bytes=600")
    assert host_target().l2_bytes == 600


def product(a: UOp, b: UOp) -> UOp:
    """(…, n, k) @ (…, k, m), batch by batch."""
    *batch, n, k = a.known_shape
    m = b.known_shape[-1]
    left = a.reshape((*batch, n, k, 1)).expand((*batch, n, k, m))
    right = b.reshape((*batch, 1, k, m)).expand((*batch, n, k, m))
    return reduce(left * right, len(batch) + 1)


def softmax(x: UOp) -> UOp:
    shape, last = x.known_shape, len(x.known_shape) - 1

    def whole(value: UOp) -> UOp:
        return value.reshape((*shape[:-1], 1)).expand(shape)

    e = exp((x - whole(reduce(x, last, op=Ops.MAX))) * 0.125)
    return e / whole(reduce(e, last))


def attention(q: UOp, k: UOp, v: UOp) -> UOp:
    batch = tuple(range(len(k.known_shape) - 2))
    turned = k.permute((*batch, len(batch) + 1, len(batch)))
    return product(softmax(product(q, turned)), v)


def inputs(batch: int = 4, rows: int = 8, size: int = 8) -> tuple[UOp, UOp, UOp]:
    q, k, v = (tensor((2, batch // 2, rows, size)) for _ in range(3))
    return q, k, v


def test_attention_is_one_kernel_that_keeps_scores_in_local_memory() -> None:
    (kernel,) = kernels(check([attention(*inputs())]))
    blocks = [n.arg for n in kernel.toposort() if n.op is Ops.DEFINE]
    assert [(b.space, b.size) for b in blocks] == [(AddrSpace.LOCAL, 8 * 8)] * 2


@pytest.mark.parametrize("target", [TARGET, SMALL])
@pytest.mark.parametrize("rows", [8, 9, 12])
def test_every_nest_takes_actions_of_its_own(target: object, rows: int) -> None:
    (kernel,) = kernels(check([attention(*inputs(4, rows))]))
    buffers = buffers_for(kernel)
    wanted, got = ([b.copy() for b in buffers] for _ in range(2))
    run_kernel(kernel, wanted)
    native = lowered(kernel, target)  # type: ignore[arg-type]
    run_kernel(native, got)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-4, atol=1e-4)
    (first, *_) = native.arg.applied
    assert first.kind == "each"
    assert len(first.extra) == 3


def test_actions_of_nests_can_be_asked_for_again() -> None:
    (kernel,) = kernels(check([attention(*inputs())]))
    once = lowered(kernel, TARGET)
    asked = with_actions(kernel, *once.arg.applied)
    assert lowered(asked, TARGET).src == once.src


def test_scores_that_are_wanted_elsewhere_are_stored() -> None:
    q, k, v = inputs()
    turned = k.permute((0, 1, 3, 2))
    scores = product(q, turned)
    assert num_calls(scores, product(softmax(scores), v)) == 2


def test_products_with_one_matrix_for_all_stay_apart() -> None:
    """Rows one by one, or a matrix read again for every block, would be slower than memory."""
    x, w, u = tensor((64, 16)), tensor((16, 32)), tensor((32, 24))
    assert num_calls(product(product(x, w), u)) == 2
    x = tensor((8, 16, 16))
    shared = tensor((16, 24)).reshape((1, 16, 24)).expand((8, 16, 24))
    assert num_calls(product(product(x, x), shared)) == 2


def test_a_value_that_a_write_overwrites_is_read_in_time() -> None:
    q, k, v = inputs()
    first, second = q.shrink(((0, 1), *_REST)), q.shrink(((1, 2), *_REST))
    check([attention(q, k, v), write(q, first, second * 2.0)])


_REST = ((0, 2), (0, 8), (0, 8))
