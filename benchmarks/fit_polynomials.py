"""Make the polynomials of pellucid/codegen/decompositions/coefficients.py.

    python benchmarks/fit_polynomials.py > pellucid/codegen/decompositions/coefficients.py

Each is the polynomial of its degree with the smallest largest error, weighted so that this is the
relative error of the function that is computed from it. Method: the exchange algorithm of E. Ya.
Remez (1934), as in N. J. Higham and others, "Handbook of Floating-Point Arithmetic", 2nd edition,
2018, section 10.3, in 60 digits, on a grid of Chebyshev nodes. Coefficients are rounded to the
type the lowest powers first, and what is left is fitted again after each of them, so that their
errors of rounding are taken up by the others.

The reductions of arguments need pi and ln 2 in pieces; they are computed here too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import mpmath
import numpy as np
from mpmath import mp, mpf

mp.dps = 60
NODES = 400
ONE_BY_ONE = 3
Number: TypeAlias = Any  # mpmath has no types
Function = Callable[[Number], Number]


def fit(
    value: Function, weight: Function, low: float, high: float, degree: int, single: bool
) -> tuple[list[float], float]:
    """Coefficients from power 0 up, rounded to the type, and the largest weighted error."""
    middle, half = (mpf(low) + mpf(high)) / 2, (mpf(high) - mpf(low)) / 2
    grid = [middle - half * mpmath.cos(mp.pi * (2 * k + 1) / (2 * NODES)) for k in range(NODES)]
    wanted, weights = [value(x) for x in grid], [weight(x) for x in grid]
    found = []
    for one_by_one in (0, ONE_BY_ONE):  # fixing powers fails where all others must be 0
        fixed: list[float] = []
        while len(fixed) <= degree:
            rest = [float(c) for c in remez(grid, wanted, weights, fixed, degree)]
            rounded = [float(np.float32(c)) for c in rest] if single else rest
            fixed.extend(rounded[: 1 if len(fixed) < one_by_one else degree + 1])
        errors = [
            abs(w * (horner(fixed, x) - v)) for x, v, w in zip(grid, wanted, weights, strict=True)
        ]
        found.append((float(max(errors)), fixed))
    error, fixed = min(found)
    return fixed, error


def horner(coefficients: list[Any], x: Number) -> Number:
    """The value of a polynomial."""
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * x + mpf(c)
    return total


def remez(
    grid: list[Any], wanted: list[Any], weights: list[Any], fixed: list[Any], degree: int
) -> list[Any]:
    """Coefficients of the powers that are not *fixed*, by exchange on the grid."""
    first = len(fixed)
    count = degree + 1 - first
    left = [v - horner(fixed, x) for x, v in zip(grid, wanted, strict=True)]
    chosen = [round(k * (len(grid) - 1) / count) for k in range(count + 1)]
    best, smallest = [], mpf("inf")
    for _ in range(60):
        matrix = mpmath.matrix(count + 1, count + 1)
        right = mpmath.matrix(count + 1, 1)
        for row, k in enumerate(chosen):
            for column in range(count):
                matrix[row, column] = grid[k] ** (first + column)
            matrix[row, count] = (-1) ** row / weights[k]
            right[row] = left[k]
        solved = mpmath.lu_solve(matrix, right)
        solution, level = [solved[i] for i in range(count)], abs(solved[count])
        error = [
            w * (v - x**first * horner(solution, x))
            for x, v, w in zip(grid, left, weights, strict=True)
        ]
        largest = max(map(abs, error))
        if largest < smallest:
            best, smallest = solution, largest
        if largest <= level * mpf("1.001"):
            break
        chosen = extremes(error, count + 1)
    return best


def extremes(error: list[Any], count: int) -> list[int]:
    """The largest error between each two changes of sign, *count* of them in a row."""
    found: list[int] = []
    for k, e in enumerate(error):
        if found and (error[found[-1]] > 0) == (e > 0):
            if abs(e) > abs(error[found[-1]]):
                found[-1] = k
        else:
            found.append(k)
    while len(found) > count:
        del found[0 if abs(error[found[0]]) < abs(error[found[-1]]) else -1]
    while len(found) < count:  # a fit that is already exact to rounding
        found.append(min(found[-1] + 1, len(error) - 1))
    return found


def pieces(value: Number, *bits: int) -> list[float]:
    """*value* as a sum of floats, the first ones with so many bits and rounded towards zero."""
    parts = []
    for count in bits:
        exponent = int(mpmath.floor(mpmath.log(abs(value), 2))) + 1
        quantum = mpf(2) ** (exponent - count)
        part = (
            mpmath.floor(value / quantum) * quantum
            if value > 0
            else mpmath.ceil(value / quantum) * quantum
        )
        parts.append(float(part))
        value -= part
    return parts


def turns(shift: int) -> list[float]:
    """2**shift / (2 pi) less the nearest integer, in two pieces of 53 bits."""
    mp.dps = 120
    value = mpf(2) ** shift / (2 * mp.pi)
    value -= mpmath.nint(value)
    parts = pieces(value, 53, 53)
    mp.dps = 60
    return parts


LN2_HALF: Final = 0.34658
LOG_LOW, LOG_HIGH = float(mpmath.sqrt(mpf(1) / 2)) - 1, float(mpmath.sqrt(2)) - 1
ATANH_HIGH: Final = (LOG_HIGH / (LOG_HIGH + 2)) ** 2
ABOVE_ZERO: Final = 1e-12
"""Where an interval begins whose function would divide by zero at zero."""
CENTRE: Final = 1.5
"""Of the argument of log(erfc)."""

log, log1p, expm1, erf, erfc = mpmath.log, mpmath.log1p, mpmath.expm1, mpmath.erf, mpmath.erfc
root, power, sin, cos = mpmath.sqrt, mpmath.power, mpmath.sin, mpmath.cos


class Job(NamedTuple):
    """A polynomial that stands for *value* on an interval, with errors weighed by *weight*.

    single, double: its degrees for float32 and float64; None where it is not needed.
    """

    name: str
    value: Function
    weight: Function
    low: float
    high: float
    single: int | None
    double: int | None


def atanh(z: Number) -> Number:
    """2 (atanh(x) - x) / x^3 with z = x^2."""
    return 2 * (mpmath.atanh(root(z)) - root(z)) / root(z) ** 3


def odd_rest(function: Function) -> Function:
    """(f(x) - x) / x^3 with z = x^2, of an odd function that begins with x."""
    return lambda z: (function(root(z)) - root(z)) / root(z) ** 3


def odd_weight(function: Function) -> Function:
    """x^3 / f(x) with z = x^2: the part of such a function that its rest is."""
    return lambda z: z * root(z) / function(root(z))


def log_erfc(t: Number) -> Number:
    """The logarithm of erfc, about its centre."""
    return log(erfc(t + CENTRE))


def log_erfc_weight(t: Number) -> Number:
    """What an error of it does to erf = 1 - erfc."""
    return erfc(t + CENTRE) / erf(t + CENTRE)


# fmt: off
JOBS: Final = (
    Job("EXP", lambda r: (expm1(r) - r) / r**2, lambda r: r**2 / mpmath.exp(r),
        -LN2_HALF, LN2_HALF, 4, 9),
    Job("EXP2", lambda r: expm1(r * log(2)) / r, lambda r: abs(r) / power(2, r),
        -0.5, 0.5, 6, 11),
    Job("LOG", lambda f: (log1p(f) - f + f**2 / 2) / f**3, lambda f: abs(f**3 / log1p(f)),
        LOG_LOW, LOG_HIGH, 8, None),
    Job("LOG2", lambda f: (log1p(f) / log(2) - f / log(2)) / f**2,
        lambda f: abs(f**2 * log(2) / log1p(f)),
        LOG_LOW, LOG_HIGH, 8, None),
    Job("ATANH", atanh, lambda z: z,
        ABOVE_ZERO, ATANH_HIGH, None, 6),
    Job("POW_ATANH", lambda z: (atanh(z) - mpf(2) / 3) / z, lambda z: z**2,
        ABOVE_ZERO, ATANH_HIGH, None, 6),
    Job("SIN", odd_rest(sin), odd_weight(sin),
        ABOVE_ZERO, 0.617, 2, 6),
    Job("COS", lambda z: (cos(root(z)) - 1 + z / 2) / z**2, lambda z: z**2 / cos(root(z)),
        ABOVE_ZERO, 0.617, 2, 5),
    Job("TANH", odd_rest(mpmath.tanh), odd_weight(mpmath.tanh),
        ABOVE_ZERO, 0.5625, 5, 12),
    Job("ERF", lambda z: erf(root(z)) / root(z) - 1, lambda z: root(z) / erf(root(z)),
        ABOVE_ZERO, 0.81, 6, 12),
    Job("LOG_ERFC", log_erfc, log_erfc_weight,
        0.9 - CENTRE, 4.1 - CENTRE, 8, None),
    Job("LOG_ERFC", log_erfc, log_erfc_weight,
        0.9 - CENTRE, 6.0 - CENTRE, None, 18),
    Job("POW_LOG2", lambda f: log1p(f) / log(2) / f, lambda f: f / log1p(f),
        LOG_LOW, LOG_HIGH, None, 14),
    Job("POW_EXP2", lambda r: power(2, r), lambda r: power(2, -r),
        -0.5, 0.5, None, 7),
)
# fmt: on


def main() -> None:
    """Print the module."""
    print(HEAD)
    for job in JOBS:
        print_polynomials(job)
    print_pieces()
    print("TURNS: Final = (")
    for shift in (0, 26, 52, 78):
        print(f"    ({shift}, ({', '.join(map(repr, turns(shift)))})),")
    print(")")
    print_words()


def print_polynomials(job: Job) -> None:
    """The coefficients for float32, for float64, or for both."""
    for degree, suffix in ((job.single, "32"), (job.double, "64")):
        if degree is None:
            continue
        coefficients, error = fit(
            job.value, job.weight, job.low, job.high, degree, single=suffix == "32"
        )
        print(f"# largest relative error {error:.2e}")
        listed = "\n".join(f"    {c!r}," for c in coefficients)
        print(f"{job.name}_{suffix}: Final = (\n{listed}\n)")
        print(job.name, suffix, f"{error:.2e}", file=sys.stderr)


def print_pieces() -> None:
    """Constants that are longer than a float."""
    log_two, log2_e = log(2), 1 / log(2)
    for name, value in (
        ("LN2_32", [float(np.float32(p)) for p in pieces(log_two, 15, 24)]),
        ("LN2_64", pieces(log_two, 32, 53)),
        ("LOG2_E_32", [float(np.float32(p)) for p in pieces(log2_e, 24, 24)]),
        ("LOG2_E_64", pieces(log2_e, 53, 53)),
        ("TWO_THIRDS_64", pieces(mpf(2) / 3, 53, 53)),
        ("HALF_PI_64", pieces(mp.pi / 2, 53, 53, 53)),
        ("HALF_PI_SHORT_64", pieces(mp.pi / 2, 33, 33, 33, 53)),
    ):
        print(f"{name}: Final = ({', '.join(map(repr, value))})")


def print_words() -> None:
    """The bits of 2 / pi, 64 in a word."""
    mp.dps = 500
    bits = int(mpmath.floor(mpf(2) ** 1280 * 2 / mp.pi))
    words = [bits >> (1280 - 64 * (k + 1)) & (2**64 - 1) for k in range(20)]
    print("TWO_OVER_PI_WORDS: Final = (")
    for word in words:
        print(f"    0x{word:016X},")
    print(")")


HEAD = '''"""Numbers that the decompositions are made of. Written by
benchmarks/fit_polynomials.py; see there.

Polynomials are listed from power 0 up. Constants in pieces add up to the number; the leading pieces
have few enough bits that their product with a small integer is exact.
"""

from typing import Final
'''

if __name__ == "__main__":
    main()
