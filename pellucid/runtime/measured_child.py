"""The child process of runtime/measuring.py: compiles and runs kernels on buffers of its own.

    {"do": "measure", "code": …}   ->   {"seconds": 0.0000123}
                                   ->   {"kind": "wrong", "problem": "parameter 0, element 5: …"}

Every buffer stands between two fences of known bytes. After the first run of a kernel, outputs are
compared with those of the reference, inputs with what they were, fences with what they are. One
thread is timed by its own clock, which stands while other programs use the machine. Should the
parent be gone while a kernel hangs, an alarm ends this process.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from pellucid.core.dtype import DType, parse_dtype
from pellucid.core.errors import CompileError, PellucidError
from pellucid.core.options import Context
from pellucid.core.target import machine_target, request_amx
from pellucid.ir.interpret.values import from_storage, storage_dtype, to_storage
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.device import Device
from pellucid.runtime.program import Call

Array = np.ndarray[Any, Any]

FENCE_BYTES: Final = 4096
BLOCK: Final = 1 << 16
"""How many elements are compared at a time."""
_FENCE: Final = 0xA5
_LEAST_SECONDS: Final = 0.01
_LONG_SECONDS: Final = 0.001
_LEAST_RUNS: Final = 3
_MOST_RUNS: Final = 50
_BUNDLE_SECONDS: Final = 0.0002
_MOST_IN_BUNDLE: Final = 256


def values_for(dtype: DType, size: int, numbers: np.random.Generator) -> Array:
    """Numbers as they lie in memory: floats around 0.5, so that long sums do not cancel out.

    Whole numbers are small, as indices and divisors are.
    """
    if dtype.is_bool:
        return numbers.integers(0, 2, size).astype(np.bool_)
    if dtype.is_float:
        return to_storage(dtype, numbers.random(size, np.float32) * 2.0 - 0.5)
    low = max(int(dtype.min), -4)
    return numbers.integers(low, 12, size).astype(storage_dtype(dtype))


class _Parameter:
    """A buffer between fences, what it holds at first, and what the reference leaves in it."""

    def __init__(self, device: str, dtype: DType, values: Array) -> None:
        self.dtype, self.start = dtype, values
        self.whole = Buffer(device, values.nbytes + 2 * FENCE_BYTES, parse_dtype("uint8"))
        self.buffer = self.whole.view(FENCE_BYTES, values.size, dtype)
        self.expected: Array | None = None
        all_bytes = self.whole.as_numpy()
        self.fences = (all_bytes[:FENCE_BYTES], all_bytes[FENCE_BYTES + values.nbytes :])
        self.reset()

    def reset(self) -> None:
        """Write what it holds at first, and the fences."""
        for fence in self.fences:
            fence[:] = _FENCE
        if self.start.size:
            self.buffer.copy_from(self.start)

    def now(self) -> Array:
        """What it holds; the next run changes it."""
        inside = self.whole.as_numpy()[FENCE_BYTES : FENCE_BYTES + self.start.nbytes]
        return inside.view(self.start.dtype)

    def problem(self, *, is_written: bool, tolerance: float | None) -> str | None:
        """Say what is not as it should be after a run."""
        if any((fence != _FENCE).any() for fence in self.fences):
            return "something was written outside of it"
        if not self.start.size:
            return None
        if not is_written:
            return None if _is_same(self.now(), self.start) else "an input was written to"
        assert self.expected is not None, "the reference runs first"
        return difference(self.dtype, self.expected, self.now(), tolerance)


def difference(dtype: DType, expected: Array, got: Array, tolerance: float | None) -> str | None:
    """Say which element differs; floats may by *tolerance* times the largest, unless it is None.

    >>> from pellucid.core.dtype import dtypes
    >>> a, b = np.array([1.0, 2.0], np.float32), np.array([1.0, 2.125], np.float32)
    >>> difference(dtypes.float32, a, b, 0.1), difference(dtypes.float32, a, b, None)
    (None, 'element 1: expected 2.0, got 2.125')
    """
    allowed = None
    if dtype.is_float and tolerance is not None:
        parts = (from_storage(dtype, expected[part]) for part in _blocks(expected.size))
        allowed = tolerance * max((_largest(part) for part in parts), default=0.0)
    for part in _blocks(expected.size):
        if _is_same(expected[part], got[part]):
            continue
        left, right = from_storage(dtype, expected[part]), from_storage(dtype, got[part])
        wrong = left != right
        if dtype.is_float:
            left, right = left.astype(np.float64), right.astype(np.float64)
            wrong = _wrong(left, right, allowed)
        if wrong.any():
            first = int(np.argmax(wrong))
            values = f"expected {left[first]}, got {right[first]:.8g}"
            return f"element {part.start + first}: {values}"
    return None


def _wrong(left: Array, right: Array, allowed: float | None) -> Array:
    """Where floats differ, by more than is allowed."""
    wrong: Array = (left != right) & ~(np.isnan(left) & np.isnan(right))
    wrong |= (left == 0) & (right == 0) & (np.signbit(left) != np.signbit(right))
    if allowed is not None:
        with np.errstate(invalid="ignore"):
            wrong &= ~(np.abs(left - right) <= allowed)
    return wrong


def _largest(values: Array) -> float:
    """The largest magnitude of those that are finite."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def _blocks(count: int) -> Iterator[slice]:
    """Parts that stay in cache, with all that is computed of them."""
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


