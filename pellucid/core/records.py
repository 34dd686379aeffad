"""Data classes whose functions are not compiled for each class: what the standard ones do, sooner.

    from pellucid.core.records import dataclass        @dataclass(frozen=True), as ever

`dataclasses.dataclass` writes up to six functions as text for every class, and compiles them: most
of a millisecond, before anything has been made of it, for a hundred classes. Here fields are found
by the standard library, which compiles nothing then; comparing, hashing and printing are closures
over the names of fields; `__init__` alone is compiled, for the first object of a class.

Classes with slots, or with arguments by name alone, are left to the standard library.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        eq: bool = True,
        slots: bool = False,
        kw_only: bool = False,
    ) -> Any:
        """Make a data class of *cls*, as `dataclasses.dataclass` does.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(3), Point(3) == Point(3, 0), dataclasses.replace(Point(3), y=1)
        (Point(x=3, y=0), True, Point(x=3, y=1))
        """
        if slots or kw_only:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only)
        if cls is None:
            return lambda cls: _completed(cls, frozen, eq)
        return _completed(cls, frozen, eq)


def _completed(cls: type, frozen: bool, eq: bool) -> type:
    """Give a class what `dataclass` gives it, where it does not say otherwise."""
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    given: dict[str, Any] = {"__init__": _first_init(cls, frozen)}
    given["__repr__"] = _repr_of([f.name for f in fields if f.repr])
    if eq:
        values = _values_of([f.name for f in fields if f.compare])
        given["__eq__"] = _eq_of(values)
        given["__hash__"] = _hash_of(values) if frozen else None
    if frozen:
        names = frozenset(f.name for f in fields)
        given["__setattr__"] = _refusal(cls, names, "assign to")
        given["__delattr__"] = _refusal(cls, names, "delete")
    has_hash = cls.__dict__.get("__hash__") is not None  # None: it defines __eq__ alone
    for name, function in given.items():
        if name not in cls.__dict__ or (name == "__hash__" and not has_hash):
            if callable(function):
                function.__name__, function.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls, name, function)
    return cls


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    """An __init__ that puts the compiled one in its own place."""

    def first(self: Any, *args: Any, **named: Any) -> None:
        made = _compiled_init(cls, frozen)
        cls.__init__ = made  # type: ignore[misc]
        made(self, *args, **named)

    return first


def _compiled_init(cls: type, frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"set_": object.__setattr__, "missing": dataclasses.MISSING}
    parameters: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"factory_{name}"] = field.default_factory
            value = f"factory_{name}()"
            if field.init:
                parameters.append(f"{name}=missing")
                value += f" if {name} is missing else {name}"
        elif not field.init:
            continue  # its default is the class's
        elif field.default is not dataclasses.MISSING:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        lines.append(f"set_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(['self', *parameters])}):\n {body}", scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads some fields of an object, as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({fields})"

    return text


def _eq_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def is_equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return is_equal


def _hash_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda record: hash(values(record))


def _refusal(cls: type, names: frozenset[str], what: str) -> Callable[..., None]:
    inherited = object.__setattr__ if what == "assign to" else object.__delattr__

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        inherited(self, name, *value)

    return refuse
