"""Minimum run times, eviction cycles, and eviction notice."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.plugins.eviction_guards import eviction_limits
from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

LOW, HIGH = builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)
NODE = builders.make_node("n1", cpu="4")
USUAL = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]
EVERY = ("preempt", "gangpreempt")


def pod(
    name: str, group: str, node: str = "", cpu: int = 4, started: datetime = builders.NOON
) -> core.Pod:
    made = builders.make_pod(
        name, group, cpu=cpu, memory=None, node=node, phase="Running" if node else "Pending"
    )
    if not node:
        return made
    status = msgspec.structs.replace(made.status, start_time=started)
    return msgspec.structs.replace(made, status=status)


def preempting(
    after: timedelta,
    action: str = "preempt",
    *,
    arguments: Mapping[str, Any] | None = None,
    queue: Mapping[str, str] | None = None,
    job: Mapping[str, str] | None = None,
) -> session.Session:
    """A low-priority task that started at noon, and a high-priority one that needs its place this
    much later.
    """
    limits = sessions.plugin("eviction-limits", arguments)
    objects = [
        LOW,
        HIGH,
        NODE,
        sessions.queue("q", annotations=queue),
        builders.make_pod_group(
            "old", 0, queue="q", phase="Running", priority_class="low", annotations=job
        ),
        builders.make_pod_group("new", 1, queue="q", priority_class="high"),
        pod("old-0", "old", "n1"),
        pod("new-0", "new"),
    ]
    given_objects = sessions.given(objects, builders.NOON + after)
    return simulate.run(sessions.configured([limits], USUAL, run=action), given_objects)


RUN, LIMIT = keys.MINIMUM_RUN_TIME, keys.MINIMUM_RUN_TIME_LIMIT
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("action", EVERY)
@pytest.mark.parametrize(
    ("arguments", "queue", "job", "protected"),
    [
        ({}, {}, {}, timedelta(0)),
        ({"minimum-run-time": "1h"}, {}, {}, HOUR),
        ({"minimum-run-time": "1h"}, {RUN: "2h"}, {}, 2 * HOUR),
        ({"minimum-run-time": "1h"}, {RUN: "0"}, {}, timedelta(0)),
        ({}, {RUN: "1h"}, {RUN: "3h"}, HOUR),
        ({}, {RUN: "1h", LIMIT: "2h"}, {RUN: "3h"}, 2 * HOUR),
        ({}, {LIMIT: "4h"}, {RUN: "3h"}, 3 * HOUR),
        ({}, {RUN: "2h", LIMIT: "4h"}, {RUN: "1h"}, HOUR),
        ({}, {}, {RUN: "3h"}, timedelta(0)),
    ],
)
def test_a_task_is_no_victim_before_it_has_run_its_minimum(
    action: str,
    arguments: Mapping[str, str],
    queue: Mapping[str, str],
    job: Mapping[str, str],
    protected: timedelta,
) -> None:
    """The queue sets the time, else the configuration; the job within the queue's limit."""
    limits: dict[str, Any] = {"arguments": arguments, "queue": queue, "job": job}
    assert len(preempting(protected, action, **limits).decisions.evictions) == 1
    if protected:
        before = preempting(protected - timedelta(seconds=1), action, **limits)
        assert before.decisions.evictions == []
        assert before.wake_at == builders.NOON + protected


def test_a_veto_holds_in_every_tier() -> None:
    """An emptied tier is no veto in the field's rules: the next one could still choose."""
    decided = preempting(timedelta(0), arguments={"minimum-run-time": "1h"})
    assert decided.decisions.evictions == []


def test_a_victim_is_given_the_notice_that_holds_for_it() -> None:
    requested = {keys.EVICTION_NOTICE: "2m"}
    bounded = {keys.EVICTION_NOTICE: "30s", keys.EVICTION_NOTICE_LIMIT: "1m"}
    (eviction,) = preempting(HOUR, queue=bounded, job=requested).decisions.evictions
    assert (eviction.notice, eviction.job) == (timedelta(minutes=1), "default/new")
    (eviction,) = preempting(HOUR, arguments={"eviction-notice": "10s"}).decisions.evictions
    assert eviction.notice == timedelta(seconds=10)
    (eviction,) = preempting(HOUR).decisions.evictions
    assert eviction.notice == timedelta(0)


