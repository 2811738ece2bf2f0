"""Kubeflow's mpi-operator with its gang scheduling for Volcano: it creates a PodGroup for each
MPIJob, then the workers, and the launcher by a Job of Kubernetes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit.parts.tools import OperatorTool
from tests.operators.support import operator_processes, operator_system
from tests.operators.support.operator_processes import MpiOperator
from tests.operators.support.operator_system import (
    POD_GROUPS,
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
MPI_JOBS = f"/apis/kubeflow.org/v2beta1/namespaces/{SPACE}/mpijobs"
WORKERS = 2
MEMBERS = WORKERS + 1
"""With the launcher."""
BIG = {"Launcher": "500m", "Worker": "2500m"}
"""A node has room for one worker, and the queue for all, beside a job of 2 CPUs on one of them."""
SMALL = {"Launcher": "1", "Worker": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(
    system: OperatorSystem,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[OperatorTool]:
    """The running operator."""
    tool = operator_tools["mpi-operator"]
    part = MpiOperator(tool, tmp_path_factory.mktemp("mpi-operator"), system.server)
    await part.start()
    yield tool
    await part.stop()


def example(
    tool: OperatorTool, name: str, cpus: dict[str, str], *, run_s: str | None, **spec: Any
) -> Document:
    """The operator's own example with requests of each role, a duration of its launcher for
    simulated nodes, and further fields of its spec."""
    (job,) = operator_processes.documents(tool.directory / "examples/v2beta1/pi/pi.yaml")
    job["metadata"] = {"name": name}
    job["spec"] |= spec
    for role, replicas in job["spec"]["mpiReplicaSpecs"].items():
        template = replicas["template"]
        if run_s is not None and role == "Launcher":
            template["metadata"] = {"annotations": {keys.RUN_SECONDS: run_s}}
        (container,) = template["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": cpus[role]}}
    found: Document = job
    return found


def roles(pods: list[Document]) -> list[str]:
    """The roles of pods in their MPIJob."""
    return sorted(pod["metadata"]["labels"]["training.kubeflow.org/job-role"] for pod in pods)


async def test_an_mpijob_waits_while_its_gang_does_not_fit_and_then_starts_as_a_whole(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """There is room for two of its three pods, of which none gets a node. When the launcher has
    ended, the operator deletes the workers and the PodGroup."""
    async with system.occupied("before-mpi", pods=1, cpu="2"):
        await system.api.create(MPI_JOBS, example(operator, "gang-mpi", BIG, run_s="1"))
        waiting = await system.pods_until(
            "gang-mpi", lambda pods: len(unscheduled(pods)) == MEMBERS
        )
        assert bound(waiting) == []
        assert roles(waiting) == ["launcher", "worker", "worker"]
        assert all("cpu" in message for message in unscheduled(waiting))
        group = await system.get(f"{POD_GROUPS}/gang-mpi")
        assert group["spec"]["minMember"] == MEMBERS
        assert group["spec"]["minResources"]["cpu"] == "5500m"
        assert group["status"]["phase"] == "Inqueue"
    await system.until(f"{MPI_JOBS}/gang-mpi", lambda it: condition(it, "Succeeded"))
    left = await system.pods_until("gang-mpi", lambda pods: len(pods) == 1)
    assert roles(left) == ["launcher"]
    await system.group_until("gang-mpi", lambda it: not it)
    await system.delete(f"{MPI_JOBS}/gang-mpi")


async def test_pods_of_an_mpijob_whose_queue_has_no_room_have_the_reason(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """Unlike other operators, this one creates the pods before the PodGroup is in its queue."""
    async with system.occupied("before-queued", pods=1, cpu="3"):
        await system.api.create(MPI_JOBS, example(operator, "queued-mpi", BIG, run_s="1"))
        waiting = await system.pods_until(
            "queued-mpi", lambda pods: len(unscheduled(pods)) == MEMBERS
        )
        assert bound(waiting) == []
        group = await system.get(f"{POD_GROUPS}/queued-mpi")
        assert group["status"]["phase"] == "Pending"
        assert condition(group, "Unschedulable")
    path = f"{MPI_JOBS}/queued-mpi"
    await system.until(path, lambda it: condition(it, "Succeeded"))
    await system.delete(path)


async def test_a_suspended_mpijob_gives_its_room_back_and_resumes_as_a_gang(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator deletes the PodGroup, and creates a new one when the MPIJob is resumed."""
    path = f"{MPI_JOBS}/paused-mpi"
    job = example(operator, "paused-mpi", BIG, run_s=None)
    await system.api.create(MPI_JOBS, job)
    await system.pods_until("paused-mpi", lambda pods: len(bound(pods)) == MEMBERS)
    await system.api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    await system.pods_until("paused-mpi", lambda pods: not pods)
    await system.group_until("paused-mpi", lambda it: not it)
    async with system.occupied("meanwhile-mpi", pods=1, cpu="2"):
        await system.api.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
        waiting = await system.pods_until(
            "paused-mpi", lambda pods: len(unscheduled(pods)) == MEMBERS
        )
        assert bound(waiting) == []
    await system.pods_until("paused-mpi", lambda pods: len(bound(pods)) == MEMBERS)
    await system.delete(path)
    await system.pods_until("paused-mpi", lambda pods: not pods)


