"""Draws docs/pictures/gangs.svg: the decisions of two sessions about the same jobs.

    python -m tools.docs.gang_diagram [--check]

Four jobs of six pods need 24 CPUs in total, and the nodes have 16. One session places single pods
in random order, the other one places gangs. The diagram shows the decisions.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.config import config_reader

FILE = Path(__file__).parents[2] / "docs" / "pictures" / "gangs.svg"
JOBS, PODS, NODES, PLACES = "ABCD", 6, 4, 4
COLOURS = {"A": "#c2410c", "B": "#0f766e", "C": "#4338ca", "D": "#a16207"}
ONE_BY_ONE = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: random-order}, {name: predicates}, {name: nodeorder}]
"""
CELL, GAP, LEFT, PANEL = 30, 6, 20, 350
WIDTH, HEIGHT = 2 * PANEL, 324
_HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" \
width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="14">
<title>Four jobs of six pods and room for sixteen: one by one none runs, as gangs two do</title>
<style>
  text {{ fill: #1f2937; }} .quiet {{ fill: #6b7280; }} .node {{ fill: none; stroke: #9ca3af; }}
  .free {{ fill: #9ca3af; fill-opacity: 0.2; }} .held {{ fill-opacity: 0.45; }}
  .name {{ fill: #ffffff; font-weight: 600; }} .dim {{ fill-opacity: 0.9; }}
</style>
<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>
"""


def decided(configuration: Mapping[str, Any]) -> Mapping[str, str]:
    """Pod (such as ``A-0``) -> node, by the decisions of one session with this configuration."""
    outcome = simulate.simulate(
        json.dumps({"now": "2026-01-01T00:00:00Z", "config": configuration, "objects": _objects()})
    )
    return {pod.partition("/")[2]: node for pod, node in outcome.binds.items()}


def diagram() -> str:
    """The content of the SVG file."""
    panels = (
        ("Pods one by one", yaml.safe_load(ONE_BY_ONE)),
        ("As gangs", dict(config_reader.DEFAULT)),
    )
    parts = [
        line
        for at, (title, configuration) in enumerate(panels)
        for line in _panel(title, decided(configuration), at * PANEL + LEFT)
    ]
    return _HEAD + "\n".join(parts) + "\n</svg>\n"


def _objects() -> list[dict[str, Any]]:
    amounts = {"cpu": str(PLACES), "memory": "64Gi", "pods": "110"}
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{at}"},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        for at in range(NODES)
    ]
    found.append(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "default"},
            "spec": {"weight": 1},
            "status": {"state": "Open"},
        }
    )
    for at, job in enumerate(JOBS):
        group = {
            "name": job.lower(),
            "namespace": "default",
            "creationTimestamp": f"2025-12-31T23:59:0{at}Z",
        }
        found.append(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": group,
                "spec": {"minMember": PODS, "queue": "default"},
                "status": {"phase": "Inqueue"},
            }
        )
        found += [_pod(job, index) for index in range(PODS)]
    return found


def _pod(job: str, index: int) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-{index}",
            "namespace": "default",
            "uid": f"{job}-{index}",
            "annotations": {"scheduling.k8s.io/group-name": job.lower()},
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Pending"},
    }


def _panel(title: str, binds: Mapping[str, str], left: int) -> Iterator[str]:
    held = Counter(pod[0] for pod in binds)
    yield f'<text x="{left}" y="28" font-size="17" font-weight="600">{title}</text>'
    for at in range(NODES):
        top = 46 + at * (CELL + 2 * GAP)
        width = PLACES * (CELL + GAP) + GAP
        yield (
            f'<rect class="node" x="{left}" y="{top}" width="{width}" height="{CELL + 2 * GAP - 4}"'
            ' rx="6"/>'
        )
        yield f'<text class="quiet" x="{left + width + 12}" y="{top + 24}">node {at + 1}</text>'
        members = sorted(pod for pod, node in binds.items() if node == f"node-{at}")
        for place in range(PLACES):
            x, y = left + GAP + place * (CELL + GAP), top + GAP - 2
            pod = members[place] if place < len(members) else ""
            yield _place(x, y, pod, is_whole=bool(pod) and held[pod[0]] == PODS)
    for at, job in enumerate(JOBS):
        yield _caption(left, 236 + at * 23, job, held[job])


def _place(x: int, y: int, pod: str, *, is_whole: bool) -> str:
    if not pod:
        return f'<rect class="free" x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="4"/>'
    shown = "dim" if is_whole else "held"
    return (
        f'<rect class="{shown}" fill="{COLOURS[pod[0]]}" x="{x}" y="{y}" width="{CELL}"'
        f' height="{CELL}" rx="4"/><text class="name" x="{x + 10}" y="{y + 20}">{pod[0]}</text>'
    )


def _caption(left: int, y: int, job: str, held: int) -> str:
    if held == PODS:
        text = f"{held} of {PODS}: runs"
    elif held:
        text = f"{held} of {PODS}: waits, and holds {held} CPUs"
    else:
        text = f"0 of {PODS}: waits, and holds nothing"
    return (
        f'<rect fill="{COLOURS[job]}" x="{left}" y="{y - 12}" width="14" height="14" rx="3"/>'
        f'<text x="{left + 24}" y="{y}"><tspan font-weight="600">{job}</tspan>  {text}</text>'
    )


if __name__ == "__main__":
    made = diagram()
    if sys.argv[1:] == ["--check"]:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != made:
            sys.exit(f"{FILE.name} is out of date; run python -m tools.docs.gang_diagram")
    else:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(made, encoding="utf-8")
        print(f"wrote {FILE}")
