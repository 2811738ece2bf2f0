"""Pods that are deleted before their deletion timestamp was seen."""

from collections.abc import Sequence

import pytest

from services.controller.tests.support.scenarios import J, running
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import topics
from stromboli.shared.api import batch as api
from stromboli.shared.api import kinds
from stromboli.shared.messages import batch
from stromboli.testkit.builders import make_job, make_task

RULES = [
    api.LifecyclePolicy(event="Preempted", action="RestartTask"),
    api.LifecyclePolicy(event="NodeLost", action="RestartTask"),
    api.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
]


@pytest.mark.parametrize(
    ("disruption", "cause"),
    [("PreemptionByScheduler", "Preempted"), ("DeletionByTaintManager", "NodeLost")],
)
def test_a_pod_that_vanishes_went_for_what_it_said_last(disruption: str, cause: str) -> None:
    """As when the response to the controller's deletion is lost and the pod does not exist at the
    next attempt.
    """
    harness = running(make_job(tasks=[make_task(replicas=1)], policies=RULES))
    (pod,) = harness.pods()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": disruption}
    harness.change_pod(pod.metadata.key, conditions=[condition])
    harness.settle()
    harness.reap(pod.metadata.key)
    harness.settle()
    assert gone(harness.sent) == [cause]
    assert (harness.job().status.retry_count, harness.phase() == "Aborted") == (1, False)


@pytest.mark.parametrize("reads_pods_first", [True, False], ids=["pods first", "events first"])
def test_a_pod_that_vanishes_while_its_controller_restarts_has_its_cause(
    reads_pods_first: bool,
) -> None:
    """The controller was killed between its deletion of the pod and the event about it. The next
    one reads the pods' topic and the events side by side."""
    harness = running(make_job(tasks=[make_task(replicas=1)], policies=RULES))
    (pod,) = harness.pods()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    harness.change_pod(pod.metadata.key, conditions=[condition])
    with_condition = harness.shown(topics.PODS.name)
    harness.reap(pod.metadata.key)
    if reads_pods_first:
        harness.read_first = tuple(harness.unseen[topics.PODS.name])
    harness.restart(old=None if reads_pods_first else with_condition)
    harness.settle()
    assert gone(harness.sent) == ["Preempted"]
    assert (harness.job().status.retry_count, harness.phase() == "Aborted") == (1, False)


@pytest.mark.parametrize(
    ("phase", "condition", "action"),
    [
        ("Failed", "", "AbortJob"),
        ("Failed", "PreemptionByScheduler", "RestartTask"),
        ("Succeeded", "PreemptionByScheduler", "RestartTask"),
        ("Succeeded", "", ""),
    ],
)
@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed"])
def test_a_pod_that_is_first_observed_when_it_has_ended_by_its_deletion_was_evicted(
    phase: str, condition: str, action: str, *, is_killed: bool
) -> None:
    """Its program ended at once, or no controller ran. One that succeeded may have ended before."""
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=RULES))
    key = f"{J}-worker-0"
    harness.delete(kinds.PODS, key)
    mark = {"type": "DisruptionTarget", "status": "True", "reason": condition}
    exit_code = 143 if phase == "Failed" else 0
    harness.change_pod(key, phase, exit_code=exit_code, conditions=[mark] if condition else [])
    if is_killed:  # after its status write, before it publishes the end of the pod
        harness.see()
        harness.step(ReconcileKey("job", J))
        harness.restart()
    harness.settle()
    harness.reap(key)
    harness.settle()
    status = harness.job().status
    expected = {"AbortJob": (0, True), "RestartTask": (1, False), "": (0, False)}[action]
    is_aborted = status.state.phase in ("Aborting", "Aborted")
    assert (status.retry_count, is_aborted) == expected


def test_a_pod_that_failed_before_it_was_deleted_is_not_evicted() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=RULES))
    harness.change_pod(f"{J}-worker-0", "Failed", exit_code=1)
    harness.settle()
    harness.delete(kinds.PODS, f"{J}-worker-0")
    harness.settle()
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)


def test_a_pod_that_vanishes_without_a_cause_counts_as_evicted() -> None:
    harness = running(make_job(tasks=[make_task(replicas=1)], policies=RULES))
    harness.reap(f"{J}-worker-0")
    harness.settle()
    assert gone(harness.sent) == ["AbortJob"]
    assert harness.phase() == "Aborted"


@pytest.mark.parametrize(
    ("condition", "state", "action"),
    [("", "Succeeded", ""), ("PreemptionByScheduler", "Gone", "RestartTask")],
)
@pytest.mark.parametrize("reads", ["without a restart", "pods first", "events first"])
def test_a_pod_that_succeeded_before_it_vanished_is_published_so_and_not_evicted(
    condition: str, state: str, action: str, reads: str
) -> None:
    """As when a node is drained while the controller restarts: the drain deletes finished pods,
    too. Without this rule the job would be restarted for a pod that had done its work."""
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=RULES))
    key = f"{J}-worker-0"
    mark = {"type": "DisruptionTarget", "status": "True", "reason": condition}
    harness.change_pod(key, "Succeeded", exit_code=0, conditions=[mark] if condition else [])
    old = harness.shown(topics.PODS.name)
    harness.reap(key)
    if reads == "pods first":
        harness.read_first = tuple(harness.unseen[topics.PODS.name])
        harness.restart()
    elif reads == "events first":
        harness.restart(old=old)
    harness.settle()
    ends = [it for _, it in harness.sent if isinstance(it, batch.TaskChanged) and it.pod in key]
    retries = harness.job().status.retry_count
    assert [it.after for it in ends if it.after in ("Succeeded", "Gone")] == [state]
    assert (harness.phase() == "Aborted", retries) == (False, 1 if action else 0)


