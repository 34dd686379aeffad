"""Loops, branches, and what registers hold after them.

    RANGE    br label %loop0          END    %v8 = add nsw i64 %i0, 1
             loop0:                          %i0.next = call i64 @llvm.expect.i64(i64 %v8, i64 1)
             %i0 = phi …                     %v9 = icmp slt i64 %i0.next, 8
             %acc0 = phi …                   br i1 %v9, label %loop0, label %end0
                                             end0:

The lines of the phis are kept free when a loop opens and filled when it closes, as only then the
values of its last turn have names.

The call computes nothing and becomes nothing. But the loop strength reduction of code generation
cannot see through it, finds no counter, and leaves the loop as it is: it would spend a quarter of
the time of all code generation on what `addresses.py` has done, and can be switched off only for a
whole process, by an option.
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
    count, step = w.addresses.wide_of(node.src[0]), w.addresses.step_of(node)
    if step > 1:
        count = str(int(count) * step) if count.isdecimal() else w.value(f"mul i64 {count}, {step}")
    outside_line = w.later()
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
    phi_line = w.later()
    w.open.append(
        Loop(node, number, step, outside_line, before, carried, initial, phi_line, count, guarded)
    )
    w.addresses.open()
    w.addresses.counter(node, f"%i{number}")


@emits(Ops.END)
def close_loops(w: LLVMWriter, node: UOp) -> None:
    """Close the innermost loops, as many as the END has ranges."""
    for _ in closed_ranges(node):
        loop = w.open.pop()
        assert isinstance(loop, Loop), "an END closes an IF"
        _close_loop(w, loop)


def _close_loop(w: LLVMWriter, loop: Loop) -> None:
    number = loop.number
    w.lines[loop.outside_line] = w.addresses.close()
    counted = [(f"%i{number}", "0", loop.step), *loop.sums]
    for name, _, step in counted:
        total = w.value(f"add nsw i64 {name}, {step}")
        hidden = w.call("llvm.expect.i64", "i64", ("i64", total), ("i64", str(step)))
        w.effect(f"{name}.next = {hidden}")
    more = w.value(f"icmp slt i64 %i{number}.next, {loop.count}")
    w.effect(f"br i1 {more}, label %loop{number}, label %end{number}")
    last = w.block
    phis = [
        f"  {name} = phi i64 [ {start}, %{loop.before} ], [ {name}.next, %{last} ]"
        for name, start, _ in counted
    ]
    for register, name in loop.carried.items():
        kind = w.register_type(register)
        start, final = loop.initial[register], w.registers[register]
        phis.append(f"  {name} = phi {kind} [ {start}, %{loop.before} ], [ {final}, %{last} ]")
    w.lines[loop.phi_line] = "\n".join(phis)
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
    outside_line = w.later()
    w.effect(f"br {w.typed(node.src[0])}, label %then{number}, label %join{number}")
    w.open.append(If(number, outside_line, w.block, dict(w.registers)))
    w.addresses.open()
    w.label(f"then{number}")


@emits(Ops.ENDIF)
def close_if(w: LLVMWriter, node: UOp) -> None:
    """Registers that the body set have two possible values from here on."""
    branch = w.open.pop()
    assert isinstance(branch, If), "an ENDIF closes a loop"
    last = w.block
    w.lines[branch.outside_line] = w.addresses.close()
    w.effect(f"br label %join{branch.number}")
    w.label(f"join{branch.number}")
    for register, value in list(w.registers.items()):
        if register not in branch.registers:
            del w.registers[register]
        elif value != branch.registers[register]:
            old = branch.registers[register]
            sources = f"[ {old}, %{branch.before} ], [ {value}, %{last} ]"
            w.registers[register] = w.value(f"phi {w.register_type(register)} {sources}", "acc")
