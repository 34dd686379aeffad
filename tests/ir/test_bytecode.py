"""Matchers that an earlier process left: the same as those that are generated, or not used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.ir import bytecode
from pellucid.ir.law import RuleSet, rule
from pellucid.ir.op import Ops
from pellucid.ir.pattern import K, X
from pellucid.ir.simplify import SIMPLIFY
from pellucid.ir.uop import UOp


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for bytecode, which is written."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    bytecode._beside.cache_clear()
    yield tmp_path
    bytecode._beside.cache_clear()


def fresh() -> RuleSet:
    """The standard rules, as another process has them before it met any node."""
    return RuleSet("again", [SIMPLIFY], any_order=True)


def kept_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.matcher"))


def no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(rules: RuleSet, op: object) -> bytecode.Code:
        raise AssertionError(f"a matcher for {op} is generated")

    monkeypatch.setattr(RuleSet, "_generated", refuse)


def results(rules: RuleSet) -> list[UOp | None]:
    """What the rules make of a few nodes."""
    i, j = UOp.range(12, 0), UOp.range(4, 1)
    nodes = [i * 1, i + 0, j + i, (i + 3) * 4, i * 2 + i, (i * 4 + j) // 4, i < 12, i.maximum(i)]
    return [rules.match(node) for node in nodes]


def test_a_kept_matcher_does_what_the_generated_one_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = results(fresh())
    assert any(result is not None for result in expected)
    assert kept_files(folder)
    no_generator(monkeypatch)
    assert results(fresh()) == expected


def test_an_op_without_rules_needs_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_generator(monkeypatch)
    monkeypatch.setattr(bytecode, "read", lambda *asked: pytest.fail(f"{asked} is read"))
    assert fresh().matcher(Ops.SINK) is None
    assert fresh().matcher_source(Ops.SINK) == ""
    assert kept_files(folder) == []


@pytest.mark.parametrize("damage", [b"", b"other stamp, and no code", None])
def test_what_does_not_carry_the_stamp_is_generated_anew(
    folder: Path, damage: bytes | None
) -> None:
    expected = results(fresh())
    for path in kept_files(folder):
        content = path.read_bytes()
        path.write_bytes(content[:40] if damage is None else damage)
    assert results(fresh()) == expected
    assert all(len(path.read_bytes()) > 40 for path in kept_files(folder))


def test_rules_from_outside_of_the_package_are_not_kept(folder: Path) -> None:
    @rule(X * K)
    def drop_one(x: UOp, k: UOp) -> UOp | None:
        return x if k.arg == 1 else None

    i = UOp.range(4, 0)
    assert RuleSet("tidy", [drop_one]).match(i * 1) is i
    assert kept_files(folder) == []


def test_nothing_is_written_where_python_writes_no_bytecode(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    results(fresh())
    assert kept_files(folder) == []


def test_a_folder_that_cannot_be_written_does_no_harm(folder: Path) -> None:
    expected = results(fresh())
    for path in kept_files(folder):
        path.unlink()
        path.mkdir()
    assert results(fresh()) == expected


def test_the_stamp_changes_with_the_rules() -> None:
    stamps = {bytecode.stamp_of(rules, True) for rules in (SIMPLIFY.rules, SIMPLIFY.rules[1:])}
    assert len(stamps | {bytecode.stamp_of(SIMPLIFY.rules, False)}) == 3
