"""Reservation and backfill: those in front keep their room, others use it until then."""

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions, virtual_cluster
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.plugins.reservation import reservation, start_estimate
from stromboli.shared import decoding, keys
from stromboli.shared.api import meta
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

FIFO = sessions.queue("q", annotations={keys.QUEUE_POLICY: "fifo"})
OTHER = sessions.queue("other")
STRICT = sessions.queue("q", annotations={keys.QUEUE_POLICY: "fifo"}, dequeue="fifo")
USUAL = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]
BARE = ([sessions.plugin("queue-policy")], USUAL)
KEPT = ([sessions.plugin("queue-policy"), sessions.plugin("reservation")], USUAL)
FOUR = [builders.make_node("n1", cpu="4")]
RUNS = virtual_cluster.Job("runs", 1, 3, 100)
HEAD = virtual_cluster.Job("head", 1, 4, 50, at=1)


def run(
    *jobs: virtual_cluster.Job, queues: tuple[meta.Object, ...] = (FIFO, OTHER)
) -> virtual_cluster.Run:
    return virtual_cluster.simulated(FOUR, queues, jobs, KEPT)


def test_a_job_that_ends_in_time_may_pass_and_no_other() -> None:
    """A task that would end a second late, or without a run time, waits."""
    late = virtual_cluster.Job("late", 1, 1, 100, at=2)
    short = virtual_cluster.Job("short", 1, 1, 98, at=2)
    unknown = virtual_cluster.Job("unknown", 1, 1, 10, at=2, says=False)
    assert run(RUNS, HEAD, late).started == {"runs": 0, "head": 100, "late": 150}
    assert run(RUNS, HEAD, short).started == {"runs": 0, "short": 2, "head": 100}
    assert run(RUNS, HEAD, unknown).started == {"runs": 0, "head": 100, "unknown": 150}


def test_without_the_plugin_the_head_may_wait_indefinitely() -> None:
    late = [virtual_cluster.Job(f"late-{at}", 1, 1, 100, at=2 + 50 * at) for at in range(4)]
    bare = virtual_cluster.simulated(FOUR, (FIFO,), [RUNS, HEAD, *late], BARE)
    assert bare.started["head"] > 100
    assert run(RUNS, HEAD, *late).started["head"] == 100


def test_other_queues_keep_off_too() -> None:
    """Also when they are served first."""
    late = virtual_cluster.Job("late", 1, 1, 500, queue="other", at=2)
    assert run(RUNS, HEAD, late).started == {"runs": 0, "head": 100, "late": 150}


def test_room_that_the_head_will_not_use_is_free_for_others() -> None:
    """On its nodes and on others."""
    small = msgspec.structs.replace(HEAD, cpu=3)
    for_ever = virtual_cluster.Job("for-ever", 1, 1, 10**5, at=2, says=False)
    assert run(RUNS, small, for_ever).started == {"runs": 0, "for-ever": 2, "head": 100}


def test_the_job_reports_its_start_and_others_report_the_owner() -> None:
    late = virtual_cluster.Job("late", 1, 1, 500, at=2)
    second, last = run(RUNS, HEAD, late).sessions[2]
    assert second == 2
    assert "starts by 2026-01-01T12:01:40+00:00" in last.jobs["default/head"].explain()
    (error,) = last.jobs["default/late"].fit_errors.values()
    assert dict(error.refusals) == {
        "reserved for default/head, which starts by 2026-01-01T12:01:40+00:00": 1
    }
    assert last.wake_at == builders.NOON + timedelta(seconds=100)


def test_reasons_of_jobs_in_another_namespace_do_not_name_the_owner() -> None:
    """Also if they are equal otherwise."""
    late = [
        virtual_cluster.Job("late", 1, 1, 500, at=2, namespace=each) for each in ("b", "default")
    ]
    jobs = run(RUNS, HEAD, *late).sessions[2][1].jobs
    reasons = {
        name: str(*jobs[f"{name}/late"].fit_errors.values()).partition("which")[0]
        for name in ("b", "default")
    }
    assert "reserved for a job in another namespace, " in reasons["b"]
    assert "reserved for default/head, " in reasons["default"]


