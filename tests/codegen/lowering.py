"""The passes in order, the form that each leaves, and targets that are the same everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pellucid.codegen.add_control_flow import add_control_flow
from pellucid.codegen.add_loads import add_loads
from pellucid.codegen.assign_grid import assign_grid
from pellucid.codegen.choose_index_width import choose_index_width
from pellucid.codegen.coalesce_memory import coalesce_memory
from pellucid.codegen.collapse_reductions import collapse_reductions
from pellucid.codegen.expand_ranges import expand_ranges
from pellucid.codegen.follow_hints import follow_hints
from pellucid.codegen.lower_reductions import lower_reductions
from pellucid.codegen.move_validity_into_gates import move_validity_into_gates
from pellucid.codegen.simplify_ranges import simplify_ranges
from pellucid.core.target import Target
from pellucid.ir.arg import Action
from pellucid.ir.form import LOOP, NATIVE, SCALAR, VECTOR, Form
from pellucid.ir.uop import UOp
from pellucid.opt.apply_actions import apply_actions

Pass = Callable[[UOp, Target], UOp]

PASSES: tuple[tuple[Pass, Form], ...] = (
    (collapse_reductions, LOOP),
    (simplify_ranges, LOOP),
    (apply_actions, LOOP),
    (expand_ranges, VECTOR),
    (lower_reductions, VECTOR),
    (assign_grid, VECTOR),
    (add_loads, VECTOR),
    (coalesce_memory, VECTOR),
    (choose_index_width, SCALAR),
    (move_validity_into_gates, NATIVE),
    (add_control_flow, NATIVE),
    (follow_hints, NATIVE),
)
TARGET = Target(
    arch="x86-64",
    features=frozenset({"avx512f", "fma"}),
    cores=3,
    native_ops=frozenset({"MULADD"}),
    has_masked_memory=True,
)
SMALL = dataclasses.replace(
    TARGET, features=frozenset({"sse2"}), native_ops=frozenset(), has_masked_memory=False, cores=1
)


def with_actions(sink: UOp, *actions: Action) -> UOp:
    """The kernel with actions asked for."""
    return sink.replace(arg=dataclasses.replace(sink.arg, actions=actions))


def stages(sink: UOp, target: Target = TARGET) -> list[tuple[str, Form, UOp]]:
    """The kernel after each pass: (name of the pass, form that it gives, graph)."""
    result = [("start", LOOP, sink)]
    for run, form in PASSES:
        sink = run(sink, target)
        result.append((run.__name__, form, sink))
    return result


def lowered(sink: UOp, target: Target = TARGET) -> UOp:
    """The kernel after all passes."""
    return stages(sink, target)[-1][2]
