"""What the machine can do at most: measured, by small kernels that do nothing else.

    fma          24 vectors, each multiplied and added to in a loop: nothing but fused multiply-adds
    matrix unit  four AMX tiles of bfloat16 products, where the CPU has them
    l1, l2, l3   sums of what fits into a cache, again and again
    read         sums of 64 MB        copy  64 MB to 64 MB        stream  the same, past the caches

The kernels are LLVM IR, compiled and run by `pellucid.runtime` like every kernel of Pellucid. A
work is compared with these limits: flops with `fma`, bytes with the best of the three ways through
memory. More than 100 % of the latter means that data came from a cache.

`machine_limits` measures once for a number of threads, and keeps the result on disk under the
identity of the machine, for `pellucid explain`; the bench measures anew in each run.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.core.errors import PellucidError
from pellucid.core.target import Target, host_target, request_amx
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device
from pellucid.runtime.diskcache import content_key, current_cache
from pellucid.runtime.program import Call

FLOAT_BYTES: Final = 4
STREAM_BYTES: Final = 64 << 20
CACHED_BYTES: Final = 4 << 20
"""What one run reads from a cache, in as many turns as that takes."""
UNROLL: Final = 8
LEAST_RUNS: Final = 4
SECONDS: Final = 0.4
"""How long `machine_limits` measures."""
HEAD: Final = "define void @{name}(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {{"


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


def read_kernel(
    target: Target, threads: int, name: str = "read", size_bytes: int = STREAM_BYTES
) -> Kernel:
    """Sums of all elements, in as many accumulators as are loaded in a step.

    Each of the threads reads a part of *size_bytes*; what is less than `CACHED_BYTES`, several
    times.
    """
    width = _width(target)
    v = f"<{width} x float>"
    step_bytes = UNROLL * width * FLOAT_BYTES
    steps = max(1, size_bytes // threads // step_bytes)
    turns = max(1, CACHED_BYTES // (steps * step_bytes))
    text = f"""
{HEAD.format(name=name)}
entry:
{_stream_start(v, steps)}
  %out = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %out
  %p = getelementptr {v}, ptr %target, i64 %thread
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{_lines(UNROLL, lambda i: f"  %a{i} = phi {v} [zeroinitializer, %entry], [%b{i}, %loop]")}
{_stream_loads(v, steps)}
{_lines(UNROLL, lambda i: f"  %b{i} = fadd {v} %a{i}, %x{i}")}
{_stream_end()}
  %s0 = fadd {v} %b0, %b1
{_lines(UNROLL - 2, lambda i: f"  %s{i + 1} = fadd {v} %s{i}, %b{i + 2}")}
  store {v} %s{UNROLL - 2}, ptr %p
  ret void
}}"""
    return Kernel(name, text, steps * turns, steps * turns * step_bytes)


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
{_stream_start(v, steps)}
  %out = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %out
  %q = getelementptr {v}, ptr %target, i64 %first
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{_stream_loads(v, steps)}
  %place = mul i64 %i, {UNROLL}
{_lines(UNROLL, lambda i: f"  %j{i} = add i64 %place, {i}")}
{_lines(UNROLL, lambda i: f"  %q{i} = getelementptr {v}, ptr %q, i64 %j{i}")}
{_lines(UNROLL, lambda i: f"  store {v} %x{i}, ptr %q{i}, align {alignment}{hint}")}
{_stream_end()}
  ret void
}}
!0 = !{{i32 1}}"""
    return Kernel(name, text, steps, 2.0 * steps * UNROLL * width * FLOAT_BYTES)


def _stream_start(v: str, steps: int) -> str:
    return f"""  %n = load i64, ptr %vars
  %from = load ptr, ptr %buffers
  %first = mul i64 %thread, {steps * UNROLL}
  %r = getelementptr {v}, ptr %from, i64 %first"""


