"""A node that rejected a pod because of its placement takes no such pods for a while."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
import pytest

from services.scheduler.tests.support.harness import SchedulerHarness
from services.scheduler.tests.test_planned_pods import group, plan, publish
from stromboli.scheduler.core.cache import node_rejections
from stromboli.scheduler.core.framework import node_cooldowns
from stromboli.shared.api import core
from stromboli.testkit import builders

FIRST = node_rejections.FIRST_WAIT


def rejected(
    node: str = "n1", version: int = 5, cpu: str = "1", reason: str = "OutOfcpu"
) -> core.Pod:
    """A pod that the kubelet rejected."""
    pod = builders.make_pod("lost-0", "lost", cpu=cpu, node=node, version=version, phase="Failed")
    return msgspec.structs.replace(pod, status=core.PodStatus(phase="Failed", reason=reason))


def after(wait: timedelta) -> datetime:
    return builders.NOON + wait


@pytest.fixture
def harness() -> SchedulerHarness:
    made = SchedulerHarness()
    made.see(builders.make_queue(), builders.make_node("n1"), builders.make_node("n2", cpu="2"))
    return made


names = map("g{}".format, range(10_000))


def nodes(harness: SchedulerHarness, now: datetime, cpu: str = "1") -> Iterator[str]:
    """The node of a new gang of one such pod; none if it waits."""
    name = next(names)
    harness.see(
        builders.make_pod_group(name, 1, phase="Inqueue"), builders.make_pod(name, name, cpu=cpu)
    )
    for statement in harness.session(now).decisions:
        yield from (bind.node for bind in statement.binds)


def test_a_node_that_rejected_a_pod_takes_no_such_pod_until_its_cooldown_ends(
    harness: SchedulerHarness,
) -> None:
    harness.see(rejected())
    assert list(nodes(harness, after(timedelta()))) == ["n2"]
    assert list(nodes(harness, after(FIRST / 2))) == ["n2"]
    assert list(nodes(harness, after(FIRST / 2))) == []
    assert [bind.node for each in harness.session(after(FIRST)).decisions for bind in each.binds]


def test_it_takes_pods_with_other_requirements(harness: SchedulerHarness) -> None:
    harness.see(rejected())
    assert list(nodes(harness, after(timedelta()), cpu="3")) == ["n1"]


def test_a_rejected_pod_starts_a_session_although_no_gang_waits(harness: SchedulerHarness) -> None:
    """Its controller deletes it soon, and then nothing tells that the node rejected it."""
    harness.session()
    assert harness.cache.session_cause == ""
    harness.see(rejected())
    assert harness.cache.session_cause
    harness.session()
    harness.lose(rejected())
    assert list(nodes(harness, after(FIRST / 2))) == ["n2"]


def test_a_session_runs_when_the_cooldown_ends(harness: SchedulerHarness) -> None:
    harness.see(rejected())
    assert harness.session().wake_at == after(FIRST)


def test_a_rejected_pod_that_stays_counts_once(harness: SchedulerHarness) -> None:
    harness.see(rejected())
    harness.session()
    harness.session(after(FIRST / 2))
    assert list(nodes(harness, after(FIRST), cpu="1")) == ["n1"]


def test_each_further_rejection_in_a_row_doubles_the_cooldown(harness: SchedulerHarness) -> None:
    at = timedelta()
    for number in range(8):
        harness.see(rejected(version=5 + number))
        wait = min(FIRST * 2**number, node_rejections.MAX_WAIT)
        assert harness.session(after(at)).wake_at == after(at + wait)
        at += wait
    harness.session(after(at + 2 * node_rejections.MAX_WAIT))
    harness.see(rejected(version=50))
    at += 2 * node_rejections.MAX_WAIT
    assert harness.session(after(at)).wake_at == after(at + FIRST)


def test_planned_pods_avoid_the_node_too(harness: SchedulerHarness) -> None:
    planned = plan(2)
    of_plan = msgspec.structs.replace(
        rejected(),
        spec=msgspec.structs.replace(planned.tasks[0].template.spec, node_name="n1"),
    )
    harness.see(of_plan)
    publish(harness, planned)
    harness.see(group(2))
    (statement,) = harness.session().decisions
    assert {bind.node for bind in statement.binds} == {"n2"}


def test_a_restart_continues_the_cooldown(harness: SchedulerHarness) -> None:
    harness.see(rejected())
    harness.session()
    harness.lose(rejected())
    again = SchedulerHarness(harness.log.records)
    again.log = harness.log
    assert list(nodes(again, after(FIRST / 2))) == ["n2"]


def test_the_explanation_names_the_rejection(harness: SchedulerHarness) -> None:
    harness.see(rejected())
    harness.lose(builders.make_node("n2", cpu="2"))
    assert list(nodes(harness, after(timedelta()))) == []
    (explanation,) = harness.cache.explained.values()
    assert explanation is not None
    assert [it.reason for it in explanation.refusals] == [node_cooldowns.REASON]


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded", "OutOfcpu"])
def test_a_pod_that_ran_is_no_rejection(reason: str) -> None:
    rejected_pods = node_rejections.RejectedPods()
    pod = rejected(reason=reason)
    if reason == "OutOfcpu":
        ran = core.ContainerStatus(name="main")
        status = msgspec.structs.replace(pod.status, container_statuses=(ran,))
        pod = msgspec.structs.replace(pod, status=status)
    assert not rejected_pods.put("default/lost-0", pod)
    assert list(rejected_pods.above(0)) == []


def test_the_number_of_cooldowns_is_bounded() -> None:
    many = [
        node_rejections.Cooldown(f"n{number}", "c", after(timedelta(seconds=number)), 1)
        for number in range(node_rejections.MAX_NODES + 10)
    ]
    kept = node_rejections.bounded(many)
    assert set(kept) == set(many[10:])
