"""The choices that a user can make, as one frozen value.

`Options` is read from the environment once and passed down as an argument; no pass looks anywhere
else. A thread starts with the environment's options; `Context` changes them for a block or a
function, in the thread that runs it and nowhere else:

    PELLUCID_THREADS=4 python train.py          # for a whole program

    with Context(debug=2):                      # for a block
        y.realize()

    @Context(relaxed_float=True)                # for a function
    def step(): ...

The fields whose metadata say `affects_code` are part of every cache key (`code_key`), so a cached
program can never belong to other choices. Each field carries its documentation, from which
`options_table` makes the page of the docs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from typing import Any, Final

from pellucid.core.errors import OptionError
from pellucid.core.records import dataclass

PREFIX: Final = "PELLUCID_"

OTHER_VARIABLES: Final = {
    "PELLUCID_TARGET": "the machine to compile for, such as `x86-64:avx2,fma`; unset: this one",
}
"""Variables that are no options: facts about the machine, read where they are used."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What one option may be: a sentence, a reader of text, and a check that also tidies up."""

    sentence: str
    from_text: Callable[[str], object]
    tidy: Callable[[object], object]
    """Gives the value in its one spelling, or raises ValueError."""


def _whole_number(lowest: int, highest: int | None = None) -> Choice:
    def tidy(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(value)
        if value < lowest or (highest is not None and value > highest):
            raise ValueError(value)
        return value

    upper = "up" if highest is None else f"to {highest}"
    return Choice(f"a whole number from {lowest} {upper}", int, tidy)


def _yes_or_no() -> Choice:
    words = {"1": True, "true": True, "yes": True, "on": True}
    words |= {"0": False, "false": False, "no": False, "off": False}

    def from_text(text: str) -> object:
        return words.get(text.lower(), text)

    def tidy(value: object) -> object:
        if not isinstance(value, int) or value not in (0, 1):
            raise ValueError(value)
        return bool(value)

    return Choice("1 (on) or 0 (off)", from_text, tidy)


def _one_of(*names: str) -> Choice:
    def tidy(value: object) -> object:
        name = getattr(value, "name", value)  # a DType stands for its name
        if name not in names:
            raise ValueError(value)
        return name

    return Choice("one of " + ", ".join(names), str, tidy)


def _device_name() -> Choice:
    shape = re.compile(r"[A-Z][A-Z0-9_]*(:[A-Z0-9_]+)*")

    def tidy(value: object) -> object:
        if not isinstance(value, str) or not shape.fullmatch(value.upper()):
            raise ValueError(value)
        return value.upper()

    return Choice("a device such as CPU, CPU:LLVM, CPU:C or NULL", str, tidy)


def _folder() -> Choice:
    def tidy(value: object) -> object:
        if not isinstance(value, str | os.PathLike):
            raise ValueError(value)
        path = os.fspath(value)
        if not isinstance(path, str):
            raise ValueError(value)
        return os.path.expanduser(path)

    return Choice("a folder, or nothing for no cache on disk", str, tidy)


def _lists_of_actions() -> Choice:
    def from_text(name: str) -> object:
        try:
            with open(os.path.expanduser(name), encoding="utf-8") as file:
                return file.read()
        except OSError as problem:
            raise ValueError(name) from problem

    def tidy(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(value)
        return value

    return Choice("the text of saved actions; the variable names a file of it", from_text, tidy)


def default_cache_dir(
    environ: Mapping[str, str] | None = None, platform: str = sys.platform
) -> str:
    """Find the folder in which this platform keeps caches.

    >>> default_cache_dir({"XDG_CACHE_HOME": "/tmp/c"}, "linux")
    '/tmp/c/pellucid'
    """
    environ = os.environ if environ is None else environ
    if platform == "win32":
        base = environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    elif platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "pellucid")


def _option(
    default: Any, choice: Choice, doc: str, *, affects_code: bool = False, shown: str = ""
) -> Any:
    """Declare a field of Options; *shown* is how the docs spell a default that is computed."""
    metadata = {"choice": choice, "doc": doc, "affects_code": affects_code, "shown": shown}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    metadata["shown"] = shown or str(int(default) if isinstance(default, bool) else default)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All choices of a user, checked.

    >>> Options(debug=2).debug, Options().threads
    (2, 0)
    >>> Options(beam=-1)
    Traceback (most recent call last):
    ...
    pellucid.core.errors.OptionError: beam cannot be -1
        expected  a whole number from 0 up
        came      -1
        at        <doctest pellucid.core.options.Options[1]>:1  Options(beam=-1)
    """

    device: str = _option(
        "CPU",
        _device_name(),
        "where tensors live unless told otherwise; after the colon, which renderer makes its code",
    )
    threads: int = _option(
        0,
        _whole_number(0),
        "threads that a kernel may use on the CPU; 0: one for each core this process may run on",
        affects_code=True,
    )
    cache_dir: str = _option(
        default_cache_dir,
        _folder(),
        "where compiled kernels are kept between runs; empty: nowhere",
        shown="`~/.cache/pellucid`, or the platform's like",
    )
    debug: int = _option(
        0,
        _whole_number(0, 4),
        "what is printed: 1 each kernel as it runs, 2 with sizes and times, 3 the applied "
        "optimisation, 4 the source",
    )
    verify: bool = _option(
        False,
        _yes_or_no(),
        "check the form after every pass, and run the result beside the reference interpreter",
    )
    relaxed_float: bool = _option(
        False,
        _yes_or_no(),
        "allow laws that are true of real numbers but not, bit for bit, of floats",
        affects_code=True,
    )
    beam: int = _option(
        0,
        _whole_number(0),
        "width of the search for a kernel's optimisation; 0: the heuristic decides",
        affects_code=True,
    )
    actions: str = _option(
        "",
        _lists_of_actions(),
        "optimisation actions that some kernels take instead of those that would be chosen",
        affects_code=True,
        shown="none",
    )
    trace: bool = _option(
        False,
        _yes_or_no(),
        "remember for every node the line of the user's code, and for every decision its reason",
    )
    optimize: bool = _option(
        True,
        _yes_or_no(),
        "let the heuristic choose optimisation actions; 0: kernels stay plain loops",
        affects_code=True,
    )
    default_float: str = _option(
        "float32",
        _one_of("float16", "bfloat16", "float32", "float64"),
        "the dtype of Python floats and of functions that make floats from integers",
    )
    default_int: str = _option(
        "int64",
        _one_of("int8", "int16", "int32", "int64"),
        "the dtype of Python integers",
    )
    progress: str = _option(
        "auto",
        _one_of("auto", "on", "off"),
        "progress bars: auto shows them on a terminal, when something takes long",
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = checked(field.name, getattr(self, field.name), variable=field.name)
            object.__setattr__(self, field.name, value)

    def with_changes(self, **changes: object) -> Options:
        """Give these options with some fields changed.

        >>> Options().with_changes(debug=1).debug
        1
        """
        for name, value in changes.items():
            checked(name, value, variable=name)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


_FIELDS: Final = {field.name: field for field in dataclasses.fields(Options)}
_CODE_FIELDS: Final = tuple(f.name for f in _FIELDS.values() if f.metadata["affects_code"])


def checked(name: str, value: object, *, variable: str) -> object:
    """Give *value* as option *name* keeps it; *variable* is what an error calls the option.

    Errors: OptionError when there is no such option, or when the value is not allowed.
    """
    choice = _choice(name, variable)
    try:
        return choice.tidy(value)
    except ValueError:
        raise OptionError(variable, value, choice.sentence) from None


def _choice(name: str, variable: str) -> Choice:
    if name in _FIELDS:
        choice: Choice = _FIELDS[name].metadata["choice"]
        return choice
    close = difflib.get_close_matches(name, _FIELDS, n=1)
    raise OptionError(
        variable,
        name,
        "one of " + ", ".join(_FIELDS),
        problem=f"there is no option {name!r}",
        help=f"did you mean {close[0]}?" if close else None,
    )


def options_from_environment(environ: Mapping[str, str]) -> Options:
    """Read the `PELLUCID_*` variables of *environ*.

    A variable that is set to nothing counts as not set, except that an empty `PELLUCID_CACHE_DIR`
    means no cache on disk.

    Errors: OptionError names the variable, its value and what is allowed. A variable that no option
    has is a warning, since another version may know it.

    >>> options_from_environment({"PELLUCID_DEBUG": "2", "PELLUCID_VERIFY": "yes"}).verify
    True
    """
    given: dict[str, Any] = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and variable not in OTHER_VARIABLES:
            name = variable.removeprefix(PREFIX).lower()
            if name not in _FIELDS:
                _warn_unknown(variable, name)
            elif text.strip() or name == "cache_dir":
                given[name] = _read(name, text, variable)
    return Options(**given)


def _read(name: str, text: str, variable: str) -> object:
    choice = _choice(name, variable)
    stripped = text.strip()
    try:
        return choice.tidy(choice.from_text(stripped))
    except ValueError as error:
        reason = error.__cause__  # a file that cannot be read
        advice = f"{reason.strerror}: {text}" if isinstance(reason, OSError) else None
        raise OptionError(variable, text, choice.sentence, help=advice, at=None) from None


def _warn_unknown(variable: str, name: str) -> None:
    close = difflib.get_close_matches(name, _FIELDS, n=1)
    hint = f"; did you mean {PREFIX}{close[0].upper()}?" if close else ""
    warnings.warn(f"{variable} is no option of Pellucid{hint}", stacklevel=2)


_changed: ContextVar[Options | None] = ContextVar("pellucid_options", default=None)
_from_environment: Options | None = None


def current_options() -> Options:
    """Give the options in force here: the innermost Context's, or else the environment's."""
    return _changed.get() or _from_environment or environment_options()


def environment_options() -> Options:
    """Give the options of the environment, which is read the first time that somebody asks."""
    global _from_environment
    if _from_environment is None:
        _from_environment = options_from_environment(os.environ)
    return _from_environment


def forget_environment() -> None:
    """Read the environment again when next asked (for tests that change it)."""
    global _from_environment
    _from_environment = None


when_left: Final[dict[str, Callable[[object], None]]] = {}
"""What is called with an option's value when a Context that has set it ends without an error."""


class Context(contextlib.ContextDecorator):
    """Change options for a block of code or for every call of a function, in this thread only.

    Names and values are checked when the Context is made. Contexts nest, and an exception ends one
    like anything else.

    Errors: OptionError when there is no such option, or when the value is not allowed.

    >>> with Context(debug=3):
    ...     with Context(beam=2):
    ...         print(current_options().debug, current_options().beam)
    3 2
    """

    def __init__(self, **changes: object) -> None:
        for name, value in changes.items():
            checked(name, value, variable=name)
        self.changes = changes
        self._tokens: list[Token[Options | None]] = []

    def __enter__(self) -> Options:
        options = current_options().with_changes(**self.changes)
        self._tokens.append(_changed.set(options))
        return options

    def __exit__(self, failed: object = None, *_: object) -> None:
        _changed.reset(self._tokens.pop())
        for name, value in self.changes.items() if failed is None else ():
            if name in when_left:
                when_left[name](value)

    def _recreate_cm(self) -> Context:
        """Give each call of a decorated function a Context of its own: calls may overlap."""
        return Context(**self.changes)


@contextlib.contextmanager
def using(options: Options) -> Iterator[Options]:
    """Put all of *options* in force for a block: how work handed to a thread keeps its options.

    >>> with using(Options(debug=4)):
    ...     current_options().debug
    4
    """
    token = _changed.set(options)
    try:
        yield options
    finally:
        _changed.reset(token)


def code_key(options: Options) -> tuple[object, ...]:
    """Give the choices that change generated code, for cache keys.

    >>> code_key(Options(debug=1)) == code_key(Options())
    True
    >>> code_key(Options(relaxed_float=True)) == code_key(Options())
    False
    """
    global _last_code_key
    known, key = _last_code_key
    if known is not options:  # asked for at every call, mostly of the same options
        key = tuple(getattr(options, name) for name in _CODE_FIELDS)
        _last_code_key = options, key
    return key


_last_code_key: tuple[Options | None, tuple[object, ...]] = (None, ())


def options_table() -> str:
    """Write the table of the docs: one row for each option, then the other variables."""
    rows = [
        "| `Context(...)` | variable | default | allowed | changes code | what it does |",
        "|---|---|---|---|---|---|",
    ]
    for name, field in _FIELDS.items():
        meta = field.metadata
        changes = "yes" if meta["affects_code"] else "no"
        rows.append(
            f"| `{name}` | `{PREFIX}{name.upper()}` | {meta['shown']} | {meta['choice'].sentence} "
            f"| {changes} | {meta['doc']} |"
        )
    rows += [f"| | `{name}` | | | yes | {doc} |" for name, doc in OTHER_VARIABLES.items()]
    return "\n".join(rows) + "\n"
