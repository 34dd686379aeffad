"""Tapes: many kernel calls that run as one native call, on buffers that can be exchanged.

    Tape([Step(add, (4096, 8192, 12288)), Step(mul, ...)])
      .run()                          all steps in order: 40 ns, and 3 ns for each kernel
      .words[tape.places[0] + 1] = a  from now on step 0 reads its buffer 1 at address a
      .player_on([[16], [17, 20]])    a function: write two addresses to three words, then run

    words  | count, lock | function, buffers, vars, threads, scratch, stride | … | addresses, vars |
             header        one entry for each step (native_code.py)              what entries name

A tape knows addresses only: whoever runs it holds the buffers meanwhile, and scratch. It may be run
by one thread at a time, because its addresses are its own.

Python's lock is let go of while a tape runs that takes long enough (several threads, or more than
`QUICK` operations): letting go costs 50 ns, and up to 5 ms (`sys.getswitchinterval`) to get it back
when another Python thread computes, which is also what Python lets the others wait.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from pellucid.core.dtype import dtypes
from pellucid.core.records import dataclass
from pellucid.runtime.buffer import Buffer
from pellucid.runtime.native import native
from pellucid.runtime.threads import run_in_parallel

QUICK: Final = 1_000_000
"""Operations and bytes together that take no longer than about 100 us."""

_HEADER_WORDS: Final = 8
_ENTRY_WORDS: Final = 8
_SCRATCH_ALIGNMENT: Final = 64
_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a kernel: its address, its arguments, and how much work it is."""

    function: int
    buffers: tuple[int, ...]
    vars: tuple[int, ...] = ()
    num_threads: int = 1
    scratch_bytes: int = 0
    work: int = 0


class Tape:
    """Calls that run in order.

    keep_alive: what has to exist as long as the tape, programs above all.

    >>> Tape([]).run()
    """

    __slots__ = (
        "_address",
        "_held",
        "_steps",
        "places",
        "run",
        "scratch_bytes",
        "scratch_places",
        "words",
    )

    def __init__(self, steps: Sequence[Step], keep_alive: object = None) -> None:
        self._steps = tuple(steps)
        self.scratch_bytes: int = max((_stride(s) * s.num_threads for s in steps), default=0)
        """Scratch for the step that needs most: only one runs at a time."""
        self.scratch_places: list[int] = []
        """The indices in `words` where the address of scratch stands."""
        self.places: list[int] = []
        """For each step, the index in `words` of the address of its first buffer."""
        self.words: array[int] = self._written()
        self._address = self.words.buffer_info()[0]
        self._point()
        self._held = [keep_alive, self.words]
        functions = native()
        self.run: Callable[[], None] = (
            self._run_by_ctypes
            if functions is None
            else functions.player(self._address, self._held)
        )
        """Run all steps, with the addresses of now."""

    def take_scratch(self) -> None:
        """Give the tape scratch of its own, for as long as it exists."""
        if self.scratch_bytes:
            scratch = Buffer("CPU", self.scratch_bytes, dtypes.uint8)
            self._held.append(scratch)
            for place in self.scratch_places:
                self.words[place] = scratch.address

    def twin(self) -> Tape:
        """Return a tape of the same steps, at the addresses of now, with the same scratch.

        The two must not run at the same time, which quick ones never do.
        """
        made = Tape(self._steps, self._held)
        addresses = _HEADER_WORDS + _ENTRY_WORDS * len(self._steps)
        for place in (*self.scratch_places, *range(addresses, len(self.words))):
            made.words[place] = self.words[place]
        return made

    @property
    def is_quick(self) -> bool:
        """True where Python's lock is kept while the tape runs: no other thread comes between."""
        return not self.words[1] and native() is not None

    def player_on(self, places: Sequence[Sequence[int]]) -> Callable[..., bool]:
        """Return a function of addresses, one for each list of indices in `words`, that runs.

        False says that another thread plays a long tape meanwhile, and that nothing was done: a
        quick tape, which may be run without any other lock, does not run beside it.
        """
        functions = native()
        if functions is None:
            return functools.partial(self._run_on, places)
        size = self.words.itemsize
        targets = [[self._address + size * place for place in found] for found in places]
        pairs = [(number, to) for number, found in enumerate(targets) for to in found]
        plan = array("q", [self._address, len(places), len(pairs), *itertools.chain(*pairs)])
        return functions.player_on(plan.buffer_info()[0], (plan, self._held))

    def _run_on(self, places: Sequence[Sequence[int]], *addresses: int) -> bool:
        for address, found in zip(addresses, places, strict=True):
            for place in found:
                self.words[place] = address
        self.run()
        return True

    def vars_place(self, step: int) -> int:
        """Return the index in `words` of the first variable of a step."""
        return self.places[step] + len(self._steps[step].buffers)

    def _written(self) -> array[int]:
        """The words, with offsets where addresses within the tape will be."""
        is_slow = any(s.num_threads > 1 for s in self._steps) or self._work > QUICK
        words = [len(self._steps), int(is_slow), *(0,) * (_HEADER_WORDS - 2)]
        place = _HEADER_WORDS + _ENTRY_WORDS * len(self._steps)
        tail: list[int] = []
        for step in self._steps:
            self.places.append(place)
            stride = _stride(step)
            if stride:
                self.scratch_places.append(len(words) + 4)
            words += [step.function, 0, 0, step.num_threads, 0, stride, 0, 0]
            tail += [*step.buffers, *step.vars]
            place += len(step.buffers) + len(step.vars)
        return array("q", words + tail)

    def _point(self) -> None:
        """Let each entry point to its addresses and variables."""
        for number, place in enumerate(self.places):
            entry = _HEADER_WORDS + _ENTRY_WORDS * number
            self.words[entry + 1] = self._address + 8 * place
            self.words[entry + 2] = self._address + 8 * self.vars_place(number)

    @property
    def _work(self) -> int:
        return sum(step.work for step in self._steps)

    def _run_by_ctypes(self) -> None:
        """Run without the native functions."""
        for number in range(len(self._steps)):
            entry = _HEADER_WORDS + _ENTRY_WORDS * number
            function, buffers, vars_, threads, scratch, stride = self.words[entry : entry + 6]
            if threads > 1:
                run_in_parallel(function, buffers, vars_, threads, scratch, stride)
            else:
                kernel: Any = _Kernel(function)
                kernel(buffers, vars_, 0, scratch or None)


def _stride(step: Step) -> int:
    """Bytes of scratch for each thread of a step, rounded up."""
    return -(-step.scratch_bytes // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT


_Copy = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))


def _copy(buffers: Any, vars_: Any) -> None:
    ctypes.memmove(buffers[0], buffers[1], vars_[0])


_copy_by_ctypes = _Copy(_copy)


def copy_function() -> int:
    """Return the address of a kernel: vars[0] bytes from its buffer 1 to its buffer 0."""
    functions = native()
    if functions is not None:
        return functions.copy_bytes
    return ctypes.cast(_copy_by_ctypes, ctypes.c_void_p).value or 0
