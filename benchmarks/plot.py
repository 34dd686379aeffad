"""Draw the ratios as a picture: one bar a limit, on a logarithmic scale, with a mark where it ends.

matmul 512, 1t   1.00 of numpy  |#########|        0.85
softmax, 1t      0.70 of torch  |######|#####      0.93   (missed: another colour)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from benchmarks.measure import Row, Verdict
from benchmarks.work import Ratio

LABEL_WIDTH, BAR_WIDTH, LINE_HEIGHT, TOP = 430, 420, 20, 48
SMALLEST, LARGEST = 1 / 16, 16.0
COLOURS = {True: "#2b7a4b", False: "#b3432b"}


def place_of(ratio: float) -> float:
    """Give how far to the right a ratio is, from 0 to 1: a factor of 2 is always equally far.

    >>> place_of(1.0), place_of(1 / 1000), place_of(16.0)
    (0.5, 0.0, 1.0)
    """
    inside = min(max(ratio, SMALLEST), LARGEST)
    return math.log(inside / SMALLEST) / math.log(LARGEST / SMALLEST)


def verdicts_svg(rows: Sequence[Row]) -> str:
    """Draw all limits that are ratios and were measured."""
    bars = [
        (row, verdict)
        for row in rows
        for verdict in row.verdicts()
        if isinstance(verdict.limit, Ratio) and verdict.value is not None
    ]
    height = TOP + LINE_HEIGHT * len(bars) + 12
    width = LABEL_WIDTH + BAR_WIDTH + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="8" y="18" font-size="14">Time of Pellucid over time of the peer'
        " (less is better; the black mark is what is allowed)</text>",
        *(_grid_line(power, height) for power in range(-4, 5)),
        *(_bar(i, row, verdict) for i, (row, verdict) in enumerate(bars)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(ratio: float) -> float:
    return LABEL_WIDTH + BAR_WIDTH * place_of(ratio)


def _grid_line(power: int, height: int) -> str:
    ratio = 2.0**power
    name = f"{ratio:g}" if power >= 0 else f"1/{2**-power}"
    x = _x(ratio)
    return (
        f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{TOP - 6}" y2="{height - 8}" stroke="#ddd"/>'
        f'<text x="{x:.0f}" y="{TOP - 12}" text-anchor="middle" fill="#555">{name}</text>'
    )


def _bar(index: int, row: Row, verdict: Verdict) -> str:
    value = verdict.value or SMALLEST
    y = TOP + LINE_HEIGHT * index
    label = f"{row.work.name}, {row.threads}t / {verdict.against or verdict.limit.title}"
    x, mark = _x(value), _x(verdict.limit.at_most)
    return (
        f'<text x="{LABEL_WIDTH - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{LABEL_WIDTH}" y="{y + 3}" width="{max(x - LABEL_WIDTH, 1):.1f}"'
        f' height="{LINE_HEIGHT - 7}" fill="{COLOURS[bool(verdict.holds)]}"/>'
        f'<line x1="{mark:.1f}" x2="{mark:.1f}" y1="{y + 1}" y2="{y + LINE_HEIGHT - 2}"'
        ' stroke="black" stroke-width="2"/>'
        f'<text x="{max(x, mark) + 6:.1f}" y="{y + 13}">{value:.2f}</text>'
    )
