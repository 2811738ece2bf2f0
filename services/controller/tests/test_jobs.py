"""The life of a job from submission to its end, rule by rule."""

from collections.abc import Sequence

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import (
    J,
    enqueued,
    finish,
    reap_all,
    restarted,
    running,
    submitted,
)
from stromboli.controller.core import commands
from stromboli.shared import keys, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import (
    NOON,
    make_command,
    make_job,
    make_pod,
    make_pod_group,
    make_task,
    undecodable_record,
)


def test_a_new_job_gets_its_pod_group_before_its_status_and_no_pods() -> None:
    harness = submitted(make_job(tasks=[make_task(replicas=2)]))
    kinds_written = [getattr(it, "kind", kinds.JOBS) for it in harness.requests()]
    assert kinds_written == [kinds.POD_GROUPS, kinds.JOBS]
    assert harness.phase() == "Pending"
    assert harness.pod_names() == []
    assert harness.phases_seen() == ["Pending"]


def test_pods_are_created_once_the_pod_group_is_enqueued() -> None:
    harness = enqueued(make_job(tasks=[make_task("ps", 1), make_task("worker", 2)]))
    assert harness.pod_names() == ["j1-ps-0", "j1-worker-0", "j1-worker-1"]
    assert harness.job().status.pending == 3


def test_pods_are_created_while_an_enqueue_decision_is_being_written() -> None:
    harness = submitted(make_job())
    harness.cache.mark_enqueuing(harness.group().metadata.uid)
    assert harness.plan(next(it for it in harness.cache.items() if it.key == J))
    harness.dirty = dict.fromkeys(harness.cache.items())
    harness.settle()
    assert harness.pod_names() == ["j1-worker-0"]
    assert harness.group().status.phase == "Pending"


@pytest.mark.parametrize(("up", "phase"), [(1, "Pending"), (2, "Running"), (3, "Running")])
def test_a_job_runs_once_min_available_pods_run(up: int, phase: str) -> None:
    harness = enqueued(make_job(tasks=[make_task(replicas=3)], min_available=2))
    harness.run(*harness.pod_names()[:up])
    harness.settle()
    assert harness.phase() == phase


def test_a_running_job_falls_back_when_too_many_pods_wait() -> None:
    harness = running(make_job(tasks=[make_task(replicas=3)], min_available=2))
    for name in harness.pod_names()[:2]:
        harness.delete(kinds.PODS, f"default/{name}")
        harness.reap(f"default/{name}")
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert harness.pod_names() == ["j1-worker-0", "j1-worker-1", "j1-worker-2"]
    assert harness.phase() == "Pending"


@pytest.mark.parametrize(
    ("min_available", "min_success", "ends", "phase"),
    [
        (2, None, ["Succeeded", "Succeeded"], "Completed"),
        (2, None, ["Succeeded", "Failed"], "Failed"),
        (1, None, ["Succeeded", "Failed"], "Completed"),
        (2, 1, ["Succeeded", "Running"], "Completed"),
        (1, 2, ["Succeeded", "Failed"], "Failed"),
        (2, None, ["Succeeded", "Running"], "Running"),
    ],
)
def test_a_running_job_ends_by_how_many_pods_succeeded(
    min_available: int, min_success: int | None, ends: Sequence[str], phase: str
) -> None:
    tasks = [make_task(replicas=2)]
    harness = running(make_job(tasks=tasks, min_available=min_available, min_success=min_success))
    finish(harness, *ends)
    assert harness.phase() == phase


def test_a_task_that_misses_its_own_minimum_fails_the_job() -> None:
    tasks = [make_task("a", 1, min_available=1), make_task("b", 2, min_available=1)]
    harness = running(make_job(tasks=tasks, min_available=2))
    finish(harness, "Failed", "Succeeded", "Succeeded")
    assert harness.phase() == "Failed"


