"""The steps of a flow as a layered graph: rows of a table, and places of a drawing. Pure.

Layers are the longest paths from the steps without dependencies, left to right, as in Sugiyama's
method; within a layer, steps are ordered by the mean place of their neighbours, in a few sweeps.
Costs O(sweeps x dependencies x log). Admission rejects cycles; the steps of a stored cycle are in
the last layer.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from stromboli.cli.render import output
from stromboli.shared.api import flow

MOST_DRAWN = 200
"""Maximum steps of a flow that is drawn; for a larger flow the page shows only the table."""
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 176, 46, 64, 18, 8
"""Sizes in a drawing, in its units."""
MOST_CHARACTERS = 22
"""Characters of a name in a box."""
SWEEPS = 4
WAITING = "Waiting"
"""The state of a step whose job does not exist yet."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a flow. ``after``: the steps that it depends on; ``has_probe``: it starts while
    they run, once a probe passes."""

    name: str
    job: str
    state: str
    after: tuple[str, ...] = ()
    has_probe: bool = False
    started: datetime | None = None
    ended: datetime | None = None
    ran: str = ""
    restarts: int = 0


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A step in a drawing, with its upper left corner."""

    step: Step
    x: int
    y: int

    @property
    def label(self) -> str:
        """The name, shortened to the width of the box."""
        name = self.step.name
        return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency in a drawing: the ``d`` of an SVG path."""

    path: str
    has_probe: bool


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as boxes and edges within ``width x height`` units."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]

    @property
    def has_probes(self) -> bool:
        """Whether a step waits for a probe."""
        return any(edge.has_probe for edge in self.edges)


def steps(job_flow: flow.JobFlow, now: datetime) -> list[Step]:
    """The steps of a flow in the order of its manifest."""
    known = {it.name: it for it in job_flow.status.job_status_list}
    flow_steps = []
    for entry in {entry.name: entry for entry in job_flow.spec.flows}.values():
        job = f"{job_flow.metadata.name}-{entry.name}"
        story = known.get(job, flow.FlowJobStatus(name=job))
        waits = entry.depends_on
        began, ended = story.start_timestamp, story.end_timestamp
        flow_steps.append(
            Step(
                name=entry.name,
                job=job,
                state=story.state or WAITING,
                after=() if waits is None else waits.targets,
                has_probe=waits is not None and waits.probe is not None,
                started=began,
                ended=ended,
                ran="" if began is None else output.duration(began, ended or now),
                restarts=story.restart_count,
            )
        )
    return flow_steps


def draw(flow_steps: Sequence[Step]) -> Drawing | None:
    """The steps as a drawing; None for no steps, and for more than ``MOST_DRAWN``."""
    if not 0 < len(flow_steps) <= MOST_DRAWN:
        return None
    by_name = {step.name: step for step in flow_steps}
    after = {step.name: [it for it in step.after if it in by_name] for step in flow_steps}
    layers = _ordered(_layers(after), after)
    tallest = max(map(len, layers))
    boxes = {}
    for column, names in enumerate(layers):
        top = MARGIN + (tallest - len(names)) * (HEIGHT + GAP_Y) // 2
        for row, name in enumerate(names):
            x, y = MARGIN + column * (WIDTH + GAP_X), top + row * (HEIGHT + GAP_Y)
            boxes[name] = Box(step=by_name[name], x=x, y=y)
    edges = [
        Edge(path=_path(boxes[before], boxes[name]), has_probe=by_name[name].has_probe)
        for name, all_before in _direct(after).items()
        for before in all_before
    ]
    return Drawing(
        width=2 * MARGIN + len(layers) * (WIDTH + GAP_X) - GAP_X,
        height=2 * MARGIN + tallest * (HEIGHT + GAP_Y) - GAP_Y,
        boxes=tuple(boxes.values()),
        edges=tuple(edges),
    )


def _direct(after: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The transitive reduction of the dependencies: lines of implied ones would cross boxes. Costs
    O(steps x dependencies)."""
    direct_dependencies = {}
    for name, all_before in after.items():
        implied: set[str] = set()
        waiting = [it for before in all_before for it in after[before]]
        while waiting:
            one = waiting.pop()
            if one not in implied:
                implied.add(one)
                waiting += after[one]
        direct_dependencies[name] = [before for before in all_before if before not in implied]
    return direct_dependencies


def _layers(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The steps by their longest path from a step without dependencies."""
    layers: list[list[str]] = []
    placed: set[str] = set()
    left = list(after)
    while left:
        ready = [name for name in left if placed.issuperset(after[name])]
        layers.append(ready or left)  # a cycle has no ready step
        placed.update(layers[-1])
        left = [name for name in left if name not in placed]
    return layers


def _ordered(layers: list[list[str]], after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The layers, each ordered by the mean place of the neighbours: few edges cross."""
    neighbours: dict[str, set[str]] = {name: set(names) for name, names in after.items()}
    for name, names in after.items():
        for before in names:
            neighbours[before].add(name)
    places: dict[str, float] = {}
    for layer in layers:
        places |= {name: _relative(row, layer) for row, name in enumerate(layer)}
    for _ in range(SWEEPS):
        for layer in layers:
            mean = {name: _mean(name, neighbours, places) for name in layer}
            layer.sort(key=mean.__getitem__)
            places |= {name: _relative(row, layer) for row, name in enumerate(layer)}
    return layers


def _relative(row: int, layer: Sequence[str]) -> float:
    """The place of a row in a layer, relative to its middle."""
    return row - (len(layer) - 1) / 2


def _mean(name: str, neighbours: Mapping[str, set[str]], places: Mapping[str, float]) -> float:
    neighbour_places = [places[it] for it in neighbours[name]]
    return sum(neighbour_places) / len(neighbour_places) if neighbour_places else places[name]


def _path(before: Box, after: Box) -> str:
    """A curve from the right side of a box to the left side of another one."""
    x, y = before.x + WIDTH, before.y + HEIGHT // 2
    to_x, to_y = after.x - 5, after.y + HEIGHT // 2
    bend = GAP_X // 2
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
