"""Kernels built by hand, rendered, compiled and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pellucid.codegen.add_control_flow import add_control_flow
from pellucid.codegen.linearize import linearize
from pellucid.core.dtype import DType, dtypes
from pellucid.core.target import Target, host_target
from pellucid.ir.arg import ParamArg, ProgramInfo
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render import CRenderer, LLVMRenderer, Renderer, scratch_layout
from pellucid.runtime import Buffer, Device

RENDERERS: dict[str, Callable[[Target | None], Renderer]] = {
    "CPU:LLVM": LLVMRenderer,
    "CPU:C": CRenderer,
}


class Kernel:
    """A kernel under construction: effects over params, then `linear` and `run`."""

    def __init__(self, name: str = "kernel") -> None:
        self.name = name
        self.effects: list[UOp] = []
        self.params: list[UOp] = []

    def param(self, dtype: DType, size: int) -> UOp:
        """The next parameter."""
        param = UOp(Ops.PARAM, dtype, (), ParamArg(len(self.params), size))
        self.params.append(param)
        return param

    def linear(self, items: Sequence[UOp] | None = None) -> UOp:
        """The program: the nodes below the effects in order, or *items* as they are."""
        if items is None:
            return linearize(add_control_flow(UOp.sink(*self.effects), host_target()))
        return UOp(Ops.LINEAR, dtypes.void, tuple(items))

    def info(self, linear: UOp) -> ProgramInfo:
        """What the renderers read of a ProgramInfo."""
        variables = tuple(n.arg for n in linear.toposort() if n.op is Ops.VARIABLE)
        written = {n.src[0].src[0] for n in linear.toposort() if n.op is Ops.STORE}
        read = {n.src[0].src[0] for n in linear.toposort() if n.op is Ops.LOAD}
        return ProgramInfo(
            self.name,
            reads=tuple(sorted(p.arg.slot for p in read if p.op is Ops.PARAM)),
            writes=tuple(sorted(p.arg.slot for p in written if p.op is Ops.PARAM)),
            variables=variables,
            scratch_bytes=scratch_layout(linear)[1],
        )

    def run(
        self,
        device: str,
        arrays: Sequence[np.ndarray],
        variables: Sequence[int] = (),
        items: Sequence[UOp] | None = None,
        target: Target | None = None,
    ) -> None:
        """Compile for *device* and run in place on *arrays*, one for each param.

        target: a machine that can do less than this one, for what the renderer then writes.
        """
        linear = self.linear(items)
        info = self.info(linear)
        source = RENDERERS[device](target).render(linear, info)
        program = Device[device].load(Device[device].compile(source, self.name), self.name)
        buffers = []
        for array in arrays:
            buffer = Buffer(device, max(1, array.nbytes), dtypes.uint8)
            buffer.as_numpy()[: array.nbytes] = array.view(np.uint8).reshape(-1)
            buffers.append(buffer)
        program(buffers, list(variables), 1, info.scratch_bytes)
        for buffer, array in zip(buffers, arrays, strict=True):
            array.view(np.uint8).reshape(-1)[:] = buffer.as_numpy()[: array.nbytes]


@pytest.fixture
def kernel() -> Kernel:
    """A kernel without effects."""
    return Kernel()


@pytest.fixture(params=sorted(RENDERERS))
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn."""
    return str(request.param)
