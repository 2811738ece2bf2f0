"""A controller continues the jobs that Volcano left: no pod restarts, and no retry is spent."""

from typing import Any

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import evict, go_on
from stromboli.shared.api import kinds
from stromboli.testkit.volcano import jobs
from stromboli.testkit.volcano.jobs import ABSENT, FAILED, RUNNING, SUCCEEDED, JobLeft, TaskLeft

UID = "5d0c2f0e"
AT = "2026-01-01T11:00:00Z"
KEY = "default/j1"


def left_by_volcano(left: JobLeft) -> CoreHarness:
    """A cluster in which only Volcano has written."""
    harness = CoreHarness()
    job = jobs.job(left)
    job["metadata"]["uid"] = UID
    job |= {"status": jobs.job_status(left, AT)}
    harness.phases[UID] = [kinds.JOBS.decode(msgspec.json.encode(job)).status]
    harness.put(kinds.JOBS, job)
    if left.group:
        harness.put(kinds.POD_GROUPS, jobs.pod_group(left, UID, AT))
    for pod in jobs.pods(left, UID, "n1"):
        harness.put(kinds.PODS, pod)
    for other in jobs.other_objects(left, UID):
        harness.put(kinds.BY_NAME[other["apiVersion"], other["kind"]], other)
    return harness


def uids(harness: CoreHarness) -> dict[str, str]:
    return {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}


def status(harness: CoreHarness) -> Any:
    return harness.job(KEY).status


def a_gang(**more: Any) -> JobLeft:
    given = {"tasks": (TaskLeft(pods=(RUNNING, RUNNING)),), "phase": "Running", "group": "Running"}
    return JobLeft(name="j1", **(given | more))


def test_the_pod_group_of_a_job_that_volcano_restarted_is_kept() -> None:
    """Volcano writes no version on PodGroups. Deleting one sends a running gang to its queue."""
    harness = left_by_volcano(a_gang(version=1, retry_count=1))
    before, group = uids(harness), harness.objects["podgroups", f"default/j1-{UID}"]
    harness.settle()
    kept = harness.objects["podgroups", f"default/j1-{UID}"]
    assert kept["metadata"]["uid"] == group["metadata"]["uid"]
    assert kept["status"]["phase"] == "Running"
    assert uids(harness) == before
    assert (status(harness).state.phase, status(harness).retry_count) == ("Running", 1)


def test_a_missing_pod_of_a_job_that_volcano_restarted_is_created() -> None:
    """It needs no second admission to the queue: its PodGroup was admitted."""
    tasks = (TaskLeft(pods=(RUNNING, ABSENT)),)
    harness = left_by_volcano(a_gang(version=1, retry_count=1, tasks=tasks, min_available=1))
    harness.settle()
    assert set(uids(harness)) == {"j1-worker-0", "j1-worker-1"}


def test_the_rest_of_a_job_of_which_volcano_restarts_a_part_runs_on() -> None:
    """Only phase and retry count show such a restart: its pods were deleted before."""
    tasks = (TaskLeft(name="a", pods=(ABSENT, ABSENT)), TaskLeft(name="b", pods=(RUNNING, RUNNING)))
    harness = left_by_volcano(a_gang(phase="Restarting", retry_count=1, tasks=tasks))
    before, group = uids(harness), harness.objects["podgroups", f"default/j1-{UID}"]
    harness.settle()
    go_on(harness)
    after = uids(harness)
    assert before.items() <= after.items()
    assert set(after) == {"j1-a-0", "j1-a-1", "j1-b-0", "j1-b-1"}
    assert (status(harness).state.phase, status(harness).retry_count) == ("Running", 1)
    assert (
        harness.objects["podgroups", f"default/j1-{UID}"]["metadata"]["uid"]
        == (group["metadata"]["uid"])
    )


def test_results_of_a_job_that_volcano_resumes_are_kept() -> None:
    """A resumed job does not run again what has ended; Volcano records no reason."""
    tasks = (TaskLeft(pods=(SUCCEEDED, ABSENT)),)
    left = a_gang(phase="Restarting", version=2, pod_version=0, retry_count=1, tasks=tasks)
    harness = left_by_volcano(msgspec.structs.replace(left, group=""))
    before = uids(harness)
    harness.settle()
    go_on(harness)
    assert before.items() <= uids(harness).items()
    assert (status(harness).state.phase, status(harness).retry_count) == ("Running", 1)


