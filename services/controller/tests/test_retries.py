"""Retries: which cost one, and how long the next attempt waits by default."""

from datetime import timedelta
from typing import Any

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import evict, fail, go_on, reap_all, running
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared.api import batch, core
from stromboli.testkit.builders import make_command, make_job, make_task

POD = "default/j1-worker-0"
BACKOFFS_S = (0, 10, 20, 40, 80, 160, 300, 300)
"""Between the creation of a pod that fails immediately and its next attempt."""


def one_pod(action: str = "RestartJob", retries: int = 20, **policy: Any) -> CoreHarness:
    restart = batch.LifecyclePolicy(event="PodFailed", action=action, **policy)
    tasks = [make_task(replicas=1)]
    return running(make_job(tasks=tasks, policies=[restart], max_retry=retries))


def reject(harness: CoreHarness, reason: str) -> None:
    """The kubelet rejects the pod before it starts a container."""
    harness.change_pod(POD, "Failed", reason=reason)
    harness.settle()
    reap_all(harness)


def pod_named(harness: CoreHarness, name: str) -> core.Pod:
    return next(pod for pod in harness.pods() if pod.metadata.name == name)


def waited_s(harness: CoreHarness) -> float:
    """The remaining delay of the job, which proceeds after it."""
    at = harness.job().status.retry_at
    wait_s = 0.0 if at is None else (at - harness.now).total_seconds()
    harness.wait(int(wait_s))
    harness.settle()
    go_on(harness)
    return wait_s


@pytest.mark.parametrize("action", ["RestartJob", "RestartPod", "RestartTask"])
@pytest.mark.parametrize("reason", ["SysctlForbidden", "OutOfcpu"])
def test_a_pod_that_is_rejected_immediately_backs_off_between_its_attempts(
    action: str, reason: str
) -> None:
    harness = one_pod(action)
    waits = []
    for _ in BACKOFFS_S:
        reject(harness, reason)
        waits.append(waited_s(harness))
    assert waits == list(BACKOFFS_S)


def test_a_pod_that_ran_for_longer_than_its_backoff_is_restarted_immediately() -> None:
    harness = one_pod()
    for _ in range(5):
        harness.wait(600)
        fail(harness, "j1-worker-0")
        reap_all(harness)
        assert waited_s(harness) == 0


def test_a_policy_with_a_backoff_of_its_own_has_no_default() -> None:
    harness = one_pod(backoff="0s")
    for _ in range(5):
        reject(harness, "SysctlForbidden")
        assert waited_s(harness) == 0


def test_an_evicted_pod_does_not_wait() -> None:
    restart = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
    job = make_job(tasks=[make_task(replicas=1)], policies=[restart], max_retry=20)
    harness = running(job)
    for _ in range(5):
        evict(harness, "j1-worker-0")
        assert waited_s(harness) == 0


def test_restarts_that_people_ask_for_do_not_lengthen_the_backoff() -> None:
    harness = one_pod()
    for number in range(6):
        harness.submit(make_command(f"c{number}", "RestartJob", harness.job()))
        harness.settle()
        reap_all(harness)
        go_on(harness)
    reject(harness, "SysctlForbidden")
    assert waited_s(harness) == 0


@pytest.mark.parametrize(
    "reason",
    ["OutOfcpu", "OutOfmemory", "OutOfnvidia.com/gpu", "NodeAffinity", "UnexpectedAdmissionError"],
)
@pytest.mark.parametrize("action", ["RestartJob", "RestartPod"])
def test_a_rejection_of_the_placement_costs_no_retry(action: str, reason: str) -> None:
    harness = one_pod(action, retries=2, max_retries=1)
    for _ in range(4):
        reject(harness, reason)
        waited_s(harness)
    status = harness.job().status
    assert (status.state.phase, status.retry_count, status.asked_retries) == ("Running", 4, 4)
    assert status.policy_retries == {}


