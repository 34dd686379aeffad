"""`Options.threads` bounds the threads of every kernel, and is part of a program's key."""

from __future__ import annotations

import numpy as np

from pellucid import Context, Ops, Tensor, compile_linear


def most_threads(threads: int) -> int:
    """How many threads the kernels of a large computation take under an option."""
    with Context(threads=threads):
        x = Tensor(np.ones((1024, 1024), np.float32)).realize()
        compiled = compile_linear((x.exp() * 2 + x.sin()).schedule_linear())
        programs = [node for node in compiled.toposort() if node.op is Ops.PROGRAM]
        return max(program.arg.num_threads for program in programs)


def test_a_kernel_takes_no_more_threads_than_allowed() -> None:
    assert most_threads(1) == 1
    assert most_threads(2) == 2
    assert most_threads(4) == 4
    assert most_threads(1) == 1
