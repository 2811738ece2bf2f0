"""Restarts of a pod, a partition and a task: their exact effects."""

from datetime import timedelta

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import (
    J,
    evict,
    fail,
    go_on,
    reap_all,
    restarted,
    running,
)
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.testkit.builders import NOON, make_command, make_job, make_task

PARTS = batch.PartitionPolicy(total_partitions=2, partition_size=2)


def three_tasks(action: str, *, event: str = "PodFailed", retries: int = 3) -> CoreHarness:
    """Task a with two partitions of two pods, task b with two pods, all running."""
    policy = batch.LifecyclePolicy(event=event, action=action)
    tasks = [make_task("a", 4, partition_policy=PARTS), make_task("b", 2)]
    return running(make_job(tasks=tasks, policies=[policy], max_retry=retries))


def uids(harness: CoreHarness) -> dict[str, str]:
    return {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}


@pytest.mark.parametrize(
    ("action", "restarted", "recorded"),
    [
        ("RestartPod", {"j1-a-1"}, "1"),
        ("RestartPartition", {"j1-a-0", "j1-a-1"}, "0-1"),
        ("RestartTask", {"j1-a-0", "j1-a-1", "j1-a-2", "j1-a-3"}, "0-3"),
    ],
)
def test_exactly_the_part_is_created_again_and_all_else_runs_on(
    action: str, restarted: set[str], recorded: str
) -> None:
    harness = three_tasks(action)
    before, group = uids(harness), harness.group().metadata.uid
    fail(harness, "j1-a-1")
    assert harness.phase() == "Restarting"
    going = {pod.metadata.name for pod in harness.pods() if pod.metadata.deletion_timestamp}
    assert going == restarted
    go_on(harness)
    after = uids(harness)
    assert {name for name in before if before[name] != after[name]} == restarted
    status = harness.job().status
    assert (status.state.phase, status.retry_count, status.version) == ("Running", 1, 0)
    assert status.restarted == batch.RestartedTasks(retry_count=1, tasks={"a": recorded})
    assert harness.group().metadata.uid == group, "the PodGroup stays"


@pytest.mark.parametrize("action", ["RestartPod", "RestartPartition", "RestartTask"])
def test_pods_that_are_ended_by_a_restart_are_no_eviction(action: str) -> None:
    policies = [
        batch.LifecyclePolicy(event="PodFailed", action=action),
        batch.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
    ]
    tasks = [make_task("a", 4, partition_policy=PARTS)]
    harness = running(make_job(tasks=tasks, policies=policies))
    fail(harness, "j1-a-0")
    harness.restart()
    harness.settle()
    go_on(harness)
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 1)


def test_pods_that_fail_together_cost_one_try() -> None:
    harness = three_tasks("RestartPod")
    for name in ("j1-a-0", "j1-a-3", "j1-b-1"):
        harness.change_pod(f"default/{name}", "Failed", exit_code=1)
    harness.settle()
    go_on(harness)
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 1)
    assert harness.job().status.restarted == batch.RestartedTasks(
        retry_count=1, tasks={"a": "0,3", "b": "1"}
    )


def test_a_pod_that_fails_while_another_restarts_restarts_too_without_another_try() -> None:
    harness = three_tasks("RestartPod")
    fail(harness, "j1-a-0")
    assert harness.phase() == "Restarting", "the gang has no room before the pod is gone"
    fail(harness, "j1-b-0")
    assert harness.job().status.restarted == batch.RestartedTasks(
        retry_count=1, tasks={"a": "0", "b": "0"}
    )
    go_on(harness)
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 1)
    retries = {
        it.metadata.name: it.metadata.annotation(keys.JOB_RETRY_COUNT) for it in harness.pods()
    }
    assert {name for name, count in retries.items() if count == "1"} == {"j1-a-0", "j1-b-0"}


def test_what_restarted_before_does_not_restart_with_another_part() -> None:
    harness = three_tasks("RestartPod")
    fail(harness, "j1-a-0")
    go_on(harness)
    before = uids(harness)
    fail(harness, "j1-b-0")
    go_on(harness)
    after = uids(harness)
    assert {name for name in before if before[name] != after[name]} == {"j1-b-0"}


def test_a_job_of_which_a_part_restarted_is_scaled_down_like_any_other() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod")
    harness = running(make_job(tasks=[make_task(replicas=2)], min_available=1, policies=[policy]))
    fail(harness, "j1-worker-0")
    go_on(harness)
    harness.scale(J, 0, 1)
    harness.settle()
    reap_all(harness)
    assert harness.pod_names() == ["j1-worker-0"]