def _is_same(left: Array, right: Array) -> bool:
    """True where every bit agrees."""
    parts = ((left[p].view(np.uint8), right[p].view(np.uint8)) for p in _blocks(left.size))
    return all(bool((a == b).all()) for a, b in parts)


class _Bench:
    """What the child keeps from one question to the next."""

    def __init__(self) -> None:
        self.device = "CPU"
        self.params: list[_Parameter] = []
        self.calls: dict[str, Call] = {}
        self.right: set[int] = set()
        """Calls whose results were compared: when they are measured again, they are timed only."""

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked for."""
        try:
            return getattr(self, f"do_{question['do']}")(question)  # type: ignore[no-any-return]
        except CompileError as problem:
            return {"kind": "not compiled", "problem": problem.problem}
        except (PellucidError, MemoryError) as problem:
            return {"kind": "failed", "problem": f"{type(problem).__name__}: {problem}"}

    def do_open(self, question: dict[str, Any]) -> dict[str, Any]:
        """Make the buffers."""
        self.device = question["device"]
        numbers = np.random.default_rng(question["seed"])
        dtypes_ = [(parse_dtype(name), size) for name, size in question["params"]]
        self.params = [
            _Parameter(self.device, dtype, values_for(dtype, size, numbers))
            for dtype, size in dtypes_
        ]
        return {"seconds": 0.0}

    def do_compile(self, question: dict[str, Any]) -> dict[str, Any]:
        """Compile a kernel that will be measured soon."""
        self._call(question["code"])
        return {"seconds": 0.0}

    def do_reference(self, question: dict[str, Any]) -> dict[str, Any]:
        """Run the reference, and keep what it writes."""
        call = self._call(question["code"])
        seconds = self._run_once(call)
        for slot in question["code"]["writes"]:
            self.params[slot].expected = self.params[slot].now().copy()
        return {"seconds": seconds}

    def do_measure(self, question: dict[str, Any]) -> dict[str, Any]:
        """Run a kernel, compare, and time it."""
        code = question["code"]
        call = self._call(code)
        enough = float(question["enough_s"]) or math.inf
        if id(call) in self.right:
            return {"seconds": self._fastest(call, code, math.inf, enough)}
        first = self._run_once(call)
        inputs_first = sorted(range(len(self.params)), key=lambda slot: slot in code["writes"])
        for slot in inputs_first:
            param = self.params[slot]
            is_written = param.expected is not None
            tolerance = question["tolerances"][slot]
            problem = param.problem(is_written=is_written, tolerance=tolerance)
            if problem is not None:
                return {"kind": "wrong", "problem": f"parameter {slot}, {problem}"}
        self.right.add(id(call))
        return {"seconds": self._fastest(call, code, first, enough)}

    def _fastest(self, call: Call, code: dict[str, Any], first: float, enough: float) -> float:
        clock = time.thread_time if code["num_threads"] == 1 else time.perf_counter
        return _fastest(call, clock, first, enough)

    def _call(self, code: dict[str, Any]) -> Call:
        """The kernel, ready to run; compiled once, though it may be measured several times."""
        key = json.dumps(code, sort_keys=True)
        if key in self.calls:
            return self.calls[key]
        with Context(cache_dir=""):  # candidates would fill the cache
            device = Device[self.device]
            binary = device.compile(code["source"], code["name"])
        if machine_target().has("amx-tile"):
            request_amx()  # a candidate may use tiles, which were granted to another process
        program = device.load(binary, code["name"])
        buffers = [param.buffer for param in self.params[: code["num_params"]]]
        call = program.bind(buffers, code["num_threads"], code["scratch_bytes"])
        self.calls[key] = call
        return call

    def _run_once(self, call: Call) -> float:
        for param in self.params:
            param.reset()
        start = time.perf_counter()
        call.run()
        return time.perf_counter() - start


def _fastest(call: Call, clock: Callable[[], float], first: float, enough: float) -> float:
    """The fastest of several runs; one that is long, and slower than *enough*, is not repeated.

    The first run of a short kernel finds caches cold and says little. Runs of less than
    `_BUNDLE_SECONDS` are timed several at a time.
    """
    fastest, total, count, bundle = first, 0.0, 0, 1
    while count < _LEAST_RUNS or (total < _LEAST_SECONDS and count < _MOST_RUNS):
        if count and fastest > max(enough, _LONG_SECONDS):
            break
        start = clock()
        for _ in range(bundle):
            call.run()
        seconds = clock() - start
        fastest, total, count = min(fastest, seconds / bundle), total + seconds, count + 1
        if seconds < _BUNDLE_SECONDS / 2:
            bundle = min(_MOST_IN_BUNDLE, bundle * 2)
    return fastest


def main(descriptor: int) -> None:
    """Answer questions until the parent closes the connection."""
    connection, bench = Connection(descriptor), _Bench()
    while True:
        try:
            question = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        signal.alarm(math.ceil(question["limit_s"]) + 1)
        answer = bench.answer(question)
        signal.alarm(0)
        connection.send_bytes(json.dumps(answer).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
