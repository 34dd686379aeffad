"""The registry of devices: names, errors, what belongs to which."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pellucid.core import observe
from pellucid.core.errors import CompileError, DeviceError
from pellucid.core.target import Target
from pellucid.runtime import DEVICE_NAMES, Device, canonical_device, share_memory
from pellucid.runtime import device as device_module


def test_names_have_one_spelling() -> None:
    assert [canonical_device(name.lower()) for name in DEVICE_NAMES] == list(DEVICE_NAMES)
    assert Device[" cpu:c "] is Device["CPU:C"]
    assert list(Device) == ["CPU", "CPU:LLVM", "CPU:C", "NULL"]


def test_renderers() -> None:
    renderers = {name: Device[name].renderer_name for name in DEVICE_NAMES}
    assert renderers == {"CPU": "llvm", "CPU:LLVM": "llvm", "CPU:C": "c", "NULL": "llvm"}


def test_cpu_devices_share_memory() -> None:
    assert Device["CPU"].allocator is Device["CPU:C"].allocator
    assert share_memory("cpu", "CPU:C")
    assert not share_memory("CPU", "NULL")


@pytest.mark.parametrize(
    ("name", "help"),
    [("CUDA", "use CPU, which is always there"), ("CPU:LVM", "did you mean CPU:LLVM?")],
)
def test_an_unknown_device_lists_the_known(name: str, help: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Device[name]
    text = str(caught.value)
    assert text[: text.index("\n    at ")] == (
        f"there is no device {name!r}\n"
        "    expected  one of CPU, CPU:LLVM, CPU:C, NULL\n"
        f"    help:     {help}"
    )


def test_nothing_is_not_a_program(cpu: str) -> None:
    with pytest.raises(CompileError, match="compile failed for kernel k: there is no source"):
        Device[cpu].compile(" \n", "k")


def test_observers_hear_of_compilation(cpu: str, add_source: str) -> None:
    heard: list[tuple[str, bool]] = []

    class Listener(observe.Observer):
        def on_compile(self, kernel: str, seconds: float, size_bytes: int, cached: bool) -> None:
            assert seconds > 0
            assert size_bytes > 100
            heard.append((kernel, cached))

    with observe.observed_by(Listener()):
        Device[cpu].compile(add_source, "add")
        Device[cpu].compile(add_source, "add")
    assert heard == [("add", False), ("add", True)]


@pytest.mark.parametrize(
    ("asked", "missing"), [("x86-64:avx512f,amx-fp16", "amx-fp16"), ("riscv64:v", "riscv64")]
)
def test_code_for_another_machine_is_not_run(
    asked: str, missing: str, monkeypatch: pytest.MonkeyPatch, cpu: str
) -> None:
    machine = Target(arch="x86-64", features=frozenset(["avx512f", "amx-tile"]))
    monkeypatch.setattr(device_module, "machine_target", lambda: machine)
    monkeypatch.setenv("PELLUCID_TARGET", asked)
    with pytest.raises(DeviceError) as caught:
        Device[cpu].load(b"", "k")
    text = str(caught.value)
    assert text[: text.index("\n    at ")] == (
        "kernels are compiled for another machine and cannot run here\n"
        f"    missing  {missing}\n"
        "    help:    unset PELLUCID_TARGET, or choose PELLUCID_DEVICE=NULL to compile only"
    )
    assert Device["NULL"].load(b"", "k").name == "k"


def test_importing_compiles_nothing() -> None:
    script = "import sys, pellucid.runtime; assert 'llvmlite' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
