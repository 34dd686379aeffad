"""Equations: the variables of a law, how it is read, and the function that builds its right side.

    (x // a) // b = x // (a * b)  if b > 0

becomes, for x: Index and a, b: Known,

    def divide_twice(node, x, a, b):
        if not (0 < b.arg): return None
        t0 = UOp.make(op_floordiv, x, UOp.const(a.dtype, (a.arg * b.arg)))
        return t0

Literals are computed when the law is applied. A condition on literals is computed as well; on other
values it has to follow from their bounds.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

from pellucid.core.dtype import Kind, dtypes
from pellucid.core.errors import LawError
from pellucid.ir.bounds import bounds
from pellucid.ir.op import COMPARISONS, Op, Ops, floor_divide, floor_modulo
from pellucid.ir.pattern import Pattern
from pellucid.ir.uop import UOp


class Variable(Pattern):
    """A variable of a law."""

    __slots__ = ()


class Index(Variable):
    """An integer before a width is chosen: it never wraps."""

    __slots__ = ()


class Wrap(Variable):
    """A fixed-width integer; results wrap."""

    __slots__ = ()


class Float(Variable):
    """An IEEE float; the law holds bit for bit (all NaNs are equal)."""

    __slots__ = ()


class Real(Variable):
    """A float that the user allowed us to treat as a real number."""

    __slots__ = ()


class Bool(Variable):
    """A truth value."""

    __slots__ = ()


class Value(Variable):
    """Anything: the law only moves it around."""

    __slots__ = ()


class Known(Variable):
    """A literal, of the type of its partner."""

    __slots__ = ()


Side: TypeAlias = Pattern | bool | int | float
Equation: TypeAlias = tuple[Pattern, Side] | tuple[Pattern, Side, Pattern]

KINDS: dict[type[Variable], tuple[Kind, ...]] = {
    Index: (Kind.INDEX,),
    Wrap: (Kind.INT, Kind.UINT),
    Float: (Kind.FLOAT,),
    Real: (Kind.FLOAT,),
    Bool: (Kind.BOOL,),
}


_BY_NAME = {kind.__name__: kind for kind in (*KINDS, Value, Known)}


# ---- reading a law -------------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters of a plain function; `inspect` takes 20 times as long.

    >>> parameters_of(lambda node, x: None)
    ('node', 'x')
    """
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def variables_of(
    function: Callable[..., Any], name: str
) -> tuple[dict[str, Variable], dict[str, tuple[type[Variable], ...]]]:
    variables: dict[str, Variable] = {}
    types: dict[str, tuple[type[Variable], ...]] = {}
    for parameter in parameters_of(function):
        members = _members(function, parameter)
        if not all(isinstance(m, type) and issubclass(m, Variable) for m in members):
            raise LawError(
                f"law {name}: {parameter} is not declared",
                help="declare it as Index, Wrap, Float, Real, Bool or Known",
            )
        types[parameter] = members
        if Known in members:
            variables[parameter] = Known(name=parameter, literal=True)
        else:
            kinds = frozenset(k for m in members for k in KINDS.get(m, ()))
            variables[parameter] = members[0](name=parameter, kinds=kinds or None)
    return variables, types


def _members(function: Callable[..., Any], parameter: str) -> tuple[Any, ...]:
    """The types in the annotation of a parameter; by name where it is text, as it mostly is."""
    text = function.__annotations__.get(parameter)
    if isinstance(text, str):
        members = tuple([_BY_NAME.get(name.strip()) for name in text.split("|")])
        if None not in members:
            return members
    hint = typing.get_type_hints(function).get(parameter)
    return typing.get_args(hint) or (hint,)


def sides_of(
    function: Callable[..., Equation], variables: dict[str, Variable], name: str
) -> tuple[Pattern, Pattern, Pattern | None]:
    from_law: Any = function(**variables)
    if not isinstance(from_law, tuple) or len(from_law) not in (2, 3):
        raise LawError(f"law {name} does not return (left, right) or (left, right, condition)")
    left, right = from_law[:2]
    condition = from_law[2] if len(from_law) == 3 else None
    right = right if isinstance(right, Pattern) else Pattern(literal=True, value=right)
    missing = set(right.names()) - set(left.names())
    if missing:
        raise LawError(f"law {name} uses {', '.join(sorted(missing))} on the right side only")
    return left, right, condition


def with_kinds_above(left: Pattern) -> Pattern:
    """The pattern with each test of kinds made once, and at the root where the root has that type.

    All sources of an elementwise op have one type, so one test speaks for all variables of a type.
    """
    seen: set[frozenset[Kind]] = set()
    root_kinds = _kinds_of(left)

    def strip(part: Pattern, is_root: bool) -> Pattern:
        made = (
            part.copy()
            if part.src is None
            else part.with_sources(tuple(strip(s, False) for s in part.src))
        )
        made.kinds = root_kinds if is_root else None
        if not is_root and part.kinds is not None and part.kinds != root_kinds:
            if part.kinds not in seen:
                seen.add(part.kinds)
                made.kinds = part.kinds
        return made

    return strip(left, True)


