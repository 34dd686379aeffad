"""The renderer of LLVM IR: what it can spell, and the table filled by the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pellucid.core.target import Target
from pellucid.ir.arg import ProgramInfo
from pellucid.ir.uop import UOp
from pellucid.render.join import join_llvm
from pellucid.render.llvm import arithmetic, control, lanes, masks, memory  # noqa: F401 fill the table
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.units import SPELLED
from pellucid.render.llvm.writer import LLVMWriter
from pellucid.render.renderer import Renderer, described


class LLVMRenderer(Renderer):
    """LLVM IR text, one function for each kernel.

    float16 is native for conversions alone, where the processor converts: by F16C on x86-64.
    """

    name: ClassVar[str] = "llvm"
    version: ClassVar[int] = 1

    def describe(self, machine: Target) -> Target:
        """See `Renderer.describe`."""
        halves = machine.has("f16c") or machine.arch == "aarch64"
        spelled = described(machine, emits.elementwise_ops, ("float16",) if halves else ())
        return replace(spelled, matrix_units=machine.units_of(SPELLED))

    def render(self, linear: UOp, info: ProgramInfo) -> str:
        """See `Renderer.render`."""
        return LLVMWriter(linear, info, self.target).text()

    def join(self, texts: Sequence[str], names: Sequence[str]) -> str:
        """See `Renderer.join`."""
        return join_llvm(texts)
