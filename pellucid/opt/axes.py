"""The axes of a kernel: its RANGEs, who closes each, and how fast an index moves along one.

    SINK(END(STORE(y[i], REDUCE(x[i * 8 + k], k)), i))

    describe_axes  ->   axis 0: output, over 4, loop
                        axis 1: reduced, over 8, reduce
    stride_of(i * 8 + k, i) == 8

Actions name an axis by its place in this list. Output axes of a nest come first, outermost first,
then those that its reductions close, and those of loops that fill its buffers, in order of
appearance; nests follow each other as the SINK lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pellucid.core.records import dataclass
from pellucid.ir.arg import AxisKind
from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp, kept


@dataclass(frozen=True)
class Axis:
    """One row of the list: place, RANGE, size (None: symbolic), and whether reductions close it."""

    position: int
    range: UOp
    size: int | None
    is_reduced: bool

    def __str__(self) -> str:
        size = "a variable size" if self.size is None else str(self.size)
        role = "reduced" if self.is_reduced else "output"
        kind: AxisKind = self.range.arg.kind
        return f"axis {self.position}: {role}, over {size}, {kind.value}"


def axes_of(sink: UOp) -> list[UOp]:
    """The RANGEs of a kernel in the order that actions count."""
    return list(_axes_of(sink))


@kept
def _axes_of(sink: UOp) -> tuple[UOp, ...]:
    found: dict[UOp, None] = {}
    left = iter(sink.toposort())  # what is below an effect stands in front of it
    passed: set[UOp] = set()
    for effect in _effects(sink, found):
        for node in left if effect not in passed else ():
            passed.add(node)
            if node.op is Ops.REDUCE or node.op is Ops.END:
                found.update(dict.fromkeys(node.src[1:]))
            if node is effect:
                break
    return tuple(found)


def _effects(effect: UOp, found: dict[UOp, None]) -> Iterator[UOp]:
    """What stands inside of all ENDs and GROUPs of an effect, once their ranges are noted."""
    if effect.op is Ops.END:
        found.update(dict.fromkeys(effect.src[1:]))
        yield from _effects(effect.src[0], found)
    elif effect.op is Ops.GROUP or effect.op is Ops.SINK:
        for part in effect.src:
            yield from _effects(part, found)
    else:
        yield effect


def describe_axes(sink: UOp) -> tuple[Axis, ...]:
    """The axes of a kernel, each with its place, size and role; `print(*…, sep="\\n")` shows them.

    >>> from pellucid.core.dtype import dtypes
    >>> from pellucid.ir.arg import KernelInfo, ParamArg
    >>> y, i = UOp(Ops.PARAM, dtypes.int32, (), ParamArg(0, 4)), UOp.range(4, 0)
    >>> print(*describe_axes(UOp.sink(y.index(i).store(y.index(i)).end(i), arg=KernelInfo())))
    axis 0: output, over 4, loop
    """
    reduced = {r for node in reductions(sink) for r in node.src[1:]}
    return tuple(
        Axis(position, axis, size_of(axis), axis in reduced)
        for position, axis in enumerate(axes_of(sink))
    )


def reductions(sink: UOp) -> Iterator[UOp]:
    """The REDUCEs of a kernel, innermost first."""
    return iter(_reductions(sink))


@kept
def _reductions(sink: UOp) -> tuple[UOp, ...]:
    return tuple([node for node in sink.toposort() if node.op is Ops.REDUCE])


def size_of(axis: UOp) -> int | None:
    """The size of a RANGE, where it is a number."""
    size = axis.src[0]
    return int(size.arg) if size.is_const else None


def end_of(sink: UOp, axis: UOp) -> UOp | None:
    """The END that closes *axis*."""
    for node in _ends(sink):
        if axis in node.src[1:]:
            return node
    ends = (n for n in sink.toposort() if n.op is Ops.END)
    return next((node for node in ends if axis in node.src[1:]), None)


def all_ends(sink: UOp) -> list[UOp]:
    """The ENDs of a kernel, of effects and of what fills its buffers."""
    return [node for node in sink.toposort() if node.op is Ops.END]


def keeps_rows(sink: UOp, first: UOp, second: UOp) -> bool:
    """True when no reduction stands in the loop of one of two output axes and not in the other's.

    If one does, it is computed again and again where the other loop moves outside of it.
    """
    return all((first in n.ranges) == (second in n.ranges) for n in reductions(sink))


def reduces_over(sink: UOp, axis: UOp) -> list[UOp]:
    """The REDUCEs that close *axis*."""
    return [node for node in reductions(sink) if axis in node.src[1:]]


def _ends(effect: UOp) -> Iterator[UOp]:
    """The ENDs that structure the effects of a kernel, outermost first."""
    if effect.op in (Ops.SINK, Ops.GROUP):
        for part in effect.src:
            yield from _ends(part)
    elif effect.op is Ops.END:
        yield effect
        yield from _ends(effect.src[0])


def lone_reduction(sink: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
    """The reduction of a kernel that is one nest around it, and the loops of the nest.

    None where there are several effects or reductions, buffers of the kernel's own, sizes that are
    not known, or where something else than storing is done.
    """
    effect = sink.src[0] if len(sink.src) == 1 else None
    nodes = list(reductions(sink))
    if effect is None or effect.op is not Ops.END or len(nodes) != 1:
        return None
    node, outputs = nodes[0], effect.src[1:]
    if effect.src[0].op not in (Ops.STORE, Ops.GROUP):
        return None
    if any(size_of(r) is None for r in (*outputs, *node.src[1:])):
        return None
    if any(n.op is Ops.DEFINE for n in sink.toposort()):
        return None
    return node, outputs


def stores_of(effect: UOp) -> Iterator[UOp]:
    """The STOREs below an effect, in order."""
    if effect.op is Ops.STORE:
        yield effect
    elif effect.op in (Ops.SINK, Ops.GROUP):
        for part in effect.src:
            yield from stores_of(part)
    elif effect.op is Ops.END:
        yield from stores_of(effect.src[0])


def stride_of(index: UOp, axis: UOp) -> int | None:
    """By how much *index* grows when *axis* does by one; None when that is not always the same.

    >>> i, j = UOp.range(4, 0), UOp.range(8, 1)
    >>> stride_of((i + 1) * 8 + j, i), stride_of(j % 3, j), stride_of(j % 3, i)
    (8, None, 0)
    """
    if index is axis:
        return 1
    if axis not in index.ranges:
        return 0
    if index.op is Ops.ADD:
        left, right = (stride_of(s, axis) for s in index.src)
        return None if left is None or right is None else left + right
    if index.op is Ops.MUL:
        for factor, other in (index.src, index.src[::-1]):
            if factor.is_const:
                stride = stride_of(other, axis)
                return None if stride is None else stride * int(factor.arg)
    return None
