"""The small kernels by which `limits.py` measures a machine, as LLVM IR.

    fma          24 vectors, each multiplied and added to in a loop: nothing but fused multiply-adds
    matrix unit  four AMX tiles of bfloat16 products, where the CPU has them
    vpdpbusd_512 and its like   24 vectors that an instruction for narrow integers adds products to
    l1, l2, l3   sums of what fits into a cache, again and again
    read         sums of 64 MB        copy  64 MB to 64 MB        stream  the same, past the caches

Memory is gone through in one go, and in several parts side by side (`streams`): processors ask
ahead for each of them, and what is best differs between processors.

All are one loop over `%n` steps, which the caller gives as the kernel's variable:

    entry: what is loaded once    loop: PHIs, then a step    done: what is stored at last
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS, MatrixUnit

FLOAT_BYTES: Final = 4
STREAM_BYTES: Final = 64 << 20
CACHED_BYTES: Final = 4 << 20
"""What one run reads from a cache, in as many turns as that takes."""
READ_STREAMS: Final = (1, 8, 16)
COPY_STREAMS: Final = (1, 4)
"""In how many parts memory is gone through side by side: the fastest way is what counts."""
FMA_TURNS: Final = 4
"""How often a step multiplies and adds to each vector."""
COPIED: Final = 8
"""How many vectors a step copies."""
HEAD: Final = "define void @{name}(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) {{"


@dataclass(frozen=True)
class Kernel:
    """A measurement: its text, and how much one run does for each thread."""

    name: str
    text: str
    steps: int
    amount: float
    """Operations, or bytes, in all steps of one thread."""


def fma_kernel(target: Target, steps: int = 5_000) -> Kernel:
    """Independent fused multiply-adds, enough of them to hide their latency.

    A step does each of them several times, so that counting steps takes no time of theirs.
    """
    width, count = _width(target), accumulators(target)
    v = f"<{width} x float>"
    fma = f"@llvm.fma.v{width}f32"

    def times(i: int) -> str:
        names = [f"%a{i}", *(f"%a{i}.{turn}" for turn in range(1, FMA_TURNS)), f"%b{i}"]
        calls = [
            f"  {new} = call {v} {fma}({v} {old}, {v} %m, {v} %m)" for old, new in pairwise(names)
        ]
        return "\n".join(calls)

    text = _looped(
        "fma",
        entry=f"""  %base = load ptr, ptr %buffers
  %p = getelementptr {v}, ptr %base, i64 %thread
  %m = load {v}, ptr %p""",
        phis=_lines(count, lambda i: f"  %a{i} = phi {v} [%m, %entry], [%b{i}, %loop]"),
        step=_lines(count, times),
        done=_sum(v, count),
        before=f"declare {v} {fma}({v}, {v}, {v})",
    )
    return Kernel("fma", text, steps, 2.0 * steps * FMA_TURNS * count * width)


def read_kernel(
    target: Target,
    threads: int,
    name: str = "read",
    size_bytes: int = STREAM_BYTES,
    streams: int = 1,
) -> Kernel:
    """Sums of all elements, in as many accumulators as are loaded in a step.

    Each of the threads reads a part of *size_bytes*; what is less than `CACHED_BYTES`, several
    times.
    """
    width = _width(target)
    count = accumulators(target) if streams == 1 else streams
    walk = _Walk(f"<{width} x float>", count, streams, size_bytes // threads, width)
    turns = max(1, CACHED_BYTES // (walk.steps * walk.step_bytes))
    zero = "[zeroinitializer, %entry]"
    adds = _lines(count, lambda i: f"  %b{i} = fadd {walk.v} %a{i}, %x{i}")
    text = _looped(
        name,
        entry=walk.first + _target(walk.v, "p", "%thread"),
        phis=walk.phi + _lines(count, lambda i: f"  %a{i} = phi {walk.v} {zero}, [%b{i}, %loop]"),
        step=f"{walk.loads}\n{adds}\n{walk.onward}",
        done=_sum(walk.v, count),
    )
    return Kernel(name, text, walk.steps * turns, walk.steps * turns * walk.step_bytes)


def copy_kernel(target: Target, threads: int, *, past_caches: bool, streams: int = 1) -> Kernel:
    """One array copied to another, also by stores that do not read the line first."""
    width, name = _width(target), "stream" if past_caches else "copy"
    walk = _Walk(f"<{width} x float>", COPIED, streams, STREAM_BYTES // threads, width)
    hint = ", !nontemporal !0" if past_caches else ""
    alignment = width * FLOAT_BYTES
    stores = f"""{_lines(COPIED, lambda i: f"  %q{i} = getelementptr {walk.v}, ptr %q, i64 %k{i}")}
{_lines(COPIED, lambda i: f"  store {walk.v} %x{i}, ptr %q{i}, align {alignment}{hint}")}"""
    text = _looped(
        name,
        entry=walk.first + _target(walk.v, "q", "%first"),
        phis=walk.phi,
        step=f"{walk.loads}\n{stores}\n{walk.onward}",
        behind="!0 = !{i32 1}",
    )
    return Kernel(name, text, walk.steps, 2.0 * walk.steps * walk.step_bytes)


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


_DOTS: Final = {
    "vpdpbusd_512": "llvm.x86.avx512.vpdpbusd.512",
    "vpdpbusd_256": "llvm.x86.avx512.vpdpbusd.256",
    "vpdpwssd_512": "llvm.x86.avx512.vpdpwssd.512",
    "vpdpwssd_256": "llvm.x86.avx512.vpdpwssd.256",
    "pmaddwd_512": "llvm.x86.avx512.pmaddw.d.512",
    "pmaddwd_256": "llvm.x86.avx2.pmadd.wd",
}
"""What is measured of the units on vectors (core/units.py); `pmaddwd` leaves the addition to us."""


def dot_units(target: Target) -> list[MatrixUnit]:
    """For each type of operands, the unit on vectors of this machine that adds the most products.

    >>> [unit.name for unit in dot_units(Target(arch="x86-64", features=frozenset(["avx2"])))]
    ['pmaddwd_256']
    """
    known = target.units_of(_DOTS)
    best: dict[str, MatrixUnit] = {}
    for unit in MATRIX_UNITS.values():
        if unit.name in known:
            best.setdefault(unit.left.name, unit)
    return list(best.values())


def dot_kernel(unit: MatrixUnit, target: Target, steps: int = 5_000) -> Kernel:
    """Independent sums of products of narrow integers, enough of them to hide their latency."""
    count = accumulators(target)
    v, adds = f"<{unit.columns} x i32>", not unit.name.startswith("pmaddwd")
    operand = v if adds else f"<{2 * unit.columns} x i16>"
    call = f"call {v} @{_DOTS[unit.name]}("

    def step(i: int) -> str:
        if adds:
            return f"  %b{i} = {call}{v} %a{i}, {operand} %m, {operand} %m)"
        # an operand that depends on the sum, so that the product is made in each turn
        return f"""  %o{i} = bitcast {v} %a{i} to {operand}
  %d{i} = {call}{operand} %o{i}, {operand} %m)
  %b{i} = add {v} %d{i}, %z"""

    operands = f"{v}, {operand}, {operand}" if adds else f"{operand}, {operand}"
    text = _looped(
        unit.name,
        entry=f"""  %base = load ptr, ptr %buffers
  %p = getelementptr {v}, ptr %base, i64 %thread
  %z = load {v}, ptr %p
  %m = load {operand}, ptr %p""",
        phis=_lines(count, lambda i: f"  %a{i} = phi {v} [%z, %entry], [%b{i}, %loop]"),
        step=_lines(count, step),
        done=_sum(v, count, "add"),
        before=f"declare {v} @{_DOTS[unit.name]}({operands})",
    )
    return Kernel(unit.name, text, steps, 2.0 * steps * count * unit.products)


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


def accumulators(target: Target) -> int:
    """How many sums are under way at once: enough for two units that take four cycles each.

    >>> accumulators(Target(arch="x86-64", features=frozenset(["avx2", "fma"])))
    12
    """
    return 24 if target.num_vector_registers >= 32 else 12


def _width(target: Target) -> int:
    return max(target.vector_bytes, 16) // FLOAT_BYTES


def _sum(v: str, count: int, add: str = "fadd") -> str:
    """%b0 + %b1 + …, stored at %p."""
    return f"""  %s0 = {add} {v} %b0, %b1
{_lines(count - 2, lambda i: f"  %s{i + 1} = {add} {v} %s{i}, %b{i + 2}")}
  store {v} %s{count - 2}, ptr %p"""


def _target(v: str, name: str, index: str) -> str:
    """A place in the second buffer."""
    return f"""  %out = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %out
  %{name} = getelementptr {v}, ptr %target, i64 {index}"""


class _Walk:
    """A walk through a thread's part of the first buffer, some vectors in each step, in streams.

    %at    which vector of each stream comes next; at the end of the streams, the first one again
    %k0    the place of a vector of this step, in vectors from the beginning of the thread's part
    %x0    the vector that is there
    """

    def __init__(self, v: str, count: int, streams: int, size_bytes: int, width: int) -> None:
        self.v, self.count = v, count
        self.step_bytes = count * width * FLOAT_BYTES
        self.steps = max(1, size_bytes // self.step_bytes)
        self.together = count // streams
        """How many vectors of one stream follow each other in a step."""
        self.length = self.steps * self.together

    @property
    def first(self) -> str:
        """%r: where the thread's part begins; %first: how far that is."""
        return f"""  %from = load ptr, ptr %buffers
  %first = mul i64 %thread, {self.steps * self.count}
  %r = getelementptr {self.v}, ptr %from, i64 %first
"""

    phi = "  %at = phi i64 [0, %entry], [%later, %loop]\n"

    @property
    def loads(self) -> str:
        count = self.count
        return f"""{_lines(count, lambda i: f"  %k{i} = add i64 %at, {self._place(i)}")}
{_lines(count, lambda i: f"  %r{i} = getelementptr {self.v}, ptr %r, i64 %k{i}")}
{_lines(count, lambda i: f"  %x{i} = load {self.v}, ptr %r{i}")}"""

    def _place(self, i: int) -> int:
        """Where vector *i* of the first step is: the streams take turns."""
        together, stream = divmod(i, self.count // self.together)
        return stream * self.length + together

    @property
    def onward(self) -> str:
        return f"""  %ahead = add i64 %at, {self.together}
  %ends = icmp eq i64 %ahead, {self.length}
  %later = select i1 %ends, i64 0, i64 %ahead"""