@pytest.mark.parametrize("reads", ["without a restart", "pods first", "events first"])
@pytest.mark.parametrize(
    ("policy", "phase"),
    [
        (api.LifecyclePolicy(event="PodFailed", action="AbortJob"), "Aborted"),
        (api.LifecyclePolicy(exit_code=3, action="AbortJob"), "Aborted"),
        (api.LifecyclePolicy(event="OOMKilled", action="AbortJob"), "Aborted"),
        (api.LifecyclePolicy(event="PodEvicted", action="AbortJob"), "Running"),
    ],
)
def test_a_pod_that_failed_before_it_vanished_has_failed_and_is_not_evicted(
    policy: api.LifecyclePolicy, phase: str, reads: str
) -> None:
    """Else the retries of evictions, which are free of back-off, restart a job whose program
    fails."""
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=[policy]))
    key = f"{J}-worker-0"
    harness.change_pod(key, "Failed", exit_code=3, end="OOMKilled")
    old = harness.shown(topics.PODS.name)
    harness.reap(key)
    if reads == "pods first":
        harness.read_first = tuple(harness.unseen[topics.PODS.name])
        harness.restart()
    elif reads == "events first":
        harness.restart(old=old)
    harness.settle()
    ends = [it for _, it in harness.sent if isinstance(it, batch.TaskChanged) and it.pod in key]
    assert [
        (it.after, it.exit_code, it.reason) for it in ends if it.after in ("Failed", "Gone")
    ] == [("Failed", 3, "OOMKilled")]
    for pod in harness.pods():
        if pod.metadata.deletion_timestamp is not None:
            harness.reap(pod.metadata.key)
    harness.settle()
    assert harness.phase() in (phase, "Pending" if phase == "Running" else phase)


def test_a_node_that_rejected_a_pod_which_vanished_costs_no_retry() -> None:
    policies = [api.LifecyclePolicy(event="PodFailed", action="RestartJob")]
    harness = running(make_job(tasks=[make_task(replicas=1)], policies=policies))
    harness.change_pod(f"{J}-worker-0", "Failed", reason="OutOfcpu")
    harness.reap(f"{J}-worker-0")
    harness.settle()
    status = harness.job().status
    assert (status.retry_count - status.asked_retries, harness.pod_names()) == (0, ["j1-worker-0"])


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed"])
def test_a_pod_ended_by_a_restart_has_that_cause_if_its_deletion_was_missed(
    action: str, is_killed: bool
) -> None:
    """The job is no longer restarting when all pods are deleted; their cause is
    published before.
    """
    policies = [api.LifecyclePolicy(event="PodFailed", action=action)]
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=policies))
    harness.change_pod(f"{J}-worker-0", "Failed", exit_code=1)
    harness.see()
    harness.step(ReconcileKey("job", J))
    for name in harness.pod_names():
        harness.reap(f"default/{name}")
    if is_killed:
        harness.restart()
    harness.settle()
    assert (harness.phase(), gone(harness.sent)) == ("Pending", [action])


def test_a_pod_that_went_by_itself_while_others_restart_is_still_an_eviction() -> None:
    policies = [
        api.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        api.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
    ]
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=policies))
    harness.change_pod(f"{J}-worker-0", "Failed", exit_code=1)
    harness.see()
    harness.step(ReconcileKey("job", J))
    for name in harness.pod_names():
        harness.reap(f"default/{name}")
    harness.settle()
    assert (harness.phase(), gone(harness.sent)) == ("Aborted", ["AbortJob"])


def test_late_records_of_a_pod_that_was_found_gone_does_not_hide_the_one_made_in_its_place() -> (
    None
):
    """A user deleted it first, which the monitor publishes after the new pod exists."""
    policies = [
        api.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        api.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
    ]
    harness = running(make_job(tasks=[make_task(replicas=1)], policies=policies))
    (old,) = harness.pods()
    harness.change_pod(old.metadata.key, "Failed", exit_code=1)
    harness.see()
    harness.step(ReconcileKey("job", J))
    harness.delete(kinds.PODS, old.metadata.key)
    harness.reap(old.metadata.key)
    while not harness.pods():
        harness.step(ReconcileKey("job", J))
    harness.step(ReconcileKey("job", J))  # the new one is published
    for _ in range(2):
        harness.see_one(topics.PODS.name)
        harness.step(ReconcileKey("job", J))
    harness.settle()
    assert (harness.phase(), gone(harness.sent)) == ("Pending", [])


def gone(sent: Sequence[tuple[str, object]]) -> list[str]:
    messages = [it for _, it in sent if isinstance(it, batch.TaskChanged)]
    return [it.reason for it in messages if it.after == "Gone"]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen going", "vanished"])
def test_the_events_of_an_evicted_pod_say_for_whom(is_seen: bool) -> None:
    harness = running(make_job(tasks=[make_task(replicas=1)]))
    (pod,) = harness.pods()
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "reclaimed by queue research for job default/x; it ends at 2026-01-01T12:00:00",
    }
    harness.change_pod(pod.metadata.key, conditions=[condition])
    harness.settle()
    if is_seen:
        harness.delete(kinds.PODS, pod.metadata.key)
        harness.settle()
    harness.reap(pod.metadata.key)
    harness.settle()
    sent = [it for _, it in harness.sent if isinstance(it, batch.TaskChanged) and it.detail]
    assert {(it.reason, it.detail) for it in sent} == {
        ("Preempted", "reclaimed by queue research for job default/x")
    }
    events = [each for each in harness.events.values() if each.reason == "Reclaimed"]
    assert [each.message for each in events] == (
        ["1 pod reclaimed by queue research for job default/x"]
    )
