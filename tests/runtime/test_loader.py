"""The loader runs what compilers make, and refuses everything else without touching it."""

from __future__ import annotations

import ctypes
import gc
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ExecutionError
from pellucid.runtime import Buffer, Device
from pellucid.runtime import loader as loader_module
from pellucid.runtime.elf import DamagedObjectError, read_object
from pellucid.runtime.loader import load_object
from pellucid.runtime.toolchain_llvm import LinkedObject, compile_llvm

own_loader = pytest.mark.skipif(
    not loader_module._has_own_loader(), reason="LLVM links on this machine"
)

MATH_C = """
#include <stdint.h>
float fmaf(float, float, float); float floorf(float); double exp(double);
void *memcpy(void *, const void *, unsigned long);
static double halves[4] = {0.5, 1.5, 2.5, 3.5};
const float thirds[3] = {1, 2, 3};
static int64_t calls;
int64_t total;
__attribute__((noinline)) float twice(float x) { return x * 2; }
static float (*volatile chosen)(float) = twice;
void math(void **buffers, const int64_t *vars, int64_t thread, void *scratch) {
  double *out = buffers[0];
  const float *in = buffers[1];
  calls++; total += vars[0];
  for (int64_t i = 0; i < vars[0]; i++) {
    switch (i) {
      case 0: out[i] = fmaf(in[i], thirds[i], floorf(in[i])); break;
      case 1: out[i] = chosen(in[i]) + 0.1; break;
      case 2: out[i] = exp(halves[i & 3]); break;
      case 3: out[i] = calls * 1000 + total; break;
      case 4: memcpy(out + i, halves + (i & 3), sizeof(double)); break;
      default: out[i] = -1.25e300;
    }
  }
}
"""

MATH_IR = """
@halves = internal constant [4 x double] [double 0.5, double 1.5, double 2.5, double 3.5]
@total = global i64 0
@chosen = internal global ptr @twice
declare float @fmaf(float, float, float)
declare float @floorf(float)
declare double @exp(double)
define float @twice(float %x) noinline {
  %y = fmul float %x, 2.0
  ret float %y
}
define void @math(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {
  %out = load ptr, ptr %buffers
  %in_slot = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %in_slot
  %n = load i64, ptr %vars
  %x0 = load float, ptr %in
  %floor = call float @floorf(float %x0)
  %fma = call float @fmaf(float %x0, float 1.0, float %floor)
  %y0 = fpext float %fma to double
  store double %y0, ptr %out
  %in1 = getelementptr float, ptr %in, i64 1
  %x1 = load float, ptr %in1
  %f = load volatile ptr, ptr @chosen
  %t = call float %f(float %x1)
  %td = fpext float %t to double
  %y1 = fadd double %td, 0.1
  %out1 = getelementptr double, ptr %out, i64 1
  store double %y1, ptr %out1
  %index = sub i64 %n, 4
  %half_at = getelementptr [4 x double], ptr @halves, i64 0, i64 %index
  %half = load double, ptr %half_at
  %y2 = call double @exp(double %half)
  %out2 = getelementptr double, ptr %out, i64 2
  store double %y2, ptr %out2
  %old = load i64, ptr @total
  %new = add i64 %old, %n
  store i64 %new, ptr @total
  %sum = add i64 %new, 1000
  %y3 = sitofp i64 %sum to double
  %out3 = getelementptr double, ptr %out, i64 3
  store double %y3, ptr %out3
  %first = load double, ptr @halves
  %out4 = getelementptr double, ptr %out, i64 4
  store double %first, ptr %out4
  %out5 = getelementptr double, ptr %out, i64 5
  store double -1.25e300, ptr %out5
  ret void
}
"""


def test_constants_tables_variables_and_libm(cpu: str) -> None:
    device = Device[cpu]
    binary = device.compile(MATH_IR if cpu == "CPU:LLVM" else MATH_C, "math")
    out, given = Buffer("CPU", 6, dtypes.float64), Buffer("CPU", 6, dtypes.float32)
    given.copy_from(np.array([2.75, 3, 0, 0, 0, 0], np.float32))
    device.load(binary, "math")([out, given], [6])
    expected = [4.75, 6.1, np.exp(2.5), 1006, 0.5, -1.25e300]
    np.testing.assert_allclose(out.as_numpy(), expected, rtol=1e-15)


def test_equal_objects_are_loaded_once_and_unloaded_when_forgotten(add_ir: str) -> None:
    binary = compile_llvm(add_ir, "add")
    loaded = load_object(binary)
    assert load_object(bytes(bytearray(binary))) is loaded
    del loaded
    gc.collect()
    assert binary not in loader_module._loaded


@own_loader
def test_no_page_is_writable_and_executable() -> None:
    source = MATH_IR.replace("@math", "@of_this_test")  # nobody else has loaded it
    binary = compile_llvm(source, "of_this_test")
    before = mapped_pages()  # only now: llvmlite maps pages of its own
    loaded = load_object(binary)
    after = mapped_pages()
    fresh = after - before
    address = loaded.address("of_this_test")
    assert fresh
    assert [mode for low, high, mode in after if low <= address < high] == ["r-xp"]
    assert not [mode for _, _, mode in fresh if "w" in mode and "x" in mode]


def mapped_pages() -> set[tuple[int, int, str]]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = [re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line) for line in lines]
    return {(int(line[1], 16), int(line[2], 16), line[3]) for line in found if line}