def _stream_loads(v: str, steps: int) -> str:
    return f"""  %turn = urem i64 %i, {steps}
  %at = mul i64 %turn, {UNROLL}
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


def _bound(kernel: Kernel, buffers: Sequence[Buffer], threads: int) -> Call:
    device = Device["CPU:LLVM"]
    program = device.load(device.compile(kernel.text, kernel.name), kernel.name)
    return program.bind(buffers, num_threads=threads)


def _best_rate(kernel: Kernel, buffers: Sequence[Buffer], threads: int, seconds: float) -> float:
    """Run a kernel for about *seconds*; give its best amount in a second, over all threads."""
    call = _bound(kernel, buffers, threads)
    clock = clock_of(threads)
    best, runs, end = 0.0, 0, time.perf_counter() + seconds
    while runs < LEAST_RUNS or time.perf_counter() < end:
        start = clock()
        call.run([kernel.steps])
        best = max(best, threads * kernel.amount / (clock() - start))
        runs += 1
    return best


def clock_of(threads: int) -> Callable[[], float]:
    """One thread is timed by its own clock, which stands while others use the machine."""
    return time.thread_time if threads == 1 else time.perf_counter


def _filled(count: int, value: float) -> Buffer:
    made = Buffer("CPU", count, dtypes.float32)
    made.as_numpy()[:] = value
    return made


@dataclass(frozen=True)
class Limits:
    """What some threads can do at most in a second, and how long it takes to call a kernel.

    rates: flops under "fma" and "amx", bytes under the names of ways through memory.
    """

    threads: int
    rates: Mapping[str, float]
    call_seconds: float

    @property
    def memory(self) -> float:
        """Bytes in a second by the best way through memory."""
        return max(self.rates[name] for name in ("read", "copy", "stream"))


def machine_limits(threads: int) -> Limits | None:
    """The limits of this machine, measured once; None where they cannot be measured."""
    return _known_limits(threads, machine_identity(), current_cache().folder)


@cache
def _known_limits(threads: int, identity: str, folder: str) -> Limits | None:
    key = content_key("limits", Path(__file__).read_text(encoding="utf-8"), identity, threads)
    kept = current_cache().get(key)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if kept is not None:
            found = json.loads(kept)
            return Limits(threads, found["rates"], found["call_seconds"])
    try:
        limits = Limits(threads, measured_limits(threads, SECONDS), call_seconds(threads))
    except (PellucidError, MemoryError):
        return None
    data = {"rates": dict(limits.rates), "call_seconds": limits.call_seconds}
    current_cache().put(key, json.dumps(data).encode())
    return limits


def machine_identity() -> str:
    """A text that differs between machines that differ in speed, as far as they say so."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line for line in lines if line.startswith("model name")), "")
    return f"{host_target().key} {model.partition(':')[2].strip()}"


def measured_limits(threads: int, seconds: float) -> dict[str, float]:
    """Measure flops and bytes in a second with *threads* threads, in about *seconds*.

    "amx" is there only where the CPU has tiles and the system lets us use them, "l3" only where
    there is such a cache.
    """
    target, share = host_target(), seconds / 8
    found = {"fma": _best_rate(fma_kernel(target), [_filled(1024, 0.5)], threads, share)}
    streams = [_filled(STREAM_BYTES // FLOAT_BYTES, 1.0) for _ in range(2)]
    sizes = _sizes_in_caches(target, threads)
    kernels = [read_kernel(target, threads, name, size) for name, size in sizes.items()]
    kernels.append(read_kernel(target, threads))
    kernels += [copy_kernel(target, threads, past_caches=flag) for flag in (False, True)]
    for kernel in kernels:
        found[kernel.name] = _best_rate(kernel, streams, threads, share)
    if "amx-bf16" in target.features and request_amx():
        with contextlib.suppress(PellucidError):  # an LLVM that knows no tiles: it stays unknown
            found["amx"] = _best_rate(amx_kernel(), [_tile_config()], threads, share)
    return found


def _sizes_in_caches(target: Target, threads: int) -> dict[str, int]:
    """How much to read from each cache: half of what is a core's, a quarter of what is shared."""
    sizes = {"l1": threads * target.l1d_bytes // 2, "l2": threads * target.l2_bytes // 2}
    if target.l3_bytes:
        sizes["l3"] = min(max(target.l3_bytes // 4, 2 * sizes["l2"]), STREAM_BYTES)
    return sizes


def call_seconds(threads: int, runs: int = 200) -> float:
    """Measure how long a kernel takes that does nothing."""
    kernel = Kernel("nothing", f"{HEAD.format(name='nothing')}\nret void\n}}", 1, 1.0)
    call = _bound(kernel, [_filled(16, 0.0)], threads)
    clock, times = clock_of(threads), []
    for _ in range(runs):
        start = clock()
        call.run([1])
        times.append(clock() - start)
    return min(times)


def _tile_config() -> Buffer:
    made = Buffer("CPU", len(TILE_CONFIG), dtypes.uint8)
    made.copy_from(np.frombuffer(TILE_CONFIG, np.uint8))
    return made