def test_a_finished_job_keeps_its_counts_when_its_pods_are_removed() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)], min_available=1))
    finish(harness, "Succeeded", "Failed")
    for name in harness.pod_names():
        harness.delete(kinds.PODS, f"default/{name}")
        harness.reap(f"default/{name}")
    harness.settle()
    status = harness.job().status
    assert (status.state.phase, status.succeeded, status.failed) == ("Completed", 1, 1)
    assert status.task_status_count["worker"].phase == {"Failed": 1, "Succeeded": 1}


def test_a_finished_job_has_its_duration_since_creation() -> None:
    harness = running(make_job(tasks=[make_task(replicas=1)]))
    harness.wait(3725)
    assert harness.job().status.running_duration == ""
    finish(harness, "Succeeded")
    assert (harness.phase(), harness.job().status.running_duration) == ("Completed", "1h2m5s")


def test_a_finished_job_leaves_no_live_pod_and_no_pod_group() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)], min_success=1))
    finish(harness, "Succeeded", "Running")
    assert [pod.metadata.deletion_timestamp is None for pod in harness.pods()] == [True, False]
    assert ("podgroups", harness.group_key()) not in harness.objects
    harness.reap("default/j1-worker-1")
    harness.settle()
    status = harness.job().status
    assert (status.running, status.terminating, status.succeeded) == (0, 0, 1)


def test_a_job_that_names_another_scheduler_is_not_changed() -> None:
    harness = submitted(make_job(scheduler="default-scheduler"))
    assert list(harness.requests()) == []
    assert harness.sent == []


def test_a_job_without_replicas_keeps_its_phase() -> None:
    harness = running(make_job(tasks=[make_task(replicas=1)]))
    harness.scale(J, 0, 0)
    harness.settle()
    harness.reap("default/j1-worker-0")
    harness.settle()
    assert harness.phase() == "Running"


def test_more_replicas_make_pods_and_fewer_remove_those_of_the_highest_index() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)], min_available=1))
    harness.scale(J, 0, 3)
    harness.settle()
    assert harness.pod_names() == ["j1-worker-0", "j1-worker-1", "j1-worker-2"]
    harness.scale(J, 0, 1)
    harness.settle()
    left = [pod.metadata.name for pod in harness.pods() if pod.metadata.deletion_timestamp is None]
    assert left == ["j1-worker-0"]
    deleted = [it.name for it in harness.done if isinstance(it, commands.Delete)]
    assert deleted == ["j1-worker-2", "j1-worker-1"]


def test_the_pod_group_follows_a_scaled_job() -> None:
    harness = submitted(make_job(tasks=[make_task(replicas=2, cpu="1")], min_available=0))
    assert harness.group().spec.min_member == 2
    harness.scale(J, 0, 3)
    harness.settle()
    spec = harness.group().spec
    assert (spec.min_member, spec.min_task_member) == (3, {"worker": 3})
    assert spec.min_resources is not None
    assert spec.min_resources["cpu"] == "3"


def test_a_pod_that_vanished_is_created_again_under_its_name() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)], min_available=1))
    before = {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}
    harness.delete(kinds.PODS, "default/j1-worker-0")
    harness.settle()
    assert len(harness.pod_names()) == 2, "the name is taken until the old pod is gone"
    harness.reap("default/j1-worker-0")
    harness.settle()
    after = {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}
    assert after["j1-worker-0"] != before["j1-worker-0"]
    assert after["j1-worker-1"] == before["j1-worker-1"]


def test_a_foreign_pod_with_the_name_is_kept_and_reported_on_the_job() -> None:
    harness = submitted(make_job())
    stranger = make_pod("j1-worker-0")
    harness.submit(stranger)
    harness.enqueue(harness.group_key())
    harness.settle()
    assert harness.reasons().count("FailedCreate") == 1
    assert harness.pods()[0].metadata.controller is None
    noted = harness.job().metadata.annotation(keys.HELD) or ""
    assert noted.startswith("FailedCreate: pod j1-worker-0 cannot be created: ")
    harness.reap("default/j1-worker-0")
    harness.settle()
    assert harness.pods()[0].metadata.controller is not None
    assert harness.job().metadata.annotation(keys.HELD) is None