@pytest.mark.parametrize("reason", ["SysctlForbidden", "OutOfMind"])
def test_a_failure_of_the_pod_itself_costs_a_retry(reason: str) -> None:
    """Also with a reason that looks like a rejection, when a container has run."""
    harness = one_pod(retries=2)
    for phase in ("Running", "Failed"):
        if reason == "SysctlForbidden":
            reject(harness, reason)
        else:
            harness.change_pod(POD, "Failed", exit_code=1, reason=reason)
            harness.settle()
            reap_all(harness)
        if phase == "Running":
            waited_s(harness)
        assert harness.phase() == phase
    assert harness.job().status.asked_retries == 0


@pytest.mark.parametrize(
    "action", ["AbortJob", "TerminateJob", "CompleteJob", "RestartJob", "RestartTask"]
)
def test_no_policy_applies_to_a_pod_that_its_node_rejected(action: str) -> None:
    """It never ran: it is placed again, and the other pods stay."""
    policy = batch.LifecyclePolicy(event="PodFailed", action=action)
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=[policy], max_retry=1))
    other = pod_named(harness, "j1-worker-1").metadata.uid
    reject(harness, "OutOfcpu")
    go_on(harness)
    status = harness.job().status
    assert (status.state.phase, status.version) == ("Running", 0)
    assert (status.retry_count, status.asked_retries, status.policy_retries) == (1, 1, {})
    assert pod_named(harness, "j1-worker-1").metadata.uid == other


def test_a_job_without_policies_places_a_rejected_pod_again() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=[], max_retry=1))
    for _ in range(3):
        reject(harness, "NodeAffinity")
        waited_s(harness)
    assert harness.job().status.state.phase == "Running"
    assert harness.job().status.failed == 0


def test_a_policy_for_another_pod_comes_before_a_rejection() -> None:
    restart = batch.LifecyclePolicy(event="PodFailed", action="RestartJob")
    tasks = [make_task(replicas=2)]
    harness = running(make_job(tasks=tasks, policies=[restart], max_retry=5))
    harness.change_pod(POD, "Failed", reason="OutOfcpu")
    harness.change_pod("default/j1-worker-1", "Failed", exit_code=1)
    harness.settle()
    reap_all(harness)
    go_on(harness)
    status = harness.job().status
    assert (status.version, status.retry_count, status.asked_retries) == (1, 1, 0)


def test_a_rejected_index_of_an_array_spends_none_of_its_retries() -> None:
    array = batch.ArraySpec(indexes="0-1", max_retries=0)
    harness = running(make_job(tasks=[make_task(replicas=2)], array=array))
    reject(harness, "OutOfcpu")
    go_on(harness)
    status = harness.job().status
    assert status.state.phase == "Running"
    assert status.array is None or (status.array.failed, status.array.retries) == ("", {})
    assert pod_named(harness, "j1-worker-0").status.phase != "Failed"


def test_a_pod_that_has_succeeded_since_calls_off_what_waits_for_it() -> None:
    """A short attempt may start and end between two reconciles, so no reconcile sees it run."""
    delayed = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob", timeout="30s")
    harness = running(make_job(tasks=[make_task(replicas=2)], policies=[delayed], max_retry=9))
    evict(harness, "j1-worker-0")
    assert harness.job().status.delayed
    harness.change_pod("default/j1-worker-0", "Succeeded")
    harness.settle()
    assert harness.job().status.delayed == ()
    harness.wait(30)
    harness.settle()
    assert (harness.phase(), harness.job().status.retry_count) == ("Running", 0)


def test_a_job_whose_backoff_is_over_before_its_last_pod_waits_for_that_pod() -> None:
    """It is not reconciled twice a second until a pod with a long grace period is gone."""
    harness = one_pod(backoff="10s")
    fail(harness, "j1-worker-0")
    key = ReconcileKey("job", "default/j1")
    assert harness.due(key) == harness.now + timedelta(seconds=10)
    harness.wait(11)
    harness.settle()
    assert (harness.phase(), harness.due(key)) == ("Restarting", None)
    reap_all(harness)
    assert harness.phase() == "Pending"
