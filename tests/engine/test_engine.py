"""The engine: memory lives while it is needed, writes are in place, failures change nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pellucid import (
    Context,
    Device,
    Ops,
    Tensor,
    compile_linear,
    dtypes,
    nn,
    no_grad,
    run_linear,
)
from pellucid.core import observe
from pellucid.core.errors import CompileError, DeviceError, ExecutionError
from pellucid.core.observe import Observer
from pellucid.engine import compile as compiling
from pellucid.engine import progress
from pellucid.engine.memory import buffer_of
from pellucid.ir.uop import UOp, new_buffer, num_live_nodes
from pellucid.nn.optim import SGD


def test_schedule_compile_run() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    y = x * 3 + 1
    linear = y.schedule_linear()
    assert linear.op is Ops.LINEAR
    assert not y.is_realized
    compiled = compile_linear(linear)
    programs = [n for n in compiled.toposort() if n.op is Ops.PROGRAM]
    assert [s.op for s in programs[0].src] == [Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY]
    run_linear(compiled)
    assert y.is_realized
    assert y.tolist() == [4.0, 7.0, 10.0]
    z = x + 1
    run_linear(z.schedule_linear())
    assert z.is_realized
    assert z.tolist() == [2.0, 3.0, 4.0]


def test_a_schedule_that_is_not_run_changes_nothing() -> None:
    x = Tensor([1.0]).realize()
    y = x + 1
    y.schedule_linear()
    x += 10
    assert y.tolist() == [2.0]
    assert x.tolist() == [11.0]


def test_memory_goes_back_when_nobody_can_read_it() -> None:
    node = new_buffer(4, dtypes.int8, "CPU")
    buffer = buffer_of(node)
    assert buffer_of(node) is buffer
    x = Tensor([1.0])
    (x + 1).realize()
    gc.collect()
    before = num_live_nodes()
    for _ in range(20):
        (x + 1).realize()
        x = (x * 1.5).realize()
    gc.collect()
    assert num_live_nodes() <= before + 20


def test_training_steps_keep_no_past() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = SGD([w], lr=0.1, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    counts = []
    for _ in range(3):
        for _ in range(5):
            step()
        gc.collect()
        counts.append(num_live_nodes())
    assert counts[1] == counts[2]


def test_writes_are_in_place_unless_somebody_reads() -> None:
    x = Tensor.zeros(100).realize()
    place = x.data_ptr()
    x += 1
    x.realize()
    x[3:7] = 5
    x.realize()
    assert x.data_ptr() == place
    lazy = x * 2
    x += 1
    x.realize()
    assert x.data_ptr() != place
    assert lazy[0].item() == 2.0


def test_values_of_their_own_share_no_memory() -> None:
    a = Tensor.arange(4).realize()
    copies = [a * 1, a.contiguous(), a.clone(), a.flip(0).flip(0), Tensor(a), a[:].contiguous()]
    for copy in copies:
        copy.realize()
    a += 10
    a.realize()
    for copy in copies:
        assert copy.tolist() == [0, 1, 2, 3]
    assert a.detach().tolist() == [10, 11, 12, 13]


def test_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = x * 123.25

    def fail(*_: Any) -> UOp:
        raise CompileError("out of registers", stage="render", kernel="map_2")

    import pellucid.pipeline

    with monkeypatch.context() as patch:
        patch.setattr(pellucid.pipeline, "to_programs", fail)
        with pytest.raises(CompileError, match=r"render failed for kernel map_2: out of registers"):
            y.realize()
    assert not y.is_realized
    assert y.tolist() == [123.25, 246.5]


def test_a_compile_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([1.0, 2.0]).realize()
    x += 99.5

    def stop(*_: Any) -> UOp:
        raise KeyboardInterrupt

    import pellucid.pipeline

    with monkeypatch.context() as patch:
        patch.setattr(pellucid.pipeline, "to_programs", stop)
        with pytest.raises(KeyboardInterrupt):
            x.realize()
    assert x.tolist() == [100.5, 101.5]


def test_each_distinct_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[UOp] = []
    real = compiling._compiled

    def count(calls: Mapping[UOp, UOp], *rest: Any) -> dict[UOp, UOp]:
        compiled.extend(calls)
        return real(calls, *rest)

    monkeypatch.setattr(compiling, "_compiled", count)
    inputs = [Tensor([float(i), 1.0]).realize() for i in range(5)]
    results = [(x * 7 + 3).contiguous() for x in inputs]
    results[0].realize(*results[1:])
    assert len(compiled) == len(set(compiled)) == 1
    assert [r.tolist()[0] for r in results] == [3.0, 10.0, 17.0, 24.0, 31.0]


def test_progress_is_reported() -> None:
    class Heard(Observer):
        steps: list[tuple[str, int, int]] = []

        def on_progress(self, task: str, done: int, total: int) -> None:
            self.steps.append((task, done, total))

    heard = Heard()
    x, y = Tensor([1.0, 2.0]), Tensor([[1.0], [2.0], [3.0]])
    with observe.observed_by(heard):
        (x + 17).realize(y * 18)
    assert heard.steps == [("compile", 1, 2), ("compile", 2, 2)]


def test_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []

    class Bar:
        def update(self, task: int, completed: int, description: str) -> None:
            shown.append(completed)

        def stop(self) -> None:
            shown.append(-1)

    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_start_bar", lambda label, total: (Bar(), 0))
    with Context(progress="on"):
        (Tensor([1.0]) + 19).realize(Tensor([[2.0, 3.0]]) * 20)
    assert shown == [1, -1] or shown == [1, 2, -1]


def test_verify_runs_beside_the_interpreter() -> None:
    with Context(verify=True):
        x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
        assert (x.exp().sum(1) / 2).argmax().item() == 2
        assert (Tensor([60000.0], dtype=dtypes.float16) * 2).item() == float("inf")
        x[1:] += 1
        assert x.sum().item() == 74


def test_debug_output(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(debug=4):
        (Tensor([1.0, 2.0]) * 21).realize()
    text = capsys.readouterr().err
    assert "map_2" in text
    assert "define void @map_2" in text
    assert "us" in text


def test_devices() -> None:
    assert Device["CPU"].name == "CPU"
    for device in ("CPU", "CPU:LLVM", "CPU:C"):
        x = Tensor([1.0, 2.0], device=device)
        assert x.device == device
        assert (x * 3).tolist() == [3.0, 6.0]
    x = Tensor([1.0]).to("CPU:C")
    assert x.device == "CPU:C"
    assert (x + 1).tolist() == [2.0]


def test_null_device_compiles_and_does_not_run() -> None:
    x = Tensor.ones(4, device="NULL") * 3
    compiled = compile_linear(x.schedule_linear())
    assert any(n.op is Ops.PROGRAM for n in compiled.toposort())
    run_linear(compiled)
    with pytest.raises(DeviceError):
        x.numpy()


def test_null_device_takes_data_and_random_numbers_and_drops_them() -> None:
    with Context(device="NULL"):
        model = nn.Linear(3, 2)
        loss = (model(Tensor([[1.0, 2.0, 3.0]])) + Tensor.rand(2)).sum()
        loss.backward()
        nn.optim.Adam(model.parameters()).step()
        loss.realize()
        with pytest.raises(DeviceError, match="NULL has no memory that could be read"):
            loss.item()


def test_missing_variables_are_named() -> None:
    from pellucid.engine.run import _value_of

    with pytest.raises(ExecutionError, match="the variable n has no value"):
        _value_of("n", {})


def test_no_grad_writes_leave_a_leaf() -> None:
    w = Tensor([1.0, 2.0])
    for _ in range(3):
        w.grad = None
        (w * w).sum().backward()
        assert w.grad is not None
        with no_grad():
            w -= 0.25 * w.grad
    assert w.is_leaf
    assert w.tolist() == [0.125, 0.25]


def test_deep_graphs_do_not_recurse() -> None:
    limit = sys.getrecursionlimit()
    x = Tensor([0.0]).realize()
    for _ in range(2 * limit):
        x = x + 1.0
    assert x.item() == 2.0 * limit
