"""Linear programs as LLVM IR text, ready for code generation without any IR pass.

    acc = 0; for i in 0..7: acc += x[i]; y[0] = acc          becomes

    loop0:
      %i0 = phi i64 [ 0, %entry ], [ %i0.next, %loop0 ]
      %acc0 = phi float [ 0.0, %entry ], [ %v2, %loop0 ]
      %v1 = load float, ptr …
      %v2 = fadd float %acc0, %v1
      …

Nobody cleans up after this text, so it is written as code generation likes it: accumulators are
values that loops carry (phi), never memory; loops test at their end; buffers' addresses are
loaded once; addresses are computed in 64 bits from 64-bit counters, also where the program says
int32, as far as bounds prove that both agree, and each loop adds only what it changes.

    renderer.py    what can be spelled        writer.py      the function in the making
    table.py       op -> emitter              addresses.py   integers that addresses need
    arithmetic.py, lanes.py, memory.py, masks.py, control.py, units.py       the emitters

Vectors are LLVM's. A bool is i1 and lies in memory as a byte, 0 or 1. Floats are strict: no
fast-math flag is ever set. Buffers may be the same memory, so no parameter but the table of
buffers is `noalias`.

Source: LLVM Language Reference Manual, release 22 (nothing newer than release 20 is used).
"""

from pellucid.render.llvm.renderer import LLVMRenderer

__all__ = ["LLVMRenderer"]