def _kinds_of(part: Pattern) -> frozenset[Kind] | None:
    """The kinds that a pattern's own type may have, from the variables that share it."""
    if part.src is None:
        return part.kinds
    if part.op in COMPARISONS:
        return None
    if part.op in (Ops.CAST, Ops.BITCAST):
        return None
    parts = part.src[1:] if part.op is Ops.WHERE else part.src
    return next((k for k in map(_kinds_of, parts) if k is not None), None)


# ---- building the right side ---------------------------------------------------------------------

_PYTHON: dict[Op, str] = {
    Ops.ADD: "({} + {})",
    Ops.MUL: "({} * {})",
    Ops.FLOORDIV: "floor_divide({}, {})",
    Ops.FLOORMOD: "floor_modulo({}, {})",
    Ops.MAX: "max({}, {})",
    Ops.MIN: "min({}, {})",
    Ops.AND: "({} & {})",
    Ops.OR: "({} | {})",
    Ops.XOR: "({} ^ {})",
    Ops.CMPLT: "({} < {})",
    Ops.CMPLE: "({} <= {})",
    Ops.CMPEQ: "({} == {})",
    Ops.CMPNE: "({} != {})",
}


def is_known(pattern: Pattern) -> bool:
    """True for what is computed when the law is applied: literals and what is made of them."""
    if pattern.src is None:
        return pattern.literal
    return bool(pattern.src) and all(map(is_known, pattern.src))


class BuildWriter:
    """Writes the function that checks a law's condition and builds its right side."""

    def __init__(self, name: str, left: Pattern, right: Pattern, condition: Pattern | None) -> None:
        self.name, self.left, self.right, self.condition = name, left, right, condition
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "UOp": UOp,
            "bool_": dtypes.bool,
            "bounds": bounds,
            "floor_divide": floor_divide,
            "floor_modulo": floor_modulo,
        }
        self._temporaries = itertools.count()

    def source(self) -> str:
        """The text of the function; its parameters are `node` and the variables."""
        if self.condition is not None:
            self.lines.append(f"if not {self.certain(self.condition)}: return None")
        result = self.node(self.right, "node.dtype")
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {result}"])
        return f"def {self.name}({', '.join(['node', *self.left.names()])}):\n{body}"

    def function(self, source: str) -> Callable[..., UOp | None]:
        """The function itself."""
        scope = dict(self.names)
        exec(compile(source, f"<law {self.name}>", "exec"), scope)
        return typing.cast("Callable[..., UOp | None]", scope[self.name])

    def value(self, pattern: Pattern) -> str:
        """A Python expression for what is known."""
        if pattern.value is not None:
            return repr(pattern.value)
        if pattern.src is None:
            return f"{pattern.name}.arg"
        op = pattern.op
        if op not in _PYTHON:
            raise LawError(f"{op} of literals is not computed in laws")
        return _PYTHON[op].format(*map(self.value, pattern.src))

    def dtype(self, pattern: Pattern) -> str | None:
        """A Python expression for the type of a pattern, or None for a bare number."""
        if pattern.value is not None:
            return None
        if pattern.src is None:
            return f"{pattern.name}.dtype"
        if pattern.op in COMPARISONS:
            inner = next(filter(None, map(self.dtype, pattern.src)))
            return f"bool_.vec({inner}.lanes)"
        parts = pattern.src[1:] if pattern.op is Ops.WHERE else pattern.src
        return next(filter(None, map(self.dtype, parts)), None)

    def node(self, pattern: Pattern, dtype: str) -> str:
        """A Python expression for the node, of type *dtype* where the pattern does not say."""
        if is_known(pattern):
            return f"UOp.const({self.dtype(pattern) or dtype}, {self.value(pattern)})"
        if pattern.src is None:
            return str(pattern.name)
        op = pattern.op
        assert op is not None, "laws build nodes of one op"
        op_name = f"op_{op.name.lower()}"
        self.names[op_name] = op
        inner = self.dtype(pattern) or dtype
        if op in COMPARISONS:
            inner = next(filter(None, map(self.dtype, pattern.src)), dtype)
        sources = [self.node(s, inner) for s in pattern.src]
        target = f"t{next(self._temporaries)}"
        self.lines.append(f"{target} = UOp.make({op_name}, {', '.join(sources)})")
        return target

    def certain(self, condition: Pattern) -> str:
        """A Python expression that is true only when *condition* holds for sure."""
        if is_known(condition):
            return self.value(condition)
        op, src = condition.op, condition.src
        assert src is not None, "a condition is a comparison, or several joined by & and |"
        if op is Ops.AND or op is Ops.OR:
            word = " and " if op is Ops.AND else " or "
            return f"({word.join(map(self.certain, src))})"
        if op is Ops.CMPLT or op is Ops.CMPLE:
            sign = "<" if op is Ops.CMPLT else "<="
            return f"({self.extreme(src[0], 'max')} {sign} {self.extreme(src[1], 'min')})"
        self_node = self.node(condition, "bool_")
        return f"(bounds({self_node}).min == 1)"

    def extreme(self, pattern: Pattern, end: str) -> str:
        """A Python expression for the least or greatest value of a pattern."""
        if is_known(pattern):
            return self.value(pattern)
        inner = self.dtype(pattern)
        return f"bounds({self.node(pattern, inner or 'node.dtype')}).{end}"
