"""What the machine can do at most: measured, by small kernels that do nothing else.

    fma          24 vectors, each multiplied and added to in a loop: nothing but fused multiply-adds
    matrix unit  four AMX tiles of bfloat16 products, where the CPU has them
    read         sums of 64 MB        copy  64 MB to 64 MB        stream  the same, past the caches

The kernels are LLVM IR, compiled and run by `pellucid.runtime` like every kernel of Pellucid. A
work is compared with these limits: flops with `fma`, bytes with the best of the three ways through
memory. More than 100 % of the latter means that data came from a cache.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.core.errors import PellucidError
from pellucid.core.target import Target, host_target, request_amx
from pellucid.runtime import Buffer, Device

FLOAT_BYTES = 4
STREAM_BYTES = 64 << 20
UNROLL = 8
HEAD = "define void @{name}(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {{"


@dataclass(frozen=True)
class Kernel:
    """A measurement: its text, and how much one run does for each thread."""

    name: str
    text: str
    steps: int
    amount: float
    """Operations, or bytes, in all steps of one thread."""


def _lines(count: int, make: Callable[[int], str]) -> str:
    return "\n".join(make(i) for i in range(count))


def _width(target: Target) -> int:
    return max(target.vector_bytes, 16) // FLOAT_BYTES


def fma_kernel(target: Target, steps: int = 20_000) -> Kernel:
    """Independent fused multiply-adds, enough of them to hide their latency."""
    width = _width(target)
    count = 24 if target.num_vector_registers >= 32 else 12
    v = f"<{width} x float>"
    fma = f"@llvm.fma.v{width}f32"
    text = f"""
