"""Laws (equations), rules (rewrites that compute) and rule sets.

A law is a function of pattern variables that is called once, at import, and returns the two sides
and, if needed, a condition. The types of its parameters say where it holds:

    @law
    def divide_twice(x: Index, a: Known, b: Known) -> Equation:
        \"\"\"Two floor divisions are one, when the second divisor is positive.\"\"\"
        return (x // a) // b, x // (a * b), b > 0

From that one object we match (`pattern`), build the right side (`source`, generated), prove and
sample (smt.py), print (`equation`) and count (`fired`). What is literal is computed: `a * b`
becomes one CONST. A condition on literals is computed too; a condition on other values has to
follow from their bounds.

A rule is a function of captured nodes that returns the new node or None; `decline` says why it
steps aside:

    @rule(P(Ops.CAST, X, name="outer"))
    def drop_cast(outer: UOp, x: UOp) -> UOp | None:
        if x.dtype is not outer.dtype:
            return decline("the type changes", outer)
        return x

A `RuleSet` is a list of both; it compiles a matcher per op the first time that op is met, or finds
it where an earlier process left it.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from pellucid.core import observe
from pellucid.core.dtype import Scalar
from pellucid.core.errors import LawError
from pellucid.ir import bytecode
from pellucid.ir.equation import (
    BuildWriter,
    Equation,
    sides_of,
    variables_of,
    with_kinds_above,
)
from pellucid.ir.matcher import MatcherWriter, Place, bound
from pellucid.ir.op import Op, Ops
from pellucid.ir.pattern import P, Pattern, orders, text_of
from pellucid.ir.rule import Rule
from pellucid.ir.uop import UOp, _const_key


class Law(Rule):
    """An equation that is used from left to right."""

    def __init__(self, function: Callable[..., Equation]) -> None:
        self.definition = function
        name = function.__name__
        self.variables, self.types = variables_of(function, name)
        left, right, condition = sides_of(function, self.variables, name)
        self.left, self.right, self.condition = left, right, condition
        self.pattern = with_kinds_above(left)
        self.name = name
        self.fired = 0
        self.parameters = ("node", *left.names())

    @functools.cached_property
    def _writer(self) -> BuildWriter:
        return BuildWriter(self.name, self.left, self.right, self.condition)

    @functools.cached_property
    def source(self) -> str:
        """The source of the function that checks the condition and builds the right side."""
        return self._writer.source()

    @functools.cached_property
    def function(self) -> Callable[..., UOp | None]:  # type: ignore[override]
        """What is called with the captures; made when it is first needed."""
        return self._writer.function(self.source)

    @property
    def doc(self) -> str:
        """The first sentence of the docstring."""
        return " ".join((self.definition.__doc__ or "").split("\n\n")[0].split())

    @property
    def module(self) -> str:
        """The module that the law is written in."""
        return self.definition.__module__

    @property
    def called(self) -> Callable[..., UOp | None]:
        """The law itself, whose function is not made before it is called."""
        return self

    @property
    def equation(self) -> str:
        """The law as text."""
        given = f"  if {text_of(self.condition)}" if self.condition is not None else ""
        return f"{text_of(self.left)} = {text_of(self.right)}{given}"

    @property
    def holds_for(self) -> str:
        """The types of the variables, as text: `x: Index, Wrap`."""
        groups: dict[str, list[str]] = {}
        for name, members in self.types.items():
            groups.setdefault("|".join(m.__name__ for m in members), []).append(name)
        return "; ".join(f"{', '.join(n)}: {t.replace('|', ', ')}" for t, n in groups.items())

    @property
    def level(self) -> str:
        """How the law is known, from the table that the tests check: proved, …, or sampled."""
        return known_levels().get(f"{self.family}.{self.name}", "not checked")

    def __repr__(self) -> str:
        return f"<law {self.name}: {self.equation}>"


@functools.cache
def known_levels() -> dict[str, str]:
    """Level by family and name, as written by `python -m pellucid.ir.smt`."""
    path = pathlib.Path(__file__).with_name("laws") / "levels.json"
    levels: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return levels


def law(function: Callable[..., Equation]) -> Law:
    """Read an equation; see the top of this file."""
    return Law(function)


RuleFunction = TypeVar("RuleFunction", bound="Callable[..., UOp | None]")


def rule(*patterns: Pattern | Op) -> Callable[[Callable[..., UOp | None]], Rule]:
    """Make a rule of a function: *patterns* is one pattern, or one or more ops of any sources."""

    def make(function: Callable[..., UOp | None]) -> Rule:
        first = patterns[0]
        if isinstance(first, Pattern):
            if len(patterns) > 1:
                raise LawError("a rule has one pattern, or several ops", help="write two rules")
            return Rule(first, function, _name_of(function))
        ops = tuple(p for p in patterns if isinstance(p, Op))
        return Rule(P(ops), function, _name_of(function))

    return make


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "rule")


def decline(reason: str, node: UOp) -> UOp | None:
    """Step aside, and say why to whoever traces; use as `return decline("…", node)`."""
    if observe.watching:
        observe.decline(sys._getframe(1).f_code.co_name, reason, node)
    return None


# ---- rule sets -----------------------------------------------------------------------------------

_bits = itertools.count()
Matcher: TypeAlias = "Callable[[UOp, Any], UOp | None]"
Member: TypeAlias = "Rule | RuleSet"


class Statistics:
    """Counts over the life of the process, for tests of compile time."""

    tried = 0
    fired = 0
    made = 0


class RuleSet:
    """Rules by name, tried in order; the first that gives a new node wins.

    With *any_order* the set promises that order does not matter, and tests are shared better. With
    *remember*, nodes that `rewrite` found nothing to do for are marked, and passed over next time:
    for sets that live as long as the process and whose rules look at nothing but the node.

    >>> from pellucid.ir.pattern import K, X
    >>> @rule(X * K)
    ... def drop_one(x: UOp, k: UOp) -> UOp | None:
    ...     return x if k.arg == 1 else None
    >>> print(RuleSet("tidy", [drop_one]).matcher_source(Ops.MUL), end="")
    def match(n, ctx):
        n_0, n_1 = n.src
        if n_1.op is op_const:
            if type(n_1.arg) is not tuple:
                new = drop_one(n_0, n_1)
                if new is not None and new is not n: return fired(drop_one_rule, n, new)
        if n_0.op is op_const:
            if type(n_0.arg) is not tuple:
                new = drop_one(n_1, n_0)
                if new is not None and new is not n: return fired(drop_one_rule, n, new)
        return None
    """

    def __init__(
        self,
        name: str,
        members: Iterable[Member],
        *,
        any_order: bool = False,
        remember: bool = False,
    ) -> None:
        self.name = name
        self.any_order = any_order
        self.bit = 1 << next(_bits) if remember else 0
        self.rules: tuple[Rule, ...] = tuple(_flattened(members))
        self.needs_context = any(r.needs_context for r in self.rules)
        self.matchers: dict[Op, Matcher | None] = {}

    def __add__(self, other: RuleSet) -> RuleSet:
        return RuleSet(f"{self.name}+{other.name}", [self, other])

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __repr__(self) -> str:
        return f"<rule set {self.name}, {len(self.rules)} rules>"

    @property
    def laws(self) -> tuple[Law, ...]:
        """The members that are equations."""
        return tuple(r for r in self.rules if isinstance(r, Law))

    def matcher(self, op: Op) -> Matcher | None:
        """The compiled matcher for nodes of *op*; None when no rule is about them."""
        try:
            return self.matchers[op]
        except KeyError:
            self.matchers[op] = made = self._compile(op)
            return made

    def matcher_source(self, op: Op) -> str:
        """The generated source of the matcher for *op* (empty: no rule is about it)."""
        return self._written(op)[0]

    def match(self, node: UOp, ctx: Any = None) -> UOp | None:
        """The result of the first rule that applies to *node* itself, or None."""
        matcher = self.matcher(node.op)
        return None if matcher is None else matcher(node, ctx)

    @functools.cached_property
    def _stamp(self) -> bytes | None:
        return bytecode.stamp_of(self.rules, self.any_order)

    def _compile(self, op: Op) -> Matcher | None:
        if not any(_is_about(one.pattern, op) for one in self.rules):
            return None
        stamp = self._stamp
        kept = bytecode.read(self.name, op.name, stamp) if stamp is not None else None
        made = kept or self._generated(op)
        if kept is None and stamp is not None:
            bytecode.write(self.name, op.name, stamp, made)
        scope: dict[str, Any] = bound(made.names, self.rules)
        scope |= {"fired": _fired, "same_float": _same_float}
        exec(made.code, scope)
        return typing.cast("Matcher", scope["match"])

    def _generated(self, op: Op) -> bytecode.Code:
        """The code of the matcher for *op*."""
        source, names = self._written(op)
        return bytecode.Code(compile(source, f"<{self.name}: {op.name}>", "exec"), names)

    def _written(self, op: Op) -> tuple[str, dict[str, Place]]:
        """The source of the matcher for *op*, and what its names stand for."""
        writer = MatcherWriter(op)
        entries = []
        for number, one in enumerate(self.rules):
            if not _is_about(one.pattern, op):
                continue
            for pattern in orders(_for_root(one.pattern, op)):
                steps, places = writer.steps(pattern, number, one.pattern)
                places |= {"node": "n", "ctx": "ctx"}
                call = writer.name_of(("call", number, 0), one.name)
                given = ", ".join(places[p] for p in one.parameters)
                who = writer.name_of(("rule", number, 0), f"{one.name}_rule")
                done = f"if new is not None and new is not n: return fired({who}, n, new)"
                entries.append((steps, f"new = {call}({given})\n{done}"))
        if not entries:
            return "", {}
        return writer.write(entries, self.any_order), writer.names


def _is_about(pattern: Pattern, op: Op) -> bool:
    """True when nodes of *op* may match."""
    if pattern.literal and op is not Ops.CONST:
        return False
    return pattern.ops is None or op in pattern.ops


def _for_root(pattern: Pattern, op: Op) -> Pattern:
    """The pattern with its root op decided."""
    if pattern.ops == (op,) or pattern.ops is None:
        return pattern
    chosen = pattern.copy()
    chosen.ops = (op,)
    return chosen


def _flattened(members: Iterable[Member]) -> Iterator[Rule]:
    for member in members:
        if isinstance(member, RuleSet):
            yield from member.rules
        else:
            yield member


def _same_float(value: Scalar, wanted: float) -> bool:
    return type(value) is float and _const_key(value) == _const_key(wanted)


def _fired(one: Rule, before: UOp, after: UOp) -> UOp:
    """Count, and tell whoever listens."""
    one.fired += 1
    Statistics.fired += 1
    last_fired.append(one)
    if observe.watching:
        observe.rewrite(one.name, before, after)
    return after


class _LastFired:
    """The rule that fired last in this process: only for error texts."""

    rule: Rule | None = None

    def append(self, one: Rule) -> None:
        self.rule = one


last_fired = _LastFired()
