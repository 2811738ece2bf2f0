"""A suspended job that is resumed: it keeps the pods that have succeeded and runs all others
again."""

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import go_on, reap_all, running
from stromboli.shared.api import batch
from stromboli.testkit.builders import make_command, make_job, make_task


def suspended_and_resumed(action: str) -> CoreHarness:
    """The first of two workers succeeds, then a user suspends and resumes the job. A policy names
    an action for the end of the workers; a server beside them runs until then."""
    policy = batch.LifecyclePolicy(event="TaskCompleted", action=action)
    tasks = [make_task("ps"), make_task("worker", replicas=2, policies=[policy])]
    harness = running(make_job(tasks=tasks))
    harness.change_pod("default/j1-worker-0", "Succeeded")
    harness.settle()
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    reap_all(harness)
    harness.submit(make_command("c2", "ResumeJob", harness.job()))
    harness.settle()
    go_on(harness)
    return harness


def test_a_task_is_completed_with_the_pods_that_succeeded_before_the_suspension() -> None:
    """Otherwise the servers of a training would run indefinitely."""
    harness = suspended_and_resumed("CompleteJob")
    assert harness.phase() == "Running"
    harness.change_pod("default/j1-worker-1", "Succeeded")
    harness.settle()
    assert harness.phase() == "Completing"
    reap_all(harness)
    assert harness.phase() == "Completed"


def test_a_task_that_completed_before_the_suspension_is_not_completed_again() -> None:
    """Its policy suspended the job: it would do so forever."""
    harness = suspended_and_resumed("AbortJob")
    harness.change_pod("default/j1-worker-1", "Succeeded")
    harness.settle()
    reap_all(harness)
    assert harness.phase() == "Aborted"
    harness.submit(make_command("c3", "ResumeJob", harness.job()))
    harness.settle()
    go_on(harness)
    assert harness.phase() == "Running"
    assert harness.pod_names() == ["j1-ps-0", "j1-worker-0", "j1-worker-1"]
