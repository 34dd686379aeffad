"""Programs: compiled kernels that can be called, and calls that were prepared.

    Program("add", object)                      one function of an object in memory
      (buffers, vars, num_threads, scratch)     collect addresses, run
      .bind(buffers, num_threads, scratch)      collect addresses once ...
         -> BoundCall .run(vars)                ... and run many times, in 0.1 us

Every kernel of the CPU has the same type, so that one way to call it serves all:

    void NAME(void **buffers, const int64_t *vars, int64_t thread, void *scratch)

buffers: one pointer for each PARAM; vars: values of the symbolic variables; thread: the part of the
work to do, 0 to num_threads - 1; scratch: memory of this thread alone, 64-byte aligned, or null.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Protocol

from pellucid.core.errors import ExecutionError
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.loader import Loaded
from pellucid.runtime.tape import QUICK, Step, Tape

LONG: Final = QUICK + 1
"""Work of a kernel of which nobody knows how much it is: Python's lock is let go of meanwhile."""


class Call(Protocol):
    """A kernel with its buffers: everything but the values of the variables is fixed."""

    def run(self, vars: Sequence[int] = ()) -> None:
        """Run the kernel and wait for it."""


class Program(ABC):
    """A compiled kernel on a device."""

    name: str

    def __call__(
        self,
        buffers: Sequence[Buffer],
        vars: Sequence[int] = (),
        num_threads: int = 1,
        scratch_bytes: int = 0,
    ) -> None:
        """Run the kernel once and wait for it. Buffers are allocated if they were not."""
        self.bind(buffers, num_threads, scratch_bytes).run(vars)

    @abstractmethod
    def bind(self, buffers: Sequence[Buffer], num_threads: int = 1, scratch_bytes: int = 0) -> Call:
        """Prepare to run the kernel many times on the same buffers."""


class CPUProgram(Program):
    """One function of a loaded object."""

    def __init__(self, name: str, loaded: Loaded) -> None:
        self.name = name
        self._loaded = loaded  # the code stays in memory as long as this
        self.function_address = loaded.address(name)

    def bind(
        self, buffers: Sequence[Buffer], num_threads: int = 1, scratch_bytes: int = 0
    ) -> BoundCall:
        """Prepare to run the kernel many times on the same buffers."""
        if num_threads < 1 or scratch_bytes < 0:
            raise ExecutionError(
                f"kernel {self.name} cannot run on {num_threads} threads "
                f"with {scratch_bytes} bytes of scratch"
            )
        return BoundCall(self, buffers, num_threads, scratch_bytes)

    def __repr__(self) -> str:
        return f"CPUProgram({self.name!r})"


class BoundCall:
    """A kernel with its buffers, ready to run.

    One BoundCall may be run by one thread at a time (its variables and its scratch are its own);
    bind twice to run the same program on the same buffers from two threads.
    """

    __slots__ = ("_buffers", "_keep_alive", "_num_threads", "_program", "_scratch_bytes", "_tape")

    def __init__(
        self, program: CPUProgram, buffers: Sequence[Buffer], num_threads: int, scratch_bytes: int
    ) -> None:
        self._program = program
        self._buffers = tuple([buffer.address for buffer in buffers])
        self._num_threads = num_threads
        self._scratch_bytes = scratch_bytes
        self._keep_alive = [buffer.block for buffer in buffers]
        self._tape = self._with_vars(())

    def _with_vars(self, vars: Sequence[int]) -> Tape:
        step = Step(
            self._program.function_address,
            self._buffers,
            tuple(vars),
            self._num_threads,
            self._scratch_bytes,
            work=LONG,
        )
        tape = Tape([step])
        tape.take_scratch()
        return tape

    def run(self, vars: Sequence[int] = ()) -> None:
        """Run the kernel with these values of its variables, and wait for it."""
        tape = self._tape
        if vars:
            place = tape.vars_place(0)
            if len(tape.words) - place != len(vars):
                tape = self._tape = self._with_vars(vars)
            else:
                for number, value in enumerate(vars):
                    tape.words[place + number] = value
        tape.run()

    __call__ = run


class NullProgram(Program):
    """A kernel that was compiled and will never run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(
        self, buffers: Sequence[Buffer], num_threads: int = 1, scratch_bytes: int = 0
    ) -> NullProgram:
        """Return something that can be run, and does nothing."""
        return self

    def run(self, vars: Sequence[int] = ()) -> None:
        """Do nothing."""
