"""The table of emitters of C; the modules beside this one fill it.

    @emits(Ops.NEG, floats=True)
    def flip_sign(w, node):
        return f"(- {w[node.src[0]]})"

An emitter returns an expression, or None where it has written all that there is to write.
"""

from __future__ import annotations

from pellucid.render.c.writer import CWriter
from pellucid.render.renderer import Emitters

emits: Emitters[CWriter] = Emitters()
