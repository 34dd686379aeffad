"""Programs for other processors than this: right where they run, written where they do not.

What a processor has is named by features, as `PELLUCID_TARGET` takes them; the names of processors
stand here for their lists only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from pellucid import Context, Ops, Tensor
from pellucid.core.target import Target, host_target, machine_target, parse_target
from pellucid.pipeline import forget_programs, render_kernel
from pellucid.render import LLVMRenderer
from pellucid.runtime.toolchain_llvm import assembly_of
from tests import references

_HASWELL: Final = "avx2,fma,f16c,bmi,bmi2,lzcnt,movbe,popcnt"
_SKYLAKE: Final = f"{_HASWELL},avx512f,avx512cd,avx512bw,avx512dq,avx512vl"
_ICE_LAKE: Final = f"{_SKYLAKE},avx512ifma,avx512vbmi,avx512vbmi2,avx512vnni,avx512bitalg,gfni"
X86: Final = {
    "x86-64": "x86-64:sse2",
    "nehalem": "x86-64:sse4.2,popcnt",
    "sandybridge": "x86-64:avx,popcnt",
    "haswell": f"x86-64:{_HASWELL}:l2_bytes=262144",
    "znver3": f"x86-64:{_HASWELL},vaes,vpclmulqdq:l2_bytes=524288,l3_bytes=33554432",
    "skylake-avx512": f"x86-64:{_SKYLAKE}:l2_bytes=1048576",
    "icelake-server": f"x86-64:{_ICE_LAKE}:l1d_bytes=49152,l2_bytes=1310720",
    "haswell, one core": f"x86-64:{_HASWELL}:cores=1",
}
OTHERS: Final = {
    "sapphirerapids": f"x86-64:{_ICE_LAKE},avx512bf16,avx512fp16,amx-bf16,amx-int8,avxvnni",
    "cortex-a72": "aarch64:neon,crc",
    "neoverse-n1": "aarch64:neon,dotprod,fullfp16,lse,crc:cores=4,l2_bytes=1048576",
    "neoverse-v1": "aarch64:neon,dotprod,fullfp16,fp16fml,bf16,i8mm,sve,lse:cores=4",
    "riscv64": "riscv64:c",
}

RANDOM: Final = np.random.default_rng(7)
FLOATS: Final = RANDOM.standard_normal((24, 40), np.float32)
ROWS: Final = FLOATS[:4, :8].copy()
WEIGHTS: Final = RANDOM.standard_normal((40, 21), np.float32)
BYTES: Final = RANDOM.integers(-128, 128, (24, 40), np.int8)
PICTURE: Final = RANDOM.standard_normal((1, 3, 9, 11), np.float32)
WINDOWS: Final = RANDOM.standard_normal((5, 3, 3, 3), np.float32)
PLACES: Final = RANDOM.integers(0, 24, 17)


PROGRAMS: Final[dict[str, tuple[Callable[[], Tensor], Callable[[], Any]]]] = {
    "product": (lambda: Tensor(FLOATS) @ Tensor(WEIGHTS), lambda: FLOATS @ WEIGHTS),
    "product of bytes": (
        lambda: Tensor(BYTES).cast("int32") @ Tensor(BYTES.T.copy()).cast("int32"),
        lambda: BYTES.astype(np.int32) @ BYTES.T.astype(np.int32),
    ),
    "softmax": (
        lambda: Tensor(FLOATS).softmax(1),
        lambda: (e := np.exp(FLOATS - FLOATS.max(1, keepdims=True))) / e.sum(1, keepdims=True),
    ),
    "convolution": (
        lambda: Tensor(PICTURE).conv2d(Tensor(WINDOWS)),
        lambda: references.convolution(PICTURE, WINDOWS),
    ),
    "halves": (
        lambda: (Tensor(FLOATS).cast("float16") * 3 + 1).cast("float32"),
        lambda: (FLOATS.astype(np.float16) * np.float16(3) + np.float16(1)).astype(np.float32),
    ),
    "rows": (lambda: Tensor(FLOATS)[Tensor(PLACES)], lambda: FLOATS[PLACES]),
    "order": (lambda: Tensor(ROWS).argsort(1), lambda: ROWS.argsort(1, kind="stable")),
    "across": (lambda: Tensor(FLOATS).T.contiguous() + 1, lambda: FLOATS.T + 1),
}


@pytest.fixture(params=X86)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A processor whose code this one can run; programs are compiled for it."""
    return _compiled_for(X86[request.param], monkeypatch)