def test_the_pods_of_a_job_created_again_wait_for_those_of_the_old_one() -> None:
    harness = running(make_job())
    old = harness.pods()[0]
    harness.objects.pop(("jobs", J))
    harness.submit(make_job())
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert harness.pods()[0].metadata.uid == old.metadata.uid
    harness.reap(old.metadata.key)
    harness.settle()
    owner = harness.pods()[0].metadata.controller
    assert owner is not None
    assert owner.uid == harness.job().metadata.uid


def test_a_job_that_cannot_be_read_is_frozen() -> None:
    harness = enqueued(make_job())
    harness.cache.apply(undecodable_record(topics.JOBS, J))
    harness.run()
    harness.see()
    assert all(not harness.plan(it) for it in harness.dirty if it.kind == "job")


def test_an_unreadable_pod_is_neither_recreated_nor_counted_as_deleted() -> None:
    harness = running(make_job())
    harness.cache.apply(undecodable_record(topics.PODS, "default/j1-worker-0"))
    harness.dirty = dict.fromkeys(harness.cache.items())
    before = len(harness.sent)
    harness.settle()
    assert len(harness.pod_names()) == 1
    assert harness.job().status.unknown == 1
    assert len(harness.sent) == before
    assert harness.phase() == "Running"


def test_an_unknown_plugin_is_reported_once_and_creates_no_pods() -> None:
    harness = submitted(make_job(plugins={"nonsense": ()}))
    assert harness.phase() == "Pending"
    assert ("podgroups", harness.group_key()) not in harness.objects
    harness.restart()
    harness.settle()
    assert harness.reasons() == ["Pending", "PluginError"]


def test_a_policy_that_can_never_act_is_reported() -> None:
    policy = batch.LifecyclePolicy(event="PodRunning", action="RestartTask")
    late = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob", timeout="soon")
    task = make_task(policies=[late])
    harness = submitted(make_job(tasks=[task], policies=[policy]))
    assert harness.reasons().count("NotCarriedOut") == 2


def test_a_finished_job_is_removed_when_its_time_is_up_also_after_a_restart() -> None:
    harness = running(make_job(ttl_seconds_after_finished=60))
    finish(harness, "Succeeded")
    harness.wait(59)
    harness.settle()
    assert ("jobs", J) in harness.objects
    harness.restart()
    harness.wait(1)
    harness.settle()
    assert ("jobs", J) not in harness.objects
    assert isinstance(harness.sent[-1][1], messages.JobDeleted)


def test_a_deleted_job_is_reported_once_also_by_the_next_controller() -> None:
    harness = running(make_job())
    harness.delete(kinds.JOBS, J)
    harness.see()
    harness.restart()
    harness.settle()
    harness.restart()
    harness.settle()
    departures = [it for _, it in harness.sent if isinstance(it, messages.JobDeleted)]
    assert len(departures) == 1


def test_events_tell_every_change_of_a_job_and_its_tasks_once() -> None:
    harness = running(make_job(tasks=[make_task(replicas=1)]))
    harness.change_pod("default/j1-worker-0", "Failed", exit_code=3)
    harness.settle()
    assert harness.phases_seen() == ["Pending", "Running", "Failed"]
    assert harness.tasks_seen() == [
        ("j1-worker-0", "Pending"),
        ("j1-worker-0", "Running"),
        ("j1-worker-0", "Failed"),
    ]
    last = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)][-1]
    assert (last.exit_code, last.node, last.before) == (3, "n1", "Running")


