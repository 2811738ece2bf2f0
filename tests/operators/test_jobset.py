"""JobSet, which knows no gangs: a PodGroup of the user, which the pods of all its Jobs name."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit.parts.tools import OperatorTool
from tests.operators.support.operator_processes import JobSet
from tests.operators.support.operator_system import (
    POD_GROUPS,
    PODS,
    SPACE,
    OperatorSystem,
    bound,
    condition,
    unscheduled,
)

pytestmark = [
    pytest.mark.operators,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
Document = dict[str, Any]
JOB_SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets"
CPUS = {"leader": "500m", "workers": "2500m"}
"""A node has room for one worker, and the queue for all, beside a job of 2 CPUs on one of them."""
SIZES = {"leader": 1, "workers": 2}
MEMBERS = sum(SIZES.values())
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def _operator(
    system: OperatorSystem,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[None]:
    """The running controller."""
    part = JobSet(operator_tools["jobset"], tmp_path_factory.mktemp("jobset"), system.server)
    await part.start()
    yield
    await part.stop()


async def create(system: OperatorSystem, name: str, *, run_s: str | None, **spec: Any) -> None:
    """Create a PodGroup of all pods and a JobSet of a leader and workers, as docs/operators.md
    says; ``run_s``: the duration for simulated nodes."""
    group = {"apiVersion": kinds.POD_GROUPS.api_version, "kind": kinds.POD_GROUPS.kind}
    least = {"minMember": MEMBERS, "minResources": {"cpu": "5500m"}}
    await system.api.create(POD_GROUPS, {**group, "metadata": {"name": name}, "spec": least})
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    jobs = [_replicated_job(name, role, run_s) for role in SIZES]
    document = {"metadata": {"name": name}, "spec": {"replicatedJobs": jobs, **spec}}
    await system.api.create(JOB_SETS, {**job_set, **document})


def _replicated_job(group: str, role: str, run_s: str | None) -> Document:
    annotations = {keys.GROUP_NAME: group}
    if run_s is not None:
        annotations[keys.RUN_SECONDS] = run_s
    requests = {"requests": {"cpu": CPUS[role]}}
    pod = {
        "schedulerName": "volcano",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "resources": requests}],
    }
    job = {
        "parallelism": SIZES[role],
        "completions": SIZES[role],
        "backoffLimit": 0,
        "template": {"metadata": {"annotations": annotations}, "spec": pod},
    }
    return {"name": role, "template": {"spec": job}}


async def remove(system: OperatorSystem, name: str) -> None:
    await system.delete(f"{JOB_SETS}/{name}")
    await system.pods_until(name, lambda pods: not pods)
    await system.delete(f"{POD_GROUPS}/{name}")


async def test_the_jobs_of_a_jobset_wait_and_start_as_one_gang(system: OperatorSystem) -> None:
    """There is room for two of its three pods, of which none gets a node."""
    async with system.occupied("before-set", pods=1, cpu="2"):
        await create(system, "gang-set", run_s="1")
        waiting = await system.pods_until(
            "gang-set", lambda pods: len(unscheduled(pods)) == MEMBERS
        )
        assert bound(waiting) == []
        assert all("cpu" in message for message in unscheduled(waiting))
    await system.until(f"{JOB_SETS}/gang-set", lambda it: condition(it, "Completed"))
    await system.group_until("gang-set", lambda it: it["status"].get("succeeded") == MEMBERS)
    await remove(system, "gang-set")


async def test_a_jobset_that_restarts_after_a_failure_is_a_gang_again(
    system: OperatorSystem,
) -> None:
    """One of its pods fails; JobSet deletes all Jobs and creates them again."""
    path = f"{JOB_SETS}/failing-set"
    await create(system, "failing-set", run_s=None, failurePolicy={"maxRestarts": 1})
    pods = await system.pods_until("failing-set", lambda pods: len(bound(pods)) == MEMBERS)
    failed = pods[0]["metadata"]["name"]
    await system.api.patch(f"{PODS}/{failed}/status", {"status": {"phase": "Failed"}})
    again = await system.pods_until(
        "failing-set",
        lambda pods: (
            len(bound(pods)) == MEMBERS
            and all(pod["metadata"]["labels"][RESTARTS] == "1" for pod in pods)
        ),
    )
    assert {pod["metadata"]["uid"] for pod in again}.isdisjoint(
        pod["metadata"]["uid"] for pod in pods
    )
    await system.until(path, lambda it: it["status"].get("restarts") == 1)
    await remove(system, "failing-set")


async def test_a_suspended_jobset_gives_its_room_back_and_resumes_as_a_gang(
    system: OperatorSystem,
) -> None:
    """Its PodGroup stays; a minute later others may use its room."""
    path = f"{JOB_SETS}/paused-set"
    await create(system, "paused-set", run_s=None)
    await system.pods_until("paused-set", lambda pods: len(bound(pods)) == MEMBERS)
    await system.api.patch(path, {"spec": {"suspend": True}})
    await system.pods_until("paused-set", lambda pods: not pods)
    async with system.occupied("meanwhile-set", pods=1, cpu="2"):
        await system.api.patch(path, {"spec": {"suspend": False}})
        waiting = await system.pods_until(
            "paused-set", lambda pods: len(unscheduled(pods)) == MEMBERS
        )
        assert bound(waiting) == []
    await system.pods_until("paused-set", lambda pods: len(bound(pods)) == MEMBERS)
    await remove(system, "paused-set")