declare {v} {fma}({v}, {v}, {v})
{HEAD.format(name="fma")}
entry:
  %n = load i64, ptr %vars
  %base = load ptr, ptr %buffers
  %p = getelementptr {v}, ptr %base, i64 %thread
  %m = load {v}, ptr %p
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{_lines(count, lambda i: f"  %a{i} = phi {v} [%m, %entry], [%b{i}, %loop]")}
{_lines(count, lambda i: f"  %b{i} = call {v} {fma}({v} %a{i}, {v} %m, {v} %m)")}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  %s0 = fadd {v} %b0, %b1
{_lines(count - 2, lambda i: f"  %s{i + 1} = fadd {v} %s{i}, %b{i + 2}")}
  store {v} %s{count - 2}, ptr %p
  ret void
}}"""
    return Kernel("fma", text, steps, 2.0 * steps * count * width)


def read_kernel(target: Target, threads: int) -> Kernel:
    """Sums of all elements, in as many accumulators as are loaded in a step."""
    width = _width(target)
    v = f"<{width} x float>"
    steps = STREAM_BYTES // threads // (UNROLL * width * FLOAT_BYTES)
    text = f"""
{HEAD.format(name="read")}
entry:
{_stream_start(v)}
  %out = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %out
  %p = getelementptr {v}, ptr %target, i64 %thread
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{_lines(UNROLL, lambda i: f"  %a{i} = phi {v} [zeroinitializer, %entry], [%b{i}, %loop]")}
{_stream_loads(v)}
{_lines(UNROLL, lambda i: f"  %b{i} = fadd {v} %a{i}, %x{i}")}
{_stream_end()}
  %s0 = fadd {v} %b0, %b1
{_lines(UNROLL - 2, lambda i: f"  %s{i + 1} = fadd {v} %s{i}, %b{i + 2}")}
  store {v} %s{UNROLL - 2}, ptr %p
  ret void
}}"""
    return Kernel("read", text, steps, steps * UNROLL * width * FLOAT_BYTES)


def copy_kernel(target: Target, threads: int, *, past_caches: bool) -> Kernel:
    """One array copied to another, also by stores that do not read the line first."""
    width = _width(target)
    v, name = f"<{width} x float>", "stream" if past_caches else "copy"
    steps = STREAM_BYTES // threads // (UNROLL * width * FLOAT_BYTES)
    hint = ", !nontemporal !0" if past_caches else ""
    alignment = width * FLOAT_BYTES
    text = f"""
{HEAD.format(name=name)}
entry:
{_stream_start(v)}
  %out = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %out
  %q = getelementptr {v}, ptr %target, i64 %first
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{_stream_loads(v)}
  %place = mul i64 %i, {UNROLL}
{_lines(UNROLL, lambda i: f"  %j{i} = add i64 %place, {i}")}
{_lines(UNROLL, lambda i: f"  %q{i} = getelementptr {v}, ptr %q, i64 %j{i}")}
{_lines(UNROLL, lambda i: f"  store {v} %x{i}, ptr %q{i}, align {alignment}{hint}")}
{_stream_end()}
  ret void
}}
!0 = !{{i32 1}}"""
    return Kernel(name, text, steps, 2.0 * steps * UNROLL * width * FLOAT_BYTES)


def _stream_start(v: str) -> str:
    return f"""  %n = load i64, ptr %vars
  %from = load ptr, ptr %buffers
  %vectors = mul i64 %n, {UNROLL}
  %first = mul i64 %vectors, %thread
  %r = getelementptr {v}, ptr %from, i64 %first"""


def _stream_loads(v: str) -> str:
    return f"""  %at = mul i64 %i, {UNROLL}
{_lines(UNROLL, lambda i: f"  %k{i} = add i64 %at, {i}")}
{_lines(UNROLL, lambda i: f"  %r{i} = getelementptr {v}, ptr %r, i64 %k{i}")}
{_lines(UNROLL, lambda i: f"  %x{i} = load {v}, ptr %r{i}")}"""


def _stream_end() -> str:
    return """  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:"""


TILE_CONFIG = bytes([1, 0] + [0] * 14) + b"\x40\x00" * 8 + bytes(16) + bytes([16] * 8) + bytes(8)
"""Palette 1; eight tiles of 16 rows of 64 bytes (Intel SDM, LDTILECFG)."""


def amx_kernel(steps: int = 5_000) -> Kernel:
    """Products of bfloat16 tiles that stay in registers: 4 accumulators, 2 x 2 operands."""
    pairs = [(0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)]
    zero = "\n".join(f"  call void @llvm.x86.tilezero(i8 {i})" for i in range(8))
    multiply = "\n".join(
        f"  call void @llvm.x86.tdpbf16ps(i8 {c}, i8 {a}, i8 {b})" for c, a, b in pairs
    )
    text = f"""
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
{HEAD.format(name="amx")}
entry:
  %n = load i64, ptr %vars
  %config = load ptr, ptr %buffers
  call void @llvm.x86.ldtilecfg(ptr %config)
{zero}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{multiply}
{_stream_end()}
  call void @llvm.x86.tilerelease()
  ret void
}}"""
    return Kernel("amx", text, steps, 2.0 * steps * len(pairs) * 16 * 16 * 32)


def _best_rate(kernel: Kernel, buffers: Sequence[Buffer], threads: int, seconds: float) -> float:
    """Run a kernel for about *seconds*; give its best amount in a second, over all threads."""
    device = Device["CPU:LLVM"]
    program = device.load(device.compile(kernel.text, kernel.name), kernel.name)
    call = program.bind(buffers, num_threads=threads)
    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        start = time.perf_counter()
        call.run([kernel.steps])
        best = max(best, threads * kernel.amount / (time.perf_counter() - start))
    return best


def _filled(count: int, value: float) -> Buffer:
    made = Buffer("CPU", count, dtypes.float32)
    made.as_numpy()[:] = value
    return made


def measured_limits(threads: int, seconds: float) -> dict[str, float]:
    """Measure flops and bytes in a second with *threads* threads, in about *seconds*.

    "amx" is there only where the CPU has tiles and the system lets us use them.
    """
    target, share = host_target(), seconds / 5
    found = {"fma": _best_rate(fma_kernel(target), [_filled(1024, 0.5)], threads, share)}
    streams = [_filled(STREAM_BYTES // FLOAT_BYTES, 1.0) for _ in range(2)]
    kernels = [read_kernel(target, threads)]
    kernels += [copy_kernel(target, threads, past_caches=flag) for flag in (False, True)]
    for kernel in kernels:
        found[kernel.name] = _best_rate(kernel, streams, threads, share)
    if "amx-bf16" in target.features and request_amx():
        with contextlib.suppress(PellucidError):  # an LLVM that knows no tiles: it stays unknown
            found["amx"] = _best_rate(amx_kernel(), [_tile_config()], threads, share)
    return found


def _tile_config() -> Buffer:
    made = Buffer("CPU", len(TILE_CONFIG), dtypes.uint8)
    made.copy_from(np.frombuffer(TILE_CONFIG, np.uint8))
    return made
