"""The forms of a graph: for each level of lowering, which ops may stand there and what they
promise.

    TENSOR -> SCHEDULE -> LOOP -> VECTOR -> SCALAR -> NATIVE -> LINEAR -> PROGRAM

A form is a set of ops and a tuple of checks (checks/), each a sentence. `verify` holds a
graph against a form; the pipeline does so after every stage when asked, the tests always. An
opcode alone never tells the level: ADD stands in six of them. Passes between two forms give the
form whose promises all of them keep, so VECTOR already allows loads and accumulators, which
come with the passes after it.

    TENSOR.problem(ADD of int32 and float32)  ->  "ADD of dtypes.int32, dtypes.float32"

Source: the idea of named, checked levels of one graph is that of dialects and verifiers in
Lattner et al., "MLIR: scaling compiler infrastructure for domain specific computation", 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pellucid.core.records import dataclass
from pellucid.core.target import Target
from pellucid.ir.checks import (
    Check,
    Message,
    TargetCheck,
    accesses,
    args,
    every,
    kernels,
    lists,
    lowered,
    schedules,
    tensors,
)
from pellucid.ir.op import Group, Op, Ops
from pellucid.ir.uop import UOp


@dataclass(frozen=True, eq=False)
class Form:
    """A level: its name, what it is, the ops that may be the root, all ops, and the checks.

    target_checks: checks that are only possible when the target is known.

    >>> LOOP.problem(UOp(Ops.LOAD, Ops.ADD.result([UOp.range(3, 0).dtype]), (UOp.range(3, 0),)))
    'LOAD does not stand in form LOOP'
    """

    name: str
    doc: str
    roots: tuple[Op, ...]
    ops: frozenset[Op]
    checks: tuple[Check, ...]
    target_checks: tuple[TargetCheck, ...] = ()

    def __repr__(self) -> str:
        return self.name

    def problem(self, node: UOp, target: Target | None = None) -> Message:
        """What is wrong with *node*, or None."""
        if node.op not in self.ops:
            return f"{node.op.name} does not stand in form {self.name}"
        for check in self.checks:
            message = check(node)
            if message is not None:
                return message
        for target_check in self.target_checks if target is not None else ():
            message = target_check(node, target)  # type: ignore[arg-type]
            if message is not None:
                return message
        return None

    def without(self, *names: str) -> Form:
        """The form with some checks, given by name, left out: for tests between two passes.

        >>> len(SCALAR.checks) - len(SCALAR.without("index_width_is_chosen").checks)
        1
        """
        kept = tuple(c for c in self.checks if c.__name__ not in names)
        kept_target = tuple(c for c in self.target_checks if c.__name__ not in names)
        return Form(self.name, self.doc, self.roots, self.ops, kept, kept_target)

    def check_names(self) -> tuple[str, ...]:
        """The names of all checks."""
        return tuple(c.__name__ for c in (*self.checks, *self.target_checks))


def _family(*groups: Group) -> frozenset[Op]:
    return frozenset(op for op in Ops.all() if op.group in groups)


_ELEMENTWISE: Final = _family(Group.ELEMENTWISE)
_PORTABLE: Final = frozenset(op for op in _ELEMENTWISE if not op.native_only)
_EXACT: Final = frozenset(op for op in _ELEMENTWISE if op.exact)

_EVERYWHERE: Final[tuple[Check, ...]] = (
    every.sources_fit_the_row,
    args.arg_fits_the_op,
    every.literals_are_of_their_type,
    every.elementwise_sources_agree,
    every.conditions_are_bool,
    every.result_types_follow,
    every.ops_fit_their_types,
    every.bitcasts_keep_the_width,
    every.pairs_are_reduced_as_pairs,
    every.casts_change_the_type,
)
_TENSOR_CHECKS: Final[tuple[Check, ...]] = (
    *_EVERYWHERE,
    tensors.one_lane_each,
    tensors.reduce_has_no_ranges_yet,
    tensors.movement_fits_its_source,
    tensors.pad_fill_is_a_scalar,
    tensors.reduce_names_an_axis,
    tensors.indices_fit_their_tensor,
    tensors.tensors_have_a_shape,  # from here on shapes may be asked for
    tensors.shapes_agree,
    tensors.window_ends_at_its_base,
    tensors.written_values_fit,
    tensors.flag_is_a_scalar_int64,
)
_KERNEL_CHECKS: Final[tuple[Check, ...]] = (
    *_EVERYWHERE,
    kernels.kernel_has_its_info,
    kernels.sink_holds_effects,
    kernels.loops_close_ranges,
    kernels.stores_close_their_ranges,
    kernels.no_open_ranges_at_the_sink,
    kernels.range_ids_differ,
    kernels.params_have_one_slot_each,
    accesses.indices_are_integers,
    accesses.index_is_into_storage,
    accesses.accesses_go_through_an_index,
    accesses.accesses_fit_their_index,
    accesses.loads_have_fallback_and_gate,
    accesses.streamed_stores_are_whole_vectors,
    kernels.reduce_has_no_axes_left,
)
_SCALAR_CHECKS: Final[tuple[Check, ...]] = (
    *_KERNEL_CHECKS,
    lowered.lane_ops_fit,
    lowered.matrices_fit_their_unit,
    lowered.no_lanes_ranges_left,
    lowered.no_launch_ranges_left,
    lowered.index_width_is_chosen,
    accesses.reads_are_loads,
    accesses.no_vector_indices,
)
_NATIVE_CHECKS: Final[tuple[Check, ...]] = (
    *_SCALAR_CHECKS,
    accesses.validity_is_gates,
    lowered.no_functions_left,
)
_NATIVE_TARGET_CHECKS: Final[tuple[TargetCheck, ...]] = (
    lowered.only_native_ops,
    lowered.only_native_dtypes,
)

_LOOP_LEAVES: Final = frozenset([Ops.CONST, Ops.VARIABLE, Ops.PARAM, Ops.RANGE])
_LOOP_EFFECTS: Final = frozenset([Ops.INDEX, Ops.STORE, Ops.GROUP, Ops.END, Ops.SINK])
_REDUCTIONS: Final = frozenset([Ops.REDUCE, Ops.PAIR])
_LANES: Final = _family(Group.VECTOR)
_MEMORY: Final = frozenset(
    [Ops.DEFINE, Ops.SPECIAL, Ops.LOAD, Ops.PREFETCH, Ops.AFTER, Ops.BARRIER]
)

TENSOR: Final = Form(
    "TENSOR",
    "Whole tensors: movement, reductions over axes, elementwise ops of one shape.",
    (),
    frozenset([Ops.CONST, Ops.BUFFER, Ops.PARAM, Ops.IOTA, Ops.SINK])
    | _PORTABLE
    | _family(Group.MOVEMENT, Group.TENSOR)
    | {Ops.PAIR},
    _TENSOR_CHECKS,
)
SCHEDULE: Final = Form(
    "SCHEDULE",
    "A list of CALLs, in the order of execution; each kernel is in form LOOP, or a PROGRAM.",
    (Ops.LINEAR,),
    frozenset([Ops.LINEAR, Ops.CALL, Ops.BUFFER, Ops.PARAM, Ops.SINK, Ops.COPY, Ops.PROGRAM]),
    (
        args.arg_fits_the_op,
        schedules.schedule_lists_calls,
        schedules.calls_name_storage,
        schedules.calls_fit_their_kernel,
    ),
)
LOOP: Final = Form(
    "LOOP",
    "One kernel: STOREs over RANGEs; INDEX reads by itself, no movement is left.",
    (Ops.SINK,),
    _LOOP_LEAVES | _LOOP_EFFECTS | _PORTABLE | _REDUCTIONS | {Ops.DEFINE, Ops.AFTER},
    (
        *_KERNEL_CHECKS,
        lowered.no_lanes_yet,
        accesses.index_is_unbounded,
        kernels.reduce_names_a_range,
        kernels.reduces_have_ranges_of_their_own,
    ),
)
VECTOR: Final = Form(
    "VECTOR",
    "LANES ranges are lanes, UPCAST and UNROLL ranges copies; loads and accumulators follow.",
    (Ops.SINK,),
    _LOOP_LEAVES | _LOOP_EFFECTS | _ELEMENTWISE | _LANES | _MEMORY | _REDUCTIONS,
    (
        *_KERNEL_CHECKS,
        lowered.lane_ops_fit,
        lowered.matrices_fit_their_unit,
        lowered.no_lanes_ranges_left,
        accesses.index_is_unbounded,
        kernels.reduce_names_a_range,
    ),
)
SCALAR: Final = Form(
    "SCALAR",
    "Reductions are loops around accumulators, reads are LOADs, integers have a width.",
    (Ops.SINK,),
    _LOOP_LEAVES | _LOOP_EFFECTS | _ELEMENTWISE | _LANES | _MEMORY,
    _SCALAR_CHECKS,
)
NATIVE: Final = Form(
    "NATIVE",
    "Only ops and types that the target has; validity is gates.",
    (Ops.SINK,),
    _LOOP_LEAVES | _LOOP_EFFECTS | _EXACT | _LANES | _MEMORY,
    _NATIVE_CHECKS,
    _NATIVE_TARGET_CHECKS,
)
LINEAR: Final = Form(
    "LINEAR",
    "The same ops in order, loops and branches explicit, SINK last.",
    (Ops.LINEAR,),
    NATIVE.ops | {Ops.LINEAR, Ops.IF, Ops.ENDIF},
    (
        *_NATIVE_CHECKS,
        lists.each_source_comes_first,
        lists.loops_nest,
        lists.values_stay_in_their_loop,
        lists.sink_is_last,
    ),
    _NATIVE_TARGET_CHECKS,
)
PROGRAM: Final = Form(
    "PROGRAM",
    "A compiled kernel: SINK in form NATIVE, its LINEAR, SOURCE and BINARY.",
    (Ops.PROGRAM,),
    frozenset([Ops.PROGRAM, Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY]),
    (args.arg_fits_the_op, schedules.program_has_its_parts),
)
FORMS: Final = (TENSOR, SCHEDULE, LOOP, VECTOR, SCALAR, NATIVE, LINEAR, PROGRAM)


def forms_table() -> str:
    """Write the docs' page: for each form what it is, its ops, its checks as sentences."""
    parts = []
    known: set[str] = set()
    for form in FORMS:
        parts.append(f"## {form.name}\n\n{form.doc}\n\nOps: {_op_list(form.ops)}.\n")
        rows = [c for c in (*form.checks, *form.target_checks) if c.__name__ not in known]
        known |= {c.__name__ for c in rows}
        if rows:
            parts.append("| check | what it says |\n|---|---|")
            parts.append("\n".join(f"| `{c.__name__}` | {_sentence(c)} |" for c in rows) + "\n")
    return "\n".join(parts)


def _sentence(check: object) -> str:
    return " ".join((check.__doc__ or "").split())


def _op_list(ops: Iterable[Op]) -> str:
    """Whole families by name, other ops one by one."""
    left = set(ops)
    texts = []
    for group in Group:
        members = _family(group)
        if len(members) > 1 and members <= left:
            texts.append(f"all {group.value} ops")
            left -= members
    return ", ".join([*texts, *(f"`{op.name}`" for op in Ops.all() if op in left)])
