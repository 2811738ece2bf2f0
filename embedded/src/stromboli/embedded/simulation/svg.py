"""Charts as SVG text: lines, stacked areas and a Gantt chart, without script."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 960, 220, 64, 28, 10
ROW = 12
"""Height of a row of the Gantt chart."""
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#7a68a6",
    "#8c8c2e",
    "#444444",
    "#a0522d",
)
"""Okabe and Ito's palette, which colour-blind readers can tell apart, and a few more."""
_TICKS, _ROWS = 8, 5
"""Maximum values on the time axis and on the other axis, without zero."""
_TIME_STEPS = {
    "s": (1, 2, 5, 10, 15, 20, 30),
    "min": (1, 2, 5, 10, 15, 20, 30),
    "h": (1, 2, 3, 6, 12),
}
"""Unit of time -> preferred distances between the values on the axis."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Bar(NamedTuple):
    """A row of a Gantt chart, times in seconds: waiting from ``submit_s`` until the first span."""

    name: str
    submit_s: float
    spans_s: Sequence[tuple[float, float]]
    colour: str
    title: str


def lines(label: str, series: Mapping[str, Sequence[float]], end_s: float, unit: str = "") -> str:
    """A line for each series of equal steps, from 0 to ``end_s``, with a legend. ``label``: what
    the chart shows, for screen readers."""
    most = max((max(values, default=0.0) for values in series.values()), default=0.0) or 1.0
    parts = [_axes(end_s, most, unit)]
    for number, (name, values) in enumerate(series.items()):
        points = " ".join(
            f"{_x(at, len(values)):.1f},{_y(value / most):.1f}" for at, value in enumerate(values)
        )
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return _chart(label, parts, HEIGHT) + legend(series)


def areas(label: str, series: Mapping[str, Sequence[float]], end_s: float, unit: str = "") -> str:
    """The series on top of each other, with a legend."""
    length = max((len(values) for values in series.values()), default=0)
    base = [0.0] * length
    tops = []
    for values in series.values():
        base = [low + value for low, value in zip(base, values, strict=True)]
        tops.append(base)
    most = max(base, default=0.0) or 1.0
    parts = [_axes(end_s, most, unit)]
    below = [0.0] * length
    for number, (name, top) in enumerate(zip(series, tops, strict=True)):
        edge = [(_x(at, length), _y(value / most)) for at, value in enumerate(top)]
        edge += [(_x(at, length), _y(below[at] / most)) for at in reversed(range(length))]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in edge)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<polygon fill="{colour}" fill-opacity="0.75" points="{points}">'
            f"<title>{escape(name)}</title></polygon>"
        )
        below = top
    return _chart(label, parts, HEIGHT) + legend(series)


def gantt(label: str, bars: Sequence[Bar], end_s: float) -> str:
    """A row for each bar: a thin line while it waits, a bar while it runs."""
    height = TOP + ROW * len(bars) + BOTTOM
    scale = (WIDTH - LEFT) / (end_s or 1.0)
    parts = [_time_axis(end_s, height)]
    for number, bar in enumerate(bars):
        middle = TOP + ROW * number + ROW / 2
        first = bar.spans_s[0][0] if bar.spans_s else end_s
        last = max((end for _, end in bar.spans_s), default=first)
        parts.append(
            f'<g><title>{escape(bar.title)}</title><line x1="{LEFT + bar.submit_s * scale:.1f}" '
            f'x2="{LEFT + max(first, last) * scale:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" '
            f'stroke="#999" stroke-dasharray="2 2"/>'
        )
        for start, end in bar.spans_s:
            width = max((end - start) * scale, 1.0)
            parts.append(
                f'<rect x="{LEFT + start * scale:.1f}" y="{middle - ROW / 3:.1f}" '
                f'width="{width:.1f}" height="{ROW * 2 / 3:.1f}" fill="{bar.colour}"/>'
            )
        name = bar.name if len(bar.name) <= 10 else bar.name[:9] + "…"
        parts.append(
            f'<text x="{LEFT - 4}" y="{middle + 3:.1f}" text-anchor="end">{escape(name)}</text></g>'
        )
    return _chart(label, parts, height)


def intervals(label: str, values: Mapping[str, tuple[float, float]]) -> str:
    """A bar for each mean from 0, with a whisker of its half width."""
    height = TOP + 2 * ROW * len(values) + BOTTOM
    most = max((mean + half for mean, half in values.values()), default=0.0) or 1.0
    least = min(0.0, *(mean - half for mean, half in values.values())) if values else 0.0
    scale = (WIDTH - 3 * LEFT) / (most - least)
    zero = 3 * LEFT - least * scale
    parts = [f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{height}" stroke="#999"/>']
    for number, (name, (mean, half)) in enumerate(values.items()):
        middle = TOP + 2 * ROW * number + ROW
        end = zero + mean * scale
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<rect x="{min(zero, end):.1f}" y="{middle - ROW / 2:.1f}" height="{ROW}" '
            f'width="{abs(end - zero):.1f}" fill="{colour}" fill-opacity="0.75"/>'
            f'<line x1="{end - half * scale:.1f}" x2="{end + half * scale:.1f}" y1="{middle}" '
            f'y2="{middle}" stroke="#222"/><text x="{3 * LEFT - 6}" y="{middle + 3}" '
            f'text-anchor="end">{escape(name)} {mean:.5g}</text>'
        )
    return _chart(label, parts, height)


def legend(names: Mapping[str, object] | Sequence[str]) -> str:
    """The names with the colours that charts give them."""
    items = "".join(
        f'<li><span style="background:{COLOURS[number % len(COLOURS)]}"></span>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _chart(label: str, parts: Sequence[str], height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH + 20} {height}" role="img" aria-label="{escape(label)}" '
        'font-size="11" '
        'font-family="sans-serif" xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(parts)}</svg>"
    )


def _x(at: int, length: int) -> float:
    return LEFT + (WIDTH - LEFT) * (at + 0.5) / max(1, length)


def _y(part: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - part)


def _axes(end_s: float, most: float, unit: str) -> str:
    elements = [_time_axis(end_s, HEIGHT)]
    for value in ticks(most, _ROWS):
        y = _y(value / most)
        elements.append(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">'
            f"{value:.6g}{escape(unit)}</text>"
        )
    return "".join(elements)


def _time_axis(end_s: float, height: int) -> str:
    size, unit = next((each for each in _UNITS if end_s >= 2 * each[0]), _UNITS[-1])
    elements = []
    for value in ticks(end_s / size, _TICKS, _TIME_STEPS.get(unit, ())):
        x = LEFT + (WIDTH - LEFT) * value * size / (end_s or 1.0)
        elements.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}" stroke="#eee"/>'
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{value:.6g} {unit}</text>'
        )
    return "".join(elements)


def ticks(most: float, count: int, steps: Sequence[float] = ()) -> list[float]:
    """Round values from 0 to at most ``most``, at most ``count`` above 0.

    ``steps``: preferred distances in ascending order, such as those of minutes; beyond them,
    without them, and on an axis shorter than two of the first, distances are 1, 2 or 5 times a
    power of ten.
    """
    if not (most > 0 and math.isfinite(most)):
        return [0.0]
    power = 10.0 ** math.floor(math.log10(most / count))
    decimal = (power * factor for factor in (1, 2, 5, 10, 20))
    preferred = steps if steps and most >= 2 * steps[0] else ()
    step = next(each for each in (*preferred, *decimal) if each * count >= most * (1 - 1e-9))
    return [step * at for at in range(math.floor(most / step * (1 + 1e-9)) + 1)]