@pytest.mark.parametrize("text", ["soon", "-1h", "999999999h"])
def test_an_unreadable_value_is_reported_and_ignored(text: str) -> None:
    decided = preempting(timedelta(0), queue={RUN: text}, arguments={"minimum-run-time": "1h"})
    assert decided.decisions.evictions == []
    assert any(each.startswith(f"Queue q: {RUN}: ") for each in decided.complaints)
    wrong = preempting(timedelta(0), arguments={"minimum-run-time": text})
    assert len(wrong.decisions.evictions) == 1
    assert any("arguments.minimum-run-time" in each for each in wrong.complaints)


class Arena:
    """The same jobs indefinitely: evicted jobs are pending again, and sessions follow
    each other.
    """

    def __init__(
        self, nodes: list[int], jobs: list[tuple[str, str, int, int]], *, limited: bool
    ) -> None:
        """``jobs``: queue, priority class, pods, cpu of each."""
        self.jobs = jobs
        self.places: dict[str, str] = {}
        self.memory: Mapping[str, str] = {}
        self.minute = 0
        self._nodes = [builders.make_node(f"n{at}", cpu=str(cpu)) for at, cpu in enumerate(nodes)]
        limits = [sessions.plugin("eviction-limits", {"cycle-window": "1000h"})] if limited else []
        others = [sessions.plugin(name) for name in ("predicates", "nodeorder", "proportion")]
        gang = [sessions.plugin("priority"), sessions.plugin("gang", enableJobStarving=False)]
        self._how = sessions.configured([*limits, *gang], others, run="allocate, preempt, reclaim")

    def step(self) -> tuple[int, int]:
        """One session: (binds, evictions)."""
        objects: list[meta.Object] = [LOW, HIGH, *self._nodes]
        objects += [sessions.queue(name) for name in ("a", "b")]
        for at, (queue, priority, pods, cpu) in enumerate(self.jobs):
            objects.append(
                builders.make_pod_group(f"j{at}", 0, queue=queue, priority_class=priority)
            )
            for index in range(pods):
                name = f"j{at}-{index}"
                objects.append(pod(name, f"j{at}", self.places.get(f"default/{name}", ""), cpu))
        now = builders.NOON + timedelta(minutes=self.minute)
        decided = simulate.run(self._how, sessions.given(objects, now, self.memory))
        self.minute, self.memory = self.minute + 1, decided.remember
        for eviction in decided.decisions.evictions:
            del self.places[eviction.task]
        self.places |= decided.decisions.binds
        return len(decided.decisions.binds), len(decided.decisions.evictions)


def test_evictions_end_without_the_plugin() -> None:
    """The pod of queue b is within its share and served first: it is placed where its eviction
    made room, and would be evicted again in each session."""
    jobs = [("b", "high", 1, 2), ("a", "high", 1, 2), ("a", "low", 3, 4)]
    arena = Arena([4, 4], jobs, limited=False)
    assert any(arena.step() == (0, 0) for _ in range(10))


def test_a_victim_does_not_evict_its_evictor_within_the_window() -> None:
    """Nor through others; later it may."""
    memory = {
        eviction_limits.NAME: msgspec.json.encode(
            [
                eviction_limits.EvictionRecord("podgroup-default-old", "middle", builders.NOON),
                eviction_limits.EvictionRecord("middle", "podgroup-default-new", builders.NOON),
            ]
        ).decode()
    }
    objects = [
        *(LOW, HIGH, NODE, builders.make_queue()),
        builders.make_pod_group("old", 0, phase="Running", priority_class="low"),
        builders.make_pod_group("new", 1, priority_class="high"),
        pod("old-0", "old", "n1"),
        pod("new-0", "new"),
    ]
    how = sessions.configured([sessions.plugin("eviction-limits")], USUAL, run="preempt")
    for minutes, evicted in ((1, 0), (9, 0), (10, 1)):
        now = builders.NOON + timedelta(minutes=minutes)
        decided = simulate.run(how, sessions.given(objects, now, memory))
        assert len(decided.decisions.evictions) == evicted
        if not evicted:
            assert decided.wake_at == builders.NOON + timedelta(minutes=10)


@depth.examples(60)
@given(
    st.lists(st.integers(2, 6), min_size=1, max_size=2),
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from(["low", "high"]),
            st.integers(1, 2),
            st.integers(1, 6),
        ),
        min_size=2,
        max_size=4,
    ),
)
def test_while_nothing_changes_evictions_end(
    nodes: list[int], jobs: list[tuple[str, str, int, int]]
) -> None:
    arena = Arena(nodes, jobs, limited=True)
    assert any(arena.step() == (0, 0) for _ in range(40))
