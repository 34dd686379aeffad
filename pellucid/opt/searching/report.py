"""What a search tried and found, for people and for the disk.

SearchReport(actions, seconds, …)  --to_json-->  text  --from_json-->  the same, is_remembered
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from pellucid.core.errors import ParseError
from pellucid.core.records import dataclass
from pellucid.ir.arg import Action
from pellucid.ir.text import literal_from_text

Actions = tuple[Action, ...]

SHOWN = 8
"""How many of the fastest lists a report keeps."""


@dataclass
class SearchReport:
    """What was tried for a kernel, and what came of it."""

    actions: Actions = ()
    seconds: float = 0.0
    plain_seconds: float | None = None
    heuristic_seconds: float | None = None
    measured: int = 0
    equal: int = 0
    pruned: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    dropped: list[tuple[Actions, str, str]] = field(default_factory=list)
    fastest: list[tuple[Actions, str, float]] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    steps: list[float] = field(default_factory=list)
    took: float = 0.0
    ended: str = ""
    is_remembered: bool = False

    def note(self, actions: Actions, family: str, seconds: float) -> None:
        """Keep a list, what made it, and its time among the fastest."""
        found = (*self.fastest, (actions, family, seconds))
        self.fastest = sorted(found, key=lambda row: row[2])[:SHOWN]

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the heuristic's choice the best candidate is."""
        if not self.heuristic_seconds or not self.seconds:
            return None
        return self.heuristic_seconds / self.seconds

    @property
    def dropped_kinds(self) -> Counter[str]:
        """How many candidates were dropped, by what became of them."""
        return Counter(kind for _, kind, _ in self.dropped)

    def sentence(self) -> str:
        """The result in one line.

        >>> report = SearchReport((Action("lanes", 0, 8),), 1e-6, None, 2e-6, measured=7)
        >>> report.dropped.append(((), "hung", "after 2 s"))
        >>> report.sentence()
        '7 measured, 0 refused, 0 left out, 1 hung; 1.0 us, 2.00 times as fast as the heuristic'
        """
        parts = [f"{self.measured} measured", f"{self.refused.total()} refused"]
        parts.append(f"{self.pruned.total() + self.equal} left out")
        parts += [f"{count} {kind}" for kind, count in sorted(self.dropped_kinds.items())]
        if self.speedup is None:
            return ", ".join(parts)
        faster = f"{self.speedup:.2f} times as fast as the heuristic"
        return f"{', '.join(parts)}; {self.seconds * 1e6:.1f} us, {faster}"

    def to_json(self) -> str:
        """Write everything down."""
        fields = dict(vars(self))
        fields["actions"] = _texts(self.actions)
        for name in ("dropped", "fastest"):
            fields[name] = [[_texts(actions), *rest] for actions, *rest in fields[name]]
        del fields["is_remembered"]
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> SearchReport | None:
        """Read what `to_json` has written; None for anything else.

        >>> SearchReport.from_json(SearchReport((Action("lanes", 0, 8),)).to_json()).actions
        (Action('lanes', 0, 8),)
        >>> SearchReport.from_json("{}") is None
        True
        """
        try:
            fields = json.loads(text)
            fields["actions"] = _actions(fields["actions"])
            fields["dropped"] = [(_actions(a), kind, why) for a, kind, why in fields["dropped"]]
            fields["fastest"] = [(_actions(a), f, float(s)) for a, f, s in fields["fastest"]]
            for name in ("pruned", "refused", "tried"):
                fields[name] = Counter(fields[name])
            return SearchReport(**fields, is_remembered=True)
        except (ValueError, TypeError, KeyError, ParseError):
            return None


def _texts(actions: Actions) -> list[str]:
    return [repr(action) for action in actions]


def _actions(texts: Sequence[str]) -> Actions:
    found = tuple(map(literal_from_text, texts))
    if not all(isinstance(action, Action) for action in found):
        raise ParseError("a list of actions has something else in it")
    return found
