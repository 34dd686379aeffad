"""What each kernel computes, as an expression over its ranges.

Form before: a `Plan` (ranges.py). After: for each draft of a kernel the expression that it stores,
in LOOP form, over *handles*: PARAMs that stand for a version of storage, one for each stored node.

    ADD at (i, j), of RESHAPE(PARAM 0) at (i, j) and a stored REDUCE at (i,)
        ->  ADD(INDEX(PARAM 0, i*3 + j), INDEX(handle of REDUCE, i))

A PAD becomes WHERE(valid, x, fill), and all INDEXes below it carry `valid` too, so that nothing
outside of memory is touched.
"""

from __future__ import annotations

from pellucid.core.dtype import DType, dtypes
from pellucid.ir.arg import ParamArg, ReduceArg
from pellucid.ir.op import Ops
from pellucid.ir.pairs import value_of
from pellucid.ir.uop import UOp
from pellucid.schedule.draft import Draft, Plan
from pellucid.schedule.views import ZERO, Use, flat_index, literal


class Values:
    """Expressions of a plan, sources first."""

    def __init__(self, plan: Plan, num_slots: int) -> None:
        self.plan = plan
        self.num_slots = num_slots
        self.computed: dict[tuple[UOp, Use], UOp] = {}
        for (node, use), step in reversed(plan.steps.items()):
            sources = [self.value_of(source, source_use) for source, source_use in step]
            self.computed[node, use] = self.value(node, use, sources)
        self.indirect = {
            made: self.meaning(what, node, use, size)
            for (what, node, use, size), made in plan.placeholders.items()
        }

    def handle(self, node: UOp) -> UOp:
        """The PARAM that stands for what a stored *node* holds."""
        if node.op is Ops.PARAM:
            return node
        number = self.num_slots + self.plan.stored[node].number
        return UOp(Ops.PARAM, node.dtype, (), ParamArg(number, node.num_elems))

    def value_of(self, node: UOp, use: Use) -> UOp:
        """The value of *node* at *use*, for one who reads it."""
        if node.op is Ops.PARAM or node in self.plan.stored:
            return self.read(node, use)
        return self.computed[node, use]

    def read(self, node: UOp, use: Use) -> UOp:
        """Read stored *node* from memory."""
        index, valid = use
        return self.handle(node).index(flat_index(node.known_shape, index), valid)

    def value(self, node: UOp, use: Use, sources: list[UOp]) -> UOp:
        """Compute *node* at *use* from the values of its sources."""
        op = node.op
        if op is Ops.CONST or op is Ops.VARIABLE:
            return node
        if op is Ops.IOTA:
            return use[0][0].cast(node.dtype)
        if op.is_elementwise or op is Ops.PAIR:
            return UOp(op, node.dtype, tuple(sources), node.arg)
        if op is Ops.REDUCE:
            return self.reduction(node, use, sources)
        if not sources:  # GATHER from nothing
            return zero_of(node.dtype)
        valid = self.plan.valid.get((node, use))
        if valid is None:
            return sources[0]
        fill = sources[1] if op is Ops.PAD else zero_of(node.dtype)
        return UOp.make(Ops.WHERE, valid, sources[0], fill)

    def reduction(self, node: UOp, use: Use, sources: list[UOp]) -> UOp:
        """A REDUCE over its loops; of no elements it is the identity, of one the value."""
        op = node.arg.op
        if not sources:
            return UOp.const(node.dtype, op.identity_for(node.dtype))
        loops = self.plan.loops[node, use]
        if not loops:
            return value_of(sources[0])
        return UOp(Ops.REDUCE, node.dtype, (sources[0], *loops), ReduceArg(op))

    def meaning(self, what: str, node: UOp, use: Use, size: int) -> UOp:
        """What a placeholder stands for: the row that *node* holds, or whether it exists.

        Instead of one that does not exist the first or the last one is read, and not used: a read
        without a condition is a plain load of whole vectors.
        """
        row = self.value_of(node, use).cast(dtypes.index)
        if what == "valid":
            return (row >= ZERO) & (row < literal(size))
        return row if what == "place" else row.maximum(ZERO).minimum(literal(size - 1))

    def settle(self, expression: UOp) -> UOp:
        """Exchange placeholders for what they stand for."""
        while self.indirect:
            found = {n: self.indirect[n] for n in expression.toposort() if n in self.indirect}
            if not found:
                break
            expression = expression.substitute(found)
        return expression

    def stored_value(self, draft: Draft) -> UOp:
        """The expression that *draft* stores (handles and placeholders still in it)."""
        node, use = draft.value, draft.value_use
        value = self.computed[node, use] if node is draft.root else self.value_of(node, use)
        if draft.combine is not None:
            here = self.handle(draft.root).index(draft.store_index, draft.store_valid)
            value = UOp.make(draft.combine.arg, here, value)
        return value


def zero_of(dtype: DType) -> UOp:
    """0 of a type."""
    return UOp.const(dtype, 0)