@own_loader
def test_a_missing_function_is_named() -> None:
    source = (
        "declare void @no_such_function()\ndefine void @k() {\n call void @no_such_function()\n"
    )
    binary = compile_llvm(source + " ret void\n}", "k")
    with pytest.raises(ExecutionError) as caught:
        load_object(binary)
    assert str(caught.value).startswith(
        "a compiled kernel calls 'no_such_function', which no library of this system has\n"
        "    searched  libm, libc, libgcc_s, this process\n"
        "    help:     the renderer should spell this operation with others"
    )


def test_llvm_links_where_there_is_no_loader_of_our_own() -> None:
    linked = LinkedObject(compile_llvm(MATH_IR, "math"))
    twice = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(linked.address("twice"))
    assert twice(1.5) == 3.0
    with pytest.raises(ExecutionError, match="cannot be linked by LLVM"):
        linked.address("thrice")


# --- damage ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects() -> list[bytes]:
    """Objects with every kind of section and relocation that we know."""
    made = [compile_llvm(MATH_IR, "math")]
    try:
        from pellucid.runtime.toolchain_c import compile_c

        made.append(compile_c(MATH_C, "math"))
    except Exception:  # noqa: BLE001 - no compiler: one object less
        pass
    return made


ODD_NUMBERS = [0, 1, 4096, 1 << 31, 1 << 63, (1 << 63) - 1, (1 << 64) - 1]


def refused_or_loaded(binary: bytes) -> bool:
    """Load *binary* without running it; True when it was refused by an error of ours."""
    try:
        load_object(binary)
    except ExecutionError:
        return True
    return False


@own_loader
def test_objects_cut_short_are_refused(objects: list[bytes]) -> None:
    for binary in objects:
        for length in range(0, len(binary), 7):
            assert refused_or_loaded(binary[:length])


@own_loader
@pytest.mark.parametrize("seed", range(20))
def test_damaged_objects_never_crash_the_loader(objects: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    for binary in objects:
        for _ in range(60):
            damaged = bytearray(binary)
            for _ in range(chance.choice([1, 1, 1, 4, 16])):
                damaged[chance.randrange(len(damaged))] = chance.choice([0, 0xFF, 0x7F, 1, 0x80])
            refused_or_loaded(bytes(damaged))


@own_loader
@pytest.mark.parametrize("seed", range(20))
def test_damaged_tables_never_crash_the_loader(objects: list[bytes], seed: int) -> None:
    """Aim at the numbers that a loader follows: headers, symbols, relocations."""
    chance = random.Random(seed)
    for binary in objects:
        parsed = read_object(binary)
        table_offset = struct.unpack_from("<Q", binary, 40)[0]
        places = [*range(64), *range(table_offset, len(binary))]
        for section in parsed.sections:
            if section.kind in (2, 4):  # symbols, relocations
                places += range(section.offset, section.offset + section.size)
        for _ in range(60):
            damaged = bytearray(binary)
            for _ in range(chance.choice([1, 1, 2, 4])):
                place = chance.choice(places)
                if chance.random() < 0.3 and place + 8 <= len(damaged):
                    struct.pack_into("<Q", damaged, place, chance.choice(ODD_NUMBERS))
                else:
                    damaged[place] = chance.randrange(256)
            refused_or_loaded(bytes(damaged))


def with_number(offset: int, code: str, value: int) -> Callable[[bytes], bytes]:
    def change(binary: bytes) -> bytes:
        changed = bytearray(binary)
        struct.pack_into(code, changed, offset, value)
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b"", "the file has 0 bytes, an ELF header needs 64"),
        (lambda b: b"\x7fELG" + b[4:], r"it starts with b'\x7fELG', an ELF file with b'\x7fELF'"),
        (with_number(4, "B", 1), "only 64-bit little-endian objects can be loaded"),
        (with_number(16, "<H", 3), "the ELF type is 3, a relocatable object has 1"),
        (with_number(58, "<H", 40), "section headers of 40 bytes, expected 64"),
        (with_number(60, "<H", 0), "0 sections with names in section 1"),
        (with_number(40, "<Q", 1 << 63), "the section table covers bytes 9223372036854775808 to"),
    ],
)
def test_reasons_are_given(objects: list[bytes], change: object, reason: str) -> None:
    assert callable(change)
    with pytest.raises(DamagedObjectError) as caught:
        read_object(change(objects[0]))
    assert reason in str(caught.value)


@own_loader
def test_an_object_for_another_machine_is_refused(objects: list[bytes]) -> None:
    with pytest.raises(ExecutionError) as caught:
        load_object(with_number(18, "<H", 183)(objects[0]))
    assert str(caught.value).startswith(
        "a compiled kernel cannot be loaded\n"
        "    reason  it is for ELF machine 183, this is 62\n"
        "    help:   clear the compile cache (PELLUCID_CACHE_DIR) and run again\n"
    )


@own_loader
def test_a_header_without_a_section_is_not_loaded(objects: list[bytes]) -> None:
    table_offset = struct.unpack_from("<Q", objects[0], 40)[0]
    changed = bytearray(objects[0])
    struct.pack_into("<IIQQQQ", changed, table_offset, 0, 0, 2, 0, 1 << 20, 100)
    load_object(bytes(changed))


@own_loader
def test_an_unknown_relocation_is_refused(objects: list[bytes]) -> None:
    binary = objects[0]
    (table,) = [s for s in read_object(binary).sections if s.name == ".rela.text"]
    with pytest.raises(ExecutionError, match=r"relocation type 77 of symbol .* is not known"):
        load_object(with_number(table.offset + 8, "<I", 77)(binary))