@pytest.mark.parametrize("action", ["RestartPod", "RestartPartition"])
def test_what_happens_to_a_task_restarts_no_pod_of_it(action: str) -> None:
    """The command does not name a pod."""
    harness = three_tasks(action, event="TaskCompleted")
    for name in ("j1-b-0", "j1-b-1"):
        harness.change_pod(f"default/{name}", "Succeeded")
    harness.settle()
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)


def test_a_restart_that_waits_for_a_pod_that_is_scaled_away_meanwhile_restarts_nothing() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod", timeout="30s")
    harness = running(make_job(tasks=[make_task(replicas=2)], min_available=1, policies=[policy]))
    before = uids(harness)
    fail(harness, "j1-worker-1")
    harness.scale(J, 0, 1)
    harness.settle()
    reap_all(harness)
    harness.wait(30)
    harness.settle()
    status = harness.job().status
    assert (status.state.phase, status.retry_count, status.delayed) == ("Running", 0, ())
    assert uids(harness) == {"j1-worker-0": before["j1-worker-0"]}


def test_the_budget_of_attempts_is_that_of_the_whole_job() -> None:
    harness = three_tasks("RestartTask", retries=2)
    fail(harness, "j1-b-0")
    go_on(harness)
    fail(harness, "j1-a-0")
    reap_all(harness)
    assert (harness.phase(), harness.job().status.retry_count) == ("Failed", 2)
    assert "j1-a-0" in harness.pod_names(), "what failed last stays to be looked at"


def test_an_evicted_pod_restarts_its_task_also_when_it_vanished_while_we_were_away() -> None:
    harness = three_tasks("RestartTask", event="PodEvicted")
    before = uids(harness)
    harness.reap("default/j1-b-0")
    harness.restart()
    harness.settle()
    go_on(harness)
    after = uids(harness)
    assert {name for name in before if before[name] != after[name]} == {"j1-b-0", "j1-b-1"}
    assert harness.job().status.retry_count == 1


def test_pods_that_ran_on_through_a_restart_still_count_when_they_are_evicted() -> None:
    """They were made for an earlier try, and are none the less of the present one."""
    policies = [
        batch.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        batch.LifecyclePolicy(event="PodEvicted", action="RestartJob"),
    ]
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=policies))
    fail(harness, "j1-worker-0")
    go_on(harness)
    evict(harness, "j1-worker-1")
    assert (harness.phase(), harness.job().status.retry_count) == ("Restarting", 2)


def test_a_restart_of_a_partition_means_nothing_to_a_task_without_any() -> None:
    harness = three_tasks("RestartPartition")
    fail(harness, "j1-b-0")
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)


def test_a_kill_between_the_record_of_a_restart_and_the_deletions_loses_nothing() -> None:
    harness = three_tasks("RestartPartition")
    harness.change_pod("default/j1-a-3", "Failed", exit_code=1)
    harness.see()
    item = next(it for it in harness.dirty if it.key == J)
    for stage in harness.plan(item):
        for command in stage:
            harness.do(command)
    harness.restart()
    harness.settle()
    going = {pod.metadata.name for pod in harness.pods() if pod.metadata.deletion_timestamp}
    assert (harness.phase(), going) == ("Restarting", {"j1-a-2", "j1-a-3"})


@pytest.mark.parametrize("action", ["RestartTask", "RestartPod", "RestartPartition"])
def test_a_command_cannot_say_which_part_it_means(action: str) -> None:
    harness = three_tasks(action)
    harness.submit(make_command("c1", action, harness.job()))
    harness.settle()
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)
    assert "CommandRefused" in harness.reasons()


def test_an_abort_while_a_part_restarts_ends_the_whole_job() -> None:
    harness = three_tasks("RestartPod")
    fail(harness, "j1-a-0")
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    reap_all(harness)
    assert (harness.phase(), harness.pod_names()) == ("Aborted", [])


def test_each_phase_is_once_in_the_conditions_the_last_one_at_the_end_with_its_time() -> None:
    harness = restarted()
    harness.wait(5)
    go_on(harness)
    found = [(it.status, it.last_transition_time) for it in harness.job().status.conditions]
    later = NOON + timedelta(seconds=5)
    assert found == [("Restarting", NOON), ("Pending", later), ("Running", later)]
