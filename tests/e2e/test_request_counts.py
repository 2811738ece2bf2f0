"""Large queues and large jobs, measured by counting requests to the cluster instead of seconds."""

import asyncio
import collections
import contextlib
import gc
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from stromboli.controller import service as controller
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes import simulated
from stromboli.monitor import service as monitor
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler import service as scheduler
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.jobspec.policies import pod_annotations
from stromboli.shared.runtime import runtime

GANGS, PODS_PER_GANG = 100, 100
LARGE = 5000
WITHIN_S, POLL_EVERY_S = 240.0, 0.02
SCHEDULED = "Event that a pod was scheduled"
"""Counted apart: these are written behind everything else, at a limited rate."""
CHANGES, GROWTH_BYTES = 10, 500_000
"""What a group of a hundred pending gangs may retain over ten changes elsewhere: one kilobyte for
each gang at each change would be twice that.
"""


class CountingCluster(EmbeddedCluster):
    """Counts requests: (verb, kind) -> how many."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.requested: collections.Counter[tuple[str, str]] = collections.Counter()
        self.created_before_bind: dict[str, int] = {}
        """Pod -> how many pods had been created when it was bound."""

    async def get(self, kind: port.AnyKind, namespace: str, name: str) -> bytes:
        self.requested["get", kind.kind] += 1
        return await super().get(kind, namespace, name)

    async def create(
        self, kind: port.AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        is_news = kind is kinds.EVENTS and b'"reason":"Scheduled"' in body
        verb = "dry run" if dry_run else "create"
        self.requested[verb, SCHEDULED if is_news else kind.kind] += 1
        return await super().create(kind, namespace, body, dry_run=dry_run)

    async def patch(self, kind: port.AnyKind, *arguments: Any, **named: Any) -> bytes:
        self.requested["patch", kind.kind] += 1
        return await super().patch(kind, *arguments, **named)

    async def bind(self, namespace: str, pod: str, **named: Any) -> None:
        self.requested["bind", "Pod"] += 1
        self.created_before_bind[pod] = self.requested["create", "Pod"]
        await super().bind(namespace, pod, **named)

    def requests(self) -> collections.Counter[tuple[str, str]]:
        """All but those for leases, which are renewed as time passes."""
        return collections.Counter(
            {what: number for what, number in self.requested.items() if what[1] != "Lease"}
        )

    async def delete(self, kind: port.AnyKind, *arguments: Any, **named: Any) -> None:
        self.requested["delete", kind.kind] += 1
        await super().delete(kind, *arguments, **named)


@contextlib.asynccontextmanager
async def running(
    folder: Path, nodes: int, cpu: str, *, bound_pods: bool = False
) -> AsyncIterator[CountingCluster]:
    """Monitor, scheduler and controller on one cluster without nodes that run pods."""
    async with (
        EmbeddedBus(folder / "log.db") as bus,
        CountingCluster(folder / "cluster.db") as cluster,
    ):
        await simulated.create_nodes(
            cluster, simulated.node_documents(nodes, cpu=cpu, memory="1Ti")
        )
        for document in pod_annotations.documents() if bound_pods else ():
            kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
            await cluster.create(kind, "", msgspec.json.encode(document))
        clock = runtime.utc_now
        healths = [runtime.Health(name) for name in ("monitor", "scheduler", "controller")]
        work = (
            monitor.serve(MonitorSettings(), bus, cluster, healths[0], clock),
            scheduler.serve(SchedulerSettings(), bus, healths[1], clock),
            controller.serve(
                ControllerSettings(bound_pods=bound_pods), bus, cluster, healths[2], clock
            ),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            for health in healths:
                await health.ready()
            try:
                yield cluster
            finally:
                for task in tasks:
                    task.cancel()


def gang(name: str, pods: int) -> bytes:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    task = {"name": "t", "replicas": pods, "template": {"spec": pod}}
    spec = {"schedulerName": "volcano", "minAvailable": pods, "queue": "default", "tasks": [task]}
    return msgspec.json.encode(
        {
            "apiVersion": kinds.JOBS.api_version,
            "kind": "Job",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


async def until(holds: Callable[[], Any]) -> None:
    """Return when a condition of the cluster is true."""
    async with asyncio.timeout(WITHIN_S):
        while not await holds():  # noqa: ASYNC110 - what is asked is the cluster
            await asyncio.sleep(POLL_EVERY_S)


async def count(cluster: CountingCluster, kind: port.AnyKind) -> int:
    return len((await cluster.list(kind)).items)


async def test_ten_thousand_pending_pods_cost_nothing_without_relevant_changes(
    tmp_path: Path,
) -> None:
    """No pod is created before there is room, no request is repeated, and nothing is retained for
    changes that help no gang.
    """
    async with running(tmp_path, nodes=1, cpu="1") as cluster:
        for index in range(GANGS):
            await cluster.create(kinds.JOBS, "default", gang(f"g{index:03d}", PODS_PER_GANG))

        async def all_wait() -> bool:
            has_reasons = cluster.requested["patch", "PodGroup"] >= GANGS
            return has_reasons and await idle(cluster)

        await until(all_wait)
        assert await count(cluster, kinds.POD_GROUPS) == GANGS
        assert await count(cluster, kinds.PODS) == 0
        assert cluster.requested["create", "PodGroup"] == GANGS
        assert cluster.requested["patch", "Job"] <= 2 * GANGS
        await irrelevant_changes(cluster, CHANGES)  # whatever is made once is made by now
        before = cluster.requests()
        tracemalloc.start()
        try:
            held = [await retained_after_changes(cluster) for _ in range(4)]
        finally:
            tracemalloc.stop()
        own = {("patch", "Node"), ("get", "Node")}
        repeated = {what: n for what, n in (cluster.requests() - before).items() if what not in own}
        assert sum(repeated.values()) <= GANGS / 10, repeated
        # What a service allocates now and then, such as for a state write, falls into one round.
        assert min(after - before for before, after in itertools.pairwise(held)) < GROWTH_BYTES


async def retained_after_changes(cluster: CountingCluster) -> int:
    """Bytes that were allocated since tracing began and are still in use."""
    await irrelevant_changes(cluster, CHANGES)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def irrelevant_changes(cluster: CountingCluster, times: int) -> None:
    """Labels of the node that make no room."""
    name = kinds.metadata_of((await cluster.list(kinds.NODES)).items[0]).name
    for index in range(times):
        patch = msgspec.json.encode({"metadata": {"labels": {"n": str(index)}}})
        await cluster.patch(kinds.NODES, "", name, patch, patch_type="merge")
        await idle(cluster)


async def idle(cluster: CountingCluster) -> bool:
    """No service has sent a request for a while, after each could run."""
    before = cluster.requested.total()
    for _ in range(20):
        await asyncio.sleep(0.005)
    return cluster.requested.total() == before


async def test_a_job_of_thousands_of_pods_does_not_block_a_small_one(tmp_path: Path) -> None:
    """It is bound while most of the large one's pods are still to be made."""
    async with running(tmp_path, nodes=60, cpu="128") as cluster:
        await cluster.create(kinds.JOBS, "default", gang("large", LARGE))

        async def has_begun() -> bool:
            return cluster.requested["create", "Pod"] >= 50

        await until(has_begun)
        await cluster.create(kinds.JOBS, "default", gang("small", 1))

        async def small_is_bound() -> bool:
            return "small-t-0" in cluster.created_before_bind

        await until(small_is_bound)
        assert cluster.created_before_bind["small-t-0"] < LARGE / 2


