"""Gangs whose PodGroup announces a plan: sessions wait for the plan, but not for long."""

from datetime import timedelta

import msgspec
import pytest

from services.scheduler.tests.support.harness import SchedulerHarness
from services.scheduler.tests.test_planned_pods import GROUP_KEY, JOB, plan, publish
from stromboli.scheduler.core.cache import awaited_plans
from stromboli.shared import keys
from stromboli.shared.api import scheduling
from stromboli.shared.messages import plans
from stromboli.testkit import builders

LONGEST = awaited_plans.LONGEST_WAIT
SECOND = timedelta(seconds=1)


def announced(minimum: int, version: int = 1) -> scheduling.PodGroup:
    marks = {keys.JOB_VERSION: "0", keys.PLAN_FOLLOWS: "true"}
    return builders.make_pod_group(
        "g", minimum, phase="Pending", owner=JOB, annotations=marks, version=version
    )


def without_tasks() -> plans.PodsPlanned:
    digest = plans.digest_of(JOB.metadata.uid, 0, ())
    return msgspec.structs.replace(plan(1), digest=digest, tasks=())


@pytest.fixture
def harness() -> SchedulerHarness:
    made = SchedulerHarness()
    made.see(builders.make_queue(), builders.make_node("n1", cpu="4"), announced(3))
    return made


def test_a_gang_is_not_admitted_before_the_plan_that_follows(harness: SchedulerHarness) -> None:
    """Otherwise its pods would be created pending."""
    result = harness.session()
    assert result.decisions == ()
    assert result.explanations == {}


def test_the_plan_starts_a_session_that_admits_and_binds(harness: SchedulerHarness) -> None:
    harness.session()
    causes = [harness.cache.session_cause]
    publish(harness, plan(3))
    causes.append(harness.cache.session_cause)
    assert [bool(it) for it in causes] == [False, True]
    (statement,) = harness.session().decisions
    assert statement.enqueue
    assert len(statement.binds) == 3


def test_a_plan_without_tasks_admits_the_gang_alone(harness: SchedulerHarness) -> None:
    """Such as after a rejected dry run: pending pods are what users and autoscalers see."""
    publish(harness, without_tasks())
    (statement,) = harness.session().decisions
    assert statement.enqueue
    assert statement.binds == ()


def test_the_wait_for_a_plan_ends(harness: SchedulerHarness) -> None:
    """The controller may have stopped, or a user may have written the annotation."""
    assert harness.session(builders.NOON + LONGEST - SECOND).wake_at == builders.NOON + LONGEST
    (statement,) = harness.session(builders.NOON + LONGEST).decisions
    assert statement.enqueue
    assert statement.binds == ()


def test_a_gang_of_the_future_does_not_wait(harness: SchedulerHarness) -> None:
    """The clock was set back, and the time of the wait may not be reached for hours."""
    (statement,) = harness.session(builders.NOON - LONGEST - SECOND).decisions
    assert statement.enqueue


def test_other_gangs_do_not_wait(harness: SchedulerHarness) -> None:
    harness.see(
        builders.make_pod_group("old", 2),
        *(builders.make_pod(f"old-w-{at}", "old", cpu="1") for at in range(2)),
    )
    assert [it.pod_group for it in harness.session().decisions] == ["default/old"]


@pytest.mark.parametrize("is_plan_first", [True, False])
def test_the_order_of_plan_and_pod_group_does_not_matter(*, is_plan_first: bool) -> None:
    """They are on different topics."""
    harness = SchedulerHarness()
    harness.see(builders.make_queue(), builders.make_node("n1", cpu="4"))
    if is_plan_first:
        publish(harness, plan(3))
        harness.see(announced(3))
    else:
        harness.see(announced(3))
        publish(harness, plan(3))
    (statement,) = harness.session().decisions
    assert (statement.pod_group, len(statement.binds)) == (GROUP_KEY, 3)


def test_a_replay_waits_as_the_session_did(harness: SchedulerHarness) -> None:
    """A cache that is built from the log up to a session decides the same at its time."""
    harness.session()
    again = SchedulerHarness(harness.log.records)
    assert again.session().decisions == ()
    publish(again, plan(3))
    assert len(again.session().decisions) == 1
