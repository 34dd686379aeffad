"""Loops, branches, and what registers hold after them.

    RANGE    br label %loop0          END    %i0.next = add nuw nsw i64 %i0, 1
             loop0:                          %v9 = icmp slt i64 %i0.next, 8
             %i0 = phi …                     br i1 %v9, label %loop0, label %end0
             %acc0 = phi …                   end0:

The lines of the phis are kept free when a loop opens and filled when it closes, as only then the
values of its last turn have names.
"""

from __future__ import annotations

from pellucid.ir.bounds import bounds
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.table import emits
from pellucid.render.llvm.writer import If, LLVMWriter, Loop
from pellucid.render.program import closed_ranges
from pellucid.render.renderer import refusal


@emits(Ops.SPECIAL)
def special(w: LLVMWriter, node: UOp) -> None:
    """The index of this thread."""
    if node.arg.name != "thread":
        raise refusal(node, "llvm", w.info.name)
    w.addresses.integer(node, "%thread")


@emits(Ops.RANGE)
def open_loop(w: LLVMWriter, node: UOp) -> None:
    """Begin a loop that tests at its end, and before it only where it may have no turn."""
    number = int(w.fresh("loop")[5:])
    guarded = bounds(node.src[0]).min < 1
    count = w.addresses.wide_of(node.src[0])
    before, initial = w.block, {}
    for register in w.bodies[node]:
        if register in w.registers:
            initial[register] = w.registers[register]
    if guarded:
        some = w.value(f"icmp sgt i64 {count}, 0")
        w.effect(f"br i1 {some}, label %loop{number}, label %end{number}")
    else:
        w.effect(f"br label %loop{number}")
    w.label(f"loop{number}")
    carried = {register: w.fresh("acc") for register in initial}
    w.registers.update(carried)
    loop = Loop(node, number, before, carried, initial, len(w.lines), count, guarded)
    w.lines.extend([""] * (1 + len(carried)))
    w.open.append(loop)
    w.addresses.integer(node, f"%i{number}")


@emits(Ops.END)
def close_loops(w: LLVMWriter, node: UOp) -> None:
    """Close the innermost loops, as many as the END has ranges."""
    for _ in closed_ranges(node):
        loop = w.open.pop()
        assert isinstance(loop, Loop), "an END closes an IF"
        _close_loop(w, loop)


def _close_loop(w: LLVMWriter, loop: Loop) -> None:
    number = loop.number
    w.effect(f"%i{number}.next = add nuw nsw i64 %i{number}, 1")
    more = w.value(f"icmp slt i64 %i{number}.next, {loop.count}")
    w.effect(f"br i1 {more}, label %loop{number}, label %end{number}")
    last = w.block
    phis = [f"  %i{number} = phi i64 [ 0, %{loop.before} ], [ %i{number}.next, %{last} ]"]
    for register, name in loop.carried.items():
        kind = w.register_type(register)
        start, final = loop.initial[register], w.registers[register]
        phis.append(f"  {name} = phi {kind} [ {start}, %{loop.before} ], [ {final}, %{last} ]")
    w.lines[loop.phi_line : loop.phi_line + len(phis)] = phis
    w.label(f"end{number}")
    for register in w.bodies[loop.node]:
        if register not in loop.carried:
            w.registers.pop(register, None)  # born inside: nobody may read it outside
        elif loop.guarded:
            start, final = loop.initial[register], w.registers[register]
            sources = f"[ {start}, %{loop.before} ], [ {final}, %{last} ]"
            w.registers[register] = w.value(f"phi {w.register_type(register)} {sources}", "acc")


@emits(Ops.IF)
def open_if(w: LLVMWriter, node: UOp) -> None:
    """What follows runs where the condition holds."""
    number = int(w.fresh("then")[5:])
    w.effect(f"br {w.typed(node.src[0])}, label %then{number}, label %join{number}")
    w.open.append(If(number, w.block, dict(w.registers)))
    w.label(f"then{number}")


@emits(Ops.ENDIF)
def close_if(w: LLVMWriter, node: UOp) -> None:
    """Registers that the body set have two possible values from here on."""
    branch = w.open.pop()
    assert isinstance(branch, If), "an ENDIF closes a loop"
    last = w.block
    w.effect(f"br label %join{branch.number}")
    w.label(f"join{branch.number}")
    for register, value in list(w.registers.items()):
        if register not in branch.registers:
            del w.registers[register]
        elif value != branch.registers[register]:
            old = branch.registers[register]
            sources = f"[ {old}, %{branch.before} ], [ {value}, %{last} ]"
            w.registers[register] = w.value(f"phi {w.register_type(register)} {sources}", "acc")
