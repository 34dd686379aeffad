"""Measure kernels in a child process, which may crash or hang without harm to this one.

    with MeasuringProcess(device, params) as child:           starts python -m …measured_child
        child.set_reference(code)                             runs it once, keeps what it wrote
        child.prepare(code)                                   compiles it while we do other things
        seconds = child.measure(code, tolerances)             run, compare, time

The child makes its own buffers, filled with seeded numbers and fenced on both sides: the caller's
buffers are never touched. What it answers is JSON, so a child that went wild cannot do more than
give wrong answers, and these are compared. A child that is silent for too long is ended; after
that, or after a crash, the next question starts a new one, which runs the reference again first.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pellucid.core.options import PREFIX, current_options
from pellucid.core.records import dataclass

_STARTUP_SECONDS: Final = 60.0
_COMPILING_SECONDS: Final = 20.0
"""How long one candidate may be compiled."""


class NotMeasuredError(Exception):
    """A kernel that gave no time: *kind* is compile, crashed, hung or wrong; *reason* says more."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind, self.reason = kind, reason


@dataclass(frozen=True)
class Code:
    """The text of a kernel, and how to call it."""

    source: str
    name: str
    num_params: int
    writes: tuple[int, ...]
    num_threads: int = 1
    scratch_bytes: int = 0


class MeasuringProcess:
    """A child process with buffers for one kernel; *params* are pairs of dtype name and size."""

    def __init__(
        self,
        device: str,
        params: Sequence[tuple[str, int]],
        *,
        seed: int = 0,
        patience: float = 5.0,
    ) -> None:
        self.device, self.params, self.seed = device, tuple(params), seed
        self.patience = patience
        """Seconds that a candidate may take, beyond some times what the others took."""
        self.num_started = 0
        self._waiting: list[Code] = []
        self._failed: dict[Code, NotMeasuredError] = {}
        self._reference: Code | None = None
        self._reference_seconds = 0.0
        self._fastest_seconds = math.inf
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def set_reference(self, code: Code, limit_s: float = 30.0) -> float:
        """Run the kernel that others are compared with; seconds of one run.

        Errors: NotMeasuredError.
        """
        self._reference = None
        seconds = self._ask({"do": "reference", "code": asdict(code)}, limit_s)
        self._reference, self._reference_seconds = code, seconds
        return seconds

    def prepare(self, code: Code) -> None:
        """Let the child compile a kernel, and do not wait: `measure` says what went wrong."""
        try:
            self._ensure_started()
            assert self._connection is not None, "a child that was started has a connection"
            question = {"do": "compile", "code": asdict(code), "limit_s": _COMPILING_SECONDS}
            self._connection.send_bytes(json.dumps(question).encode())
            self._waiting.append(code)
        except (OSError, NotMeasuredError):
            self.close()  # `measure` will start another one

    def measure(
        self, code: Code, tolerances: Sequence[float | None], *, enough_s: float = 0.0
    ) -> float:
        """Seconds of the fastest of several runs, after one whose results are compared.

        tolerances: for each parameter, how far a float may be from the reference, as a part of the
        largest; None: every bit has to agree.  enough_s: a run slower than this is not repeated.
        Errors: NotMeasuredError.
        """
        self._receive_compiled()
        if code in self._failed:
            raise self._failed.pop(code)
        question = {"do": "measure", "code": asdict(code), "tolerances": list(tolerances)}
        limit_s = self.patience + 10 * min(self._reference_seconds, 20 * self._fastest_seconds)
        seconds = self._ask({**question, "enough_s": enough_s}, limit_s)
        self._fastest_seconds = min(self._fastest_seconds, seconds)
        return seconds

    # ---- the child --------------------------------------------------------------------------

    def _receive_compiled(self) -> None:
        """Wait until all that was to be prepared is compiled; what follows a crash is not."""
        while self._waiting:
            code = self._waiting.pop(0)
            try:
                self._receive(_COMPILING_SECONDS)
            except NotMeasuredError as problem:
                self._failed[code] = problem

    def _ask(self, question: dict[str, Any], limit_s: float) -> float:
        self._receive_compiled()
        self._ensure_started()
        return self._exchange(question, limit_s)

    def _ensure_started(self) -> None:
        if self._process is None:
            self._start()
            if self._reference is not None:
                again = {"do": "reference", "code": asdict(self._reference)}
                self._exchange(again, 10 * self._reference_seconds + _STARTUP_SECONDS)

    def _start(self) -> None:
        ours, theirs = Pipe()
        options = current_options()
        env = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
        if "PELLUCID_TARGET" in os.environ:
            env["PELLUCID_TARGET"] = os.environ["PELLUCID_TARGET"]
        env |= {"PELLUCID_CACHE_DIR": options.cache_dir, "PELLUCID_THREADS": str(options.threads)}
        package_home = str(Path(__file__).parents[2])
        env["PYTHONPATH"] = os.pathsep.join(
            [package_home, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        with theirs:
            command = ["-m", "pellucid.runtime.measured_child", str(theirs.fileno())]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *command],
                    pass_fds=(theirs.fileno(),),
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as problem:
                ours.close()
                reason = f"no child process could be started: {problem}"
                raise NotMeasuredError("failed", reason) from None
        self._connection = ours
        self.num_started += 1
        opening = {"do": "open", "device": self.device, "seed": self.seed, "params": self.params}
        self._exchange(opening, _STARTUP_SECONDS)

    def _exchange(self, question: dict[str, Any], limit_s: float) -> float:
        """Send a question and wait for the answer, which is a number of seconds."""
        assert self._connection is not None, "a child that was started has a connection"
        question["limit_s"] = limit_s
        try:
            self._connection.send_bytes(json.dumps(question).encode())
        except OSError:
            raise NotMeasuredError("crashed", self._how_it_ended()) from None
        return self._receive(limit_s)

    def _receive(self, limit_s: float) -> float:
        """Wait for one answer."""
        assert self._connection is not None, "a child that was asked has a connection"
        try:
            if not self._connection.poll(limit_s):
                self.close()
                raise NotMeasuredError("hung", f"no result after {limit_s:.1f} s")
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError, ValueError):
            raise NotMeasuredError("crashed", self._how_it_ended()) from None
        except BaseException:
            self.close()
            raise
        if "problem" in answer:
            raise NotMeasuredError(str(answer["kind"]), str(answer["problem"]))
        return float(answer["seconds"])

    def _how_it_ended(self) -> str:
        process = self._process
        status: int | None = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(1.0)
        self.close()
        if status is not None and status < 0:
            return f"by {signal.Signals(-status).name}"
        return f"with status {status}"

    def close(self) -> None:
        """End the child."""
        self._waiting.clear()
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
