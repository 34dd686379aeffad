"""Addresses: each loop adds only what it changes, in 64 bits from 64-bit counters.

    for i: for j: for k: x[i * 64 + j * 9 - k + 3], int32       becomes

    loop1:
      %n0 = phi i64 [ %v0, %loop0 ], [ %n0.next, %end2 ]      i * 64 + j * 9, counted by 9
      %p0 = getelementptr float, ptr %buffer1, i64 %n0        what the inner loop leaves as it is
      br label %loop2
    loop2:
      %i2 = phi i64 [ 0, %loop1 ], [ %i2.next, %loop2 ]
      %n1 = phi i64 [ 0, %loop1 ], [ %n1.next, %loop2 ]       -k
      %p1 = getelementptr float, ptr %p0, i64 %n1
      %p2 = getelementptr float, ptr %p1, i64 3

A place is a sum of integers, each times a literal. The terms are added in the order of the loops
that they change in, the outermost first, and each partial sum is written in front of the loops that
leave it as it is; what a loop around other loops adds is counted along with its counter, and so are
multiples of an innermost loop's counter that no address can hold. Where only one multiple of a
counter is needed, that is counted instead. Places that differ by a literal are literal steps from
one address. So code generation finds nothing to move, and its own strength reduction, which takes a
quarter of its time, is kept out (`control.py`).

An integer that an address needs is computed in 64 bits from the start, as far as bounds prove that
the narrow one would not have wrapped; else it is computed as the program says, and extended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pellucid.ir.op import Ops
from pellucid.ir.uop import UOp
from pellucid.render.llvm.types import llvm_type
from pellucid.render.program import (
    SILENT,
    cannot_wrap,
    closed_ranges,
    memory_dtype,
    storage_of,
    value_of,
)

if TYPE_CHECKING:
    from pellucid.render.llvm.writer import LLVMWriter

WRAPPING: Final = {Ops.ADD: "add", Ops.SUB: "sub", Ops.MUL: "mul"}
"""The integer arithmetic that addresses are made of."""
SCALES: Final = (1, 2, 4, 8)
"""The multiples of a counter that an address can hold, and so cost no instruction in a turn."""

Term = tuple[UOp, int]
"""An integer, and what it is multiplied with."""
Terms = tuple[Term, ...]


class Addresses:
    """The integers of a function that addresses need, and the addresses that it has computed.

    Levels are the open loops and branches: what is known at a level holds until that one closes.
    """

    def __init__(self, w: LLVMWriter) -> None:
        self.w = w
        self.needs = Needs(w.linear.src)
        self.wide_names: dict[UOp, str] = {}
        self.level_of: dict[UOp, int] = {}  # where an integer was computed
        self.known: list[dict[tuple[UOp | Term, ...], str]] = [{}]  # at each level
        self.outside: list[list[str]] = []  # lines in front of each open loop or branch

    # ---- levels ----------------------------------------------------------------------------------

    def open(self) -> None:
        """A loop or a branch begins."""
        self.known.append({})
        self.outside.append([])

    def close(self) -> str:
        """It ends: the lines that belong in front of it."""
        self.known.pop()
        return "\n".join(self.outside.pop())

    def _value(self, level: int, text: str, prefix: str) -> str:
        """A line at a level: here, or in front of what was opened there."""
        if level == len(self.outside):
            return self.w.value(text, prefix)
        name = self.w.fresh(prefix)
        self.outside[level].append(f"  {name} = {text}")
        return name

    # ---- integers --------------------------------------------------------------------------------

    def wide_of(self, node: UOp) -> str:
        """An integer as i64."""
        node = value_of(node)
        if node.op is Ops.CONST:
            return str(node.arg)
        return self.w.names[node] if node.dtype.bits == 64 else self.wide_names[node]

    def integer(self, node: UOp, wide: str) -> None:
        """Record a value that was made as i64, in the widths that the program asks for."""
        self._note(node, wide)
        if node.dtype.bits == 64:
            self.w.names[node] = wide
        elif node in self.needs.narrow:
            self.w.names[node] = self.w.value(f"trunc i64 {wide} to {llvm_type(node.dtype)}")

    def step_of(self, axis: UOp) -> int:
        """What the counter of a loop grows by: 1, or the one multiple of it that is needed."""
        return self.needs.steps.get(axis, 1)

    def counter(self, axis: UOp, name: str) -> None:
        """Record the counter of a loop, in the steps of `step_of`."""
        if axis not in self.needs.steps:
            self.integer(axis, name)
            return
        self.level_of[axis] = len(self.outside)
        self.known[-1][(axis, self.needs.steps[axis]),] = name
        for multiple in self.needs.multiples.get(axis, ()):
            self.integer(multiple, name)

    def compute(self, node: UOp) -> bool:
        """Compute an integer that only addresses need; tell whether it was one."""
        if node.op not in WRAPPING or not _is_integer(node):
            return False
        if node in self.needs.narrow:
            return node in self.w.names  # a multiple that its loop counts
        if node in self.needs.wide:
            self._compute_wide(node)
        return True  # else it is part of a place, which is added up from its terms

    def widen(self, node: UOp) -> None:
        """Let addresses have an integer that was computed in its own width, if they need it."""
        if node not in self.needs.wide or node in self.wide_names:
            return
        if node.dtype.bits == 64:
            self._note(node, self.w.names[node])
        elif node.op in WRAPPING and all(map(self._has_wide, node.src)) and cannot_wrap(node):
            self._compute_wide(node)
        else:
            extend = "zext" if node.dtype.is_unsigned else "sext"
            self._note(node, self.w.value(f"{extend} {self.w.typed(node)} to i64"))

    def _compute_wide(self, node: UOp) -> None:
        left, right = (self.wide_of(s) for s in node.src)
        self._note(node, self.w.value(f"{WRAPPING[node.op]} nsw i64 {left}, {right}"))
        if node.dtype.bits == 64:
            self.w.names[node] = self.wide_names[node]

    def _note(self, node: UOp, wide: str) -> None:
        self.wide_names[node] = wide
        self.level_of[node] = len(self.outside)

    def _has_wide(self, node: UOp) -> bool:
        node = value_of(node)
        return node.op is Ops.CONST or node in self.wide_names or node.dtype.bits == 64

    # ---- addresses -------------------------------------------------------------------------------

    def of(self, index: UOp) -> str:
        """The address that an INDEX means."""
        storage = storage_of(index)
        terms, step = self.needs.place_of(index)
        element = llvm_type(memory_dtype(storage.dtype))
        address = self._at(storage, element, tuple(sorted(terms, key=self._order)))
        return self.w.address(address, element, str(step))

    def _order(self, term: Term) -> tuple[int, bool]:
        """Terms by the level that they change at; there, what a loop counts comes first."""
        return self.level_of[term[0]], term[0].op is not Ops.RANGE

    def _at(self, storage: UOp, element: str, terms: Terms) -> str:
        """Storage at a sum, whose terms of other levels are added in front of this one."""
        if not terms:
            return self.w.names[storage]
        level = self._level(terms)
        known = self.known[level]
        if (storage, *terms) not in known:
            base, inner = self.w.names[storage], terms
            if level == len(self.outside):
                outer = tuple(t for t in terms if self.level_of[t[0]] < level)
                base, inner = self._at(storage, element, outer), terms[len(outer) :]
            text = f"getelementptr {element}, ptr {base}, i64 {self._sum(inner)}"
            known[storage, *terms] = self._value(level, text, "p")
        return known[storage, *terms]

    def _level(self, terms: Terms) -> int:
        return self.level_of[terms[-1][0]]

    def _sum(self, terms: Terms) -> str:
        """A sum in 64 bits, each part of it where its last term is computed."""
        level = self._level(terms)
        known = self.known[level]
        if terms not in known:
            known[terms] = self._new_sum(terms, level)
        return known[terms]

    def _new_sum(self, terms: Terms, level: int) -> str:
        before, (last, factor) = terms[:-1], terms[-1]
        if not before:
            if factor == 1:
                return self.wide_of(last)
            if last in self.needs.innermost and factor not in SCALES:
                return self.w.count(level, "0", factor)
            return self._value(level, f"mul i64 {self.wide_of(last)}, {factor}", "v")
        start = self._sum(before)
        if last.op is Ops.RANGE and self._level(before) < level < len(self.outside):
            return self.w.count(level, start, factor)
        return self._value(level, f"add i64 {start}, {self._sum(terms[-1:])}", "v")


class Needs:
    """What a program needs of its integers, found before a line is written.

    places: indices of accesses, as terms and a literal.  wide: integers that addresses need in 64
    bits.  narrow: values that are needed in their own width.  steps: loops whose counter is needed
    only as one multiple of it, and how much that is.  multiples: where the program computes it.
    innermost: loops without loops inside.
    """

    def __init__(self, items: tuple[UOp, ...]) -> None:
        self.places: dict[UOp, tuple[Terms, int]] = {}
        self.wide: set[UOp] = set()
        self.narrow: set[UOp] = set()
        self.factors: dict[UOp, set[int]] = {}
        self.multiples: dict[UOp, list[UOp]] = {}
        self.innermost = set(_innermost(items))
        for node in reversed(items):
            self._need(node)
        self.steps = dict(self._single_multiples())
        self.narrow.update(axis for axis in self.multiples if axis not in self.steps)
        self.wide.update(self.factors)

    def _single_multiples(self) -> Iterator[tuple[UOp, int]]:
        for axis, factors in self.factors.items():
            is_asked = axis in self.wide or axis in self.narrow
            if axis.op is Ops.RANGE and not is_asked and len(factors) == 1 < min(factors):
                yield axis, min(factors)

    def place_of(self, index: UOp) -> tuple[Terms, int]:
        """The terms of the place of an INDEX, and a literal."""
        place = index.src[1]
        if place not in self.places:
            self.places[place] = _terms(place)
        return self.places[place]

    def _need(self, node: UOp) -> None:
        op = node.op
        if op is Ops.INDEX:
            for leaf, factor in self.place_of(node)[0]:
                self.factors.setdefault(leaf, set()).add(factor)
        elif op is Ops.RANGE:
            self.wide.add(value_of(node.src[0]))
        elif op in SILENT or op is Ops.END or op is Ops.SPECIAL:
            return
        elif op not in WRAPPING or not _is_integer(node):
            self._need_narrow(node)
            if self._is_wide(node):
                self.narrow.add(node)
        elif node in self.narrow or self._is_wide(node):  # else it is a part of places only
            self._need_sources(node)

    def _need_narrow(self, node: UOp) -> None:
        for source in node.src:
            if _is_integer(source):
                self.narrow.add(value_of(source))

    def _need_sources(self, node: UOp) -> None:
        """What integer arithmetic needs: its sources as wide as it is needed itself."""
        is_wide, fits = self._is_wide(node), cannot_wrap(node)
        if is_wide and not fits:
            self.narrow.add(node)
        if node not in self.narrow:
            self.wide.update(map(value_of, node.src))
        elif fits and _is_multiple(node):
            axis = value_of(node.src[0])
            self.factors.setdefault(axis, set()).add(int(node.src[1].arg))
            self.multiples.setdefault(axis, []).append(node)
        else:
            self._need_narrow(node)
            if is_wide and fits:
                self.wide.update(map(value_of, node.src))

    def _is_wide(self, node: UOp) -> bool:
        return node in self.wide or node in self.factors


def _is_integer(node: UOp) -> bool:
    """True for a number that addresses may be made of."""
    return node.dtype.is_int and node.dtype.lanes == 1


def _innermost(items: tuple[UOp, ...]) -> Iterator[UOp]:
    """Loops that close right after they have opened, with no other loop between."""
    opened: UOp | None = None
    for node in items:
        if node.op is Ops.RANGE:
            opened = node
        elif node.op is Ops.END:
            if opened is not None and len(closed_ranges(node)) == 1:
                yield opened
            opened = None


def _is_multiple(node: UOp) -> bool:
    """True for a loop's counter times a literal."""
    is_counted = node.op is Ops.MUL and value_of(node.src[0]).op is Ops.RANGE
    return is_counted and node.src[1].is_const


def _terms(place: UOp) -> tuple[Terms, int]:
    """A place as terms and a literal. What might wrap is one term, as it is."""
    factors: dict[UOp, int] = {}
    step = 0
    waiting = [(place, 1)]
    while waiting:
        node, factor = waiting.pop()
        node = value_of(node)
        if node.op is Ops.CONST:
            step += int(node.arg) * factor
        elif node.op not in WRAPPING or not cannot_wrap(node):
            factors[node] = factors.get(node, 0) + factor
        elif node.op is not Ops.MUL:
            sign = -1 if node.op is Ops.SUB else 1
            waiting += [(node.src[1], sign * factor), (node.src[0], factor)]
        elif node.src[1].is_const:
            waiting.append((node.src[0], factor * int(node.src[1].arg)))
        else:
            factors[node] = factors.get(node, 0) + factor
    return tuple((leaf, factor) for leaf, factor in factors.items() if factor), step
