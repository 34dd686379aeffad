"""The oracle: run a graph in any form in plain numpy. What it computes is what a graph means.

    evaluate(node, buffers)              TENSOR form: the value of a node
    run_schedule(linear, buffers)        SCHEDULE form: every CALL in order
    run_kernel(root, buffers, vars)      LOOP, VECTOR, SCALAR, NATIVE and LINEAR forms, in place

    values.py     types as arrays, casts                   arithmetic.py  elementwise ops, sums
    tensors.py    whole tensors                            structure.py   the order of a kernel
    machine.py    one work-item                            loops.py       all iterations at once
    memory.py     bounds, races                            kernels.py     launches, schedules
    mapping.py    what is read for what                    overlaps.py    who may write twice

Slow and obvious wins over fast: this is what every pass and every backend is compared with.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pellucid.ir.interpret.kernels import interpret, run_kernel, run_schedule
    from pellucid.ir.interpret.mapping import value_mapping
    from pellucid.ir.interpret.tensors import evaluate, evaluate_all
    from pellucid.ir.interpret.values import cast_values, from_storage, round_values, to_storage

__all__ = [
    "cast_values",
    "evaluate",
    "evaluate_all",
    "from_storage",
    "interpret",
    "round_values",
    "run_kernel",
    "run_schedule",
    "to_storage",
    "value_mapping",
]

_HOME: Final = {
    "kernels": ("interpret", "run_kernel", "run_schedule"),
    "mapping": ("value_mapping",),
    "tensors": ("evaluate", "evaluate_all"),
    "values": ("cast_values", "from_storage", "round_values", "to_storage"),
}


def __getattr__(name: str) -> Any:
    """Import a part when it is first asked for: programs mostly need `values` alone."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
