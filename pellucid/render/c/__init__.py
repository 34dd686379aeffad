"""Linear programs as C text, for reading, for porting, and for an installed compiler.

    acc = 0; for i in 0..7: acc += x[i]; y[0] = acc          becomes

    float acc0;
    acc0 = 0.0f;
    for (int64_t i0 = 0; i0 < 8; i0++) {
        acc0 = acc0 + x1[i0];
    }
    x0[0] = acc0;

C11 with GNU's vector extensions, which gcc (from 12) and clang share. What the text relies on:
floats are not contracted (`-ffp-contract=off`), casts between pointers are harmless
(`-fno-strict-aliasing`). Integer arithmetic that bounds do not prove to fit is done unsigned, so
that it wraps with and without `-fwrapv`.

A vector of bools is a vector of signed integers, 0 or -1 in each lane, as wide as what was
compared; it is converted where it meets another width. A bool in memory is a byte, 0 or 1.
Operations that C has for scalars only are loops over lanes in small functions, which compilers
turn into one instruction where there is one.

    renderer.py    what can be spelled        writer.py    the function in the making
    table.py       op -> emitter              inline.py    which values need no variable
    arithmetic.py, lanes.py, memory.py, control.py       the emitters

Source: ISO/IEC 9899:2011; GCC manual, "Using Vector Instructions through Built-in Functions".
"""

from pellucid.render.c.renderer import CRenderer

__all__ = ["CRenderer"]