async def test_binding_a_gang_costs_two_requests_per_pod(tmp_path: Path) -> None:
    """One creation and one bind; all else is a few requests a gang, however slow the machine."""
    gangs, pods = 5, 40
    async with running(tmp_path, nodes=10, cpu="32") as cluster:
        before = cluster.requests()
        for index in range(gangs):
            await cluster.create(kinds.JOBS, "default", gang(f"g{index}", pods))

        async def all_bound() -> bool:
            found = (await cluster.list(kinds.PODS)).items
            return sum(bool(kinds.PODS.decode(raw).spec.node_name) for raw in found) == gangs * pods

        await until(all_bound)
        requested = cluster.requests() - before
        assert requested["create", "Pod"] == requested["bind", "Pod"] == gangs * pods
        assert requested["patch", "Pod"] == requested["get", "Pod"] == 0
        assert requested["create", SCHEDULED] <= gangs * pods + gangs
        assert requested.total() - requested["create", SCHEDULED] <= 2 * gangs * pods + 12 * gangs


async def test_a_gang_that_fits_costs_one_request_per_pod_if_pods_are_created_bound(
    tmp_path: Path,
) -> None:
    """No Binding is written. The plans of gangs with equal pods share a dry run, unless they are
    made at the same time."""
    gangs, pods = 5, 40
    async with running(tmp_path, nodes=10, cpu="32", bound_pods=True) as cluster:
        before = cluster.requests()
        for index in range(gangs):
            await cluster.create(kinds.JOBS, "default", gang(f"g{index}", pods))

        async def all_bound() -> bool:
            found = (await cluster.list(kinds.PODS)).items
            return sum(bool(kinds.PODS.decode(raw).spec.node_name) for raw in found) == gangs * pods

        await until(all_bound)
        requested = cluster.requests() - before
        assert requested["create", "Pod"] == gangs * pods
        assert requested["bind", "Pod"] == requested["patch", "Pod"] == requested["get", "Pod"] == 0
        assert 1 <= requested["dry run", "Pod"] <= gangs
        assert requested.total() - requested["create", SCHEDULED] <= gangs * pods + 13 * gangs
