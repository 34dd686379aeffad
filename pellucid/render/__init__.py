"""Linear programs become text: LLVM IR (`llvm/`) and C (`c/`).

    LINEAR of native ops  ->  the text of one function  void NAME(buffers, vars, thread, scratch)

A renderer is a set of small emitters, one for each op (`renderer.py`), which read the program
(`program.py`), and the facts that the passes need to know about what it can spell: its `target`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pellucid.render.program import scratch_layout
from pellucid.render.renderer import Renderer

if TYPE_CHECKING:
    from pellucid.render.c import CRenderer
    from pellucid.render.llvm import LLVMRenderer

__all__ = ["CRenderer", "LLVMRenderer", "Renderer", "scratch_layout"]


def __getattr__(name: str) -> Any:
    """Import a renderer when it is first asked for: a program mostly needs one alone."""
    if name in ("CRenderer", "LLVMRenderer"):
        part = name.removesuffix("Renderer").lower()
        return getattr(importlib.import_module(f"{__name__}.{part}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
