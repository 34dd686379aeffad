"""Hold a graph against a form, and tell what a kernel reads for what it writes.

    verify(sink, LOOP)    nothing, or
                          FormError: the graph is not in form LOOP: REDUCE without a range
                              stage   simplify_ranges
                              law     drop_ranges_of_one
                              around
                                  REDUCE(INDEX(p1, i0), ReduceArg(Ops.ADD))
                                      in STORE(INDEX(p0, i0), REDUCE(…))

`value_mapping` (ir/interpret/mapping.py) is the other check that goes with a lowering: forms say
that a graph is well made, the mapping that it still reads the same elements.
"""

from __future__ import annotations

from pellucid.core.errors import FormError
from pellucid.core.target import Target
from pellucid.ir.form import LINEAR, LOOP, NATIVE, PROGRAM, SCHEDULE, Form
from pellucid.ir.op import Op, Ops
from pellucid.ir.text import expression
from pellucid.ir.uop import UOp

_USERS_SHOWN = 3


def verify(
    root: UOp,
    form: Form,
    target: Target | None = None,
    *,
    stage: str | None = None,
    law: str | None = None,
) -> None:
    """Raise FormError if the graph is not in *form*; *stage* and *law* say who made it.

    The kernels of a schedule are verified too, and the parts of a PROGRAM.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.form import TENSOR
    >>> verify(UOp.const(dtypes.int32, 1), TENSOR)
    """
    for part, part_form in _parts(root, form):
        found = find_problem(part, part_form, target)
        if found is not None:
            node, problem = found
            around = _around(part, node)
            raise FormError(problem, form=part_form.name, stage=stage, law=law, around=around)


def is_in_form(root: UOp, form: Form, target: Target | None = None) -> bool:
    """True when `verify` would accept the graph."""
    return all(find_problem(p, f, target) is None for p, f in _parts(root, form))


def find_problem(root: UOp, form: Form, target: Target | None = None) -> tuple[UOp, str] | None:
    """The first node, sources first, that breaks the form, and how; kernels are not entered."""
    if form.roots and root.op not in form.roots:
        return root, f"the root is {root.op.name}, not {form.roots[0].name}"
    for node in root.toposort(lambda n: n.op not in _closed(form)):
        problem = form.problem(node, target)
        if problem is not None:
            return node, problem
    return None


def _closed(form: Form) -> tuple[Op, ...]:
    """Ops whose sources are of another form."""
    if form is SCHEDULE or form is PROGRAM:
        return (Ops.SINK, Ops.PROGRAM) if form is SCHEDULE else (Ops.SINK, Ops.LINEAR)
    return ()


def _parts(root: UOp, form: Form) -> list[tuple[UOp, Form]]:
    """The graph, and the graphs inside of it that have a form of their own."""
    parts = [(root, form)]
    if form is SCHEDULE:
        callees = dict.fromkeys(c.src[0] for c in root.src if c.src)
        parts += [(c, LOOP) for c in callees if c.op is Ops.SINK]
        for callee in callees:
            parts += _parts(callee, PROGRAM) if callee.op is Ops.PROGRAM else []
    if form is PROGRAM:
        parts += [(s, NATIVE) for s in root.src if s.op is Ops.SINK]
        parts += [(s, LINEAR) for s in root.src if s.op is Ops.LINEAR]
    return parts


def _around(root: UOp, node: UOp) -> str:
    """The node, and who uses it."""
    users = [u for u in root.toposort() if node in u.src and u.op is not Ops.LINEAR]
    lines = [f"    in {expression(u, 2)}" for u in users[:_USERS_SHOWN]]
    return "\n".join([expression(node), *lines])
