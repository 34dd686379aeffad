"""What the forms of kernels promise of their effects, loops and reductions.

    reduce_names_a_range(REDUCE(x))  ->  "REDUCE without a range"

What is said of a whole kernel is said of its SINK.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pellucid.core.dtype import dtypes
from pellucid.ir import arg as records
from pellucid.ir.checks import Message
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp


def kernel_has_its_info(node: UOp) -> Message:
    """The SINK of a kernel carries a KernelInfo."""
    if node.op is Ops.SINK and not isinstance(node.arg, records.KernelInfo):
        return f"the SINK of a kernel carries {node.arg!r}"
    return None


def sink_holds_effects(node: UOp) -> Message:
    """A SINK, a GROUP and an END hold effects: STOREs and what is made of them."""
    if node.op not in (Ops.SINK, Ops.GROUP, Ops.END):
        return None
    effects = node.src[:1] if node.op is Ops.END else node.src
    bad = next((s for s in effects if s.dtype is not dtypes.void), None)
    return None if bad is None else f"{node.op.name} holds {bad.op.name}, which is a value"


def loops_close_ranges(node: UOp) -> Message:
    """What END and REDUCE close are RANGEs, each once."""
    if node.op not in (Ops.END, Ops.REDUCE):
        return None
    closed = node.src[1:]
    bad = next((s for s in closed if s.op is not Ops.RANGE), None)
    if bad is not None:
        return f"{node.op.name} closes {bad.op.name}"
    return None if len(set(closed)) == len(closed) else f"{node.op.name} closes a RANGE twice"


def stores_close_their_ranges(node: UOp) -> Message:
    """Every RANGE that a STORE depends on is closed by an END around it."""
    if node.op is not Ops.SINK:
        return None
    for effect in _effects(node):
        if effect.op is Ops.STORE and effect.ranges:
            return f"STORE depends on {_range_names(effect)}, which no END closes"
    return None


def no_open_ranges_at_the_sink(node: UOp) -> Message:
    """Nothing at the SINK depends on a RANGE any more."""
    if node.op is Ops.SINK and node.ranges:
        return f"{_range_names(node)} is still open at the SINK"
    return None


def range_ids_differ(node: UOp) -> Message:
    """Two RANGEs of a kernel have different numbers."""
    if node.op is not Ops.SINK:
        return None
    ids = [n.arg.id for n in node.toposort() if n.op is Ops.RANGE]
    twice = _first_repeated(ids)
    return None if twice is None else f"two RANGEs have number {twice}"


def params_have_one_slot_each(node: UOp) -> Message:
    """The PARAMs of a kernel have different slots."""
    if node.op is not Ops.SINK:
        return None
    slots = [n.arg.slot for n in node.toposort() if n.op is Ops.PARAM]
    twice = _first_repeated(slots)
    return None if twice is None else f"two PARAMs have slot {twice}"


def reduce_names_a_range(node: UOp) -> Message:
    """A REDUCE names at least one RANGE; a reduction over none is its source."""
    if node.op is Ops.REDUCE and len(node.src) < 2:
        return "REDUCE without a range"
    return None


def reduce_has_no_axes_left(node: UOp) -> Message:
    """The axes of a REDUCE have become ranges."""
    if node.op is Ops.REDUCE and node.arg.axes:
        return f"REDUCE still names axes {node.arg.axes}"
    return None


def reduces_have_ranges_of_their_own(node: UOp) -> Message:
    """No RANGE is closed by two REDUCEs, but those of one pair, or by a REDUCE and an END."""
    if node.op is not Ops.SINK:
        return None
    owner: dict[UOp, UOp] = {}
    for closer in node.toposort():
        if closer.op not in (Ops.REDUCE, Ops.END):
            continue
        for r in closer.src[1:]:
            other = owner.setdefault(r, closer)
            if other is not closer and not _are_of_one_pair(other, closer):
                return f"{other.op.name} and {closer.op.name} both close i{r.arg.id}"
    return None


def _are_of_one_pair(first: UOp, second: UOp) -> bool:
    """True for reductions by the same keys, and for two ENDs, which may share a RANGE."""
    if first.op is Ops.END and second.op is Ops.END:
        return True
    if first.op is not second.op or first.src[1:] != second.src[1:]:
        return False
    pairs = (first.src[0], second.src[0])
    return all(p.op is Ops.PAIR for p in pairs) and pairs[0].src[1] is pairs[1].src[1]


def _first_repeated(numbers: list[int]) -> int | None:
    return next((n for n, count in Counter(numbers).items() if count > 1), None)


def _range_names(node: UOp) -> str:
    return ", ".join(f"i{r.arg.id}" for r in node.ranges)


def _effects(node: UOp) -> Iterator[UOp]:
    for source in node.src:
        yield source
        if source.op is Ops.GROUP:
            yield from _effects(source)
