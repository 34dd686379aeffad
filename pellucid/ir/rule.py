"""A named rewrite: a pattern, and what is called with its captures.

    Rule(X + 0, take_x, "add_zero")   x + 0  ->  what take_x(x=x) returns, where that is not None

`law.py` makes rules of functions (`@rule`) and of equations (`@law`), and sets of them;
`matcher.py` writes the code that finds which of a set applies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pellucid.core.errors import LawError
from pellucid.ir.equation import parameters_of
from pellucid.ir.pattern import Pattern, text_of
from pellucid.ir.uop import UOp


class Rule:
    """A named rewrite: a pattern, and what is called with its captures."""

    def __init__(self, pattern: Pattern, function: Callable[..., UOp | None], name: str) -> None:
        self.pattern = pattern
        self.function = function
        self.name = name
        self.fired = 0
        self.parameters = parameters_of(function)
        known = {*pattern.names(), "node", "ctx"}
        if unknown := [p for p in self.parameters if p not in known]:
            raise LawError(
                f"{name} asks for {', '.join(unknown)}, which its pattern does not capture",
                rows=[("pattern", text_of(pattern))],
                help="name the part of the pattern, or use `node` or `ctx`",
            )

    @property
    def needs_context(self) -> bool:
        """True when what the rule does may depend on the context it is given."""
        return "ctx" in self.parameters

    @property
    def doc(self) -> str:
        """The first sentence of the docstring."""
        return " ".join((self.function.__doc__ or "").split("\n\n")[0].split())

    @property
    def module(self) -> str:
        """The module that the rule is written in."""
        return self.function.__module__ or ""

    @property
    def family(self) -> str:
        """The file the rule stands in: arithmetic, divmod …"""
        return self.module.rpartition(".")[2]

    @property
    def called(self) -> Callable[..., UOp | None]:
        """What a matcher calls with the captures."""
        return self.function

    def __call__(self, *given: Any, **named: Any) -> UOp | None:
        return self.function(*given, **named)

    def __repr__(self) -> str:
        return f"<rule {self.name}: {text_of(self.pattern)}>"
