"""A job's way from submission to its end, rule by rule (spec/jobs.md 3.3 and 4)."""

from collections.abc import Sequence

import pytest

from services.controller.tests.scenes import (
    J,
    enqueued,
    finish,
    reap_all,
    restarted,
    running,
    submitted,
)
from services.controller.tests.world import World
from stromboli.controller.core import commands
from stromboli.shared import keys, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import (
    NOON,
    garbled,
    make_command,
    make_job,
    make_pod,
    make_pod_group,
    make_task,
)


def test_a_new_job_gets_its_pod_group_before_its_status_and_no_pods() -> None:
    world = submitted(make_job(tasks=[make_task(replicas=2)]))
    kinds_written = [getattr(it, "kind", kinds.JOBS) for it in world.requests()]
    assert kinds_written == [kinds.POD_GROUPS, kinds.JOBS]
    assert world.phase() == "Pending"
    assert world.pod_names() == []
    assert world.phases_told() == ["Pending"]


def test_pods_are_made_once_the_pod_group_is_enqueued() -> None:
    world = enqueued(make_job(tasks=[make_task("ps", 1), make_task("worker", 2)]))
    assert world.pod_names() == ["j1-ps-0", "j1-worker-0", "j1-worker-1"]
    assert world.job().status.pending == 3


def test_pods_are_made_while_an_enqueue_decision_is_being_written() -> None:
    world = submitted(make_job())
    world.picture.mark_enqueuing(world.group().metadata.uid)
    assert world.plan(next(it for it in world.picture.items() if it.key == J))
    world.dirty = dict.fromkeys(world.picture.items())
    world.settle()
    assert world.pod_names() == ["j1-worker-0"]
    assert world.group().status.phase == "Pending"


@pytest.mark.parametrize(("up", "phase"), [(1, "Pending"), (2, "Running"), (3, "Running")])
def test_a_job_runs_once_min_available_pods_run(up: int, phase: str) -> None:
    world = enqueued(make_job(tasks=[make_task(replicas=3)], min_available=2))
    world.run(*world.pod_names()[:up])
    world.settle()
    assert world.phase() == phase


def test_a_running_job_falls_back_when_too_many_pods_wait() -> None:
    world = running(make_job(tasks=[make_task(replicas=3)], min_available=2))
    for name in world.pod_names()[:2]:
        world.delete(kinds.PODS, f"default/{name}")
        world.reap(f"default/{name}")
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    assert world.pod_names() == ["j1-worker-0", "j1-worker-1", "j1-worker-2"]
    assert world.phase() == "Pending"


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
    world = running(make_job(tasks=tasks, min_available=min_available, min_success=min_success))
    finish(world, *ends)
    assert world.phase() == phase


def test_a_task_that_misses_its_own_minimum_fails_the_job() -> None:
    tasks = [make_task("a", 1, min_available=1), make_task("b", 2, min_available=1)]
    world = running(make_job(tasks=tasks, min_available=2))
    finish(world, "Failed", "Succeeded", "Succeeded")
    assert world.phase() == "Failed"


def test_a_finished_job_keeps_its_counts_when_its_pods_are_removed() -> None:
    world = running(make_job(tasks=[make_task(replicas=2)], min_available=1))
    finish(world, "Succeeded", "Failed")
    for name in world.pod_names():
        world.delete(kinds.PODS, f"default/{name}")
        world.reap(f"default/{name}")
    world.settle()
    status = world.job().status
    assert (status.state.phase, status.succeeded, status.failed) == ("Completed", 1, 1)
    assert status.task_status_count["worker"].phase == {"Failed": 1, "Succeeded": 1}


def test_a_finished_job_says_how_long_it_took_from_its_creation_on() -> None:
    world = running(make_job(tasks=[make_task(replicas=1)]))
    world.wait(3725)
    assert world.job().status.running_duration == ""
    finish(world, "Succeeded")
    assert (world.phase(), world.job().status.running_duration) == ("Completed", "1h2m5s")


def test_a_finished_job_leaves_no_live_pod_and_no_pod_group() -> None:
    world = running(make_job(tasks=[make_task(replicas=2)], min_success=1))
    finish(world, "Succeeded", "Running")
    assert [pod.metadata.deletion_timestamp is None for pod in world.pods()] == [True, False]
    assert ("podgroups", world.group_key()) not in world.objects
    world.reap("default/j1-worker-1")
    world.settle()
    status = world.job().status
    assert (status.running, status.terminating, status.succeeded) == (0, 0, 1)


def test_a_job_that_names_another_scheduler_is_left_alone() -> None:
    world = submitted(make_job(scheduler="default-scheduler"))
    assert list(world.requests()) == []
    assert world.told == []


