"""Addresses in LLVM text: what innermost loops compute anew in every turn."""

from __future__ import annotations

import re

import pytest

from pellucid.codegen.linearize import linearize
from pellucid.codegen.program_info import program_info
from pellucid.core.target import Target
from pellucid.ir.uop import UOp
from pellucid.render import LLVMRenderer
from tests.codegen import kernels
from tests.codegen.lowering import TARGET, lowered
from tests.opt.products import AVX2


def innermost_loops(sink: UOp, target: Target) -> list[tuple[str, str]]:
    """The label and the text of each loop without loops or branches inside."""
    low = lowered(sink, target)
    text = LLVMRenderer(target).render(linearize(low), program_info(low, target))
    return re.findall(r"^(loop\d+):\n((?:  .*\n)*?)  br i1 .*label %\1\b", text, re.MULTILINE)


@pytest.mark.parametrize("target", [TARGET, AVX2])
@pytest.mark.parametrize(
    "sink", [kernels.matmul(96, 256, 160), kernels.matmul_transposed(96, 256, 160)]
)
def test_products_multiply_no_integers_in_their_innermost_loops(sink: UOp, target: Target) -> None:
    loops = [body for _, body in innermost_loops(sink, target) if "fma" in body or "fmul" in body]
    assert loops
    for body in loops:
        assert not re.search(r"= (mul|shl)\b.* i64", body), body
