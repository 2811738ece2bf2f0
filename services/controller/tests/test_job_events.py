"""Events of a job: the reason of its phase, and why each of its pods ended."""

import copy
import re
from collections.abc import Callable, Sequence

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness, KilledError, RefusedError
from services.controller.tests.support.scenarios import (
    J,
    enqueued,
    fail,
    finish,
    go_on,
    reap_all,
    restarted,
    running,
    submitted,
)
from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import NOON, make_command, make_job, make_node, make_task


@pytest.mark.parametrize(
    ("job", "ends", "why"),
    [
        (
            make_job(tasks=[make_task(replicas=2)]),
            ["Succeeded", "Failed"],
            "1 of 2 needed pods succeeded; j1-worker-1 failed",
        ),
        (
            make_job(tasks=[make_task(replicas=2)], min_available=1, min_success=2),
            ["Failed", "Succeeded"],
            "1 of 2 needed pods succeeded; j1-worker-0 failed",
        ),
        (
            make_job(tasks=[make_task("a", 2, min_available=1)], min_available=1),
            ["Failed", "Failed"],
            "0 of 1 needed pods of task a succeeded; j1-a-0 failed",
        ),
    ],
    ids=["minAvailable", "minSuccess", "a task's own"],
)
def test_a_failed_job_reports_its_progress(job: batch.Job, ends: Sequence[str], why: str) -> None:
    harness = running(job)
    finish(harness, *ends)
    assert (harness.phase(), harness.job().status.state.message) == ("Failed", why)
    event = next(it for it in harness.events.values() if it.reason == "Failed")
    assert (event.type, why in event.message) == ("Warning", True)
    last = [it for _, it in harness.sent if isinstance(it, messages.JobPhaseChanged)][-1]
    assert last.message == why


def test_events_carry_the_notifications_that_the_job_requests() -> None:
    """Every phase, and of pods only those that are preempted."""
    request = "ops-slack=Failed,Preempted"
    tasks = [make_task(replicas=2)]
    harness = running(make_job(tasks=tasks, annotations={keys.NOTIFY: request}))
    body = copy.deepcopy(harness.objects["pods", "default/j1-worker-0"])
    cause = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    body["status"]["conditions"] = [*body["status"].get("conditions", ()), cause]
    harness.put(kinds.PODS, body)
    harness.delete(kinds.PODS, "default/j1-worker-0")
    harness.settle()
    phases = [it for _, it in harness.sent if isinstance(it, messages.JobPhaseChanged)]
    assert {it.notify for it in phases} == {request}
    pods = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)]
    assert {it.reason for it in pods if it.notify} == {"Preempted"}


def test_events_of_bound_pods_have_the_gpu_type_of_their_node() -> None:
    """Usage by GPU type counts it. A pod on a node that is not known yet has none."""
    harness = enqueued(make_job(tasks=[make_task(replicas=2)]))
    harness.submit(make_node("n1", labels={"nvidia.com/gpu.product": "NVIDIA-H100"}))
    harness.change_pod("default/j1-worker-0", node="n1")
    harness.change_pod("default/j1-worker-1", node="n2")
    harness.settle()
    pods = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)]
    assert {(it.node, it.gpu_type) for it in pods} == {("", ""), ("n1", "NVIDIA-H100"), ("n2", "")}


def test_each_phase_caused_by_a_policy_names_the_pod() -> None:
    harness = running(
        make_job(
            tasks=[make_task(replicas=3)],
            policies=[batch.LifecyclePolicy(event="OOMKilled", action="AbortJob")],
        )
    )
    for name in ("j1-worker-0", "j1-worker-2"):
        harness.change_pod(f"default/{name}", "Failed", exit_code=137, end="OOMKilled")
    harness.settle()
    why = "PodFailed of j1-worker-0, OOMKilled, exit code 137 and 1 more"
    assert harness.job().status.state.message == why
    reap_all(harness)
    assert harness.job().status.state.message == f"AbortJob: {why}"


def test_events_of_one_second_are_reported_apart_in_time() -> None:
    event = next(iter(submitted(make_job()).events.values()))
    exact = event.at.replace(microsecond=123456)
    body = msgspec.json.decode(manifests.event_body(msgspec.structs.replace(event, at=exact)))
    assert body["eventTime"] == "2026-01-01T12:00:00.123456Z"
    assert body["lastTimestamp"] == "2026-01-01T12:00:00Z"
    assert all(body[it] for it in ("action", "reportingComponent", "reportingInstance"))