def test_a_job_in_front_of_the_owner_is_not_kept_off() -> None:
    """A new head takes the reservation over."""
    queue = sessions.queue("q", annotations={keys.QUEUE_POLICY: "sla"})
    urgent = virtual_cluster.Job("urgent", 1, 1, 500, at=2, notes={"sla-waiting-time": "1h"})
    started = run(RUNS, HEAD, urgent, queues=(queue,)).started
    assert started == {"runs": 0, "urgent": 2, "head": 502}


def test_a_job_past_its_waiting_time_owns_a_reservation_though_others_are_in_front() -> None:
    """Of each queue only the first else does."""
    node = [builders.make_node("n1", cpu="4"), builders.make_node("n2", cpu="4")]
    runs = [virtual_cluster.Job(f"runs-{at}", 1, 3, 100 + at) for at in range(2)]
    second = virtual_cluster.Job("second", 1, 4, 50, at=2)
    late = virtual_cluster.Job("late", 1, 1, 500, at=30)
    jobs = [*runs, msgspec.structs.replace(HEAD, seconds=400), second, late]
    without = virtual_cluster.simulated(node, (FIFO,), jobs, KEPT)
    assert without.started["late"] == 30
    patient = msgspec.structs.replace(second, notes={"sla-waiting-time": "10s"})
    kept = virtual_cluster.simulated(node, (FIFO,), [*jobs[:3], patient, late], KEPT)
    assert (kept.started["second"], kept.started["late"]) == (101, 151)


def test_without_a_known_start_nothing_is_kept_unless_the_job_is_late() -> None:
    """Unless the configuration demands it."""
    unknown = msgspec.structs.replace(RUNS, says=False)
    small = virtual_cluster.Job("small", 1, 1, 500, at=20)
    assert run(unknown, HEAD, small).started["small"] == 20
    late = msgspec.structs.replace(HEAD, notes={"sla-waiting-time": "5s"})
    decided = run(unknown, late, small)
    assert decided.started == {"runs": 0, "head": 100, "small": 150}
    session = next(each for second, each in decided.sessions if second == 20)
    assert "starts once its nodes are free" in session.jobs["default/head"].explain()
    holds = [
        sessions.plugin("queue-policy"),
        sessions.plugin("reservation", {"hold-without-start": True}),
    ]
    held = virtual_cluster.simulated(FOUR, (FIFO,), [unknown, HEAD, small], (holds, USUAL))
    assert held.started["small"] == 150


def test_what_is_held_up_by_its_queue_keeps_no_nodes() -> None:
    """Room on nodes would not help it."""
    limited = sessions.queue("q", capability={"cpu": 3}, annotations={keys.QUEUE_POLICY: "fifo"})
    tiers = ([*KEPT[0]], [*USUAL, sessions.plugin("proportion")])
    small = virtual_cluster.Job("small", 1, 1, 500, queue="other", at=2, says=False)
    decided = virtual_cluster.simulated(
        FOUR, (limited, OTHER), [RUNS, HEAD, small], tiers, until=10
    )
    assert decided.started["small"] == 2


def test_a_later_start_in_another_queue_delays_no_job() -> None:
    """A job that starts at 4 has its room then, and does not affect the one planned for 3."""
    five = [builders.make_node("n1", cpu="5")]
    limited = virtual_cluster.Job("limited", 1, 1, 3)
    first = virtual_cluster.Job("first", 1, 3, 3, at=1)
    second = virtual_cluster.Job("second", 1, 2, 1, at=1, says=False)
    other = virtual_cluster.Job("other", 1, 1, 1, queue="other", at=2, says=False)
    jobs = [limited, first, second, other]
    started = virtual_cluster.simulated(five, (FIFO, OTHER), jobs, KEPT).started
    assert started == {"limited": 0, "first": 1, "second": 3, "other": 4}


