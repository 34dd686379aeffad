"""Compile LLVM IR text to an object, by llvmlite.

    define void @add(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) { ... }
      ->  a relocatable object with the function `add`; several functions make several symbols

The IR that reaches this module is already tiled, unrolled and vectorised, so LLVM's own passes are
not run: they would cost more time than they win. Code is generated for the features that the
processor has, never for its name, since a hypervisor may report any name; without a name LLVM keeps
512-bit vectors as they are written. Code is position independent, as `loader.py` needs it.

llvmlite takes 60 to 125 ms to import and is imported when the first kernel really has to be
compiled. It has one lock around every call, so compiling in threads gains nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from pellucid.core.errors import CompileError, ExecutionError, ToolchainError
from pellucid.core.target import Target, host_target

DEFAULT_CODEGEN_LEVEL: Final = 2

_TRIPLES: Final = {"x86-64": "x86_64", "aarch64": "aarch64", "riscv64": "riscv64"}


@cache
def llvm_version() -> str:
    """Return the version of llvmlite, without importing it; it belongs in every cache key.

    It stands in a file of llvmlite; asking `importlib.metadata` for it would take 12 ms.
    """
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return "missing"
    try:
        text = Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"""["'](\d+\.[^"']*)["']""", text)
    return found[1] if found else spec.origin


def compile_llvm(
    source: str,
    name: str,
    target: Target | None = None,
    codegen_level: int = DEFAULT_CODEGEN_LEVEL,
) -> bytes:
    """Compile the IR text of one or more kernels to one object.

    name: what to call the kernel (or the module) in errors.
    Errors: ToolchainError without llvmlite; CompileError, with the line, for text that is not IR.
    """
    return bytes(_emit(source, name, target, codegen_level, "emit_object"))


def assembly_of(source: str, name: str, target: Target | None = None) -> str:
    """The instructions that IR text becomes, as text: for reading code of any machine.

    Errors: as `compile_llvm`.
    """
    return str(_emit(source, name, target, DEFAULT_CODEGEN_LEVEL, "emit_assembly"))


def _emit(source: str, name: str, target: Target | None, codegen_level: int, method: str) -> Any:
    llvm = import_llvm()
    machine = _target_machine(target or host_target(), codegen_level)
    # Closed by hand, the module first: a garbage collector may take them in the wrong order, and
    # LLVM crashes when a context goes before its module.
    with contextlib.closing(llvm.create_context()) as context:
        try:
            with contextlib.closing(llvm.parse_assembly(source, context)) as module:
                module.verify()
                module.triple = machine.triple
                module.data_layout = str(machine.target_data)
                return getattr(machine, method)(module)
        except RuntimeError as error:
            raise _refusal(source, name, str(error)) from None


@cache
def import_llvm() -> Any:
    """Return llvmlite's binding module, initialised. Errors: ToolchainError when it is missing."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as error:
        raise ToolchainError(
            "the LLVM renderer needs llvmlite, which cannot be imported",
            rows=[("reason", error)],
            help="pip install llvmlite, or use the C compiler: PELLUCID_DEVICE=CPU:C",
        ) from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _target_machine(target: Target, codegen_level: int) -> Any:
    llvm = import_llvm()
    triple = llvm.get_process_triple()
    arch = _TRIPLES.get(target.arch)
    if arch is not None and arch != triple.partition("-")[0]:
        triple = f"{arch}-unknown-linux-gnu"
        llvm.initialize_all_targets()  # takes 1.5 ms more than this processor alone
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=target.cpu_name,
        features=feature_string(target),
        opt=codegen_level,
        reloc="pic",
        codemodel="small",
    )


def feature_string(target: Target) -> str:
    """Return the features of *target* as LLVM reads them, without those that lose denormals."""
    return target.code_features


def _refusal(source: str, name: str, message: str) -> CompileError:
    """Turn LLVM's message into an error that shows the line of the source that it means."""
    lines = [line for line in message.splitlines() if line.strip()]
    found = re.search(r"<string>:(\d+):(\d+): error: (.*)", message)
    if found is None:  # the verifier: a sentence, then the offending instructions
        excerpt = "\n".join(lines[1:]) or None
        return CompileError(lines[0], stage="compile", kernel=name, source=excerpt)
    number, column = int(found[1]), int(found[2])
    text = source.splitlines()[number - 1] if number <= source.count("\n") + 1 else ""
    excerpt = f"{number:4}: {text}\n      {' ' * (column - 1)}^"
    return CompileError(found[3], stage="compile", kernel=name, source=excerpt)


class LinkedObject:
    """An object linked by LLVM's in-process linker, where `loader.py` has none of its own."""

    def __init__(self, binary: bytes) -> None:
        llvm = import_llvm()
        self._found: dict[str, Any] = {}
        try:
            self._linker = llvm.create_lljit_compiler()
            builder = llvm.JITLibraryBuilder().add_object_img(binary).add_current_process()
            self._library = builder.link(self._linker, "pellucid")
        except RuntimeError as error:
            raise _link_refusal(error) from None

    def address(self, name: str) -> int:
        """Return the address of the function *name*."""
        if name not in self._found:
            try:
                self._found[name] = self._linker.lookup("pellucid", name)
            except RuntimeError as error:
                raise _link_refusal(error) from None
        return int(self._found[name][name])

    def __del__(self) -> None:
        for tracker in [*self._found.values(), getattr(self, "_library", None)]:
            if tracker is not None:
                tracker.close()  # before the linker, which LLVM destroys with all that it links


def _link_refusal(error: RuntimeError) -> ExecutionError:
    return ExecutionError("a compiled kernel cannot be linked by LLVM", rows=[("reason", error)])
