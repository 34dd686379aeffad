"""What bounds a kernel: arithmetic, a level of memory, or the call itself, and how near it came.

    4.2 Mflop and 16.8 MB in 1.8 ms, where 98 GFLOP/s and 9.8 GB/s are possible
        ->  memory 95 %, FMA 2 %, call 0 %    bound by memory: no cache holds 16.8 MB

A share is the least time that one thing takes, over the time of a run: operations at the peak of
fused multiply-adds, or of the unit for narrow integers that does them; what is loaded and stored at
the speed of the first cache; what is touched, each element once, at the speed of the smallest cache
that holds it all; and a call that does nothing. The largest share names the bound. Where even that
is small, latency or instructions that are not counted take the time: other integers, comparisons,
moves between lanes.

A kernel of additions alone reaches half of the peak at most. Memory may come to more than 100 %
where data stays in a cache from one run to the next.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model",
2009.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pellucid.core.dtype import parse_dtype
from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.core.units import MATRIX_UNITS
from pellucid.ir.arg import ProgramInfo
from pellucid.runtime.limits import Limits

LEAST_SHARE: Final = 0.3
"""A kernel that is further from every limit is bound by something else."""

_LEVELS: Final = {"l1": "L1", "l2": "L2", "l3": "L3", "memory": "memory"}


@dataclass(frozen=True)
class Share:
    """How near a kernel came to one limit: 1.0 is all that the machine can do."""

    name: str
    value: float
    meaning: str

    @property
    def text(self) -> str:
        """Name and percentage."""
        return f"{self.name} {self.value:.0%}".replace("%", " %")


@dataclass(frozen=True)
class Bound:
    """The shares of a kernel, the largest first."""

    shares: tuple[Share, ...]

    @property
    def is_known(self) -> bool:
        """True when some limit explains most of the time."""
        return self.shares[0].value >= LEAST_SHARE

    @property
    def short(self) -> str:
        """A cell of a table."""
        return self.shares[0].text if self.is_known else f"other ({self.shares[0].text})"

    @property
    def sentence(self) -> str:
        """What bounds the kernel, in words."""
        first = self.shares[0]
        if self.is_known:
            return first.meaning
        return f"latency, or instructions that are not counted; nearest: {first.meaning}"

    @property
    def others(self) -> str:
        """The other shares."""
        return ", ".join(share.text for share in self.shares[1:])


def bound_of(info: ProgramInfo, seconds: float, limits: Limits, target: Target) -> Bound:
    """What bounds a kernel that takes *seconds*.

    >>> rates = {"fma": 1e11, "l1": 2e11, "l2": 1e11, "l3": 4e10, "read": 1e10, "copy": 1e10}
    >>> limits = Limits(1, rates | {"stream": 1e10}, 1e-6)
    >>> matmul = ProgramInfo("matmul", flops=2 * 512**3, bytes=10**8)
    >>> bound_of(matmul, 4e-3, limits, Target(arch="generic")).short
    'FMA 67 %'
    """
    found = sorted(_shares(info, seconds, limits, target), key=lambda s: -s.value)
    return Bound(tuple(found))


def _shares(info: ProgramInfo, seconds: float, limits: Limits, target: Target) -> Iterator[Share]:
    peak = limits.rates["fma"]
    value = info.flops / peak / seconds
    meaning = f"arithmetic: {value:.0%} of the FMA peak, {peak / 1e9:.3g} GFLOP/s"
    yield Share("FMA", value, _spaced(meaning))
    for unit in info.units:
        if unit in limits.rates:
            value = info.unit_ops / limits.rates[unit] / seconds
            rate = f"{limits.rates[unit] / 1e9:.3g} GOP/s"
            meaning = f"arithmetic: {value:.0%} of the peak of {unit}, {rate}"
            yield Share(unit, value, _spaced(meaning))
    touched = touched_bytes(info)
    level = level_of(touched, info.num_threads, target)
    yield _memory("l1", max(info.bytes, touched if level == "l1" else 0), seconds, limits)
    if level != "l1":
        yield _memory(level, touched, seconds, limits)
    value = limits.call_seconds / seconds
    meaning = f"the host's call: {value:.0%} of the time is that of a kernel that does nothing"
    yield Share("call", value, _spaced(meaning))


def _memory(level: str, amount: int, seconds: float, limits: Limits) -> Share:
    rate = limits.memory if level == "memory" else limits.rates[level]
    value, name = amount / rate / seconds, _LEVELS[level]
    where = "memory" if level == "memory" else f"the {name} cache"
    done = "loaded and stored" if level == "l1" else "touched"
    meaning = (
        f"memory: {value:.0%} of the bandwidth of {where}, {rate / 1e9:.3g} GB/s "
        f"({size_text(amount)} {done})"
    )
    return Share(name, value, _spaced(meaning))


def _spaced(text: str) -> str:
    return text.replace("%", " %")


def touched_bytes(info: ProgramInfo) -> int:
    """About how much memory a kernel reads or writes, each element once.

    As if it took all of each parameter; but no more than what it loads and stores in all.
    """
    whole = sum(
        info.param_sizes[slot] * parse_dtype(info.param_dtypes[slot]).itemsize
        for slot in sorted({*info.reads, *info.writes})
    )
    return min(whole, info.bytes)


def level_of(touched: int, threads: int, target: Target) -> str:
    """The smallest level of memory that holds what a kernel touches, which threads share out.

    Of a cache that cores share, others have a half.
    """
    if touched <= threads * target.l1d_bytes:
        return "l1"
    if touched <= threads * target.l2_bytes:
        return "l2"
    return "l3" if touched <= target.l3_bytes // 2 else "memory"


def limits_text(limits: Limits) -> str:
    """What the machine can do at most, in a line.

    >>> rates = {"fma": 9.84e10, "l1": 2e11, "l2": 1e11, "read": 1e10, "copy": 9e9, "stream": 1e10}
    >>> limits_text(Limits(2, rates, 1.2e-6))
    '2 threads: FMA 98.4 GFLOP/s, L1 200 GB/s, L2 100 GB/s, memory 10 GB/s, a call 1.2 us'
    """
    rates = limits.rates
    levels = (name for name in _LEVELS if name in rates)
    ways = [f"{_LEVELS[name]} {rates[name] / 1e9:.3g} GB/s" for name in levels]
    plural = "s" if limits.threads != 1 else ""
    units = [f"{n} {rates[n] / 1e9:.3g} GOP/s" for n in MATRIX_UNITS if n in rates]
    parts = [f"FMA {rates['fma'] / 1e9:.3g} GFLOP/s", *units, *ways]
    parts.append(f"memory {limits.memory / 1e9:.3g} GB/s")
    parts.append(f"a call {limits.call_seconds * 1e6:.2g} us")
    doubt = "; too low, perhaps: other programs ran" if limits.doubtful else ""
    return f"{limits.threads} thread{plural}: {', '.join(parts)}{doubt}"


def size_text(amount: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> size_text(512), size_text(16777216)
    ('512 B', '16.8 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:.3g} {unit}"
    return f"{amount} B"
