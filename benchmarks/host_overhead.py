"""What the host costs: `python -m benchmarks.host_overhead` prints microseconds for each call.

    build      x * 3 + 1                      the graph alone
    realise    (x * 3 + 1).realize()          the same expression again and again
    replay     step(x) under jit              one kernel, or twenty; a training step
    native     a tape of one kernel, a kernel on two threads, right after another or after a pause
    compile    twelve kernels, cold and from disk, in processes of their own; importing the library

Each figure is the smallest mean of many short rounds: what it takes when nobody else computes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable

import numpy as np

from pellucid import Device, Tensor, jit
from pellucid.nn.optim import Adam
from pellucid.runtime.native import native
from pellucid.runtime.program import CPUProgram
from pellucid.runtime.tape import Step, Tape

_NOTHING = """
define void @nothing(ptr %buffers, ptr %vars, i64 %thread, ptr %scratch) nounwind {
  ret void
}
"""

_MODEL = """
import time, sys
import numpy as np
start = time.process_time()
import pellucid
imported = time.process_time()
from pellucid import Tensor, pipeline
x = Tensor(np.ones((64, 64), np.float32))
values = []
for n in range(12):
    x = ((x @ x) * (0.01 + n / 1000) + 0.5).relu().contiguous()
    values.append(x)
linear = x.schedule_linear(*values)
before = time.process_time()
pellucid.compile_linear(linear)
done = time.process_time()
counts = pipeline.statistics
print((imported - start) * 1e3, (done - before) * 1e3, counts.compiled + counts.on_disk,
      counts.modules, "llvmlite" in sys.modules)
"""


def microseconds(function: Callable[[], object], calls: int = 100, rounds: int = 300) -> float:
    """The smallest mean time of a call over *rounds* of *calls* calls."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, time.perf_counter() - start)
    return best / calls * 1e6


def show(name: str, value: float, unit: str = "us", note: str = "") -> None:
    """Print one row."""
    print(f"{name:44} {value:10.2f} {unit:3} {note}")


def main() -> None:
    """Measure and print everything."""
    x = Tensor(np.ones(64, np.float32)).realize()
    show("build x * 3 + 1", microseconds(lambda: x * 3 + 1))
    show("realise x * 3 + 1, graph included", microseconds(lambda: (x * 3 + 1).realize()))
    one, two, many = jit(lambda x: x * 3 + 1), jit(lambda x, y: x * 3 + y), jit(_twenty)
    y, train = Tensor(np.ones(64, np.float32)).realize(), _training_step()
    for _ in range(3):
        one(x), two(x, y), many(x), train()
    show("replay one kernel", microseconds(lambda: one(x)))
    show("replay one kernel of two tensors", microseconds(lambda: two(x, y)))
    show("replay twenty products of 8 x 8 matrices", microseconds(lambda: many(x)))
    show("replay a training step, three layers 8 x 8", microseconds(train))
    _native()
    _compile()


def _twenty(x: Tensor) -> Tensor:
    x = x.reshape(8, 8)
    for _ in range(20):
        x = (x @ x).contiguous()
    return x


def _training_step() -> Callable[[], object]:
    shapes = [(8, 8), (8,)] * 3
    weights = [Tensor(np.full(shape, 0.1, np.float32), requires_grad=True) for shape in shapes]
    x, classes = Tensor(np.ones((4, 8), np.float32)).realize(), Tensor([1, 2, 3, 4]).realize()
    optimizer = Adam([weight.realize() for weight in weights])

    @jit
    def step(x: Tensor, classes: Tensor) -> Tensor:
        optimizer.zero_grad()
        for n in range(0, len(weights), 2):
            x = (x @ weights[n] + weights[n + 1]).relu()
        loss = x.cross_entropy(classes)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, classes)


def _native() -> None:
    functions = native()
    program = Device["CPU"].load(Device["CPU"].compile(_NOTHING, "nothing"), "nothing")
    assert isinstance(program, CPUProgram), "the CPU has kernels"
    block = array("q", [0])

    def tape(count: int, num_threads: int = 1) -> Tape:
        place = (block.buffer_info()[0],)
        step = Step(program.function_address, place, num_threads=num_threads)
        return Tape([step] * count, program)

    show("play a tape of one kernel", microseconds(tape(1).run))
    show("each kernel more", microseconds(tape(100).run) / 100)
    threaded = tape(1, 2).run
    show("a kernel on two threads, hot", microseconds(threaded))
    show("a kernel on two threads, after 2 ms", _after_a_pause(threaded))
    workers = 0 if functions is None else functions.num_workers
    print(f"{'':44} native: {functions is not None}, threads of the pool: {workers}")


def _after_a_pause(function: Callable[[], object]) -> float:
    times = []
    for _ in range(30):
        time.sleep(0.002)
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e6


def _compile() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cold", "from disk"):
            imported, compiled, kernels, modules, llvm = _in_a_process(folder)
            note = f"{kernels} kernels, {modules} modules, llvmlite imported: {llvm}"
            show(f"compile a schedule, {name}", float(compiled), "ms", note)
            show("import pellucid after numpy", float(imported), "ms")


def _in_a_process(folder: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _MODEL],
        env={"PELLUCID_CACHE_DIR": folder, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


if __name__ == "__main__":
    main()
