"""Loops and branches.

    RANGE … END    for (int64_t i0 = 0; i0 < 8; i0++) { … }        IF … ENDIF    if (v0) { … }

A register is a variable, so nothing has to be carried from turn to turn.
"""

from __future__ import annotations

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.c.table import emits
from pellucid.render.c.types import c_type, stripped
from pellucid.render.c.writer import CWriter
from pellucid.render.program import closed_ranges
from pellucid.render.renderer import refusal


@emits(Ops.SPECIAL)
def special(w: CWriter, node: UOp) -> None:
    """The index of this thread."""
    if node.arg.name != "thread":
        raise refusal(node, "c", w.info.name)
    w.texts[node] = "thread" if node.dtype.bits == 64 else f"({c_type(node.dtype)})thread"


@emits(Ops.RANGE)
def open_loop(w: CWriter, node: UOp) -> None:
    """Begin a loop; its variable has the number of the range."""
    w.texts[node] = name = f"i{node.arg.id}"
    size = stripped(w[node.src[0]])
    w.statement(f"for ({c_type(node.dtype)} {name} = 0; {name} < {size}; {name}++) {{")
    w.indent += 1


@emits(Ops.END)
def close_loops(w: CWriter, node: UOp) -> None:
    """Close the innermost loops, as many as the END has ranges."""
    for _ in closed_ranges(node):
        w.indent -= 1
        w.statement("}")


@emits(Ops.IF)
def open_if(w: CWriter, node: UOp) -> None:
    """What follows runs where the condition holds."""
    w.statement(f"if ({stripped(w[node.src[0]])}) {{")
    w.indent += 1


@emits(Ops.ENDIF)
def close_if(w: CWriter, node: UOp) -> None:
    """The end of an IF."""
    w.indent -= 1
    w.statement("}")
