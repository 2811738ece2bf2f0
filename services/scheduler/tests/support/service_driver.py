"""Drives the scheduler's service on a log, in the place of the other services."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from stromboli.scheduler import service
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, keys, leader_election, topics
from stromboli.shared.api import core, meta
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster, log
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records

DEADLINE_S = records.DEADLINE_S
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SETTINGS = SchedulerSettings(instance="test")
NODE = builders.make_node("n1", cpu="4")


def gang(number: int, name: str = "g1") -> list[meta.Object]:
    trace = {keys.TRACEPARENT: TRACE}
    pods: list[core.Pod] = [builders.make_pod(f"{name}-w-{at}", name) for at in range(number)]
    return [builders.make_pod_group(name, number, annotations=trace), *pods]


BEAT_S = 0.05
"""Seconds between the monitor's sync markers; a reader that starts waits for the next one."""


class OtherServices:
    """Writes the records of the monitor and the controller."""

    def __init__(self, bus: port.Bus, monitor: port.Writer, controller: port.Writer) -> None:
        self.bus = bus
        self.is_synced = False
        self._monitor = monitor
        self.controller = controller

    async def replace_monitor(self) -> port.Writer:
        """Open a new monitor's writer; return the replaced one."""
        replaced, self._monitor = self._monitor, await self.bus.open_writer("monitor", "other")
        return replaced

    async def see(self, *objects: meta.Object) -> None:
        await self._monitor.append(*(builders.snapshot_of(obj) for obj in objects))

    async def sync(self) -> None:
        """Append sync markers for every kind, now and with every heartbeat."""
        self.is_synced = True
        await self._append_sync_markers()

    async def send_heartbeats(self) -> None:
        """Append the monitor's sync markers until cancelled."""
        while True:
            await asyncio.sleep(BEAT_S)
            if self.is_synced:
                await self._append_sync_markers()

    async def _append_sync_markers(self) -> None:
        drafts = []
        for kind in cluster_cache.KINDS:
            message = cluster.KindSynced(
                kind=kind.plural, state="synced", resource_version="1", at=builders.NOON
            )
            drafts.append(
                envelope.Draft(
                    topic=topics.SYNC, key=kind.plural, message=message, time=builders.NOON
                )
            )
        await self._monitor.append(*drafts)

    async def append_undecodable(self, topic: topics.Topic, key: str) -> None:
        """Append a message of a type that the topic does not have, as a newer version might."""
        unread = msgspec.structs.replace(topic, messages=(log.Opened,))
        message = log.Opened(writer="monitor", instance="x")
        await self._monitor.append(
            envelope.Draft(topic=unread, key=key, message=message, time=builders.NOON)
        )

    async def append_unreadable(self, key: str, unreadable: cluster.Unreadable) -> None:
        """Append what the monitor publishes for a pod that it cannot read."""
        await self._monitor.append(
            envelope.Draft(topic=topics.PODS, key=key, message=unreadable, time=builders.NOON)
        )

    async def execute(self, decision: envelope.Record) -> None:
        statement = envelope.decode(decision)
        assert isinstance(statement, messages.StatementDecided)
        answer = messages.DecisionAnswered(
            decision=decision.id,
            decision_offset=decision.offset,
            pod_group=statement.pod_group,
            tasks=tuple(
                messages.TaskOutcome(
                    namespace=bind.namespace, pod=bind.pod, uid=bind.uid, result="executed"
                )
                for bind in statement.binds
            ),
        )
        await self.controller.append(
            envelope.Draft(
                topic=topics.OUTCOMES, key=decision.id, message=answer, time=builders.NOON
            )
        )

    async def until(
        self, topic: topics.Topic, holds: Callable[[list[envelope.Record]], bool]
    ) -> list[envelope.Record]:
        """All records of a topic except ``opened``, once ``holds`` is true for them."""
        found: list[envelope.Record] = []
        async with (
            asyncio.timeout(DEADLINE_S),
            contextlib.aclosing(self.bus.materialize((topic,))) as batches,
        ):
            async for batch in batches:
                found += [record for record in batch.records if record.key != log.OPENED_KEY]
                if holds(found):
                    return found
        raise AssertionError("a fold ended")


@contextlib.asynccontextmanager
async def serving(
    bus: port.Bus,
    settings: SchedulerSettings = SETTINGS,
    registry: plugins.Registry | None = None,
    clock: runtime.Clock = lambda: builders.NOON,
    lease: leader_election.LeaseSettings | None = None,
) -> AsyncIterator[runtime.Health]:
    health = runtime.Health("scheduler")
    task = asyncio.create_task(service.serve(settings, bus, health, clock, registry, lease))
    try:
        yield health
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def is_ready(health: runtime.Health) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await health.ready()


async def has_problem(health: runtime.Health, fact: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while fact not in health.problems:  # noqa: ASYNC110 - health tells of readiness only
            await asyncio.sleep(0)


def at_least(number: int) -> Callable[[list[envelope.Record]], bool]:
    return lambda found: len(found) >= number


def bound(records: Sequence[envelope.Record]) -> list[str]:
    decoded = [envelope.decode(record) for record in records]
    return [
        bind.pod
        for message in decoded
        if isinstance(message, messages.StatementDecided)
        for bind in message.binds
    ]
