"""Kernels with actions forced on them, run as machine code and held against the interpreter.

    subject(kernel)            the kernel before actions are chosen, inputs, what it has to compute
    singles(subject, target)   every action that is legal on it: of each kind, on each axis
    check(subject, lists, …)   compile the kernel with each list, run it, compare
    check_lowered(subject, …)  the same in the interpreter, which finds races and bad accesses

What a kernel has to compute is what the interpreter makes of it lowered without any action:
functions are then spelled as in machine code, and results agree in every bit, but for the order of
sums.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pellucid.codegen.linearize import linearize
from pellucid.core.dtype import DType, dtypes
from pellucid.core.errors import ActionError
from pellucid.core.target import Target
from pellucid.engine.beam import _BEFORE, tolerances_for
from pellucid.ir.arg import Action, ProgramInfo
from pellucid.ir.interpret import run_kernel
from pellucid.ir.interpret.values import Array, from_storage, to_storage
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.opt.actions.table import _STEPS, apply_action
from pellucid.opt.axes import axes_of
from pellucid.opt.searching.moves import next_actions
from pellucid.pipeline import full_rewrite_to_sink, renderer_for, run_stages, to_programs
from pellucid.runtime.device import Device
from pellucid.tools.kernels import buffers_for
from tests.codegen.lowering import with_actions

Actions = tuple[Action, ...]

KINDS = tuple(sorted(_STEPS.keys() - {"each"}))  # `each` holds lists of the others
AMOUNTS = (0, 1, 2, 3, 4, 5, 8, 16)
MOST_BYTES = 1 << 18
"""Larger kernels take the interpreter too long."""


@dataclass
class Subject:
    """A kernel before actions are chosen, its buffers before a run, and after it."""

    sink: UOp
    before: list[Array]
    after: list[Array]


@dataclass
class Tally:
    """What was tried: kernels, lists of actions, and actions by kind."""

    kernels: int = 0
    lists: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, lists: Sequence[Actions]) -> None:
        """Count one kernel, and the lists that it was run with."""
        self.kernels += 1
        self.lists += len(lists)
        self.kinds.update(action.kind for actions in lists for action in actions)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        return f"{self.lists} lists of actions on {self.kernels} kernels: {kinds}"


def subject(ast: UOp, seed: int = 0) -> Subject | None:
    """A kernel with inputs; None for one that is too large, or that takes variables."""
    target = renderer_for("CPU:LLVM").target
    sink = run_stages(_BEFORE, ast, target)
    nodes = sink.toposort()
    params = {n.arg.slot: n for n in nodes if n.op is Ops.PARAM}
    size_bytes = sum(n.dtype.itemsize * n.arg.size for n in params.values())
    if any(n.op is Ops.VARIABLE for n in nodes) or size_bytes > MOST_BYTES or not params:
        return None
    numbers = np.random.default_rng(seed)
    before = []
    for slot in range(max(params) + 1):
        node = params.get(slot)
        known = (node.dtype, node.arg.size) if node is not None else (dtypes.uint8, 0)
        before.append(_values(*known, numbers))
    after = [array.copy() for array in before]
    run_kernel(full_rewrite_to_sink(with_actions(sink), target), after)
    return Subject(sink, before, after)


def _values(dtype: DType, size: int, numbers: np.random.Generator) -> Array:
    """Small whole numbers, as storage holds them: sums of floats are exact."""
    is_place = dtype.is_unsigned or dtype is dtypes.int64  # of an element, as the kernels have it
    low, high = (0, 2) if dtype.is_bool else (0, 11) if is_place else (-6, 9)
    drawn = numbers.integers(low, high, size)
    return to_storage(dtype, drawn.astype(np.float64 if dtype.is_float else np.int64))


# ---- lists of actions ----------------------------------------------------------------------------


def applied(sink: UOp, actions: Iterable[Action], target: Target) -> UOp | None:
    """The kernel with actions, in LOOP form; None where one of them is refused."""
    try:
        for action in actions:
            sink = apply_action(sink, action, target)
    except ActionError:
        return None
    return sink


def singles(sink: UOp, target: Target, numbers: random.Random, most: int) -> list[Action]:
    """The actions that are legal: of each kind on each axis, at most *most* amounts by chance."""
    known = list(next_actions(sink, target))
    places = range(len(axes_of(sink)))
    others = (Action(*row) for row in itertools.product(KINDS, places, AMOUNTS))
    families: dict[tuple[str, int], list[Action]] = {}
    for action in dict.fromkeys((*known, *others)):
        if applied(sink, [action], target) is not None:
            families.setdefault((action.kind, action.axis), []).append(action)
    for family in families.values():
        numbers.shuffle(family)
    return [action for family in families.values() for action in family[:most]]


def several(sink: UOp, target: Target, numbers: random.Random) -> Actions | None:
    """Two to five actions, each legal after those before it; None where there are not two."""
    chosen: list[Action] = []
    wanted = numbers.randint(2, 5)
    for _ in range(12 * wanted):
        count = len(axes_of(sink))
        if count == 0 or len(chosen) == wanted:
            break
        amount = numbers.choice(AMOUNTS)
        action = Action(numbers.choice(KINDS), numbers.randrange(count), amount)
        after = applied(sink, [action], target)
        if after is not None:
            chosen.append(action)
            sink = after
    return tuple(chosen) if len(chosen) > 1 else None


# ---- running -------------------------------------------------------------------------------------


def check(one: Subject, lists: Sequence[Actions], device: str) -> None:
    """Run a kernel with each list of actions; fail with the first that computes something else."""
    asts = [with_actions(one.sink, *actions) for actions in lists]
    tolerances = tolerances_for(one.sink)
    for actions, program in zip(lists, to_programs(asts, renderer_for(device)), strict=True):
        got = _run(program, one.before, device)
        problem = next(_differences(one, got, tolerances), None)
        assert problem is None, f"{problem}, on {device}, by {list(actions)} of\n{one.sink!r}"


def check_lowered(one: Subject, actions: Actions, seed: int) -> None:
    """Let the interpreter run a kernel with a list of actions, its threads in a random order."""
    lowered = full_rewrite_to_sink(
        with_actions(one.sink, *actions), renderer_for("CPU:LLVM").target
    )
    got = [array.copy() for array in one.before]
    run_kernel(linearize(lowered), got, order="random", seed=seed)
    problem = next(_differences(one, got, tolerances_for(one.sink)), None)
    assert problem is None, f"{problem}, interpreted, by {list(actions)} of\n{one.sink!r}"


def _run(program: UOp, before: Sequence[Array], device: str) -> list[Array]:
    info: ProgramInfo = program.arg
    buffers = buffers_for(info, device)
    for buffer, array in zip(buffers, before, strict=False):
        buffer.copy_from(array.tobytes())
    binary = next(source.arg for source in program.src if source.op is Ops.BINARY)
    loaded = Device[device].load(binary, info.name)
    loaded(buffers, num_threads=info.num_threads, scratch_bytes=info.scratch_bytes)
    return [
        np.frombuffer(buffer.tobytes(), array.dtype)
        for buffer, array in zip(buffers, before, strict=False)
    ]


def _differences(
    one: Subject, got: Sequence[Array], tolerances: Sequence[float | None]
) -> Iterator[str]:
    types = {n.arg.slot: n.dtype for n in one.sink.toposort() if n.op is Ops.PARAM}
    for slot, came in enumerate(got):
        dtype, tolerance = types.get(slot, dtypes.uint8), tolerances[slot]
        want, have = from_storage(dtype, one.after[slot]), from_storage(dtype, came)
        equal = (want == have) | ((want != want) & (have != have))
        if tolerance is not None:
            scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
            with np.errstate(invalid="ignore"):
                equal |= np.abs(want - have) <= tolerance * scale
        if not equal.all():
            at = int(np.argmin(equal))
            yield f"parameter {slot}, element {at}: {want[at]} is right, {have[at]} came"
