"""Draws the diagram of a job's life cycle from the table in the controller's core.

Transitions that all phases of ``ALIVE`` have begin at the box around these phases. The names of
several events between the same two phases are combined. A phase without a position here is an
error, so that the diagram cannot differ from the table.
"""

import math
from collections import defaultdict
from collections.abc import Iterator

from stromboli.controller.core import lifecycle

ALIVE = ("Pending", "Running", "Restarting")
"""Phases that are drawn in one box."""
BOX = (20, 70, 430, 250)
"""Left, top, width and height of the box, in pixels."""
PLACES = {
    "Pending": (110, 130),
    "Running": (360, 130),
    "Restarting": (235, 270),
    "Completing": (570, 40),
    "Completed": (760, 130),
    "Failed": (760, 240),
    "Terminating": (530, 390),
    "Terminated": (760, 390),
    "Aborting": (110, 400),
    "Aborted": (350, 400),
}
EXITS = {
    "Completing": (450, 90),
    "Failed": (450, 240),
    "Terminating": (450, 300),
    "Aborting": (110, 320),
}
"""The points at which arrows from the box begin."""
BENDS = {
    ("Pending", "Running"): 26,
    ("Running", "Pending"): 26,
    ("Pending", "Restarting"): -18,
    ("Restarting", "Pending"): -18,
    ("Running", "Restarting"): 18,
    ("Running", "Failed"): 20,
    ("Restarting", "Failed"): 26,
    ("Aborting", "Restarting"): 14,
    ("Aborted", "Restarting"): 14,
}
"""Distance of an arrow's middle from the straight line, to its left, in pixels."""
RADII = (56, 19)
WIDTH, HEIGHT = 840, 440
Edge = tuple[str, str]


def edges() -> dict[Edge, list[str]]:
    """(from, to) -> events of the transition; ``alive`` means the box. Events that do not change
    the phase are left out."""
    found: dict[Edge, list[str]] = defaultdict(list)
    by_event: dict[tuple[lifecycle.Event, str], list[str]] = defaultdict(list)
    for (phase, event), move in lifecycle.TABLE.items():
        if phase != move.to:
            by_event[event, move.to].append(phase)
    for (event, to), phases in by_event.items():
        is_of_all = set(ALIVE) <= set(phases)
        if is_of_all:
            found["alive", to].append(lifecycle.MEANING[event])
        for origin in phases:
            if not (is_of_all and origin in ALIVE):
                found[origin, to].append(lifecycle.MEANING[event])
    return found


def diagram() -> str:
    """The diagram as an SVG element."""
    left, top, width, height = BOX
    drawn = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="the life of a job" '
        'class="life" xmlns="http://www.w3.org/2000/svg">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="14"/>',
    ]
    for (origin, to), meanings in edges().items():
        drawn += _arrow(origin, to, _words(meanings))
    for phase, (x, y) in PLACES.items():
        shown = "last" if phase in lifecycle.FINISHED else ""
        drawn.append(
            f'<ellipse class="{shown}" cx="{x}" cy="{y}" rx="{RADII[0]}" ry="{RADII[1]}"/>'
            f'<text class="phase" x="{x}" y="{y + 5}">{phase}</text>'
        )
    return "".join([*drawn, "</svg>"])


def _words(meanings: list[str]) -> str:
    if len(meanings) > 2 and all(each.startswith("Restart") for each in meanings):
        return "Restart…"
    return ", ".join(meanings)


def _arrow(origin: str, to: str, words: str) -> Iterator[str]:
    end = PLACES[to]
    if origin == "":
        start = (end[0], BOX[1] - 50)
    elif origin == "alive":
        start = EXITS[to]
    else:
        start = PLACES[origin]
    bend = BENDS.get((origin, to), 0)
    length = math.dist(start, end)
    across = ((end[1] - start[1]) / length, (start[0] - end[0]) / length)
    middle = (
        (start[0] + end[0]) / 2 + 2 * bend * across[0],
        (start[1] + end[1]) / 2 + 2 * bend * across[1],
    )
    first = start if origin in ("", "alive") else _rim(start, middle)
    last = _rim(end, middle)
    label = ((first[0] + 2 * middle[0] + last[0]) / 4, (first[1] + 2 * middle[1] + last[1]) / 4)
    yield (
        f'<path d="M{first[0]:.0f} {first[1]:.0f} Q{middle[0]:.0f} {middle[1]:.0f} '
        f'{last[0]:.0f} {last[1]:.0f}" marker-end="url(#tip)"/>'
    )
    yield f'<text x="{label[0]:.0f}" y="{label[1] + 4:.0f}">{words}</text>'


def _rim(centre: tuple[float, float], toward: tuple[float, float]) -> tuple[float, float]:
    """The point at which the line from an ellipse's centre to ``toward`` leaves the ellipse."""
    x, y = toward[0] - centre[0], toward[1] - centre[1]
    share = 1 / math.hypot(x / RADII[0], y / RADII[1])
    return centre[0] + share * x, centre[1] + share * y
