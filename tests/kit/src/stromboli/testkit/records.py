"""Drafts of Stromboli's messages, and functions that read topics. ``builders`` has the drafts of
objects.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from stromboli.shared import envelope, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import batch, log, scheduling
from stromboli.testkit import builders

DEADLINE_S = 90.0
"""Time limit of waits in seconds, sufficient on a busy machine and with a real broker."""


def phase_change(job: str = "default/j1", after: str = "Running") -> envelope.Draft:
    """A draft of the controller on a topic that is not a main topic."""
    message = batch.JobPhaseChanged(
        job=job, uid=f"job-{job}", queue="default", before="Pending", after=after, at=builders.NOON
    )
    return envelope.Draft(topic=topics.BATCH_EVENTS, key=job, message=message, time=builders.NOON)


def outcome_of(decision: str) -> envelope.Draft:
    """A draft of the controller on its main topic."""
    message = scheduling.DecisionAnswered(
        decision=decision, decision_offset=0, pod_group="default/g1"
    )
    return envelope.Draft(topic=topics.OUTCOMES, key=decision, message=message, time=builders.NOON)


def dead_letter(topic: topics.Topic, parked_by: str = "test") -> envelope.Draft:
    """A draft on the topic that all services write."""
    message = log.DeadLetter(
        topic=topic.name, offset=0, key="k", reported_by=parked_by, reason="test", headers={}
    )
    return envelope.Draft(
        topic=topics.DEAD_LETTERS, key=topic.name, message=message, time=builders.NOON
    )


async def read(
    bus: port.Bus, *wanted: topics.Topic, start: port.Position = port.START
) -> tuple[list[envelope.Record], dict[str, int]]:
    """Records and positions of a materialization until it is caught up."""
    records: list[envelope.Record] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        contextlib.aclosing(bus.materialize(wanted, start)) as batches,
    ):
        async for batch_read in batches:
            records += batch_read.records
            if batch_read.caught_up:
                return records, dict(batch_read.positions)
    raise AssertionError("a fold ended")


def keys(records: Sequence[envelope.Record]) -> list[str]:
    """The keys of records, without those that open a writer."""
    return [record.key for record in records if record.key != log.OPENED_KEY]
