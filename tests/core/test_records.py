"""Data classes of core/records.py, held against those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from pellucid.core import records

KINDS = [records.dataclass, dataclasses.dataclass]


def made_by(dataclass: Callable[..., Any]) -> tuple[Any, Any, Any]:
    @dataclass(frozen=True)
    class Point:
        """Two numbers."""

        x: int
        y: int = 0
        note: str = field(default="", compare=False, repr=False)

    @dataclass
    class Box:
        """Some points."""

        points: list[Any] = field(default_factory=list)
        size: int = field(default=3, init=False)
        total: int = field(init=False)

        def __post_init__(self) -> None:
            self.total = len(self.points)

    @dataclass(frozen=True)
    class Named(Point):
        """A point with a name, which prints and hashes in its own way."""

        name: str = "?"

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return self.name

    return Point, Box, Named


@pytest.mark.parametrize("dataclass", KINDS)
def test_objects_are_made_compared_and_printed(dataclass: Callable[..., Any]) -> None:
    point, box, named = made_by(dataclass)
    assert point(1) == point(1, 0, "other") != point(1, 2)
    assert hash(point(1)) == hash(point(1, note="other")) == hash((1, 0))
    assert repr(point(1, y=2)).endswith("Point(x=1, y=2)")
    assert point(1) != named(1)
    assert hash(named(1, name="n")) == 7
    assert repr(named(1, name="n")) == "n"
    assert named(1).name == "?"
    first, second = box(), box([1])
    assert (first.points, first.size, first.total, second.total) == ([], 3, 0, 1)
    assert first.points is not box().points
    assert first == box()
    assert box.__hash__ is None
    for wrong in ({}, {"x": 1, "z": 2}):
        with pytest.raises(TypeError):
            point(**wrong)


@pytest.mark.parametrize("dataclass", KINDS)
def test_the_standard_library_knows_them(dataclass: Callable[..., Any]) -> None:
    point, box, _ = made_by(dataclass)
    assert [f.name for f in dataclasses.fields(point)] == ["x", "y", "note"]
    assert dataclasses.replace(point(1), y=4) == point(1, 4)
    assert dataclasses.asdict(box([1])) == {"points": [1], "size": 3, "total": 1}
    assert copy.deepcopy(point(1)) == point(1)
    match point(5, 6):
        case point(x, y):  # type: ignore[misc]
            assert (x, y) == (5, 6)


@pytest.mark.parametrize("dataclass", KINDS)
def test_a_frozen_object_cannot_be_changed(dataclass: Callable[..., Any]) -> None:
    point, _, _ = made_by(dataclass)
    one = point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    assert one.x == 1


@records.dataclass(frozen=True)
class Kept:
    """At the top of a module, so that it can be pickled."""

    value: int


def test_they_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)
