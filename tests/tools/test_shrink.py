"""shrink keeps a failure and takes away the rest."""

from __future__ import annotations

from pellucid import Ops, UOp, dtypes
from pellucid.ir.arg import KernelInfo, ParamArg
from pellucid.ir.form import LOOP
from pellucid.ir.text import from_text, to_text
from pellucid.ir.verify import verify
from pellucid.tools.shrink import candidates, shrink


def kernel() -> UOp:
    """Two outputs of a two-dimensional elementwise kernel."""
    i, j = UOp.range(12, 0), UOp.range(9, 1)
    place = i * 9 + j
    a, b, p, q = (UOp(Ops.PARAM, dtypes.float32, (), ParamArg(n, 108)) for n in range(4))
    x, y = p.index(place), q.index(place)
    first = a.index(place).store((x * 3.0 + y).maximum(0.0)).end(i, j)
    second = b.index(place).store(x * y + 1.0).end(i, j)
    return UOp.sink(first, second, arg=KernelInfo("two"))


def has_maximum(graph: UOp) -> bool:
    return any(node.op is Ops.MAX for node in graph.toposort())


def is_valid_with_maximum(graph: UOp) -> bool:
    verify(graph, LOOP)
    return has_maximum(graph)


def test_a_kernel_becomes_small_and_stays_a_kernel() -> None:
    small = shrink(kernel(), is_valid_with_maximum)
    assert is_valid_with_maximum(small)
    assert len(small.toposort()) < 14 < len(kernel().toposort())
    sizes = [node.src[0].arg for node in small.toposort() if node.op is Ops.RANGE]
    assert all(size == 1 for size in sizes)
    assert from_text(to_text(small)) is small


def test_what_does_not_fail_is_left_alone() -> None:
    graph = kernel()
    assert shrink(graph, lambda candidate: False) is graph


def test_a_predicate_that_raises_is_no_failure() -> None:
    graph = kernel()

    def only_this(candidate: UOp) -> bool:
        if candidate is not graph:
            raise ValueError("no graph that can be run")
        return True

    assert shrink(graph, only_this) is graph


def test_the_search_ends_and_never_grows() -> None:
    graph = kernel()
    size = len(graph.toposort())
    assert all(len(c.toposort()) <= size + 2 for c in candidates(graph))
    tried = 0

    def count(candidate: UOp) -> bool:
        nonlocal tried
        tried += 1
        return has_maximum(candidate)

    shrink(graph, count, most_tries=20)
    assert tried <= 22
