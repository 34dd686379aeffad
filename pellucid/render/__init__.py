"""Linear programs become text: LLVM IR (`llvm/`) and C (`c/`).

    LINEAR of native ops  ->  the text of one function  void NAME(buffers, vars, thread, scratch)

A renderer is a set of small emitters, one for each op (`renderer.py`), which read the program
(`program.py`), and the facts that the passes need to know about what it can spell: its `target`.
"""

from pellucid.render.c import CRenderer
from pellucid.render.llvm import LLVMRenderer
from pellucid.render.program import scratch_layout
from pellucid.render.renderer import Renderer

__all__ = ["CRenderer", "LLVMRenderer", "Renderer", "scratch_layout"]
