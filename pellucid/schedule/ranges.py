"""Give every node its ranges, from the consumers down, and decide what is stored on the way.

Form before: TENSOR over PARAMs (normalise.py). After: a `Plan`: which nodes are stored, each by a
`Draft` of a kernel, and for every other node at which indices each kernel computes it.

    SINK(ADD(RESHAPE(PARAM 0, (4, 3)), EXPAND(REDUCE(...))))

    ADD     stored: output asked for                 at (i, j)
    RESHAPE computed by the kernel of ADD            at (i, j)
    PARAM 0 read by the kernel of ADD                at (i*3 + j,)
    REDUCE  stored: the reduction is used again …    at (i,), over (k,)

Nodes are visited consumers first, so when a node's turn comes it is known who wants it, at which
indices, and how often in all: `fuse.why_stored` decides from that. One visit for each node and one
step for each (node, index) pair; shared subgraphs are shared by the pair.

What is read at an index that another tensor holds (GATHER) is not known yet on the way down: the
index is a placeholder VARIABLE with the right bounds, exchanged for the value when kernels are cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pellucid.core.dtype import dtypes
from pellucid.ir.arg import AxisKind, VariableArg
from pellucid.ir.op import TRANSCENDENTAL, Ops, Shape
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Plan, Step, base_of
from pellucid.schedule.facts import STORAGE, Facts
from pellucid.schedule.fuse import Wanted, why_stored
from pellucid.schedule.nests import executions, outermost, ranges_of
from pellucid.schedule.views import (
    ZERO,
    Index,
    Use,
    both,
    flat_index,
    source_index,
    window_index,
)

_FIRST_REDUCE_ID = 1000

NODES_OF_FUNCTION = 8
"""An exp or a sin counts as so many operations against the limit of a kernel."""


def output_ranges(shape: Shape) -> Index:
    """One RANGE for each axis of an output; axes of size 1 need none.

    >>> [index.op.name for index in output_ranges((4, 1, 3))]
    ['RANGE', 'CONST', 'RANGE']
    """
    index: list[UOp] = []
    number = 0
    for size in shape:
        index.append(ZERO if size == 1 else UOp.range(size, number))
        number += size != 1
    return tuple(index)


def reduce_ranges(sizes: Shape, first_id: int) -> Index:
    """One RANGE for each axis that a reduction removes; every REDUCE has ranges of its own.

    >>> [index.op.name for index in reduce_ranges((3, 1), 1000)]
    ['RANGE', 'CONST']
    """
    return tuple(
        ZERO if size == 1 else UOp.range(size, first_id + axis, AxisKind.REDUCE)
        for axis, size in enumerate(sizes)
    )


def _only_ranges(index: Iterable[UOp]) -> tuple[UOp, ...]:
    return tuple(position for position in index if position.op is Ops.RANGE)


def _adds_products(node: UOp) -> bool:
    value = node.src[0]
    while value.op is Ops.CAST or (value.op.is_movement and value.op is not Ops.PAD):
        value = value.src[0]  # products of windows are put in order before they are added
    return node.arg.op is Ops.ADD and value.op is Ops.MUL


def assign_ranges(sink: UOp, facts: Facts, order: Sequence[UOp], asked: dict[UOp, str]) -> Plan:
    """Walk the graph consumers first; *asked* says which nodes are stored in any case, and why."""
    return _Walk(Plan(list(order), facts), asked).run()


class _Walk:
    """The walk's state: who wants what."""

    def __init__(self, plan: Plan, asked: dict[UOp, str]) -> None:
        self.plan = plan
        self.facts = plan.facts
        self.asked = asked
        self.wanted: dict[UOp, dict[Draft, dict[Use, int]]] = {}
        self.next_range = _FIRST_REDUCE_ID
        self.needed = {node for node, reason in asked.items() if reason}

    def run(self) -> Plan:
        for node in reversed(self.plan.order):
            if node.op is Ops.SINK:
                continue
            wanted = self.wanted.pop(node, {})
            if wanted or node in self.needed:
                self.visit(node, wanted)
        return self.plan

    def visit(self, node: UOp, wanted: dict[Draft, dict[Use, int]]) -> None:
        if node.op is Ops.PARAM:
            self.note_reads(node, wanted)
            return
        reason = self.asked.get(node) or why_stored(
            node, Wanted(wanted, self.plan.around), self.facts
        )
        if reason is not None:
            self.note_reads(node, wanted)
            self.store(node, reason)
            return
        for draft, uses in wanted.items():
            draft.frontier.discard(node)
            for use, evaluations in uses.items():
                self.compute(node, use, evaluations, draft)

    def note_reads(self, node: UOp, wanted: dict[Draft, dict[Use, int]]) -> None:
        for draft, uses in wanted.items():
            draft.frontier.discard(node)
            draft.reads[node] = uses

    def want(self, node: UOp, use: Use, evaluations: int, draft: Draft) -> None:
        uses = self.wanted.setdefault(node, {}).setdefault(draft, {})
        uses[use] = max(uses.get(use, 0), evaluations)
        if node in self.facts.has_storage:
            draft.frontier.add(node)

    # ---- what is stored --------------------------------------------------------------------------

    def store(self, node: UOp, reason: str) -> None:
        if node.num_elems == 0:
            return
        if node.op is Ops.WRITE:
            self.store_write(node, reason)
        elif node.op is Ops.SCATTER:
            self.store_scatter(node, reason, node.src[0], node, None)
        elif self.facts.is_copy(node):
            source = base_of(node.src[0])
            self.need(source, "read by a copy to another device")
            draft = self.draft(node, reason, (), ZERO, source, ((), None))
            draft.is_copy = True
            draft.reads[source] = {}
        else:
            index = output_ranges(node.known_shape)
            draft = self.draft(
                node, reason, index, flat_index(node.known_shape, index), node, (index, None)
            )
            self.compute(node, (index, None), draft.num_iterations, draft)

    def need(self, node: UOp, reason: str) -> None:
        """Make sure that *node* will be in memory."""
        if node.op is not Ops.PARAM:
            self.asked.setdefault(node, reason)
            self.needed.add(node)

    def draft(
        self, root: UOp, reason: str, index: Index, store_index: UOp, value: UOp, use: Use
    ) -> Draft:
        ranges = _only_ranges(index)
        count = math.prod(each.src[0].arg for each in ranges)
        draft = Draft(
            len(self.plan.drafts),
            root,
            self.facts.device[root],
            reason,
            ranges,
            count,
            value,
            use,
            store_index,
        )
        self.plan.drafts.append(draft)
        self.plan.stored[root] = draft
        return draft

    def store_write(self, node: UOp, reason: str) -> None:
        base, window, value = node.src
        if value.op is Ops.SCATTER and value.src[0] is window and value not in self.asked:
            if value not in self.wanted:
                self.store_scatter(node, reason, base, value, window)
                return
        index = output_ranges(window.known_shape)
        store_index = flat_index(base.known_shape, window_index(window, base, index))
        draft = self.draft(node, reason, index, store_index, value, (index, None))
        draft.covers_base = window.num_elems == base.num_elems
        self.write_over(draft, base_of(base))
        self.want(value, (index, None), draft.num_iterations, draft)

    def write_over(self, draft: Draft, base: UOp) -> None:
        if draft.covers_base and base.op not in STORAGE:
            return
        draft.base = base
        self.need(base, "written to in place")

    def store_scatter(
        self, root: UOp, reason: str, base: UOp, scatter: UOp, window: UOp | None
    ) -> None:
        """SCATTER itself, or a WRITE of one through the window that it is based on."""
        target, value, *indices = scatter.src
        num_rows = len(indices[0].known_shape)
        index = output_ranges(value.known_shape)
        use = (index[:num_rows], None)
        rows, valid = self.indirect(indices, target.known_shape, use, "place")
        place = (*rows, *index[num_rows:])
        if window is not None:
            place = window_index(window, base, place)
        draft = self.draft(
            root, reason, index, flat_index(base.known_shape, place), value, (index, None)
        )
        draft.store_valid, draft.ordered = valid, True
        draft.combine = scatter if scatter.arg is not None else None
        self.write_over(draft, base_of(base))
        self.want(value, (index, None), draft.num_iterations, draft)
        for each in indices:
            self.want(each, (index[:num_rows], None), draft.num_iterations, draft)

    # ---- what is computed where it is wanted -----------------------------------------------------

    def compute(self, node: UOp, use: Use, evaluations: int, draft: Draft) -> None:
        """Let *draft* compute *node* at *use*: pass the wish on to its sources."""
        key = (node, use)
        step = self.plan.steps.get(key)
        if step is None:
            step = self.plan.steps[key] = self.step(node, use)
        if node.op is Ops.REDUCE:
            evaluations = self.compute_reduce(node, use, evaluations, draft)
        if node.op.is_elementwise or node.op in (Ops.REDUCE, Ops.PAIR, Ops.GATHER, Ops.PAD):
            draft.num_nodes += NODES_OF_FUNCTION if node.op in TRANSCENDENTAL else 1
        for source, source_use in step:
            self.want(source, source_use, evaluations, draft)

    def compute_reduce(self, node: UOp, use: Use, evaluations: int, draft: Draft) -> int:
        """Note a reduction in a kernel; how often its source is evaluated."""
        sizes = tuple(int(each.src[0].arg) for each in self.plan.loops[node, use])
        if sizes:
            draft.loops.add(sizes)
            draft.leading.add(outermost(draft, use, self.plan.around))
            contracts = self.facts.rows[node].contracts
            draft.contracts |= contracts
            draft.multiplies |= contracts and _adds_products(node)
        runs = min(evaluations, executions(draft, use, self.plan.around))
        return runs * math.prod(sizes)

    def step(self, node: UOp, use: Use) -> Step:
        """The sources of *node* and where they are read, to have it at *use*."""
        index, valid = use
        op = node.op
        if op.is_elementwise or op is Ops.PAIR:
            return tuple((source, use) for source in node.src)
        if op is Ops.PAD:
            return self.step_pad(node, use)
        if op.is_movement:
            return ((node.src[0], (source_index(node, index)[0], valid)),)
        if op is Ops.REDUCE:
            return self.step_reduce(node, use)
        if op is Ops.GATHER:
            return self.step_gather(node, use)
        return ((node.src[0], use),) if node.src else ()

    def step_pad(self, node: UOp, use: Use) -> Step:
        source, fill = node.src
        index, outer = use
        inner_index, valid = source_index(node, index)
        filled = (fill, ((), outer))
        if source.num_elems == 0 or (valid is not None and valid.is_const and not valid.arg):
            return (filled,)
        if valid is None or valid.is_const:
            return ((source, (inner_index, outer)),)
        self.plan.valid[node, use] = valid
        return ((source, (inner_index, both(outer, valid))), filled)

    def step_reduce(self, node: UOp, use: Use) -> Step:
        source, (index, valid) = node.src[0], use
        shape, axes = source.known_shape, node.arg.axes
        self.plan.loops[node, use] = ()
        if source.num_elems == 0:
            return ()
        loops = reduce_ranges(tuple(shape[axis] for axis in axes), self.next_range)
        self.next_range += len(axes)
        self.plan.loops[node, use] = own = _only_ranges(loops)
        outside = ranges_of(use)
        self.plan.around |= {r: (*outside, *own[:place]) for place, r in enumerate(own)}
        inner, outer = dict(zip(axes, loops, strict=True)), iter(index)
        full = tuple(inner[a] if a in inner else next(outer) for a in range(len(shape)))
        return ((source, (full, valid)),)

    def step_gather(self, node: UOp, use: Use) -> Step:
        (source, *indices), (index, outer) = node.src, use
        if source.num_elems == 0:
            return ()
        num_rows = len(indices[0].known_shape)
        rows, valid = self.indirect(indices, source.known_shape, (index[:num_rows], outer))
        if valid is not None:
            self.plan.valid[node, use] = valid
        row_uses = tuple((each, (index[:num_rows], outer)) for each in indices)
        return ((source, ((*rows, *index[num_rows:]), outer)), *row_uses)

    def indirect(
        self, indices: Sequence[UOp], shape: Shape, use: Use, what: str = "row"
    ) -> tuple[Index, UOp | None]:
        """Placeholders for rows that *indices* hold at *use*, and the condition that they exist.

        A "row" is one that exists in any case, a "place" only under that condition.
        """
        rows: list[UOp] = []
        valid: UOp | None = None
        for each, size in zip(indices, shape, strict=False):
            rows.append(self.placeholder(what, each, use, size))
            valid = both(valid, self.placeholder("valid", each, use, size))
        return tuple(rows), valid

    def placeholder(self, what: str, node: UOp, use: Use, size: int) -> UOp:
        key = (what, node, use, size)
        known = self.plan.placeholders.get(key)
        if known is not None:
            return known
        is_row = what != "valid"
        made = UOp(
            Ops.VARIABLE,
            dtypes.index if is_row else dtypes.bool,
            ranges_of(use),
            VariableArg(
                f"?{what}{len(self.plan.placeholders)}", 0, max(size - 1, 0) if is_row else 1
            ),
        )
        self.plan.placeholders[key] = made
        return made
