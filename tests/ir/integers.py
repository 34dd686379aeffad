"""Random integer graphs and a tiny evaluator, for tests of what must keep values.

The evaluator is written apart from the folding rules: it follows semantics.md, one op a line.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pellucid.core.dtype import DType, Kind, dtypes, wrap
from pellucid.ir.arg import VariableArg
from pellucid.ir.op import Op, Ops
from pellucid.ir.uop import UOp

Values = dict[UOp, int]
BIT_OPS = [Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR]


def evaluate(root: UOp, values: Values) -> int:
    """The value of a scalar integer or bool graph."""
    done = dict(values)
    for node in root.toposort():
        if node not in done:
            done[node] = _value(node, [done[s] for s in node.src])
    return done[root]


def _value(node: UOp, given: list[int]) -> int:
    if node.op is Ops.CONST:
        return int(node.arg)
    a = given[0]
    b = given[1] if len(given) > 1 else 0
    bits = node.dtype.bits
    meanings: dict[Op, Callable[[], int]] = {
        Ops.ADD: lambda: a + b,
        Ops.MUL: lambda: a * b,
        Ops.FLOORDIV: lambda: a // b if b else 0,
        Ops.FLOORMOD: lambda: a % b if b else 0,
        Ops.TRUNCDIV: lambda: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
        Ops.TRUNCMOD: lambda: abs(a) % abs(b) * (-1 if a < 0 else 1) if b else 0,
        Ops.MAX: lambda: max(a, b),
        Ops.MIN: lambda: min(a, b),
        Ops.AND: lambda: a & b,
        Ops.OR: lambda: a | b,
        Ops.XOR: lambda: a ^ b,
        Ops.SHL: lambda: a << b if 0 <= b < bits else 0,
        Ops.SHR: lambda: a >> b if 0 <= b < bits else (-1 if a < 0 else 0),
        Ops.CMPLT: lambda: a < b,
        Ops.CMPLE: lambda: a <= b,
        Ops.CMPEQ: lambda: a == b,
        Ops.CMPNE: lambda: a != b,
        Ops.WHERE: lambda: given[1] if a else given[2],
        Ops.CAST: lambda: a,
    }
    meaning = meanings[node.op]()
    if node.dtype.kind is Kind.BOOL:
        return int(bool(meaning))
    return wrap(node.dtype, int(meaning))


def variables_of(root: UOp) -> list[UOp]:
    """The RANGEs and VARIABLEs below."""
    return [n for n in root.toposort() if n.op in (Ops.RANGE, Ops.VARIABLE)]


def variable(name: str, low: int, high: int, dtype: DType = dtypes.index) -> UOp:
    """A VARIABLE with bounds."""
    return UOp(Ops.VARIABLE, dtype, (), VariableArg(name, low, high))


def random_values(root: UOp, rng: random.Random) -> Values:
    """A value inside of the bounds for each variable below."""
    values: Values = {}
    for v in variables_of(root):
        low, high = (0, v.src[0].arg - 1) if v.op is Ops.RANGE else (v.arg.min, v.arg.max)
        values[v] = rng.choice([low, high, rng.randint(low, high), rng.randint(low, high)])
    return values


class Maker:
    """Makes random graphs of one integer type over a few variables."""

    def __init__(self, rng: random.Random, dtype: DType) -> None:
        self.rng, self.dtype = rng, dtype
        if dtype.kind is Kind.INDEX:
            self.leaves = [
                UOp.range(rng.randint(1, 9), 0),
                UOp.range(rng.randint(1, 20), 1),
                variable("n", 1, rng.randint(1, 12)),
                variable("s", -rng.randint(1, 30), rng.randint(0, 30)),
            ]
        else:
            low, high = int(dtype.min), int(dtype.max)
            self.leaves = [variable("a", low, high, dtype), variable("b", low, high, dtype)]
            self.leaves.append(variable("c", max(low, -3), 9, dtype))
            self.leaves.append(UOp.range(rng.choice([5, 12, 300]), 0).cast(dtype))
            self.leaves.append(UOp.range(7, 1).cast(dtype))

    def literal(self) -> UOp:
        """A small number, at times an extreme one."""
        rng = self.rng
        small = rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 24, -1, -2, -3, -4, -12, 5, 7])
        if self.dtype.kind is not Kind.INDEX and rng.random() < 0.2:
            small = rng.choice([int(self.dtype.min), int(self.dtype.max), 100, 127, 128, 200])
        return UOp.const(self.dtype, small)

    def integer(self, depth: int) -> UOp:
        """An integer graph."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return rng.choice(self.leaves) if rng.random() < 0.75 else self.literal()
        op = rng.choice(
            [Ops.ADD] * 4 + [Ops.MUL] * 3 + [Ops.FLOORDIV, Ops.FLOORMOD] * 3
            + [Ops.MAX, Ops.MIN, Ops.WHERE, Ops.TRUNCDIV, Ops.TRUNCMOD]
            + ([] if self.dtype.kind is Kind.INDEX else BIT_OPS)
        )  # fmt: skip
        if op is Ops.WHERE:
            return self.truth(depth - 1).where(self.integer(depth - 1), self.integer(depth - 1))
        left = self.integer(depth - 1)
        literal = (op is not Ops.ADD and rng.random() < 0.8) or rng.random() < 0.3
        right = self.literal() if literal else self.integer(depth - 1)
        if rng.random() < 0.1:
            left, right = right, left
        return UOp.make(op, left, right)

    def truth(self, depth: int) -> UOp:
        """A bool graph."""
        rng = self.rng
        kind = rng.randrange(8)
        if depth > 0 and kind == 0:
            return self.truth(depth - 1) & self.truth(depth - 1)
        if depth > 0 and kind == 1:
            return self.truth(depth - 1) | self.truth(depth - 1)
        if depth > 0 and kind == 2:
            return self.truth(depth - 1).logical_not()
        op = rng.choice([Ops.CMPLT, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE])
        left = self.integer(max(depth - 1, 0))
        right = self.literal() if rng.random() < 0.6 else self.integer(max(depth - 1, 0))
        return UOp.make(op, left, right)
