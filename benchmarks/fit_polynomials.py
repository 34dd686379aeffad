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

# ruff: noqa: E731  (a table of one-line functions)

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

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
    for one_by_one in (
        0,
        ONE_BY_ONE,
    ):  # fixing powers fails where a polynomial without them must be 0
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


def series(function: Function, terms: Callable[[mpf], mpf], near: float) -> Function:
    """*function*, or its limit where it would divide by nearly zero."""
    return lambda x: terms(x) if abs(x) < near else function(x)


SQRT_HALF, SQRT_TWO = float(mpmath.sqrt(mpf(1) / 2)), float(mpmath.sqrt(2))
LN2_HALF = 0.34658
one = mpf(1)


def jobs() -> list[tuple[Any, ...]]:
    """name, function, weight, interval, degree in single, degree in double (None: not needed)."""
    exp = lambda r: (mpmath.expm1(r) - r) / r**2
    exp2 = lambda r: mpmath.expm1(r * mpmath.log(2)) / r
    log = lambda f: (mpmath.log1p(f) - f + f**2 / 2) / f**3
    log2 = lambda f: (mpmath.log1p(f) / mpmath.log(2) - f / mpmath.log(2)) / f**2
    atanh: Function = lambda z: (
        2 * (mpmath.atanh(mpmath.sqrt(z)) - mpmath.sqrt(z)) / mpmath.sqrt(z) ** 3
    )
    atanh_rest = lambda z: (atanh(z) - mpf(2) / 3) / z
    sin = lambda z: (mpmath.sin(mpmath.sqrt(z)) - mpmath.sqrt(z)) / mpmath.sqrt(z) ** 3
    cos = lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2
    tanh = lambda z: (mpmath.tanh(mpmath.sqrt(z)) - mpmath.sqrt(z)) / mpmath.sqrt(z) ** 3
    erf = lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1
    log_erfc: Function = lambda t: mpmath.log(mpmath.erfc(t))
    return [
        ("EXP", exp, lambda r: r**2 / mpmath.exp(r), -LN2_HALF, LN2_HALF, 4, 9),
        ("EXP2", exp2, lambda r: abs(r) / mpmath.power(2, r), -0.5, 0.5, 6, 11),
        ("LOG", log, lambda f: abs(f**3 / mpmath.log1p(f)), SQRT_HALF - 1, SQRT_TWO - 1, 8, None),
        (
            "LOG2",
            log2,
            lambda f: abs(f**2 * mpmath.log(2) / mpmath.log1p(f)),
            SQRT_HALF - 1,
            SQRT_TWO - 1,
            8,
            None,
        ),
        ("ATANH", atanh, lambda z: z, 1e-12, ((SQRT_TWO - 1) / (SQRT_TWO + 1)) ** 2, None, 6),
        (
            "POW_ATANH",
            atanh_rest,
            lambda z: z**2,
            1e-12,
            ((SQRT_TWO - 1) / (SQRT_TWO + 1)) ** 2,
            None,
            6,
        ),
        (
            "SIN",
            sin,
            lambda z: z * mpmath.sqrt(z) / mpmath.sin(mpmath.sqrt(z)),
            1e-12,
            0.617,
            2,
            6,
        ),
        ("COS", cos, lambda z: z**2 / mpmath.cos(mpmath.sqrt(z)), 1e-12, 0.617, 2, 5),
        (
            "TANH",
            tanh,
            lambda z: z * mpmath.sqrt(z) / mpmath.tanh(mpmath.sqrt(z)),
            1e-12,
            0.5625,
            5,
            12,
        ),
        ("ERF", erf, lambda z: mpmath.sqrt(z) / mpmath.erf(mpmath.sqrt(z)), 1e-12, 0.81, 6, 12),
        (
            "LOG_ERFC",
            lambda t: log_erfc(t + 1.5),
            lambda t: mpmath.erfc(t + 1.5) / mpmath.erf(t + 1.5),
            0.9 - 1.5,
            4.1 - 1.5,
            8,
            None,
        ),
        (
            "LOG_ERFC",
            lambda t: log_erfc(t + 1.5),
            lambda t: mpmath.erfc(t + 1.5) / mpmath.erf(t + 1.5),
            0.9 - 1.5,
            6.0 - 1.5,
            None,
            18,
        ),
        (
            "POW_LOG2",
            lambda f: mpmath.log1p(f) / mpmath.log(2) / f,
            lambda f: f / mpmath.log1p(f),
            SQRT_HALF - 1,
            SQRT_TWO - 1,
            None,
            14,
        ),
        (
            "POW_EXP2",
            lambda r: mpmath.power(2, r),
            lambda r: mpmath.power(2, -r),
            -0.5,
            0.5,
            None,
            7,
        ),
    ]


def main() -> None:
    """Print the module."""
    print(HEAD)
    for name, value, weight, low, high, single, double in jobs():
        for degree, suffix in ((single, "32"), (double, "64")):
            if degree is None:
                continue
            coefficients, error = fit(value, weight, low, high, degree, suffix == "32")
            print(f"# largest relative error {error:.2e}")
            listed = "\n".join(f"    {c!r}," for c in coefficients)
            print(f"{name}_{suffix}: Final = (\n{listed}\n)")
            print(name, suffix, f"{error:.2e}", file=sys.stderr)
    log_two, log2_e = mpmath.log(2), 1 / mpmath.log(2)
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
    print("TURNS: Final = (")
    for shift in (0, 26, 52, 78):
        print(f"    ({shift}, ({', '.join(map(repr, turns(shift)))})),")
    print(")")
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
