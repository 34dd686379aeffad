"""The renderer of C: what it can spell, and the table filled by the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pellucid.core.target import Target
from pellucid.ir.arg import ProgramInfo
from pellucid.ir.uop import UOp
from pellucid.render.c import arithmetic, control, lanes, memory  # noqa: F401 fill the table
from pellucid.render.c.table import emits
from pellucid.render.c.writer import CWriter
from pellucid.render.join import join_c
from pellucid.render.renderer import Renderer, described


class CRenderer(Renderer):
    """C text, one function for each kernel; the runtime's C toolchain has the flags."""

    name: ClassVar[str] = "c"
    version: ClassVar[int] = 1
    compiler_flags: ClassVar[tuple[str, ...]] = (
        *("-std=gnu11", "-O2", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
        *("-fno-math-errno", "-fno-trapping-math", "-w"),
    )
    """What the text needs to mean what it says (the first line), and to be fast (the second)."""

    def describe(self, machine: Target) -> Target:
        """See `Renderer.describe`."""
        return described(machine, emits.elementwise_ops)

    def render(self, linear: UOp, info: ProgramInfo) -> str:
        """See `Renderer.render`."""
        return CWriter(linear, info, emits).text()

    def join(self, texts: Sequence[str], names: Sequence[str]) -> str:
        """See `Renderer.join`."""
        return join_c(texts, names)
