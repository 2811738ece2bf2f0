"""The controller's service on the embedded log and cluster, with the monitor's and the
scheduler's parts played by the test."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stromboli.controller import service
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.fault_injection import FaultyBus, FaultyCluster
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import batch as batch_messages
from stromboli.shared.messages import cluster as cluster_messages
from stromboli.shared.messages import log
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders

T = TypeVar("T", bound=msgspec.Struct)
Obj = TypeVar("Obj", bound=meta.Object)
SEED = int(os.environ.get("STROM_FAULT_SEED", "1"))
"""By which a disordered controller is; another one with STROM_FAULT_SEED=n."""
BEAT_S = 0.05
WATCHED = tuple(kind for kind in kinds.WATCHED if kind not in {kinds.NODES, *kinds.OPTIONAL})


def no_key(*_: object, **__: object) -> None:
    """Add no key to a work queue."""


class Harness:
    """What a test sees and does beside the controller."""

    def __init__(
        self, bus: bus_port.Bus, cluster: cluster_port.Cluster, faults: int | None = None
    ) -> None:
        self.bus = bus
        self.replaced_monitor: bus_port.Writer | None = None
        self.cluster = cluster
        self.faults = faults
        self.ahead = timedelta(0)
        self.is_silent = False
        self._synced: dict[kinds.Kind[Any], str] = {}
        self.health = runtime.Health("controller")
        self.read: dict[str, list[envelope.Record]] = {}
        self._grown = asyncio.Event()
        self._monitor: bus_port.Writer | None = None
        self._scheduler: bus_port.Writer | None = None
        self._statements: dict[str, messages.StatementDecided] = {}

    # The controller

    @contextlib.asynccontextmanager
    async def controller(self, **settings: Any) -> AsyncIterator[None]:
        """A controller while inside, stopped as SIGTERM does."""
        self.health = runtime.Health("controller")
        bus, cluster = self.bus, self.cluster
        if self.faults is not None:
            bus = FaultyBus(bus, self.faults)
            cluster = FaultyCluster(cluster, self.faults)
        controller_settings = ControllerSettings(**settings)
        running = asyncio.create_task(
            service.serve(controller_settings, bus, cluster, self.health, self.clock)
        )
        try:
            await self._unless_over(running, self.health.ready())
            yield
        finally:
            if not running.done():
                running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def clock(self) -> datetime:
        """The controller's clock, ``ahead`` of all other clocks."""
        return runtime.utc_now() + self.ahead

    async def _unless_over(self, running: asyncio.Task[None], wait: Any) -> None:
        waiting = asyncio.ensure_future(wait)
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.done():
            running.result()

    # The monitor

    async def relay(self) -> None:
        """Publish every change of the cluster on its snapshot topic."""
        self._monitor = writer = await self.bus.open_writer("monitor", "test")
        async with asyncio.TaskGroup() as tasks:
            for kind in WATCHED:
                tasks.create_task(self._relay_kind(writer, kind))
            while True:  # signs of life, as the monitor gives them
                await asyncio.sleep(BEAT_S)
                for kind, version in list(self._synced.items()) if not self.is_silent else ():
                    await self.beat(writer, kind, version)

    async def _relay_kind(self, writer: bus_port.Writer, kind: kinds.Kind[Any]) -> None:
        listing = await self.cluster.list(kind)
        for raw in listing.items:
            await writer.append(builders.snapshot_of(kind.decode(raw)))
        await self.beat(writer, kind, listing.resource_version)
        async for event in self.cluster.watch(kind, listing.resource_version):
            found = kind.decode(event.object)
            if event.type == "BOOKMARK":
                await self.beat(writer, kind, found.metadata.resource_version)
            elif event.type == "DELETED":
                await writer.append(builders.tombstone_of(found))
            else:
                await writer.append(builders.snapshot_of(found))

    async def beat(self, writer: bus_port.Writer, kind: kinds.Kind[Any], version: str) -> None:
        """The sign of life of a kind."""
        self._synced[kind] = version
        if self.is_silent:
            return
        message = cluster_messages.KindSynced(
            kind=kind.plural, state="synced", resource_version=version, at=runtime.utc_now()
        )
        draft = envelope.Draft(topic=topics.SYNC, key=kind.plural, message=message, time=message.at)
        await writer.append(draft)

    async def has_read(self, topic: topics.Topic, key: str) -> None:
        """Wait until the controller has read a record with this key. It publishes a dead letter
        for an undecodable record behind it, whether it may act or not."""
        async with contextlib.aclosing(self.bus.materialize((topic,))) as batches:
            async for batch_ in batches:
                if any(record.key == key for record in batch_.records):
                    break
        assert self._monitor is not None
        marker = f"behind/{len(self.all_seen(topics.DEAD_LETTERS, log.DeadLetter))}"
        draft = envelope.Draft(
            topic=msgspec.structs.replace(topic, messages=(log.Opened,)),
            key=marker,
            message=log.Opened(writer="monitor", instance="test"),
            time=runtime.utc_now(),
        )
        await self._monitor.append(draft)
        await self.sent(topics.DEAD_LETTERS, log.DeadLetter, lambda it: it.key == marker)

    # The scheduler

    async def decide(self, **statement: Any) -> str:
        """Append a decision; returns its id."""
        decided = messages.StatementDecided(session=1, **statement)
        appended = await self._append(_decision(decided))
        self._statements[appended.id] = decided
        return appended.id

    async def republish(self, decision: str) -> int:
        """Append a decision again under its id; returns the offset."""
        again = msgspec.structs.replace(self._statements[decision], decision=decision)
        return (await self._append(_decision(again))).offset

    async def answer_at(self, offset: int) -> messages.DecisionAnswered:
        """The controller's outcome for the publication at this offset, when it exists."""
        return await self.sent(
            topics.OUTCOMES, messages.DecisionAnswered, lambda it: it.decision_offset == offset
        )

    async def explain(self, message: messages.PodGroupExplained) -> None:
        """Publish why a PodGroup is pending."""
        await self.append_decision(
            envelope.Draft(
                topic=topics.EXPLANATIONS,
                key=message.pod_group,
                message=message,
                time=runtime.utc_now(),
            )
        )

    async def append_decision(self, draft: envelope.Draft) -> str:
        return (await self._append(draft)).id

    async def _append(self, draft: envelope.Draft) -> bus_port.Appended:
        if self._scheduler is None:
            self._scheduler = await self.bus.open_writer("scheduler", "test")
        (appended,) = await self._scheduler.append(draft)
        return appended

    async def enqueue(self, group: scheduling.PodGroup) -> str:
        """Publish the decision that lets the controller create a PodGroup's pods."""
        return await self.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, enqueue=True
        )

    async def place(self, group: scheduling.PodGroup, pods: list[core.Pod]) -> str:
        """The decision that binds pods, each to node n1."""
        binds = tuple(
            messages.Bind(
                namespace=pod.metadata.namespace,
                pod=pod.metadata.name,
                uid=pod.metadata.uid,
                node="n1",
                annotations={"meant-for": pod.metadata.name},
            )
            for pod in pods
        )
        return await self.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, binds=binds
        )

    async def evict(
        self,
        group: scheduling.PodGroup,
        *pods: core.Pod,
        reason: str = "preempt",
        notice_s: float = 0.0,
    ) -> str:
        """Publish the decision that evicts pods for a PodGroup."""
        evictions = tuple(
            messages.Eviction(
                namespace=pod.metadata.namespace,
                pod=pod.metadata.name,
                uid=pod.metadata.uid,
                reason=reason,
                notice_s=notice_s,
            )
            for pod in pods
        )
        return await self.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=evictions
        )

    async def answer(self, decision: str) -> messages.DecisionAnswered:
        """The controller's outcome for a decision, when it exists."""
        return await self.sent(
            topics.OUTCOMES, messages.DecisionAnswered, lambda it: it.decision == decision
        )

    def answers(self, decision: str) -> list[messages.DecisionAnswered]:
        """All answers to a decision so far."""
        sent = self.all_seen(topics.OUTCOMES, messages.DecisionAnswered)
        return [it for it in sent if it.decision == decision]

    async def more(self) -> None:
        """Wait until the controller has published more."""
        await self._grown.wait()

    # Users and kubelets

    async def submit(self, obj: meta.Object) -> None:
        """Create an object as a user does."""
        kind = builders.kind_of(obj)
        body = msgspec.json.decode(msgspec.json.encode(obj))
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            body["metadata"].pop(field, None)
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        await self.cluster.create(kind, obj.metadata.namespace, msgspec.json.encode(body))

    async def report(self, pod: core.Pod, phase: str) -> None:
        """The kubelet's word on a pod."""
        patch = msgspec.json.encode({"status": {"phase": phase}})
        await self.cluster.patch(
            kinds.PODS,
            pod.metadata.namespace,
            pod.metadata.name,
            patch,
            patch_type="merge",
            subresource="status",
        )

    # Results

    async def follow(self) -> None:
        """Read the controller's topics."""
        wanted = (topics.OUTCOMES, topics.BATCH_EVENTS, topics.DEAD_LETTERS)
        async with contextlib.aclosing(self.bus.materialize(wanted)) as batches:
            async for batch_ in batches:
                for record in batch_.records:
                    self.read.setdefault(record.topic.name, []).append(record)
                self._grown.set()
                self._grown = asyncio.Event()

    def all_seen(self, topic: topics.Topic, struct: type[T]) -> list[T]:
        """All messages of a type on a topic."""
        decoded = [envelope.decode(record) for record in self.read.get(topic.name, [])]
        return [it for it in decoded if isinstance(it, struct)]

    def phases(self) -> list[str]:
        """The published phases of jobs. With fault injection an unacknowledged append is repeated
        before the next one."""
        sent = self.all_seen(topics.BATCH_EVENTS, batch_messages.JobPhaseChanged)
        return [
            each.after
            for nth, each in enumerate(sent)
            if self.faults is None or nth == 0 or each.after != sent[nth - 1].after
        ]

    async def sent(self, topic: topics.Topic, struct: type[T], fits: Callable[[T], bool]) -> T:
        """The first matching message, when it exists."""
        while True:
            grown = self._grown
            for message in self.all_seen(topic, struct):
                if fits(message):
                    return message
            await grown.wait()

    async def until(self, kind: kinds.Kind[Obj], key: str, holds: Callable[[Obj], bool]) -> Obj:
        """An object, once it is as it should be."""
        namespace, _, name = key.rpartition("/")
        listing = await self.cluster.list(kind)
        found = [kind.decode(raw) for raw in listing.items]
        for each in found:
            if each.metadata.key == key and holds(each):
                return each
        async for event in self.cluster.watch(kind, listing.resource_version):
            each = kind.decode(event.object)
            is_there = event.type in ("ADDED", "MODIFIED") and each.metadata.name == name
            if is_there and each.metadata.namespace == namespace and holds(each):
                return each
        raise AssertionError(f"{key} never came to be so")

    async def job(self, key: str, phase: str) -> batch.Job:
        """The job, once it is in this phase."""
        return await self.until(kinds.JOBS, key, lambda job: job.status.state.phase == phase)

    async def group(self, job: str) -> scheduling.PodGroup:
        """The PodGroup of a job, when it exists."""
        found = await self.job(job, "Pending")
        return await self.until(kinds.POD_GROUPS, f"{job}-{found.metadata.uid}", lambda _: True)

    async def pods(self, count: int) -> list[core.Pod]:
        """All pods, when there are this many."""
        return await self._listed(kinds.PODS, count)

    async def no_groups(self) -> None:
        """Wait until no PodGroup exists."""
        await self._listed(kinds.POD_GROUPS, 0)

    async def _listed(self, kind: kinds.Kind[Obj], count: int) -> list[Obj]:
        while True:
            listing = await self.cluster.list(kind)
            if len(listing.items) == count:
                return [kind.decode(raw) for raw in listing.items]
            await self.change(kind, listing.resource_version)

    async def change(self, kind: kinds.Kind[Any], behind: str) -> None:
        """Wait for the next change of a kind after a version."""
        async with contextlib.aclosing(self.cluster.watch(kind, behind)) as changes:
            await anext(changes, None)

    async def names(self, kind: kinds.Kind[Any]) -> list[str]:
        """Names of all objects of a kind."""
        return [kind.decode(raw).metadata.name for raw in (await self.cluster.list(kind)).items]


def _decision(statement: messages.StatementDecided) -> envelope.Draft:
    return envelope.Draft(
        topic=topics.DECISIONS,
        key=statement.pod_group,
        message=statement,
        time=runtime.utc_now(),
    )


@contextlib.asynccontextmanager
async def set_up(
    folder: Path, faults: int | None, cluster_type: type[EmbeddedCluster] = EmbeddedCluster
) -> AsyncIterator[Harness]:
    """Log, cluster, monitor and a reader, without a controller. ``faults``: the seed by which
    the controller reads late, twice and out of order, and calls fail."""
    async with EmbeddedBus(folder / "log.db") as bus, cluster_type(folder / "c.db") as cluster:
        harness = Harness(bus, cluster, faults)
        harness.replaced_monitor = await bus.open_writer("monitor", "replaced")
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(harness.relay()), tasks.create_task(harness.follow())]
            try:
                yield harness
            finally:
                for helper in helpers:
                    helper.cancel()
