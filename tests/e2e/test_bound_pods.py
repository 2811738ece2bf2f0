"""Pods created with their nodes, on the embedded parts: every failure leads to pending pods that
are bound later, and never to two pods, a lost pod or a retry of the job."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.controller import service as controller
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes import simulated
from stromboli.monitor import service as monitor
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler import service as scheduler
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port
from stromboli.shared.jobspec.policies import pod_annotations
from stromboli.shared.messages import scheduling
from stromboli.shared.runtime import runtime

PODS = 6
WITHIN_S, POLL_EVERY_S = 120.0, 0.02
BeforeCreate = Callable[["WatchedCluster", core.Pod], Awaitable[None]]


class WatchedCluster(EmbeddedCluster):
    """Calls ``before_create`` before a pod is created, and keeps the names of all created and
    bound pods."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.before_create: BeforeCreate | None = None
        self.change_created: Callable[[dict[str, Any]], None] | None = None
        self.before_admission: Callable[[], Awaitable[None]] | None = None
        self.created: list[str] = []
        self.bound: list[str] = []

    async def create(
        self, kind: port.AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        is_pod = kind is kinds.PODS and not dry_run
        if is_pod and self.before_create is not None:
            await self.before_create(self, kinds.PODS.decode(body))
        if is_pod and self.change_created is not None:
            document = msgspec.json.decode(body)
            self.change_created(document)
            body = msgspec.json.encode(document)
        writing = asyncio.create_task(super().create(kind, namespace, body, dry_run=dry_run))
        if is_pod:
            writing.add_done_callback(lambda done: self._note(done, self.created))
        return await asyncio.shield(writing)

    async def patch(
        self, kind: port.AnyKind, namespace: str, name: str, patch: bytes, **more: Any
    ) -> bytes:
        if kind is kinds.POD_GROUPS and b"Inqueue" in patch and self.before_admission is not None:
            await self.before_admission()
        return await super().patch(kind, namespace, name, patch, **more)

    async def bind(self, namespace: str, pod: str, **named: Any) -> None:
        writing = asyncio.create_task(super().bind(namespace, pod, **named))
        writing.add_done_callback(lambda done: self._note(done, self.bound, pod))
        await asyncio.shield(writing)

    @staticmethod
    def _note(done: asyncio.Task[Any], written: list[str], pod: str = "") -> None:
        """Note a write that succeeded, also if its caller was killed before it ended."""
        if done.exception() is None:
            written.append(pod or kinds.PODS.decode(done.result()).metadata.name)


class System:
    """Monitor, scheduler and a controller that can be killed, on three nodes of four cores."""

    def __init__(self, bus: EmbeddedBus, cluster: WatchedCluster) -> None:
        self.bus, self.cluster = bus, cluster
        self._controller: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the controller."""
        health = runtime.Health("controller")
        settings = ControllerSettings(bound_pods=True, stop_within_s=0)
        serving = controller.serve(settings, self.bus, self.cluster, health, runtime.utc_now)
        self._controller = asyncio.create_task(serving)
        await health.ready()

    async def kill(self) -> None:
        """End the controller with what it has in flight."""
        if self._controller is not None:
            self._controller.cancel()
            with contextlib.suppress(asyncio.CancelledError, ExceptionGroup):
                await self._controller

    async def pods(self) -> list[core.Pod]:
        """All pods."""
        return [kinds.PODS.decode(raw) for raw in (await self.cluster.list(kinds.PODS)).items]

    async def all_bound(self) -> list[core.Pod]:
        """All pods, once the whole gang has nodes."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                pods = await self.pods()
                noted = len(self.cluster.created)  # behind what a list shows
                if len(pods) == PODS <= noted and all(pod.spec.node_name for pod in pods):
                    return pods
                await asyncio.sleep(POLL_EVERY_S)

    async def placed_without(self, uids: Container[str]) -> list[core.Pod]:
        """Pods with a node, without those of these uids."""
        pods = await self.pods()
        return [it for it in pods if it.spec.node_name and it.metadata.uid not in uids]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what a list of pods shows too early."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - behind what a list shows
                await asyncio.sleep(POLL_EVERY_S)

    async def outcomes(self) -> set[str]:
        """The reasons of the first outcome of a decision that bound pods, once it is published."""
        batches = self.bus.materialize((topics.OUTCOMES,), bus_port.START)
        async with contextlib.aclosing(batches) as found:
            async for batch_ in found:
                for record in batch_.records:
                    message = envelope.decode(record)
                    if isinstance(message, scheduling.DecisionAnswered) and message.tasks:
                        return {task.reason for task in message.tasks}
        raise AssertionError("the log ended")

    async def job(self) -> batch.Job:
        """The job."""
        return kinds.JOBS.decode(await self.cluster.get(kinds.JOBS, "default", "g"))


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        WatchedCluster(tmp_path / "cluster.db") as cluster,
    ):
        for document in pod_annotations.documents():
            kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
            await cluster.create(kind, "", msgspec.json.encode(document))
        nodes = simulated.node_documents(3, cpu="4", memory="1Ti")
        await simulated.create_nodes(cluster, nodes)
        made = System(bus, cluster)
        healths = [runtime.Health(name) for name in ("monitor", "scheduler")]
        async with asyncio.TaskGroup() as group:
            work = (
                monitor.serve(MonitorSettings(), bus, cluster, healths[0], runtime.utc_now),
                scheduler.serve(SchedulerSettings(), bus, healths[1], runtime.utc_now),
            )
            tasks = [group.create_task(each) for each in work]
            await made.start()
            for health in healths:
                await health.ready()
            try:
                yield made
            finally:
                await made.kill()
                for task in tasks:
                    task.cancel()