def test_events_tell_the_devices_that_a_task_was_bound_with() -> None:
    """Also in the final status, for clients that read only that."""
    harness = enqueued(make_job(tasks=[make_task(replicas=1)]))
    body = harness.objects["pods", "default/j1-worker-0"]
    notes = {keys.DEVICES: '{"main":{"nvidia.com/gpu":["GPU-1"]}}'}
    merged = {**body["metadata"].get("annotations", {}), **notes}
    harness.put(kinds.PODS, {**body, "metadata": {**body["metadata"], "annotations": merged}})
    harness.settle()
    harness.run()
    harness.settle()
    harness.change_pod("default/j1-worker-0", "Succeeded", exit_code=0)
    harness.settle()
    sent = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)]
    had = {"nvidia.com/gpu": ("GPU-1",)}
    assert [(it.after, it.devices) for it in sent] == [
        ("Pending", {}),
        ("Running", had),
        ("Succeeded", had),
    ]


def test_an_event_is_reported_after_a_kill_between_the_status_and_the_event() -> None:
    harness = enqueued(make_job())
    harness.run()
    harness.see()
    for command in harness.plan(next(it for it in harness.dirty if it.key == J))[0]:
        if isinstance(command, commands.PatchJobStatus):
            harness.do(command)
    harness.restart()
    harness.settle()
    assert harness.phases_seen() == ["Pending", "Running"]
    changed = [it for _, it in harness.sent if isinstance(it, messages.JobPhaseChanged)][-1]
    assert changed.at == NOON
    assert changed.before == "Pending"


def test_a_large_job_takes_many_small_steps() -> None:
    harness = submitted(make_job(tasks=[make_task(replicas=500)]))
    harness.enqueue(harness.group_key())
    harness.see()
    step = harness.plan(next(it for it in harness.dirty if it.key == J))
    assert sum(isinstance(it, commands.Create) for stage in step for it in stage) == 200
    harness.settle()
    assert len(harness.pod_names()) == 500


def test_a_command_is_executed_once_recorded_and_deleted() -> None:
    harness = running(make_job())
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    harness.reap("default/j1-worker-0")
    harness.settle()
    assert harness.phase() == "Aborted"
    assert ("commands", "default/c1") not in harness.objects
    taken = [it for _, it in harness.sent if isinstance(it, messages.CommandAccepted)]
    assert [(it.command, it.action) for it in taken] == [("c1", "AbortJob")]


def test_a_resumed_job_keeps_what_has_succeeded_and_runs_the_rest_again() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)]))
    finish(harness, "Succeeded", "Running")
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    harness.reap("default/j1-worker-1")
    harness.settle()
    harness.submit(make_command("c2", "ResumeJob", harness.job()))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    status = harness.job().status
    assert (status.state.phase, status.retry_count, status.version) == ("Pending", 1, 2)
    assert [pod.status.phase or "Pending" for pod in harness.pods()] == ["Succeeded", "Pending"]
    assert harness.pods()[1].metadata.annotation(keys.JOB_RETRY_COUNT) == "1"


def test_a_command_without_a_handler_is_refused_after_a_while() -> None:
    """The CRD accepts it, and the job would be pending indefinitely."""
    harness = running(make_job())
    harness.submit(make_command("c1", "AbortJob", make_pod_group("g1")))
    harness.settle()
    harness.wait(31)
    harness.settle()
    assert "CommandRefused" in harness.reasons()
    assert ("commands", "default/c1") not in harness.objects


@pytest.mark.parametrize("action", ["ResumeJob", "RestartTask", "Nonsense"])
def test_a_command_that_does_nothing_is_refused_and_removed(action: str) -> None:
    harness = running(make_job())
    harness.submit(make_command("c1", action, harness.job()))
    harness.settle()
    assert harness.phase() == "Running"
    assert "CommandRefused" in harness.reasons()
    assert ("commands", "default/c1") not in harness.objects


def test_a_command_without_a_job_waits_a_little_and_is_removed() -> None:
    harness = CoreHarness()
    job = make_job()
    harness.submit(make_command("c1", "AbortJob", job))
    harness.settle()
    assert ("commands", "default/c1") in harness.objects
    harness.wait(30)
    harness.settle()
    assert ("commands", "default/c1") not in harness.objects