def test_a_job_that_starts_no_longer_has_a_reservation_beside_its_room() -> None:
    """Else the room counts twice, the next job that is tried in the same session loses its start at
    11, and the last one passes it."""
    runs = [virtual_cluster.Job("long", 1, 3, 10), virtual_cluster.Job("short", 1, 1, 11)]
    first = virtual_cluster.Job("first", 1, 2, 50, queue="other", at=1)
    second = virtual_cluster.Job("second", 1, 2, 50, at=1)
    last = virtual_cluster.Job("last", 1, 1, 40, at=2)
    decided = run(*runs, first, second, last)
    assert decided.started == {"long": 0, "short": 0, "first": 10, "second": 11, "last": 60}
    texts = {
        each.jobs["default/second"].start_estimate_text
        for at, each in decided.sessions
        if 1 <= at < 11
    }
    assert texts == {"starts by 2026-01-01T12:00:11+00:00"}


def test_a_job_that_is_late_is_expected_to_need_as_long_again() -> None:
    """Not to end at any moment: others may pass during that time."""
    overdue = msgspec.structs.replace(
        RUNS, seconds=100, says=False, notes={keys.RUNNING_ESTIMATE: "20s"}
    )
    small = virtual_cluster.Job("small", 1, 1, 15, at=40)
    decided = run(overdue, HEAD, small)
    assert decided.started == {"runs": 0, "small": 40, "head": 100}
    session = next(each for second, each in decided.sessions if second == 40)
    assert "starts by 2026-01-01T12:01:00" in session.jobs["default/head"].explain()


def test_a_pending_gang_owns_a_reservation_and_is_enqueued_when_it_is_due() -> None:
    """Although gangs inside the queue that wait for the same room have used up the overcommit
    limit.
    """
    admission = sessions.plugin("overcommit", {"overcommit-factor": 1.0})
    tiers = (KEPT[0], [*USUAL, admission])
    runs = [
        builders.make_pod_group(
            "runs", 1, queue="q", phase="Running", annotations={keys.RUNNING_ESTIMATE: "100s"}
        ),
        builders.make_pod("runs-0", "runs", cpu="3", memory=None, node="n1", phase="Running"),
    ]
    head = builders.make_pod_group("head", 4, queue="q", phase="Pending", min_resources={"cpu": 4})
    inside = builders.make_pod_group(
        "inside", 1, queue="q", min_resources={"cpu": 1}, created=builders.NOON.replace(minute=1)
    )
    waits = builders.make_pod("inside-0", "inside", cpu="1", memory=None)
    how = sessions.configured(*tiers, run="enqueue, allocate")
    first = simulate.run(how, sessions.given([*FOUR, FIFO, *runs, head, inside, waits]))
    assert first.decisions.binds == {}
    assert "starts by" in first.jobs["default/head"].start_estimate_text
    later = builders.NOON.replace(minute=2)
    given_later = sessions.given([*FOUR, FIFO, head, inside, waits], later, first.remember)
    second = simulate.run(how, given_later)
    assert second.decisions.binds == {}
    assert second.jobs["default/head"].phase == "Inqueue"


@pytest.mark.parametrize(
    "memory", ["{", '[{"job":"default/gone","uid":"gone","start":null,"rows":{}}]']
)
def test_stored_reservations_of_missing_objects_are_dropped(memory: str) -> None:
    objects = [builders.make_pod_group("a", 1, queue="q"), builders.make_pod("a-0", "a", cpu="4")]
    what = sessions.given([*FOUR, FIFO, *objects], memory={reservation.NAME: memory})
    assert simulate.run(sessions.configured(*KEPT), what).decisions.binds == {"default/a-0": "n1"}


def test_a_reservation_is_not_for_another_job_of_the_same_name() -> None:
    """It waits as long as any other that is new."""
    head = builders.make_pod_group("head", 2, queue="q", min_resources={"cpu": "4"})
    owner = {
        "job": head.metadata.key,
        "uid": "of one that was deleted",
        "start": "2026-01-01T12:00:00Z",
    }
    memory = msgspec.json.encode([{**owner, "rows": {"n1": {"cpu": 4000}}}]).decode()
    objects = [head, *sessions.gang("a", "other", 1, cpu="4", memory=None)]
    what = sessions.given([*FOUR, FIFO, OTHER, *objects], memory={reservation.NAME: memory})
    assert simulate.run(sessions.configured(*KEPT), what).decisions.binds == {"default/a-0": "n1"}


# --- properties ------------------------------------------------------------------------------

