"""The table of emitters of LLVM IR; the modules beside this one fill it.

    @emits(Ops.FTOI)
    def float_to_integer(w, node):
        return f"fptosi {w.typed(node.src[0])} to {llvm_type(node.dtype)}"

An emitter returns what stands right of the name of its value, or None where it has written all
that there is to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.render.renderer import Emitters

if TYPE_CHECKING:
    from pellucid.render.llvm.writer import LLVMWriter

emits: Emitters[LLVMWriter] = Emitters()
