"""What the machine can do at most: measured, by small kernels that do nothing else.

    machine_limits(2)   ->   Limits(2, {"fma": 1.9e11, "l1": …, "read": …, "copy": …}, 1.1e-06)

The kernels stand in limits_kernels.py; they are compiled and run by `pellucid.runtime` like every
kernel of Pellucid. A work is compared with these limits: flops with `fma`, bytes with the best of
the three ways through memory. More than 100 % of the latter means that data came from a cache.

Other programs disturb. So each kernel has its turn in each of many rounds, and its best run counts.
A turn of a short kernel is many runs: it takes a processor some to come to its full speed. (Of
fused multiply-adds on long vectors, the first did 110 GF/s behind a copy of memory, others 170.)

A kernel on one thread is timed by that thread's own clock. A run on several threads is disturbed
where they got less time from the processors than passed on the clock; a figure without a run that
was not is doubtful, and so is one below what one thread does. Then all is measured again, a few
times. `machine_limits` keeps the result on disk under the identity of the machine, for `pellucid
explain`, unless it is doubtful in the end; the bench measures anew in each run.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.core.errors import PellucidError
from pellucid.core.records import dataclass
from pellucid.core.target import Target, host_target, request_amx
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device
from pellucid.runtime.diskcache import content_key, current_cache
from pellucid.runtime.limits_kernels import (
    COPY_STREAMS,
    FLOAT_BYTES,
    READ_STREAMS,
    STREAM_BYTES,
    TILE_CONFIG,
    Kernel,
    amx_kernel,
    copy_kernel,
    dot_kernel,
    dot_units,
    empty_kernel,
    fma_kernel,
    read_kernel,
)
from pellucid.runtime.program import Call

LEAST_ROUNDS: Final = 4
SECONDS: Final = 0.4
"""How long `machine_limits` measures."""
TURN_SECONDS: Final = 0.001
"""How long a kernel runs again and again before the next one has its turn."""
TAKES: Final = 3
"""How often it measures again what is doubtful."""
UNDISTURBED: Final = 0.9
"""The least part of the time of all threads that a run has to get from the processors."""
AT_LEAST: Final = 0.9
"""What part of one thread's figure several threads have to reach."""


@dataclass(frozen=True)
class Limits:
    """What some threads can do at most in a second, and how long it takes to call a kernel.

    rates: flops under "fma" and "amx", additions and multiplications of integers under the names of
    matrix units, bytes under the names of ways through memory.
    doubtful: the rates that other programs may have spoilt.
    """

    threads: int
    rates: Mapping[str, float]
    call_seconds: float
    doubtful: tuple[str, ...] = ()

    @property
    def memory(self) -> float:
        """Bytes in a second by the best way through memory."""
        return max(self.rates[name] for name in ("read", "copy", "stream"))


# ---- kept -------------------------------------------------------------------------------------


def machine_limits(threads: int) -> Limits | None:
    """The limits of this machine, measured once; None where they cannot be measured."""
    return _known_limits(threads, machine_identity(), current_cache().folder)


@cache
def _known_limits(threads: int, identity: str, folder: str) -> Limits | None:
    texts = [Path(__file__).with_name(f"{name}.py").read_text() for name in _SOURCES]
    key = content_key("limits", *texts, identity, threads)
    kept = current_cache().get(key)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if kept is not None:
            found = json.loads(kept)
            return Limits(threads, found["rates"], found["call_seconds"])
    try:
        one = None if threads == 1 else _known_limits(1, identity, folder)
        limits = _taken(threads, one)
    except (PellucidError, MemoryError):
        return None
    if not limits.doubtful:
        data = {"rates": dict(limits.rates), "call_seconds": limits.call_seconds}
        current_cache().put(key, json.dumps(data).encode())
    return limits


_SOURCES = ("limits", "limits_kernels")


def _taken(threads: int, one: Limits | None) -> Limits:
    """Measure, and again what is doubtful; the best of all takes."""
    best: dict[str, float] = {}
    doubtful: set[str] = set()
    for take in range(TAKES):
        found = measured(threads, SECONDS)
        doubtful = found.doubtful if take == 0 else doubtful & found.doubtful
        best = {name: max(rate, best.get(name, 0.0)) for name, rate in found.rates.items()}
        low = {name for name in best if one is not None and is_too_low(name, best, one)}
        if not doubtful | low:
            break
    return Limits(threads, best, call_seconds(threads), tuple(sorted(doubtful | low)))


def is_too_low(name: str, rates: Mapping[str, float], one: Limits) -> bool:
    """True where several threads do less than one: of them, one was waited for.

    >>> is_too_low("fma", {"fma": 4e10}, Limits(1, {"fma": 9e10}, 1e-6))
    True
    """
    return rates[name] < AT_LEAST * one.rates.get(name, 0.0)


