"""Both compilers: vectors stay vectors, and every failure says what happened and what to do."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import CompileError, PellucidError, ToolchainError
from pellucid.core.target import Target, host_target
from pellucid.runtime import Buffer, Device, toolchain_c
from pellucid.runtime.disassembly import disassemble
from pellucid.runtime.toolchain_c import accepted_flags, compile_c, compiler_command, wanted_flags
from pellucid.runtime.toolchain_llvm import compile_llvm, feature_string, llvm_version

needs_cc = pytest.mark.skipif(os.system("cc --version >/dev/null 2>&1") != 0, reason="no cc")

WIDE_IR = """
define void @wide(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {
  %p = load ptr, ptr %buffers
  %x = load <16 x float>, ptr %p, align 4
  %y = fadd <16 x float> %x, splat (float 1.5)
  store <16 x float> %y, ptr %p, align 4
  ret void
}
"""


def facts(error: PellucidError) -> str:
    """The message without the line that says where."""
    return str(error).split("\n    at ")[0]


def test_wide_vectors_use_wide_registers() -> None:
    target = Target(arch="x86-64", features=frozenset(["avx512f", "avx512vl"]))
    assert "zmm" in disassemble(compile_llvm(WIDE_IR, "wide", target))
    narrow = Target(arch="x86-64", features=frozenset(["avx2"]))
    text = disassemble(compile_llvm(WIDE_IR, "wide", narrow))
    assert "ymm" in text
    assert "zmm" not in text


def test_wide_vectors_run_here() -> None:
    device = Device["CPU:LLVM"]
    buffer = Buffer("CPU", 16, dtypes.float32)
    buffer.copy_from(np.arange(16, dtype=np.float32))
    device.load(device.compile(WIDE_IR, "wide"), "wide")([buffer])
    assert buffer.as_numpy().tolist() == [i + 1.5 for i in range(16)]


def test_features_that_lose_denormals_are_left_out() -> None:
    target = Target(arch="x86-64", features=frozenset(["avx512bf16"]))
    assert "bf16" in target.llvm_features
    assert "bf16" not in feature_string(target)
    assert "-mavx512bf16" not in wanted_flags(target)


def test_llvm_compiles_for_another_processor() -> None:
    source = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}"
    binary = compile_llvm(source, "f", Target(arch="aarch64"))
    assert int.from_bytes(binary[18:20], "little") == 183


def test_a_parse_error_shows_the_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_llvm("define void @k(ptr %b) {\n  %x = fadd i32 1, 2\n  ret void\n}", "k")
    assert facts(caught.value) == (
        "compile failed for kernel k: invalid operand type for instruction\n"
        "    source\n"
        "           2:   %x = fadd i32 1, 2\n"
        "                          ^\n"
        "    help:   run `pellucid bisect` on your program, and report what it prints"
    )


def test_a_verifier_error_shows_the_instructions() -> None:
    late = "br label %a\na:\n %y = add i32 %x, 1\n %x = add i32 1, 1\n ret void"
    source = f"define void @k() {{\n {late}\n}}"
    with pytest.raises(CompileError) as caught:
        compile_llvm(source, "k")
    assert facts(caught.value).startswith(
        "compile failed for kernel k: Instruction does not dominate all uses!\n"
        "    source\n"
        "          %x = add i32 1, 1\n"
    )


def test_compilation_is_the_same_every_time(add_ir: str) -> None:
    assert compile_llvm(add_ir, "add") == compile_llvm(add_ir, "add")


MISSING_LLVM = """
import sys
sys.modules["llvmlite"] = None
from pellucid.core.errors import ToolchainError
from pellucid.runtime import Device
try:
    Device["CPU"].compile("define void @k() { ret void }", "k")
except ToolchainError as error:
    print(str(error).split("\\n    at ")[0])
"""


def test_missing_llvmlite_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING_LLVM], capture_output=True, text=True, timeout=60, check=True
    )
    first, reason, hint = done.stdout.splitlines()
    assert first == "the LLVM renderer needs llvmlite, which cannot be imported"
    assert reason.startswith("    reason  ")
    assert hint == "    help:   pip install llvmlite, or use the C compiler: PELLUCID_DEVICE=CPU:C"


def test_the_version_is_known_without_an_import() -> None:
    assert llvm_version() == importlib.metadata.version("llvmlite")


# --- C --------------------------------------------------------------------------------------


def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(ToolchainError) as caught:
        Device["CPU:C"].compile("void k(void) {}", "k")
    assert facts(caught.value) == (
        "the C renderer needs a C compiler, and there is none\n"
        "    looked for  cc, gcc, clang\n"
        "    help:       apt install gcc (Debian, Ubuntu) or dnf install gcc (Fedora), "
        "or use PELLUCID_DEVICE=CPU:LLVM"
    )


def test_cc_names_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-cc -O1")
    with pytest.raises(ToolchainError, match=r"looked for  no-such-cc -O1 \(from CC\)"):
        compiler_command()
    monkeypatch.setenv("CC", str(script(tmp_path, "exit 0")) + " --flag")
    assert compiler_command() == [str(tmp_path / "cc"), "--flag"]


@needs_cc
def test_a_compile_error_shows_the_line(own_temporary_folder: Path) -> None:
    with pytest.raises(CompileError) as caught:
        compile_c("void k(void) {\n  int x = y;\n}\n", "k")
    text = facts(caught.value)
    assert text.startswith("compile failed for kernel k: ")
    assert "undeclared" in text
    assert "       2:   int x = y;\n" in text
    assert list(own_temporary_folder.iterdir()) == []


@needs_cc
def test_unknown_flags_are_left_out() -> None:
    command = tuple(compiler_command())
    assert accepted_flags(command, ("-O2", "-mno-such-feature")) == ("-O2",)
    flags = accepted_flags(command, wanted_flags(host_target()))
    assert "-ffp-contract=off" in flags


@needs_cc
def test_c_does_not_contract_products_and_sums() -> None:
    source = """#include <stdint.h>
    void k(void **buffers, const int64_t *vars, int64_t thread, void *scratch) {
      float *x = buffers[0]; x[0] = x[1] * x[2] + x[3]; }"""
    device = Device["CPU:C"]
    buffer = Buffer("CPU", 4, dtypes.float32)
    one = np.float32(1 + 2**-12)
    buffer.copy_from(np.array([0, one, one, -1], np.float32))
    device.load(device.compile(source, "k"), "k")([buffer])
    assert buffer.as_numpy()[0] == one * one - np.float32(1)


def script(folder: Path, body: str) -> Path:
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_compiler_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    compiler = script(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 60")
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(toolchain_c, "TIMEOUT_S", 0.3)
    with pytest.raises(ToolchainError) as caught:
        compile_c("void k(void) {}", "k")
    assert facts(caught.value) == (
        f"the C compiler {compiler} did not finish within 0.3 s\n"
        "    help:  the kernel may be too large; use PELLUCID_DEVICE=CPU:LLVM"
    )
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert list(own_temporary_folder.iterdir()) == []


def test_ctrl_c_ends_the_compiler_and_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    monkeypatch.setenv("CC", str(script(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 60")))

    def interrupt() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        compile_c("void k(void) {}", "k")
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert list(own_temporary_folder.iterdir()) == []


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_compiler_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = script(tmp_path, "")
    broken.write_bytes(b"\x00\x01")
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(ToolchainError, match=r"the C compiler .*/cc cannot be started"):
        compile_c("void k(void) {}", "k")


def test_disassembly_is_optional(add_ir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    text = Device["CPU"].disassemble(compile_llvm(add_ir, "add"))
    assert text == "(no disassembly: objdump is not installed; it is part of binutils)"
