"""Targets: facts read from texts, spelled as keys, and never more than the machine says."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from pellucid.core import target as module
from pellucid.core.errors import OptionError
from pellucid.core.options import Context
from pellucid.core.target import (
    KNOWN_FEATURES,
    Target,
    host_target,
    machine_target,
    parse_target,
    read_caches,
    read_target,
    request_amx,
    with_implied,
)

X86 = """\
processor\t: 0
model name\t: Some CPU with AVX-512 in its name
flags\t\t: fpu sse sse2 pni ssse3 sse4_1 sse4_2 avx avx2 fma avx512f avx512_bf16 amx_tile
processor\t: 1
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp asimddp bf16 i8mm sve\n"


def test_x86_flags_become_llvm_features() -> None:
    target = read_target("x86-64", X86, {}, 2)
    assert target.has("avx512bf16", "sse4.1", "sse3", "amx-tile", "fma")
    assert "fpu" not in target.features
    assert (target.vector_bytes, target.num_vector_registers, target.cores) == (64, 32, 2)


def test_the_model_name_is_not_trusted() -> None:
    text = "model name : Knights AVX-512 avx512f\nflags : sse sse2\n"
    target = read_target("x86-64", text, {}, 1)
    assert target.features == {"sse", "sse2"}
    assert (target.vector_bytes, target.num_vector_registers) == (16, 16)


def test_arm_features() -> None:
    target = read_target("aarch64", ARM, {}, 1)
    assert target.has("neon", "dotprod", "fullfp16", "bf16", "i8mm", "sve")
    assert (target.vector_bytes, target.num_vector_registers) == (16, 32)


@pytest.mark.parametrize(
    ("arch", "least"), [("x86-64", {"sse", "sse2"}), ("aarch64", {"neon", "fp-armv8"})]
)
def test_nothing_readable_gives_the_least_of_the_architecture(arch: str, least: set[str]) -> None:
    target = read_target(arch, "", {}, 1)
    assert target.features == least
    assert target.vector_bytes == 16


def test_an_unknown_architecture_has_no_features() -> None:
    target = read_target("generic", X86, {}, 3)
    assert target.features == frozenset()
    assert target.cores == 3


@pytest.mark.parametrize(
    ("features", "vector_bytes", "num_vector_registers"),
    [("sse2", 16, 16), ("avx", 32, 16), ("avx2", 32, 16), ("avx512f", 64, 32)],
)
def test_vectors_by_feature(features: str, vector_bytes: int, num_vector_registers: int) -> None:
    target = parse_target(f"x86-64:{features}")
    assert target.vector_bytes == vector_bytes
    assert target.num_vector_registers == num_vector_registers


def test_features_bring_those_that_they_imply() -> None:
    assert with_implied(["avx2"]) == {"avx2", "avx", "sse4.2", "sse4.1", "ssse3", "sse3"} | {
        "sse2",
        "sse",
    }
    assert parse_target("x86-64:avx512f").has("fma", "f16c", "avx2")


def write_cache(folder: Path, index: int, **facts: str) -> None:
    entry = folder / f"index{index}"
    entry.mkdir(parents=True)
    for name, text in facts.items():
        (entry / name).write_text(text + "\n")


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", type="Data", size="48K", coherency_line_size="128")
    write_cache(tmp_path, 1, level="1", type="Instruction", size="32K", coherency_line_size="64")
    write_cache(tmp_path, 2, level="2", type="Unified", size="2M", coherency_line_size="128")
    assert read_caches(tmp_path) == {
        "l1d_bytes": 48 * 1024,
        "l2_bytes": 2 * 1024 * 1024,
        "l3_bytes": 0,
        "line_bytes": 128,
    }


