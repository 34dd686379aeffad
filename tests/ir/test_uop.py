"""The node: interning, facts without recursion, content keys, substitution."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading

import pytest

from pellucid.core.dtype import dtypes
from pellucid.ir.arg import AxisKind, CallInfo, ParamArg
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, all_nodes, new_buffer, num_live_nodes
from tests.together import in_threads


def param(slot: int = 0, size: int = 12) -> UOp:
    """A float32 parameter."""
    return UOp(Ops.PARAM, dtypes.float32, (), ParamArg(slot, size))


def test_equal_structure_is_the_same_object() -> None:
    i = UOp.range(4, 0)
    assert i * 3 + 1 is UOp.range(4, 0) * 3 + 1
    assert i * 3 is not i * 4
    assert UOp.range(4, 0, AxisKind.REDUCE) is not i


def test_literals_that_python_finds_equal_are_told_apart() -> None:
    assert UOp(Ops.CONST, dtypes.int8, (), False) is not UOp(Ops.CONST, dtypes.int8, (), 0)
    assert UOp.const(dtypes.float32, 0.0) is not UOp.const(dtypes.float32, -0.0)
    assert UOp.const(dtypes.float32, math.nan) is UOp.const(dtypes.float32, float("nan"))
    assert UOp.const(dtypes.int32, 1) is not UOp.const(dtypes.float32, 1)
    assert UOp.const(dtypes.int32.vec(2), (1, 1)) is UOp.const(dtypes.int32.vec(2), 1)
    zeros = UOp.const(dtypes.float32.vec(2), (0.0, -0.0))
    assert zeros.arg == (0.0, 0.0)
    assert zeros is not UOp.const(dtypes.float32.vec(2), (0.0, 0.0))


def test_a_literal_is_cast_to_its_type() -> None:
    assert UOp.const(dtypes.uint8, 300).arg == 44
    assert UOp.const(dtypes.float16, 65520.0).arg == math.inf


def test_nodes_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        param().arg = None  # type: ignore[misc]


def test_unused_nodes_die() -> None:
    gc.collect()
    before = num_live_nodes()
    x = param()
    for _ in range(50_000):  # deep enough that recursive freeing would overflow the stack
        x = x.index(UOp.const(dtypes.index, 0)) + 1.0
    assert num_live_nodes() > before
    del x
    gc.collect()
    assert num_live_nodes() <= before + 1


def test_facts_of_deep_chains_do_not_recurse() -> None:
    x = UOp.const(dtypes.float32, 1.0).expand((4,))
    for _ in range(20_000):
        x = x + 1.0
    assert x.shape == (4,)
    assert len(x.content) == 16
    assert x.ranges == ()
    assert len(x.toposort()) == 20_002


def test_shared_diamonds_are_visited_once() -> None:
    x = UOp.const(dtypes.float32, 2.0).expand((4,))
    for _ in range(200):
        x = x * x
    assert len(x.toposort()) == 202
    assert x.substitute({x.toposort()[1]: x.toposort()[1] + 1.0}).shape == (4,)


def test_ranges_are_closed_by_end_and_reduce() -> None:
    i, j = UOp.range(4, 0), UOp.range(3, 1)
    value = param(1).index(i * 3 + j)
    store = param().index(i).store(value)
    assert store.ranges == (i, j)
    assert store.end(j).ranges == (i,)
    assert store.end(i, j).ranges == ()
    total = UOp(Ops.REDUCE, dtypes.float32, (value, j))
    assert total.ranges == (i,)
    assert (total + param(2).index(j)).ranges == (i, j)


def test_content_keys_depend_on_structure_alone() -> None:
    i = UOp.range(4, 0)
    expression = param().index(i * 3 + 1) * 2.0
    program = (
        "from pellucid.core.dtype import dtypes; from pellucid.ir.arg import ParamArg\n"
        "from pellucid.ir.op import Ops; from pellucid.ir.uop import UOp\n"
        "p = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, 12))\n"
        "print((p.index(UOp.range(4, 0) * 3 + 1) * 2.0).key)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == expression.key
    assert expression.key != (param().index(i * 3 + 1) * 3.0).key
    assert UOp.const(dtypes.float32, 0.0).key != UOp.const(dtypes.float32, -0.0).key


def test_reasons_are_no_part_of_a_content_key() -> None:
    first = UOp(Ops.CALL, dtypes.void, (UOp.sink(),), CallInfo("because", ("a.py:1",)))
    second = UOp(Ops.CALL, dtypes.void, (UOp.sink(),), CallInfo())
    assert first is not second
    assert first.key == second.key


def test_buffers_are_never_equal() -> None:
    assert new_buffer(4, dtypes.int8, "CPU") is not new_buffer(4, dtypes.int8, "CPU")


def test_a_node_that_dies_in_one_thread_is_not_lost_in_another() -> None:
    """The entry of a new node must survive the late farewell of an old one with the same parts."""
    before = sys.getswitchinterval()
    wrong: list[int] = []

    def build(number: int) -> UOp:
        return UOp.range(number % 3 + 2, 0) * 3 + 1

    def work() -> None:
        for number in range(3000):
            first = build(number)
            if first is not build(number):
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_threads_agree_on_a_node() -> None:
    found: list[list[UOp]] = []

    def build() -> None:
        mine = []
        x = UOp.const(dtypes.index, 7)
        for k in range(2000):
            x = x + k % 5
            mine.append(x)
        found.append(mine)

    in_threads(build, [()] * 4)
    assert all(mine[-1] is found[0][-1] for mine in found)


def test_several_roots_are_walked_once() -> None:
    a = param().index(UOp.const(dtypes.index, 0))
    nodes = all_nodes([a + 1.0, a + 2.0])
    assert len(nodes) == len(set(nodes))
    assert nodes.count(a) == 1


INTERRUPTED = """
import faulthandler, signal, threading, time
from pellucid.core.dtype import dtypes
from pellucid.ir.uop import UOp

faulthandler.dump_traceback_later(50, exit=True)

def stop(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, stop)
end, interrupts = time.monotonic() + 3, 0

def build():
    x = UOp.const(dtypes.index, 7)
    for k in range(60):
        x = x + k

def elsewhere():
    while time.monotonic() < end:
        build()

threading.Thread(target=elsewhere).start()
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0007)
        for _ in range(20):
            build()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
build()
print("interrupted" if interrupts > 20 else interrupts)
"""


def test_an_interrupt_never_leaves_the_table_locked() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "interrupted\n"