async def test_a_worker_added_to_a_running_mpijob_is_scheduled(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator raises the minimum of a PodGroup that runs."""
    path = f"{MPI_JOBS}/grows-mpi"
    await system.api.create(MPI_JOBS, example(operator, "grows-mpi", SMALL, run_s=None))
    await system.pods_until("grows-mpi", lambda pods: len(bound(pods)) == MEMBERS)
    await system.group_until("grows-mpi", lambda it: it["status"].get("phase") == "Running")
    more = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": WORKERS + 1}}}}
    await system.api.patch(path, more)
    await system.pods_until("grows-mpi", lambda pods: len(bound(pods)) == MEMBERS + 1)
    group = await system.group_until(
        "grows-mpi", lambda it: it["status"].get("running") == MEMBERS + 1
    )
    assert (group["spec"]["minMember"], group["status"]["phase"]) == (MEMBERS + 1, "Running")
    await system.delete(path)
    await system.pods_until("grows-mpi", lambda pods: not pods)


async def test_workers_start_before_a_launcher_that_waits_for_them(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The launcher is not created before the workers are ready, so the minimum must be without
    it."""
    path = f"{MPI_JOBS}/late-launcher"
    job = example(
        operator, "late-launcher", SMALL, run_s="1", launcherCreationPolicy="WaitForWorkersReady"
    )
    job["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": WORKERS}
    await system.api.create(MPI_JOBS, job)
    await system.until(path, lambda it: condition(it, "Succeeded"))
    group = await system.group_until("late-launcher", lambda it: not it)
    assert group == {}
    await system.delete(path)


async def test_the_podgroup_of_an_mpijob_stays_in_the_queue_of_its_namespace(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """Each time that the operator reconciles the MPIJob, it writes the PodGroup without a queue."""
    queue = {"apiVersion": kinds.QUEUES.api_version, "kind": kinds.QUEUES.kind}
    await system.api.create(kinds.QUEUES.path(), {**queue, "metadata": {"name": "simulation"}})
    await system.api.create_namespace("mpi-team")
    annotated = {"metadata": {"annotations": {keys.NAMESPACE_QUEUE: "simulation"}}}
    await system.api.patch("/api/v1/namespaces/mpi-team", annotated)
    groups = kinds.POD_GROUPS.path("mpi-team")
    group = {"apiVersion": kinds.POD_GROUPS.api_version, "kind": kinds.POD_GROUPS.kind}
    await operator_system.until(
        lambda: system.api.create(f"{groups}?dryRun=All", {**group, "metadata": {"name": "known"}}),
        lambda it: it.get("spec", {}).get("queue") == "simulation",
    )
    jobs = "/apis/kubeflow.org/v2beta1/namespaces/mpi-team/mpijobs"
    await system.api.create(jobs, example(operator, "solve", SMALL, run_s=None))
    running = await system.until(
        f"{groups}/solve", lambda it: it.get("status", {}).get("phase") == "Running"
    )
    assert running["spec"]["queue"] == "simulation"
    more = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": WORKERS + 1}}}}
    await system.api.patch(f"{jobs}/solve", more)
    grown = await system.until(f"{groups}/solve", lambda it: it["spec"]["minMember"] == MEMBERS + 1)
    assert grown["spec"]["queue"] == "simulation"
    await system.delete(f"{jobs}/solve")
    await system.until(f"{groups}/solve", lambda it: not it)
