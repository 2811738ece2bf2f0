"""The operator of Ray with its gang scheduling for Volcano: it creates a PodGroup for each
RayCluster, then the pods of the head and of the workers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stromboli.testkit.parts.tools import OperatorTool
from tests.operators.support import operator_processes
from tests.operators.support.operator_processes import KubeRay
from tests.operators.support.operator_system import (
    POD_GROUPS,
    SPACE,
    OperatorSystem,
    bound,
    unscheduled,
)

pytestmark = [
    pytest.mark.operators,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
Document = dict[str, Any]
RAY_CLUSTERS = f"/apis/ray.io/v1/namespaces/{SPACE}/rayclusters"
WORKERS = 2
MEMBERS = WORKERS + 1
"""With the head."""
BIG = ("500m", "2500m")
"""CPUs of head and worker: a node has room for one worker, and the queue for all, beside a job of 2
CPUs on one of them."""
SMALL = ("1", "1")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(
    system: OperatorSystem,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[OperatorTool]:
    """The running operator."""
    tool = operator_tools["kuberay"]
    part = KubeRay(tool, tmp_path_factory.mktemp("kuberay"), system.server)
    await part.start()
    yield tool
    await part.stop()


def example(tool: OperatorTool, name: str, cpus: tuple[str, str]) -> Document:
    """The operator's own example for Volcano with a group of workers, and requests."""
    file = tool.directory / "config/samples/ray-cluster.volcano-scheduler.yaml"
    (cluster,) = operator_processes.documents(file)
    cluster["metadata"]["name"] = name
    head = cluster["spec"]["headGroupSpec"]
    (container,) = head["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": cpus[0]}}
    resources = {"requests": {"cpu": cpus[1]}}
    worker = {**container, "name": "ray-worker", "resources": resources}
    cluster["spec"]["workerGroupSpecs"] = [
        {
            "groupName": "cpu",
            "replicas": WORKERS,
            "minReplicas": 1,
            "maxReplicas": WORKERS + 1,
            "rayStartParams": {},
            "template": {"spec": {"containers": [worker]}},
        }
    ]
    found: Document = cluster
    return found


def group_of(name: str) -> str:
    """The name that the operator gives the PodGroup of a RayCluster."""
    return f"ray-{name}-pg"


async def test_a_raycluster_waits_while_its_gang_does_not_fit_and_then_starts_as_a_whole(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """There is room for two of its three pods, of which none gets a node."""
    path, group = f"{RAY_CLUSTERS}/gang-ray", group_of("gang-ray")
    async with system.occupied("before-ray", pods=1, cpu="2"):
        await system.api.create(RAY_CLUSTERS, example(operator, "gang-ray", BIG))
        waiting = await system.pods_until(group, lambda pods: len(unscheduled(pods)) == MEMBERS)
        assert bound(waiting) == []
        found = await system.get(f"{POD_GROUPS}/{group}")
        assert found["spec"]["minMember"] == MEMBERS
        assert found["spec"]["minResources"]["cpu"] == "5500m"
        assert found["status"]["phase"] == "Inqueue"
    await system.until(path, lambda it: it.get("status", {}).get("state") == "ready")
    await system.delete(path)
    await system.pods_until(group, lambda pods: not pods)
    await system.group_until(group, lambda it: not it)


async def test_a_suspended_raycluster_gives_its_room_back_and_resumes_as_a_gang(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator deletes the pods and keeps the PodGroup, which is admitted a second time: its
    room is not kept for long."""
    path, group = f"{RAY_CLUSTERS}/paused-ray", group_of("paused-ray")
    await system.api.create(RAY_CLUSTERS, example(operator, "paused-ray", BIG))
    await system.pods_until(group, lambda pods: len(bound(pods)) == MEMBERS)
    await system.api.patch(path, {"spec": {"suspend": True}})
    await system.pods_until(group, lambda pods: not pods)
    left = await system.group_until(group, lambda it: not it["status"].get("running"))
    assert left["status"]["phase"] in ("Pending", "Inqueue")
    async with system.occupied("meanwhile-ray", pods=2, cpu="3"):
        await system.api.patch(path, {"spec": {"suspend": False}})
        waiting = await system.pods_until(group, lambda pods: len(unscheduled(pods)) == MEMBERS)
        assert bound(waiting) == []
    await system.pods_until(group, lambda pods: len(bound(pods)) == MEMBERS)
    await system.delete(path)
    await system.pods_until(group, lambda pods: not pods)


async def test_a_worker_added_to_a_running_raycluster_is_scheduled(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator raises the minimum of a PodGroup that runs."""
    path, group = f"{RAY_CLUSTERS}/grows-ray", group_of("grows-ray")
    cluster = example(operator, "grows-ray", SMALL)
    await system.api.create(RAY_CLUSTERS, cluster)
    await system.pods_until(group, lambda pods: len(bound(pods)) == MEMBERS)
    await system.group_until(group, lambda it: it["status"].get("phase") == "Running")
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = WORKERS + 1
    await system.api.patch(path, {"spec": cluster["spec"]})
    await system.pods_until(group, lambda pods: len(bound(pods)) == MEMBERS + 1)
    found = await system.group_until(group, lambda it: it["status"].get("running") == MEMBERS + 1)
    assert (found["spec"]["minMember"], found["status"]["phase"]) == (MEMBERS + 1, "Running")
    await system.delete(path)
    await system.pods_until(group, lambda pods: not pods)
