"""The Python source that looks for patterns: one function for all rules of a set about one op.

The function tests cheap facts first (kind of type, ops of sources, literals), then goes down. Tests
that neighbours in the list have in common are written once:

    def match(n, ctx):
        n_0, n_1 = n.src
        if n_1.op is op_const:
            if type(n_1.arg) is int and n_1.arg == 0:
                …

Names in it are bound when it is loaded (`bound`): each stands for an object at a `Place`, an op or
a part of a rule, so that the code can be kept for another process (bytecode.py).

Source of the method: decision trees for pattern matching, as in L. Maranget, "Compiling pattern
matching to good decision trees", ML Workshop 2008, in the plain form that keeps the order of rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pellucid.core.dtype import DType, Kind
from pellucid.ir.op import Op, Ops
from pellucid.ir.pattern import Pattern

if TYPE_CHECKING:
    from pellucid.ir.rule import Rule

_RESERVED = ("ctx", "fired", "kind", "match", "n", "new", "same_float")
Step: TypeAlias = tuple[str, str]  # ("if", test) or ("let", statement)
Place: TypeAlias = "tuple[str, str | int, int]"
"""("op", name, 0) or ("kind", value, 0); of the rule with a number in its set, ("rule", number, 0)
is the rule, ("call", number, 0) what is called with the captures, and ("arg" or "dtype" or "ops",
number, part) what a part of its pattern is compared with."""


def bound(names: dict[str, Place], rules: Sequence[Rule]) -> dict[str, Any]:
    """The objects that *names* stand for, in a set of *rules*."""
    return {name: _object_at(place, rules) for name, place in names.items()}


def _object_at(place: Place, rules: Sequence[Rule]) -> Any:
    what, which, part = place
    if what == "op":
        return getattr(Ops, str(which))
    if what == "kind":
        return Kind(which)
    rule = rules[int(which)]
    if what == "rule":
        return rule
    if what == "call":
        return rule.called
    return getattr(list(rule.pattern.walk())[part], what)


class MatcherWriter:
    """Writes the function that tries a list of (pattern, call) on nodes of one op, in order."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.names: dict[str, Place] = {}
        self._names: dict[Place, str] = {}
        self._rule_number = 0
        self._whole = Pattern()

    def name_of(self, place: Place, hint: str) -> str:
        """A name for what is at *place* in the generated module, *hint* if it is free."""
        found = self._names.get(place)
        if found is not None:
            return found
        name = re.sub(r"\W", "_", hint)
        while name in self.names or name in _RESERVED:
            name += "_"
        self._names[place] = name
        self.names[name] = place
        return name

    def op_name(self, op: Op) -> str:
        """The name of an op in the generated module."""
        return self.name_of(("op", op.name, 0), f"op_{op.name.lower()}")

    def _name_of_part(self, wanted: Any, what: str) -> str:
        """A name for the *what* of a part of the pattern, in whose copies it is the same object."""
        parts = enumerate(self._whole.walk())
        number = next(k for k, part in parts if getattr(part, what) is wanted)
        return self.name_of((what, self._rule_number, number), what)

    def steps(
        self, pattern: Pattern, number: int = 0, whole: Pattern | None = None
    ) -> tuple[list[Step], dict[str, str]]:
        """Tests and assignments for one pattern in one order; and where each capture is found.

        number, whole: the rule that it belongs to, and the pattern of that as it was written.
        """
        self._rule_number, self._whole = number, whole or pattern
        steps: list[Step] = self._kind_steps(pattern, "n")
        captures: dict[str, str] = {}
        late: list[Step] = []
        level = [(pattern, "n")]
        while level:
            below: list[tuple[Pattern, str]] = []
            for part, place in level:
                if place != "n":
                    steps += self._op_steps(part, place)
                    late += self._kind_steps(part, place)
                late += self._late_steps(part, place)
                if part.name is not None:
                    first = captures.setdefault(part.name, place)
                    if first != place:
                        steps.append(("if", f"{place} is {first}"))
            for part, place in level:
                if part.src is not None:
                    steps += self._source_steps(part, place)
                    below += [(s, f"{place}_{i}") for i, s in enumerate(part.src)]
            level = below
        return steps + late, captures

    def _op_steps(self, part: Pattern, place: str) -> list[Step]:
        if part.literal:
            tests = [("if", f"{place}.op is {self.op_name(Ops.CONST)}")]
            return [*tests, ("if", self._value_test(part, place))]
        if part.ops is None:
            return []
        if len(part.ops) == 1:
            return [("if", f"{place}.op is {self.op_name(part.ops[0])}")]
        return [("if", f"{place}.op in {self._name_of_part(part.ops, 'ops')}")]

    def _value_test(self, part: Pattern, place: str) -> str:
        value = part.value
        if value is None:
            return f"type({place}.arg) is not tuple"
        if isinstance(value, bool):
            return f"{place}.arg is {value}"
        if isinstance(value, int):
            return f"type({place}.arg) is int and {place}.arg == {value}"
        return f"same_float({place}.arg, {value!r})"

    def _source_steps(self, part: Pattern, place: str) -> list[Step]:
        assert part.src is not None, "only patterns that list their sources come here"
        count = len(part.src)
        steps: list[Step] = []
        ops = (self.op,) if place == "n" else part.ops
        fixed = ops is not None and all(_has_sources(op, count) for op in ops)
        if part.more:
            steps.append(("if", f"len({place}.src) >= {count}"))
        elif not fixed:
            steps.append(("if", f"len({place}.src) == {count}"))
        if count:
            targets = "".join(f"{place}_{i}, " for i in range(count))
            rest = f"[:{count}]" if part.more else ""
            steps.append(
                ("let", f"{targets[:-1] if count == 1 else targets[:-2]} = {place}.src{rest}")
            )
        return steps

    def _kind_steps(self, part: Pattern, place: str) -> list[Step]:
        if part.kinds is None:
            return []
        kinds = sorted(part.kinds, key=lambda k: k.value)
        names = [self._kind_name(kind) for kind in kinds]
        what = "kind" if place == "n" else f"{place}.dtype.kind"
        return [("if", " or ".join(f"{what} is {name}" for name in names))]

    def _kind_name(self, kind: Kind) -> str:
        return self.name_of(("kind", kind.value, 0), f"kind_{kind.value}")

    def _late_steps(self, part: Pattern, place: str) -> list[Step]:
        steps: list[Step] = []
        if part.dtype is not None:
            steps.append(("if", self._part_test(part.dtype, f"{place}.dtype", "dtype")))
        if part.arg is not None:
            steps.append(("if", self._part_test(part.arg, f"{place}.arg", "arg")))
        return steps

    def _part_test(self, wanted: Any, place: str, hint: str) -> str:
        name = self._name_of_part(wanted, hint)
        if isinstance(wanted, DType):
            return f"{place} is {name}"
        if isinstance(wanted, tuple) and hint == "dtype":
            return f"{place} in {name}"
        return f"{name}({place})" if callable(wanted) else f"{place} == {name}"

    def write(self, entries: Sequence[tuple[list[Step], str]], any_order: bool) -> str:
        """The source of the function: *entries* are (steps, statements at the end).

        With *any_order*, entries may be moved to where they share tests with others.
        """
        lines = _shared(list(entries), any_order)
        if any("kind is" in line and ".kind" not in line for line in lines):
            lines.insert(0, "kind = n.dtype.kind")
        return "\n".join(["def match(n, ctx):", *_indent([*lines, "return None"], 1)]) + "\n"


def _has_sources(op: Op, count: int) -> bool:
    return len(op.sources) == count and not any(s[-1] in "?*" for s in op.sources)


def _shared(entries: list[tuple[list[Step], str]], any_order: bool) -> list[str]:
    """Lines that try the entries in order; equal first steps of neighbours are written once."""
    lines: list[str] = []
    while entries:
        steps, call = entries[0]
        if not steps:
            lines += call.splitlines()
            entries = entries[1:]
            continue
        same = [bool(e[0]) and e[0][0] == steps[0] for e in entries]
        if not any_order:
            end = same.index(False) if False in same else len(same)
            same = [at < end for at in range(len(same))]
        inside = [(e[0][1:], e[1]) for e, here in zip(entries, same, strict=True) if here]
        entries = [e for e, here in zip(entries, same, strict=True) if not here]
        inner = _shared(inside, any_order)
        kind, text = steps[0]
        lines += [text, *inner] if kind == "let" else [f"if {text}:", *_indent(inner, 1)]
    return lines


def _indent(lines: list[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]
