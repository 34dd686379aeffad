"""The small kernels by which `limits.py` measures a machine, as LLVM IR.

    fma          24 vectors, each multiplied and added to in a loop: nothing but fused multiply-adds
    matrix unit  four AMX tiles of bfloat16 products, where the CPU has them
    l1, l2, l3   sums of what fits into a cache, again and again
    read         sums of 64 MB        copy  64 MB to 64 MB        stream  the same, past the caches

All are one loop over `%n` steps, which the caller gives as the kernel's variable:

    entry: what is loaded once    loop: PHIs, then a step    done: what is stored at last
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pellucid.core.records import dataclass
from pellucid.core.target import Target

FLOAT_BYTES: Final = 4
STREAM_BYTES: Final = 64 << 20
CACHED_BYTES: Final = 4 << 20
"""What one run reads from a cache, in as many turns as that takes."""
UNROLL: Final = 8
HEAD: Final = "define void @{name}(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {{"


@dataclass(frozen=True)
class Kernel:
    """A measurement: its text, and how much one run does for each thread."""

    name: str
    text: str
    steps: int
    amount: float
    """Operations, or bytes, in all steps of one thread."""


def fma_kernel(target: Target, steps: int = 20_000) -> Kernel:
    """Independent fused multiply-adds, enough of them to hide their latency."""
    width = _width(target)
    count = 24 if target.num_vector_registers >= 32 else 12
    v = f"<{width} x float>"
    fma = f"@llvm.fma.v{width}f32"
    text = _looped(
        "fma",
        entry=f"""  %base = load ptr, ptr %buffers
  %p = getelementptr {v}, ptr %base, i64 %thread
  %m = load {v}, ptr %p""",
        phis=_lines(count, lambda i: f"  %a{i} = phi {v} [%m, %entry], [%b{i}, %loop]"),
        step=_lines(count, lambda i: f"  %b{i} = call {v} {fma}({v} %a{i}, {v} %m, {v} %m)"),
        done=_sum(v, count),
        before=f"declare {v} {fma}({v}, {v}, {v})",
    )
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
    zero = "[zeroinitializer, %entry]"
    text = _looped(
        name,
        entry=_places(v, steps) + _target(v, "p", "%thread"),
        phis=_lines(UNROLL, lambda i: f"  %a{i} = phi {v} {zero}, [%b{i}, %loop]"),
        step=_loads(v, steps) + _lines(UNROLL, lambda i: f"  %b{i} = fadd {v} %a{i}, %x{i}"),
        done=_sum(v, UNROLL),
    )
    return Kernel(name, text, steps * turns, steps * turns * step_bytes)


def copy_kernel(target: Target, threads: int, *, past_caches: bool) -> Kernel:
    """One array copied to another, also by stores that do not read the line first."""
    width = _width(target)
    v, name = f"<{width} x float>", "stream" if past_caches else "copy"
    steps = STREAM_BYTES // threads // (UNROLL * width * FLOAT_BYTES)
    hint = ", !nontemporal !0" if past_caches else ""
    alignment = width * FLOAT_BYTES
    stores = f"""  %place = mul i64 %i, {UNROLL}
{_lines(UNROLL, lambda i: f"  %j{i} = add i64 %place, {i}")}
{_lines(UNROLL, lambda i: f"  %q{i} = getelementptr {v}, ptr %q, i64 %j{i}")}
{_lines(UNROLL, lambda i: f"  store {v} %x{i}, ptr %q{i}, align {alignment}{hint}")}"""
    text = _looped(
        name,
        entry=_places(v, steps) + _target(v, "q", "%first"),
        step=_loads(v, steps) + stores,
        behind="!0 = !{i32 1}",
    )
    return Kernel(name, text, steps, 2.0 * steps * UNROLL * width * FLOAT_BYTES)


TILE_CONFIG = bytes([1, 0] + [0] * 14) + b"\x40\x00" * 8 + bytes(16) + bytes([16] * 8) + bytes(8)
"""Palette 1; eight tiles of 16 rows of 64 bytes (Intel SDM, LDTILECFG)."""


def amx_kernel(steps: int = 5_000) -> Kernel:
    """Products of bfloat16 tiles that stay in registers: 4 accumulators, 2 x 2 operands."""
    tiles = [(0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)]
    zero = _lines(8, lambda i: f"  call void @llvm.x86.tilezero(i8 {i})")
    products = [f"  call void @llvm.x86.tdpbf16ps(i8 {c}, i8 {a}, i8 {b})" for c, a, b in tiles]
    text = _looped(
        "amx",
        entry=f"""  %config = load ptr, ptr %buffers
  call void @llvm.x86.ldtilecfg(ptr %config)
{zero}""",
        step="\n".join(products),
        done="  call void @llvm.x86.tilerelease()",
        before="""declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)""",
    )
    return Kernel("amx", text, steps, 2.0 * steps * len(tiles) * 16 * 16 * 32)


def empty_kernel() -> Kernel:
    """Nothing: what a call costs."""
    return Kernel("nothing", f"{HEAD.format(name='nothing')}\nret void\n}}", 1, 1.0)


# ---- text -------------------------------------------------------------------------------------


def _looped(
    name: str,
    *,
    entry: str,
    step: str,
    phis: str = "",
    done: str = "",
    before: str = "",
    behind: str = "",
) -> str:
    """A function that is one loop over %i below %n, with what stands around it."""
    return f"""{before}
{HEAD.format(name=name)}
entry:
  %n = load i64, ptr %vars
{entry}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{phis}
{step}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{done}
  ret void
}}
{behind}"""


def _lines(count: int, make: Callable[[int], str]) -> str:
    return "\n".join(make(i) for i in range(count))


def _width(target: Target) -> int:
    return max(target.vector_bytes, 16) // FLOAT_BYTES


def _sum(v: str, count: int) -> str:
    """%b0 + %b1 + …, stored at %p."""
    return f"""  %s0 = fadd {v} %b0, %b1
{_lines(count - 2, lambda i: f"  %s{i + 1} = fadd {v} %s{i}, %b{i + 2}")}
  store {v} %s{count - 2}, ptr %p"""


def _places(v: str, steps: int) -> str:
    """%r: where the thread's part of the first buffer begins; %first: how far that is."""
    return f"""  %from = load ptr, ptr %buffers
  %first = mul i64 %thread, {steps * UNROLL}
  %r = getelementptr {v}, ptr %from, i64 %first
"""


def _target(v: str, name: str, index: str) -> str:
    """A place in the second buffer."""
    return f"""  %out = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %out
  %{name} = getelementptr {v}, ptr %target, i64 {index}"""


def _loads(v: str, steps: int) -> str:
    """%x0, %x1, …: the next vectors, from the beginning again after so many steps."""
    return f"""  %turn = urem i64 %i, {steps}
  %at = mul i64 %turn, {UNROLL}
{_lines(UNROLL, lambda i: f"  %k{i} = add i64 %at, {i}")}
{_lines(UNROLL, lambda i: f"  %r{i} = getelementptr {v}, ptr %r, i64 %k{i}")}
{_lines(UNROLL, lambda i: f"  %x{i} = load {v}, ptr %r{i}")}
"""
