"""A lost outcome holds resources no longer than the republication limit.

Monitor, scheduler and controller on the embedded log and cluster, in this process. The controller's
writer loses outcomes of placements, and the first binding is rejected, so that only a second
execution of the decision lets the pod start.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stromboli.controller import service as controller
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes import rules, simulated
from stromboli.monitor import service as monitor
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler import service as scheduler
from stromboli.scheduler.core.cache.in_flight import republication
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, errors, keys, topics
from stromboli.shared.api import core, kinds
from stromboli.shared.bus import port
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects, records

WITHIN_S = 120.0


class LosingWriter:
    """Acknowledges the first ``losing`` outcomes of placements without appending them."""

    def __init__(
        self, writer: port.Writer, losing: int, lost: asyncio.Queue[messages.DecisionAnswered]
    ) -> None:
        self._writer = writer
        self.epoch = writer.epoch
        self.opened_at = writer.opened_at
        self._losing = losing
        self._lost = lost

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        found = drafts[0].message
        if self._losing and isinstance(found, messages.DecisionAnswered) and found.tasks:
            self._losing -= 1
            self._lost.put_nowait(found)
            return (port.Appended(0, "lost"),)
        return await self._writer.append(*drafts)


class LosingBus:
    """The controller's log, and the outcomes that are ``lost``."""

    def __init__(self, bus: port.Bus, losing: int) -> None:
        self._bus = bus
        self._losing = losing
        self.lost: asyncio.Queue[messages.DecisionAnswered] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def open_writer(self, service: topics.Service, instance: str) -> port.Writer:
        writer = await self._bus.open_writer(service, instance)
        return LosingWriter(writer, self._losing, self.lost)


class RefusingCluster:
    """Refuses the first binding, as a policy does that is corrected later."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._refuses = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def bind(self, namespace: str, pod: str, **more: Any) -> None:
        if self._refuses:
            self._refuses = False
            raise errors.ForbiddenError(f"bind {pod}", "denied by a policy")
        await self._cluster.bind(namespace, pod, **more)


class LosingSystem:
    """The services, and the scheduler's clock ``ahead`` of the others."""

    def __init__(self, bus: EmbeddedBus, cluster: EmbeddedCluster) -> None:
        self.bus = bus
        self.cluster = cluster
        self.losing = LosingBus(bus, losing=1)
        self.ahead = timedelta()
        self._tasks: list[asyncio.Task[None]] = []

    def clock(self) -> datetime:
        return runtime.utc_now() + self.ahead

    def start(self) -> None:
        now, bus, cluster = runtime.utc_now, self.bus, self.cluster
        losing: Any = self.losing
        refusing: Any = RefusingCluster(cluster)
        services = (
            monitor.serve(
                MonitorSettings(heartbeat_s=0.05), bus, cluster, runtime.Health("monitor"), now
            ),
            scheduler.serve(SchedulerSettings(), bus, runtime.Health("scheduler"), self.clock),
            controller.serve(
                ControllerSettings(), losing, refusing, runtime.Health("controller"), now
            ),
        )
        self._tasks = [asyncio.create_task(each) for each in services]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def submit(self, name: str) -> None:
        await self.cluster.create(kinds.JOBS, "default", _job(name))

    async def until(self, holds: Callable[[list[core.Pod]], bool]) -> list[core.Pod]:
        """The pods, once they are as they should be."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                listing = await self.cluster.list(kinds.PODS)
                pods = [kinds.PODS.decode(raw) for raw in listing.items]
                if holds(pods):
                    return pods
                async with contextlib.aclosing(
                    self.cluster.watch(kinds.PODS, listing.resource_version)
                ) as changes:
                    await anext(changes)

    async def decisions(self) -> list[envelope.Record]:
        found, _ = await records.read(self.bus, topics.DECISIONS)
        return [it for it in found if _has_binds(it)]


def _has_binds(record: envelope.Record) -> bool:
    message = envelope.decode(record)
    return isinstance(message, messages.StatementDecided) and bool(message.binds)


def _job(name: str) -> bytes:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "3"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "main", "replicas": 1, "template": template}
    spec = {"schedulerName": "volcano", "minAvailable": 1, "queue": "default", "tasks": [task]}
    return objects.make(kinds.JOBS, name, spec=spec)


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[LosingSystem]:
    async with (
        EmbeddedBus(tmp_path / "log") as bus,
        EmbeddedCluster(tmp_path / "cluster") as embedded_cluster,
    ):
        await simulated.create_nodes(
            embedded_cluster, simulated.node_documents(1, cpu="4", memory="8Gi")
        )
        playing = asyncio.create_task(
            simulated.Runner(embedded_cluster, rules.Rules(), runtime.utc_now).run()
        )
        cell = LosingSystem(bus, embedded_cluster)
        cell.start()
        try:
            yield cell
        finally:
            await cell.stop()
            playing.cancel()
            await asyncio.wait([playing])


async def test_a_lost_outcome_does_not_hold_room_indefinitely(cell: LosingSystem) -> None:
    await cell.submit("first")
    async with asyncio.timeout(WITHIN_S):
        lost = await cell.losing.lost.get()
    assert [it.result for it in lost.tasks] == ["refused"]
    cell.ahead = republication.FIRST_WAIT + timedelta(seconds=1)
    await cell.submit("second")
    pods = await cell.until(lambda pods: any(it.spec.node_name for it in pods))
    (bound,) = [it for it in pods if it.spec.node_name]
    assert bound.metadata.name.startswith("first-")
    assert bound.metadata.annotation(keys.DECISION) == lost.decision
    first, second = await cell.decisions()
    again = envelope.decode(second)
    assert isinstance(again, messages.StatementDecided)
    assert (first.id, again.decision) == (lost.decision, lost.decision)
