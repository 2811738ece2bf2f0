"""Rules of the order by attained service: levels, victims, evictions, and no starvation.

``embedded/tests/test_simulation_orders.py`` compares whole runs with a reference model.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.plugins import least_attained_service
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

QUEUE = sessions.queue("q")
NAME = least_attained_service.NAME
USUAL = [sessions.plugin("gang", enablePreemptable=False), sessions.plugin("predicates")]
HOUR = 3600


def tiers(**arguments: Any) -> list[sessions.Tier]:
    named = {"resource": "cpu", "thresholds": "1h, 10h", "waits-at-most": "24h", **arguments}
    return [
        [sessions.plugin(NAME, {key.replace("_", "-"): it for key, it in named.items()})],
        USUAL,
    ]


def job(
    name: str,
    *runs_s: int,
    waiting: int = 0,
    cpu: str = "1",
    created_s: int = 0,
    ended_s: int | None = None,
    resource: Mapping[str, core.Quantity] | None = None,
) -> list[meta.Object]:
    """A job with one pod for each number, which runs since that many seconds after noon, and pods
    that wait. ``ended_s``: when the pods that ran ended."""
    created = builders.NOON + timedelta(seconds=created_s)
    count = len(runs_s) + waiting
    group = builders.make_pod_group(
        name, count, queue="q", phase="Running" if runs_s else "Inqueue", created=created
    )
    pods = [
        builders.make_pod(
            f"{name}-{at}",
            name,
            cpu=cpu,
            memory=None,
            extra=resource,
            node="n1" if at < len(runs_s) else "",
            created=created,
        )
        for at in range(count)
    ]
    for at, start_s in enumerate(runs_s):
        start = builders.NOON + timedelta(seconds=start_s)
        status = core.PodStatus(phase="Running", start_time=start)
        if ended_s is not None:
            end = builders.NOON + timedelta(seconds=ended_s)
            ready = core.Condition(type="Ready", status="False", last_transition_time=end)
            status = core.PodStatus(phase="Succeeded", start_time=start, conditions=(ready,))
        pods[at] = msgspec.structs.replace(pods[at], status=status)
    return [group, *pods]


def session_of(
    *jobs: Sequence[meta.Object],
    now_s: int = 0,
    cpus: int = 64,
    memory: str = "",
    run: str = "allocate, preempt",
    **arguments: Any,
) -> session.Session:
    """A whole session on one node."""
    objects = [each for job in jobs for each in job]
    node = builders.make_node("n1", cpu=str(cpus))
    now = builders.NOON + timedelta(seconds=now_s)
    cluster = sessions.given([node, QUEUE, *objects], now, {NAME: memory} if memory else {})
    return simulate.run(sessions.configured(*tiers(**arguments), run=run), cluster)


def order_of(*jobs: Sequence[meta.Object], now_s: int = 0, **arguments: Any) -> list[str]:
    """The jobs in the order in which a session would serve them."""
    objects = [each for job in jobs for each in job]
    node, now = builders.make_node("n1", cpu="64"), builders.NOON + timedelta(seconds=now_s)
    (tier, _) = tiers(**arguments)
    ssn = sessions.opened(node, QUEUE, *objects, tier=tier, now=now)
    return [job.name for job in ssn.ordered_jobs(ssn.jobs.values())]


def evicted(ssn: session.Session) -> set[str]:
    return {eviction.task.partition("/")[2] for eviction in ssn.decisions.evictions}


def wakes_s(ssn: session.Session) -> float | None:
    """When the session requests the next one, in seconds after noon."""
    return None if ssn.wake_at is None else (ssn.wake_at - builders.NOON).total_seconds()


# --- levels ----------------------------------------------------------------------------------


def test_what_counts_is_the_amount_times_the_time_and_only_its_level() -> None:
    """Four cores for a quarter of an hour are an hour."""
    wide = job("wide", 0, cpu="4", created_s=0)
    narrow = job("narrow", 0, cpu="1", created_s=1)
    new = job("new", waiting=1, created_s=2)
    assert order_of(wide, narrow, new, now_s=HOUR // 4 - 1) == ["wide", "narrow", "new"]
    assert order_of(wide, narrow, new, now_s=HOUR // 4) == ["narrow", "new", "wide"]
    assert order_of(wide, narrow, new, now_s=HOUR) == ["new", "wide", "narrow"]
    assert order_of(wide, narrow, new, now_s=3 * HOUR) == ["new", "narrow", "wide"]


def test_a_completed_task_counts_until_its_end() -> None:
    """An array of short tasks would otherwise remain in the first level."""
    half, all_ = 1800, HOUR
    short = job("short", 0, waiting=1, ended_s=half)
    long = job("long", 0, waiting=1, ended_s=all_)
    new = job("new", waiting=1, created_s=1)
    assert order_of(short, long, new, now_s=5 * HOUR) == ["short", "new", "long"]


def test_a_job_without_the_resource_remains_in_the_first_level() -> None:
    jobs = job("cpus", 0), job("new", waiting=1, created_s=1)
    assert order_of(*jobs, now_s=99 * HOUR, resource="nvidia.com/gpu", waits_at_most="999h") == [
        "cpus",
        "new",
    ]


@pytest.mark.parametrize(
    ("name", "wrong", "used"),
    [
        ("waits-at-most", "0s", "'24h'"),
        ("waits-at-most", 3, "'24h'"),
        ("thresholds", "10h, 1h", "'1h, 10h'"),
        ("thresholds", "1h, 1h", "'1h, 10h'"),
        ("thresholds", "", "'1h, 10h'"),
        ("thresholds", "1h, soon", "'1h, 10h'"),
        ("resource", 1, "'nvidia.com/gpu'"),
    ],
)
def test_a_wrong_argument_is_reported_and_replaced(name: str, wrong: Any, used: str) -> None:
    (complaint,) = session_of(**{name.replace("-", "_"): wrong}).complaints
    assert complaint.startswith(f"plugin {NAME}: arguments.{name}: {wrong!r} is not ")
    assert complaint.endswith(f"{used} is used")


# --- victims ---------------------------------------------------------------------------------


def test_a_job_evicts_jobs_of_a_higher_level_and_no_other() -> None:
    old = job("old", 0, cpu="2")
    same = job("same", 0, cpu="2")
    new = job("new", waiting=1, cpu="2", created_s=1)
    assert not evicted(session_of(old, new, now_s=1799, cpus=2))
    assert evicted(session_of(old, new, now_s=1800, cpus=2)) == {"old-0"}
    assert not evicted(session_of(old, same, new, now_s=1799, cpus=4))
    assert not evicted(session_of(old, new, now_s=1800, cpus=2, run="allocate"))


def test_a_session_runs_when_a_victim_reaches_the_next_level() -> None:
    """Three cores reach an hour after 20 minutes, and ten hours after 200."""
    old, new = job("old", 0, cpu="3"), job("new", waiting=1, cpu="3", created_s=1)
    assert wakes_s(session_of(old, new, cpus=3)) == 1200
    assert wakes_s(session_of(old, now_s=1201, cpus=3)) is None, "nothing waits"
    second = job("second", waiting=1, cpu="3", created_s=1)
    memory = '[["default/second","3600000000000","2026-01-01T12:00:00Z"]]'
    found = session_of(old, second, now_s=1201, cpus=3, memory=memory)
    assert not evicted(found)
    assert wakes_s(found) == 12000


def test_levels_are_compared_within_a_queue_only_and_reclaim_is_left_to_others() -> None:
    """The first tier with victims would decide for plugins that know queues."""
    old, new = job("old", 0, cpu="2"), job("new", waiting=1, cpu="2", created_s=1)
    found = session_of(old, new, now_s=HOUR, cpus=2, run="allocate, reclaim")
    assert not evicted(found)


# --- what survives an eviction ---------------------------------------------------------------


def test_attained_service_survives_an_eviction_and_only_later_time_is_added() -> None:
    old, new = job("old", 0, cpu="2"), job("new", waiting=1, cpu="2", created_s=1)
    found = session_of(old, new, now_s=1800, cpus=2)
    memory = found.remember[NAME]
    assert memory == '[["default/old","3600000000000","2026-01-01T12:30:00Z",null]]'
    again = job("old", waiting=1, created_s=1800)
    later = job("later", waiting=1, created_s=1801)
    assert order_of(again, later, now_s=1802) == ["old", "later"]
    found = session_of(again, later, now_s=1802, cpus=1, memory=memory)
    assert [task.partition("/")[2] for task in found.decisions.binds] == ["later-0"]


def test_an_eviction_that_was_not_executed_counts_no_service_twice() -> None:
    """The pod runs on: what it attains after the decision is added to what was stored."""
    memory = '[["default/old","3598000000000","2026-01-01T12:30:00Z",null]]'
    old, new = job("old", 0, cpu="1"), job("new", waiting=1, created_s=1)
    assert not evicted(session_of(old, new, now_s=1801, cpus=1, memory=memory))
    assert wakes_s(session_of(old, new, now_s=1801, cpus=1, memory=memory)) == 1802
    assert evicted(session_of(old, new, now_s=1802, cpus=1, memory=memory)) == {"old-0"}


def test_the_service_of_a_job_is_kept_until_it_has_been_gone_for_minutes() -> None:
    """A restarted job gets a new PodGroup of the same name."""
    memory = '[["default/old","7","2026-01-01T12:00:00Z",null]]'
    gone = session_of(now_s=5, memory=memory).remember[NAME]
    assert gone == '[["default/old","7","2026-01-01T12:00:00Z","2026-01-01T12:00:05Z"]]'
    assert session_of(now_s=604, memory=gone).remember[NAME] == gone
    assert session_of(job("old", waiting=1), now_s=604, memory=gone).remember[NAME] == memory
    assert session_of(now_s=605, memory=gone).remember[NAME] == "[]"
    assert NAME not in session_of(now_s=606, memory="[]").remember


@pytest.mark.parametrize("memory", ["{", "[1]", '[["default/old","-1","2026-01-01T12:00:00Z"]]'])
def test_stored_service_that_cannot_be_read_is_ignored(memory: str) -> None:
    jobs = job("old", waiting=1), job("new", waiting=1, created_s=1)
    assert len(session_of(*jobs, memory=memory).decisions.binds) == 2


# --- no starvation ---------------------------------------------------------------------------


def test_a_job_that_waited_for_the_limit_precedes_all_and_may_evict_the_first_level() -> None:
    running = job("running", 0, created_s=-9, cpu="2")
    waits = job("waits", waiting=1, cpu="2", created_s=-5)
    assert wakes_s(session_of(running, waits, cpus=2, waits_at_most="10s")) == 5
    assert not evicted(session_of(running, waits, now_s=4, cpus=2, waits_at_most="10s"))
    assert evicted(session_of(running, waits, now_s=5, cpus=2, waits_at_most="10s")) == {
        "running-0"
    }


def test_a_job_that_waited_for_the_limit_runs_to_its_end() -> None:
    """Otherwise it would be evicted at the next level, and its work might be lost without end."""
    waited = job("waited", 10, created_s=0, cpu="2")
    new = job("new", waiting=1, cpu="2", created_s=11)
    assert evicted(session_of(waited, new, now_s=9 * HOUR, cpus=2, waits_at_most="11s"))
    assert not evicted(session_of(waited, new, now_s=9 * HOUR, cpus=2, waits_at_most="10s"))


def test_an_evicted_job_waits_since_its_eviction() -> None:
    memory = '[["default/old","36000000000000000","2026-01-01T12:01:40Z",null]]'
    old, new = job("old", waiting=1), job("new", waiting=1, created_s=50)
    for now_s, first in ((199, "new"), (200, "old")):
        found = session_of(old, new, now_s=now_s, cpus=1, memory=memory, waits_at_most="100s")
        assert [task.partition("/")[2] for task in found.decisions.binds] == [f"{first}-0"]