async def submit(system: System, name: str = "g") -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "t", "replicas": PODS, "template": template}
    spec = {"schedulerName": "volcano", "minAvailable": PODS, "queue": "default", "tasks": [task]}
    body = {
        "apiVersion": kinds.JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": spec,
    }
    await system.cluster.create(kinds.JOBS, "default", msgspec.json.encode(body))


async def check(system: System) -> None:
    """Each pod was created once, no node is overcommitted, and no retry was spent."""
    pods = await system.all_bound()
    assert sorted(system.cluster.created) == sorted({pod.metadata.name for pod in pods})
    nodes = [pod.spec.node_name for pod in pods]
    assert max(nodes.count(node) for node in nodes) <= 4
    assert (await system.job()).status.retry_count == 0


async def test_a_gang_that_fits_is_created_with_its_nodes(system: System) -> None:
    await submit(system)
    await check(system)
    assert system.cluster.bound == []


async def test_pods_do_not_wait_for_the_update_that_admits_their_gang(system: System) -> None:
    """Nothing may reject it, so the two are requested at once."""

    async def until_created() -> None:
        await system.until(lambda: len(system.cluster.created) == PODS)

    system.cluster.before_admission = until_created
    await submit(system)
    await check(system)
    assert system.cluster.bound == []


@pytest.mark.parametrize("is_rejected", [False, True])
async def test_pods_wait_for_an_admission_that_a_policy_of_others_may_reject(
    system: System, is_rejected: bool
) -> None:
    """Otherwise they would run although their gang was never admitted."""
    await system.kill()
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["podgroups"],
    }
    policy = {
        "apiVersion": kinds.VALIDATING_POLICIES.api_version,
        "kind": kinds.VALIDATING_POLICIES.kind,
        "metadata": {"name": "quota.example.org"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}},
    }
    encoded = msgspec.json.encode(policy)
    await system.cluster.create(kinds.VALIDATING_POLICIES, "", encoded)
    await system.start()
    begun, created_before = asyncio.Event(), []

    async def judge() -> None:
        created_before.append(len(system.cluster.created))
        begun.set()
        if is_rejected:
            raise errors.ForbiddenError("patch PodGroup", "policy: over the budget")

    system.cluster.before_admission = judge
    await submit(system)
    if is_rejected:
        async with asyncio.timeout(WITHIN_S):
            await begun.wait()
            assert await system.outcomes() == {"NotAdmitted"}
        assert system.cluster.created == []
    else:
        await check(system)
        assert system.cluster.bound == []
    assert created_before[0] == 0


