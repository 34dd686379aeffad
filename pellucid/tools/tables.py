"""The tables that `pellucid pipeline`, `laws`, `ops`, `devices` and `options` print.

Each is made from the data that the compiler itself reads, so that none of them can be out of date:
a function here takes rows and gives a rich Table.

    pellucid pipeline      1  collapse_reductions   LOOP -> LOOP   a sum over a comparison …
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from pellucid.core.options import OTHER_VARIABLES, Options, current_options
from pellucid.core.target import host_target


def table(title: str, *columns: str) -> Table:
    """Make an empty table in the one look that all have."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    made.min_width = len(title)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def cell(value: object, style: str = "") -> Text:
    """Text that is shown as it is: brackets in equations are no markup."""
    return Text(str(value), style=style)


def line(value: object, style: str = "") -> Text:
    """Text that stays on one line, and ends in … where there is no room for all of it."""
    return Text(str(value), style=style, no_wrap=True, overflow="ellipsis")


def pipeline_tables() -> list[Table]:
    """The stages of every pipeline, in order."""
    from pellucid import pipeline

    found = []
    for name, stages in vars(pipeline).items():
        if name.isupper() and isinstance(stages, tuple) and all(map(_is_stage, stages)):
            found.append(stage_table(name.replace("_", " ").lower(), stages))
    return found


def _is_stage(value: object) -> bool:
    return hasattr(value, "why") and hasattr(value, "run")


def stage_table(title: str, stages: Sequence[Any]) -> Table:
    """One pipeline: each stage with its forms, why it exists and what it must follow."""
    made = table(title, "", "stage", "needs", "gives", "why")
    for number, stage in enumerate(stages, 1):
        why = cell(stage.why)
        for earlier, reason in stage.after.items():
            why.append(f"\nafter {earlier}: {reason}", style="dim")
        made.add_row(str(number), cell(stage.name, "bold"), stage.needs.name, stage.gives.name, why)
    return made


def known_rules() -> list[Any]:
    """Every law and rule of every family, in the order of their files."""
    from pellucid.ir import laws
    from pellucid.ir.rule import Rule

    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(laws.__path__):
        family = importlib.import_module(f"{laws.__name__}.{info.name}")
        for value in vars(family).values():
            if isinstance(value, Rule):  # a law is a rule too
                found.setdefault(value.name, value)
    return list(found.values())


def laws_table(family: str | None = None) -> Table:
    """The laws: equation, what they hold for, and how that is known; then the rules."""
    made = table("laws and rules", "family", "name", "equation", "holds for", "known by")
    for one in known_rules():
        name = family_of(one)
        if family is not None and name != family:
            continue
        equation = getattr(one, "equation", None)
        text = cell(equation) if equation else cell(one.doc, "dim")
        level = getattr(one, "level", "") or ("sampled" if equation else "a rule: tests")
        made.add_row(name, cell(one.name, "bold"), text, _holds_for(one), cell(level))
    return made


def law_families() -> list[str]:
    """The names of the families."""
    return list(dict.fromkeys(map(family_of, known_rules())))


def family_of(one: Any) -> str:
    """The file that a law or rule stands in."""
    if hasattr(one, "family"):
        return str(one.family)
    return str(one.function.__module__).rpartition(".")[2]


def _holds_for(one: Any) -> str:
    kinds: dict[str, None] = {}
    for members in getattr(one, "types", {}).values():
        kinds |= {member.__name__: None for member in members if member.__name__ != "Known"}
    return ", ".join(kinds)


def ops_table() -> Table:
    """The op table."""
    from pellucid.ir.op import Ops

    made = table("operations", "op", "family", "sources", "facts", "meaning")
    for op in Ops.all():
        facts = [name for name in ("commutative", "associative", "idempotent") if getattr(op, name)]
        facts += [] if op.exact else ["spelled with exact ops"]
        facts += ["only in programs"] if op.native_only else []
        sources = ", ".join(op.sources)
        made.add_row(
            cell(op.name, "bold"), op.group.value, cell(sources), ", ".join(facts), cell(op.doc)
        )
    return made


def devices_table() -> Table:
    """The devices, and whether what they need is there."""
    from pellucid.core.errors import ToolchainError
    from pellucid.runtime.device import Device

    made = table("devices", "name", "code", "state")
    for name in Device:
        device = Device[name]
        try:
            device.need_compiler()
            state = cell(f"ready: {' '.join(device.compiler_key.split()[:2])}", "green")
        except ToolchainError as error:
            state = cell(f"{error.problem}\n{error.help}", "red")
        made.add_row(cell(name, "bold"), device.renderer_name, state)
    return made


def machine_table() -> Table:
    """The facts that kernels are compiled for."""
    target = host_target()
    made = table("this machine", "fact", "value")
    for field in dataclasses.fields(target):
        value = getattr(target, field.name)
        if isinstance(value, frozenset):
            value = ", ".join(sorted(value))
        if value not in ("", None):
            made.add_row(field.name, cell(value))
    return made


def options_tables() -> Table:
    """Every option: its value now, its default, and what it does."""
    made = table("options", "variable", "now", "default", "allowed", "what it does")
    now = current_options()
    for field in dataclasses.fields(Options):
        meta = field.metadata
        value = getattr(now, field.name)
        shown = int(value) if isinstance(value, bool) else value
        made.add_row(
            cell(f"PELLUCID_{field.name.upper()}", "bold"),
            cell(shown),
            cell(meta["shown"].replace("`", "")),
            cell(meta["choice"].sentence),
            cell(meta["doc"]),
        )
    for variable, doc in OTHER_VARIABLES.items():
        now_set = cell(os.environ.get(variable, ""))
        made.add_row(cell(variable, "bold"), now_set, "", "", cell(doc.replace("`", "")))
    return made
