"""Draws docs/pictures/assumption-states.svg: the states of an assumption in the scheduler's cache.

    python -m tools.docs.assumption_diagram [--check]

Arrows and their labels are the entries of ``assumption_states.TRANSITIONS``. A state without a
position here is an error, so that the diagram cannot differ from the table.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from stromboli.scheduler.core.cache.in_flight.assumption_states import OPEN, TRANSITIONS, State

FILE = Path(__file__).parents[2] / "docs" / "pictures" / "assumption-states.svg"
POSITIONS = {
    State.ASSUMED: (110, 170),
    State.EXECUTED: (400, 70),
    State.REFUSED: (400, 290),
    State.CONFIRMED: (690, 170),
}
BENDS = {
    (State.ASSUMED, State.EXECUTED): 24,
    (State.EXECUTED, State.ASSUMED): 24,
    (State.ASSUMED, State.REFUSED): 24,
    (State.REFUSED, State.ASSUMED): 24,
    (State.ASSUMED, State.CONFIRMED): 14,
    (State.CONFIRMED, State.ASSUMED): 14,
}
"""Distance of an arrow's middle from the straight line, to its left."""
RADII = (64, 24)
WIDTH, HEIGHT = 800, 360
_HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" \
width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="13">
<title>States of an assumption: assumed, executed, refused, confirmed</title>
<style>
  text {{ fill: #1f2937; text-anchor: middle; }} path {{ fill: none; stroke: #6b7280; }}
  ellipse {{ fill: #ffffff; stroke: #374151; }} .open {{ fill: #fef3c7; }}
  .state {{ font-weight: 600; font-size: 14px; }} marker path {{ fill: #6b7280; stroke: none; }}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>
"""
Point = tuple[float, float]


def edges() -> dict[tuple[State, State], list[str]]:
    """(from, to) -> events of the transition, in the order of the table."""
    found: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, event), to in TRANSITIONS.items():
        found[state, to].append(event.replace("_", " "))
    return found


def diagram() -> str:
    """The content of the SVG file."""
    parts = [line for edge, events in edges().items() for line in _arrow(*edge, ", ".join(events))]
    for state in State:
        x, y = POSITIONS[state]
        kind = "open" if state in OPEN else "closed"
        parts.append(f'<ellipse class="{kind}" cx="{x}" cy="{y}" rx="{RADII[0]}" ry="{RADII[1]}"/>')
        parts.append(f'<text class="state" x="{x}" y="{y + 5}">{state}</text>')
    return _HEAD + "\n".join(parts) + "\n</svg>\n"


def _arrow(origin: State, to: State, label: str) -> Iterator[str]:
    start, end = POSITIONS[origin], POSITIONS[to]
    if origin == to:
        x, y = start
        yield (
            f'<path d="M{x - 30} {y - 21} C{x - 70} {y - 90} {x + 70} {y - 90} {x + 30} {y - 21}" '
            'marker-end="url(#tip)"/>'
        )
        yield f'<text x="{x}" y="{y - 82}">{label}</text>'
        return
    length = math.dist(start, end)
    across = ((end[1] - start[1]) / length, (start[0] - end[0]) / length)
    bend = 2 * BENDS.get((origin, to), 0)
    middle = (
        (start[0] + end[0]) / 2 + bend * across[0],
        (start[1] + end[1]) / 2 + bend * across[1],
    )
    first, last = _rim(start, middle), _rim(end, middle)
    label_x, label_y = ((a + 2 * b + c) / 4 for a, b, c in zip(first, middle, last, strict=True))
    yield (
        f'<path d="M{first[0]:.0f} {first[1]:.0f} Q{middle[0]:.0f} {middle[1]:.0f} '
        f'{last[0]:.0f} {last[1]:.0f}" marker-end="url(#tip)"/>'
    )
    yield f'<text x="{label_x:.0f}" y="{label_y - 5:.0f}">{label}</text>'


def _rim(centre: Point, toward: Point) -> Point:
    """The point at which the line from an ellipse's centre to ``toward`` leaves the ellipse."""
    x, y = toward[0] - centre[0], toward[1] - centre[1]
    share = 1 / math.hypot(x / RADII[0], y / RADII[1])
    return centre[0] + share * x, centre[1] + share * y


def main() -> None:
    """Write the file, or compare with it and exit with status 1 if it differs."""
    if "--check" in sys.argv[1:]:
        if FILE.read_text() != diagram():
            raise SystemExit(f"{FILE} is out of date: python -m tools.docs.assumption_diagram")
        return
    FILE.write_text(diagram())


if __name__ == "__main__":
    main()