def test_a_long_text_of_many_bytes_fits_into_an_event() -> None:
    event = next(iter(submitted(make_job()).events.values()))
    long = msgspec.structs.replace(event, message="é" * 900)
    assert len(msgspec.json.decode(manifests.event_body(long))["message"].encode()) <= 1000


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda harness: command(harness, "RestartJob"), "RestartJob"),
        (lambda harness: command(harness, "AbortJob"), "AbortJob"),
        (lambda harness: command(harness, "TerminateJob"), "TerminateJob"),
        (lambda harness: command(harness, "CompleteJob"), "CompleteJob"),
        (lambda harness: harness.wait(60), "DeadlineExceeded"),
        (lambda harness: harness.change_pod("default/j1-worker-0", "Succeeded"), "JobCompleted"),
        (lambda harness: harness.scale(J, 0, 1), "ScaledDown"),
        (lambda harness: harness.delete(kinds.PODS, "default/j1-worker-1"), "Deleted"),
        (lambda harness: harness.reap("default/j1-worker-1"), "Deleted"),
        (lambda harness: fail(harness, "j1-worker-0", exit_code=3), "RestartTask"),
    ],
)
def test_the_history_has_the_cause_of_a_pods_deletion(
    end: Callable[[CoreHarness], None], reason: str
) -> None:
    """The reason is kept when the kubelet reports the exit later, and when the pod is deleted."""
    policy = batch.LifecyclePolicy(exit_code=3, action="RestartTask")
    harness = running(
        make_job(
            tasks=[make_task(replicas=2)],
            min_available=1,
            min_success=1,
            active_deadline_seconds=60,
            policies=[policy],
        )
    )
    end(harness)
    harness.settle()
    if [it for it in harness.pods() if it.metadata.deletion_timestamp]:
        harness.change_pod("default/j1-worker-1", "Failed", exit_code=143, end="Error")
        harness.settle()
    reap_all(harness)
    sent = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)]
    assert {it.reason for it in sent if it.pod == "j1-worker-1" and it.reason} == {reason}


def test_a_pod_first_seen_bound_has_its_creation_time() -> None:
    """The controller created it and was down until it had a node."""
    harness = submitted(make_job())
    harness.enqueue(harness.group_key())
    harness.commands_left = 1
    with pytest.raises(KilledError):
        harness.settle()
    (pod,) = harness.pods()
    harness.wait(60)
    harness.change_pod(pod.metadata.key, node="n1")
    harness.restart()
    harness.settle()
    sent = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)]
    assert [(it.after, it.created_at) for it in sent] == [("Bound", NOON)]


def command(harness: CoreHarness, action: str) -> None:
    harness.submit(make_command("c1", action, harness.job()))


def test_a_failed_pod_has_the_exit_code_of_its_failed_container() -> None:
    """Also of a pod that never reached its main container."""
    harness = running(make_job())
    initial = {"name": "init", "state": {"terminated": {"exitCode": 5, "reason": "Error"}}}
    done = {"name": "first", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    harness.change_pod("default/j1-worker-0", "Failed", initContainerStatuses=[done, initial])
    harness.settle()
    last = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)][-1]
    assert (last.exit_code, last.reason) == (5, "Error")


def test_a_requested_phase_keeps_its_reason_until_its_end() -> None:
    harness = running(make_job())
    command(harness, "AbortJob")
    harness.settle()
    assert harness.job().status.state.message.startswith("command c1, ")
    reap_all(harness)
    state = harness.job().status.state
    assert (state.reason, state.message) == ("Stopped", "AbortJob was requested")


def test_a_job_without_pods_is_reported_at_its_start_and_after_scaling() -> None:
    """It runs on without any, as the specification has it, and would look as if it were stuck."""
    harness = submitted(make_job(tasks=[make_task(replicas=0)]))
    assert (harness.phase(), harness.reasons().count("NoPods")) == ("Running", 1)
    harness = running(make_job(tasks=[make_task(replicas=2)]))
    assert "NoPods" not in harness.reasons()
    harness.scale(J, 0, 0)
    harness.settle()
    assert (harness.phase(), harness.reasons().count("NoPods")) == ("Running", 1)


def test_every_phase_counts_retries_the_same() -> None:
    """A restart names the attempt that it ends: whether another follows is not known yet."""
    harness = restarted(retries=2)
    go_on(harness)
    fail(harness, "j1-worker-1")
    reap_all(harness)
    sent = [
        (it.reason, tried[1])
        for it in harness.events.values()
        if (tried := re.search(r", ((after )?attempt \d+): ", it.message))
    ]
    assert sent == [
        ("Restarting", "after attempt 1"),
        ("Pending", "attempt 2"),
        ("Running", "attempt 2"),
        ("Restarting", "after attempt 2"),
        ("Failed", "after attempt 2"),
    ]


class Unanswered(CoreHarness):
    """Events reach the log, without acknowledgement while ``is_cut``."""

    is_cut = False

    def do(self, command: commands.Command) -> None:
        if isinstance(command, commands.Publish) and self.is_cut:
            self.sent.append((command.job, command.message))
            self.cache.published.expect(command.message)
            raise RefusedError
        super().do(command)


def test_a_job_with_unacknowledged_events_is_published_as_deleted() -> None:
    harness = Unanswered()
    harness.submit(make_job())
    harness.is_cut = True
    while not harness.sent:
        harness.see()
        harness.step(next(iter(harness.dirty)))
    harness.delete(kinds.JOBS, J)
    harness.is_cut = False
    harness.settle()
    assert [type(it) for _, it in harness.sent] == [messages.JobPhaseChanged, messages.JobDeleted]


def test_a_pod_with_unacknowledged_events_is_published_as_deleted() -> None:
    """And its attempt counts: the next pod's is another one."""
    harness = Unanswered()
    harness.submit(make_job(tasks=[make_task(replicas=1)]))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.see()
    harness.step(ReconcileKey("job", J))
    harness.is_cut = True
    harness.step(ReconcileKey("job", J))
    harness.reap(f"{J}-worker-0")
    harness.is_cut = False
    harness.settle()
    sent = [it for _, it in harness.sent if isinstance(it, messages.TaskChanged)]
    assert [(it.after, it.attempt) for it in sent] == [("Pending", 1), ("Gone", 1), ("Pending", 2)]
    assert sent[0].pod_uid == sent[1].pod_uid != sent[2].pod_uid