async def test_without_the_policy_for_annotations_pods_are_created_pending(system: System) -> None:
    await system.kill()
    await system.cluster.delete(kinds.VALIDATING_POLICIES, "", pod_annotations.NAME)
    await system.start()
    await submit(system)
    await check(system)
    await system.until(lambda: len(system.cluster.bound) == PODS)


async def test_a_webhook_that_varies_is_found_by_the_first_pods(system: System) -> None:
    """Dry runs do not show what it changes. The pods stay, and the next job of the template has
    pending pods."""

    def grow(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m"

    system.cluster.change_created = grow
    await submit(system)
    await check(system)
    assert system.cluster.bound == []
    await submit(system, "h")
    await system.until(lambda: len(system.cluster.bound) == PODS)


async def test_a_gang_whose_pods_may_not_name_a_node_is_created_pending(system: System) -> None:
    """Such as by a policy that rejects nodeName, and that exempts dry runs."""

    async def reject(_: WatchedCluster, pod: core.Pod) -> None:
        if pod.spec.node_name:
            raise errors.ForbiddenError("create Pod", "policy: nodeName is not allowed")

    system.cluster.before_create = reject
    await submit(system)
    await check(system)
    await system.until(lambda: len(system.cluster.bound) == PODS)


async def test_pods_of_a_node_that_is_cordoned_meanwhile_go_elsewhere(system: System) -> None:
    cordoned: list[str] = []
    seen = asyncio.Event()

    async def cordon(cluster: WatchedCluster, pod: core.Pod) -> None:
        """Cordon the node of the first pod, and reject all that name it."""
        if pod.spec.node_name and not cordoned:
            cordoned.append(pod.spec.node_name)
            patch = msgspec.json.encode({"spec": {"unschedulable": True}})
            await cluster.patch(kinds.NODES, "", pod.spec.node_name, patch, patch_type="merge")
            seen.set()
        if pod.spec.node_name in cordoned:
            await seen.wait()
            raise errors.InvalidError("create Pod", "the node is cordoned")

    system.cluster.before_create = cordon
    await submit(system)
    await check(system)
    assert cordoned[0] not in {pod.spec.node_name for pod in await system.pods()}


async def test_pods_that_their_node_rejects_are_placed_on_other_nodes(system: System) -> None:
    """Without a policy of the job, and without a retry."""
    await submit(system)
    await check(system)
    pods = await system.pods()
    node = pods[0].spec.node_name
    rejected = {pod.metadata.uid: pod for pod in pods if pod.spec.node_name == node}
    status = msgspec.json.encode({"status": {"phase": "Failed", "reason": "OutOfcpu"}})
    for pod in rejected.values():
        name = pod.metadata.name
        await system.cluster.patch(
            kinds.PODS, "default", name, status, patch_type="merge", subresource="status"
        )
    async with asyncio.timeout(WITHIN_S):
        while len(await system.placed_without(rejected)) < PODS:  # noqa: ASYNC110 - polled
            await asyncio.sleep(POLL_EVERY_S)
    assert node not in {
        pod.spec.node_name
        for pod in await system.pods()
        if pod.metadata.name in {it.metadata.name for it in rejected.values()}
    }
    job = (await system.job()).status
    assert job.retry_count == job.asked_retries
    assert job.state.phase in ("Pending", "Running")


@pytest.mark.parametrize("after", range(PODS + 1))
async def test_a_controller_killed_between_creates_leaves_neither_doubles_nor_losses(
    system: System, after: int
) -> None:
    killed = asyncio.Event()
    begun: list[str] = []

    async def hold(_: WatchedCluster, pod: core.Pod) -> None:
        """Let the first creates pass; the others never end in this process."""
        begun.append(pod.metadata.name)
        if len(begun) > after:
            killed.set()
            await asyncio.Event().wait()

    system.cluster.before_create = hold
    await submit(system)
    if after < PODS:
        async with asyncio.timeout(WITHIN_S):
            await killed.wait()
    else:
        await system.all_bound()
    await system.kill()
    system.cluster.before_create = None
    await system.start()
    await check(system)
