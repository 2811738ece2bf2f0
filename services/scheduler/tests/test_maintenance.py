"""Maintenance windows: nothing is placed that would not end before a node is needed."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, sessions, virtual_cluster
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.plugins import maintenance
from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

TIER = [*default_sessions.TIER, sessions.plugin("maintenance")]


def node(text: str, name: str = "n1") -> core.Node:
    found = builders.make_node(name, cpu="4")
    metadata = msgspec.structs.replace(found.metadata, annotations={keys.MAINTENANCE: text})
    return msgspec.structs.replace(found, metadata=metadata)


def job(
    estimate: str = "", deadline_s: int | None = None, cpu: str | None = "1"
) -> list[meta.Object]:
    notes = {keys.RUNNING_ESTIMATE: estimate} if estimate else {}
    pod = builders.make_pod("a-0", "a", cpu=cpu, memory=None)
    spec = msgspec.structs.replace(pod.spec, active_deadline_seconds=deadline_s)
    return [
        builders.make_pod_group("a", 1, annotations=notes),
        msgspec.structs.replace(pod, spec=spec),
    ]


def run(*objects: meta.Object, actions: str = "allocate") -> session.Session:
    return default_sessions.closed(*objects, tier=TIER, run=actions)


@pytest.mark.parametrize(
    ("window", "estimate", "deadline_s", "is_placed"),
    [
        ("2026-01-01T13:00:00Z/4h", "1h", None, True),
        ("2026-01-01T13:00:00Z/4h", "61m", None, False),
        ("2026-01-01T13:00:00Z/4h", "", None, False),
        ("2026-01-01T13:00:00Z/4h", "", 3600, True),
        ("2026-01-01T13:00:00Z/4h", "", 3601, False),
        ("2026-01-01T13:00:00Z/4h", "2h", 60, True),
        ("2026-01-01T11:00:00Z/90m", "1s", None, False),
        ("2026-01-01T11:00:00Z/1h", "1s", None, True),
        ("2026-01-01T10:00:00Z/2026-01-01T11:00:00Z", "", None, True),
        ("2026-01-01T13:30:00+01:00/2026-01-01T14:00:00+01:00", "31m", None, False),
        ("2026-01-01T10:00:00Z/1h, 2026-01-01T12:30:00Z/1h", "31m", None, False),
        ("2026-01-01T12:30:00Z/1h, 2026-01-01T10:00:00Z/1h", "30m", None, True),
    ],
)
def test_a_task_is_placed_if_it_ends_before_the_window(
    window: str, estimate: str, deadline_s: int | None, is_placed: bool
) -> None:
    """Of several run times the shortest counts; without any it is unknown."""
    decided = run(node(window), *job(estimate, deadline_s))
    assert bool(decided.decisions.binds) is is_placed
    if not is_placed:
        assert maintenance.REASON in decided.jobs["default/a"].explain()


def test_other_nodes_are_as_before_and_what_runs_stays() -> None:
    window = node("2026-01-01T12:00:00Z/1h")
    other = builders.make_node("n2", cpu="1")
    running = sessions.gang("old", "default", 1, node="n1")
    decided = run(window, other, *running, *job(), actions="allocate, preempt")
    assert default_sessions.binds(decided) == {"a-0": "n2"}
    assert decided.decisions.evictions == []


def test_what_asks_for_nothing_is_kept_off_too() -> None:
    assert not run(
        node("2026-01-01T13:00:00Z/4h"), *job(cpu=None), actions="backfill"
    ).decisions.binds


def test_no_pod_is_evicted_for_a_task_that_cannot_end_in_time() -> None:
    low = builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)
    old = [
        builders.make_pod_group("old", 0, priority_class="low", phase="Running"),
        builders.make_pod("old-0", "old", cpu="4", node="n1", phase="Running"),
    ]
    new = [builders.make_pod_group("a", 1, priority_class="high"), job()[1]]
    for text, evicted in (("2026-01-01T13:00:00Z/4h", 0), ("2026-01-01T10:00:00Z/1h", 1)):
        decided = run(node(text), *low, *old, *new, actions="preempt")
        assert len(decided.decisions.evictions) == evicted


def test_a_session_is_worth_while_when_the_first_window_ends() -> None:
    nodes = node("2026-01-01T13:00:00Z/4h"), node("2026-01-01T11:00:00Z/2h", "n2")
    assert run(*nodes, *job()).wake_at == builders.NOON + timedelta(hours=1)


def test_a_reservation_starts_when_the_job_can_also_end() -> None:
    """What is free only until the next window is no room for it."""
    window = (builders.NOON + timedelta(seconds=120)).isoformat()
    nodes = [node(f"{window}/1h"), builders.make_node("n2", cpu="4")]
    jobs = [
        virtual_cluster.Job("one", 1, 4, 100),
        virtual_cluster.Job("two", 1, 4, 110),
        virtual_cluster.Job("head", 1, 4, 50, at=1),
    ]
    queue = sessions.queue("q")
    tiers = ([sessions.plugin("reservation"), *TIER],)
    decided = virtual_cluster.simulated(nodes, (queue,), jobs, tiers)
    assert (
        decided.sessions[1][1].jobs["default/head"].start_estimate_text.endswith("12:01:50+00:00")
    )
    assert decided.started == {"one": 0, "two": 0, "head": 110}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Saturday", "write 2026-11-22T02:00:00Z/4h"),
        ("2026-11-22T02:00:00/4h", "write 2026-11-22T02:00:00Z/4h"),
        ("2026-11-22T02:00:00Z", "is not a duration"),
        ("2026-11-22T02:00:00Z/soon", "is not a duration"),
        ("2026-11-22T02:00:00Z/-4h", "ends before it begins"),
        ("2026-11-22T02:00:00Z/2026-11-22T01:00:00Z", "ends before it begins"),
        ("2026-11-22T02:00:00Z/99999999h", "is longer than a thousand years"),
        ("9999-11-22T02:00:00Z/9999h", "ends after the year 9999"),
    ],
)
def test_a_window_that_cannot_be_read_may_be_now(text: str, said: str) -> None:
    decided = run(node(text), *job("1s"))
    assert decided.decisions.binds == {}
    (complaint,) = decided.complaints
    assert complaint.startswith("Node n1: stromboli.sh/maintenance: ")
    assert said in complaint
    assert complaint.endswith("; the node takes no new pods")


@given(
    st.lists(st.tuples(st.integers(-100, 100), st.integers(1, 50)), max_size=4), st.integers(1, 90)
)
def test_whatever_the_windows_what_is_placed_overlaps_none(
    windows: list[tuple[int, int]], seconds: int
) -> None:
    text = ",".join(
        f"{(builders.NOON + timedelta(seconds=start)).isoformat()}/{length}s"
        for start, length in windows
    )
    placed = bool(run(node(text), *job(f"{seconds}s")).decisions.binds)
    assert placed == all(start >= seconds or start + length <= 0 for start, length in windows)


def test_estimates_that_cannot_be_read_are_unknown() -> None:
    for estimate in ("soon", "0", "-5m"):
        decided = run(node("2026-01-01T13:00:00Z/4h"), *job(estimate))
        assert decided.decisions.binds == {}
        assert all("running-estimate" in complaint for complaint in decided.complaints)
    assert simulate.summarize("", run(node(""), *job("soon"))).binds
