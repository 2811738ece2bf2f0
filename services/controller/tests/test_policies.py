"""Policies: which one applies, when it acts, how often, and the effects of time."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import (
    J,
    enqueued,
    evict,
    fail,
    finish,
    go_on,
    reap_all,
    running,
)
from stromboli.controller.core.jobs import policies, policy_events
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import NOON, make_command, make_job, make_task

Policy = batch.LifecyclePolicy


def two_pods(*of_job: Policy, of_task: tuple[Policy, ...] = (), retries: int = 9) -> CoreHarness:
    tasks = [make_task(replicas=2, policies=of_task)]
    return running(make_job(tasks=tasks, policies=of_job, max_retry=retries))


def test_the_policies_of_a_task_come_before_those_of_its_job() -> None:
    harness = two_pods(
        Policy(event="PodFailed", action="AbortJob"),
        of_task=(Policy(event="PodFailed", action="RestartJob"),),
    )
    fail(harness, "j1-worker-0")
    assert harness.phase() == "Restarting"


def test_the_first_policy_that_matches_counts() -> None:
    harness = two_pods(
        Policy(exit_code=3, action="RestartPod"), Policy(event="*", action="TerminateJob")
    )
    fail(harness, "j1-worker-0", exit_code=3)
    assert harness.phase() == "Restarting"
    go_on(harness)
    fail(harness, "j1-worker-0", exit_code=4)
    assert harness.phase() == "Terminating"


# Causes


@pytest.mark.parametrize(
    ("cause", "end", "status"),
    [
        ("OOMKilled", "OOMKilled", {}),
        ("DeadlineExceeded", "Error", {"reason": "DeadlineExceeded"}),
        ("NodeLost", "Error", {"reason": "NodeShutdown"}),
        (
            "NodeLost",
            "Error",
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                ]
            },
        ),
        (
            "Preempted",
            "Error",
            {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                    }
                ]
            },
        ),
    ],
)
def test_a_policy_may_name_the_cause_of_a_pods_end(
    cause: str, end: str, status: dict[str, Any]
) -> None:
    by_cause = [
        Policy(event=cause, action="RestartJob"),
        Policy(event="PodFailed", action="AbortJob"),
    ]
    harness = two_pods(*by_cause)
    harness.change_pod("default/j1-worker-0", "Failed", exit_code=137, end=end, **status)
    harness.settle()
    assert harness.phase() == "Restarting"
    other = two_pods(*by_cause)
    fail(other, "j1-worker-0", exit_code=137)
    assert other.phase() == "Aborting", "another cause is left to the next policy"


def test_a_pod_that_is_deleted_by_preemption_was_preempted() -> None:
    harness = two_pods(Policy(event="Preempted", action="RestartJob"))
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    harness.change_pod("default/j1-worker-0", conditions=[disrupted])
    harness.delete(kinds.PODS, "default/j1-worker-0")
    harness.settle()
    assert harness.phase() == "Restarting"


def test_a_silent_node_is_lost_for_jobs_that_name_it_and_for_no_other() -> None:
    harness = two_pods(Policy(event="*", action="AbortJob"))
    harness.change_pod("default/j1-worker-0", "Unknown")
    harness.settle()
    assert harness.phase() == "Running"
    harness = two_pods(Policy(event="NodeLost", action="RestartPod"))
    harness.change_pod("default/j1-worker-0", "Unknown")
    harness.settle()
    assert harness.phase() == "Restarting"


# How often, and how soon again


def test_a_policy_acts_so_often_at_most_then_the_next_one_does() -> None:
    harness = two_pods(
        Policy(event="OOMKilled", action="RestartPod", max_retries=2, backoff="0s"),
        Policy(event="PodFailed", action="TerminateJob"),
    )
    for _ in range(2):
        fail(harness, "j1-worker-0", 137, "OOMKilled")
        assert harness.phase() == "Restarting"
        go_on(harness)
        harness.restart()
        harness.settle()
    fail(harness, "j1-worker-0", 137, "OOMKilled")
    assert harness.phase() == "Terminating"


def test_a_backoff_doubles_and_survives_a_restart_of_the_controller() -> None:
    backing_off = Policy(event="PodFailed", action="RestartJob", backoff="10s", max_backoff="25s")
    harness = two_pods(backing_off)
    for pause in (10, 20, 25, 25):
        fail(harness, "j1-worker-0")
        reap_all(harness)
        harness.restart()
        harness.settle()
        assert harness.job().status.retry_at == harness.now + timedelta(seconds=pause)
        harness.wait(pause - 1)
        harness.settle()
        assert harness.phase() == "Restarting"
        harness.wait(1)
        harness.settle()
        assert (harness.phase(), harness.job().status.retry_at) == ("Pending", None)
        go_on(harness)


@pytest.mark.parametrize("action", ["RestartPod", "RestartTask"])
def test_a_part_that_restarts_waits_for_its_backoff_while_all_else_runs_on(action: str) -> None:
    slow = Policy(exit_code=3, action=action, backoff="10s")
    tasks = [make_task("a"), make_task("b", policies=[slow])]
    harness = running(make_job(tasks=tasks, max_retry=9))
    fail(harness, "j1-b-0", exit_code=3)
    reap_all(harness)
    assert harness.job().status.retry_at == harness.now + timedelta(seconds=10)
    harness.wait(9)
    harness.settle()
    assert (harness.phase(), harness.pod_names()) == ("Restarting", ["j1-a-0"])
    harness.wait(1)
    harness.settle()
    go_on(harness)
    assert (harness.phase(), harness.pod_names()) == ("Running", ["j1-a-0", "j1-b-0"])


def test_parts_that_restart_together_wait_for_the_longest_backoff_of_theirs() -> None:
    harness = two_pods(
        Policy(exit_code=3, action="RestartPod", backoff="60s"),
        Policy(exit_code=4, action="RestartPod", backoff="10s"),
    )
    fail(harness, "j1-worker-0", exit_code=3)
    fail(harness, "j1-worker-1", exit_code=4)
    assert harness.job().status.retry_at == NOON + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("tried", "seconds"), [(0, 1), (3, 8), (50, 300)], ids=["first", "fourth", "far"]
)
def test_a_backoff_never_grows_beyond_its_bound(tried: int, seconds: int) -> None:
    backing_off = Policy(event="PodFailed", action="RestartJob", backoff="1s")
    assert policies.backoff(backing_off, tried) == timedelta(seconds=seconds)


# Policies that wait


def late(event: str, action: str = "RestartJob") -> Policy:
    return Policy(event=event, action=action, timeout="30s")


def test_a_policy_with_a_timeout_acts_when_its_time_has_come_also_by_the_next_controller() -> None:
    harness = two_pods(late("PodFailed"))
    fail(harness, "j1-worker-0")
    assert harness.phase() == "Running"
    harness.wait(29)
    harness.restart()
    harness.settle()
    assert harness.phase() == "Running"
    harness.wait(1)
    harness.settle()
    assert (harness.phase(), harness.job().status.delayed) == ("Restarting", ())
    assert harness.job().status.state.message == "PodFailed of j1-worker-0, exit code 1"


def test_a_second_failure_of_the_same_pod_does_not_start_the_time_again() -> None:
    harness = two_pods(late("PodEvicted"))
    evict(harness, "j1-worker-0")
    (noted,) = harness.job().status.delayed
    assert noted.at == NOON + timedelta(seconds=30)
    harness.wait(20)
    evict(harness, "j1-worker-0")
    assert harness.job().status.delayed == (noted,)


def test_a_pod_that_runs_again_calls_off_what_waits_for_it() -> None:
    harness = two_pods(late("PodEvicted"))
    evict(harness, "j1-worker-0")
    go_on(harness)
    assert harness.job().status.delayed == ()
    harness.wait(60)
    harness.settle()
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)


def test_a_job_that_has_ended_waits_for_no_policy() -> None:
    tasks = [make_task(replicas=2)]
    harness = running(make_job(tasks=tasks, policies=[late("PodFailed")], min_success=1))
    fail(harness, "j1-worker-0")
    assert harness.job().status.delayed
    harness.change_pod("default/j1-worker-1", "Succeeded")
    harness.settle()
    assert (harness.phase(), harness.job().status.delayed) == ("Completed", ())


def test_a_job_is_not_failed_while_a_policy_waits_to_restart_it() -> None:
    harness = two_pods(late("PodFailed"))
    finish(harness, "Failed", "Failed")
    assert harness.phase() == "Running"
    harness.wait(30)
    harness.settle()
    assert harness.phase() == "Restarting"


def aborts_after(harness: CoreHarness, seconds: int) -> None:
    """Not a second sooner."""
    harness.wait(seconds - 1)
    harness.settle()
    assert harness.phase() == "Pending"
    harness.wait(1)
    harness.settle()
    assert harness.phase() == "Aborting"


def test_a_pod_that_stays_pending_too_long_is_noticed_and_one_that_runs_is_not() -> None:
    job = make_job(tasks=[make_task(replicas=2)], policies=[late("PodPending", "AbortJob")])
    harness = running(job)
    harness.wait(100)
    harness.restart()
    harness.settle()
    assert harness.phase() == "Running"
    evict(harness, "j1-worker-0")
    harness.enqueue(harness.group_key())
    harness.settle()
    aborts_after(harness, 30)


@pytest.mark.parametrize("action", ["RestartPod", "RestartTask", "RestartPartition"])
def test_a_pod_that_stays_pending_is_noticed_though_nothing_else_happens(action: str) -> None:
    parts = batch.PartitionPolicy(total_partitions=1, partition_size=2)
    task = make_task(replicas=2, partition_policy=parts, policies=[late("PodPending", action)])
    harness = enqueued(make_job(tasks=[task]))
    harness.wait(30)
    harness.settle()
    assert harness.phase() == "Restarting"


@pytest.mark.parametrize("event", ["PodPending", "*"])
def test_a_wait_for_a_pending_pod_ends_exactly_then(event: str) -> None:
    harness = enqueued(make_job(policies=[late(event, "AbortJob")]))
    aborts_after(harness, 30)


def test_a_star_means_a_pending_pod_only_with_a_timeout() -> None:
    harness = CoreHarness()
    harness.submit(make_job(policies=[Policy(event="*", action="AbortJob")]))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    harness.wait(1000)
    harness.settle()
    assert harness.phase() == "Pending"


def eviction(harness: CoreHarness) -> None:
    evict(harness, "j1-worker-0")


def restarts_of_a_container(harness: CoreHarness) -> None:
    status = {"name": "c", "restartCount": 3, "ready": True}
    harness.change_pod("default/j1-worker-0", containerStatuses=[status])
    harness.settle()


def a_gang_that_fell_apart(harness: CoreHarness) -> None:
    body = harness.objects["podgroups", harness.group_key()]
    harness.put(kinds.POD_GROUPS, {**body, "status": {"phase": "Unknown"}})
    harness.settle()


@pytest.mark.parametrize("happens", [eviction, restarts_of_a_container, a_gang_that_fell_apart])
def test_a_star_means_all_else_that_happens(happens: Callable[[CoreHarness], None]) -> None:
    harness = two_pods(Policy(event="*", action="AbortJob"))
    happens(harness)
    assert harness.phase() in ("Aborting", "Aborted")


def test_a_task_without_pods_is_never_completed() -> None:
    ends = Policy(event="TaskCompleted", action="CompleteJob")
    tasks = [make_task("work"), make_task("spare", replicas=0, policies=[ends])]
    assert running(make_job(tasks=tasks)).phase() == "Running"


def test_a_restart_of_a_part_calls_off_what_waits_for_it_and_nothing_else() -> None:
    restart = Policy(exit_code=3, action="RestartPod")
    harness = two_pods(late("PodEvicted", "AbortJob"), restart)
    evict(harness, "j1-worker-1")
    (noted,) = harness.job().status.delayed
    fail(harness, "j1-worker-0", exit_code=3)
    assert (harness.phase(), harness.job().status.delayed) == ("Restarting", (noted,))
    harness.wait(30)
    harness.settle()
    assert harness.phase() == "Aborting", "the other pod never ran again"
    own = two_pods(late("PodEvicted"), restart)
    evict(own, "j1-worker-1")
    fail(own, "j1-worker-1", exit_code=3)
    assert (own.phase(), own.job().status.delayed) == ("Restarting", ())


def test_an_action_on_the_whole_job_calls_off_all_that_waits() -> None:
    harness = two_pods(late("PodEvicted", "AbortJob"), Policy(exit_code=3, action="RestartJob"))
    evict(harness, "j1-worker-0")
    fail(harness, "j1-worker-1", exit_code=3)
    assert (harness.phase(), harness.job().status.delayed) == ("Restarting", ())


def test_a_restart_of_a_task_leaves_what_waits_for_another_task() -> None:
    slow = [late("PodEvicted", "AbortJob")]
    restart = [Policy(exit_code=3, action="RestartTask")]
    tasks = [make_task("a", policies=slow), make_task("b", policies=restart)]
    harness = running(make_job(tasks=tasks))
    evict(harness, "j1-a-0")
    fail(harness, "j1-b-0", exit_code=3)
    assert [it.task for it in harness.job().status.delayed] == ["a"]


def test_what_people_ask_for_calls_off_all_that_waits() -> None:
    """Otherwise an old event would end a job that is resumed weeks later."""
    harness = two_pods(late("PodFailed", "TerminateJob"))
    fail(harness, "j1-worker-0")
    assert harness.job().status.delayed
    for action in ("AbortJob", "ResumeJob"):
        harness.submit(make_command(action.lower(), action, harness.job()))
        harness.settle()
        assert harness.job().status.delayed == ()
        harness.wait(60)
        harness.settle()
        reap_all(harness)
    assert harness.phase() == "Pending"


# The job's own time


def limited(seconds: int = 60, *of_job: Policy) -> CoreHarness:
    tasks = [make_task(replicas=2)]
    return running(make_job(tasks=tasks, policies=of_job, active_deadline_seconds=seconds))


def test_a_job_whose_time_is_up_has_failed_for_that_reason_and_its_pods_go() -> None:
    harness = limited()
    assert policy_events.deadline(harness.job()) == NOON + timedelta(seconds=60)
    harness.wait(59)
    harness.restart()
    harness.settle()
    assert harness.phase() == "Running"
    harness.wait(1)
    harness.settle()
    assert harness.phase() == "Failed"
    assert harness.job().status.state.reason == "DeadlineExceeded"
    assert all(pod.metadata.deletion_timestamp for pod in harness.pods())


def test_the_time_continues_over_restarts_but_not_over_a_suspension() -> None:
    harness = limited(60, Policy(event="PodFailed", action="RestartJob"))
    harness.wait(40)
    fail(harness, "j1-worker-0")
    go_on(harness)
    assert policy_events.deadline(harness.job()) == NOON + timedelta(seconds=60)
    for name, action in (("c1", "AbortJob"), ("c2", "ResumeJob")):
        harness.submit(make_command(name, action, harness.job()))
        harness.settle()
        reap_all(harness)
    harness.wait(1000)
    harness.settle()
    assert harness.phase() == "Pending", "it does not run, so no time passes"
    go_on(harness)
    assert policy_events.deadline(harness.job()) == harness.now + timedelta(seconds=60)


def test_a_changed_time_limit_counts_from_the_first_start() -> None:
    """Longer, shorter, or where there was none; the estimate for the scheduler follows."""
    harness = limited(60)
    harness.wait(50)
    change_limit(harness, 120, "120s")
    group = harness.group()
    assert group.metadata.annotation(keys.RUNNING_ESTIMATE) == "120s"
    harness.wait(69)
    harness.settle()
    assert harness.phase() == "Running"
    change_limit(harness, 100)
    assert harness.phase() == "Failed"


def test_a_time_limit_that_a_running_job_gets_counts_from_its_first_start() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)]))
    harness.wait(50)
    change_limit(harness, 60)
    assert harness.phase() == "Running"
    harness.wait(10)
    harness.settle()
    assert harness.phase() == "Failed"


def change_limit(harness: CoreHarness, seconds: int, estimate: str = "") -> None:
    """Write the limit of a job that exists, as a user does."""
    body = copy.deepcopy(harness.objects["jobs", "default/j1"])
    body["spec"]["activeDeadlineSeconds"] = seconds
    if estimate:
        body["spec"]["runningEstimate"] = estimate
    harness.put(kinds.JOBS, body)
    harness.settle()


def test_a_policy_may_say_what_happens_when_the_time_is_up() -> None:
    again = Policy(event="DeadlineExceeded", action="RestartJob", max_retries=1)
    harness = limited(60, again)
    harness.wait(60)
    harness.settle()
    assert harness.phase() == "Restarting"
    go_on(harness)
    assert policy_events.deadline(harness.job()) == harness.now + timedelta(seconds=60)
    harness.wait(60)
    harness.settle()
    assert (harness.phase(), harness.job().status.state.reason) == ("Failed", "DeadlineExceeded")


def test_a_part_that_restarts_when_the_time_is_up_gives_the_job_no_more_of_it() -> None:
    harness = limited(60, Policy(event="PodFailed", action="RestartPod"))
    harness.wait(60)
    fail(harness, "j1-worker-0")
    assert (harness.phase(), harness.job().status.state.reason) == ("Failed", "DeadlineExceeded")


def test_a_star_leaves_the_end_of_time_alone() -> None:
    harness = limited(60, Policy(event="*", action="RestartJob"))
    harness.wait(60)
    harness.settle()
    assert harness.phase() == "Failed"


def test_a_job_that_ended_in_time_stays_as_it_ended() -> None:
    harness = limited()
    finish(harness, "Succeeded", "Succeeded")
    harness.wait(1000)
    harness.settle()
    assert harness.phase(J) == "Completed"


def test_a_task_hands_its_time_limit_to_its_pods_kubelets() -> None:
    task = make_task(active_deadline_seconds=30)
    own = make_task("own", active_deadline_seconds=30, pod_spec={"activeDeadlineSeconds": 5})
    harness = running(make_job(tasks=[task, own]))
    assert [pod.spec.active_deadline_seconds for pod in harness.pods()] == [5, 30]
