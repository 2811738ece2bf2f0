"""Policies for the end of a job's time limit: with a timeout, and during a restart."""

from datetime import timedelta

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import fail, go_on, reap_all, running
from stromboli.controller.core.jobs import policy_events
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared.api.batch import LifecyclePolicy
from stromboli.testkit.builders import NOON, make_job, make_task

LIMIT_S = 60
KEY = ReconcileKey("job", "default/j1")


def limited(*policies: LifecyclePolicy) -> CoreHarness:
    job = make_job(
        tasks=[make_task(replicas=1)],
        policies=policies,
        max_retry=9,
        active_deadline_seconds=LIMIT_S,
    )
    return running(job)


def passes(harness: CoreHarness, seconds: float) -> None:
    harness.wait(seconds)
    harness.settle()


@pytest.mark.parametrize(
    ("action", "phase"),
    [("CompleteJob", "Completing"), ("AbortJob", "Aborting"), ("RestartJob", "Restarting")],
)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "controller restarted"])
def test_a_policy_with_a_timeout_acts_that_long_after_the_deadline(
    action: str, phase: str, *, is_restarted: bool
) -> None:
    harness = limited(LifecyclePolicy(event="DeadlineExceeded", action=action, timeout="30s"))
    passes(harness, LIMIT_S)
    if is_restarted:
        harness.restart()
        harness.settle()
    assert harness.due(KEY) == NOON + timedelta(seconds=90), "no reconcile is needed before"
    passes(harness, 29)
    assert harness.phase() == "Running"
    passes(harness, 1)
    assert harness.phase() == phase


def test_an_action_that_is_never_possible_leaves_the_job_to_fail() -> None:
    harness = limited(LifecyclePolicy(event="DeadlineExceeded", action="ResumeJob", timeout="30s"))
    passes(harness, LIMIT_S)
    assert harness.phase() == "Failed"


def test_a_deadline_that_passes_while_the_job_restarts_restarts_it_with_more_time() -> None:
    """The policy cannot act during the restart of the whole job, but right after it."""
    harness = limited(
        LifecyclePolicy(event="DeadlineExceeded", action="RestartJob"),
        LifecyclePolicy(event="PodFailed", action="RestartJob", backoff="30s"),
    )
    harness.wait(50)
    fail(harness, "j1-worker-0")
    reap_all(harness)
    passes(harness, 11)
    assert harness.phase() == "Restarting"
    passes(harness, 20)
    go_on(harness)
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 2)
    deadline = harness.now + timedelta(seconds=LIMIT_S)
    assert policy_events.deadline(harness.job()) == deadline


def test_a_restart_for_another_reason_gives_a_job_no_more_time() -> None:
    """Its pod failed when its time was over, before the controller saw either."""
    harness = limited(LifecyclePolicy(event="PodFailed", action="RestartJob"))
    harness.wait(LIMIT_S)
    fail(harness, "j1-worker-0")
    assert (harness.phase(), harness.job().status.state.reason) == ("Failed", "DeadlineExceeded")


def test_a_restart_for_another_reason_does_not_delay_the_deadline() -> None:
    """While the policy for the deadline waits, another one restarts the job."""
    harness = limited(
        LifecyclePolicy(event="DeadlineExceeded", action="AbortJob", timeout="30s"),
        LifecyclePolicy(event="PodFailed", action="RestartJob"),
    )
    passes(harness, LIMIT_S)
    harness.wait(10)
    fail(harness, "j1-worker-0")
    go_on(harness)
    passes(harness, 30)
    assert harness.phase() in ("Aborting", "Aborted")
