"""Packed graphs come back as the same nodes, and no bytes make a crash."""

from __future__ import annotations

import contextlib
import json
import math
import random

import pytest

from pellucid.core.dtype import dtypes
from pellucid.core.errors import ParseError
from pellucid.ir.arg import ReduceArg
from pellucid.ir.op import Ops
from pellucid.ir.pack import pack, unpack
from pellucid.ir.uop import UOp


def program() -> UOp:
    i, j = UOp.range(3, 0), UOp.range(5, 1)
    total = UOp.make(Ops.REDUCE, (i * 5 + j).cast(dtypes.float32), j, arg=ReduceArg(Ops.ADD))
    source = UOp(Ops.SOURCE, dtypes.void, (), 'void f() { "quoted" }\n')
    binary = UOp(Ops.BINARY, dtypes.void, (), bytes(range(256)) * 4)
    return UOp.sink(total, source, binary, UOp.const(dtypes.float32.vec(4), (0.0, -0.0, 1.0, 2.0)))


def test_the_same_node_comes_back() -> None:
    kept: dict[str, bytes] = {}
    root = program()
    data = pack(root, kept.__setitem__)
    assert unpack(data, kept.get) is root
    assert len(kept) == 1
    assert unpack(pack(root)) is root


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (dtypes.float32, math.nan),
        (dtypes.float32, -math.inf),
        (dtypes.float64, -0.0),
        (dtypes.float64, 1e-320),
        (dtypes.int64, -(2**63)),
        (dtypes.uint64, 2**64 - 1),
        (dtypes.bool, True),
    ],
)
def test_literals_keep_their_value_and_kind(dtype: dtypes, value: float) -> None:  # type: ignore[valid-type]
    node = UOp.sink(UOp.const(dtype, value), UOp.const(dtypes.int32, 1), UOp.const(dtypes.bool, 1))  # type: ignore[arg-type]
    assert unpack(pack(node)) is node


def test_bytes_that_are_gone() -> None:
    data = pack(program(), lambda key, content: None)
    with pytest.raises(ParseError, match="are gone"):
        unpack(data, lambda key: None)
    with pytest.raises(ParseError, match="are gone"):
        unpack(data)


def test_garbage_is_an_error_and_never_a_crash() -> None:
    data = pack(program(), lambda key, content: None)
    draw = random.Random(0)
    for _ in range(1500):
        broken = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        if draw.random() < 0.3:
            del broken[draw.randrange(len(broken)) :]
        with contextlib.suppress(ParseError):
            unpack(bytes(broken), lambda key: b"object")


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": [[0, 0, 0], [0, 0, 0, -1]]},
        {"nodes": [[0, 0, 0, 0]]},
        {"nodes": [[0, 0, 99]]},
        {"nodes": [[0, 0, True]]},
        {"nodes": [[0, 0]]},
        {"nodes": [[0, 0, 0.5]]},
        {"nodes": [0]},
        {"nodes": []},
        {"ops": ["NOSUCH"]},
        {"types": ["float33"]},
        {"args": [{"a": 1}]},
        {"args": [["other", "x"]]},
        {"args": ["__import__('os')"]},
    ],
)
def test_wrong_parts_are_refused(change: dict[str, object]) -> None:
    good = {"ops": ["CONST"], "types": ["int32"], "args": [1], "nodes": [[0, 0, 0]]}
    assert unpack(json.dumps(good).encode()) is UOp.const(dtypes.int32, 1)
    with pytest.raises(ParseError):
        unpack(json.dumps({**good, **change}).encode())
