"""Graphs as compact bytes, both ways: what the disk cache keeps, where text would be slow to read.

    i * 4    ->    {"ops": ["CONST", …], "types": ["index"], "args": [3, "RangeArg(0, …)"],
                    "nodes": [[0,0,0], [1,0,1,0], …]}

A node is a row of numbers: op, type, arg, and its sources, which are rows before it. Ops and types
stand by name, so that a table that grew or was reordered reads older bytes right, or not at all.
Numbers are numbers; other args are spelled as in graph text (ir/text.py), and read by its reader,
never evaluated. Large args of type bytes are left out: `pack` gives them to the caller under their
hash, `unpack` asks for them, so that programs of one object share it.

The bytes are JSON: what is no packed graph is an error, never a crash. As equal nodes are the same
object, `unpack(pack(root)) is root`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from pellucid.core.dtype import DType, parse_dtype
from pellucid.core.errors import ParseError
from pellucid.ir.op import Op, Ops
from pellucid.ir.text import literal_from_text, literal_text
from pellucid.ir.uop import UOp

_OPS: Final[dict[str, Op]] = {op.name: op for op in Ops.all()}

Keep = Callable[[str, bytes], None]
Find = Callable[[str], bytes | None]


def pack(root: UOp, keep: Keep | None = None) -> bytes:
    """Write a graph; *keep* takes args of type bytes, which otherwise are written too.

    >>> i = UOp.range(3, 0)
    >>> unpack(pack(i * 4)) is i * 4
    True
    """
    ops: dict[Op, int] = {}
    types: dict[DType, int] = {}
    places: dict[Any, int] = {}
    args: list[Any] = []
    numbers: dict[UOp, int] = {}
    rows: list[list[int]] = []
    for node in root.toposort():
        key = _key_of(node.arg)
        if key not in places:
            places[key] = len(args)
            args.append(_written(node.arg, keep))
        op = ops.setdefault(node.op, len(ops))
        dtype = types.setdefault(node.dtype, len(types))
        rows.append([op, dtype, places[key], *[numbers[source] for source in node.src]])
        numbers[node] = len(numbers)
    named = {"ops": [op.name for op in ops], "types": [str(dtype) for dtype in types]}
    return json.dumps({**named, "args": args, "nodes": rows}, separators=(",", ":")).encode()


def _key_of(arg: Any) -> Any:
    """Equal for args that are written alike only: 1, 1.0 and true differ, as 0.0 and -0.0 do."""
    kind = type(arg)
    return repr(arg) if kind is float or kind is tuple else (kind, arg)


def _written(arg: Any, keep: Keep | None) -> Any:
    """An arg as JSON: numbers as they are, text in a list, bytes by their hash, others spelled."""
    if arg is None or type(arg) in (bool, int, float):
        return arg
    if type(arg) is str:
        return ["text", arg]
    if type(arg) is bytes and keep is not None:
        key = hashlib.sha256(arg).hexdigest()
        keep(key, arg)
        return ["bytes", key]
    return literal_text(arg)


def unpack(data: bytes, find: Find | None = None) -> UOp:
    """Read a graph that `pack` wrote; *find* gives the bytes that were kept elsewhere.

    Errors: ParseError for anything else, and where *find* has nothing.

    >>> unpack(b'{"ops": []}')
    Traceback (most recent call last):
    ...
    pellucid.core.errors.ParseError: these bytes are no packed graph: KeyError('types')
        at    ...
    """
    try:
        return _unpacked(json.loads(data), find)
    except ParseError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ParseError(f"these bytes are no packed graph: {error!r}") from None


def _unpacked(parts: Any, find: Find | None) -> UOp:
    ops: list[Op] = [_OPS[name] for name in parts["ops"]]
    types: list[DType] = [parse_dtype(name) for name in parts["types"]]
    args = [_read(arg, find) for arg in parts["args"]]
    rows: list[list[int]] = parts["nodes"]
    numbers = list(chain.from_iterable(rows))
    if set(map(type, numbers)) != {int} or min(numbers) < 0:
        raise ValueError("a node is made of numbers from 0 up")
    nodes: list[UOp] = []
    for op, dtype, arg, *sources in rows:
        node = UOp(ops[op], types[dtype], tuple([nodes[number] for number in sources]), args[arg])
        nodes.append(node)
    return nodes[-1]


def _read(arg: Any, find: Find | None) -> Any:
    if type(arg) is str:
        return _spelled(arg)
    if type(arg) is not list:
        if arg is not None and type(arg) not in (bool, int, float):
            raise ValueError(f"no arg is a {type(arg).__name__}")
        return arg
    kind, value = arg
    if kind == "text" and type(value) is str:
        return value
    found = find(value) if kind == "bytes" and find is not None else None
    if found is None:
        raise ParseError(f"the bytes {value!r} that belong to this graph are gone")
    return found


@lru_cache(maxsize=4096)
def _spelled(text: str) -> Any:
    return literal_from_text(text)
