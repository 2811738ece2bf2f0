"""A suspended job that is resumed: it keeps the pods that have succeeded and runs all others
again."""

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import go_on, reap_all, running
from stromboli.shared.api import batch
from stromboli.testkit.builders import make_command, make_job, make_task


def suspend_and_resume(harness: CoreHarness, succeeded: str) -> None:
    """A pod succeeds, then a user suspends the job and, once its pods are gone, resumes it."""
    harness.change_pod(succeeded, "Succeeded")
    harness.settle()
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    reap_all(harness)
    harness.submit(make_command("c2", "ResumeJob", harness.job()))
    harness.settle()


def suspended_and_resumed(action: str) -> CoreHarness:
    """The first of two workers succeeds, then a user suspends and resumes the job. A policy names
    an action for the end of the workers; a server beside them runs until then."""
    policy = batch.LifecyclePolicy(event="TaskCompleted", action=action)
    tasks = [make_task("ps"), make_task("worker", replicas=2, policies=[policy])]
    harness = running(make_job(tasks=tasks))
    suspend_and_resume(harness, "default/j1-worker-0")
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


def with_clients_resumed() -> CoreHarness:
    """One of two clients of a server succeeds, then a user suspends and resumes the job."""
    tasks = [make_task("server"), make_task("client", replicas=2, depends_on=["server"])]
    harness = running(make_job(tasks=tasks))
    go_on(harness)
    suspend_and_resume(harness, "default/j1-client-0")
    harness.enqueue(harness.group_key())
    harness.settle()
    return harness


def test_a_task_waits_again_for_what_it_depends_on() -> None:
    """The remaining clients would fail without their server."""
    harness = with_clients_resumed()
    assert harness.pod_names() == ["j1-client-0", "j1-server-0"]
    assert harness.group().spec.min_member == 1
    harness.run("j1-server-0")
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert harness.pod_names() == ["j1-client-0", "j1-client-1", "j1-server-0"]
    harness.change_pod("default/j1-client-1", "Succeeded", "n1")
    harness.change_pod("default/j1-server-0", "Succeeded")
    harness.settle()
    assert harness.phase() == "Completed"


def test_pods_that_a_resumed_job_kept_do_not_end_it_while_the_others_run() -> None:
    harness = with_clients_resumed()
    harness.run("j1-server-0")
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    harness.change_pod("default/j1-server-0", "Failed", exit_code=1)
    harness.settle()
    assert harness.phase() == "Running"
    harness.change_pod("default/j1-client-1", "Succeeded", "n1")
    harness.settle()
    assert harness.phase() == "Failed"


def test_a_resumed_job_fails_once_what_a_task_waits_for_has_ended_short() -> None:
    harness = with_clients_resumed()
    harness.change_pod("default/j1-server-0", "Failed", "n1", exit_code=1)
    harness.settle()
    status = harness.job().status
    assert status.state.phase == "Failed"
    assert "1 pod could never be created" in status.state.message
