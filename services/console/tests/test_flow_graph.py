"""Flows as graphs: layers follow dependencies, boxes do not overlap, states are the status's."""

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stromboli.console.core import flow_graph
from stromboli.shared.api import flow, kinds

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def flow_of(
    steps: Mapping[str, tuple[str, ...]], states: dict[str, str] | None = None, **entry: Any
) -> flow.JobFlow:
    """A flow: name -> the steps before it, and the states of its jobs."""
    flows = [
        {"name": name, **({"dependsOn": {"targets": before, **entry}} if before else {})}
        for name, before in steps.items()
    ]
    stories = [
        {"name": f"night-{name}", "state": state, "startTimestamp": "2026-11-23T11:59:00Z"}
        for name, state in (states or {}).items()
    ]
    document = {
        "metadata": {"name": "night", "namespace": "vision"},
        "spec": {"flows": flows},
        "status": {"jobStatusList": stories},
    }
    return kinds.JOB_FLOWS.decode(msgspec.json.encode(document))


def drawn(steps: Mapping[str, tuple[str, ...]]) -> flow_graph.Drawing:
    drawing = flow_graph.draw(flow_graph.steps(flow_of(steps), NOW))
    assert drawing is not None
    return drawing


def test_a_step_has_the_state_of_its_job_and_waits_without_one() -> None:
    found = flow_of({"train": (), "serve": ("train",)}, {"train": "Running"})
    first, second = flow_graph.steps(found, NOW)
    assert (first.job, first.state, first.ran) == ("night-train", "Running", "60s")
    assert (second.state, second.after, second.ran) == ("Waiting", ("train",), "")


def test_a_step_with_a_probe_is_marked() -> None:
    probe = {"taskStatusList": [{"taskName": "server", "phase": "Running"}]}
    found = flow_of({"serve": (), "measure": ("serve",)}, probe=probe)
    assert [it.has_probe for it in flow_graph.steps(found, NOW)] == [False, True]


def test_a_step_is_right_of_all_steps_before_it() -> None:
    drawing = drawn({"a": (), "b": ("a",), "c": ("b",), "d": ("a", "c")})
    x = {box.step.name: box.x for box in drawing.boxes}
    assert x["a"] < x["b"] < x["c"] < x["d"]


def test_a_dependency_that_others_imply_has_no_line() -> None:
    """Its line would cross the boxes between; the table has it."""
    assert len(drawn({"a": (), "b": ("a",), "c": ("b", "a")}).edges) == 2
    assert len(drawn({"a": (), "b": (), "c": ("b", "a")}).edges) == 2


def test_edges_of_two_chains_do_not_cross() -> None:
    drawing = drawn({"a": (), "b": (), "after-b": ("b",), "after-a": ("a",)})
    y = {box.step.name: box.y for box in drawing.boxes}
    assert (y["a"] < y["b"]) == (y["after-a"] < y["after-b"])


def test_a_stored_cycle_is_drawn_all_the_same() -> None:
    drawing = drawn({"a": ("b",), "b": ("a",), "c": ()})
    assert {box.step.name for box in drawing.boxes} == {"a", "b", "c"}


def test_a_flow_without_steps_or_with_too_many_has_no_drawing() -> None:
    many = {f"s{number}": () for number in range(flow_graph.MOST_DRAWN + 1)}
    assert flow_graph.draw([]) is None
    assert flow_graph.draw(flow_graph.steps(flow_of(many), NOW)) is None


def test_a_long_name_is_shortened_in_its_box() -> None:
    (box,) = drawn({"a" * 60: ()}).boxes
    assert len(box.label) == flow_graph.MOST_CHARACTERS
    assert box.label.endswith("…")


@given(st.lists(st.sets(st.integers(0, 20), max_size=4), min_size=1, max_size=20))
def test_boxes_of_any_flow_are_inside_the_drawing_and_apart(befores: list[set[int]]) -> None:
    """Dependencies lead to earlier steps, as in every flow without a cycle."""
    steps = {
        f"s{number}": tuple(f"s{it}" for it in sorted(before) if it < number)
        for number, before in enumerate(befores)
    }
    drawing = drawn(steps)
    corners = {(box.x, box.y) for box in drawing.boxes}
    assert len(corners) == len(steps)
    for box in drawing.boxes:
        assert 0 <= box.x <= drawing.width - flow_graph.WIDTH
        assert 0 <= box.y <= drawing.height - flow_graph.HEIGHT
    columns: dict[int, list[int]] = {}
    for box in drawing.boxes:
        columns.setdefault(box.x, []).append(box.y)
    for rows in columns.values():
        ordered = sorted(rows)
        gaps = [below - above for above, below in itertools.pairwise(ordered)]
        assert all(gap >= flow_graph.HEIGHT for gap in gaps)


def test_a_step_that_ended_shows_how_long_it_ran() -> None:
    found = flow_of({"train": ()}, {"train": "Completed"})
    story = found.status.job_status_list[0]
    ended = msgspec.structs.replace(story, end_timestamp=NOW - timedelta(seconds=30))
    status = msgspec.structs.replace(found.status, job_status_list=(ended,))
    (step,) = flow_graph.steps(msgspec.structs.replace(found, status=status), NOW)
    assert step.ran == "30s"
