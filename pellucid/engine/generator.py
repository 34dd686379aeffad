"""Random numbers without hidden state in the graph: a counter and a key.

    generator.draw(6)  ->  BUFFER [counter, key]        and the counter moves on by 6

Number i of a draw is a function of (counter + i, key) alone: Threefry-2x32 (Salmon, Moraes, Dror
and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011). So a tensor of random numbers has
its value from the moment it is created, on every device and however it is fused. The counter is
read from a small buffer, not written into the program: all draws of one shape share one kernel, and
a captured schedule draws anew by filling the buffer.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from pellucid.core.dtype import dtypes
from pellucid.engine import capture
from pellucid.engine.memory import buffer_with
from pellucid.ir.uop import UOp

_MASK: Final = (1 << 64) - 1


class Generator:
    """A stream of random numbers; each draw takes the next ones.

    >>> stream = Generator(seed=7)
    >>> stream.advance(10), stream.advance(5), stream.counter
    (0, 10, 15)
    """

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start again, from the numbers that belong to *seed*."""
        capture.forbid("manual_seed", "call it before the function")
        with self._lock:
            self.key = int(seed) & _MASK
            self.counter = 0
        return self

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        return self.key

    def advance(self, count: int) -> int:
        """Take *count* numbers; return the place of the first."""
        with self._lock:
            start = self.counter
            self.counter = (start + count) & _MASK
            return start

    def draw(self, count: int, device: str) -> UOp:
        """Take *count* numbers; return a BUFFER of two uint64: place of the first, and key."""
        start = self.advance(count)
        words = np.array([start, self.key], np.uint64)
        node = buffer_with(words, dtypes.uint64, device)
        capture.note_draw(self, node, count)
        return node


default_generator: Final = Generator()
"""The stream that is used unless another one is given."""
