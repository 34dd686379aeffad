"""The frameworks that are measured, by name; each one's module is imported in its own process only.

pellucid        each call builds the expression anew and realises it
pellucid-jit    each call replays a captured schedule
numpy           the plain functions
torch           eager PyTorch
torch-compile   torch.compile
jax             jax.jit
tinygrad        TinyJit
"""

from __future__ import annotations

import importlib

from benchmarks.frameworks.base import Framework, Unavailable

MODULES = {
    "pellucid": "with_pellucid",
    "pellucid-jit": "with_pellucid",
    "numpy": "with_numpy",
    "torch": "with_torch",
    "torch-compile": "with_torch",
    "jax": "with_jax",
    "tinygrad": "with_tinygrad",
}
OWN = ("pellucid", "pellucid-jit")
PEERS = tuple(name for name in MODULES if name not in OWN)
SEPARATE = ("torch", "torch-compile", "jax", "tinygrad")
"""Those that `make bench-peers` installs, in an environment of their own."""


def start(name: str, num_threads: int) -> Framework:
    """Import the framework *name* and set it up. Errors: Unavailable when it is not there."""
    module = importlib.import_module(f"benchmarks.frameworks.{MODULES[name]}")
    try:
        made: Framework = module.start(name, num_threads)
    except ImportError as error:
        raise Unavailable(str(error)) from None
    return made
