"""Compile C text to an object, by the C compiler that is installed.

    void add(void **buffers, const int64_t *vars, int64_t thread, void *scratch) { ... }
      ->  cc -c -O2 -fPIC ... kernel.c  ->  the bytes of kernel.o

The object goes through the same loader as LLVM's, so nothing is linked and no file stays. Floats
keep their meaning: no contraction to fused multiply-add, no assumption that NaN or infinity do not
occur. `errno` after a math function is nobody's business here. Vectors are written out in the
source, so the compiler is not asked to look for more: GCC 12.2 read wrong addresses where
it vectorised copies of a loop that runs backwards (a sum over a flipped axis lost elements).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from pellucid.core.errors import CompileError, ToolchainError
from pellucid.core.target import LOSSY_FEATURES, Target, host_target
from pellucid.runtime.diskcache import content_key, current_cache

TIMEOUT_S: Final = 120.0

_FLAGS: Final = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing",
    "-fno-tree-vectorize",
    "-fwrapv",
    "-w",
)
_OPTIONAL_FLAGS: Final = ("-fcf-protection=none", "-mprefer-vector-width=512", "-Wno-psabi")
_X86_FLAGS: Final = {"pclmul": "pclmul", "rdrnd": "rdrnd", "cx16": "cx16"}
"""Features whose flag is -m and the name are not listed: all but those that cc spells otherwise."""

_INSTALL: Final = {
    "linux": "apt install gcc (Debian, Ubuntu) or dnf install gcc (Fedora)",
    "darwin": "xcode-select --install",
}


def compiler_command() -> list[str]:
    """Return the C compiler to call: `CC` if it is set, else `cc`, `gcc` or `clang`.

    Errors: ToolchainError when there is none.
    """
    asked = os.environ.get("CC", "").strip()
    candidates = [asked] if asked else ["cc", "gcc", "clang"]
    for candidate in candidates:
        words = shlex.split(candidate)
        path = shutil.which(words[0]) if words else None
        if path is not None:
            return [path, *words[1:]]
    install = _INSTALL.get(sys.platform, "install gcc or clang and put it on the PATH")
    raise ToolchainError(
        "the C renderer needs a C compiler, and there is none",
        rows=[("looked for", asked + " (from CC)" if asked else ", ".join(candidates))],
        help=f"{install}, or use PELLUCID_DEVICE=CPU:LLVM",
    )


def compiler_key(target: Target) -> str:
    """Return what identifies the compiler, its flags and the features, for cache keys.

    The file of the compiler stands for its version: asking the compiler would cost a process.
    Where there is no compiler the key is still well defined, and matches nothing.
    """
    try:
        command = compiler_command()
    except ToolchainError:
        return "missing"
    return f"{_identity(tuple(command))} {target.arch} {' '.join(wanted_flags(target))}"


def _identity(command: tuple[str, ...]) -> str:
    status = os.stat(os.path.realpath(command[0]))
    return f"{shlex.join(command)} {status.st_size} {status.st_mtime_ns}"


def compile_c(source: str, name: str, target: Target | None = None) -> bytes:
    """Compile the C text of one or more kernels to one object.

    name: what to call the kernel in errors.
    Errors: ToolchainError without a compiler or when it does not end; CompileError, with the
    compiler's message and the line, when it refuses the text.
    """
    command = compiler_command()
    flags = accepted_flags(tuple(command), wanted_flags(target or host_target()))
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        text, made = Path(folder, "kernel.c"), Path(folder, "kernel.o")
        text.write_text(source, encoding="utf-8")
        code, message = _run([*command, *flags, "-c", "-o", str(made), str(text)], folder)
        if code != 0 or not made.exists():
            raise _refusal(source, name, message or f"{command[0]} ended with code {code}")
        return made.read_bytes()


def wanted_flags(target: Target) -> tuple[str, ...]:
    """Return the flags for kernels on *target*: fixed ones, and one for each feature."""
    if target.arch != "x86-64":
        return (*_FLAGS, *_OPTIONAL_FLAGS[2:])
    features = sorted(target.features - LOSSY_FEATURES)
    return (*_FLAGS, *_OPTIONAL_FLAGS, *(f"-m{_X86_FLAGS.get(f, f)}" for f in features))


@cache
def accepted_flags(command: tuple[str, ...], flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of *flags* that the compiler knows.

    Asked once, with an empty program; the answer is kept in the disk cache.
    """
    key = content_key("flags", _identity(command), *flags)
    known = current_cache().get(key)
    if known is not None:
        return tuple(known.decode().split())
    accepted = flags
    if not _accepts(command, flags):
        accepted = tuple(flag for flag in flags if _accepts(command, (flag,)))
    current_cache().put(key, " ".join(accepted).encode())
    return accepted


def _accepts(command: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        empty = Path(folder, "empty.c")
        empty.write_text("int pellucid_probe;\n", encoding="utf-8")
        made = str(Path(folder, "empty.o"))
        return _run([*command, *flags, "-c", "-o", made, str(empty)], folder)[0] == 0


def _run(command: list[str], folder: str) -> tuple[int, str]:
    """Run *command*; return its exit code and what it wrote. It never outlives this call."""
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,  # the compiler's own children end with it
        )
    except OSError as error:
        raise ToolchainError(
            f"the C compiler {command[0]} cannot be started", rows=[("reason", error)]
        ) from None
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise ToolchainError(
            f"the C compiler {command[0]} did not finish within {TIMEOUT_S:g} s",
            help="the kernel may be too large; use PELLUCID_DEVICE=CPU:LLVM",
        ) from None
    except BaseException:  # Ctrl-C above all
        _end(process)
        raise
    return process.returncode, output


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    process.communicate()


def _refusal(source: str, name: str, message: str) -> CompileError:
    """Turn the compiler's output into an error that shows the line that it means."""
    found = re.search(r"kernel\.c:(\d+):(?:(\d+):)? (?:fatal )?error: (.*)", message)
    if found is None:
        return CompileError(
            "the C compiler refused it", stage="compile", kernel=name, source=message.strip()
        )
    number, column = int(found[1]), int(found[2] or 1)
    lines = source.splitlines()
    text = lines[number - 1] if number <= len(lines) else ""
    excerpt = f"{number:4}: {text}\n      {' ' * (column - 1)}^"
    return CompileError(found[3], stage="compile", kernel=name, source=excerpt)
