"""Two replicas of each service on one log and one cluster, in this process: a leader and a standby.

And another system of the same API groups beside them: then neither leads.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from stromboli.controller import service as controller
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes import rules, simulated
from stromboli.monitor import service as monitor
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler import service as scheduler
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, keys, leader_election, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.leader_election import cluster_lease
from stromboli.shared.messages import batch as events
from stromboli.shared.messages import log
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects, records

WITHIN_S = 120.0
SERVICES: tuple[topics.Service, ...] = ("monitor", "scheduler", "controller")
TERMS = leader_election.LeaseSettings(duration_s=60, renew_deadline_s=40.0, retry_period_s=0.1)
"""No replica loses a lease because the machine is slow; each releases its lease when it ends."""
ENDED = ("Completed", "Failed", "Aborted", "Terminated")
OTHER_SYSTEM = {"namespace": "volcano-system", "name": "volcano"}


class Replicas:
    """Services by ``service/number``, each a task that can be ended."""

    def __init__(self, bus: EmbeddedBus, cluster: EmbeddedCluster) -> None:
        self.bus = bus
        self.cluster = cluster
        self.ahead: dict[int, timedelta] = {}
        """How far the clocks of replicas are ahead of the API server's."""
        self.healths: dict[str, runtime.Health] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, service: str, number: int) -> None:
        name = f"{service}-{number}"
        health = self.healths[name] = runtime.Health(service)
        settings = msgspec.structs.replace(TERMS, identity=name)
        ahead = self.ahead.get(number, timedelta(0))
        self._tasks[name] = asyncio.create_task(self._serve(service, settings, health, ahead))

    async def _serve(
        self,
        service: str,
        given: leader_election.LeaseSettings,
        health: runtime.Health,
        ahead: timedelta,
    ) -> None:
        bus, cluster = self.bus, self.cluster

        def clock() -> datetime:
            return runtime.utc_now() + ahead

        if service == "scheduler":
            settings = SchedulerSettings(instance=given.identity)
            await scheduler.serve(settings, bus, health, clock, lease=given)
        lease = cluster_lease.lease(given, service, "a", cluster, health, clock)  # type: ignore[arg-type]  # monitor or controller
        if service == "monitor":
            watching = MonitorSettings(instance=given.identity, heartbeat_s=0.05)
            await monitor.serve(watching, bus, cluster, health, clock, lease=lease)
        acting = ControllerSettings(instance=given.identity)
        await controller.serve(acting, bus, cluster, health, clock, lease=lease)

    async def end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        del self.healths[name]

    async def end_all(self) -> None:
        for name in list(self._tasks):
            await self.end(name)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once it is so; a service that has failed fails the test."""
        async with asyncio.timeout(WITHIN_S):
            while not is_so():
                for task in self._tasks.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    def role(self, name: str) -> str:
        return self.healths[name].notes.get("role", "")

    async def settled(self, active: int) -> None:
        """Return when every replica is ready, these ones as leaders and the others as standbys."""
        roles = {f"{service}-{active}": "active" for service in SERVICES}
        standby = {f"{service}-{1 - active}": f"{service}-{active}" for service in SERVICES}
        roles |= {name: f"standby of {of}" for name, of in standby.items() if name in self.healths}
        await self.until(
            lambda: all(
                health.is_ready and self.role(name) == roles[name]
                for name, health in self.healths.items()
            )
        )

    async def submit(self, name: str, pods: int) -> None:
        annotations = {keys.RUN_SECONDS: "0.2", keys.STARTS_WITH: str(pods)}
        containers = [{"name": "main", "image": "busybox"}]
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": containers},
        }
        task = {"name": "main", "replicas": pods, "minAvailable": pods, "template": template}
        spec = {"schedulerName": "volcano", "minAvailable": pods, "queue": "default"}
        body = objects.make(kinds.JOBS, name, spec={**spec, "maxRetry": 3, "tasks": [task]})
        await self.cluster.create(kinds.JOBS, "default", body)

    async def job(self, name: str) -> batch.Job:
        job: batch.Job = kinds.JOBS.decode(await self.cluster.get(kinds.JOBS, "default", name))
        return job

    async def phase(self, name: str) -> str:
        return (await self.job(name)).status.state.phase

    async def ended(self, name: str) -> batch.Job:
        """A job that has ended; a service that has failed fails the test."""
        async with asyncio.timeout(WITHIN_S):
            while (job := await self.job(name)).status.state.phase not in ENDED:
                for task in self._tasks.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)
        return job

    async def completed(self, *names: str) -> Counter[tuple[str, str]]:
        """The published phases of jobs, when these have ended."""
        ends = {(f"default/{name}", "Completed") for name in names}
        phases: Counter[tuple[str, str]] = Counter()
        async with (
            asyncio.timeout(WITHIN_S),
            contextlib.aclosing(self.bus.materialize((topics.BATCH_EVENTS,))) as batches,
        ):
            async for batch in batches:
                reported = [envelope.decode(record) for record in batch.records]
                changes = (it for it in reported if isinstance(it, events.JobPhaseChanged))
                phases.update((it.job, it.after) for it in changes)
                if ends <= phases.keys():
                    break
        return phases

    async def opened(self, topic: topics.Topic) -> list[str]:
        """Who has opened it, one behind the other."""
        found, _ = await records.read(self.bus, topic)
        reported = [envelope.decode(record) for record in found]
        return list(dict.fromkeys(it.instance for it in reported if isinstance(it, log.Opened)))


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with (
        EmbeddedBus(tmp_path / "log") as bus,
        EmbeddedCluster(tmp_path / "cluster") as embedded_cluster,
    ):
        nodes = simulated.node_documents(2, cpu="4", memory="8Gi")
        await simulated.create_nodes(embedded_cluster, nodes)
        running = simulated.Runner(embedded_cluster, rules.Rules(), runtime.utc_now)
        playing = asyncio.create_task(running.run())
        replicas = Replicas(bus, embedded_cluster)
        try:
            yield replicas
        finally:
            await replicas.end_all()
            playing.cancel()
            await asyncio.wait([playing])


async def test_a_standby_continues_where_the_leader_ended(replicas: Replicas) -> None:
    """While a gang is starting, and again with the next one: each job is published once, and no
    service has two writers.
    """
    for service in SERVICES:
        replicas.start(service, 0)
    await replicas.settled(active=0)
    for service in SERVICES:
        replicas.start(service, 1)
    await replicas.settled(active=0)
    await replicas.submit("first", 4)
    for service in SERVICES:
        await replicas.end(f"{service}-0")
    await replicas.settled(active=1)
    await replicas.completed("first")
    await replicas.submit("second", 4)
    phases = await replicas.completed("first", "second")
    wanted = {
        (f"default/{name}", phase)
        for name in ("first", "second")
        for phase in ("Pending", "Running", "Completed")
    }
    assert phases == Counter(wanted)
    for service in SERVICES:
        opened = await replicas.opened(topics.MAIN[service])
        assert opened == [f"{service}-0", f"{service}-1"]


async def test_replicas_with_different_clocks_act_and_take_over(replicas: Replicas) -> None:
    """By 20 minutes, and each by 10 from the API server's: this changes no liveness decision."""
    replicas.ahead = {0: timedelta(minutes=10), 1: timedelta(minutes=-10)}
    for service in SERVICES:
        replicas.start(service, 0)
    await replicas.settled(active=0)
    for service in SERVICES:
        replicas.start(service, 1)
    await replicas.settled(active=0)
    await replicas.submit("first", 4)
    await replicas.ended("first")
    for ended in ("monitor-0", "scheduler-0", "controller-0"):
        await replicas.end(ended)
        name = f"after-{ended}"
        await replicas.submit(name, 4)
        assert (await replicas.ended(name)).status.state.phase == "Completed"
    await replicas.settled(active=1)


