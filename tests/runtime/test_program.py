"""Compiled kernels run and give what they should, on every way to call them."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import DeviceError, ExecutionError
from pellucid.runtime import Buffer, Device
from pellucid.runtime.program import Program
from tests.counting import calls_in, lines_in
from tests.together import in_threads


def filled(values: list[float], device: str = "CPU") -> Buffer:
    buffer = Buffer(device, len(values), dtypes.float32)
    buffer.copy_from(np.array(values, np.float32))
    return buffer


def load(cpu: str, source: str, name: str) -> Program:
    device = Device[cpu]
    return device.load(device.compile(source, name), name)


def test_a_kernel_adds(cpu: str, add_source: str) -> None:
    out, left, right = filled([0] * 5), filled([1, 2, 3, 4, 5]), filled([10, 20, 30, 40, 50])
    load(cpu, add_source, "add")([out, left, right], [4])
    assert out.as_numpy().tolist() == [11, 22, 33, 44, 0]


def test_buffers_of_one_cpu_serve_the_other(add_source: str, cpu: str) -> None:
    out, left = filled([0], "CPU"), filled([1], "CPU:LLVM")
    load(cpu, add_source, "add")([out, left, filled([2], "CPU:C")], [1])
    assert out.as_numpy().tolist() == [3]


def test_a_bound_call_runs_again_with_other_variables(cpu: str, add_source: str) -> None:
    out, left, right = filled([0] * 3), filled([1, 2, 3]), filled([1, 1, 1])
    call = load(cpu, add_source, "add").bind([out, left, right])
    call.run([1])
    assert out.as_numpy().tolist() == [2, 0, 0]
    call.run([3])
    assert out.as_numpy().tolist() == [2, 3, 4]
    left.as_numpy()[:] = 5
    call.run()  # the variables stay as they were
    assert out.as_numpy().tolist() == [6, 6, 6]


def test_a_bound_call_keeps_memory_and_code_alive(cpu: str, add_source: str) -> None:
    out = filled([0])
    call = load(cpu, add_source, "add").bind([out, filled([1]), filled([2])])
    for _ in range(20):  # would reuse freed blocks and overwrite them
        filled([99])
    call.run([1])
    assert out.as_numpy().tolist() == [3]


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7, 40])
def test_threads_run_every_part_once(cpu: str, parts_source: str, num_threads: int) -> None:
    out = Buffer("CPU", num_threads, dtypes.int64)
    out.as_numpy()[:] = 0
    call = load(cpu, parts_source, "parts").bind([out], num_threads, scratch_bytes=64)
    for _ in range(50):
        call.run([100])
    expected = [50 * 8 * (100 + thread) for thread in range(num_threads)]
    assert out.as_numpy().tolist() == expected


def test_several_callers_use_threads_at_once(cpu: str, parts_source: str) -> None:
    program = load(cpu, parts_source, "parts")
    outs = [Buffer("CPU", 3, dtypes.int64) for _ in range(4)]

    def work(out: Buffer) -> None:
        out.as_numpy()[:] = 0
        call = program.bind([out], 3, 64)
        for _ in range(100):
            call.run([1])

    in_threads(work, [(out,) for out in outs])
    assert [out.as_numpy().tolist() for out in outs] == [[800, 1600, 2400]] * 4


def test_several_kernels_live_in_one_object(cpu: str, add_source: str, parts_source: str) -> None:
    device = Device[cpu]
    binary = device.compile(add_source + parts_source, "both")
    out = filled([0])
    device.load(binary, "add")([out, filled([1]), filled([2])], [1])
    sums = Buffer("CPU", 1, dtypes.int64)
    sums.as_numpy()[:] = 0
    device.load(binary, "parts")([sums], [3], scratch_bytes=64)
    assert out.as_numpy().tolist() == [3]
    assert sums.as_numpy().tolist() == [24]


def test_an_unknown_name_is_an_error(cpu: str, add_source: str) -> None:
    device = Device[cpu]
    with pytest.raises(ExecutionError) as caught:
        device.load(device.compile(add_source, "add"), "subtract")
    assert str(caught.value).startswith(
        "the compiled object has no function 'subtract'\n    it has  add\n"
    )


def test_no_thread_is_an_error(cpu: str, add_source: str) -> None:
    with pytest.raises(ExecutionError, match="kernel add cannot run on 0 threads"):
        load(cpu, add_source, "add").bind([], num_threads=0)


def test_the_null_device_compiles_and_does_not_run(add_ir: str) -> None:
    device = Device["NULL"]
    binary = device.compile(add_ir, "add")
    assert binary[:4] == b"\x7fELF"
    program = device.load(binary, "add")
    out = Buffer("NULL", 1 << 50, dtypes.float32)
    program([out], [1])
    program.bind([out]).run([1])
    assert out.nbytes == 1 << 52
    with pytest.raises(DeviceError, match="NULL has no memory that could be read or written"):
        out.as_numpy()


def test_a_bound_call_is_cheap(cpu: str, add_source: str) -> None:
    call = load(cpu, add_source, "add").bind([filled([0]), filled([1]), filled([2])])
    call.run((1,))
    assert calls_in(lambda: call.run((1,))) <= 2
    assert lines_in(lambda: call.run((1,))) <= 10
