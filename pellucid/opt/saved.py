"""Lists of actions as text: printed, saved, and asked for again, kernel by kernel.

    kernel 3f9c2a11d04be7aa          the first 16 digits of the content key of the kernel's AST
    Action('lanes', 1, 16)           # a comment stands behind a hash
    Action('upcast', 0, 4)

    Context(actions=text)            kernels that the text names take its actions, others do not
    PELLUCID_ACTIONS=plans.txt       the same for a whole program

A kernel without lines below it stays plain loops. Axes are named by their place, so a list belongs
to the one kernel that it was made for: the key sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pellucid.core.errors import ParseError
from pellucid.ir.arg import Action
from pellucid.ir.text import literal_from_text
from pellucid.ir.uop import UOp

Actions = tuple[Action, ...]

KEY_DIGITS: Final = 16
_WORD: Final = "kernel "


def kernel_key(ast: UOp) -> str:
    """The name of a kernel in saved lists: its content, whatever actions it asks for.

    >>> from pellucid.ir.arg import KernelInfo
    >>> asked = KernelInfo(actions=(Action("lanes", 0, 4),))
    >>> kernel_key(UOp.sink(arg=asked)) == kernel_key(UOp.sink(arg=KernelInfo()))
    True
    """
    info = ast.arg
    if info.actions is not None:
        ast = ast.replace(arg=type(info)(name=info.name, ordered=info.ordered))
    return ast.key[:KEY_DIGITS]


def actions_to_text(plans: Mapping[str, Actions], comments: Mapping[str, str] | None = None) -> str:
    """Write lists of actions, by the keys of their kernels.

    >>> print(actions_to_text({"00ff": (Action("lanes", 0, 16),)}, {"00ff": "r_64"}), end="")
    kernel 00ff  # r_64
    Action('lanes', 0, 16)
    """
    lines = []
    for key, actions in plans.items():
        comment = (comments or {}).get(key)
        lines.append(f"{_WORD}{key}" + (f"  # {comment}" if comment else ""))
        lines += [repr(action) for action in actions]
    return "".join(f"{line}\n" for line in lines)


def actions_from_text(text: str) -> dict[str, Actions]:
    """Read what `actions_to_text` has written.

    Errors: ParseError, with the line.

    >>> actions_from_text("kernel 00ff\\nAction('lanes', 0, 16)  # why not\\n")
    {'00ff': (Action('lanes', 0, 16),)}
    """
    found: dict[str, list[Action]] = {}
    current: list[Action] | None = None
    for number, written in enumerate(text.splitlines(), 1):
        line = written.partition("#")[0].strip()
        if line.startswith(_WORD):
            current = found.setdefault(_checked_key(line, number), [])
            current.clear()  # the last list of a kernel is the one that holds
        elif line and current is None:
            raise _unreadable(number, line, "`kernel KEY` before the first action")
        elif line and current is not None:
            current.append(_action(line, number))
    return {key: tuple(actions) for key, actions in found.items()}


def _checked_key(line: str, number: int) -> str:
    key = line[len(_WORD) :].strip()
    if not key or not set(key) <= set("0123456789abcdef"):
        raise _unreadable(number, line, "hexadecimal digits behind `kernel`")
    return key


def _action(line: str, number: int) -> Action:
    try:
        action = literal_from_text(line)
    except ParseError:
        action = None
    if not isinstance(action, Action) or not _is_whole(action):
        raise _unreadable(number, line, "an action such as `Action('lanes', 0, 16)`")
    return action


def _is_whole(action: Action) -> bool:
    """True where each part of an action has its type."""
    numbers = type(action.axis) is int and type(action.amount) is int
    return isinstance(action.kind, str) and numbers and isinstance(action.extra, tuple)


def _unreadable(number: int, line: str, expected: str) -> ParseError:
    return ParseError(
        f"line {number} of the lists of actions cannot be read", expected=expected, came=line
    )


@lru_cache(maxsize=16)
def plans_in(text: str) -> Mapping[str, Actions]:
    """The lists in a text, read once."""
    return actions_from_text(text)