PARTS = 5
OWN = [topic for topic in topics.ALL if topic.is_fenced or topic is topics.DEAD_LETTERS]


@pytest.mark.parametrize("part", range(PARTS))
async def test_each_topic_is_recreated_once_and_no_job_is_lost(
    replicas: Replicas, part: int
) -> None:
    """While a gang is starting each time, with two replicas of each service and different clocks:
    every gang ends at the first attempt, and its pods are bound once.
    """
    replicas.ahead = {0: timedelta(minutes=10), 1: timedelta(minutes=-10)}
    for service in SERVICES:
        replicas.start(service, 0)
    await replicas.settled(active=0)
    for service in SERVICES:
        replicas.start(service, 1)
    await replicas.settled(active=0)
    for number, topic in enumerate(OWN[part::PARTS]):
        name = f"job{number}"
        await replicas.submit(name, 2)
        await replicas.bus.recreate(topic)
        job = await replicas.ended(name)
        assert (job.status.state.phase, job.status.retry_count) == ("Completed", 0), topic.name
        await replicas.until(lambda: all(it.is_ready for it in replicas.healths.values()))


async def test_no_replica_acts_while_another_system_holds_the_lease(replicas: Replicas) -> None:
    """The line names the lease, its holder, the scheduler's name and what to do."""
    spec = {
        "holderIdentity": "vc-scheduler-7",
        "leaseDurationSeconds": 3600,
        "acquireTime": "2026-01-01T12:00:00.000000Z",
        "renewTime": _now(),
    }
    lease = objects.make(kinds.LEASES, OTHER_SYSTEM["name"], spec=spec)
    space = objects.make(kinds.NAMESPACES, OTHER_SYSTEM["namespace"])
    await replicas.cluster.create(kinds.NAMESPACES, "", space)
    await replicas.cluster.create(kinds.LEASES, OTHER_SYSTEM["namespace"], lease)
    await replicas.submit("waits", 2)
    for service in SERVICES:
        replicas.start(service, 0)
    for name in ("scheduler-0", "controller-0"):
        health = replicas.healths[name]
        await replicas.until(lambda health=health: "competitors" in health.problems)  # type: ignore[misc]  # mypy and defaults
        for said in (
            "Lease volcano-system/volcano",
            "vc-scheduler-7",
            "since 2026-01-01T12:00:00.000000Z",
            '"volcano"',
            "SCHEDULER_NAMES",
        ):
            assert said in health.problems["competitors"]
    assert "vc-scheduler-7" in replicas.healths["monitor-0"].warnings["competitors"]
    assert await replicas.phase("waits") == ""
    gone = objects.merge(spec={"holderIdentity": ""})
    await replicas.cluster.patch(
        kinds.LEASES, OTHER_SYSTEM["namespace"], OTHER_SYSTEM["name"], gone, patch_type="merge"
    )
    await replicas.settled(active=0)
    await replicas.completed("waits")


def _now() -> str:
    return runtime.utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
