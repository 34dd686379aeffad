"""The garbage collector, held back while many objects are made that do not die in cycles.

    with no_collection():
        ...                 graphs are built, rewritten and compiled

Nodes and tables of a graph hold their sources and nothing holds them back, so that reference counts
free all of them. The collector looks for cycles after every few hundred new objects, finds none,
and takes a tenth of the time of a compilation.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Look for no cycles in a block; whoever held the collector back before keeps doing so.

    Threads share one collector: it works again as soon as the block ends in which it was stopped.

    >>> with no_collection():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