def machine_identity() -> str:
    """A text that differs between machines that differ in speed, as far as they say so."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line for line in lines if line.startswith("model name")), "")
    return f"{host_target().key} {model.partition(':')[2].strip()}"


# ---- measured ---------------------------------------------------------------------------------


@dataclass
class Measured:
    """The best rates of all rounds, and those without a run that was not disturbed."""

    rates: dict[str, float] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)

    def note(self, name: str, rate: float, part: float) -> None:
        """One run: *part* is what its threads got of the processors' time."""
        self.rates[name] = max(rate, self.rates.get(name, 0.0))
        if part >= UNDISTURBED:
            self.doubtful.discard(name)


def measured_limits(threads: int, seconds: float) -> dict[str, float]:
    """Measure flops and bytes in a second with *threads* threads, in about *seconds*.

    "amx" is there only where the CPU has tiles and the system lets us use them, "l3" only where
    there is such a cache.
    """
    return measured(threads, seconds).rates


def measured(threads: int, seconds: float) -> Measured:
    """The same, with what is doubtful."""
    works = list(_works(threads))
    found = Measured(doubtful={kernel.name for kernel, _ in works})
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < LEAST_ROUNDS or time.perf_counter() < end:
        for kernel, call in works:
            _take_turn(found, kernel, call, threads)
        rounds += 1
    return found


def _take_turn(found: Measured, kernel: Kernel, call: Call, threads: int) -> None:
    """Run a kernel until its turn is over, once at least."""
    clock, end = clock_of(threads), time.perf_counter() + TURN_SECONDS
    while True:
        start, start_wall, start_cpu = clock(), time.perf_counter(), time.process_time()
        call.run([kernel.steps])
        own, cpu = clock() - start, time.process_time() - start_cpu
        now = time.perf_counter()
        part = cpu / (threads * (now - start_wall))
        found.note(kernel.name, threads * kernel.amount / own, part)
        if now >= end:
            return


def _works(threads: int) -> list[tuple[Kernel, Call]]:
    """The kernels of this machine, ready to run."""
    target = host_target()
    works = [(fma_kernel(target), [_filled(1024, 0.5)])]
    works += [(dot_kernel(unit, target), [_filled(1024, 0.5)]) for unit in dot_units(target)]
    streams = [_filled(STREAM_BYTES // FLOAT_BYTES, 1.0) for _ in range(2)]
    sizes = _sizes_in_caches(target, threads)
    works += [(read_kernel(target, threads, name, size), streams) for name, size in sizes.items()]
    works += [(read_kernel(target, threads, streams=count), streams) for count in READ_STREAMS]
    works += [
        (copy_kernel(target, threads, past_caches=flag, streams=count), streams)
        for flag in (False, True)
        for count in COPY_STREAMS
    ]
    bound = [(kernel, _bound(kernel, buffers, threads)) for kernel, buffers in works]
    if "amx-bf16" in target.features and request_amx():
        with contextlib.suppress(PellucidError):  # an LLVM that knows no tiles: it stays unknown
            bound.append((amx_kernel(), _bound(amx_kernel(), [_tile_config()], threads)))
    return bound


def _bound(kernel: Kernel, buffers: Sequence[Buffer], threads: int) -> Call:
    device = Device["CPU:LLVM"]
    program = device.load(device.compile(kernel.text, kernel.name), kernel.name)
    return program.bind(buffers, num_threads=threads)


def clock_of(threads: int) -> Callable[[], float]:
    """One thread is timed by its own clock, which stands while others use the machine."""
    return time.thread_time if threads == 1 else time.perf_counter


def _sizes_in_caches(target: Target, threads: int) -> dict[str, int]:
    """How much to read from each cache: half of what is a core's.

    Of the cache that is shared, others have a part: no more than what does not fit the others.
    """
    sizes = {"l1": threads * target.l1d_bytes // 2, "l2": threads * target.l2_bytes // 2}
    if target.l3_bytes:
        sizes["l3"] = min(6 * sizes["l2"], STREAM_BYTES)
    return sizes


def call_seconds(threads: int, runs: int = 200) -> float:
    """Measure how long a kernel takes that does nothing."""
    call = _bound(empty_kernel(), [_filled(16, 0.0)], threads)
    clock, times = clock_of(threads), []
    for _ in range(runs):
        start = clock()
        call.run([1])
        times.append(clock() - start)
    return min(times)


def _filled(count: int, value: float) -> Buffer:
    made = Buffer("CPU", count, dtypes.float32)
    made.as_numpy()[:] = value
    return made


def _tile_config() -> Buffer:
    made = Buffer("CPU", len(TILE_CONFIG), dtypes.uint8)
    made.copy_from(np.frombuffer(TILE_CONFIG, np.uint8))
    return made