SIZES = st.lists(st.integers(2, 6), min_size=1, max_size=3)
JOBS = st.lists(
    st.tuples(
        st.integers(1, 4),  # pods
        st.integers(1, 4),  # cpu of each
        st.integers(1, 60),  # seconds
        st.integers(0, 40),  # arrival
        st.sampled_from(["q", "q", "other"]),
        st.booleans(),
    ),
    min_size=2,
    max_size=8,
)


def made(
    jobs: list[tuple[int, int, int, int, str, bool]], *, all_say: bool
) -> list[virtual_cluster.Job]:
    return [
        virtual_cluster.Job(f"j{at}", pods, cpu, seconds, queue, says or all_say, arrives)
        for at, (pods, cpu, seconds, arrives, queue, says) in enumerate(jobs)
    ]


@depth.examples(60)
@given(SIZES, JOBS)
def test_with_true_run_times_no_job_starts_later_than_first_reported(
    sizes: list[int], jobs: list[tuple[int, int, int, int, str, bool]]
) -> None:
    """While it stays at the head: whatever other jobs arrive, and whatever runs indefinitely."""
    nodes = [builders.make_node(f"n{at}", cpu=str(cpu)) for at, cpu in enumerate(sizes)]
    decided = virtual_cluster.simulated(nodes, (FIFO, OTHER), made(jobs, all_say=False), KEPT)
    seen: dict[str, int] = {}
    for _, session in decided.sessions:
        for kept in msgspec.json.decode(session.remember.get(reservation.NAME, "[]")):
            job = session.jobs[kept["job"]]
            begins = decoding.convert(kept["start"], type(session.now))
            first = seen.setdefault(job.name, round((begins - builders.NOON).total_seconds()))
            assert first >= (begins - builders.NOON).total_seconds()
    for name, first in seen.items():
        assert decided.started[name] <= first


@depth.examples(60)
@given(SIZES, JOBS)
def test_the_head_starts_no_later_than_without_backfill(
    sizes: list[int], jobs: list[tuple[int, int, int, int, str, bool]]
) -> None:
    """Backfill costs him nothing."""
    nodes = [builders.make_node(f"n{at}", cpu=str(cpu)) for at, cpu in enumerate(sizes)]
    alone = [msgspec.structs.replace(job, queue="q") for job in made(jobs, all_say=True)]
    strict = virtual_cluster.simulated(nodes, (STRICT,), alone, BARE)
    passing = virtual_cluster.simulated(nodes, (FIFO,), alone, KEPT)
    waited = [job for job in alone if strict.started.get(job.name, -1) > job.at]
    if waited:
        # Who starts first together with others behind him has the place in front of them.
        first = min(waited, key=lambda job: (job.at, job.name)).name
        assert passing.started[first] <= strict.started[first]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 12))
def test_equal_tasks_are_packed_if_they_fit_at_all(idle: list[int], size: int, count: int) -> None:
    room = np.array([[0] * len(idle), idle], np.int64)
    mask = np.ones(len(idle), np.bool_)
    demand = start_estimate.Demand(np.array([0, size], np.int64), count, mask)
    found = start_estimate.pack(room, [demand], list(range(len(idle))))
    assert (found is not None) == (sum(each // size for each in idle) >= count)
    if found is not None:
        assert sum(int(held[1]) for held in found.values()) == size * count
        assert all(held[1] <= idle[row] for row, held in found.items())


def test_a_pod_that_starts_in_the_last_second_of_the_calendar_keeps_no_gang_out() -> None:
    """A kubelet's ``startTime`` may be any time; the plugin must not fail on its end."""
    running = builders.make_pod("runs-0", "runs", cpu="3", node="n1", phase="Running")
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    running = msgspec.structs.replace(
        running,
        spec=msgspec.structs.replace(running.spec, active_deadline_seconds=0),
        status=msgspec.structs.replace(running.status, start_time=last),
    )
    head = builders.make_pod("head-0", "head", cpu="4")
    groups = [builders.make_pod_group(name, 1, queue="q") for name in ("runs", "head")]
    cluster = sessions.given([*FOUR, FIFO, *groups, running, head])
    closed = simulate.run(sessions.configured(*KEPT), cluster)
    assert "starts by 9999-12-31T23:59:59+00:00" in closed.jobs["default/head"].explain()