def test_a_pending_job_with_a_claim_of_volcano_is_not_refused() -> None:
    """Volcano wrote the claim's random name beside the claim's spec, which no user may write."""
    tasks = (TaskLeft(pods=(ABSENT, ABSENT)),)
    harness = left_by_volcano(a_gang(phase="Pending", group="Pending", tasks=tasks, claim=True))
    harness.settle()
    harness.enqueue(f"default/j1-{UID}")
    harness.settle()
    assert set(uids(harness)) == {"j1-worker-0", "j1-worker-1"}
    claims = [key for plural, key in harness.objects if plural == "persistentvolumeclaims"]
    assert claims == ["default/j1-pvc-x0k3m9a7q2zt"]


def test_the_pod_after_one_of_volcano_is_the_second_attempt() -> None:
    """A program continues where the attempt before it ended."""
    harness = left_by_volcano(a_gang(min_available=1))
    harness.settle()
    evict(harness, "j1-worker-1")
    body = harness.objects["pods", "default/j1-worker-1"]
    assert body["metadata"]["annotations"]["stromboli.sh/attempt"] == "2"


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated", "Aborted"])
def test_a_job_that_ended_under_volcano_stays_as_it_is(phase: str) -> None:
    tasks = (TaskLeft(pods=(SUCCEEDED, FAILED)),)
    harness = left_by_volcano(
        a_gang(phase=phase, version=1, pod_version=0, tasks=tasks, group="", plugins={"svc": []})
    )
    before, shown = uids(harness), status(harness)
    harness.settle()
    assert uids(harness) == before
    assert status(harness).state == shown.state
    assert status(harness).retry_count == 0


def test_policies_react_to_no_failure_that_volcano_has_seen() -> None:
    """A pod of an earlier version failed before the restart that it caused."""
    policy = {"event": "PodFailed", "action": "RestartJob"}
    tasks = (TaskLeft(pods=(RUNNING, FAILED)),)
    left = a_gang(tasks=tasks, version=1, pod_version=0, retry_count=1, policies=(policy,))
    harness = left_by_volcano(msgspec.structs.replace(left, phase="Aborting", group=""))
    harness.settle()
    assert status(harness).retry_count == 1


def test_keys_of_volcano_stay_valid() -> None:
    """Pods that run have the key, and others must log in to them."""
    harness = left_by_volcano(a_gang(plugins={"ssh": [], "svc": []}))
    before = dict(harness.objects["secrets", "default/j1-ssh"]["data"])
    harness.settle()
    after = harness.objects["secrets", "default/j1-ssh"]["data"]
    assert after.get("id_rsa", before["id_rsa"]) == before["id_rsa"]
    assert status(harness).state.phase == "Running"


def test_a_pod_group_that_volcano_made_for_pods_follows_them_and_is_deleted_with_the_last() -> None:
    """It has Volcano's name and owner, and no annotation. Empty, it would count in its queue."""
    harness = CoreHarness()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set-1"}
    replicas = {"name": "web", "namespace": "default", "uid": "set-1"}
    owned = {"namespace": "default", "ownerReferences": [{**owner, "controller": True}]}
    harness.put(kinds.REPLICA_SETS, {"metadata": replicas})
    group = {
        "metadata": {"name": "podgroup-set-1", **owned},
        "spec": {"minMember": 1, "queue": "default"},
        "status": {"phase": "Running"},
    }
    harness.put(kinds.POD_GROUPS, group)
    marks = {"scheduling.k8s.io/group-name": "podgroup-set-1"}
    pod = {
        "metadata": {"name": "web-a", "annotations": marks, **owned},
        "spec": {"schedulerName": "volcano", "nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
    harness.put(kinds.PODS, pod)
    harness.settle()
    more = {"scheduling.volcano.sh/group-min-member": "2"}
    harness.put(kinds.REPLICA_SETS, {"metadata": {**replicas, "annotations": more}})
    harness.settle()
    assert harness.objects["podgroups", "default/podgroup-set-1"]["spec"]["minMember"] == 2
    harness.delete(kinds.PODS, "default/web-a")
    harness.reap("default/web-a")
    harness.settle()
    assert ("podgroups", "default/podgroup-set-1") not in harness.objects