def test_a_job_without_replicas_keeps_its_phase() -> None:
    world = running(make_job(tasks=[make_task(replicas=1)]))
    world.scale(J, 0, 0)
    world.settle()
    world.reap("default/j1-worker-0")
    world.settle()
    assert world.phase() == "Running"


def test_more_replicas_make_pods_and_fewer_remove_those_of_the_highest_index() -> None:
    world = running(make_job(tasks=[make_task(replicas=2)], min_available=1))
    world.scale(J, 0, 3)
    world.settle()
    assert world.pod_names() == ["j1-worker-0", "j1-worker-1", "j1-worker-2"]
    world.scale(J, 0, 1)
    world.settle()
    left = [pod.metadata.name for pod in world.pods() if pod.metadata.deletion_timestamp is None]
    assert left == ["j1-worker-0"]
    deleted = [it.name for it in world.done if isinstance(it, commands.Delete)]
    assert deleted == ["j1-worker-2", "j1-worker-1"]


def test_the_pod_group_follows_a_scaled_job() -> None:
    world = submitted(make_job(tasks=[make_task(replicas=2, cpu="1")], min_available=0))
    assert world.group().spec.min_member == 2
    world.scale(J, 0, 3)
    world.settle()
    spec = world.group().spec
    assert (spec.min_member, spec.min_task_member) == (3, {"worker": 3})
    assert spec.min_resources is not None
    assert spec.min_resources["cpu"] == "3"


def test_a_pod_that_vanished_is_made_again_under_its_name() -> None:
    world = running(make_job(tasks=[make_task(replicas=2)], min_available=1))
    before = {pod.metadata.name: pod.metadata.uid for pod in world.pods()}
    world.delete(kinds.PODS, "default/j1-worker-0")
    world.settle()
    assert len(world.pod_names()) == 2, "the name is taken until the old pod is gone"
    world.reap("default/j1-worker-0")
    world.settle()
    after = {pod.metadata.name: pod.metadata.uid for pod in world.pods()}
    assert after["j1-worker-0"] != before["j1-worker-0"]
    assert after["j1-worker-1"] == before["j1-worker-1"]


def test_a_strangers_pod_holds_its_name_and_the_job_says_so() -> None:
    world = submitted(make_job())
    stranger = make_pod("j1-worker-0")
    world.submit(stranger)
    world.enqueue(world.group_key())
    world.settle()
    assert world.reasons().count("FailedCreate") == 1
    assert world.pods()[0].metadata.controller is None
    noted = world.job().metadata.annotation(keys.HELD) or ""
    assert noted.startswith("FailedCreate: pod j1-worker-0 cannot be made: ")
    world.reap("default/j1-worker-0")
    world.settle()
    assert world.pods()[0].metadata.controller is not None
    assert world.job().metadata.annotation(keys.HELD) is None


def test_the_pods_of_a_job_made_anew_wait_for_those_of_the_old_one() -> None:
    world = running(make_job())
    old = world.pods()[0]
    world.objects.pop(("jobs", J))
    world.submit(make_job())
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    assert world.pods()[0].metadata.uid == old.metadata.uid
    world.reap(old.metadata.key)
    world.settle()
    owner = world.pods()[0].metadata.controller
    assert owner is not None
    assert owner.uid == world.job().metadata.uid


def test_a_job_that_cannot_be_read_is_frozen() -> None:
    world = enqueued(make_job())
    world.picture.apply(garbled(topics.JOBS, J))
    world.run()
    world.see()
    assert all(not world.plan(it) for it in world.dirty if it.kind == "job")


def test_a_pod_that_cannot_be_read_is_neither_made_again_nor_counted_as_gone() -> None:
    world = running(make_job())
    world.picture.apply(garbled(topics.PODS, "default/j1-worker-0"))
    world.dirty = dict.fromkeys(world.picture.items())
    before = len(world.told)
    world.settle()
    assert len(world.pod_names()) == 1
    assert world.job().status.unknown == 1
    assert len(world.told) == before
    assert world.phase() == "Running"


def test_an_unknown_plugin_is_said_once_and_makes_no_pods() -> None:
    world = submitted(make_job(plugins={"nonsense": ()}))
    assert world.phase() == "Pending"
    assert ("podgroups", world.group_key()) not in world.objects
    world.restart()
    world.settle()
    assert world.reasons() == ["Pending", "PluginError"]


def test_a_policy_that_can_never_act_is_said() -> None:
    policy = batch.LifecyclePolicy(event="PodRunning", action="RestartTask")
    late = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob", timeout="soon")
    task = make_task(policies=[late])
    world = submitted(make_job(tasks=[task], policies=[policy]))
    assert world.reasons().count("NotCarriedOut") == 2


