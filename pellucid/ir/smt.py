"""Is a law true? First by trying values, then by asking a solver.

    check(divide_twice)  ->  Verdict(level="proved for listed literals")
    check(x + 0 = x for floats)  ->  Verdict(level="false", counterexample={"x": -0.0})

A law is sampled over every type that its variables stand for, edges first; a false one dies there
in milliseconds. Then the solver looks for values for which the sides differ: `Index` over the
integers, `Wrap` over bit-vectors of 8 and 16 bits, signed and unsigned, `Float` over IEEE half
precision (there is one NaN, and -0.0 is not 0.0), `Real` over the reals. Where it cannot decide,
literals are tried one by one from a list; where that fails too, the law counts as sampled.

Division in the solver's integers is Euclidean and free to choose x / 0; here both are spelled out
as in the op table. The solver's budget is counted in its own steps, so that every machine finds the
same level; `python -m pellucid.ir.smt` writes the levels to laws/levels.json, tests check them.

Source of the method: N. Lopes, D. Menendez, S. Nagarakatte, J. Regehr, "Provably correct peephole
optimizations with Alive", PLDI 2015. This module needs the package z3-solver.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

import z3

from pellucid.core.dtype import (
    DType,
    Scalar,
    bits_of,
    dtypes,
    to_scalar,
    value_of_bits,
)
from pellucid.core.records import dataclass
from pellucid.ir.equation import Bool, Float, Index, Known, Real, Value, Variable, Wrap
from pellucid.ir.law import Law
from pellucid.ir.laws.folding import fold_value
from pellucid.ir.op import COMPARISONS, Op, Ops
from pellucid.ir.pattern import Pattern
from pellucid.ir.simplify import all_laws

Values: TypeAlias = "Mapping[str, Scalar]"

PROVED = "proved"
PROVED_LISTED = "proved for listed literals"
SAMPLED = "sampled"
FALSE = "false"
LISTED_LITERALS = (-3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 12)
SOLVER_STEPS = 1_000_000


@dataclass(frozen=True)
class Verdict:
    """How a law is known: its level, and for a false one the values that show it."""

    level: str
    counterexample: dict[str, Scalar] = field(default_factory=dict)
    dtype: DType | None = None


def check(law: Law, *, samples: int = 300, steps: int = SOLVER_STEPS) -> Verdict:
    """Sample, then prove."""
    for theory in theories_of(law):
        for dtype in SAMPLED_DTYPES[theory]:
            if wrong := sample(law, dtype, samples):
                return Verdict(FALSE, wrong, dtype)
    return prove(law, steps=steps)


# ---- sampling ------------------------------------------------------------------------------------

SAMPLED_DTYPES: dict[type[Variable], tuple[DType, ...]] = {
    Index: (dtypes.index,),
    Wrap: (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.uint64),
    Float: (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.float8_e4m3),
    Real: (),
    Bool: (dtypes.bool,),
    Value: (dtypes.int8, dtypes.float16, dtypes.bool),
}


def theories_of(law: Law) -> list[type[Variable]]:
    """The types that the law's main variables stand for, one after the other.

    Variables with the same union of types have the same type in one use of the law.
    """
    mains = [types for types in law.types.values() if Known not in types and types != (Bool,)]
    return list(mains[0]) if mains else [Bool]


def sample(law: Law, dtype: DType, samples: int, seed: int = 0) -> dict[str, Scalar] | None:
    """Values of type *dtype* for which the sides differ, if some are found."""
    rng = random.Random(seed)
    for values in _value_sets(law, dtype, samples, rng):
        if law.condition is not None and not evaluate(law.condition, values, dtype):
            continue
        left, right = (evaluate(s, values, dtype) for s in (law.left, law.right))
        if not same_value(left, right):
            return values
    return None


def _value_sets(
    law: Law, dtype: DType, samples: int, rng: random.Random
) -> Iterator[dict[str, Scalar]]:
    own = {n: dtypes.bool if t == (Bool,) else dtype for n, t in law.types.items()}
    edges = {n: _edges(d) for n, d in own.items()}
    all_edges = math.prod(len(e) for e in edges.values())
    if all_edges <= samples:
        for row in itertools.product(*edges.values()):
            yield dict(zip(edges, row, strict=True))
    for _ in range(samples):
        yield {
            n: rng.choice(edges[n]) if rng.random() < 0.6 else _random_value(d, rng)
            for n, d in own.items()
        }


def _edges(dtype: DType) -> list[Scalar]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        least = math.ldexp(1.0, dtype.smallest_exponent - dtype.mantissa_bits)
        top = dtype.finite_max
        special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 3.0, -2.0]
        found = [*special, least, -least, top, -top, 1.0 + dtype.epsilon, 0.1]
        return [to_scalar(dtype, v) for v in found]
    small: list[Scalar] = [0, 1, -1, 2, -2, 3, -3, 4, 7, 12, -12]
    if dtype.is_index:
        return [*small, 1 << 40, -(1 << 40), 1 << 70]
    low, high = int(dtype.min), int(dtype.max)
    inside = [v for v in small if low <= v <= high]
    return [*inside, low, high, low + 1, high - 1, high // 2]


def _random_value(dtype: DType, rng: random.Random) -> Scalar:
    if dtype.is_index:
        return rng.randint(-(10 ** rng.randint(1, 6)), 10 ** rng.randint(1, 6))
    return to_scalar(dtype, value_of_bits(dtype, rng.getrandbits(max(dtype.bits, 1))))


def evaluate(side: Pattern, values: Values, dtype: DType) -> Scalar:
    """One side of a law for *values*, in *dtype*, as the op table says."""
    return _evaluate(side, values, dtype)[0]


def _evaluate(side: Pattern, values: Values, dtype: DType) -> tuple[Scalar, DType]:
    if side.value is not None:
        own = dtypes.bool if isinstance(side.value, bool) else dtype
        return to_scalar(own, side.value), own
    if side.src is None:
        value = values[str(side.name)]
        return value, dtypes.bool if isinstance(value, bool) else dtype
    op = side.op
    assert op is not None, "sides of laws are made of single ops"
    given = [_evaluate(s, values, dtype) for s in side.src]
    own = given[-1][1] if op is Ops.WHERE else given[0][1]
    result = dtypes.bool if op in COMPARISONS else own
    return fold_value(op, result, own, tuple(v for v, _ in given)), result


def same_value(left: Scalar, right: Scalar) -> bool:
    """Equal bit for bit; all NaNs are equal."""
    if isinstance(left, float) and isinstance(right, float):
        if left != left or right != right:
            return left != left and right != right
        return bits_of(dtypes.float64, left) == bits_of(dtypes.float64, right)
    return left == right


# ---- proving -------------------------------------------------------------------------------------


class UnknownTheoryError(Exception):
    """The solver has no words for an op of the law."""


@dataclass(frozen=True)
class Theory:
    """What stands for values of a type: a maker of variables, of literals, and the ops."""

    name: str
    variable: Callable[[str], Any]
    literal: Callable[[Scalar], Any]
    ops: Mapping[Op, Callable[..., Any]]


def _floor_division(a: Any, b: Any) -> Any:
    return z3.If(b == 0, 0, z3.If(b > 0, a / b, (-a) / (-b)))


def _maximum(a: Any, b: Any) -> Any:
    return z3.If(a >= b, a, b)


def _minimum(a: Any, b: Any) -> Any:
    return z3.If(a <= b, a, b)


_COMPARE: dict[Op, Callable[..., Any]] = {
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPLE: lambda a, b: a <= b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.CMPNE: lambda a, b: a != b,
}
_RING: dict[Op, Callable[..., Any]] = {Ops.ADD: lambda a, b: a + b, Ops.MUL: lambda a, b: a * b}

INTEGERS = Theory(
    "integers",
    z3.Int,
    z3.IntVal,
    {
        **_COMPARE,
        **_RING,
        Ops.FLOORDIV: _floor_division,
        Ops.FLOORMOD: lambda a, b: z3.If(b == 0, 0, a - b * _floor_division(a, b)),
        Ops.MAX: _maximum,
        Ops.MIN: _minimum,
    },
)
REALS = Theory(
    "reals",
    z3.Real,
    z3.RealVal,
    {
        **_COMPARE,
        **_RING,
        Ops.FDIV: lambda a, b: a / b,
        Ops.MAX: _maximum,
        Ops.MIN: _minimum,
    },
)


def bit_vectors(bits: int, signed: bool) -> Theory:
    """Integers that wrap at *bits*."""

    def floor_division(a: Any, b: Any) -> Any:
        if not signed:
            return z3.If(b == 0, z3.BitVecVal(0, bits), z3.UDiv(a, b))
        rest = z3.SRem(a, b)
        uneven = z3.And(rest != 0, (rest < 0) != (b < 0))
        return z3.If(b == 0, z3.BitVecVal(0, bits), z3.If(uneven, a / b - 1, a / b))

    def floor_modulo(a: Any, b: Any) -> Any:
        if not signed:
            return z3.If(b == 0, z3.BitVecVal(0, bits), z3.URem(a, b))
        rest = z3.SRem(a, b)
        uneven = z3.And(rest != 0, (rest < 0) != (b < 0))
        return z3.If(b == 0, z3.BitVecVal(0, bits), z3.If(uneven, rest + b, rest))

    less = (lambda a, b: a < b) if signed else z3.ULT
    at_most = (lambda a, b: a <= b) if signed else z3.ULE
    return Theory(
        f"{'' if signed else 'unsigned '}bit-vectors of {bits}",
        lambda name: z3.BitVec(name, bits),
        lambda value: z3.BitVecVal(int(value), bits),
        {
            **_COMPARE,
            **_RING,
            Ops.CMPLT: less,
            Ops.CMPLE: at_most,
            Ops.FLOORDIV: floor_division,
            Ops.FLOORMOD: floor_modulo,
            Ops.MAX: lambda a, b: z3.If(at_most(b, a), a, b),
            Ops.MIN: lambda a, b: z3.If(at_most(a, b), a, b),
            Ops.AND: lambda a, b: a & b,
            Ops.OR: lambda a, b: a | b,
            Ops.XOR: lambda a, b: a ^ b,
        },
    )


_HALF = z3.FPSort(5, 11)
_NEAREST = z3.RNE()


def _float_extreme(pick_positive: bool) -> Callable[[Any, Any], Any]:
    def extreme(a: Any, b: Any) -> Any:
        first = z3.fpIsPositive(a) if pick_positive else z3.fpIsNegative(a)
        above = z3.fpGEQ(a, b) if pick_positive else z3.fpLEQ(a, b)
        zeros = z3.And(z3.fpIsZero(a), z3.fpIsZero(b))
        chosen = z3.If(zeros, z3.If(first, a, b), z3.If(above, a, b))
        return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), z3.fpNaN(_HALF), chosen)

    return extreme


HALF = Theory(
    "IEEE half",
    lambda name: z3.FP(name, _HALF),
    lambda value: z3.FPVal(float(value), _HALF),
    {
        Ops.ADD: lambda a, b: z3.fpAdd(_NEAREST, a, b),
        Ops.MUL: lambda a, b: z3.fpMul(_NEAREST, a, b),
        Ops.FDIV: lambda a, b: z3.fpDiv(_NEAREST, a, b),
        Ops.MAX: _float_extreme(pick_positive=True),
        Ops.MIN: _float_extreme(pick_positive=False),
        Ops.CMPLT: z3.fpLT,
        Ops.CMPLE: z3.fpLEQ,
        Ops.CMPEQ: z3.fpEQ,
        Ops.CMPNE: z3.fpNEQ,
    },
)
TRUTH = Theory(
    "truth values",
    z3.Bool,
    lambda value: z3.BoolVal(bool(value)),
    {
        Ops.ADD: z3.Or,
        Ops.MUL: z3.And,
        Ops.AND: z3.And,
        Ops.OR: z3.Or,
        Ops.XOR: z3.Xor,
        Ops.MAX: z3.Or,
        Ops.MIN: z3.And,
        Ops.CMPLT: lambda a, b: z3.And(z3.Not(a), b),
        Ops.CMPLE: z3.Implies,
        Ops.CMPEQ: lambda a, b: a == b,
        Ops.CMPNE: lambda a, b: a != b,
    },
)
_WRAPPING = tuple(bit_vectors(bits, signed) for bits in (8, 16) for signed in (True, False))
THEORIES: dict[type[Variable], tuple[Theory, ...]] = {
    Index: (INTEGERS,),
    Wrap: _WRAPPING,
    Float: (HALF,),
    Real: (REALS,),
    Bool: (TRUTH,),
    Value: _WRAPPING[:1],
}


def prove(law: Law, *, steps: int = SOLVER_STEPS) -> Verdict:
    """Ask the solver, in every theory the law is about; the weakest answer counts."""
    order = (PROVED, PROVED_LISTED, SAMPLED)
    level = PROVED
    for theory in (t for member in theories_of(law) for t in THEORIES[member]):
        try:
            found = _prove_in(law, theory, steps)
        except UnknownTheoryError:
            found = Verdict(SAMPLED)
        if found.level == FALSE:
            return found
        level = max(level, found.level, key=order.index)
    return Verdict(level)


def _prove_in(law: Law, theory: Theory, steps: int) -> Verdict:
    found = _ask(law, theory, {}, steps)
    known = [name for name, types in law.types.items() if Known in types]
    if found.level != SAMPLED or not known:
        return found
    for row in itertools.product(LISTED_LITERALS, repeat=len(known)):
        found = _ask(law, theory, dict(zip(known, row, strict=True)), steps)
        if found.level != PROVED:
            return found
    return Verdict(PROVED_LISTED)


def _ask(law: Law, theory: Theory, literals: Mapping[str, int], steps: int) -> Verdict:
    """Look for values for which the sides differ; *literals* are given."""
    translate = _Translator(law, theory, literals)
    wrong = z3.Not(translate(law.left) == translate(law.right))
    if law.condition is not None:
        wrong = z3.And(translate(law.condition), wrong)
    fresh = z3.Context()  # what was asked before does not change the answer
    solver = z3.Solver(ctx=fresh)
    solver.set("rlimit", steps)
    solver.add(wrong.translate(fresh))
    answer = solver.check()
    if answer == z3.unsat:
        return Verdict(PROVED)
    if answer == z3.sat:
        model = solver.model()
        found = {n: str(model.eval(v.translate(fresh))) for n, v in translate.variables.items()}
        return Verdict(FALSE, {**dict(literals), **found})  # type: ignore[dict-item]
    return Verdict(SAMPLED)


class _Translator:
    """Says a side of a law in the words of a theory."""

    def __init__(self, law: Law, theory: Theory, literals: Mapping[str, int]) -> None:
        self.theory = theory
        self.variables: dict[str, Any] = {}
        for name, types in law.types.items():
            if name in literals:
                self.variables[name] = theory.literal(literals[name])
            else:
                own = TRUTH if types == (Bool,) else theory
                self.variables[name] = own.variable(name)

    def __call__(self, side: Pattern) -> Any:
        if side.value is not None:
            own = TRUTH if isinstance(side.value, bool) else self.theory
            return own.literal(side.value)
        if side.src is None:
            return self.variables[str(side.name)]
        given: Sequence[Any] = [self(s) for s in side.src]
        if side.op is Ops.WHERE:
            return z3.If(*given)
        ops = TRUTH.ops if z3.is_bool(given[0]) else self.theory.ops
        if side.op is None or side.op not in ops:
            raise UnknownTheoryError(f"{side.op} in {self.theory.name}")
        return ops[side.op](*given)


# ---- the table of levels -------------------------------------------------------------------------


def write_levels() -> None:
    """Check every law of the standard sets and write how it is known to laws/levels.json."""
    levels = {f"{law.family}.{law.name}": check(law).level for law in all_laws()}
    path = Path(__file__).with_name("laws") / "levels.json"
    path.write_text(json.dumps(levels, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_levels()