def test_unreadable_caches_are_left_out(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", type="Data", size="many")
    write_cache(tmp_path, 1, level="9", type="Data", size="1K")
    write_cache(tmp_path, 2, type="Data")
    assert read_caches(tmp_path) == {}
    assert read_caches(tmp_path / "missing") == {}


def test_this_machine() -> None:
    target = host_target()
    assert target.arch in KNOWN_FEATURES
    assert target.features <= KNOWN_FEATURES[target.arch]
    assert target.cpu_name == ""
    assert min(target.l1d_bytes, target.l2_bytes, target.line_bytes, target.cores) > 0
    assert host_target() is target


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert module.available_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert module.available_cores() == 1


def test_the_variable_names_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_TARGET", "aarch64:fullfp16:cores=8")
    target = host_target()
    assert (target.arch, target.cores, target.vector_bytes) == ("aarch64", 8, 16)
    assert target.has("neon", "fullfp16")
    monkeypatch.setenv("PELLUCID_TARGET", "")
    assert host_target().features == module._machine_target().features


def test_sizes_come_from_this_machine_when_the_architecture_is_the_same() -> None:
    like = Target(arch="x86-64", features=frozenset(["avx512f"]), cores=6, l2_bytes=4096)
    same = parse_target("x86-64:avx2", like=like)
    assert (same.cores, same.l2_bytes) == (6, 4096)
    assert not same.has("avx512f")
    assert parse_target("aarch64", like=like).cores == 1


@pytest.mark.parametrize(
    "target",
    [
        Target(arch="generic"),
        Target(arch="aarch64", cores=4),
        read_target("x86-64", X86, {"l1d_bytes": 1, "l3_bytes": 0}, 9),
    ],
)
def test_a_key_reads_back_as_its_target(target: Target) -> None:
    assert parse_target(target.key) == target


def test_a_key_reads_back_as_its_machine_when_a_renderer_has_added_facts() -> None:
    machine = Target(arch="x86-64")
    rendered = dataclasses.replace(machine, native_ops=frozenset(["ADD"]), has_threads=False)
    assert parse_target(rendered.key) == machine
    assert rendered.key == machine.key + ";ADD;;has_lanes"


def test_lanes() -> None:
    target = parse_target("x86-64:avx512f")
    assert [target.max_lanes(size) for size in (1, 2, 4, 8)] == [64, 32, 16, 8]
    assert dataclasses.replace(target, has_lanes=False).max_lanes(4) == 1
    assert Target(arch="generic").max_lanes(32) == 1


def test_keys_differ_when_any_fact_differs() -> None:
    base = Target(arch="x86-64")
    others = [
        dataclasses.replace(base, arch="aarch64"),
        dataclasses.replace(base, features=frozenset(["avx"])),
        dataclasses.replace(base, cpu_name="some"),
        dataclasses.replace(base, native_ops=frozenset(["ADD", "MUL"])),
        dataclasses.replace(base, native_dtypes=frozenset(["float32"])),
        dataclasses.replace(base, matrix_units=frozenset(["pmaddwd_128"])),
        dataclasses.replace(base, has_masked_memory=True),
        dataclasses.replace(base, has_threads=False),
        dataclasses.replace(base, has_lanes=False),
        dataclasses.replace(base, has_groups=True),
    ]
    others += [base.with_changes({name: 77}) for name in module._SIZES]
    keys = [target.key for target in [base, *others]]
    assert len(set(keys)) == len(keys)
    assert len(others) == len(dataclasses.fields(Target))


WRONG = {
    "z80": """\
PELLUCID_TARGET cannot be 'z80'
    expected  an architecture: aarch64, generic, riscv64, x86-64
    came      'z80'""",
    "riscv64:vv": """\
PELLUCID_TARGET cannot be 'riscv64:vv'
    expected  features of riscv64: c, v, zfh, zvfh
    came      'riscv64:vv'
    help:     vv is unknown; did you mean v?""",
    "generic::cores=many": """\
PELLUCID_TARGET cannot be 'generic::cores=many'
    expected  sizes as NAME=NUMBER: cores, l1d_bytes, l2_bytes, l3_bytes, line_bytes
    came      'generic::cores=many'
    help:     cores=many is not one""",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_targets_are_refused_with_a_full_text(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_target(text)
    lines = str(caught.value).splitlines()
    assert "\n".join(line for line in lines if not line.startswith("    at ")) == WRONG[text]


def test_llvm_knows_every_feature(capfd: pytest.CaptureFixture[str]) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    triples = {"x86-64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "riscv64": "riscv64"}
    for arch, triple in triples.items():
        features = ",".join(f"+{feature}" for feature in sorted(KNOWN_FEATURES[arch]))
        llvm.Target.from_triple(triple).create_target_machine(cpu="", features=features)
    assert capfd.readouterr().err == ""  # LLVM complains there about features it does not know


def test_amx_is_asked_for_only_where_it_exists() -> None:
    assert isinstance(request_amx(), bool)
    if not module._machine_target().has("amx-tile"):
        assert request_amx() is False


def test_threads_that_options_allow_are_the_cores_of_the_target() -> None:
    with Context(threads=1):
        assert host_target().cores == 1
    with Context(threads=3):
        assert host_target().cores == 3
    assert host_target().cores == machine_target().cores
