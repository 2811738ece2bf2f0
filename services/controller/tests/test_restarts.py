"""Restarts of a pod, a partition, a task: their exact effects (spec/jobs.md 3.3 and 3.4)."""

from datetime import timedelta

import pytest

from services.controller.tests.scenes import J, evict, fail, go_on, reap_all, restarted, running
from services.controller.tests.world import World
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.testkit.builders import NOON, make_command, make_job, make_task

PARTS = batch.PartitionPolicy(total_partitions=2, partition_size=2)


def three_tasks(action: str, *, event: str = "PodFailed", retries: int = 3) -> World:
    """Task a with two partitions of two pods, task b with two pods, all running."""
    policy = batch.LifecyclePolicy(event=event, action=action)
    tasks = [make_task("a", 4, partition_policy=PARTS), make_task("b", 2)]
    return running(make_job(tasks=tasks, policies=[policy], max_retry=retries))


def uids(world: World) -> dict[str, str]:
    return {pod.metadata.name: pod.metadata.uid for pod in world.pods()}


@pytest.mark.parametrize(
    ("action", "restarted", "recorded"),
    [
        ("RestartPod", {"j1-a-1"}, "1"),
        ("RestartPartition", {"j1-a-0", "j1-a-1"}, "0-1"),
        ("RestartTask", {"j1-a-0", "j1-a-1", "j1-a-2", "j1-a-3"}, "0-3"),
    ],
)
def test_exactly_the_part_is_made_anew_and_all_else_runs_on(
    action: str, restarted: set[str], recorded: str
) -> None:
    world = three_tasks(action)
    before, group = uids(world), world.group().metadata.uid
    fail(world, "j1-a-1")
    assert world.phase() == "Restarting"
    going = {pod.metadata.name for pod in world.pods() if pod.metadata.deletion_timestamp}
    assert going == restarted
    go_on(world)
    after = uids(world)
    assert {name for name in before if before[name] != after[name]} == restarted
    status = world.job().status
    assert (status.state.phase, status.retry_count, status.version) == ("Running", 1, 0)
    assert status.restarted == batch.RestartedTasks(retry_count=1, tasks={"a": recorded})
    assert world.group().metadata.uid == group, "the PodGroup stays"


@pytest.mark.parametrize("action", ["RestartPod", "RestartPartition", "RestartTask"])
def test_pods_that_are_ended_by_a_restart_are_no_eviction(action: str) -> None:
    policies = [
        batch.LifecyclePolicy(event="PodFailed", action=action),
        batch.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
    ]
    tasks = [make_task("a", 4, partition_policy=PARTS)]
    world = running(make_job(tasks=tasks, policies=policies))
    fail(world, "j1-a-0")
    world.restart()
    world.settle()
    go_on(world)
    assert (world.phase(), world.job().status.retry_count) == ("Running", 1)


def test_pods_that_fail_together_cost_one_try() -> None:
    world = three_tasks("RestartPod")
    for name in ("j1-a-0", "j1-a-3", "j1-b-1"):
        world.change_pod(f"default/{name}", "Failed", exit_code=1)
    world.settle()
    go_on(world)
    assert (world.phase(), world.job().status.retry_count) == ("Running", 1)
    assert world.job().status.restarted == batch.RestartedTasks(
        retry_count=1, tasks={"a": "0,3", "b": "1"}
    )


def test_a_pod_that_fails_while_another_restarts_restarts_too_without_another_try() -> None:
    world = three_tasks("RestartPod")
    fail(world, "j1-a-0")
    assert world.phase() == "Restarting", "the gang has no room before the pod is gone"
    fail(world, "j1-b-0")
    assert world.job().status.restarted == batch.RestartedTasks(
        retry_count=1, tasks={"a": "0", "b": "0"}
    )
    go_on(world)
    assert (world.phase(), world.job().status.retry_count) == ("Running", 1)
    retries = {
        it.metadata.name: it.metadata.annotation(keys.JOB_RETRY_COUNT) for it in world.pods()
    }
    assert {name for name, count in retries.items() if count == "1"} == {"j1-a-0", "j1-b-0"}


def test_what_restarted_before_does_not_restart_with_another_part() -> None:
    world = three_tasks("RestartPod")
    fail(world, "j1-a-0")
    go_on(world)
    before = uids(world)
    fail(world, "j1-b-0")
    go_on(world)
    after = uids(world)
    assert {name for name in before if before[name] != after[name]} == {"j1-b-0"}


def test_a_job_of_which_a_part_restarted_is_scaled_down_like_any_other() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod")
    world = running(make_job(tasks=[make_task(replicas=2)], min_available=1, policies=[policy]))
    fail(world, "j1-worker-0")
    go_on(world)
    world.scale(J, 0, 1)
    world.settle()
    reap_all(world)
    assert world.pod_names() == ["j1-worker-0"]


