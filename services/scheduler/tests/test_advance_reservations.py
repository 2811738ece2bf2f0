"""AdvanceReservations: reserved nodes are free for their jobs when the period begins."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from stromboli.scheduler.core import plugins, policy
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.replay import session_replay
from stromboli.shared import keys
from stromboli.shared.api import meta
from stromboli.testkit import builders

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
N1, N2 = (builders.make_node(name, cpu="4") for name in ("n1", "n2"))
ANN = {keys.USER: "ann", keys.USER_GROUPS: "staff\nphysics"}
CHART = sessions.configured(
    [sessions.plugin("priority"), sessions.plugin("gang")],
    [sessions.plugin("predicates"), sessions.plugin("proportion"), sessions.plugin("nodeorder")],
    run="enqueue, allocate, backfill",
)


def reserved(start: timedelta, length: timedelta, *nodes: str, **spec: Any) -> meta.Object:
    """A reservation ``r`` that starts that long after noon."""
    return builders.make_reservation("r", builders.NOON + start, length, *nodes, **spec)


def job(
    estimate: str = "",
    deadline_s: int | None = None,
    cpu: str | None = "1",
    **notes: dict[str, str],
) -> list[meta.Object]:
    annotations: dict[str, str] = {keys.RUNNING_ESTIMATE: estimate} if estimate else {}
    for each in notes.values():
        annotations |= each
    pod = builders.make_pod("a-0", "a", cpu=cpu, memory=None)
    spec = msgspec.structs.replace(pod.spec, active_deadline_seconds=deadline_s)
    return [
        builders.make_pod_group("a", 1, annotations=annotations),
        msgspec.structs.replace(pod, spec=spec),
    ]


def asks(**identity: str) -> dict[str, str]:
    return {keys.RESERVATION: "r", **(identity or ANN)}


def run(*objects: meta.Object, actions: str = "allocate") -> session.Session:
    return default_sessions.closed(*objects, run=actions)


# Nodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "length", "estimate", "deadline_s", "is_placed"),
    [
        (HOUR, HOUR, "1h", None, True),
        (HOUR, HOUR, "61m", None, False),
        (HOUR, HOUR, "", 3600, True),
        (HOUR, HOUR, "", 3601, False),
        (HOUR, HOUR, "2h", 60, True),
        (HOUR, HOUR, "", None, False),
        (-HOUR, 90 * MINUTE, "1s", None, False),
        (-HOUR, HOUR, "", None, True),
        (timedelta(), HOUR, "1s", None, False),
    ],
)
def test_a_task_is_placed_if_it_ends_before_the_period(
    start: timedelta, length: timedelta, estimate: str, deadline_s: int | None, is_placed: bool
) -> None:
    decided = run(N1, reserved(start, length), *job(estimate, deadline_s))
    assert bool(decided.decisions.binds) is is_placed


def test_the_reason_names_the_reservation_its_period_and_the_time_limit() -> None:
    course = reserved(HOUR, HOUR, "n1", users=("ann",))
    decided = run(N1, course, *job("61m"))
    assert (
        decided.jobs["default/a"]
        .explain()
        .endswith(
            "1 node(s) are reserved by r from 2026-01-01T13:00:00Z to 2026-01-01T14:00:00Z, "
            "and the pod may run for 1:01:00."
        )
    )
    down = run(N1, reserved(HOUR, HOUR), *job())
    assert "under maintenance by r from" in down.jobs["default/a"].explain()
    assert "and the pod has no time limit" in down.jobs["default/a"].explain()


def test_only_the_reserved_nodes_are_closed() -> None:
    labelled = builders.make_node("n1", cpu="4", labels={"rack": "a", "disk": "ssd"})
    for spec in (
        {"node_names": ("n1", "gone")},
        {"node_selector": {"rack": "a"}},
        {"node_selector": {"rack": "a", "disk": "ssd"}},
    ):
        closed = reserved(HOUR, HOUR, **{"all_nodes": False, **spec})
        assert default_sessions.binds(run(labelled, N2, closed, *job())) == {"a-0": "n2"}
    for selector in ({"rack": "b"}, {"rack": "a", "disk": "hdd"}, {"room": "1"}):
        other = reserved(HOUR, HOUR, all_nodes=False, node_selector=selector)
        assert default_sessions.binds(run(labelled, other, *job())) == {"a-0": "n1"}


def test_a_task_without_a_time_limit_may_start_before_the_lead_time() -> None:
    for lead, is_placed in (("59m", True), ("1h", False), ("", False)):
        decided = run(N1, reserved(HOUR, HOUR, lead_time=lead), *job())
        assert bool(decided.decisions.binds) is is_placed


def test_a_task_that_requests_nothing_is_kept_off_too() -> None:
    decided = run(N1, reserved(HOUR, HOUR), *job(cpu=None), actions="backfill")
    assert not decided.decisions.binds


def test_no_pod_is_evicted_for_a_task_that_cannot_end_in_time() -> None:
    classes = builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)
    old = [
        builders.make_pod_group("old", 0, priority_class="low", phase="Running"),
        builders.make_pod("old-0", "old", cpu="4", node="n1", phase="Running"),
    ]
    new = [builders.make_pod_group("a", 1, priority_class="high"), job()[1]]
    for start, evicted in ((HOUR, 0), (-2 * HOUR, 1)):
        decided = run(N1, reserved(start, HOUR), *classes, *old, *new, actions="preempt")
        assert len(decided.decisions.evictions) == evicted


@pytest.mark.parametrize(
    "spec",
    [{"end_time": None}, {"duration": "1h"}, {"lead_time": "-1h"}, {"start_time": None}],
)
def test_an_invalid_reservation_reserves_nothing_and_is_reported(spec: dict[str, Any]) -> None:
    decided = run(N1, reserved(HOUR, HOUR, **spec), *job())
    assert decided.decisions.binds
    (complaint,) = decided.complaints
    assert complaint.startswith("AdvanceReservation r: ")
    assert complaint.endswith("; it reserves no nodes")


def test_a_planned_start_leaves_reserved_nodes_alone() -> None:
    """The plugin ``reservation`` plans no start on a node from which a task would not be gone."""
    tier = [sessions.plugin("reservation"), *default_sessions.TIER]
    notes = {keys.RUNNING_ESTIMATE: "30m"}
    old = [
        builders.make_pod_group("old", 1, phase="Running", annotations=notes),
        builders.make_pod("old-0", "old", cpu="4", node="n2", phase="Running"),
    ]
    head = [
        builders.make_pod_group("head", 1, annotations={keys.RUNNING_ESTIMATE: "1h"}),
        builders.make_pod("head-0", "head", cpu="4", memory=None),
    ]
    closed = reserved(50 * MINUTE, HOUR, "n1")
    decided = default_sessions.closed(N1, N2, closed, *old, *head, tier=tier)
    assert "12:30:00" in decided.jobs["default/head"].start_estimate_text


# Jobs that use a reservation ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "identity", "is_placed"),
    [
        ({"users": ("ann",)}, ANN, True),
        ({"users": ("bob",)}, ANN, False),
        ({"groups": ("physics",)}, ANN, True),
        ({"groups": ("phys",)}, ANN, False),
        ({"namespaces": ("default",)}, ANN, True),
        ({"namespaces": ("other",)}, ANN, False),
        ({"queues": ("default",)}, ANN, True),
        ({"queues": ("other",)}, ANN, False),
        ({"users": ("bob",), "groups": ("staff",)}, ANN, True),
        ({"users": ("",)}, {keys.USER: ""}, False),
        ({"maintenance": True}, ANN, False),
    ],
)
def test_the_recorded_submitter_the_namespace_or_the_queue_gives_access(
    spec: dict[str, Any], identity: dict[str, str], is_placed: bool
) -> None:
    decided = run(N1, reserved(-HOUR, 2 * HOUR, **spec), *job(notes=asks(**identity)))
    assert bool(decided.decisions.binds) is is_placed
    if not is_placed:
        assert "AdvanceReservation r is not open to" in decided.jobs["default/a"].fit_error


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([reserved(HOUR, HOUR, users=("ann",))], "r starts at 2026-01-01T13:00:00Z"),
        ([reserved(-HOUR, HOUR, users=("ann",))], "r ended at 2026-01-01T12:00:00Z"),
        ([], "r does not exist"),
        ([reserved(HOUR, HOUR, users=("ann",), end_time=None)], "r is invalid: write either"),
    ],
)
@pytest.mark.parametrize("actions", ["enqueue, allocate", "allocate, backfill"])
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_job_waits_for_the_period_of_its_reservation(
    objects: Sequence[meta.Object], expected: str, actions: str, phase: str
) -> None:
    group, pod = job(notes=asks())
    assert isinstance(group, type(builders.make_pod_group()))
    status = msgspec.structs.replace(group.status, phase=phase)
    group = msgspec.structs.replace(group, status=status)
    decided = run(N1, *objects, group, pod, actions=actions)
    assert not decided.decisions.binds
    assert not decided.decisions.admitted
    assert expected in decided.jobs["default/a"].fit_error


def test_a_job_that_waits_for_its_period_holds_up_no_other_job() -> None:
    """Not even in a queue that is served strictly in order."""
    tier = [*default_sessions.TIER, sessions.plugin("queue-policy")]
    fifo = sessions.queue("fifo", dequeue="fifo")
    first = builders.make_pod_group("a", 1, queue="fifo", annotations=asks())
    later = builders.NOON + MINUTE
    second = builders.make_pod_group("b", 1, queue="fifo", created=later)
    objects = [fifo, first, job()[1], second, builders.make_pod("b-0", "b", cpu="4")]
    course = reserved(2 * HOUR, HOUR, "n2", users=("ann",))
    decided = default_sessions.closed(N1, N2, course, *objects, tier=tier)
    assert default_sessions.binds(decided) == {"b-0": "n1"}


def test_a_job_with_a_reservation_uses_its_nodes_and_no_others() -> None:
    open_now = reserved(-HOUR, 2 * HOUR, "n2", users=("ann",))
    assert default_sessions.binds(run(N1, N2, open_now, *job(notes=asks()))) == {"a-0": "n2"}
    assert default_sessions.binds(run(N1, N2, open_now, *job(notes=ANN))) == {"a-0": "n1"}
    decided = run(N1, open_now, *job(notes=asks()))
    assert "not reserved by r" in decided.jobs["default/a"].explain()


def test_a_job_may_run_past_the_end_of_its_reservation_but_not_into_another_one() -> None:
    own = reserved(-HOUR, 2 * HOUR, users=("ann",))
    assert run(N1, own, *job("5h", notes=asks())).decisions.binds
    down = builders.make_reservation("down", builders.NOON + 2 * HOUR, HOUR)
    assert not run(N1, own, down, *job("5h", notes=asks())).decisions.binds
    assert run(N1, own, down, *job("2h", notes=asks())).decisions.binds


# Evictions ------------------------------------------------------------------------------------


def running(name: str, node: str, **notes: str) -> list[meta.Object]:
    return [
        builders.make_pod_group(name, 0, phase="Running", annotations=notes),
        builders.make_pod(f"{name}-0", name, cpu="1", node=node, phase="Running"),
    ]


@pytest.mark.parametrize(
    ("start", "spec", "evicted"),
    [
        (-MINUTE, {"maintenance": True}, ["own-0", "tom-0"]),
        (-MINUTE, {"maintenance": True, "at_start": "Leave"}, []),
        (-MINUTE, {"users": ("ann",)}, []),
        (-MINUTE, {"users": ("ann",), "at_start": "Evict"}, ["tom-0"]),
        (MINUTE, {"maintenance": True}, []),
        (-HOUR, {"users": ("ann",)}, []),
        (-HOUR, {"users": ("ann",), "at_end": "Evict"}, ["own-0"]),
        (-HOUR, {"users": ("ann",), "at_start": "Evict"}, []),
        (-26 * HOUR, {"users": ("ann",), "at_end": "Evict"}, []),
    ],
)
def test_pods_that_still_run_are_left_or_evicted_as_configured(
    start: timedelta, spec: dict[str, Any], evicted: list[str]
) -> None:
    """In every configuration: no action is needed for it."""
    objects = [*running("own", "n1", **asks()), *running("tom", "n1"), *running("far", "n2")]
    decided = run(N1, N2, reserved(start, HOUR, "n1", **spec), *objects)
    evictions = decided.decisions.evictions
    assert [each.task for each in evictions] == [f"default/{name}" for name in evicted]
    assert {each.reason for each in evictions} <= {"reservation"}


def test_pods_are_not_evicted_before_their_minimum_run_time() -> None:
    tier = [*default_sessions.TIER, sessions.plugin("eviction-limits")]
    queue = sessions.queue("q", annotations={keys.MINIMUM_RUN_TIME: "10m"})
    group = builders.make_pod_group("tom", 0, queue="q", phase="Running")
    pod = builders.make_pod("tom-0", "tom", cpu="1", node="n1", phase="Running")
    status = msgspec.structs.replace(pod.status, start_time=builders.NOON)
    pod = msgspec.structs.replace(pod, status=status)
    decided = default_sessions.closed(N1, queue, reserved(-MINUTE, HOUR), group, pod, tier=tier)
    assert not decided.decisions.evictions
    assert decided.wake_at == builders.NOON + 10 * MINUTE


# Time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "length", "wakes"),
    [(HOUR, HOUR, HOUR), (-HOUR, 3 * HOUR, 2 * HOUR), (-2 * HOUR, HOUR, None)],
)
def test_sessions_start_at_the_start_and_at_the_end(
    start: timedelta, length: timedelta, wakes: timedelta | None
) -> None:
    """And not when a task no longer fits before the start, which only removes room."""
    decided = run(N1, reserved(start, length), *job("30m"))
    assert decided.wake_at == (None if wakes is None else builders.NOON + wakes)


def course(loop: Loop, start: timedelta, length: timedelta, **spec: Any) -> None:
    who = spec or {"users": ("ann",)}
    loop.put(builders.make_reservation("r", loop.now + start, length, "n1", **who))


def started(loop: Loop, name: str) -> timedelta:
    """Run sessions until one starts the gang; return when, since the loop began."""
    began = loop.now
    while not loop.places(name):
        assert loop.due_at is not None, f"{name} never starts"
        loop.settle_once()
    return loop.now - began


def test_gangs_start_when_the_period_ends_though_nothing_else_happens() -> None:
    """Also gangs that sessions skipped as unschedulable meanwhile."""
    loop = Loop(CHART, {"n1": 4}, [Queue("q")])
    course(loop, HOUR, HOUR)
    loop.add(Gang("g", "q", 0, 2, 2, waiting=2))
    assert 2 * HOUR <= started(loop, "g") <= 2 * HOUR + MINUTE


def test_gangs_start_when_a_reservation_is_deleted() -> None:
    loop = Loop(CHART, {"n1": 4}, [Queue("q")])
    down = builders.make_reservation("r", loop.now + HOUR, HOUR)
    loop.put(down)
    loop.add(Gang("g", "q", 0, 2, 2, waiting=2))
    loop.settle_once()
    assert not loop.places("g")
    loop.lose(down)
    loop.settle_once()
    assert loop.places("g") == ["n1", "n1"]


def test_a_reservation_takes_effect_though_no_gang_waits() -> None:
    loop = Loop(CHART, {"n1": 4}, [Queue("q")])
    loop.add(Gang("g", "q", 0, 1, 2, running=("n1",)))
    loop.settle(most=10)
    loop.put(builders.make_reservation("r", loop.now + HOUR, HOUR))
    loop.settle(most=10)
    assert loop.history == ["g: reservations g-0"]


# Room of admitted gangs -------------------------------------------------------------------------


def over_its_quota() -> Loop:
    """``own`` is admitted in its period; ``other`` holds all that the queue may use."""
    loop = Loop(CHART, {"n1": 4, "n2": 4}, [Queue("q", capability=4)])
    course(loop, timedelta(), HOUR)
    loop.add(Gang("other", "q", 0, 1, 4, running=("n2",)))
    loop.add(Gang("own", "q", 0, 2, 2, waiting=2, is_inside=False, annotations=asks()))
    loop.settle_once()
    assert loop.phase("own") == "Inqueue"
    assert not loop.places("own")
    return loop


def test_a_gang_that_its_quota_refuses_in_its_period_starts_when_the_quota_is_free() -> None:
    """It stays Inqueue meanwhile, like every admitted gang that waits."""
    loop = over_its_quota()
    loop.end("other")
    loop.settle_once()
    assert loop.places("own") == ["n1", "n1"]


def test_a_gang_that_its_quota_refused_until_its_period_ended_keeps_no_room() -> None:
    """It stays Inqueue, since nothing ends an admission, and others are admitted and start."""
    loop = over_its_quota()
    loop.settle(most=10)
    loop.add(Gang("next", "q", 0, 1, 4, waiting=1, is_inside=False))
    loop.settle(most=10)
    assert not loop.places("next")
    loop.end("other")
    loop.settle(most=10)
    assert loop.places("next")
    assert (loop.phase("own"), loop.places("own")) == ("Inqueue", [])


def test_a_gang_without_a_time_limit_keeps_no_room_while_a_reservation_is_ahead() -> None:
    """It may wait for a week, and shorter gangs fit before the period."""
    loop = Loop(CHART, {"n1": 4, "n2": 4}, [Queue("q")])
    loop.put(builders.make_reservation("r", loop.now + 5 * HOUR, HOUR, "n1", "n2", users=("ann",)))
    loop.add(Gang("runs", "q", 0, 1, 4, running=("n2",)))
    loop.add(Gang("unlimited", "q", 0, 1, 4, waiting=1, is_inside=False))
    loop.settle_once()
    assert loop.phase("unlimited") == "Inqueue"
    short = {keys.RUNNING_ESTIMATE: "1h"}
    loop.add(Gang("short", "q", 0, 1, 4, waiting=1, is_inside=False, annotations=short))
    assert started(loop, "short") <= MINUTE
    loop.end("short")
    assert 6 * HOUR - MINUTE <= started(loop, "unlimited") <= 6 * HOUR + MINUTE


def test_a_restarted_scheduler_keeps_the_promise() -> None:
    loop = Loop(CHART, {"n1": 4}, [Queue("q")])
    course(loop, HOUR, HOUR)
    loop.add(Gang("before", "q", 0, 1, 1, waiting=1, annotations={keys.RUNNING_ESTIMATE: "5m"}))
    loop.add(Gang("own", "q", 0, 2, 2, waiting=2, annotations=asks()))
    loop.settle_once()
    loop.end("before")
    loop.restart()
    loop.add(Gang("long", "q", 0, 1, 4, waiting=1, annotations={keys.RUNNING_ESTIMATE: "2h"}))
    assert HOUR - MINUTE <= started(loop, "own") <= HOUR
    assert not loop.places("long")


def test_recorded_sessions_are_replayed_alike() -> None:
    """The time of a session is part of its record, and reservations are objects of the log."""
    loop = Loop(CHART, {"n1": 4, "n2": 4}, [Queue("q")])
    course(loop, HOUR, HOUR)
    loop.add(Gang("own", "q", 0, 2, 2, waiting=2, annotations=asks()))
    loop.add(Gang("free", "q", 0, 2, 2, waiting=2))
    loop.settle(most=20)
    assert loop.places("own") == ["n1", "n1"]
    assert loop.places("free") == ["n2", "n2"]
    again = list(session_replay.replay_sessions(loop.log, [CHART], policy.Policy(), plugins.find))
    assert len(again) >= 2
    assert all(each.is_same for each in again)
