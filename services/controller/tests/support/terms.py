"""Terms of controllers that only publish: the event history without jobs and cluster."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.controller.batch_state_writer import BatchStateWriter
from stromboli.controller.core.store import batch_state, controller_cache, event_history
from stromboli.controller.event_history_reader import EventHistoryReader
from stromboli.shared import envelope, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import batch as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders

Event = messages.TaskChanged | messages.JobPhaseChanged | messages.JobDeleted


class Clock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = builders.NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, passed: timedelta) -> None:
        """Advance the time."""
        self.now += passed


class CountingCache(controller_cache.ControllerCache):
    """Counts the events that it gets."""

    def __init__(self) -> None:
        super().__init__(["volcano"], event_history.EventHistory())
        self.events = 0
        self._grown = asyncio.Event()

    async def has_read(self, events: int) -> None:
        """Wait until it has read this many records."""
        while self.events < events:
            self._grown.clear()
            await self._grown.wait()

    def load(self, message: msgspec.Struct) -> None:
        self.events += 1
        self._grown.set()
        super().load(message)


class Term:
    """One controller, from its start until it is killed or stopped."""

    def __init__(self, bus: port.Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self.cache = CountingCache()
        self.state = batch_state.BatchState(self.cache.published)
        self.health = runtime.Health("controller")
        self.reader = EventHistoryReader(bus, self.health, self.cache, self.state, clock)
        self._writer: port.Writer
        self._state_writer: BatchStateWriter

    async def begin(self) -> None:
        """Become the leader."""
        self._writer = await self._bus.open_writer("controller", "test")
        await self.reader.read(to_the_end=True)
        self._state_writer = BatchStateWriter(
            self.state, self._writer, self.reader.topic_ids, self.health, self._clock
        )

    async def publish(self, events: Sequence[Event]) -> None:
        """Publish as the command executor does."""
        drafts = [
            envelope.Draft(topic=topics.BATCH_EVENTS, key=it.job, message=it, time=self._clock.now)
            for it in events
        ]
        for event, record in zip(events, await self._writer.append(*drafts), strict=True):
            self.cache.published.observe(event)
            self.state.note_event(event, record.offset, self._writer.epoch, self._clock.now)

    async def write_round(self) -> None:
        """Write the state."""
        await self._state_writer.write_round()


def pod_event(job: str, index: int, after: str, task: str = "worker") -> messages.TaskChanged:
    """A pod of a job is in another state."""
    return messages.TaskChanged(
        job=job,
        uid=f"uid-{job}",
        task=task,
        index=index,
        pod=f"{job.partition('/')[2]}-{task}-{index}",
        pod_uid=f"{job}-{task}-{index}",
        before="",
        after=after,
        at=builders.NOON,
        attempt=1,
        object_version=5,
    )