def test_a_failed_pod_restarts_the_whole_job_by_policy() -> None:
    harness = restarted()
    assert harness.phase() == "Restarting"
    reap_all(harness)
    assert harness.phase() == "Pending"
    assert harness.group().status.phase == "Pending", "it queues anew"
    harness.enqueue(harness.group_key())
    harness.settle()
    versions = {pod.metadata.annotation(keys.JOB_VERSION) for pod in harness.pods()}
    assert versions == {"1"}
    assert harness.job().status.retry_count == 1


def test_the_last_attempt_fails_and_leaves_its_finished_pods_to_be_looked_at() -> None:
    harness = restarted(retries=1)
    reap_all(harness)
    assert harness.phase() == "Failed"
    assert harness.pod_names() == ["j1-worker-0"]


@pytest.mark.parametrize(
    ("action", "end"),
    [("AbortJob", "Aborted"), ("TerminateJob", "Terminated"), ("CompleteJob", "Completed")],
)
def test_a_policy_stops_the_job_and_keeps_finished_pods(action: str, end: str) -> None:
    harness = restarted(action)
    assert harness.phase() == {"Aborted": "Aborting", "Terminated": "Terminating"}.get(
        end, "Completing"
    )
    reap_all(harness)
    assert harness.phase() == end
    assert harness.pod_names() == ["j1-worker-0"]


@pytest.mark.parametrize(("code", "phase"), [(3, "Restarting"), (4, "Running")])
def test_a_policy_may_name_an_exit_code(code: int, phase: str) -> None:
    policy = batch.LifecyclePolicy(exit_code=3, action="RestartJob")
    job = make_job(tasks=[make_task(replicas=2, policies=[policy])])
    harness = running(job)
    harness.change_pod("default/j1-worker-0", "Failed", exit_code=code)
    harness.settle()
    assert harness.phase() == phase


def test_an_evicted_pod_is_noticed_also_when_it_vanished_while_we_were_away() -> None:
    policy = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=[policy]))
    harness.reap("default/j1-worker-0")
    harness.restart()
    harness.settle()
    assert harness.phase() == "Restarting"


def test_scaling_down_is_no_eviction() -> None:
    policy = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    harness = running(make_job(tasks=[make_task(replicas=2)], min_available=1, policies=[policy]))
    harness.scale(J, 0, 1)
    harness.settle()
    harness.reap("default/j1-worker-1")
    harness.settle()
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)


def test_a_completed_task_completes_the_job_by_policy() -> None:
    policy = batch.LifecyclePolicy(event="TaskCompleted", action="CompleteJob")
    tasks = [make_task("lead", 1, policies=[policy]), make_task("peer", 2)]
    harness = running(make_job(tasks=tasks))
    harness.change_pod("default/j1-lead-0", "Succeeded")
    harness.settle()
    reap_all(harness)
    assert (harness.phase(), harness.pod_names()) == ("Completed", ["j1-lead-0"])


def test_an_action_that_comes_while_a_job_restarts_is_not_lost() -> None:
    harness = restarted()
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    reap_all(harness)
    assert harness.phase() == "Aborted"


def test_a_quiet_job_costs_no_request() -> None:
    harness = running(make_job(tasks=[make_task(replicas=3)], plugins={"svc": (), "env": ()}))
    before = len(harness.done)
    harness.dirty = dict.fromkeys(harness.cache.items())
    harness.settle()
    assert len(harness.done) == before


def test_a_gang_costs_few_requests_until_it_is_bound() -> None:
    """One PodGroup, one write per pod, and status writes that do not grow with the gang."""
    harness = enqueued(make_job(tasks=[make_task(replicas=100)]))
    writes = list(harness.requests())
    assert len(writes) <= 100 + 4
