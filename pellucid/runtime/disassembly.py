"""Show the instructions of a compiled object, by objdump.

    BINARY  ->  "0000000000000000 <add>:\\n   0:  mov  rax, QWORD PTR [rdi] ..."

Only for people to read (`pellucid explain`): without objdump the text says so, and nothing fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile


def disassemble(binary: bytes) -> str:
    """Return the instructions of an object as text, by objdump; or a line that says why not."""
    tool = shutil.which("objdump")
    if tool is None:
        return "(no disassembly: objdump is not installed; it is part of binutils)"
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(binary)
        file.flush()
        command = [tool, "-d", "-r", "--no-show-raw-insn", "-M", "intel", file.name]
        if sys.platform != "linux" or os.uname().machine != "x86_64":
            command = [tool, "-d", "-r", file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"(no disassembly: {error})"
    if done.returncode != 0:
        return f"(no disassembly: {done.stderr.strip()})"
    start = done.stdout.find("Disassembly of section")
    return done.stdout[max(start, 0) :].strip() + "\n"
