"""What bounds a kernel, by limits that are the same on all machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pellucid.core.target import Target
from pellucid.ir.arg import ProgramInfo
from pellucid.runtime.limits import Limits
from pellucid.tools.roofline import bound_of, level_of, limits_text, touched_bytes

KB, MB = 1 << 10, 1 << 20
TARGET = Target(arch="generic", l1d_bytes=32 * KB, l2_bytes=512 * KB, l3_bytes=32 * MB, cores=2)
RATES = {"fma": 1e11, "l1": 2e11, "l2": 1e11, "l3": 4e10, "read": 8e9, "copy": 1e10, "stream": 9e9}
LIMITS = Limits(1, RATES, call_seconds=1e-6)


def info(elems: int, *, flops: int = 0, passes: int = 1, threads: int = 1) -> ProgramInfo:
    """A kernel that reads *elems* floats, *passes* times, and writes nothing."""
    return ProgramInfo(
        "kernel",
        num_threads=threads,
        reads=(0,),
        param_sizes=(elems,),
        param_dtypes=("float32",),
        flops=flops,
        bytes=4 * elems * passes,
    )


def test_units_for_integers_have_a_peak_of_their_own() -> None:
    limits = Limits(1, RATES | {"vpdpbusd_512": 5e11}, call_seconds=1e-6)
    kernel = replace(info(1000), units=("vpdpbusd_512",), unit_ops=200_000_000)
    found = bound_of(kernel, 5e-4, limits, TARGET)
    assert found.short == "vpdpbusd_512 80 %"
    assert found.sentence == "arithmetic: 80 % of the peak of vpdpbusd_512, 500 GOP/s"
    assert "vpdpbusd_512 500 GOP/s" in limits_text(limits)
    assert bound_of(kernel, 5e-4, LIMITS, TARGET).short.startswith("other"), "it was not measured"


@pytest.mark.parametrize(
    ("kernel", "seconds", "short", "sentence"),
    [
        (
            info(1000, flops=68_000_000),
            1e-3,
            "FMA 68 %",
            "arithmetic: 68 % of the FMA peak, 100 GFLOP/s",
        ),
        (
            info(25 * MB, flops=1000),
            0.011,
            "memory 95 %",
            "memory: 95 % of the bandwidth of memory, 10 GB/s (105 MB touched)",
        ),
        (
            info(1_000_000),
            2e-4,
            "L3 50 %",
            "memory: 50 % of the bandwidth of the L3 cache, 40 GB/s (4 MB touched)",
        ),
        (
            info(100_000),
            1e-5,
            "L2 40 %",
            "memory: 40 % of the bandwidth of the L2 cache, 100 GB/s (400 KB touched)",
        ),
        (
            info(5_000, passes=100),
            2e-5,
            "L1 50 %",
            "memory: 50 % of the bandwidth of the L1 cache, 200 GB/s (2 MB loaded and stored)",
        ),
        (
            info(100),
            2e-6,
            "call 50 %",
            "the host's call: 50 % of the time is that of a kernel that does nothing",
        ),
        (
            info(1_000_000, flops=1_000_000),
            1e-2,
            "other (L3 1 %)",
            "latency, or instructions that are not counted; nearest: "
            "memory: 1 % of the bandwidth of the L3 cache, 40 GB/s (4 MB touched)",
        ),
    ],
    ids=["arithmetic", "memory", "L3", "L2", "L1", "call", "other"],
)
def test_the_nearest_limit_is_the_bound(
    kernel: ProgramInfo, seconds: float, short: str, sentence: str
) -> None:
    bound = bound_of(kernel, seconds, LIMITS, TARGET)
    assert (bound.short, bound.sentence) == (short, sentence)
    values = [share.value for share in bound.shares]
    assert values == sorted(values, reverse=True)


def test_all_other_shares_are_told() -> None:
    bound = bound_of(info(1_000_000, flops=1_000_000), 2e-4, LIMITS, TARGET)
    assert bound.others == "L1 10 %, FMA 5 %, call 0 %"


def test_levels_grow_with_the_threads_that_share_what_is_touched() -> None:
    assert [level_of(n * KB, 1, TARGET) for n in (32, 33, 512, 513)] == ["l1", "l2", "l2", "l3"]
    assert [level_of(n * KB, 2, TARGET) for n in (64, 65, 1024, 1025)] == ["l1", "l2", "l2", "l3"]
    assert level_of(16 * MB, 1, TARGET) == "l3"
    assert level_of(17 * MB, 1, TARGET) == "memory", "half of the cache that is shared is ours"
    assert level_of(MB, 1, TARGET.with_changes({"l3_bytes": 0})) == "memory"


def test_a_kernel_touches_no_more_than_it_loads_and_stores() -> None:
    few = ProgramInfo(
        "row",
        reads=(1,),
        writes=(0,),
        param_sizes=(512, MB),
        param_dtypes=("float32",) * 2,
        bytes=4096,
    )
    assert touched_bytes(few) == 4096
    assert touched_bytes(info(1000, passes=50)) == 4000


def test_limits_are_a_line() -> None:
    assert limits_text(LIMITS) == (
        "1 thread: FMA 100 GFLOP/s, L1 200 GB/s, L2 100 GB/s, L3 40 GB/s, memory 10 GB/s, "
        "a call 1 us"
    )
