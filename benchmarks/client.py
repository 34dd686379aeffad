"""Start workers, ask them, and stop them.

    with WorkerProcess("numpy", num_threads=1) as worker:
        worker.ask("prepare", work="matmul 512")
        worker.ask("time", seconds=0.2)["samples"]

A worker runs on the first cores that this process may use, as many as it has threads, with caches
in an empty folder of its own. Variables that slow a current OpenBLAS are taken away. A worker that
says nothing for too long is ended, and the next question starts another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.frameworks import SEPARATE
from benchmarks.frameworks.base import Unavailable

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
DEFAULT_PATIENCE_SECONDS = 600.0
SLOWING_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE")
"""What a worker does not inherit; without bytecode a first call would read the package's text."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "PELLUCID_THREADS",
    "CPU_COUNT",
)


class WorkerError(Exception):
    """A worker failed at what it was asked; the text says how."""


def python_for(name: str) -> str:
    """Give the interpreter that has the framework. Errors: Unavailable if there is none."""
    if name not in SEPARATE:
        return sys.executable
    if not PEERS_PYTHON.exists():
        raise Unavailable("not installed: make bench-peers")
    return str(PEERS_PYTHON)


def environment_for(num_threads: int, caches: str, given: Mapping[str, str]) -> dict[str, str]:
    """Give the variables of a worker: its threads, empty caches, and nothing that slows it."""
    made = {
        name: value
        for name, value in given.items()
        if name not in SLOWING_VARIABLES and not name.startswith("PELLUCID_")
    }
    made |= dict.fromkeys(THREAD_VARIABLES, str(num_threads))
    made |= {
        "PYTHONPATH": str(ROOT),
        "PELLUCID_CACHE_DIR": f"{caches}/pellucid",
        "PELLUCID_PROGRESS": "off",
        "XDG_CACHE_HOME": f"{caches}/xdg",
        "CACHEDB": f"{caches}/tinygrad.db",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in this process, so that its CPU time counts
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "JAX_PLATFORMS": "cpu",
        "DEV": "CPU",
    }
    if num_threads == 1:
        made["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return made


@contextlib.contextmanager
def on_first_cores(count: int) -> Iterator[None]:
    """Let processes that are started in a block run on *count* cores only, where that is known."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class WorkerProcess:
    """A framework in a process of its own."""

    def __init__(
        self, name: str, num_threads: int, patience: float = DEFAULT_PATIENCE_SECONDS
    ) -> None:
        self.name = name
        self.num_threads = num_threads
        self.patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._unread = b""

    def ask(self, do: str, **details: object) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Errors: Unavailable, when that does not exist; WorkerError, when it failed.
        """
        process = self._process or self._start()
        assert process.stdin is not None, "a worker is started with pipes"
        try:
            process.stdin.write(json.dumps({"do": do, **details}).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._line(process))
        except BrokenPipeError:
            raise self._ended() from None
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def stop(self) -> None:
        """End the process and delete its caches."""
        process, folder = self._process, self._folder
        self._process, self._folder, self._unread = None, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # what was not sent has no reader any more
                        stream.close()
        if folder is not None:
            folder.cleanup()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return Path(self._folder.name if self._folder else "") / "stderr"

    def _start(self) -> subprocess.Popen[bytes]:
        python = python_for(self.name)
        self._folder = tempfile.TemporaryDirectory(prefix="pellucid-bench-")
        with self._log.open("wb") as log, on_first_cores(self.num_threads):
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.worker", self.name, str(self.num_threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=environment_for(self.num_threads, self._folder.name, os.environ),
            )
        return self._process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """Read one line, for as long as patience lasts."""
        assert process.stdout is not None, "a worker is started with pipes"
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(self.patience):
                    self.stop()
                    raise WorkerError(f"said nothing for {self.patience:.0f} s and was ended")
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise self._ended()
                self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _ended(self) -> WorkerError:
        """Describe how the process ended, with the last thing that it said."""
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        status = self._process.wait() if self._process else None
        self.stop()
        return WorkerError(f"ended with status {status}: {said[-1] if said else 'no message'}")