def test_a_finished_job_is_removed_when_its_time_is_up_also_after_a_restart() -> None:
    world = running(make_job(ttl_seconds_after_finished=60))
    finish(world, "Succeeded")
    world.wait(59)
    world.settle()
    assert ("jobs", J) in world.objects
    world.restart()
    world.wait(1)
    world.settle()
    assert ("jobs", J) not in world.objects
    assert isinstance(world.told[-1][1], messages.JobDeleted)


def test_a_deleted_job_is_told_once_also_by_the_next_controller() -> None:
    world = running(make_job())
    world.delete(kinds.JOBS, J)
    world.see()
    world.restart()
    world.settle()
    world.restart()
    world.settle()
    departures = [it for _, it in world.told if isinstance(it, messages.JobDeleted)]
    assert len(departures) == 1


def test_events_tell_every_change_of_a_job_and_its_tasks_once() -> None:
    world = running(make_job(tasks=[make_task(replicas=1)]))
    world.change_pod("default/j1-worker-0", "Failed", exit_code=3)
    world.settle()
    assert world.phases_told() == ["Pending", "Running", "Failed"]
    assert world.tasks_told() == [
        ("j1-worker-0", "Pending"),
        ("j1-worker-0", "Running"),
        ("j1-worker-0", "Failed"),
    ]
    last = [it for _, it in world.told if isinstance(it, messages.TaskChanged)][-1]
    assert (last.exit_code, last.node, last.before) == (3, "n1", "Running")


def test_events_tell_the_devices_that_a_task_was_bound_with() -> None:
    """Also in its end, for whoever reads no more than that."""
    world = enqueued(make_job(tasks=[make_task(replicas=1)]))
    body = world.objects["pods", "default/j1-worker-0"]
    notes = {keys.DEVICES: '{"main":{"nvidia.com/gpu":["GPU-1"]}}'}
    merged = {**body["metadata"].get("annotations", {}), **notes}
    world.put(kinds.PODS, {**body, "metadata": {**body["metadata"], "annotations": merged}})
    world.settle()
    world.run()
    world.settle()
    world.change_pod("default/j1-worker-0", "Succeeded", exit_code=0)
    world.settle()
    told = [it for _, it in world.told if isinstance(it, messages.TaskChanged)]
    had = {"nvidia.com/gpu": ("GPU-1",)}
    assert [(it.after, it.devices) for it in told] == [
        ("Pending", {}),
        ("Running", had),
        ("Succeeded", had),
    ]


def test_an_event_is_told_after_a_kill_between_the_status_and_the_event() -> None:
    world = enqueued(make_job())
    world.run()
    world.see()
    for command in world.plan(next(it for it in world.dirty if it.key == J))[0]:
        if isinstance(command, commands.PatchJobStatus):
            world.do(command)
    world.restart()
    world.settle()
    assert world.phases_told() == ["Pending", "Running"]
    changed = [it for _, it in world.told if isinstance(it, messages.JobPhaseChanged)][-1]
    assert changed.at == NOON
    assert changed.before == "Pending"


def test_a_large_job_takes_many_small_steps() -> None:
    world = submitted(make_job(tasks=[make_task(replicas=500)]))
    world.enqueue(world.group_key())
    world.see()
    step = world.plan(next(it for it in world.dirty if it.key == J))
    assert sum(isinstance(it, commands.Create) for stage in step for it in stage) == 200
    world.settle()
    assert len(world.pod_names()) == 500


def test_a_command_is_carried_out_once_recorded_and_deleted() -> None:
    world = running(make_job())
    world.submit(make_command("c1", "AbortJob", world.job()))
    world.settle()
    world.reap("default/j1-worker-0")
    world.settle()
    assert world.phase() == "Aborted"
    assert ("commands", "default/c1") not in world.objects
    taken = [it for _, it in world.told if isinstance(it, messages.CommandTaken)]
    assert [(it.command, it.action) for it in taken] == [("c1", "AbortJob")]


def test_a_resumed_job_keeps_what_has_succeeded_and_runs_the_rest_again() -> None:
    world = running(make_job(tasks=[make_task(replicas=2)]))
    finish(world, "Succeeded", "Running")
    world.submit(make_command("c1", "AbortJob", world.job()))
    world.settle()
    world.reap("default/j1-worker-1")
    world.settle()
    world.submit(make_command("c2", "ResumeJob", world.job()))
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    status = world.job().status
    assert (status.state.phase, status.retry_count, status.version) == ("Pending", 1, 2)
    assert [pod.status.phase or "Pending" for pod in world.pods()] == ["Succeeded", "Pending"]
    assert world.pods()[1].metadata.annotation(keys.JOB_RETRY_COUNT) == "1"