def _compiled_for(spelling: str, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("PELLUCID_TARGET", spelling)
    forget_programs()
    return host_target()


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
def test_values_are_the_same_on_every_processor(machine: Target, device: str) -> None:
    here = machine_target()
    if machine.arch != here.arch or not machine.features <= here.features:
        pytest.skip("this processor has less")
    names = list(PROGRAMS) if device == "CPU:LLVM" else ["product", "halves"]
    with Context(device=device):
        for name in names:
            make, expected = PROGRAMS[name]
            np.testing.assert_allclose(make().numpy(), expected(), rtol=2e-5, atol=2e-5)


def texts_for(target: Target, name: str) -> list[tuple[str, str]]:
    """The IR of each kernel of a program, and the instructions that it becomes."""
    made = []
    for call in PROGRAMS[name][0]().schedule_linear().src:
        if call.src[0].op is Ops.SINK:
            kernel = render_kernel(call.src[0], LLVMRenderer(target))
            text = kernel.source.arg
            made.append((text, assembly_of(text, kernel.info.name, target)))
    return made


# What shows that an instruction of more than the processor has was taken.
TOO_MUCH: Final = {
    "avx": r"\bymm|\tv[a-z]",
    "avx2": r"\tvp[a-z0-9]+.*ymm|\tvpgather|\tvpsllv",
    "fma": r"\tvf(n?m)(add|sub)",
    "f16c": r"\tvcvt(ph2ps|ps2ph)",
    "avx512f": r"\bzmm|%k[0-7]|[xyz]mm(1[6-9]|2[0-9]|3[01])\b",
    "avx512vnni": r"\tvpdp",
    "avx512bf16": r"bf16",
    "amx-tile": r"\btmm|tileload",
}


@pytest.mark.parametrize("name", ["product", "product of bytes", "halves", "softmax"])
def test_no_processor_is_given_an_instruction_that_it_lacks(machine: Target, name: str) -> None:
    code = "\n".join(text for _, text in texts_for(machine, name))
    for feature, pattern in TOO_MUCH.items():
        if not machine.has(feature):
            found = re.search(pattern, code)
            assert found is None, f"{feature}: {found and found[0]!r}"


def test_a_processor_is_given_the_widest_that_it_has(machine: Target) -> None:
    code = "\n".join(text for _, text in texts_for(machine, "product"))
    width = next(w for w in ("zmm", "ymm", "xmm") if f"%{w}" in code)
    assert width == {16: "xmm", 32: "ymm", 64: "zmm"}[machine.vector_bytes]
    assert ("\tvfmadd" in code) == machine.has("fma")


@pytest.mark.parametrize("processor", OTHERS)
def test_programs_for_other_processors_can_be_written(
    processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM accepts them; they do not run here."""
    target = _compiled_for(OTHERS[processor], monkeypatch)
    for name in PROGRAMS:
        for ir, code in texts_for(target, name):
            assert "define void" in ir
            assert re.search(r"\tretq?$|\tret\b", code, re.MULTILINE)
            if target.arch != "x86-64":
                assert not re.search(r"%[xyz]mm", code)


def test_products_use_what_an_arm_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for processor, has_dots in [("cortex-a72", False), ("neoverse-n1", True)]:
        target = _compiled_for(OTHERS[processor], monkeypatch)
        floats, numbers = (
            "\n".join(code for _, code in texts_for(target, name))
            for name in ("product", "product of bytes")
        )
        assert re.search(r"\tfmla\tv\d+\.4s", floats)
        assert ("\tsdot\t" in numbers) == has_dots


def test_names_of_features_are_known() -> None:
    for spelling in [*X86.values(), *OTHERS.values()]:
        assert parse_target(spelling).arch == spelling.partition(":")[0]