@pytest.mark.parametrize("action", ["RestartPod", "RestartPartition"])
def test_what_happens_to_a_task_restarts_no_pod_of_it(action: str) -> None:
    """Nobody knows which one is meant."""
    world = three_tasks(action, event="TaskCompleted")
    for name in ("j1-b-0", "j1-b-1"):
        world.change_pod(f"default/{name}", "Succeeded")
    world.settle()
    assert (world.phase(), world.job().status.retry_count) == ("Running", 0)


def test_a_restart_that_waits_for_a_pod_that_is_scaled_away_meanwhile_restarts_nothing() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod", timeout="30s")
    world = running(make_job(tasks=[make_task(replicas=2)], min_available=1, policies=[policy]))
    before = uids(world)
    fail(world, "j1-worker-1")
    world.scale(J, 0, 1)
    world.settle()
    reap_all(world)
    world.wait(30)
    world.settle()
    status = world.job().status
    assert (status.state.phase, status.retry_count, status.delayed) == ("Running", 0, ())
    assert uids(world) == {"j1-worker-0": before["j1-worker-0"]}


def test_the_budget_of_tries_is_that_of_the_whole_job() -> None:
    world = three_tasks("RestartTask", retries=2)
    fail(world, "j1-b-0")
    go_on(world)
    fail(world, "j1-a-0")
    reap_all(world)
    assert (world.phase(), world.job().status.retry_count) == ("Failed", 2)
    assert "j1-a-0" in world.pod_names(), "what failed last stays to be looked at"


def test_an_evicted_pod_restarts_its_task_also_when_it_vanished_while_we_were_away() -> None:
    world = three_tasks("RestartTask", event="PodEvicted")
    before = uids(world)
    world.reap("default/j1-b-0")
    world.restart()
    world.settle()
    go_on(world)
    after = uids(world)
    assert {name for name in before if before[name] != after[name]} == {"j1-b-0", "j1-b-1"}
    assert world.job().status.retry_count == 1


def test_pods_that_ran_on_through_a_restart_still_count_when_they_are_evicted() -> None:
    """They were made for an earlier try, and are none the less of the present one."""
    policies = [
        batch.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        batch.LifecyclePolicy(event="PodEvicted", action="RestartJob"),
    ]
    world = running(make_job(tasks=[make_task(replicas=2)], policies=policies))
    fail(world, "j1-worker-0")
    go_on(world)
    evict(world, "j1-worker-1")
    assert (world.phase(), world.job().status.retry_count) == ("Restarting", 2)


def test_a_restart_of_a_partition_means_nothing_to_a_task_without_any() -> None:
    world = three_tasks("RestartPartition")
    fail(world, "j1-b-0")
    assert (world.phase(), world.job().status.retry_count) == ("Running", 0)


def test_a_kill_between_the_record_of_a_restart_and_the_deletions_loses_nothing() -> None:
    world = three_tasks("RestartPartition")
    world.change_pod("default/j1-a-3", "Failed", exit_code=1)
    world.see()
    item = next(it for it in world.dirty if it.key == J)
    for stage in world.plan(item):
        for command in stage:
            world.do(command)
    world.restart()
    world.settle()
    going = {pod.metadata.name for pod in world.pods() if pod.metadata.deletion_timestamp}
    assert (world.phase(), going) == ("Restarting", {"j1-a-2", "j1-a-3"})


@pytest.mark.parametrize("action", ["RestartTask", "RestartPod", "RestartPartition"])
def test_a_command_cannot_say_which_part_it_means(action: str) -> None:
    world = three_tasks(action)
    world.submit(make_command("c1", action, world.job()))
    world.settle()
    assert (world.phase(), world.job().status.retry_count) == ("Running", 0)
    assert "CommandRefused" in world.reasons()


def test_an_abort_while_a_part_restarts_ends_the_whole_job() -> None:
    world = three_tasks("RestartPod")
    fail(world, "j1-a-0")
    world.submit(make_command("c1", "AbortJob", world.job()))
    world.settle()
    reap_all(world)
    assert (world.phase(), world.pod_names()) == ("Aborted", [])


def test_each_phase_stands_once_in_the_conditions_the_last_one_at_the_end_with_its_time() -> None:
    world = restarted()
    world.wait(5)
    go_on(world)
    found = [(it.status, it.last_transition_time) for it in world.job().status.conditions]
    later = NOON + timedelta(seconds=5)
    assert found == [("Restarting", NOON), ("Pending", later), ("Running", later)]