def test_a_command_for_what_nobody_obeys_is_refused_after_a_while() -> None:
    """The definition lets it in, and it would lie there for ever."""
    world = running(make_job())
    world.submit(make_command("c1", "AbortJob", make_pod_group("g1")))
    world.settle()
    world.wait(31)
    world.settle()
    assert "CommandRefused" in world.reasons()
    assert ("commands", "default/c1") not in world.objects


@pytest.mark.parametrize("action", ["ResumeJob", "RestartTask", "Nonsense"])
def test_a_command_that_does_nothing_is_refused_and_removed(action: str) -> None:
    world = running(make_job())
    world.submit(make_command("c1", action, world.job()))
    world.settle()
    assert world.phase() == "Running"
    assert "CommandRefused" in world.reasons()
    assert ("commands", "default/c1") not in world.objects


def test_a_command_without_a_job_waits_a_little_and_is_removed() -> None:
    world = World()
    job = make_job()
    world.submit(make_command("c1", "AbortJob", job))
    world.settle()
    assert ("commands", "default/c1") in world.objects
    world.wait(30)
    world.settle()
    assert ("commands", "default/c1") not in world.objects


def test_a_failed_pod_restarts_the_whole_job_by_policy() -> None:
    world = restarted()
    assert world.phase() == "Restarting"
    reap_all(world)
    assert world.phase() == "Pending"
    assert world.group().status.phase == "Pending", "it queues anew"
    world.enqueue(world.group_key())
    world.settle()
    versions = {pod.metadata.annotation(keys.JOB_VERSION) for pod in world.pods()}
    assert versions == {"1"}
    assert world.job().status.retry_count == 1


def test_the_last_try_fails_and_leaves_its_finished_pods_to_be_looked_at() -> None:
    world = restarted(retries=1)
    reap_all(world)
    assert world.phase() == "Failed"
    assert world.pod_names() == ["j1-worker-0"]


@pytest.mark.parametrize(
    ("action", "end"),
    [("AbortJob", "Aborted"), ("TerminateJob", "Terminated"), ("CompleteJob", "Completed")],
)
def test_a_policy_stops_the_job_and_keeps_finished_pods(action: str, end: str) -> None:
    world = restarted(action)
    assert world.phase() == {"Aborted": "Aborting", "Terminated": "Terminating"}.get(
        end, "Completing"
    )
    reap_all(world)
    assert world.phase() == end
    assert world.pod_names() == ["j1-worker-0"]


@pytest.mark.parametrize(("code", "phase"), [(3, "Restarting"), (4, "Running")])
def test_a_policy_may_name_an_exit_code(code: int, phase: str) -> None:
    policy = batch.LifecyclePolicy(exit_code=3, action="RestartJob")
    job = make_job(tasks=[make_task(replicas=2, policies=[policy])])
    world = running(job)
    world.change_pod("default/j1-worker-0", "Failed", exit_code=code)
    world.settle()
    assert world.phase() == phase


def test_an_evicted_pod_is_noticed_also_when_it_vanished_while_we_were_away() -> None:
    policy = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    world = running(make_job(tasks=[make_task(replicas=2)], policies=[policy]))
    world.reap("default/j1-worker-0")
    world.restart()
    world.settle()
    assert world.phase() == "Restarting"


def test_scaling_down_is_no_eviction() -> None:
    policy = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    world = running(make_job(tasks=[make_task(replicas=2)], min_available=1, policies=[policy]))
    world.scale(J, 0, 1)
    world.settle()
    world.reap("default/j1-worker-1")
    world.settle()
    assert (world.phase(), world.job().status.retry_count) == ("Running", 0)


def test_a_completed_task_completes_the_job_by_policy() -> None:
    policy = batch.LifecyclePolicy(event="TaskCompleted", action="CompleteJob")
    tasks = [make_task("lead", 1, policies=[policy]), make_task("peer", 2)]
    world = running(make_job(tasks=tasks))
    world.change_pod("default/j1-lead-0", "Succeeded")
    world.settle()
    reap_all(world)
    assert (world.phase(), world.pod_names()) == ("Completed", ["j1-lead-0"])


def test_an_action_that_comes_while_a_job_restarts_is_not_lost() -> None:
    world = restarted()
    world.submit(make_command("c1", "AbortJob", world.job()))
    world.settle()
    reap_all(world)
    assert world.phase() == "Aborted"


def test_a_quiet_job_costs_no_request() -> None:
    world = running(make_job(tasks=[make_task(replicas=3)], plugins={"svc": (), "env": ()}))
    before = len(world.done)
    world.dirty = dict.fromkeys(world.picture.items())
    world.settle()
    assert len(world.done) == before


def test_a_gang_costs_few_requests_until_it_is_bound() -> None:
    """One PodGroup, one write per pod, and status writes that do not grow with the gang."""
    world = enqueued(make_job(tasks=[make_task(replicas=100)]))
    writes = list(world.requests())
    assert len(writes) <= 100 + 4
