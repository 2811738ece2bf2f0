"""Kubeflow's training-operator with its gang scheduling for Volcano: it creates a PodGroup for each
training job, and the pods when the PodGroup is in its queue."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit.parts.tools import OperatorTool
from tests.operators.support import operator_processes, operator_system
from tests.operators.support.operator_processes import TrainingOperator
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
API = f"/apis/kubeflow.org/v1/namespaces/{SPACE}"
EXAMPLES = {
    "pytorchjobs": ("pytorch/simple.yaml", "pytorchReplicaSpecs"),
    "tfjobs": ("tensorflow/simple.yaml", "tfReplicaSpecs"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(
    system: OperatorSystem,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[OperatorTool]:
    """The running operator."""
    tool = operator_tools["training-operator"]
    state = tmp_path_factory.mktemp("training-operator")
    part = TrainingOperator(tool, state, system.server)
    await part.start()
    yield tool
    await part.stop()


def example(tool: OperatorTool, plural: str, name: str, *, run_s: str | None, cpu: str) -> Document:
    """The operator's own example of a kind, with a duration for simulated nodes and requests."""
    file, replicas = EXAMPLES[plural]
    (job,) = operator_processes.documents(Path(tool.directory) / "examples" / file)
    job["metadata"] = {"name": name}
    for spec in job["spec"][replicas].values():
        template = spec["template"]
        if run_s is not None:
            template["metadata"] = {"annotations": {keys.RUN_SECONDS: run_s}}
        (container,) = template["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": cpu}}
    found: Document = job
    return found


@pytest.mark.parametrize("plural", sorted(EXAMPLES))
async def test_a_training_job_waits_while_its_gang_does_not_fit_and_then_starts_as_a_whole(
    system: OperatorSystem, operator: OperatorTool, plural: str
) -> None:
    """One node has room for one of its two pods, which gets none either."""
    name = f"gang-{plural}"
    async with system.occupied(f"before-{plural}", pods=1, cpu="2"):
        job = example(operator, plural, name, run_s="1", cpu="3")
        await system.api.create(f"{API}/{plural}", job)
        waiting = await system.pods_until(name, lambda pods: len(unscheduled(pods)) == 2)
        assert bound(waiting) == []
        assert all("cpu" in message for message in unscheduled(waiting))
        group = await system.get(f"{POD_GROUPS}/{name}")
        assert group["spec"]["minMember"] == 2
        assert group["spec"]["minResources"]["cpu"] == "6"
        assert group["status"]["phase"] == "Inqueue"
    await system.until(f"{API}/{plural}/{name}", lambda it: condition(it, "Succeeded"))
    await system.group_until(name, lambda it: not it)


async def test_the_operator_creates_the_pods_when_the_podgroup_is_in_its_queue(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """Until then the PodGroup has the reason, because there are no pods to have it."""
    async with system.occupied("before-late", pods=1, cpu="3"):
        job = example(operator, "pytorchjobs", "late", run_s="1", cpu="3")
        await system.api.create(f"{API}/pytorchjobs", job)
        group = await system.group_until("late", lambda it: condition(it, "Unschedulable"))
        assert group["status"]["phase"] == "Pending"
        assert await system.pods("late") == []
    await system.until(f"{API}/pytorchjobs/late", lambda it: condition(it, "Succeeded"))


async def test_a_suspended_training_job_gives_its_room_back_and_resumes_as_a_gang(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator deletes the PodGroup and creates a new one, which waits for its turn again."""
    path = f"{API}/pytorchjobs/paused"
    job = example(operator, "pytorchjobs", "paused", run_s=None, cpu="3")
    await system.api.create(f"{API}/pytorchjobs", job)
    await system.pods_until("paused", lambda pods: len(bound(pods)) == 2)
    await system.api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    await system.pods_until("paused", lambda pods: not pods)
    await system.group_until("paused", lambda it: not it)
    async with system.occupied("meanwhile", pods=2, cpu="3"):
        await system.api.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
        await system.group_until("paused", lambda it: condition(it, "Unschedulable"))
        assert await system.pods("paused") == []
    await system.pods_until("paused", lambda pods: len(bound(pods)) == 2)
    await system.delete(path)
    await system.group_until("paused", lambda it: not it)
    await system.pods_until("paused", lambda pods: not pods)


async def test_a_worker_added_to_a_running_training_job_is_scheduled(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator raises the minimum of a PodGroup that runs."""
    path = f"{API}/tfjobs/grows"
    job = example(operator, "tfjobs", "grows", run_s=None, cpu="1")
    await system.api.create(f"{API}/tfjobs", job)
    await system.pods_until("grows", lambda pods: len(bound(pods)) == 2)
    await system.group_until("grows", lambda it: it["status"].get("phase") == "Running")
    workers = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}}
    await system.api.patch(path, workers)
    await system.pods_until("grows", lambda pods: len(bound(pods)) == 3)
    group = await system.group_until("grows", lambda it: it["status"].get("running") == 3)
    assert (group["spec"]["minMember"], group["status"]["phase"]) == (3, "Running")
    await system.delete(path)
    await system.pods_until("grows", lambda pods: not pods)


async def test_the_podgroup_of_a_training_job_stays_in_the_queue_of_its_namespace(
    system: OperatorSystem, operator: OperatorTool
) -> None:
    """The operator writes it at each look at the job; another one leaves the queue out, for which
    the schema has the default."""
    head = {"apiVersion": kinds.QUEUES.api_version, "kind": kinds.QUEUES.kind}
    await system.api.create(kinds.QUEUES.path(), {**head, "metadata": {"name": "research"}})
    await system.api.create_namespace("team")
    annotated = {"metadata": {"annotations": {keys.NAMESPACE_QUEUE: "research"}}}
    await system.api.patch("/api/v1/namespaces/team", annotated)
    groups = kinds.POD_GROUPS.path("team")
    group = {"apiVersion": kinds.POD_GROUPS.api_version, "kind": kinds.POD_GROUPS.kind}
    dry_run = f"{groups}?dryRun=All"
    await operator_system.until(
        lambda: system.api.create(dry_run, {**group, "metadata": {"name": "known"}}),
        lambda it: it.get("spec", {}).get("queue") == "research",
    )
    job = example(operator, "pytorchjobs", "train", run_s=None, cpu="1")
    await system.api.create("/apis/kubeflow.org/v1/namespaces/team/pytorchjobs", job)
    path = f"{groups}/train"
    made = await system.until(path, lambda it: it.get("status", {}).get("phase") == "Running")
    assert made["spec"]["queue"] == "research"
    after = await system.api.patch(path, {"spec": {"queue": None, "minMember": 1}})
    assert (after["spec"]["queue"], after["spec"]["minMember"]) == ("research", 1)
    await system.delete("/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/train")
    await system.until(path, lambda it: not it)
