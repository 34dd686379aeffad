"""The text of a few kernels, kept: `pytest --bless` rewrites it, and the difference is reviewed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.target import Target
from pellucid.ir.arg import ParamArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render import CRenderer, LLVMRenderer
from tests.render.conftest import Kernel
from tests.render.test_programs import FLOAT, INT, at, loop, number, row_sums

TARGET = Target(arch="x86-64", features=frozenset(["avx512f", "avx512dq", "avx512bw"]))


def fused_elementwise(kernel: Kernel) -> None:
    """y = x <= 0 ? 0 : x * 2 + y, sixteen lanes at a time."""
    y, x = kernel.param(FLOAT, 64), kernel.param(FLOAT, 64)
    first = loop(4) * 16
    left, right = at(x, first, 16).load(), at(y, first, 16).load()
    value = UOp.make(Ops.MULADD, left, left.const_like(2.0), right)
    chosen = (left <= left.const_like(0.0)).where(left.const_like(0.0), value)
    kernel.effects.append(at(y, first, 16).store(chosen).end(first.src[0]))


def sums_of_rows(kernel: Kernel) -> None:
    """A loop around an accumulator, inside a loop."""
    row_sums(kernel, 3, 8)


def gated(kernel: Kernel) -> None:
    """A masked wide load, a gated scalar store."""
    out, x = kernel.param(dtypes.int32, 5), kernel.param(dtypes.int32, 5)
    i = loop(2)
    lanes = UOp.const(INT.vec(4), (0, 1, 2, 3))
    inside = UOp.make(Ops.CMPLT, (i * 4).splat(4) + lanes, number(5).splat(4))
    value = at(x, i * 4, 4).load(UOp.const(INT.vec(4), 0), inside).lane(0)
    kernel.effects.append(at(out, i * 4).store(value, i < number(1)).end(i))


def bools(kernel: Kernel) -> None:
    """A bool is a byte in memory and a mask in registers."""
    out, x = kernel.param(dtypes.bool, 8), kernel.param(dtypes.float64, 8)
    value = at(x, 0, 8).load()
    either = (value < value.const_like(-1.0)) | (value.const_like(1.0) < value)
    kernel.effects.append(at(out, 0, 8).store(either))


def hinted(kernel: Kernel) -> None:
    """A read that is asked for ahead, a store past the caches where the output is aligned."""
    y, x = kernel.param(FLOAT, 64), kernel.param(FLOAT, 64)
    first = loop(4) * 16
    store = at(y, first, 16).store(at(x, first, 16).load()).replace(arg="stream")
    ahead = UOp.make(Ops.PREFETCH, at(x, first + 32, 16))
    own = UOp.make(Ops.PREFETCH, at(y, first + 32, 16), arg="write")
    kernel.effects.append(UOp.make(Ops.GROUP, store, ahead, own).end(first.src[0]))


KERNELS = (fused_elementwise, sums_of_rows, gated, bools, hinted)


@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
@pytest.mark.parametrize(("make", "ending"), [(LLVMRenderer, "ll"), (CRenderer, "c")])
def test_text(golden: Callable[[str, str], None], build, make, ending: str) -> None:
    kernel = Kernel(build.__name__)
    build(kernel)
    linear = kernel.linear()
    text = make(TARGET).render(linear, kernel.info(linear))
    golden(f"render/{make.name}/{build.__name__}.{ending}", text)


def test_params_of_one_slot_are_one_pointer() -> None:
    """Two PARAM nodes with one slot (before and after a write) share a name."""
    first = UOp(Ops.PARAM, FLOAT, (), ParamArg(0, 4))
    kernel = Kernel()
    kernel.params = [first]
    written = at(first, 0).store(UOp.const(FLOAT, 1.0))
    again = at(first.after(written), 0).load()
    kernel.effects.append(at(first, 1).store(again))
    linear = kernel.linear()
    for make in (LLVMRenderer, CRenderer):
        text = make(TARGET).render(linear, kernel.info(linear))
        assert text.count("buffer0 = load" if make is LLVMRenderer else "*x0 = ") == 1
